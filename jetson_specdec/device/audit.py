# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's `jetson-memory-audit` or `jetson-diagnostic` saw on a board (their JSON, any value of it missing)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.device import identity, tables
from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.device_tree import observe
from jetson_specdec.device.l4t import normalize_l4t
from jetson_specdec.device.tegrastats import parse_tegrastats
from jetson_specdec.errors import DeviceError
from jetson_specdec.host import Host

__all__ = ["AuditDetector"]

SOURCE = "jetson-memory-audit"
GIB = 2**30
MIB = 2**20


class AuditDetector:
    """Reads a saved audit; the host is not looked at.

    Args:
        data: the parsed JSON object.

    Raises:
        DeviceError: it is not an object.
    """

    name = "audit"
    priority = 20

    def __init__(self, data: Mapping[str, Any]) -> None:
        if not isinstance(data, Mapping):
            raise DeviceError("JSE114", found=type(data).__name__)
        self._data = data

    def detect(self, host: Host) -> Evidence:
        """Return what the audit tells; `unknown`, null and values of another type are nothing."""
        found: list[Observation] = []
        module, family = self._variant()
        for name, value in (("module", module), ("family", family)):
            if value is not None:
                found.append(Observation(name=name, value=value, source=f"{SOURCE} (variant)", confidence="medium"))
        if family is not None:
            source = f"{SOURCE} (variant)"
            found.append(Observation(name="is_jetson", value=True, source=source, confidence="medium"))
        model = self._text("product_model")
        if model:
            source = f"{SOURCE} (product_model)"
            found.append(Observation(name="model_text", value=model[:200], source=source, confidence="medium"))
            proved = identity.from_model_text(model)
            found += observe(proved, source, confidence="medium")
        l4t = self._text("l4t_version")
        if l4t:
            try:
                source = f"{SOURCE} (l4t_version)"
                found.append(Observation(name="l4t", value=normalize_l4t(l4t), source=source, confidence="medium"))
            except DeviceError:
                pass
        found += self._memory()
        return Evidence(observations=tuple(found))

    def _text(self, key: str) -> str | None:
        value = self._data.get(key)
        return value.strip() if isinstance(value, str) and value.strip() not in ("", "unknown") else None

    def _variant(self) -> tuple[str | None, str | None]:
        """NVIDIA writes `orin-agx` where this package writes `agx-orin`; `sku` is the family."""
        key = (self._text("variant") or "").replace("orin-agx", "agx-orin")
        entry = tables.module(key)
        if entry is not None:
            return entry.key, entry.family
        for text in (key, self._text("product_line") or "", self._text("sku") or ""):
            family = text.replace("orin-agx", "agx-orin").removesuffix("-agx").replace("-", "_")
            if tables.family(family):
                return None, family
        return None, None

    def _memory(self) -> list[Observation]:
        sizes = self._data.get("memory_kb")
        found = []
        for name, key in (("memory_total_bytes", "total"), ("memory_available_bytes", "available")):
            kib = _number(sizes.get(key)) if isinstance(sizes, Mapping) else None
            if kib:
                found.append(Observation(name=name, value=int(kib) * 1024, source=f"{SOURCE} (memory_kb)"))
        sample = self._text("tegrastats_sample")
        stats = parse_tegrastats(sample) if sample else None
        if stats is not None and stats.ram_total_mib:
            value = stats.ram_total_mib * MIB
            source = f"{SOURCE} (tegrastats_sample)"
            found.append(Observation(name="memory_total_bytes", value=value, source=source, confidence="medium"))
        rounded = _number(self._data.get("mem_total_gb"))
        if rounded:
            # Rounded to whole GiB: up to half a GiB off either way.
            source = f"{SOURCE} (mem_total_gb, rounded)"
            value = int(rounded * GIB)
            found.append(Observation(name="memory_total_bytes", value=value, source=source, confidence="low"))
        return found


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2**50:
        return None
    return value
