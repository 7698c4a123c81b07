# SPDX-License-Identifier: Apache-2.0
"""How to read a line of `tegrastats`, on every release from R32 to R39."""

from __future__ import annotations

import re
from collections.abc import Mapping

from attrs import field

from jetson_specdec.values import frozen

__all__ = ["TegraStats", "parse_tegrastats"]

_ABSENT_SENSOR_C = -256.0
"""What a sensor of a unit that is powered off reads."""


@frozen(kw_only=True)
class TegraStats:
    """One line of `tegrastats`. None, or an empty collection, is "not printed".

    Attributes:
        ram_used_mib: used memory in MiB; it counts page cache, so it is not what an engine cannot have.
        ram_total_mib: MemTotal in MiB.
        swap_used_mib, swap_total_mib: swap in MiB.
        cpu_load_percent: load of each core; None for a core that is off.
        gpu_load_percent: GR3D load; Thor prints clocks without a load.
        gpu_mhz: clock of each graphics cluster.
        emc_load_percent, emc_mhz: memory controller (both need root on some releases).
        temperatures_c: sensor → °C, sensors of units that are off left out.
        power_mw: rail → mW now.
    """

    ram_used_mib: int | None = None
    ram_total_mib: int | None = None
    swap_used_mib: int | None = None
    swap_total_mib: int | None = None
    cpu_load_percent: tuple[int | None, ...] = ()
    gpu_load_percent: int | None = None
    gpu_mhz: tuple[int, ...] = ()
    emc_load_percent: int | None = None
    emc_mhz: int | None = None
    temperatures_c: Mapping[str, float] = field(factory=dict)
    power_mw: Mapping[str, int] = field(factory=dict)


def parse_tegrastats(text: str) -> TegraStats | None:
    """Read the last line that has a memory figure; None where no line has one.

    The timestamp is optional, the clock may be missing, one number or a list in brackets, and a rail has two or three
    values.
    """
    lines = [line for line in text.splitlines() if re.search(r"\bRAM \d+/\d+MB", line)]
    if not lines:
        return None
    line = lines[-1]
    ram = _numbers(r"\bRAM (\d+)/(\d+)MB", line)
    swap = _numbers(r"\bSWAP (\d+)/(\d+)MB", line)
    gpu_load, gpu_clocks = _load_and_clocks("GR3D_FREQ", line)
    emc_load, emc_clocks = _load_and_clocks("EMC_FREQ", line)
    cores = re.search(r"\bCPU \[([^\]]*)\]", line)
    return TegraStats(
        ram_used_mib=ram[0],
        ram_total_mib=ram[1] or None,
        swap_used_mib=swap[0],
        swap_total_mib=swap[1],
        cpu_load_percent=tuple(_core(core) for core in cores[1].split(",")) if cores and cores[1].strip() else (),
        gpu_load_percent=gpu_load,
        gpu_mhz=gpu_clocks,
        emc_load_percent=emc_load,
        emc_mhz=emc_clocks[0] if emc_clocks else None,
        temperatures_c={
            name: float(value)
            for name, value in re.findall(r"(\S+)@(-?\d{1,4}(?:\.\d{1,6})?)C\b", line)
            if float(value) > _ABSENT_SENSOR_C
        },
        power_mw={name: int(now) for name, now in re.findall(r"\b(V[A-Z0-9_]+) (\d{1,9})(?:mW)?/\d", line)},
    )


def _numbers(pattern: str, line: str) -> tuple[int, int] | tuple[None, None]:
    found = re.search(pattern, line)
    if found is None or max(len(found[1]), len(found[2])) > 12:
        return None, None
    return int(found[1]), int(found[2])


def _core(text: str) -> int | None:
    found = re.match(r"\s*(\d{1,3})%", text)
    return int(found[1]) if found else None


def _load_and_clocks(unit: str, line: str) -> tuple[int | None, tuple[int, ...]]:
    found = re.search(rf"\b{unit} (?:(\d{{1,3}})%)?(?:@(?:\[([\d,]*)\]|(\d{{1,6}})))?", line)
    if found is None:
        return None, ()
    clocks = re.findall(r"\d{1,6}", found[2] or found[3] or "")
    return (int(found[1]) if found[1] else None), tuple(int(clock) for clock in clocks)
