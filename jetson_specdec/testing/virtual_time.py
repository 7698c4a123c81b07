# SPDX-License-Identifier: Apache-2.0
"""An event loop whose clock jumps: nobody waits, and every time measured in it is exact."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

__all__ = ["VirtualTimeLoop"]


class _JumpingSelector(selectors.DefaultSelector):
    """Answers a wait by moving the loop's clock, unless a descriptor is ready or nothing is scheduled."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop in which `asyncio.sleep(3600)` takes no time and `loop.time()` says that an hour has passed.

    Made for code that talks to nothing outside the loop, such as a benchmark of `FakeVllm.connection()`: the clock
    jumps whenever every task waits, so a task that waits for a thread or a socket would see its timeouts fire at once.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now
