# SPDX-License-Identifier: Apache-2.0
"""How the board is doing at one moment: temperatures, clocks, memory, power.

Sources, best first, each field from the first that has it: `jtop` (where jetson-stats runs), `tegrastats`, files below
`/sys` and `/proc`, psutil. Nothing needs root; what cannot be read is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import evolve, field, fields

from jetson_specdec.host import Host
from jetson_specdec.values import frozen

__all__ = ["JtopSource", "PsutilSource", "Sample", "Source", "SysfsSource", "TegrastatsSource", "merge", "open_sources"]

_BOARD_RAILS = ("VDD_IN", "VIN", "POM_5V_IN")
"""Rails that carry the whole board, by the names that INA sensors and tools give them."""

_MODULE_RAILS = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
"""AGX Orin has no such rail: its three inputs together are the module (jetson-stats sums them too)."""

_GPU_CLOCKS = ("gpu", "ga10b", "gv11b", "gb10b", "nvgpu", "gpc")
_THROTTLING = ("throttle", "alert")
_MIB = 2**20


@frozen(kw_only=True)
class Sample:
    """One look at a board; None is "not known from this source".

    Attributes:
        temperature_c: hottest sensor, °C.
        gpu_mhz: clock of the GPU.
        memory_available_bytes: MemAvailable.
        swap_used_bytes: swap in use.
        power_w: power of the whole board.
        power_rail: the rail that is.
        throttling: whether the board holds its clocks down now.
        throttle_events: over-current events counted since the board started.
        power_mode: as the source names it.
        clocks_locked: whether `jetson_clocks` is on.
        gpu_processes: names of programs on the GPU.
        sources: field → where it was read.
    """

    temperature_c: float | None = None
    gpu_mhz: float | None = None
    memory_available_bytes: int | None = None
    swap_used_bytes: int | None = None
    power_w: float | None = None
    power_rail: str | None = None
    throttling: bool | None = None
    throttle_events: int | None = None
    power_mode: str | None = None
    clocks_locked: bool | None = None
    gpu_processes: tuple[str, ...] | None = None
    sources: Mapping[str, str] = field(factory=dict)


class Source(Protocol):
    """Something that can look at a board."""

    def read(self) -> Sample:
        """Look now; never raises."""

    def close(self) -> None:
        """Let go of what it holds."""


def merge(samples: list[Sample]) -> Sample:
    """Return one sample with each field from the first that knows it; a rail goes with its power."""
    merged = Sample()
    for sample in samples:
        new = {
            attribute.name: getattr(sample, attribute.name)
            for attribute in fields(Sample)
            if attribute.name != "sources"
            and getattr(merged, attribute.name) is None
            and getattr(sample, attribute.name) is not None
            and (attribute.name != "power_rail" or merged.power_w is None)
        }
        where = {name: sample.sources.get(name, "") for name in new}
        merged = evolve(merged, **new, sources={**merged.sources, **where})
    return merged


def _sample(source: str, **values: Any) -> Sample:
    known = {name: value for name, value in values.items() if value is not None}
    return Sample(**known, sources=dict.fromkeys(known, source))


def _board_rail(rails: Mapping[str, float]) -> tuple[str, float] | None:
    """The rail that feeds the whole board; other rails are not summed, since they may overlap."""
    upper = {name.upper(): value for name, value in rails.items()}
    for name in _BOARD_RAILS:
        if name in upper:
            return name, upper[name]
    if all(name in upper for name in _MODULE_RAILS):
        return "+".join(_MODULE_RAILS), sum(upper[name] for name in _MODULE_RAILS)
    return None


class SysfsSource:
    """Files below `/sys` and `/proc`, through a `Host`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._zones = self._find("/sys/class/thermal", "thermal_zone", "temp")
        self._coolers = [
            path
            for path in self._find("/sys/class/thermal", "cooling_device", "cur_state")
            if any(word in (self._text(path.replace("cur_state", "type")) or "") for word in _THROTTLING)
        ]
        self._monitors = [f"/sys/class/hwmon/{name}" for name in host.list_dir("/sys/class/hwmon")]
        self._clocks = [
            f"/sys/class/devfreq/{name}/cur_freq"
            for name in host.list_dir("/sys/class/devfreq")
            if any(word in name.lower() for word in _GPU_CLOCKS)
        ]
        self._events = [
            f"{folder}/{name}"
            for folder in self._monitors
            for name in host.list_dir(folder)
            if re.fullmatch(r"oc\d+_event_cnt", name)
        ]
        self._rails = list(self._find_rails())

    def _find(self, folder: str, prefix: str, leaf: str) -> list[str]:
        return [f"{folder}/{name}/{leaf}" for name in self._host.list_dir(folder) if name.startswith(prefix)]

    def _find_rails(self) -> list[tuple[str, str, int]]:
        found = []
        for folder in self._monitors:
            for name in self._host.list_dir(folder):
                label = re.fullmatch(r"in(\d+)_label", name)
                rail = self._text(f"{folder}/{name}") if label else None
                if label and rail:
                    found.append((rail, folder, int(label[1])))
        return found

    def _text(self, path: str) -> str | None:
        text = self._host.read_text(path, limit=256)
        return text.strip() if text is not None else None

    def _number(self, path: str) -> float | None:
        text = self._text(path)
        return float(text) if text is not None and re.fullmatch(r"-?\d{1,15}", text) else None

    def read(self) -> Sample:
        """Look now."""
        from jetson_specdec.device.memory import parse_meminfo

        sizes = parse_meminfo(self._host.read_text("/proc/meminfo", limit=2**18) or "")
        swap = sizes["SwapTotal"] - sizes["SwapFree"] if {"SwapTotal", "SwapFree"} <= sizes.keys() else None
        # A sensor of a unit that is off reads -256 °C or fails.
        heats = [value / 1000 for path in self._zones if (value := self._number(path)) is not None and value > -100_000]
        clocks = [value for path in self._clocks if (value := self._number(path)) is not None]
        coolers = [value for path in self._coolers if (value := self._number(path)) is not None]
        events = [value for path in self._events if (value := self._number(path)) is not None]
        rail = _board_rail(self._watts())
        return evolve(
            _sample(
                "/sys",
                temperature_c=max(heats, default=None),
                gpu_mhz=max(clocks) / 1e6 if clocks else None,
                power_w=rail[1] if rail else None,
                power_rail=rail[0] if rail else None,
                throttling=any(coolers) if coolers else None,
                throttle_events=int(sum(events)) if events else None,
                memory_available_bytes=sizes.get("MemAvailable"),
                swap_used_bytes=swap,
            )
        )

    def _watts(self) -> dict[str, float]:
        watts = {}
        for rail, folder, number in self._rails:
            millivolts, milliamperes = (
                self._number(f"{folder}/in{number}_input"),
                self._number(f"{folder}/curr{number}_input"),
            )
            if millivolts is not None and milliamperes is not None:
                watts[rail] = millivolts * milliamperes / 1e6
        return watts

    def close(self) -> None:
        """Nothing is held."""


class TegrastatsSource:
    """Lines of a `tegrastats` that keeps running; a recording answers with what it holds."""

    def __init__(self, host: Host, *, interval_ms: int = 1000) -> None:
        self._host = host
        self._line: str | None = None
        self._process: Any = None
        if host.live:
            self._start(interval_ms)

    def _start(self, interval_ms: int) -> None:
        import subprocess
        import threading

        try:
            self._process = subprocess.Popen(
                ["tegrastats", "--interval", str(interval_ms)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        threading.Thread(target=self._follow, name="tegrastats", daemon=True).start()

    def _follow(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                self._line = line.decode("utf-8", "replace")

    def read(self) -> Sample:
        """Return the last line's figures."""
        from jetson_specdec.device.tegrastats import parse_tegrastats

        text = self._line
        if not self._host.live:
            done = self._host.run(["tegrastats"])
            text = done.stdout if done is not None else None
        stats = parse_tegrastats(text or "")
        if stats is None:
            return Sample()
        rail = _board_rail({name: milliwatts / 1000 for name, milliwatts in stats.power_mw.items()})
        return _sample(
            "tegrastats",
            temperature_c=max(stats.temperatures_c.values(), default=None),
            gpu_mhz=float(max(stats.gpu_mhz)) if stats.gpu_mhz else None,
            swap_used_bytes=stats.swap_used_mib * _MIB if stats.swap_used_mib is not None else None,
            power_w=rail[1] if rail else None,
            power_rail=rail[0] if rail else None,
        )

    def close(self) -> None:
        """End the program."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(5)


class JtopSource:
    """The service of jetson-stats, where it runs; imported here and in `device/jtop` only (AGPL)."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._jtop = factory()
        self._jtop.start()

    @classmethod
    def open(cls) -> JtopSource | None:
        """Return it, or None where the package or its service is missing."""
        try:
            from jtop import jtop

            return cls(lambda: jtop(interval=1.0))
        except Exception:  # jtop raises its own errors for a missing service or an unknown board
            return None

    def read(self) -> Sample:
        """Look now."""
        try:
            return self._read()
        except Exception:  # the service may go away, or not know this board
            return Sample()

    def _read(self) -> Sample:
        total = (self._jtop.power or {}).get("tot") or {}
        heats = [
            float(sensor["temp"])
            for sensor in (self._jtop.temperature or {}).values()
            if sensor.get("online", True) and float(sensor["temp"]) > -100
        ]
        clocks = [
            float(gpu["freq"]["cur"]) / 1000
            for gpu in (self._jtop.gpu or {}).values()
            if gpu.get("freq", {}).get("cur")
        ]
        swap = (self._jtop.memory or {}).get("SWAP") or {}
        mode = self._jtop.nvpmodel
        locked = self._jtop.jetson_clocks
        return _sample(
            "jtop",
            temperature_c=max(heats, default=None),
            gpu_mhz=max(clocks, default=None),
            swap_used_bytes=int(swap["used"]) * 1024 if "used" in swap else None,
            power_w=float(total["power"]) / 1000 if "power" in total else None,
            power_rail=str(total.get("name") or "all rails") if "power" in total else None,
            power_mode=str(mode) if mode else None,
            clocks_locked=bool(locked) if locked is not None else None,
            gpu_processes=tuple(sorted({str(row[9]) for row in self._jtop.processes or [] if len(row) > 9 and row[8]})),
        )

    def close(self) -> None:
        """Leave the service."""
        self._jtop.close()


class PsutilSource:
    """Memory and, where the system has sensors, temperature."""

    def read(self) -> Sample:
        """Look now."""
        import psutil

        heats = [
            reading.current
            for group in getattr(psutil, "sensors_temperatures", dict)().values()
            for reading in group
            if reading.current
        ]
        return _sample(
            "psutil",
            memory_available_bytes=psutil.virtual_memory().available,
            swap_used_bytes=psutil.swap_memory().used,
            temperature_c=max(heats, default=None),
        )

    def close(self) -> None:
        """Nothing is held."""


def open_sources(host: Host) -> list[Source]:
    """Return what is there to look with, best first."""
    sources: list[Source] = []
    if host.live:
        jtop = JtopSource.open()
        if jtop is not None:
            sources.append(jtop)
    # jtop itself reads the same rails; a second program beside it would only cost time.
    if not sources:
        sources.append(TegrastatsSource(host))
    sources.append(SysfsSource(host))
    if host.live:
        sources.append(PsutilSource())
    return sources
