# SPDX-License-Identifier: Apache-2.0
"""Which modules, families and L4T releases are known: the facts of `data/*.json`, loaded on first use.

Every entry of those files names its sources and a confidence; nothing here adds a fact of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jetson_specdec.device.core import Confidence, SpeculationAllowed
from jetson_specdec.packaged import packaged_json
from jetson_specdec.values import frozen

__all__ = [
    "Family",
    "Module",
    "PowerMode",
    "families",
    "family",
    "fits_memory",
    "jetpack_of",
    "l4t_generations",
    "module",
    "modules",
    "modules_by_memory",
    "release_facts",
]

GIB = 2**30


@frozen(kw_only=True)
class PowerMode:
    """One `nvpmodel` mode.

    Attributes:
        id: its number in this module's `nvpmodel.conf`; other boards number them otherwise.
        name: as `nvpmodel -q` prints it.
        bandwidth_gb_s: peak memory bandwidth in GB/s (10⁹) with this mode's memory clock, or None.
    """

    id: int
    name: str
    bandwidth_gb_s: float | None = None


@frozen(kw_only=True)
class Module:
    """A Jetson module as the table knows it.

    Attributes:
        key: such as `agx-orin-64gb`.
        name: for people.
        family: key of its family.
        soc: such as `tegra234`.
        part_numbers: such as `p3701-0005`; numbers that do not settle the module are left out.
        tnspec_boards: beginnings of the flash target's name in a TNSPEC value.
        memory_gib: memory fitted, in GiB; MemTotal is always below it.
        memory_gib_min: smallest MemTotal (rounded to GiB) that counts as this module, or None.
        bandwidth_gb_s: published peak in GB/s (10⁹), or None.
        power_modes: modes of both flash profiles.
        top_power_modes: which of them are top modes.
        mem_total_kib_seen: MemTotal values (KiB) seen on real boards, ascending.
        announced_only: not sold yet.
        source: keys of the table's `sources`.
        confidence: of the whole entry.
    """

    key: str
    name: str
    family: str
    soc: str
    memory_gib: int
    part_numbers: tuple[str, ...] = ()
    tnspec_boards: tuple[str, ...] = ()
    memory_gib_min: int | None = None
    bandwidth_gb_s: float | None = None
    power_modes: tuple[PowerMode, ...] = ()
    top_power_modes: tuple[str, ...] = ()
    mem_total_kib_seen: tuple[int, ...] = ()
    announced_only: bool = False
    source: tuple[str, ...] = ()
    confidence: Confidence = "low"

    def bandwidth_in(self, power_mode: str | None) -> float | None:
        """Return the peak in GB/s in a power mode; the published peak where the mode is unknown or not in the table."""
        seen = {mode.bandwidth_gb_s for mode in self.power_modes if mode.name == power_mode} - {None}
        return seen.pop() if len(seen) == 1 else self.bandwidth_gb_s


@frozen(kw_only=True)
class Family:
    """A family of modules and the two rules that hold for all of it.

    Attributes:
        key: such as `agx_orin`.
        name: for people.
        generation: `thor`, `orin` or `xavier`.
        speculation: whether EAGLE-3 and draft models are allowed.
        runtime: `upstream`, `by_release` (of L4T) or `unsupported`.
        parts: board numbers (`p3701`) that settle the family whatever follows.
        source: keys of the table's `sources`.
    """

    key: str
    name: str
    generation: str
    speculation: SpeculationAllowed
    runtime: str
    parts: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


@lru_cache(maxsize=8)
def _load(name: str) -> dict[str, Any]:
    data: dict[str, Any] = packaged_json("device", "data", name)
    return data


def board_data() -> Mapping[str, Any]:
    """Return the raw table of boards (chips, older families, sources)."""
    return _load("modules.json")


@lru_cache(maxsize=1)
def modules() -> Mapping[str, Module]:
    """Return every module by key, in the order of the table."""
    found = {}
    for entry in _load("modules.json")["modules"]:
        modes = tuple(
            PowerMode(id=mode["id"], name=mode["name"], bandwidth_gb_s=mode["bandwidth_gb_s"])
            for mode in entry["power_modes"] + entry["power_modes_super"]
        )
        found[entry["key"]] = Module(
            key=entry["key"],
            name=entry["name"],
            family=entry["family"],
            soc=entry["soc"],
            part_numbers=tuple(entry["part_numbers"]),
            tnspec_boards=tuple(entry["tnspec_boards"]),
            memory_gib=entry["memory_gib"],
            memory_gib_min=entry["memory_gib_min"],
            bandwidth_gb_s=entry["bandwidth_gb_s"],
            power_modes=modes,
            top_power_modes=tuple(entry["top_power_modes"]),
            mem_total_kib_seen=tuple(entry["mem_total_kib_seen"]),
            announced_only=entry["announced_only"],
            source=tuple(entry["source"]),
            confidence=entry["confidence"],
        )
    return found


@lru_cache(maxsize=1)
def families() -> Mapping[str, Family]:
    """Return every family by key."""
    return {
        entry["key"]: Family(
            key=entry["key"],
            name=entry["name"],
            generation=entry["generation"],
            speculation=entry["speculation"],
            runtime=entry["runtime"],
            parts=tuple(entry["parts"]),
            source=tuple(entry["source"]),
        )
        for entry in _load("modules.json")["families"]
    }


def module(key: str | None) -> Module | None:
    """Return one module, or None where the table does not know it."""
    return modules().get(key) if key else None


def family(key: str | None) -> Family | None:
    """Return one family, or None where the table does not know it."""
    return families().get(key) if key else None


def fits_memory(entry: Module, total_bytes: int) -> bool:
    """Say whether a MemTotal in bytes can be that of a module: at least its threshold, never more than is fitted."""
    gib = total_bytes / GIB
    low = entry.memory_gib_min
    return low is not None and low - 0.5 <= gib <= entry.memory_gib


def modules_by_memory(family_key: str, total_bytes: int) -> tuple[Module, ...]:
    """Return the modules of a family that a MemTotal in bytes fits.

    The thresholds are those of NVIDIA's detection script, with the fitted memory as the upper end. A module that only
    its own name can prove (the Industrial one) is never derived from memory.
    """
    return tuple(
        entry
        for entry in modules().values()
        if entry.family == family_key and not _needs_name(entry) and fits_memory(entry, total_bytes)
    )


def _needs_name(entry: Module) -> bool:
    return entry.announced_only or entry.key.endswith("-industrial") or entry.family == "igx_orin"


def jetpack_of(l4t: str) -> tuple[str, Confidence] | None:
    """Return the JetPack name of an L4T release and how sure that is, or None where the table lacks the release."""
    entry = _load("l4t.json")["releases"].get(l4t)
    return (entry["jetpack"], entry["confidence"]) if entry else None


def release_facts(l4t: str) -> Mapping[str, Any]:
    """Return what the table holds on an L4T release (`jetpack`, `cuda`, `ubuntu`, `problem`); empty where unknown."""
    data = _load("l4t.json")
    facts = dict(data["releases"].get(l4t, {}))
    problem = data["known_problems"].get(l4t)
    if problem:
        facts["problem"] = problem["topic"]
    return facts


def l4t_generations(l4t: str) -> tuple[str, ...]:
    """Return which chip generations a release boots on; empty where its major number is not in the table."""
    entry = _load("l4t.json")["majors"].get(l4t.split(".")[0])
    return tuple(entry["generations"]) if entry else ()
