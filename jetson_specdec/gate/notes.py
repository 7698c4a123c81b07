# SPDX-License-Identifier: Apache-2.0
"""What a careful reader would add to the figures: what is missing, what misleads, why concurrency 8 lost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from jetson_specdec.findings import Finding
from jetson_specdec.gate.evidence import Pair, Quantity
from jetson_specdec.gate.identity import is_moe, k_of, method_of, precision_of
from jetson_specdec.gate.rules import at_least, higher_losses, judged
from jetson_specdec.gate.verdict import Lossless
from jetson_specdec.measurements.core import Acceptance, BenchReport
from jetson_specdec.policy import Policy
from jetson_specdec.values import frozen

__all__ = ["Context", "context_of", "eight_lost", "notes", "preemption_cause"]

_OURS: Final = ("eagle3", "draft_model")
_NAMES: Final = {"throughput_c1": "JSD650", "tpot_c1": "JSD651", "throughput_c8": "JSD652"}


@frozen(kw_only=True)
class Context:
    """What is known about the arm that speculates.

    Attributes:
        model: the target.
        method, k: of the speculation.
        moe: whether the target is a mixture of experts, where the caller says so.
        max_num_seqs: capacity of the servers.
        has_schedule: it drafts less at higher batch sizes.
        acceptance: at concurrency 1.
    """

    model: str | None = None
    method: str | None = None
    k: int | None = None
    moe: bool | None = None
    max_num_seqs: int | None = None
    has_schedule: bool = False
    acceptance: Acceptance | None = None

    @property
    def eight_applies(self) -> bool:
        """Whether eight requests at once can run at all."""
        return self.max_num_seqs is None or self.max_num_seqs >= 8


def context_of(pairs: Sequence[Pair]) -> Context:
    """Collect the context from reports."""
    after = pairs[0][1]
    config = after.conditions.speculative_config
    capacities = [report.conditions.max_num_seqs for pair in pairs for report in pair]
    acceptance = after.acceptance_at(1)
    k = k_of(config)
    if k is None and acceptance is not None and acceptance.per_position:
        k = len(acceptance.per_position)
    return Context(
        model=next((report.model for pair in pairs for report in pair if report.model is not None), None),
        method=method_of(config),
        k=k,
        moe=None,
        max_num_seqs=min((capacity for capacity in capacities if capacity is not None), default=None),
        has_schedule=bool((config or {}).get("num_speculative_tokens_per_batch_size")),
        acceptance=acceptance,
    )


def notes(
    quantities: Mapping[str, Quantity],
    context: Context,
    policy: Policy,
    pairs: Sequence[Pair] = (),
    answers: Lossless | None = None,
) -> Iterator[Finding]:
    """Return everything worth saying that is not a reason for or against comparing the arms."""
    yield from _missing(quantities, context)
    yield from _noise(quantities, policy)
    yield from _target(quantities, context, policy)
    if context.acceptance is not None:
        yield from _acceptance(context.acceptance, policy)
    if pairs:
        yield from _reports(pairs)
    ttft = quantities.get("ttft_c1")
    if ttft is not None and ttft.ratio is not None and ttft.ratio > 1 + policy.ttft_guard_rise:
        yield Finding.of("JSD663", before=ttft.before, after=ttft.after, change=ttft.ratio - 1)
    if answers is not None:
        agreement = answers.token_agreement
        if agreement is None:
            agreement = answers.identical / answers.compared
        code = "JSD665" if agreement < policy.lossless_agreement else "JSD664"
        yield Finding.of(code, compared=answers.compared, identical=answers.identical, agreement=agreement)


def _missing(quantities: Mapping[str, Quantity], context: Context) -> Iterator[Finding]:
    for name, code in _NAMES.items():
        quantity = quantities.get(name)
        if name == "throughput_c8" and not context.eight_applies:
            yield Finding.of("JSD653", max_num_seqs=context.max_num_seqs)
        elif quantity is None or quantity.ratio is None:
            arms = ["before", "after"]
            if quantity is not None:
                arms = [
                    arm for arm, value in zip(arms, (quantity.before, quantity.after), strict=True) if value is None
                ]
            yield Finding.of(code, arms=arms)
        elif quantity.missing_pairs:
            yield Finding.of("JSD636", name=name, missing=quantity.missing_pairs, used=quantity.pairs)


def _noise(quantities: Mapping[str, Quantity], policy: Policy) -> Iterator[Finding]:
    known = {key: quantity for key, quantity in quantities.items() if quantity.ratio is not None and key in _NAMES}
    if not known:
        return
    blind = [key for key, quantity in known.items() if quantity.bounds is None]
    if blind:
        yield Finding.of("JSD631" if judged(known) else "JSD630", names=blind)
    if judged(known) and all(quantity.from_pairs is None for quantity in known.values()):
        yield Finding.of("JSD632", pairs=policy.min_pairs)
    for key, quantity in known.items():
        spread = quantity.from_pairs.spread if quantity.from_pairs is not None else None
        if spread is not None and math.expm1(spread) > policy.high_variance:
            yield Finding.of("JSD635", name=key, spread=math.expm1(spread), pairs=quantity.pairs)


def _target(quantities: Mapping[str, Quantity], context: Context, policy: Policy) -> Iterator[Finding]:
    gain = quantities.get("throughput_c1")
    short = gain is not None and gain.ratio is not None and gain.ratio < 1 + policy.enable_throughput_gain
    moe = context.moe if context.moe is not None else is_moe(context.model)
    if moe:
        yield Finding.of("JSD655", model=context.model)
    elif moe is None and context.model is None and short:
        yield Finding.of("JSD656")
    if context.method is not None and context.method not in _OURS:
        yield Finding.of("JSD657", method=context.method)
    if short and context.k is not None and context.k > 1:
        yield Finding.of("JSD662", k=context.k)
    precision = precision_of(context.model)
    if precision is not None:
        yield Finding.of("JSD654", model=context.model, precision=precision)


def _acceptance(acceptance: Acceptance, policy: Policy) -> Iterator[Finding]:
    if acceptance.rate == 0:
        yield Finding.of("JSD681", drafted=acceptance.drafted_tokens)
    elif acceptance.rate is not None and acceptance.rate < policy.low_acceptance:
        yield Finding.of("JSD660", rate=acceptance.rate, length=acceptance.mean_length)
    if acceptance.state == "active" and acceptance.drafts is not None and acceptance.drafts < policy.min_drafts:
        yield Finding.of("JSD682", drafts=round(acceptance.drafts), needed=policy.min_drafts)


def _reports(pairs: Sequence[Pair]) -> Iterator[Finding]:
    reports = [report for pair in pairs for report in pair]
    if any(report.config.dataset == "random" for report in reports):
        yield Finding.of("JSD659")
    modes = {report.conditions.power_mode for report in reports if report.conditions.power_mode_is_max is False}
    if modes:
        yield Finding.of("JSD658", modes=sorted(mode for mode in modes if mode is not None))
    others = sorted({name for report in reports for name in report.conditions.gpu_processes or ()})
    if others:
        yield Finding.of("JSD669", names=others)
    for before, after in pairs:
        yield from _pieces(before, after)


def _pieces(before: BenchReport, after: BenchReport) -> Iterator[Finding]:
    """Warn where the gap between pieces would be taken for the time per token."""
    one, two = before.run_at(1), after.run_at(1)
    figures = [None if run is None else (run.itl_ms_p50, run.tpot_ms_p50) for run in (one, two)]
    (itl_before, tpot_before), (itl_after, tpot_after) = (pair or (None, None) for pair in figures)
    if itl_before is None or itl_after is None or tpot_before is None or tpot_after is None:
        return
    if itl_after > itl_before and tpot_after < tpot_before:
        yield Finding.of("JSD661", before=itl_before, after=itl_after, per_piece=itl_after / tpot_after)


def eight_lost(quantities: Mapping[str, Quantity], policy: Policy) -> bool:
    """Say whether concurrency 8 lost, beyond the margin where noise can be judged."""
    margin = policy.equivalence_margin if judged(quantities) else 0.0
    return at_least(quantities.get("throughput_c8"), 1 - margin) == "failed"


def preemption_cause(pairs: Sequence[Pair], concurrency: int) -> Finding:
    """Say whether a loss came from less KV cache (requests were thrown out) or from speculation itself."""
    if not pairs:
        return Finding.of("JSD645", concurrency=concurrency)
    without = with_speculation = 0.0
    for before, after in pairs:
        counts = [
            None if (run := report.run_at(concurrency)) is None else run.preemptions for report in (before, after)
        ]
        if counts[0] is None or counts[1] is None:
            return Finding.of("JSD645", concurrency=concurrency)
        without += counts[0]
        with_speculation += counts[1]
    code = "JSD643" if with_speculation > without else "JSD644"
    return Finding.of(code, concurrency=concurrency, before=without, after=with_speculation)


def losing_concurrencies(quantities: Mapping[str, Quantity], policy: Policy) -> tuple[int, ...]:
    """Return the concurrencies above 1 that lost, 8 included."""
    margin = policy.equivalence_margin if judged(quantities) else 0.0
    lost = list(higher_losses(quantities, margin=margin))
    if eight_lost(quantities, policy):
        lost.append(8)
    return tuple(sorted(lost))
