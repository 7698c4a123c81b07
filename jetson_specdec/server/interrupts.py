# SPDX-License-Identifier: Apache-2.0
"""Holding back Ctrl-C, SIGTERM and SIGHUP where being cut short would leave a board half changed.

Signals are held back by a handler and not by a mask or by ignoring them: a mask does not reach other threads, and what
is ignored stays ignored in every program that is started meanwhile, such as a server that is brought back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["close", "held", "once", "waiting"]

Handler = Callable[[int, FrameType | None], Any] | int | None
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Switch:
    """The one handler that stands in front of those that were there."""

    def __init__(self) -> None:
        self.depth = 0
        self.once = 0
        self.tripped = False
        self.pending: list[int] = []
        self.before: dict[int, Handler] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.depth or (self.once and self.tripped):
            self.pending.append(number)
            return
        self.tripped = self.once > 0
        _deliver(number, self.before.get(number, signal.SIG_DFL), frame)

    def install(self) -> None:
        """Stand in front; twice does no harm."""
        for number in NUMBERS:
            there = signal.getsignal(number)
            if there is not self and there not in (signal.SIG_IGN, None):
                self.before[number] = there
                signal.signal(number, self)

    def remove(self) -> None:
        """Step aside; an interruption in the middle of this reaches whoever stood there."""
        for number, before in list(self.before.items()):
            if signal.getsignal(number) is self:
                signal.signal(number, before)
            del self.before[number]

    def leave(self) -> None:
        """A region ends: what was held back arrives, unless an interruption is being answered already."""
        if self.depth:
            return
        first: int | None = None
        if self.pending and not (self.once and self.tripped):
            first = self.pending[0]
            self.pending.clear()
        handler = self.before.get(first, signal.SIG_DFL) if first is not None else None
        if self.once:
            self.tripped = self.tripped or first is not None
        else:
            self.tripped = False
            self.remove()
        if first is not None:
            _deliver(first, handler, None)


def _deliver(number: int, handler: Handler, frame: FrameType | None) -> None:
    """Do what would have happened without this."""
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_switch = _Switch()


def _main() -> bool:
    return threading.current_thread() is threading.main_thread()


@contextmanager
def held() -> Iterator[list[int]]:
    """Hold back interruptions until the block is over; then the first one arrives.

    Yields:
        The signals that came meanwhile.
    """
    if not _main():
        yield []
        return
    _switch.depth += 1
    try:
        _switch.install()
        yield _switch.pending
    finally:
        _switch.depth -= 1
        _switch.leave()


@contextmanager
def once() -> Iterator[list[int]]:
    """Let a single interruption through: further ones must not cut short what the first one set off.

    Yields:
        The signals that were held back; at the end of the block they are forgotten.
    """
    if not _main():
        yield []
        return
    _switch.once += 1
    try:
        _switch.install()
        yield _switch.pending
    finally:
        _switch.once -= 1
        if not _switch.once and _switch.tripped:
            _switch.pending.clear()
        _switch.leave()


def close() -> None:
    """Let nothing through any more, up to the end of `once`."""
    if _main() and _switch.once:
        _switch.tripped = True


def waiting() -> bool:
    """Whether somebody has tried to interrupt what is going on."""
    return bool(_switch.pending)
