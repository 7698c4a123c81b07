# SPDX-License-Identifier: Apache-2.0
"""What the launches so far leave possible: drawn worlds, each with a cost and a yield of a round at every k. Pure.

A launch at k shows the acceptance of every position up to k and the cost of a round at k. The cost at other k and the
acceptance of further positions are drawn: from shapes that rounds are known to have, held to what was measured. The
draws are the same in every call, so that the same measurements give the same answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve

    Array = npt.NDArray[np.float64]

__all__ = ["DRAFTS", "WORLDS", "round_costs", "tokens_beyond", "tokens_of_length"]

WORLDS = 1000
"""Worlds that are looked at."""
_COSTS, _TAILS = 16_000, 3000
"""Draws that they are taken from: enough that a few hundred still agree with three launches."""
_NOISE = 0.02
"""Spread of a measured time from launch to launch, relative. Judgement: repeated runs of two cores vary by 3 to 7 %, of
boards by less; twice as much costs the search a point or two (tests/benchmarks/bench_search.py)."""
_OWN = 0.5
"""Share of a remaining difference to a measured round that counts as the server's own, the rest as noise."""
DRAFTS = 500.0
"""Rounds that an acceptance is taken to rest on where nothing is said."""


def round_costs(plain_s: float, anchors: Mapping[int, float], size: int) -> Array:
    """Return what rounds with 1 to `size` drafted tokens may cost, in plain steps: one row a world.

    Each shape is scaled so that it goes through the measured round with the largest k, within the noise; the others
    that were measured weigh it.

    Args:
        plain_s: seconds of a step without speculation.
        anchors: k → measured seconds of a round; k at most `size`.
        size: largest k.
    """
    import numpy as np

    smooth, rough = _shapes(size)
    chance = np.random.RandomState(11)
    known = sorted(anchors)
    top = known[-1]
    plain = np.exp(_NOISE * chance.standard_normal((_COSTS, 1)))
    # A drafted token is never free, whatever the noise says.
    extra = np.maximum(
        anchors[top] / plain_s * np.exp(_NOISE * chance.standard_normal((_COSTS, 1))) - plain, 0.002 * top
    )
    jumps = rough[:, [top - 1]]
    shrink = np.minimum(0.9 * extra / np.maximum(jumps, 1e-9), 1.0)
    scale = (extra - shrink * jumps) / smooth[:, [top - 1]]
    fit = np.zeros(_COSTS)
    for k in known[:-1]:
        cost = plain + scale * smooth[:, [k - 1]] + shrink * rough[:, [k - 1]]
        # Student's t: one launch that is off leaves something to choose from.
        fit -= 2.5 * np.log1p((np.log(anchors[k] / plain_s / cost[:, 0]) / _NOISE) ** 2 / 4)
    taken = _taken(fit)
    costs: Array = plain[taken] + scale[taken] * smooth[taken] + shrink[taken] * rough[taken]
    if len(known) > 1:
        grid = np.arange(1, size + 1)
        measured = np.array([anchors[k] / plain_s for k in known])
        off = np.log(measured / costs[:, [k - 1 for k in known]])
        weights = np.stack([np.interp(grid, known, row) for row in np.eye(len(known))])
        costs = costs * np.exp(_OWN * off @ weights)
    return costs


@lru_cache(maxsize=4)
def _shapes(size: int) -> tuple[Array, Array]:
    """Return shapes of what a round costs beyond a plain step: (up to a scale, in plain steps).

    The first: something paid once and for each drafted token, more for each further one where attention or products
    begin to weigh, less where experts are shared. The second: where products cost nothing up to a number of tokens and
    then do (memory-bound, then compute-bound), and jumps from tile and graph sizes.
    """
    import numpy as np

    chance = np.random.RandomState(7)
    k = np.arange(1.0, size + 1)[None, :]

    def uniform() -> Array:
        return chance.random_sample((_COSTS, 1))

    def spread(low: float, high: float, share: float) -> Array:
        """Draw evenly over the orders of magnitude, and 0 but for that share."""
        value = low * (high / low) ** uniform()
        return np.where(uniform() < share, value, 0.0)

    smooth = k + spread(0.2, 12.0, 0.7) + spread(0.005, 0.2, 0.3) * k**2
    smooth = smooth + spread(1.0, 30.0, 0.25) * (1 - np.exp(-k / (1 + 5 * uniform())))
    rough = spread(0.02, 0.3, 0.3) * np.maximum(k - np.floor(2 + 14 * uniform()), 0.0)
    positions = k + 1  # a round verifies the drafted tokens and one more
    doubling = sum((positions > edge) * 1.0 for edge in (4, 8, 16, 24))
    eights = sum((positions > edge) * 1.0 for edge in (8, 16, 24))
    anywhere = (k > np.floor(1 + 15 * uniform())) * 1.0
    which = uniform()
    rough = rough + spread(0.03, 0.5, 0.3) * np.where(which < 0.3, doubling, np.where(which < 0.5, eights, anywhere))
    return smooth, rough


def tokens_beyond(positions: Sequence[float], drafts: Sequence[float], size: int) -> Array:
    """Return what rounds with 1 to `size` drafted tokens may yield, where positions were measured: one row a world.

    Past the last one the chance of the next token stays, falls, rises (where some texts are easier than others, only
    the easy ones get so far) or breaks off; the last two positions weigh which.

    Args:
        positions: measured share of rounds that accept position 1, 2, ….
        drafts: rounds that each of them rests on.
        size: largest k.
    """
    import numpy as np

    chance = np.random.RandomState(13)
    reached = [1.0, *positions]
    chances = [min(reached[i + 1] / reached[i], 1.0) if reached[i] > 0 else 0.0 for i in range(len(positions))]
    # Rounds of one text are alike, so they count half.
    rounds = [max(count * reached[i] / 2, 4.0) for i, count in enumerate(drafts)]
    steps = np.zeros((_TAILS, size))
    known = min(len(positions), size)
    for i in range(known):
        middle = (chances[i] * rounds[i] + 0.5) / (rounds[i] + 1)
        error = math.sqrt(middle * (1 - middle) / rounds[i])
        steps[:, i] = np.clip(chances[i] + error * chance.standard_normal(_TAILS), 0.0, 1.0)
    kind, falls, rises = (
        chance.random_sample(_TAILS),
        0.85 + 0.15 * chance.random_sample(_TAILS),
        chance.random_sample(_TAILS),
    )
    breaks = np.where(
        chance.random_sample(_TAILS) < 0.15, known + np.floor((2 * known + 4) * chance.random_sample(_TAILS)), -1
    )
    left = 0.05 + 0.5 * chance.random_sample(_TAILS)

    def following(current: Any) -> Any:
        risen = 1 - (1 - current) * (0.6 + 0.4 * rises)
        return np.where(kind < 0.35, current, np.where(kind < 0.7, current * falls, risen))

    fit = np.zeros(_TAILS)
    if known > 1:
        before, last = chances[known - 2], chances[known - 1]
        error = math.hypot(0.06 * before, math.sqrt(max(last * (1 - last), 0.01) / rounds[known - 1]))
        fit = -0.5 * ((last - following(np.full(_TAILS, before))) / max(error, 1e-3)) ** 2
    current = steps[:, known - 1]
    for i in range(known, size):
        current = following(current)
        current = np.where(breaks == i, np.minimum(current, left), current)
        steps[:, i] = current
    tokens: Array = 1 + np.cumsum(np.cumprod(steps, axis=1), axis=1)
    return _mixed(tokens[_taken(fit)])


def tokens_of_length(curve: AcceptanceCurve, size: int) -> Array:
    """Return what rounds may yield where only a mean length is known: one row a world."""
    import numpy as np

    spans = [span for k in range(1, size + 1) if (span := curve.tokens(k)) is not None]
    low, high = np.array([span.low for span in spans]), np.array([span.high for span in spans])
    share = ((np.arange(WORLDS) + 0.5) / WORLDS)[:, None]
    return _mixed(low + share * (high - low))


def _taken(fit: Array) -> Any:
    """Return which draws become worlds: in proportion to how well they fit, evenly spread."""
    import numpy as np

    weights = np.cumsum(np.exp(fit - fit.max()))
    at = (np.arange(WORLDS) + 0.5) / WORLDS * weights[-1]
    return np.minimum(np.searchsorted(weights, at), len(fit) - 1)


def _mixed(rows: Array) -> Array:
    """Return the rows in an order that has nothing to do with that of the costs."""
    import numpy as np

    mixed: Array = rows[np.random.RandomState(17).permutation(len(rows))]
    return mixed
