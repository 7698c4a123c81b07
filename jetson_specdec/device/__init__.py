# SPDX-License-Identifier: Apache-2.0
"""What board is this: `detect()` and the detectors behind it; `device.record.record` saves one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_specdec.device.core import (
    Confidence,
    Detector,
    Device,
    Evidence,
    Observation,
    Runtime,
    SpeculationAllowed,
)

if TYPE_CHECKING:
    from jetson_specdec.device.audit import AuditDetector
    from jetson_specdec.device.boot_control import BootControlDetector
    from jetson_specdec.device.container import ContainerDetector, ProcessorDetector
    from jetson_specdec.device.detection import default_detectors, detect
    from jetson_specdec.device.device_tree import DeviceTreeDetector
    from jetson_specdec.device.jtop import JtopDetector
    from jetson_specdec.device.l4t import normalize_l4t
    from jetson_specdec.device.memory import MemoryDetector, parse_meminfo
    from jetson_specdec.device.merging import merge, runtime_for, speculation_for
    from jetson_specdec.device.named import NamedDetector, known_names, resolve_name
    from jetson_specdec.device.nvidia_smi import NvidiaSmiDetector
    from jetson_specdec.device.power import PowerDetector
    from jetson_specdec.device.release import ReleaseDetector
    from jetson_specdec.device.tables import Family, Module, families, jetpack_of, modules
    from jetson_specdec.device.tegrastats import TegraStats, parse_tegrastats

_HOMES = {
    "AuditDetector": "audit",
    "BootControlDetector": "boot_control",
    "ContainerDetector": "container",
    "DeviceTreeDetector": "device_tree",
    "Family": "tables",
    "JtopDetector": "jtop",
    "MemoryDetector": "memory",
    "Module": "tables",
    "NamedDetector": "named",
    "NvidiaSmiDetector": "nvidia_smi",
    "PowerDetector": "power",
    "ProcessorDetector": "container",
    "ReleaseDetector": "release",
    "TegraStats": "tegrastats",
    "default_detectors": "detection",
    "detect": "detection",
    "families": "tables",
    "jetpack_of": "tables",
    "known_names": "named",
    "merge": "merging",
    "modules": "tables",
    "normalize_l4t": "l4t",
    "parse_meminfo": "memory",
    "parse_tegrastats": "tegrastats",
    "resolve_name": "named",
    "runtime_for": "merging",
    "speculation_for": "merging",
}

__all__ = [
    "AuditDetector",
    "BootControlDetector",
    "Confidence",
    "ContainerDetector",
    "Detector",
    "Device",
    "DeviceTreeDetector",
    "Evidence",
    "Family",
    "JtopDetector",
    "MemoryDetector",
    "Module",
    "NamedDetector",
    "NvidiaSmiDetector",
    "Observation",
    "PowerDetector",
    "ProcessorDetector",
    "ReleaseDetector",
    "Runtime",
    "SpeculationAllowed",
    "TegraStats",
    "default_detectors",
    "detect",
    "families",
    "jetpack_of",
    "known_names",
    "merge",
    "modules",
    "normalize_l4t",
    "parse_meminfo",
    "parse_tegrastats",
    "resolve_name",
    "runtime_for",
    "speculation_for",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use; the modules are named so that none of them hides a function."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
