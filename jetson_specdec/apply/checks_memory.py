# SPDX-License-Identifier: Apache-2.0
"""Free memory, page cache and swap, read as the engine of the recipe reads them.

What counts as free when vLLM starts is the rule of `estimate.start_check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.checks_board import device_findings
from jetson_specdec.apply.checkup import Check
from jetson_specdec.findings import Finding, Severity

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Subject

__all__ = ["memory", "swap"]

SWAP_IN_USE = 512 * 2**20
"""Swapped-out memory worth a warning; less is what any system has."""


def memory(subject: Subject, *, busy: bool = False) -> Check:
    """Whether the engine's start check would pass now.

    Args:
        subject: what is examined.
        busy: whether another engine seems to run: then too little is free for an obvious reason.
    """
    from jetson_specdec.device.memory import PATH, parse_meminfo

    sizes = parse_meminfo(subject.host.read_text(PATH, limit=256 * 1024) or "")
    total, available, free = (sizes.get(name) for name in ("MemTotal", "MemAvailable", "MemFree"))
    told = device_findings(subject, "memory")
    if total is None or available is None:
        return Check(name="memory", findings=told)
    cache = None if free is None else max(available - free, 0)
    values: dict[str, Any] = {"total": total, "available": available, "free": free, "cache": cache}
    requested = _requested(subject, total)
    counts = _counts_available(subject)
    counted = None if counts is None else "available" if counts else "free"
    values |= {"requested": requested, "counted": counted}
    findings = [*told, *_judge(subject, values, counts, busy=busy)]
    return Check(name="memory", values=values, findings=tuple(findings))


def _requested(subject: Subject, total: int) -> int | None:
    """What the engine asks for at start: utilisation · total, rounded up (CUDA's total is MemTotal on these boards)."""
    import math

    from jetson_specdec.engine.release import default_utilization

    if subject.standing is None:
        return None
    flags = subject.standing.flags
    value = flags.gpu_memory_utilization
    if value is None and flags.utilization.state == "absent" and subject.release is not None:
        value = default_utilization(subject.release)
    return None if value is None else math.ceil(total * value)


def _counts_available(subject: Subject) -> bool | None:
    """Whether the engine takes MemAvailable for free; None where its release is not known."""
    from jetson_specdec.engine.release import at_least
    from jetson_specdec.estimate.start_check import AVAILABLE_SINCE

    return None if subject.release is None else at_least(subject.release, ".".join(map(str, AVAILABLE_SINCE)))


def _judge(subject: Subject, values: dict[str, Any], counts: bool | None, *, busy: bool) -> list[Finding]:
    requested, total, available, free = (values[name] for name in ("requested", "total", "available", "free"))
    l4t = subject.device.l4t
    if requested is None:
        return [Finding.of("JSD863", cache=values["cache"])] if values["cache"] and counts is not True else []
    if requested > available:
        fits = int(available * 100 / total) / 100
        severity = Severity.WARNING if busy else Severity.BLOCKING
        return [Finding.of("JSD860", severity=severity, requested=requested, available=available, fits=fits, busy=busy)]
    if free is None or requested <= free:
        return []
    if counts is False:
        return [Finding.of("JSD861", requested=requested, free=free, cache=values["cache"])]
    if counts is None:
        return [Finding.of("JSD864", requested=requested, free=free, cache=values["cache"])]
    # NvMap of L4T 36 gives up where the newer releases wait for the page cache to shrink.
    code = "JSD862" if l4t is not None and l4t.startswith("36.") else "JSD868"
    return [Finding.of(code, requested=requested, free=free, cache=values["cache"], l4t=l4t)]


def swap(subject: Subject) -> Check:
    """How much swap there is, whether it is in use, and whether it is compressed memory (zram)."""
    from jetson_specdec.device.memory import PATH, parse_meminfo

    sizes = parse_meminfo(subject.host.read_text(PATH, limit=256 * 1024) or "")
    total, free = sizes.get("SwapTotal"), sizes.get("SwapFree")
    if total is None or free is None:
        return Check(name="swap")
    used = total - free
    devices = [
        line.split()[0] for line in (subject.host.read_text("/proc/swaps") or "").splitlines()[1:] if line.split()
    ]
    zram = [name for name in devices if "zram" in name]
    findings = []
    if total == 0:
        findings.append(Finding.of("JSD865"))
    if used > SWAP_IN_USE:
        findings.append(Finding.of("JSD866", used=used))
    if zram:
        findings.append(Finding.of("JSD867", devices=len(zram)))
    values = {"total": total, "used": used, "zram": "yes" if zram else "no"}
    return Check(name="swap", values=values, findings=tuple(findings))
