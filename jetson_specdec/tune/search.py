# SPDX-License-Identifier: Apache-2.0
"""Which k to try next, and when to stop trying: pure, from what the launches so far measured.

One launch with k drafted tokens tells the acceptance of every position up to k, and the cost of a round at k. What it
does not tell is spanned by scenarios: how the cost runs between and beyond the measured k, and how acceptance goes on
past the last position. The next k is the rival that the present choice could lose to by most; the search ends when no
scenario lets the choice lose more than the tolerance, or when the launches are used up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

from attrs import field

from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["KStep", "Probe", "next_k"]

MAX_K = 32
"""Larger k are not searched; vLLM's own limit is 128, and no published drafter gains beyond a fraction of this."""
_SHARES = (0.0, 1.0, 4.0)
"""What a round pays once, in drafter passes (`estimate/data/speed.json`: 1 to 4 for dense models; 0 for none)."""
_TAILS = (0.0, 0.5, 1.0)
"""How much of the last position's chance goes on past the last one measured."""
_SLOPES = (0.7, 1.0, 1.6)
"""Slope of the cost past the last measured k against the last one seen: verification gets dearer, rarely cheaper."""
_BENDS = (0.0, 0.7)
"""Between two measured k: on the straight line, or bent below it as far as the slope before allows."""
_FLATTEST = 0.001
"""A drafted token costs at least this share of a step; noise must not make it free."""


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
        regret: by what fraction the choice could be slower than the best permitted k, in the worst scenario.
        speedup: estimated speed-up over no speculation at the choice; None before the first launch.
        loses: every scenario has the best permitted k slower than no speculation.
        estimates: k → estimated speed-up, everything in its middle.
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


@frozen
class _Scenario:
    share: float
    tail: float
    slope: float
    bend: float


_MIDDLE = _Scenario(1.0, 0.5, 1.0, 0.0)


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
    if not probes:
        return KStep(action="probe", k=start_k)
    curve = _pooled(probes)
    anchors = _anchors(probes)
    top = max(anchors)
    limit = min(max_k or MAX_K, MAX_K)
    highest = max(probes, key=lambda probe: probe.k)
    may_raise = highest.rate > policy.raise_k_above_acceptance
    reach = max(top, min(limit, 3 * top + 3)) if may_raise else top
    allowed = tuple(range(1, reach + 1))
    scenarios = [_Scenario(*values) for values in product(_SHARES, _TAILS, _SLOPES, _BENDS)]
    gains = [_gains(plain_s, anchors, curve, allowed, scenario) for scenario in scenarios]
    middle = _gains(plain_s, anchors, curve, allowed, _MIDDLE)
    regrets = {k: max(max(each.values()) / each[k] - 1 for each in gains) for k in allowed}
    # Equal within a thousandth counts as equal: then the smaller k, which costs others on the server less.
    best = min(allowed, key=lambda k: (round(regrets[k], 3), -round(middle[k], 3), k))
    findings = []
    if not may_raise and top < limit:
        beyond = _gains(plain_s, anchors, curve, (top, top + 1), _MIDDLE)
        if beyond[top + 1] > beyond[top]:
            findings.append(Finding.of("JSD960", k=top, rate=highest.rate, threshold=policy.raise_k_above_acceptance))
    answer: dict[str, Any] = {
        "regret": regrets[best],
        "speedup": middle[best],
        "loses": all(max(each.values()) < 1 for each in gains),
        "estimates": middle,
        "allowed": allowed,
        "findings": tuple(findings),
    }
    if regrets[best] <= policy.search_tolerance or len(probes) >= policy.search_launches:
        return KStep(action="done", k=best, **answer)
    tried = set(anchors)
    winners = {max(allowed, key=lambda k: (each[k], -k)): max(each.values()) / each[best] - 1 for each in gains}
    rivals = [k for k, loss in winners.items() if loss > policy.search_tolerance and k not in tried]
    # The largest rival tells most: its launch shows the acceptance of every smaller k as well.
    wanted = max(rivals, default=best)
    if wanted in tried:
        return KStep(action="done", k=best, **answer)
    return KStep(action="probe", k=wanted, **answer)


def _pooled(probes: Sequence[Probe]) -> AcceptanceCurve:
    """Return one curve from all launches: each position's mean over those that drafted it, by their rounds."""
    longest = max(probes, key=lambda probe: probe.k)
    positions: list[float] = []
    for index in range(longest.k):
        known = [
            (probe.per_position[index], probe.drafts or 1.0)
            for probe in probes
            if probe.per_position is not None and index < min(len(probe.per_position), probe.k)
        ]
        if not known:
            break
        positions.append(sum(rate * weight for rate, weight in known) / sum(weight for _, weight in known))
    if len(positions) == longest.k:
        return AcceptanceCurve.of_positions([min(max(rate, 0.0), 1.0) for rate in positions], kind="measured")
    return AcceptanceCurve.of_length(longest.tokens, longest.k, kind="measured")


def _anchors(probes: Sequence[Probe]) -> dict[int, float]:
    """Return k → seconds of a round; the mean where a k ran twice."""
    found: dict[int, list[float]] = {}
    for probe in probes:
        found.setdefault(probe.k, []).append(probe.round_s)
    return {k: sum(values) / len(values) for k, values in sorted(found.items())}


def _gains(
    plain_s: float, anchors: dict[int, float], curve: AcceptanceCurve, among: Sequence[int], scenario: _Scenario
) -> dict[int, float]:
    gains = {}
    for k in among:
        span = curve.tokens(k)
        assert span is not None
        tokens = span.low + scenario.tail * (span.high - span.low)
        gains[k] = tokens * plain_s / _cost(plain_s, anchors, k, scenario)
    return gains


def _cost(plain_s: float, anchors: dict[int, float], k: int, scenario: _Scenario) -> float:
    """Return the seconds of a round with k drafted tokens."""
    if k in anchors:
        return anchors[k]
    known = sorted(anchors)
    least = _FLATTEST * plain_s
    first, last = known[0], known[-1]
    if k < first:
        share = scenario.share
        if len(known) > 1:
            # Two measured rounds tell what is paid once; the assumed shares stay as far as they agree with it.
            slope = max((anchors[known[1]] - anchors[first]) / (known[1] - first), least)
            seen = max((anchors[first] - plain_s) / slope - first, 0.0)
            share = (seen + min(share, seen)) / 2 if scenario.bend else seen
        each = max((anchors[first] - plain_s) / (share + first), 0.0)
        return max(plain_s + (share + k) * each, least)
    if k > last:
        if len(known) > 1:
            slope = (anchors[last] - anchors[known[-2]]) / (last - known[-2])
        else:
            slope = (anchors[last] - plain_s) / (scenario.share + last)
        return anchors[last] + max(slope, least) * scenario.slope * (k - last)
    below = max(each for each in known if each < k)
    above = min(each for each in known if each > k)
    chord = (anchors[above] - anchors[below]) / (above - below)
    earlier = [each for each in known if each < below]
    before = (
        (anchors[below] - anchors[earlier[-1]]) / (below - earlier[-1])
        if earlier
        else max((anchors[below] - plain_s) / (scenario.share + below), 0.0)
    )
    slope = chord - scenario.bend * max(chord - before, 0.0)
    return anchors[below] + max(slope, 0.0) * (k - below)
