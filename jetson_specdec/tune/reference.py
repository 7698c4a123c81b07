# SPDX-License-Identifier: Apache-2.0
"""What a verdict rested on, and how long a token may take at a load if nothing has changed. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import field

from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.measurements import Acceptance, BenchReport

__all__ = ["Batches", "Reference"]

_SCHEDULE = "num_speculative_tokens_per_batch_size"


Batches = tuple[tuple[float, float, float], ...]
"""How many requests shared a step: (fewest, most, share of the steps); most is infinite where nothing is known."""
_BEYOND = 0.02
"""Above this share of tokens from steps with more requests than were ever measured, nothing is expected."""
_SLACK = 1.05


@frozen(kw_only=True)
class Reference:
    """What the verdict rested on.

    Attributes:
        acceptance: acceptance rate of the arm with speculation, or None. With a batch schedule the lowest of those at
            each concurrency: which of them is seen depends on the load.
        tpot_s: concurrency → mean seconds an output token took.
        plain_s: likewise without speculation; empty where that is not known.
        may_idle: a batch schedule drafts nothing at some load.
        source: where it comes from.
    """

    acceptance: float | None = None
    tpot_s: Mapping[int, float] = field(factory=dict)
    plain_s: Mapping[int, float] = field(factory=dict)
    may_idle: bool = False
    source: str | None = None

    @classmethod
    def of_reports(
        cls, reports: Sequence[BenchReport], *, without: Sequence[BenchReport] = (), source: str | None = None
    ) -> Reference:
        """Draw the reports of the arm with speculation together, and those of the arm without it."""
        schedules = [(report.conditions.speculative_config or {}).get(_SCHEDULE) for report in reports]
        schedule = next((each for each in schedules if each), None)
        rate = _rate([report.acceptance for report in reports])
        if schedule:
            alone = {run.concurrency for report in reports for run in report.runs}
            rates = [_rate([report.acceptance_at(size) for report in reports]) for size in alone]
            rate = min((each for each in rates if each is not None), default=rate)
        return cls(
            acceptance=rate,
            tpot_s=_times(reports),
            plain_s=_times(without),
            may_idle=any(row[-1] == 0 for row in schedule or ()),
            source=source,
        )

    def span(self, load: float, batches: Batches = ()) -> tuple[float, float] | None:
        """Return how long a token may take; None beyond what was measured.

        Args:
            load: mean requests in a step.
            batches: how far that went up and down, as far as it is known.
        """
        return _span(self.tpot_s, load, batches)

    def plain(self, load: float, batches: Batches = ()) -> tuple[float, float] | None:
        """Return the same without speculation; None where it is not known."""
        return _span(self.plain_s, load, batches)


def _rate(seen: Sequence[Acceptance | None]) -> float | None:
    """Return accepted ÷ drafted tokens over all, else the mean of the rates."""
    drafted = accepted = 0.0
    rates = []
    for each in seen:
        if each is not None and each.drafted_tokens and each.accepted_tokens is not None:
            drafted += each.drafted_tokens
            accepted += each.accepted_tokens
        elif each is not None and each.rate is not None:
            rates.append(each.rate)
    return accepted / drafted if drafted else sum(rates) / len(rates) if rates else None


def _times(reports: Sequence[BenchReport]) -> dict[int, float]:
    from jetson_specdec.tune.core import mean_tpot_s

    times: dict[int, list[float]] = {}
    for report in reports:
        for run in report.runs:
            value = mean_tpot_s(report, run.concurrency)
            if value is not None:
                times.setdefault(run.concurrency, []).append(value)
    return {size: sum(values) / len(values) for size, values in sorted(times.items())}


def _span(times: Mapping[int, float], load: float, batches: Batches) -> tuple[float, float] | None:
    """Return the shortest and longest time a token can take at a mean load, if nothing has changed.

    The shortest: the load is the same all the time. The longest: it goes up and down as far as the batches seen allow;
    where none were seen, between the smallest and the largest that were measured. A busy step makes many tokens slow,
    an idle one few fast: what is seen is weighted by tokens, so this is.
    """
    sizes = sorted(times)
    if not sizes or load > sizes[-1] * _SLACK:
        return None
    load = max(load, float(sizes[0]))
    # Fewer requests than their tokens say may have had luck.
    beyond = sum(share * few for few, _, share in batches if few - math.sqrt(few) > sizes[-1] * _SLACK)
    if beyond > _BEYOND * load:
        return None
    steady = _at(times, load)
    rows = [
        (
            fewest,
            float(sizes[-1]) if math.isinf(most) and fewest < sizes[-1] else min(most, 2 * fewest + sizes[-1]),
            share,
        )
        for fewest, most, share in batches or ((float(sizes[0]), math.inf, 1.0),)
    ]
    rows.sort(key=lambda row: row[1])
    spare = load - sum(fewest * share for fewest, _, share in rows)
    seconds = tokens = 0.0
    for fewest, most, share in reversed(rows):
        # The busier a step, the more one request more costs: so what is left over goes there first.
        upper = min(max(spare, 0.0) / (share * (most - fewest)), 1.0) if most > fewest and share else 0.0
        spare -= upper * share * (most - fewest)
        seconds += share * ((1 - upper) * fewest * _at(times, fewest) + upper * most * _at(times, most))
        tokens += share * ((1 - upper) * fewest + upper * most)
    longest = seconds / tokens if tokens else steady
    return min(steady, longest), max(steady, longest)


def _at(times: Mapping[int, float], load: float) -> float:
    """Return the time at a load: between those that were measured, and a little beyond by the last slope."""
    sizes = sorted(times)
    if load <= sizes[0] or len(sizes) == 1:
        return times[sizes[0]]
    above = next((size for size in sizes if size >= load), sizes[-1])
    below = max(size for size in sizes if size < above)
    slope = (times[above] - times[below]) / (above - below)
    return times[above] + (slope if load <= above else max(slope, 0.0)) * (load - above)
