# SPDX-License-Identifier: Apache-2.0
"""Which k: the best one among those the rules permit, from the cost of a round and the tokens it yields."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field

from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.estimate.speed_cost import RoundCost, Scenario
from jetson_specdec.estimate.speed_gain import predict
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["ChoiceState", "KChoice", "choose_k"]

_TIE = 0.005
"""Estimates closer than this are the same for every purpose."""

ChoiceState = Literal["raise", "keep", "lower", "none", "unknown"]


@frozen(kw_only=True)
class KChoice:
    """Which k, among those the rules permit.

    Attributes:
        k: the choice; None when every permitted k loses, `ran_k` when nothing can be said.
        state: against `ran_k`; `none`: even the best one is slower than no speculation; `unknown`: cost or acceptance
            are missing.
        ran_k: the k that ran, or would be started with.
        allowed: permitted k.
        speedup: range at the choice, or None.
        estimates: k → estimated speed-up with everything in its middle, for all k that are covered.
        rivals: permitted k that are as good as the choice within half a percent, or better in some scenario.
        best_without_rule: the k that would be best if all were permitted.
        rate: acceptance rate at `ran_k` the rule was applied to; None where it was not measured there.
        findings: the reasons.
    """

    k: int | None
    state: ChoiceState
    ran_k: int
    allowed: tuple[int, ...] = ()
    speedup: Span | None = None
    estimates: dict[int, float] = field(factory=dict)
    rivals: tuple[int, ...] = ()
    best_without_rule: int | None = None
    rate: float | None = None
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "k": self.k,
            "state": self.state,
            "ran_k": self.ran_k,
            "allowed": list(self.allowed),
            "speedup": self.speedup.to_json() if self.speedup else None,
            "estimates": {str(k): value for k, value in self.estimates.items()},
            "rivals": list(self.rivals),
            "best_without_rule": self.best_without_rule,
            "acceptance_rate": self.rate,
            "findings": [finding.to_json() for finding in self.findings],
        }


def choose_k(
    cost: RoundCost,
    acceptance: AcceptanceCurve | None,
    *,
    ran_k: int,
    policy: Policy = DEFAULT_POLICY,
    max_k: int | None = None,
) -> KChoice:
    """Return the best k among those the rules permit.

    Smaller k than the one that ran are always permitted. Larger ones only when the acceptance rate *measured* at the k
    that ran is above `Policy.raise_k_above_acceptance`; published or assumed acceptance never raises k.

    Args:
        cost: of the rounds.
        acceptance: measured, published or assumed; None is unknown.
        ran_k: the k that ran, or the start value where nothing ran yet.
        policy: the rule's threshold.
        max_k: largest k to consider; all the cost covers where not given.

    Raises:
        OptionError: `ran_k` is below 1.
    """
    if ran_k < 1:
        from jetson_specdec.errors import OptionError

        raise OptionError("JSE432", name="ran_k", value=ran_k, expected="a whole number from 1")
    top = min(cost.k_max, max_k if max_k is not None else cost.k_max)
    tokens = {k: span for k in range(1, top + 1) if acceptance and (span := acceptance.tokens(k)) is not None}
    if acceptance is None or not tokens or cost.middle is None:
        return KChoice(k=ran_k, state="unknown", ran_k=ran_k, findings=cost.findings if cost.middle is None else ())
    rate = None
    if acceptance.kind == "measured" and acceptance.k == ran_k and (known := acceptance.rate_at(ran_k)) is not None:
        rate = known.mid
    may_raise = rate is not None and rate > policy.raise_k_above_acceptance
    allowed = tuple(k for k in tokens if k <= ran_k or may_raise)
    estimates = {k: span.mid / cost.middle.relative(k) for k, span in tokens.items()}
    best, overall = _best(estimates, allowed), _best(estimates, tuple(tokens))
    found = predict(cost, acceptance, best)
    speedup = found.speedup if found is not None else None
    lost = speedup is not None and speedup.high < 1
    state: ChoiceState = "none" if lost else "keep" if best == ran_k else "lower" if best < ran_k else "raise"
    findings = []
    if overall > ran_k and not may_raise:
        findings.append(
            Finding.of("JSD439", k=ran_k, rate=rate, threshold=policy.raise_k_above_acceptance, best=overall)
        )
    if state == "lower" and ran_k in estimates:
        findings.append(Finding.of("JSD440", k=best, ran=ran_k, gain=estimates[best], ran_gain=estimates[ran_k]))
    return KChoice(
        k=None if lost else best,
        state=state,
        ran_k=ran_k,
        allowed=allowed,
        speedup=speedup,
        estimates=estimates,
        rivals=_rivals(cost.scenarios, tokens, estimates, allowed, best),
        best_without_rule=overall,
        rate=rate,
        findings=tuple(findings),
    )


def _best(estimates: dict[int, float], among: tuple[int, ...]) -> int:
    """Return the k with the best estimate; of equal ones the smallest."""
    return max(among, key=lambda k: (estimates[k], -k))


def _rivals(
    scenarios: tuple[Scenario, ...],
    tokens: dict[int, Span],
    estimates: dict[int, float],
    allowed: tuple[int, ...],
    best: int,
) -> tuple[int, ...]:
    found = {k for k in allowed if estimates[k] >= estimates[best] * (1 - _TIE)}
    for scenario in scenarios:
        for pick in ("low", "high"):
            gains = {k: getattr(tokens[k], pick) / scenario.relative(k) for k in allowed}
            found.add(_best(gains, allowed))
    return tuple(sorted(found - {best}))
