# SPDX-License-Identifier: Apache-2.0
"""What a plan can say about speed before anything ran: break-even for every k, a range where acceptance is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve, published_curves
from jetson_specdec.estimate.speed_calibration import Calibration
from jetson_specdec.estimate.speed_constants import Board
from jetson_specdec.estimate.speed_cost import RoundCost
from jetson_specdec.estimate.speed_gain import BreakEven, Prediction, break_even, predict
from jetson_specdec.estimate.speed_model import round_cost
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.models.core import DraftPair, Head, TargetRecord
from jetson_specdec.models.profile import ModelProfile
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["SpeedOutlook", "outlook"]

_BEYOND = 2
"""The table goes this far past the start value."""


@frozen(kw_only=True)
class SpeedOutlook:
    """The outlook on speed of one proposal.

    Attributes:
        k: the k that is proposed.
        cost: of rounds with 1 to k + 2 drafted tokens.
        break_even: what they must yield.
        predictions: at k, one for each known acceptance; empty when none is published.
        speedup: range over all predictions, or None.
        findings: everything worth a sentence, once.
    """

    k: int
    cost: RoundCost
    break_even: BreakEven
    predictions: tuple[Prediction, ...] = ()
    speedup: Span | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is a break-even table."""
        return bool(self.break_even.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "k": self.k,
            "cost": self.cost.to_json(),
            "break_even": self.break_even.to_json(),
            "predictions": [each.to_json() for each in self.predictions],
            "speedup": self.speedup.to_json() if self.speedup else None,
            "findings": [finding.to_json() for finding in self.findings],
        }


def outlook(
    target: ModelProfile | None,
    draft: ModelProfile | Head | DraftPair | None,
    board: Board,
    *,
    k: int,
    method: str = "eagle3",
    parallel: bool = False,
    record: TargetRecord | None = None,
    acceptance: Iterable[AcceptanceCurve] | None = None,
    calibration: Calibration | None = None,
    decode_share: float | None = None,
    concurrency: int = 1,
    context_tokens: float | None = None,
    kv_dtype: str = "auto",
    policy: Policy = DEFAULT_POLICY,
) -> SpeedOutlook:
    """Return what can be said about the speed of a proposal.

    Args:
        target: what is served; None where it is not known.
        draft: the proposed drafter.
        board: bandwidth and family.
        k: proposed number of drafted tokens.
        method: vLLM's method name.
        parallel: the drafter drafts all tokens in one pass.
        record: the target's catalogue entry.
        acceptance: known acceptance; what the catalogue publishes for the head where not given.
        calibration: from the user's baseline.
        decode_share: from the user's baseline.
        concurrency: requests at once.
        context_tokens: tokens in context of a request.
        kv_dtype: value of `--kv-cache-dtype`.
        policy: the gate's thresholds.
    """
    cost = round_cost(
        target, draft, board, k + _BEYOND, batch=concurrency, method=method, parallel=parallel,
        context_tokens=context_tokens, kv_dtype=kv_dtype, record=record, calibration=calibration,
    )  # fmt: skip
    table = break_even(cost, policy=policy, decode_share=decode_share, shown_k=k)
    curves = list(acceptance) if acceptance is not None else _published(draft, k)
    predictions = tuple(
        found
        for curve in curves
        if (found := predict(cost, curve, k, decode_share=decode_share)) is not None
    )  # fmt: skip
    speedup = None
    if predictions:
        speedup = Span(min(each.speedup.low for each in predictions), max(each.speedup.high for each in predictions))
    findings = [*cost.findings, *table.findings]
    findings += [finding for each in predictions for finding in each.findings]
    if cost.state == "known" and not curves:
        findings.append(Finding.of("JSD431", draft=_name(draft)))
    return SpeedOutlook(
        k=k, cost=cost, break_even=table, predictions=predictions, speedup=speedup, findings=tuple(findings)
    )  # fmt: skip


def _published(draft: ModelProfile | Head | DraftPair | None, k: int) -> list[AcceptanceCurve]:
    """Return the published curve of each data set; of several lengths of one set that with the nearest k."""
    if not isinstance(draft, Head):
        return []
    nearest: dict[str | None, AcceptanceCurve] = {}
    for curve in published_curves(draft.acceptance):
        known = nearest.get(curve.label)
        if known is None or abs((curve.k or 0) - k) < abs((known.k or 0) - k):
            nearest[curve.label] = curve
    return list(nearest.values())


def _name(draft: ModelProfile | Head | DraftPair | None) -> str | None:
    return draft.draft if isinstance(draft, DraftPair) else draft.id if draft is not None else None
