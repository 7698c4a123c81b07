# SPDX-License-Identifier: Apache-2.0
"""What board is this: `detect()` and the detectors behind it; `device.record.record` saves one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.device.core import (
    Confidence,
    Detector,
    Device,
    Evidence,
    Observation,
    Runtime,
    SpeculationAllowed,
)
from jetson_specdec.lazy import lazy

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
    "audit": ("AuditDetector",),
    "boot_control": ("BootControlDetector",),
    "container": ("ContainerDetector", "ProcessorDetector"),
    "detection": ("default_detectors", "detect"),
    "device_tree": ("DeviceTreeDetector",),
    "jtop": ("JtopDetector",),
    "l4t": ("normalize_l4t",),
    "memory": ("MemoryDetector", "parse_meminfo"),
    "merging": ("merge", "runtime_for", "speculation_for"),
    "named": ("NamedDetector", "known_names", "resolve_name"),
    "nvidia_smi": ("NvidiaSmiDetector",),
    "power": ("PowerDetector",),
    "release": ("ReleaseDetector",),
    "tables": ("Family", "Module", "families", "jetpack_of", "modules"),
    "tegrastats": ("TegraStats", "parse_tegrastats"),
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

__getattr__, __dir__ = lazy(__name__, _HOMES)
