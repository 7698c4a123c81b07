# SPDX-License-Identifier: Apache-2.0
"""What a user's own measurements say: the time of a step without speculation, and of one round with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, field

from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.measurements.core import BenchReport

__all__ = ["Calibration", "MeasuredRound", "calibrate", "calibrate_report", "calibrate_round"]


@frozen(kw_only=True)
class MeasuredRound:
    """One speculative run at one batch size.

    Attributes:
        k: drafted tokens.
        seconds: of a round: TPOT times the mean acceptance length.
        mean_length: that length.
    """

    k: int
    seconds: float
    mean_length: float


@frozen(kw_only=True)
class Calibration:
    """Measured times, by concurrency.

    Attributes:
        plain: concurrency → seconds of a step without speculation (the TPOT).
        rounds: concurrency → a round with speculation.
        source: where they come from.
    """

    plain: Mapping[int, float] = field(factory=dict)
    rounds: Mapping[int, MeasuredRound] = field(factory=dict)
    source: str | None = None

    def plain_at(self, batch: int) -> float | None:
        """Return the step time at a batch size, interpolated between two measured ones; None outside of them."""
        if batch in self.plain:
            return self.plain[batch]
        below = max((size for size in self.plain if size < batch), default=None)
        above = min((size for size in self.plain if size > batch), default=None)
        if below is None or above is None:
            return None
        share = (batch - below) / (above - below)
        return self.plain[below] + share * (self.plain[above] - self.plain[below])

    def nearest(self, batch: int) -> int | None:
        """Return the measured concurrency closest to a batch size."""
        return min(self.plain, key=lambda size: abs(size - batch), default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: times in ms by concurrency."""
        return {
            "source": self.source,
            "plain_tpot_ms": {str(size): value * 1e3 for size, value in sorted(self.plain.items())},
            "rounds": {
                str(size): {"k": each.k, "round_ms": each.seconds * 1e3, "mean_length": each.mean_length}
                for size, each in sorted(self.rounds.items())
            },
        }


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise OptionError("JSE432", name=name, value=value, expected="a number above 0")
    return float(value)


def calibrate(*, baseline_tpot_ms: float, batch: int = 1, source: str | None = None) -> Calibration:
    """Take the TPOT (ms) of a run without speculation at one concurrency.

    Raises:
        OptionError: the time is not a number above 0.
    """
    return Calibration(plain={batch: _positive("baseline_tpot_ms", baseline_tpot_ms) / 1e3}, source=source)


def calibrate_report(report: BenchReport) -> Calibration | None:
    """Take the median TPOT of a baseline at every concurrency; None when the report holds none.

    A report of a server that speculates is no baseline: None, too.
    """
    if report.conditions.speculation or report.conditions.speculative_config:
        return None
    plain = {run.concurrency: run.tpot_ms_p50 / 1e3 for run in report.runs if run.tpot_ms_p50}
    return Calibration(plain=plain, source=report.source_format) if plain else None


def calibrate_round(
    calibration: Calibration,
    *,
    tpot_on_ms: float,
    k: int,
    mean_length: float | None = None,
    acceptance: AcceptanceCurve | None = None,
    batch: int = 1,
) -> Calibration:
    """Add one run with speculation: its TPOT (ms) times its mean acceptance length is the cost of a round.

    With the step without speculation that makes two points of the round's cost, from which other k follow.

    Args:
        calibration: holds the baseline at the same concurrency.
        tpot_on_ms: TPOT with speculation.
        k: drafted tokens of that run.
        mean_length: its mean acceptance length (or `acceptance`, measured with this k).
        acceptance: its measured acceptance.
        batch: its concurrency.

    Raises:
        OptionError: a time that is not above 0, or a length that k cannot have.
    """
    if mean_length is None and acceptance is not None:
        known = acceptance.tokens(k)
        mean_length = None if known is None or known.low != known.high else known.low
    if mean_length is None or k < 1 or not 1 <= mean_length <= k + 1:
        raise OptionError("JSE432", name="mean_length", value=mean_length, expected=f"1 to {k + 1}")
    seconds = _positive("tpot_on_ms", tpot_on_ms) / 1e3 * mean_length
    return evolve(
        calibration,
        rounds={**calibration.rounds, batch: MeasuredRound(k=k, seconds=seconds, mean_length=mean_length)},
    )


def rounds_between(plain: float, measured: MeasuredRound, k_max: int, share: float) -> tuple[float, ...]:
    """Return the seconds of a round for k = 1 … k_max: C(k) = C(0) + (f + k) · c through C(0) and the measured k.

    Args:
        plain: C(0), seconds of a step without speculation.
        measured: C at its k.
        k_max: last k.
        share: f, what is paid once a round, in drafter passes.
    """
    each = (measured.seconds - plain) / (share + measured.k)
    return tuple(plain + (share + k) * each for k in range(1, k_max + 1))
