# SPDX-License-Identifier: Apache-2.0
"""Watching the memory of the machine while a server runs on it, and ending the server before the kernel has to.

On a Jetson the GPU shares memory with the system: a candidate that takes too much freezes the board or has the kernel
kill whatever it likes. Below a floor of MemAvailable the watchdog ends the candidate, and its log and diagnosis say so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.host import Host

__all__ = ["MemorySample", "Watchdog", "below_floor", "parse_memory", "read_memory"]


@frozen(kw_only=True)
class MemorySample:
    """Memory of the machine at one moment; None where it is not told.

    Attributes:
        total_bytes, available_bytes: MemTotal and MemAvailable of `/proc/meminfo`.
        swap_used_bytes: SwapTotal − SwapFree.
        pressure_some, pressure_full: share of the last 10 s (percent) in which some, or all, tasks waited for memory
            (`/proc/pressure/memory`, Linux PSI; JetPack kernels may lack it).
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    pressure_some: float | None = None
    pressure_full: float | None = None


def parse_memory(meminfo: str | None, pressure: str | None = None) -> MemorySample:
    """Read the texts of `/proc/meminfo` and `/proc/pressure/memory`."""
    sizes: dict[str, int] = {}
    for line in (meminfo or "").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            sizes[name] = int(words[0]) * 1024
    waits: dict[str, float] = {}
    for line in (pressure or "").splitlines():
        kind, _, rest = line.partition(" ")
        value = rest.partition("avg10=")[2].split(" ")[0]
        try:
            waits[kind] = float(value)
        except ValueError:
            continue
    swap = sizes["SwapTotal"] - sizes["SwapFree"] if {"SwapTotal", "SwapFree"} <= set(sizes) else None
    return MemorySample(
        total_bytes=sizes.get("MemTotal"),
        available_bytes=sizes.get("MemAvailable"),
        swap_used_bytes=swap,
        pressure_some=waits.get("some"),
        pressure_full=waits.get("full"),
    )


def read_memory(host: Host) -> MemorySample:
    """Return the memory of a host now."""
    return parse_memory(host.read_text("/proc/meminfo"), host.read_text("/proc/pressure/memory"))


def below_floor(sample: MemorySample, policy: Policy = DEFAULT_POLICY) -> bool:
    """Whether a candidate has to be ended: less is available than the policy's floor.

    Swap and pressure are recorded and do not decide: a board with zram swaps in healthy operation, and nobody has
    published at which pressure a Jetson freezes.
    """
    return sample.available_bytes is not None and sample.available_bytes < policy.watchdog_floor_bytes


class Watchdog:
    """Samples memory in a thread, and calls `on_breach` once when it falls below the floor.

    Args:
        host: whose memory.
        on_breach: gets the sample that is too low; runs in the watchdog's thread.
        policy: the floor.
        interval_s: seconds between samples.

    Attributes:
        last: the newest sample.
        lowest_available_bytes, highest_swap_bytes, highest_pressure_full: the extremes seen, or None.
        breach: the sample that ended the server, or None.
    """

    def __init__(
        self,
        host: Host,
        on_breach: Callable[[MemorySample], None],
        *,
        policy: Policy = DEFAULT_POLICY,
        interval_s: float = 0.2,
    ) -> None:
        self._host = host
        self._on_breach = on_breach
        self._policy = policy
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.last: MemorySample | None = None
        self.lowest_available_bytes: int | None = None
        self.highest_swap_bytes: int | None = None
        self.highest_pressure_full: float | None = None
        self.breach: MemorySample | None = None

    def take(self) -> MemorySample:
        """Take one sample, keep the extremes, and act on it."""
        sample = read_memory(self._host)
        self.last = sample
        if sample.available_bytes is not None:
            lowest = self.lowest_available_bytes
            self.lowest_available_bytes = (
                sample.available_bytes if lowest is None else min(lowest, sample.available_bytes)
            )
        if sample.swap_used_bytes is not None:
            self.highest_swap_bytes = max(self.highest_swap_bytes or 0, sample.swap_used_bytes)
        if sample.pressure_full is not None:
            self.highest_pressure_full = max(self.highest_pressure_full or 0.0, sample.pressure_full)
        if self.breach is None and below_floor(sample, self._policy):
            self.breach = sample
            self._on_breach(sample)
        return sample

    def start(self) -> None:
        """Start sampling; the first sample is taken at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="memory-watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End sampling and wait for the thread, unless called from it."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.take()
            if self.breach is not None:
                return
            self._stop.wait(self._interval_s)

    def __enter__(self) -> Watchdog:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
