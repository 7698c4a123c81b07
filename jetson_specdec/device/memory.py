# SPDX-License-Identifier: Apache-2.0
"""How much memory this board has, and how much of it can be had."""

from __future__ import annotations

import re

from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.tegrastats import parse_tegrastats
from jetson_specdec.findings import Finding, Severity
from jetson_specdec.host import Host

__all__ = ["MemoryDetector", "parse_meminfo"]

PATH = "/proc/meminfo"
TEGRASTATS = ("tegrastats",)
KIB = 1024
MIB = 1024 * KIB


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the entries of `/proc/meminfo` that have a size, in bytes. A size of zero for MemTotal is left out."""
    found = {name: int(kib) * KIB for name, kib in re.findall(r"^(\w+):[ \t]+(\d{1,12})[ \t]+kB\b", text, re.MULTILINE)}
    if found.get("MemTotal") == 0:
        del found["MemTotal"]
    return found


class MemoryDetector:
    """Reads MemTotal and MemAvailable; where a recording has none, the total that `tegrastats` printed.

    `tegrastats` never ends by itself, so it is not started on a live board (which has `/proc/meminfo` anyway).
    """

    name = "memory"
    priority = 48

    def detect(self, host: Host) -> Evidence:
        """Return total and available memory in bytes."""
        sizes = parse_meminfo(host.read_text(PATH, limit=256 * KIB) or "")
        total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
        found: list[Observation] = []
        findings: list[Finding] = []
        if total is not None:
            found.append(Observation(name="memory_total_bytes", value=total, source=PATH))
        if available is not None and (total is None or available <= total):
            found.append(Observation(name="memory_available_bytes", value=available, source=PATH))
        done = None if host.live else host.run(TEGRASTATS)
        stats = parse_tegrastats(done.stdout) if done is not None else None
        if stats is not None and stats.ram_total_mib:
            found.append(Observation(name="is_jetson", value=True, source="tegrastats", confidence="medium"))
            # The kernel's figure is exact to the KiB; this one is rounded down to MiB.
            found.append(
                Observation(
                    name="memory_total_bytes",
                    value=stats.ram_total_mib * MIB,
                    source="tegrastats",
                    confidence="medium",
                )
            )
            high = stats.ram_used_mib is not None and stats.ram_used_mib > stats.ram_total_mib / 2
            findings.append(
                Finding.of(
                    "JSD121",
                    severity=Severity.WARNING if high and available is None else Severity.INFO,
                    ram_used_mib=stats.ram_used_mib,
                    ram_total_mib=stats.ram_total_mib,
                    gpu_load_percent=stats.gpu_load_percent,
                )
            )
        return Evidence(observations=tuple(found), findings=tuple(findings))
