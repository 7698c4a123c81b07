# SPDX-License-Identifier: Apache-2.0
"""Which k to try next, and when to stop trying: pure, from what the launches so far measured.

What the launches leave open is drawn as worlds (`worlds`). The choice is the k that is within the tolerance of the best
permitted one in most of them, and loses least in the others. The search ends when it is so in nearly all of them, when
no further launch is expected to make it much surer, or when the launches are used up. Else the next launch is the k
that is expected to make the choice surest, the one after it included: the worlds are sorted by what a launch would
show, and each group is given its own choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import field

from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.worlds import DRAFTS, round_costs, tokens_beyond, tokens_of_length
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.tune.worlds import Array

__all__ = ["KStep", "Probe", "next_k"]

MAX_K = 32
"""Larger k are not searched; vLLM's own limit is 128, and no published drafter gains beyond a fraction of this."""
_WORTH = 0.01
"""A further launch has to be expected to make the choice right in this share of the worlds more."""
_GROUPS, _SUBGROUPS = 6, 4
"""What a launch would show is told apart so finely: cost of a round, and acceptance past what is known."""
_WORST = 0.5
"""A loss counts up to this; beyond, wrong is wrong."""


@frozen(kw_only=True)
class Probe:
    """What one launch with speculation measured at concurrency 1.

    Attributes:
        k: drafted tokens.
        tpot_s: mean seconds an output token took.
        tokens: mean tokens of a round (mean acceptance length).
        per_position: acceptance of each position, or None.
        drafts: rounds it rests on, or None.
    """

    k: int
    tpot_s: float
    tokens: float
    per_position: tuple[float, ...] | None = None
    drafts: float | None = None

    @property
    def round_s(self) -> float:
        """Seconds of a round."""
        return self.tpot_s * self.tokens

    @property
    def rate(self) -> float:
        """Acceptance rate: accepted ÷ drafted tokens."""
        return (self.tokens - 1) / self.k


@frozen(kw_only=True)
class KStep:
    """The next launch of the search, or its end.

    Attributes:
        action: `probe` (launch with this k) or `done` (this is the k to prove).
        k: which.
        regret: by what fraction the choice may be slower than the best permitted k: more in less than the share
            `1 - search_certainty` of the worlds.
        speedup: estimated speed-up over no speculation at the choice; None before the first launch.
        loses: in as many worlds every permitted k is slower than no speculation.
        estimates: k → estimated speed-up: measured where it ran, else the middle of the worlds.
        allowed: permitted k.
        findings: why.
    """

    action: Literal["probe", "done"]
    k: int
    regret: float | None = None
    speedup: float | None = None
    loses: bool = False
    estimates: dict[int, float] = field(factory=dict)
    allowed: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "action": self.action,
            "k": self.k,
            "regret": self.regret,
            "speedup": self.speedup,
            "loses": self.loses,
            "estimates": {str(k): value for k, value in self.estimates.items()},
            "allowed": list(self.allowed),
            "findings": [finding.to_json() for finding in self.findings],
        }


def next_k(
    plain_s: float,
    probes: Sequence[Probe],
    *,
    start_k: int,
    policy: Policy = DEFAULT_POLICY,
    max_k: int | None = None,
) -> KStep:
    """Return what to launch next, or the k to prove.

    Args:
        plain_s: mean seconds an output token takes without speculation, at concurrency 1.
        probes: launches so far; their order does not matter.
        start_k: where the search starts.
        policy: the rule on raising k, the tolerance, the number of launches.
        max_k: largest k to consider.
    """
    import numpy as np

    if not probes:
        return KStep(action="probe", k=start_k)
    anchors = _anchors(probes)
    top = max(anchors)
    limit = min(max_k or MAX_K, MAX_K)
    highest = max(probes, key=lambda probe: probe.k)
    may_raise = highest.rate > policy.raise_k_above_acceptance
    reach = max(top, limit) if may_raise else top
    allowed = tuple(range(1, reach + 1))
    costs = round_costs(plain_s, anchors, max(reach, top + 1))
    tokens = _tokens(probes, costs.shape[1])
    every = tokens / costs
    gains = every[:, :reach]
    losses = gains.max(axis=1, keepdims=True) / gains - 1
    good = np.where(losses <= policy.search_tolerance, 1.0, 0.0) - np.minimum(losses, _WORST)
    # Equal within a thousandth counts as equal: then the smaller k, which costs others on the server less.
    best = int(np.argmax(np.round(good.mean(axis=0), 3))) + 1
    middle = np.median(every, axis=0)
    for k, seconds in anchors.items():
        middle[k - 1] = np.mean(tokens[:, k - 1]) * plain_s / seconds
    findings = []
    if not may_raise and top < limit and middle[top] > middle[top - 1]:
        findings.append(Finding.of("JSD960", k=top, rate=highest.rate, threshold=policy.raise_k_above_acceptance))
    regret = float(np.quantile(losses[:, best - 1], policy.search_certainty))
    answer: dict[str, Any] = {
        "regret": regret,
        "speedup": float(middle[best - 1]),
        "loses": bool(np.quantile(gains.max(axis=1), policy.search_certainty) < 1),
        "estimates": {k: float(middle[k - 1]) for k in allowed},
        "allowed": allowed,
        "findings": tuple(findings),
    }
    if regret <= policy.search_tolerance or len(probes) >= policy.search_launches:
        return KStep(action="done", k=best, **answer)
    sure = good.mean(axis=0).max()
    new = [k for k in allowed if k not in anchors]
    then = new if policy.search_launches - len(probes) > 1 else []
    worth = {k: _worth(k, costs, tokens if k > top else None, good, then) - sure for k in new}
    wanted = max(worth, key=lambda k: (round(worth[k], 6), k), default=best)
    if worth.get(wanted, 0.0) < _WORTH:
        return KStep(action="done", k=best, **answer)
    return KStep(action="probe", k=wanted, **answer)


def _worth(k: int, costs: Array, tokens: Array | None, good: Array, then: Sequence[int]) -> float:
    """Return how good the choice is on average once a launch with k has told the worlds apart.

    Args:
        k: the launch.
        costs: of rounds, worlds × k.
        tokens: of rounds, where this launch would show them as well.
        good: how good each choice is in each world.
        then: launches that may follow it.
    """
    import numpy as np

    total = 0.0
    for group in np.array_split(np.argsort(costs[:, k - 1], kind="stable"), _GROUPS):
        parts = [group]
        if tokens is not None:
            parts = np.array_split(group[np.argsort(tokens[group, k - 1], kind="stable")], _SUBGROUPS)
        for part in parts:
            value = float(good[part].sum(axis=0).max())
            if then:
                order = np.argsort(costs[part][:, [each - 1 for each in then]], axis=0, kind="stable")
                told = sum(each.sum(axis=0).max(axis=-1) for each in np.array_split(good[part][order], _SUBGROUPS))
                value = max(value, float(np.max(told)))
            total += value
    return total / len(good)


def _tokens(probes: Sequence[Probe], size: int) -> Array:
    """Return the tokens of a round in each world: each position's mean over those that drafted it, by their rounds."""
    longest = max(probes, key=lambda probe: probe.k)
    positions: list[float] = []
    drafts: list[float] = []
    for index in range(longest.k):
        known = [
            (probe.per_position[index], probe.drafts or DRAFTS)
            for probe in probes
            if probe.per_position is not None and index < min(len(probe.per_position), probe.k)
        ]
        if not known:
            return tokens_of_length(AcceptanceCurve.of_length(longest.tokens, longest.k, kind="measured"), size)
        weight = sum(each for _, each in known)
        positions.append(min(max(sum(rate * each for rate, each in known) / weight, 0.0), 1.0))
        drafts.append(weight)
    return tokens_beyond(positions, drafts, size)


def _anchors(probes: Sequence[Probe]) -> dict[int, float]:
    """Return k → seconds of a round; the mean where a k ran twice."""
    found: dict[int, list[float]] = {}
    for probe in probes:
        found.setdefault(probe.k, []).append(probe.round_s)
    return {k: sum(values) / len(values) for k, values in sorted(found.items())}
