# SPDX-License-Identifier: Apache-2.0
"""Under which conditions a measurement ran: samples over its time, drawn together."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from jetson_specdec.host import Host
from jetson_specdec.loadgen.sampling import Sample, Source, merge, open_sources
from jetson_specdec.measurements import Conditions
from jetson_specdec.values import frozen

__all__ = ["ConditionSampler", "draw_together", "mean_power"]

_ENGINES = ("vllm", "enginecore", "apiserver")
"""Programs that are the server itself."""

_FIELDS = {
    "temperature_c": "temperature_c_max",
    "memory_available_bytes": "memory_available_min_bytes",
    "swap_used_bytes": "swap_growth_bytes",
    "gpu_mhz": "gpu_mhz_max",
    "throttling": "throttled",
    "throttle_events": "throttled",
}
"""Field of a sample → field of the conditions it goes into."""


@frozen
class Timed:
    """A sample and when it was taken: seconds on the benchmark's clock."""

    at: float
    sample: Sample


def mean_power(samples: Sequence[Timed], start: float, end: float) -> tuple[float | None, str | None]:
    """Return the mean power in W between two times and the rail it is of; None without a sample in between."""
    found = [timed.sample for timed in samples if start <= timed.at <= end and timed.sample.power_w is not None]
    if not found:
        return None, None
    rail = found[0].power_rail
    watts = [sample.power_w for sample in found if sample.power_rail == rail and sample.power_w is not None]
    return sum(watts) / len(watts), rail


def draw_together(samples: Sequence[Timed], known: Conditions | None = None) -> Conditions:
    """Return the conditions that samples show, on top of what is known already; known values win."""
    known = known or Conditions()
    every = [timed.sample for timed in samples]

    def values(name: str) -> list[Any]:
        return [value for sample in every if (value := getattr(sample, name)) is not None]

    swap, events, throttling = values("swap_used_bytes"), values("throttle_events"), values("throttling")
    throttled = any(throttling) if throttling else None
    if len(events) > 1:
        throttled = bool(throttled) or events[-1] > events[0]
    processes = values("gpu_processes")
    others = None
    if processes:
        names = {name for group in processes for name in group}
        others = tuple(sorted(name for name in names if not any(word in name.lower() for word in _ENGINES)))
    clocks = values("gpu_mhz")
    found: dict[str, Any] = {
        "power_mode": next(iter(values("power_mode")), None),
        "clocks_locked": next(iter(values("clocks_locked")), None),
        "throttled": throttled,
        "temperature_c_max": max(values("temperature_c"), default=None),
        "swap_growth_bytes": swap[-1] - swap[0] if len(swap) > 1 else None,
        "memory_available_min_bytes": min(values("memory_available_bytes"), default=None),
        "gpu_mhz_min": min(clocks, default=None),
        "gpu_mhz_max": max(clocks, default=None),
        "power_rail": next(iter(values("power_rail")), None),
        "gpu_processes": others,
    }
    new = {name: value for name, value in found.items() if value is not None and getattr(known, name) is None}
    where: dict[str, str] = {}
    for sample in reversed(every):
        where.update({_FIELDS.get(name, name): source for name, source in sample.sources.items()})
    seen = {name: source for name, source in where.items() if name in new}
    return evolve(known, **new, sources={**seen, **known.sources})


class ConditionSampler:
    """Looks at the board now and then from a thread of its own, so that the client's loop is not held up.

    Args:
        host: the board.
        now: the benchmark's clock.
        interval_s: between looks.
        sources: what to look with; None: whatever is there.
    """

    def __init__(
        self, host: Host, now: Any, *, interval_s: float = 1.0, sources: Sequence[Source] | None = None
    ) -> None:
        self._host = host
        self._now = now
        self._interval_s = interval_s
        self._sources = list(sources) if sources is not None else None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.samples: list[Timed] = []

    def start(self) -> None:
        """Begin looking."""
        if self._sources is None:
            self._sources = open_sources(self._host)
        self.look()
        self._thread = threading.Thread(target=self._run, name="conditions", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Take one sample now."""
        merged = merge([source.read() for source in self._sources or ()])
        self.samples.append(Timed(self._now(), merged))

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.look()

    def stop(self) -> None:
        """Take a last sample and let go of the sources."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(10)
        self.look()
        for source in self._sources or ():
            source.close()

    def conditions(self, known: Conditions | None = None) -> Conditions:
        """Return what the samples show; the power mode is asked once, of `nvpmodel`, where no sample has it."""
        from jetson_specdec.device.power import PowerDetector, is_top_mode

        known = known or Conditions()
        if known.power_mode is None:
            observed = {item.name: item for item in PowerDetector().detect(self._host).observations}
            if "power_mode" in observed:
                mode = observed["power_mode"]
                known = evolve(
                    known,
                    power_mode=mode.value,
                    power_mode_is_max=observed["power_mode_is_max"].value,
                    sources={**known.sources, "power_mode": mode.source},
                )
        if known.gpu_processes is None:
            known = self._ask_nvidia_smi(known)
        drawn = draw_together(self.samples, known)
        if drawn.power_mode is not None and drawn.power_mode_is_max is None:
            drawn = evolve(drawn, power_mode_is_max=is_top_mode(drawn.power_mode))
        return drawn

    def _ask_nvidia_smi(self, known: Conditions) -> Conditions:
        """Thor and discrete GPUs name the programs on the GPU; Orin's stub prints nothing, which proves nothing."""
        done = self._host.run(["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"])
        if done is None or not done.ok:
            return known
        names = [line.partition(",")[2].strip().rpartition("/")[2] for line in done.stdout.splitlines() if "," in line]
        if not names:
            return known
        others = tuple(
            sorted({name for name in names if not any(word in name.lower() for word in (*_ENGINES, "python"))})
        )
        return evolve(known, gpu_processes=others, sources={**known.sources, "gpu_processes": "nvidia-smi"})
