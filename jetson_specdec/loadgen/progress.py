# SPDX-License-Identifier: Apache-2.0
"""How far a benchmark is, for a person who waits."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TextIO

from jetson_specdec.messages import render
from jetson_specdec.values import frozen

__all__ = ["Progress", "print_progress"]


@frozen(kw_only=True)
class Progress:
    """How far one run is.

    Attributes:
        concurrency: of the run.
        total: requests it will have.
        done: requests that ended.
        failed: of those, without an answer.
        elapsed_s: since its start.
    """

    concurrency: int
    total: int
    done: int = 0
    failed: int = 0
    elapsed_s: float = 0.0


def print_progress(stream: TextIO) -> Callable[[Progress], None]:
    """Return a printer that keeps one line on a terminal up to date, and prints nothing elsewhere."""
    if not stream.isatty():
        return lambda _progress: None

    def show(progress: Progress) -> None:
        text = render(
            "bench-progress",
            {
                "concurrency": progress.concurrency,
                "done": progress.done,
                "total": progress.total,
                "failed": progress.failed,
                "elapsed_s": progress.elapsed_s,
            },
        )
        with contextlib.suppress(OSError):  # a terminal that was closed must not end a measurement
            stream.write("\r" + text + ("\n" if progress.done == progress.total else ""))
            stream.flush()

    return show
