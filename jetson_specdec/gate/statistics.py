# SPDX-License-Identifier: Apache-2.0
"""How sure can we be of a ratio: intervals over pairs of runs, and by resampling the requests within them.

Everything works on logarithms of ratios (after ÷ before), so that +25 % and −20 % are the same distance from no
change. Bounds are one-sided at a level: each of the two is missed with probability 1 − level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jetson_specdec.values import frozen

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Bounds", "RequestSample", "known_spread", "over_pairs", "over_requests", "unpaired", "wider"]

_SEED: Final = 20240601
"""Fixed, so that the same files always give the same verdict."""
_BLOCK_STRETCH: Final = math.sqrt(1.5)
"""Drawn blocks rarely begin where a wave of requests begins. One as long as a wave covers shares u and 1 − u of two
waves and shows on average ∫ u² + (1 − u)² du = 2/3 of the variance between waves."""


@frozen(kw_only=True)
class Bounds:
    """One-sided lower and upper bounds of a mean log ratio.

    Attributes:
        low, high: logarithms.
        spread: standard deviation between pairs, or None with a single one.
        standard_error: of the mean.
        count: how many values it rests on (pairs, or requests).
    """

    low: float
    high: float
    spread: float | None
    standard_error: float
    count: int


@frozen(kw_only=True)
class RequestSample:
    """The requests of one pair of runs that one quantity rests on.

    For a throughput `weights` are output tokens and `values` end-to-end times; for a median `values` are the values
    and `weights` is None.

    Attributes:
        before, after: `values`, in order of sending.
        before_weights, after_weights: `weights`, or None.
        matched: the n-th request of both arms had the same prompt, so both are resampled together.
        block: requests that share their fate because they ran at the same time (about the concurrency).
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    before_weights: tuple[float, ...] | None = None
    after_weights: tuple[float, ...] | None = None
    matched: bool = False
    block: int = 1


def over_pairs(log_ratios: Sequence[float], level: float) -> Bounds | None:
    """Return Student's t bounds of the mean log ratio over pairs; None for fewer than two pairs."""
    count = len(log_ratios)
    if count < 2:
        return None
    mean = math.fsum(log_ratios) / count
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in log_ratios) / (count - 1))
    error = spread / math.sqrt(count)
    reach = t_quantile(level, count - 1) * error
    return Bounds(low=mean - reach, high=mean + reach, spread=spread, standard_error=error, count=count)


def unpaired(before: Sequence[float], after: Sequence[float], level: float) -> Bounds | None:
    """Return Welch's bounds of the difference of mean logarithms; None when an arm has fewer than two values."""
    if len(before) < 2 or len(after) < 2:
        return None
    parts = []
    for values in (before, after):
        logs = [math.log(value) for value in values]
        mean = math.fsum(logs) / len(logs)
        variance = math.fsum((value - mean) ** 2 for value in logs) / (len(logs) - 1)
        parts.append((mean, variance / len(logs), len(logs)))
    (mean_b, error_b, count_b), (mean_a, error_a, count_a) = parts
    total = error_a + error_b
    freedom = 1.0
    if total > 0:
        freedom = total**2 / (error_a**2 / (count_a - 1) + error_b**2 / (count_b - 1))
    reach = t_quantile(level, freedom) * math.sqrt(total)
    middle = mean_a - mean_b
    return Bounds(
        low=middle - reach,
        high=middle + reach,
        # As if paired: what one more run of each arm would vary by.
        spread=math.sqrt(total * min(count_a, count_b)),
        standard_error=math.sqrt(total),
        count=min(count_a, count_b),
    )


def known_spread(log_ratio: float, spread: float, level: float) -> Bounds:
    """Return normal bounds of one log ratio whose two figures are each known to vary by a fraction."""
    from scipy import special

    error = math.log1p(spread) * math.sqrt(2)
    reach = float(special.ndtri(level)) * error
    return Bounds(low=log_ratio - reach, high=log_ratio + reach, spread=error, standard_error=error, count=1)


def over_requests(samples: Sequence[RequestSample], point: float, level: float, resamples: int) -> Bounds | None:
    """Resample requests within every pair and return percentile bounds of the mean log ratio.

    The percentiles are taken a little further out than the level says, as small samples need (Hesterberg 2015,
    "What Teachers Should Know About the Bootstrap", expanded percentile interval).

    Args:
        samples: one for each pair.
        point: the log ratio that the reports themselves give; the resampled ones are centred on it.
        level: of each bound.
        resamples: how many.

    Returns:
        None when there is no sample, or one with fewer than four requests in an arm.
    """
    if not samples or any(min(len(sample.before), len(sample.after)) < 4 for sample in samples):
        return None
    import numpy as np

    generator = np.random.default_rng(_SEED)
    total = np.zeros(resamples)
    centre = 0.0
    independent = 0
    for sample in samples:
        block = _block(sample)
        independent += min(len(sample.before), len(sample.after)) // block
        before_at = _indices(generator, len(sample.before), block, resamples)
        together = sample.matched and len(sample.before) == len(sample.after)
        after_at = before_at if together else _indices(generator, len(sample.after), block, resamples)
        total += _statistic(sample.after, sample.after_weights, after_at)
        total -= _statistic(sample.before, sample.before_weights, before_at)
        centre += float(_statistic(sample.after, sample.after_weights, np.arange(len(sample.after))[None, :])[0])
        centre -= float(_statistic(sample.before, sample.before_weights, np.arange(len(sample.before))[None, :])[0])
    stretch = _BLOCK_STRETCH if any(_block(sample) > 1 for sample in samples) else 1.0
    drawn = stretch * (total - centre) / len(samples) + point
    tail = _expanded_tail(1 - level, max(independent, 2))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Bounds(
        low=min(float(low), point),
        high=max(float(high), point),
        spread=None,
        standard_error=float(np.std(drawn)),
        count=independent,
    )


def wider(first: Bounds | None, second: Bounds | None) -> Bounds | None:
    """Return bounds that contain both; the spread and count are those of the first."""
    if first is None or second is None:
        return first or second
    return Bounds(
        low=min(first.low, second.low),
        high=max(first.high, second.high),
        spread=first.spread,
        standard_error=max(first.standard_error, second.standard_error),
        count=first.count,
    )


def t_quantile(level: float, freedom: float) -> float:
    """Return the quantile of Student's t distribution."""
    from scipy import special

    return float(special.stdtrit(freedom, level))


def _expanded_tail(tail: float, count: int) -> float:
    from scipy import special

    reach = math.sqrt(count / (count - 1)) * t_quantile(1 - tail, count - 1)
    return float(special.ndtr(-reach))


def _block(sample: RequestSample) -> int:
    """Return the block length; at least four blocks must remain, else there is nothing to draw from."""
    return max(1, min(sample.block, min(len(sample.before), len(sample.after)) // 4))


def _indices(generator: Any, count: int, block: int, resamples: int) -> np.ndarray[Any, Any]:
    """Draw blocks of neighbours, round the end (circular block bootstrap, Politis & Romano 1992)."""
    import numpy as np

    blocks = -(-count // block)
    starts = generator.integers(0, count, size=(resamples, blocks))
    drawn = (starts[:, :, None] + np.arange(block)[None, None, :]) % count
    indices: np.ndarray[Any, Any] = drawn.reshape(resamples, blocks * block)[:, :count]
    return indices


def _statistic(
    values: Sequence[float], weights: Sequence[float] | None, indices: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return the logarithm of Σ weights ÷ Σ values, or of the median value, for each row of indices."""
    import numpy as np

    drawn = np.asarray(values, dtype=float)[indices]
    if weights is None:
        middle: np.ndarray[Any, Any] = np.log(np.median(drawn, axis=1))
        return middle
    sums: np.ndarray[Any, Any] = np.asarray(weights, dtype=float)[indices].sum(axis=1)
    ratio: np.ndarray[Any, Any] = np.log(sums) - np.log(drawn.sum(axis=1))
    return ratio
