# SPDX-License-Identifier: Apache-2.0
"""Which run gets which prompts: none twice, warm-up apart, the same for every server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle

from attrs import field

from jetson_specdec.errors import OptionError
from jetson_specdec.loadgen.prompts import Prompt, PromptSet
from jetson_specdec.values import frozen

__all__ = ["Batch", "allot"]


@frozen(kw_only=True)
class Batch:
    """The prompts of one run.

    Attributes:
        concurrency: of the run.
        warmup: sent before it, never measured.
        measured: sent in it.
        name: of the set they come from.
        reused: whether some of them are used more than once in this measurement.
    """

    concurrency: int
    warmup: tuple[Prompt, ...] = field(repr=False)
    measured: tuple[Prompt, ...] = field(repr=False)
    name: str
    reused: bool = False


def allot(source: PromptSet, warmups: Mapping[int, int], *, wanted: int, fewer: bool, reuse: bool) -> list[Batch]:
    """Give each run its warm-up prompts and its own prompts.

    Warm-up prompts are taken first, so that they stay the same when more or fewer requests are measured.

    Args:
        source: the prompts, in the order in which they are to be used.
        warmups: concurrency → warm-up requests of its run, in the order of the runs.
        wanted: prompts to measure in each run.
        fewer: take fewer where there are not enough.
        reuse: use them again where there are not enough.

    Raises:
        OptionError: there are not enough, and neither is allowed.
    """
    heads = sum(warmups.values())
    needed = wanted * len(warmups) + heads
    present = len(source.prompts)
    short = needed > present
    if short and fewer and not reuse:
        wanted = (present - heads) // len(warmups)
    if present == 0 or wanted < 1 or (short and not fewer and not reuse):
        raise OptionError("JSE670", name=source.name, needed=needed, present=present)
    supply: Iterator[Prompt] = cycle(source.prompts)

    def take(count: int) -> tuple[Prompt, ...]:
        return tuple(next(supply) for _ in range(count))

    before = [take(count) for count in warmups.values()]
    return [
        Batch(
            concurrency=concurrency,
            warmup=warmup,
            measured=take(wanted),
            name=source.name,
            reused=short and reuse,
        )
        for concurrency, warmup in zip(warmups, before, strict=True)
    ]
