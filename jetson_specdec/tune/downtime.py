# SPDX-License-Identifier: Apache-2.0
"""How long the server will be down: an estimate before the first start, and a better one after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.core import BlockRecord, TuneSettings
from jetson_specdec.values import frozen

__all__ = ["Downtime", "block_seconds", "downtime"]

_START = Span(60.0, 360.0)
"""Seconds until a server answers on a Jetson where nobody has measured it: weights from NVMe, compilation and graph
capture. Judgement; the first start replaces it."""
_TPOT = Span(0.01, 0.15)
"""Seconds an output token where neither a baseline nor an estimate is known. Judgement."""
_STOP = 10.0
_PROMPTS = 50
_BATCHED = 0.6
"""Share of perfect scaling with the requests in flight that a small board reaches. Judgement."""


@frozen(kw_only=True)
class Downtime:
    """Seconds the server will be down.

    Attributes:
        low, high: from the fewest starts that can settle it to the most that are allowed.
        fewest, most: starts.
        measured: whether a start has been measured already.
    """

    low: float
    high: float
    fewest: int
    most: int
    measured: bool = False

    @property
    def finding(self) -> Finding:
        """How a person is told."""
        return Finding.of("JSD962", low=self.low / 60, high=self.high / 60, blocks=self.fewest, most=self.most)


def block_seconds(settings: TuneSettings, tpot: Span, *, concurrency: Sequence[int]) -> Span:
    """Return how long the measurements of one block take."""
    tokens = (settings.num_prompts or _PROMPTS) * settings.output_len
    share = sum(1.0 / (1.0 + (each - 1) * _BATCHED) for each in concurrency)
    return tpot.scaled(tokens * share)


def downtime(
    settings: TuneSettings,
    *,
    tpot: Span | None = None,
    done: Sequence[BlockRecord] = (),
    policy: Policy = DEFAULT_POLICY,
) -> Downtime:
    """Return how long it will take from now on.

    Args:
        settings: what is measured.
        tpot: seconds an output token takes, from a baseline or an estimate.
        done: blocks that were measured; their times replace what is assumed.
        policy: how many pairs and launches there may be.
    """
    full = [block for block in done if block.role != "search"]
    short = [block for block in done if block.role == "search"]
    fewest = (0 if full else 1) + (0 if short else 1) + max(2 * policy.min_pairs - 1 - _of_pairs(done), 0)
    most = (0 if full else 1) + max(policy.search_launches - len(short), 0)
    most += max(2 * policy.max_pairs - 1 - _of_pairs(done), 0)
    assumed = tpot or _TPOT
    if full:
        each = Span.exact(sum(block.seconds for block in full) / len(full))
    else:
        bench = block_seconds(settings, assumed, concurrency=settings.concurrency)
        each = Span(_START.low + bench.low + _STOP, _START.high + bench.high + _STOP)
    high = each.high * most
    if settings.max_time_s is not None:
        high = min(high, settings.max_time_s)
    return Downtime(low=min(each.low * fewest, high), high=high, fewest=fewest, most=most, measured=bool(full))


def _of_pairs(done: Sequence[BlockRecord]) -> int:
    return sum(1 for block in done if block.role == "pair")
