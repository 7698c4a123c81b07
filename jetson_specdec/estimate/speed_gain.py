# SPDX-License-Identifier: Apache-2.0
"""Can it pay, and how much would it gain: break-even without an acceptance, a predicted range with one."""

from __future__ import annotations

from typing import Any, Literal

from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.estimate.speed_cost import RoundCost
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = [
    "BreakEven",
    "BreakEvenRow",
    "Prediction",
    "break_even",
    "needed_speedup",
    "predict",
    "throughput_ratio",
]


def throughput_ratio(speedup: float, decode_share: float) -> float:
    """Return throughput on ÷ off when decoding gets `speedup` times as fast and takes this share of a request."""
    return 1 / (1 - decode_share + decode_share / speedup)


def needed_speedup(policy: Policy = DEFAULT_POLICY, decode_share: float | None = None) -> float | None:
    """Return how much faster decoding must get for the gate to say enable; None when no speed-up is enough.

    Both criteria at concurrency 1 count: TPOT down by its threshold, throughput up by its own. Without a known decode
    share a request counts as all decoding, which is the least that is needed.
    """
    for_tpot = 1 / (1 - policy.enable_tpot_drop) if policy.enable_tpot_drop < 1 else None
    share = 1.0 if decode_share is None else decode_share
    rest = 1 / (1 + policy.enable_throughput_gain) - (1 - share)
    if for_tpot is None or rest <= 0 or share <= 0:
        return None
    return max(for_tpot, share / rest)


@frozen(kw_only=True)
class BreakEvenRow:
    """What one k must yield.

    Attributes:
        k: drafted tokens.
        cost: of a round, in plain steps; also the tokens per round that lose nothing.
        needed: tokens per round for the gate's threshold; None when no speed-up is enough.
        rate_even, rate_needed: the same as acceptance rates (accepted ÷ drafted).
        possible: whether k + 1 tokens reach the threshold: yes, no, or None when that depends on the range.
    """

    k: int
    cost: Span
    needed: Span | None
    rate_even: Span
    rate_needed: Span | None
    possible: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "k": self.k,
            "tokens_to_break_even": self.cost.to_json(),
            "tokens_for_threshold": self.needed.to_json() if self.needed else None,
            "acceptance_rate_to_break_even": self.rate_even.to_json(),
            "acceptance_rate_for_threshold": self.rate_needed.to_json() if self.rate_needed else None,
            "possible": self.possible,
        }


@frozen(kw_only=True)
class BreakEven:
    """The answer that needs no acceptance: you need at least so many tokens per round at k = ….

    Attributes:
        rows: one for each k, ascending; empty when the cost is not known.
        speedup_needed: how much faster decoding must get for the gate's threshold, or None when none is enough.
        decode_share: that went in, or None.
        findings: in a sentence.
    """

    rows: tuple[BreakEvenRow, ...] = ()
    speedup_needed: float | None = None
    decode_share: float | None = None
    findings: tuple[Finding, ...] = ()

    def at(self, k: int) -> BreakEvenRow | None:
        """Return the row of one k."""
        return next((row for row in self.rows if row.k == k), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "rows": [row.to_json() for row in self.rows],
            "speedup_needed": self.speedup_needed,
            "decode_share": self.decode_share,
            "findings": [finding.to_json() for finding in self.findings],
        }


def break_even(
    cost: RoundCost, *, policy: Policy = DEFAULT_POLICY, decode_share: float | None = None, shown_k: int | None = None
) -> BreakEven:
    """Return how many tokens a round must yield, for every k the cost covers.

    Args:
        cost: of the rounds.
        policy: the gate's thresholds.
        decode_share: share of a request's time that is decoding, from a baseline.
        shown_k: the k whose row becomes a sentence; the largest one where not given.
    """
    needed = needed_speedup(policy, decode_share)
    rows = []
    for k in cost.covered():
        span = cost.relative(k)
        if span is None:
            continue
        tokens = None if needed is None else span.scaled(needed)
        rows.append(
            BreakEvenRow(
                k=k,
                cost=span,
                needed=tokens,
                rate_even=_as_rate(span, k),
                rate_needed=None if tokens is None else _as_rate(tokens, k),
                possible=_possible(tokens, k),
            )
        )
    return BreakEven(
        rows=tuple(rows),
        speedup_needed=needed,
        decode_share=decode_share,
        findings=_break_even_findings(rows, shown_k),
    )


def _as_rate(tokens: Span, k: int) -> Span:
    return Span(max(tokens.low - 1, 0.0) / k, max(tokens.high - 1, 0.0) / k)


def _possible(tokens: Span | None, k: int) -> bool | None:
    if tokens is None or tokens.low > k + 1:
        return False
    return True if tokens.high <= k + 1 else None


def _break_even_findings(rows: list[BreakEvenRow], shown_k: int | None) -> tuple[Finding, ...]:
    if not rows:
        return ()
    row = next((each for each in rows if each.k == shown_k), rows[-1])
    if all(each.possible is False for each in rows):
        last = rows[-1]
        need = None if last.needed is None else last.needed.low
        return (Finding.of("JSD437", k=last.k, need=need, most=last.k + 1),)
    if row.needed is None:
        return ()
    return (
        Finding.of(
            "JSD430", k=row.k, cost_low=row.cost.low, cost_high=row.cost.high, even_low=row.cost.low,
            even_high=row.cost.high, need_low=row.needed.low, need_high=row.needed.high, most=row.k + 1,
        ),
    )  # fmt: skip


@frozen(kw_only=True)
class Prediction:
    """What speculation would do, as ranges.

    Attributes:
        k: drafted tokens.
        batch: requests decoded together.
        tokens: per round.
        speedup: of decoding, 1 is no change.
        tpot_change: TPOT on ÷ off − 1.
        throughput_gain: throughput on ÷ off − 1; None without a decode share.
        sign: `+` faster, `-` slower, `?` the range holds both.
        acceptance: what it rests on.
        basis: of the cost.
        findings: in a sentence.
    """

    k: int
    batch: int
    tokens: Span
    speedup: Span
    tpot_change: Span
    throughput_gain: Span | None
    sign: Literal["+", "-", "?"]
    acceptance: AcceptanceCurve
    basis: tuple[str, ...]
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "k": self.k,
            "batch": self.batch,
            "tokens_per_round": self.tokens.to_json(),
            "speedup": self.speedup.to_json(),
            "tpot_change": self.tpot_change.to_json(),
            "throughput_gain": self.throughput_gain.to_json() if self.throughput_gain else None,
            "sign": self.sign,
            "acceptance": self.acceptance.to_json(),
            "basis": list(self.basis),
            "findings": [finding.to_json() for finding in self.findings],
        }


def predict(
    cost: RoundCost, acceptance: AcceptanceCurve | None, k: int, *, decode_share: float | None = None
) -> Prediction | None:
    """Return the predicted speed-up at one k, or None when cost or acceptance are not known."""
    relative = cost.relative(k)
    tokens = acceptance.tokens(k) if acceptance is not None else None
    if relative is None or tokens is None or acceptance is None or k < 1:
        return None
    speedup = Span(tokens.low / relative.high, tokens.high / relative.low)
    gain = None
    if decode_share is not None:
        gain = Span.over(throughput_ratio(end, decode_share) - 1 for end in speedup.ends())
    findings = [
        Finding.of(
            "JSD436", k=k, kind=acceptance.kind, label=acceptance.label or acceptance.source, tokens_low=tokens.low,
            tokens_high=tokens.high, low=speedup.low, high=speedup.high,
        )
    ]  # fmt: skip
    if acceptance.k is not None and k > acceptance.k:
        findings.append(Finding.of("JSD445", known=acceptance.k, k=k))
    return Prediction(
        k=k,
        batch=cost.batch,
        tokens=tokens,
        speedup=speedup,
        tpot_change=Span(1 / speedup.high - 1, 1 / speedup.low - 1),
        throughput_gain=gain,
        sign="+" if speedup.low > 1 else "-" if speedup.high < 1 else "?",
        acceptance=acceptance,
        basis=cost.basis,
        findings=tuple(findings),
    )
