# SPDX-License-Identifier: Apache-2.0
"""`detect()`: which board is this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jetson_specdec.device.core import Detector, Device, Evidence
from jetson_specdec.device.merging import merge
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host, LocalHost

__all__ = ["default_detectors", "detect"]


def default_detectors() -> tuple[Detector, ...]:
    """Return the detectors that planning runs: files first, then at most two programs (`nvpmodel`, `nvidia-smi`)."""
    from jetson_specdec.device.boot_control import BootControlDetector
    from jetson_specdec.device.container import ContainerDetector, ProcessorDetector
    from jetson_specdec.device.device_tree import DeviceTreeDetector
    from jetson_specdec.device.memory import MemoryDetector
    from jetson_specdec.device.nvidia_smi import NvidiaSmiDetector
    from jetson_specdec.device.power import PowerDetector
    from jetson_specdec.device.release import ReleaseDetector

    return (
        DeviceTreeDetector(),
        BootControlDetector(),
        ReleaseDetector(),
        MemoryDetector(),
        PowerDetector(),
        NvidiaSmiDetector(),
        ContainerDetector(),
        ProcessorDetector(),
    )


def detect(
    host: Host | None = None,
    *,
    detectors: Sequence[Detector] | None = None,
    named: str | None = None,
    l4t: str | None = None,
    audit: Mapping[str, Any] | None = None,
) -> Device:
    """Say which board this is, as far as it can be known. Unknown stays None; nothing a board shows makes this fail.

    With `named` or `audit` a board that is not at hand is described: no machine is looked at and no program is run, so
    that a laptop's memory never passes for the board's. To weigh an audit against a machine, pass `AuditDetector` among
    `detectors`.

    Args:
        host: the machine to look at; this one where None.
        detectors: what looks, instead of `default_detectors()` and the registered plug-ins.
        named: a module or family to assume (`thor-t5000`, `AGX Orin 64GB`, `orin-nano`).
        l4t: an L4T release to assume (`36.4.7`, `r38.4`).
        audit: parsed JSON of NVIDIA's `jetson-memory-audit` or `jetson-diagnostic`.

    Returns:
        The board, with where each field was read and what the user should know.

    Raises:
        DeviceError: `named`, `l4t` or `audit` cannot be used.
    """
    given: list[Detector] = []
    if named is not None or l4t is not None:
        from jetson_specdec.device.named import NamedDetector

        given.append(NamedDetector(named, l4t))
    if audit is not None:
        from jetson_specdec.device.audit import AuditDetector

        given.append(AuditDetector(audit))
    elsewhere = named is not None or audit is not None
    machine = host if host is not None else LocalHost()
    looking: Sequence[Detector] = ()
    skipped: tuple[Finding, ...] = ()
    if not elsewhere and detectors is None:
        from jetson_specdec.extensions import DETECTORS, plugins

        others, skipped = plugins(DETECTORS, ("name", "priority", "detect"))
        looking = (*default_detectors(), *others)
    elif not elsewhere and detectors is not None:
        looking = detectors
    evidence = [_ask(detector, machine) for detector in (*given, *looking)]
    evidence.append((0, Evidence(findings=skipped)))
    device = merge(evidence)
    if detectors is None and not elsewhere and _service_may_know(device, machine):
        from jetson_specdec.device.jtop import JtopDetector

        device = merge([*evidence, _ask(JtopDetector(), machine)])
    return device


def _ask(detector: Detector, host: Host) -> tuple[int, Evidence]:
    """Run one detector; a third party's that breaks is named, and the others go on."""
    try:
        evidence = detector.detect(host)
        _check(evidence)
        return detector.priority, evidence
    except Exception as error:
        name = getattr(detector, "name", type(detector).__name__)
        reason = f"{type(error).__name__}: {error}"
        return 0, Evidence(findings=(Finding.of("JSD180", name=str(name), reason=reason),))


_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "is_jetson": bool,
    "in_container": bool,
    "power_mode_is_max": bool,
    "memory_total_bytes": int,
    "memory_available_bytes": int,
    "memory_bandwidth_gb_s": (int, float),
    **dict.fromkeys(("family", "module", "l4t", "jetpack", "power_mode", "gpu_name"), str),
}
"""What an observation of each field must be; the other names are hints of the built-in detectors."""


def _check(evidence: object) -> None:
    """Hold what a detector returned to its protocol, so that a broken one fails by name and not somewhere later."""
    if not isinstance(evidence, Evidence):
        raise TypeError(f"detect() returned {type(evidence).__name__}, not Evidence")
    for seen in evidence.observations:
        kind = _KINDS.get(seen.name)
        if kind is not None and (
            not isinstance(seen.value, kind) or (isinstance(seen.value, bool) and kind is not bool)
        ):
            raise TypeError(f"{seen.name} cannot be {seen.value!r}")


def _service_may_know(device: Device, host: Host) -> bool:
    """The service of jetson-stats is asked last, and only where its socket is there and the module is still open."""
    from jetson_specdec.device.jtop import SOCKET

    return host.live and device.is_jetson is not False and device.module is None and host.kind(SOCKET) != "absent"
