# SPDX-License-Identifier: Apache-2.0
"""From ratios to an outcome: the literal rule of the contract, and the same rule with noise taken into account."""

from __future__ import annotations

import math
from collections.abc import Mapping

from attrs import evolve

from jetson_specdec.gate.evidence import Quantity
from jetson_specdec.gate.statistics import Bounds, t_quantile
from jetson_specdec.gate.verdict import CriterionState, Outcome
from jetson_specdec.policy import Policy
from jetson_specdec.values import frozen

__all__ = ["States", "contract_outcome", "higher_losses", "judged", "more_pairs", "outcome", "states"]

_SLACK = 1e-9
"""Keeps 13 ÷ 10 from missing +30 % by the last bit."""


@frozen(kw_only=True)
class States:
    """How the figures stand to the thresholds of the contract."""

    gain: CriterionState
    tpot: CriterionState
    eight: CriterionState
    floor: CriterionState
    """Whether the gain reaches what is worth keeping at all."""


def judged(quantities: Mapping[str, Quantity]) -> bool:
    """Say whether any figure has an interval, so that noise can be judged."""
    return any(quantity.bounds is not None for quantity in quantities.values())


def at_least(quantity: Quantity | None, needed: float) -> CriterionState:
    """Compare a ratio that must not be below a value."""
    if quantity is None or quantity.low is None or quantity.high is None:
        return "not_measured"
    if quantity.low >= needed - _SLACK:
        return "met"
    return "failed" if quantity.high < needed - _SLACK else "undecided"


def at_most(quantity: Quantity | None, allowed: float) -> CriterionState:
    """Compare a ratio that must not be above a value."""
    if quantity is None or quantity.low is None or quantity.high is None:
        return "not_measured"
    if quantity.high <= allowed + _SLACK:
        return "met"
    return "failed" if quantity.low > allowed + _SLACK else "undecided"


def states(quantities: Mapping[str, Quantity], policy: Policy, *, margin: float) -> States:
    """Return the states of the contract's criteria; `margin` is how much concurrency 8 may lose."""
    gain = quantities.get("throughput_c1")
    return States(
        gain=at_least(gain, 1 + policy.enable_throughput_gain),
        tpot=at_most(quantities.get("tpot_c1"), 1 - policy.enable_tpot_drop),
        eight=at_least(quantities.get("throughput_c8"), 1 - margin),
        floor=at_least(gain, 1 + policy.disable_throughput_gain),
    )


def higher_losses(quantities: Mapping[str, Quantity], *, margin: float) -> tuple[int, ...]:
    """Return the concurrencies other than 1 and 8 at which the server got slower, ascending.

    Where a concurrency has no throughput its TPOT tells.
    """
    lost = []
    for concurrency in sorted({quantity.concurrency for quantity in quantities.values()} - {1, 8}):
        throughput = at_least(quantities.get(f"throughput_c{concurrency}"), 1 - margin)
        tpot = at_most(quantities.get(f"tpot_c{concurrency}"), 1 + margin)
        if throughput == "failed" or (throughput == "not_measured" and tpot == "failed"):
            lost.append(concurrency)
    return tuple(lost)


def contract_outcome(quantities: Mapping[str, Quantity], policy: Policy, *, eight_applies: bool = True) -> Outcome:
    """Apply the literal rule to point values, without margin."""
    points = {key: evolve(quantity, bounds=None) for key, quantity in quantities.items()}
    found = states(points, policy, margin=0.0)
    if found.floor == "failed" or (eight_applies and found.eight == "failed"):
        return "disable"
    if found.gain == "not_measured":
        return "incomplete"
    if found.gain == "failed":
        return "marginal"
    if found.tpot == "not_measured" or (eight_applies and found.eight == "not_measured"):
        return "incomplete"
    return "enable" if found.tpot == "met" else "marginal"


def outcome(
    quantities: Mapping[str, Quantity], policy: Policy, *, eight_applies: bool = True, has_schedule: bool = False
) -> Outcome:
    """Apply the rule with noise taken into account, or the literal one where no figure has an interval.

    Args:
        quantities: by criterion name.
        policy: thresholds.
        eight_applies: False where the server takes fewer than eight requests at once.
        has_schedule: the arm after already drafts less at higher batch sizes, so there is no limited use left to try.
    """
    if not judged(quantities):
        return _by_points(quantities, policy, eight_applies=eight_applies, has_schedule=has_schedule)
    margin = policy.equivalence_margin
    found = states(quantities, policy, margin=margin)
    eight: CriterionState = found.eight if eight_applies else "met"
    wins_alone = found.gain == "met" and found.tpot == "met"
    if found.floor == "failed":
        return "disable"
    if eight == "failed":
        return "enable_limited" if wins_alone and not has_schedule else "disable"
    if found.gain == "not_measured":
        return _without_gain(quantities, found, margin)
    if found.gain == "failed" or found.tpot == "failed":
        if found.gain == "met" and eight == "not_measured":
            return "incomplete"
        settled = found.floor == "met" and eight in ("met", "not_measured")
        return "marginal" if settled else "inconclusive"
    lost = higher_losses(quantities, margin=margin)
    if "not_measured" in (found.tpot, eight):
        limited = lost and eight == "not_measured" and found.gain == "met" and not has_schedule
        return "enable_limited" if limited else "incomplete"
    if wins_alone and eight == "met":
        return "enable_limited" if lost and not has_schedule else "enable"
    return "inconclusive"


def _by_points(
    quantities: Mapping[str, Quantity], policy: Policy, *, eight_applies: bool, has_schedule: bool
) -> Outcome:
    """Apply the literal rule, and what it does not speak of: a loss at a concurrency other than 8."""
    literal = contract_outcome(quantities, policy, eight_applies=eight_applies)
    found = states(quantities, policy, margin=0.0)
    if literal != "incomplete":
        return literal
    if found.gain == "not_measured":
        return _without_gain(quantities, found, 0.0)
    lost = higher_losses(quantities, margin=0.0)
    limited = lost and found.gain == "met" and found.tpot != "failed" and found.eight == "not_measured"
    return "enable_limited" if limited and not has_schedule else literal


def _without_gain(quantities: Mapping[str, Quantity], found: States, margin: float) -> Outcome:
    """Without a throughput at concurrency 1: TPOT that fails there and gets worse above leaves nothing to gain."""
    return "disable" if found.tpot == "failed" and higher_losses(quantities, margin=margin) else "incomplete"


def more_pairs(
    quantities: Mapping[str, Quantity], policy: Policy, *, eight_applies: bool = True, has_schedule: bool = False
) -> int | None:
    """Return how many more pairs would settle it if means and spreads stay as they are; None beyond `max_pairs`."""
    now = max((quantity.pairs for quantity in quantities.values()), default=0)
    for total in range(max(now + 1, 2), policy.max_pairs + 1):
        imagined = {key: _with_pairs(quantity, total, policy) for key, quantity in quantities.items()}
        found = outcome(imagined, policy, eight_applies=eight_applies, has_schedule=has_schedule)
        if found != "inconclusive":
            return total - now
    return None


def _with_pairs(quantity: Quantity, total: int, policy: Policy) -> Quantity:
    """Imagine the figure with so many pairs, the mean and spread as seen."""
    if quantity.log_ratio is None or quantity.bounds is None or quantity.pairs == 0:
        return quantity
    middle = quantity.log_ratio
    reaches = []
    if quantity.from_pairs is not None and quantity.from_pairs.spread is not None:
        reaches.append(t_quantile(policy.confidence_level, total - 1) * quantity.from_pairs.spread / math.sqrt(total))
    if quantity.from_requests is not None:
        reach = max(quantity.from_requests.high - middle, middle - quantity.from_requests.low)
        reaches.append(reach * math.sqrt(quantity.pairs / total))
        if quantity.from_pairs is None:
            # With one pair the spread between pairs is unknown; it is at least that of the requests within.
            spread = quantity.from_requests.standard_error * math.sqrt(quantity.pairs)
            reaches.append(t_quantile(policy.confidence_level, total - 1) * spread / math.sqrt(total))
    reach = max(reaches, default=0.0)
    return evolve(
        quantity,
        bounds=Bounds(
            low=middle - reach, high=middle + reach, spread=None, standard_error=0.0, count=quantity.bounds.count
        ),
    )
