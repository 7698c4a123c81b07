# SPDX-License-Identifier: Apache-2.0
"""The cost of a round from bytes moved, products and overheads, or from the user's own measurements.

A step reads every weight once (and the keys and values of what is in context); a round is one step of the target over
k + 1 positions, k passes of the drafter, and what is paid once. Every number that is not known exactly is a range; the
corners of all ranges are the scenarios of the answer.
"""

from __future__ import annotations

from itertools import product

import attrs

from jetson_specdec.estimate.speed_calibration import Calibration, rounds_between
from jetson_specdec.estimate.speed_constants import Board, SpeedConstants, constants_for, fixed_share
from jetson_specdec.estimate.speed_cost import Basis, CostTerm, RoundCost, Scenario
from jetson_specdec.estimate.speed_reads import PassReads, draft_reads, target_reads
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.models.core import DraftPair, Head, TargetRecord
from jetson_specdec.models.profile import ModelProfile, profile_of_drafter
from jetson_specdec.values import frozen

__all__ = ["drafter_passes", "round_cost"]

_ONE_PASS = ("dflash", "dspark", "medusa")
_NO_PASS = ("ngram", "ngram_gpu", "suffix")
_DEFAULT_CONTEXT = Span(0.0, 2048.0)
"""Tokens in context where the caller does not say: none to a prompt of 2048, as `jetson-llm-benchmark` sends."""
_MOST_OVERHEAD = 0.5
"""Of a measured step at most this share counts as overhead: of very small models the range would exceed the step."""
_IMPLAUSIBLE = 1.05
_NOISE = 0.03
"""Of a measured round: speeds of the same vLLM 0.32 server, run three times on two CPU cores, spread by 3 to 7 %."""
_SPREAD_WITHOUT_COUNT = 0.4
"""Where the number of experts is not known, how far the middle lies between no new experts and all of them new. Fitted:
steps of Qwen3-30B-A3B with 8 tokens took 2.8 to 3.0 times those with 1 on Thor and AGX Orin (TensorRT Edge-LLM 0.9.0);
this gives 2.5 to 2.9."""


def drafter_passes(method: str, k: int, *, parallel: bool = False) -> int:
    """Return how often the drafter runs in a round: once for parallel drafting, never for n-grams, else k times."""
    if k == 0 or method in _NO_PASS:
        return 0
    return 1 if parallel or method in _ONE_PASS else k


@frozen(kw_only=True)
class _Corner:
    """One choice of every uncertain number: rates in bytes and products a second, times in seconds."""

    efficiency: float
    step_s: float
    draft_s: float
    round_s: float
    products: float
    overlap: bool
    spread: float
    target_bytes: float
    draft_bytes: float
    draft_kv: float
    context: float


@frozen(kw_only=True)
class _Setup:
    """What is known exactly."""

    target: PassReads
    target_kv: int
    draft: PassReads | None
    draft_kv: Span
    peak: float | None
    batch: int
    passes: tuple[int, ...]
    positions: tuple[int, ...]
    plain: float | None
    plain_batch: int
    plain_measured: bool

    def weights(self, tokens: int, corner: _Corner) -> float:
        span = self.target.weights(tokens)
        share = corner.spread if self.target.moe else corner.target_bytes
        return span.low + share * (span.high - span.low)

    def target_pass(self, batch: int, each: int, corner: _Corner, rate: float) -> float:
        read = self.weights(batch * each, corner) + self.target_kv * corner.context * batch
        products = 2 * self.target.parameters.mid * batch * each
        return _combine(read / rate, products / corner.products, corner.overlap) + corner.step_s

    def draft_pass(self, corner: _Corner, rate: float) -> float:
        if self.draft is None:
            return 0.0
        fixed = self.draft.fixed_bytes
        read = fixed.low + corner.draft_bytes * (fixed.high - fixed.low)
        read += corner.draft_kv * corner.context * self.batch
        products = 2 * self.draft.parameters.mid * self.batch
        return _combine(read / rate, products / corner.products, corner.overlap) + corner.draft_s


def _combine(memory: float, compute: float, overlap: bool) -> float:
    return max(memory, compute) if overlap else memory + compute


def _settle(setup: _Setup, corner: _Corner) -> tuple[_Corner, float]:
    """Return the corner and the bytes per second it means: from the board, or so that a measured step comes out."""
    if setup.plain is None:
        return corner, (setup.peak or 0.0) * corner.efficiency
    corner = attrs.evolve(corner, step_s=min(corner.step_s, setup.plain * _MOST_OVERHEAD))
    batch = setup.plain_batch
    read = setup.weights(batch, corner) + setup.target_kv * corner.context * batch
    left = setup.plain - corner.step_s
    if not corner.overlap:
        left -= min(2 * setup.target.parameters.mid * batch / corner.products, left * _MOST_OVERHEAD)
    return corner, read / left


def _scenario(setup: _Setup, corner: _Corner) -> tuple[Scenario, float, float]:
    corner, rate = _settle(setup, corner)
    plain = setup.target_pass(setup.batch, 1, corner, rate)
    if setup.plain is not None and setup.plain_batch == setup.batch:
        plain = setup.plain
    each = setup.draft_pass(corner, rate)
    rounds = tuple(
        max(setup.target_pass(setup.batch, positions, corner, rate), plain) + passes * each + corner.round_s
        for passes, positions in zip(setup.passes, setup.positions, strict=True)
    )
    return Scenario(plain, rounds), each, rate


def _corners(constants: SpeedConstants, compute: Span, setup: _Setup, context: Span) -> tuple[_Corner, list[_Corner]]:
    """Return the middle and all corners; ranges of one value, and those that do not matter, add none."""
    draft_open = setup.draft is not None and setup.draft.fixed_bytes.low != setup.draft.fixed_bytes.high
    target_open = not setup.target.moe and setup.target.fixed_bytes.low != setup.target.fixed_bytes.high
    axes = {
        "efficiency": constants.bandwidth_efficiency.ends() if setup.plain is None else (1.0,),
        "step_s": constants.step_overhead_s.ends(),
        "draft_s": constants.draft_pass_overhead_s.ends() if any(setup.passes) else (0.0,),
        "round_s": constants.round_overhead_s.ends(),
        "products": tuple(rate * 1e12 for rate in compute.ends()),
        "spread": (0.0, 1.0) if setup.target.moe else (0.0,),
        "target_bytes": (0.0, 1.0) if target_open else (0.0,),
        "draft_bytes": (0.0, 1.0) if draft_open else (0.0,),
        "draft_kv": setup.draft_kv.ends() if context.high > 0 else (0.0,),
        "context": context.ends(),
    }
    # Fast products hide behind the reading, slow ones add to it.
    corners = [
        _Corner(**dict(zip(axes, values, strict=True)), overlap=values[4] == axes["products"][-1])
        for values in product(*axes.values())
    ]
    middle = _Corner(**{name: sum(ends) / len(ends) for name, ends in axes.items()}, overlap=False)
    if setup.target.moe and setup.target.expert_bytes is None:
        middle = attrs.evolve(middle, spread=_SPREAD_WITHOUT_COUNT)
    return middle, corners


def round_cost(
    target: ModelProfile | None,
    draft: ModelProfile | Head | DraftPair | None,
    board: Board,
    k: int,
    *,
    batch: int = 1,
    method: str = "eagle3",
    parallel: bool = False,
    context_tokens: float | None = None,
    kv_dtype: str = "auto",
    record: TargetRecord | None = None,
    calibration: Calibration | None = None,
    constants: SpeedConstants | None = None,
    positions: int | None = None,
) -> RoundCost:
    """Return the cost of rounds with 1 … k drafted tokens, in seconds and in plain steps.

    Args:
        target: what is served.
        draft: its drafter; None for methods that draft without a model.
        board: bandwidth and family.
        k: largest number of drafted tokens.
        batch: requests decoded together.
        method: vLLM's method name; decides how often the drafter runs.
        parallel: the drafter drafts all tokens in one pass.
        context_tokens: tokens in context of a request; 0 to 2048 where not given.
        kv_dtype: value of `--kv-cache-dtype`.
        record: the target's catalogue entry.
        calibration: own measurements; they replace what is fitted.
        constants: ranges for another engine; those of vLLM on the board's family where not given.
        positions: verified in a round whatever k (a tree); k + 1 where not given.
    """
    if k < 1:
        return RoundCost(batch=batch, missing=("k",))
    moe = bool((target is not None and target.moe is not None) or (record is not None and record.moe))
    measured = _from_round(calibration, batch, k, moe)
    reads = None if target is None else target_reads(target, record, kv_dtype)
    drafter = profile_of_drafter(draft)
    drafts = None if drafter is None else draft_reads(drafter, kv_dtype)
    if measured is not None:
        ratio, full = _ratios(reads, drafts)
        return attrs.evolve(measured, draft_ratio=ratio, draft_ratio_bf16=full)
    constants = constants or constants_for(board.family)
    needs_draft = drafter_passes(method, k, parallel=parallel) > 0
    plain_batch = calibration.nearest(batch) if calibration is not None else None
    peak = None if board.bandwidth_gb_s is None else board.bandwidth_gb_s * 1e9
    context = _DEFAULT_CONTEXT if context_tokens is None else Span.exact(float(context_tokens))
    kept = 0 if reads is None or context.high <= 0 else reads.kv_bytes_per_token
    missing = [
        word
        for word, absent in (
            ("target-size", reads is None),
            ("draft-size", needs_draft and drafts is None),
            ("target-kv", kept is None),
            ("bandwidth", peak is None and plain_batch is None),
            ("constants", constants is None),
        )
        if absent
    ]
    compute = None if constants is None or reads is None else constants.compute(reads.precision)
    if missing or reads is None or kept is None or constants is None or compute is None:
        missing = missing or ["constants"]
        finding = Finding.of("JSD434", missing=missing, family=board.family)
        ratio, full = _ratios(reads, drafts)
        return RoundCost(
            batch=batch, missing=tuple(missing), moe=moe, findings=(finding,), draft_ratio=ratio, draft_ratio_bf16=full
        )
    plain = None if calibration is None else calibration.plain_at(batch)
    if plain is None and calibration is not None and plain_batch is not None:
        plain = calibration.plain[plain_batch]
    elif plain is not None:
        plain_batch = batch
    setup = _Setup(
        target=reads,
        target_kv=kept,
        draft=drafts if needs_draft else None,
        draft_kv=_draft_kv(drafts, kept),
        peak=peak,
        batch=batch,
        passes=tuple(drafter_passes(method, each, parallel=parallel) for each in range(1, k + 1)),
        positions=tuple(positions or each + 1 for each in range(1, k + 1)),
        plain=plain,
        plain_batch=plain_batch or batch,
        plain_measured=calibration is not None and batch in calibration.plain,
    )
    return _answer(setup, constants, compute, context, moe)


def _draft_kv(draft: PassReads | None, target_kv: int) -> Span:
    """Return what a token keeps in the drafter: where that is not known, anything up to what it keeps in the target."""
    if draft is None:
        return Span.exact(0.0)
    known = draft.kv_bytes_per_token
    return Span(0.0, float(target_kv)) if known is None else Span.exact(float(known))


def _answer(setup: _Setup, constants: SpeedConstants, compute: Span, context: Span, moe: bool) -> RoundCost:
    middle, corners = _corners(constants, compute, setup, context)
    found = [_scenario(setup, corner) for corner in (middle, *corners)]
    scenarios = tuple(scenario for scenario, _, _ in found)
    findings: list[Finding] = []
    if setup.plain is None:
        findings.append(Finding.of("JSD444"))
    elif setup.peak is not None and min(rate for _, _, rate in found) > setup.peak * _IMPLAUSIBLE:
        fastest = setup.target.weights(setup.plain_batch).low / setup.peak
        findings.append(Finding.of("JSD432", tpot_ms=setup.plain * 1e3, fastest_ms=fastest * 1e3))
    if setup.draft is not None and setup.draft.kv_bytes_per_token is None and context.high > 0:
        findings.append(Finding.of("JSD446", most=setup.target_kv))
    if moe:
        findings.append(Finding.of("JSD435", tokens=setup.batch * setup.positions[-1]))
    ratio, full = _ratios(setup.target, setup.draft)
    if ratio is not None and full is not None and ratio > 1.5 * full:
        findings.append(Finding.of("JSD433", precision=setup.target.precision, ratio=ratio, bf16=full))
    basis: tuple[Basis, ...] = ("bytes",) if setup.plain is None else ("bytes", "baseline")
    return RoundCost(
        batch=setup.batch,
        k_max=len(setup.passes),
        middle=scenarios[0],
        scenarios=scenarios,
        basis=basis,
        terms=_terms(setup, constants, found),
        confidence="low" if setup.plain is None or setup.plain_batch != setup.batch or moe else "medium",
        moe=moe,
        findings=tuple(findings),
        draft_ratio=ratio,
        draft_ratio_bf16=full,
    )


def _terms(
    setup: _Setup, constants: SpeedConstants, found: list[tuple[Scenario, float, float]]
) -> tuple[CostTerm, ...]:
    fitted = ", ".join(constants.sources)
    passes = setup.passes[-1]
    low, high = constants.round_overhead_s.low, constants.round_overhead_s.high
    extra = [scenario.rounds[-1] - scenario.plain - passes * each for scenario, each, _ in found]
    terms = [
        CostTerm(
            name="target_step",
            seconds=Span.over(scenario.plain for scenario, _, _ in found),
            bytes=setup.target.weights(setup.batch),
            source="measured baseline" if setup.plain is not None else f"bytes / bandwidth; {fitted}",
            confidence="high" if setup.plain_measured else "medium" if setup.plain is not None else "low",
        ),
        CostTerm(
            name="verify_extra",
            seconds=Span(max(min(extra) - low, 0.0), max(max(extra) - high, 0.0, min(extra) - low)),
            bytes=None,
            source=f"products of {setup.positions[-1]} positions; {fitted}",
        ),
        CostTerm(name="round_overhead", seconds=constants.round_overhead_s, source=fitted),
    ]
    if setup.draft is not None:
        terms.append(
            CostTerm(
                name="draft_pass",
                seconds=Span.over(each for _, each, _ in found),
                bytes=setup.draft.fixed_bytes,
                source=f"bytes / bandwidth; {fitted}",
            )
        )
    return tuple(terms)


def _ratios(target: PassReads | None, draft: PassReads | None) -> tuple[float | None, float | None]:
    """Return what a drafter pass reads against a target pass, as served and with 16-bit weights."""
    if target is None or draft is None:
        return None, None
    read = draft.fixed_bytes.mid
    full = read / (2 * target.parameters.mid) if target.parameters.mid else None
    return read / target.weights(1).mid, full


def _from_round(calibration: Calibration | None, batch: int, k: int, moe: bool) -> RoundCost | None:
    """Return the cost through two measured points, or None when they were not both measured at this batch size."""
    if calibration is None or batch not in calibration.rounds or batch not in calibration.plain:
        return None
    plain, measured = calibration.plain[batch], calibration.rounds[batch]
    findings = []
    if measured.seconds < plain:
        findings.append(Finding.of("JSD438", round_ms=measured.seconds * 1e3, plain_ms=plain * 1e3, k=measured.k))
    share = fixed_share(moe=moe, batch=batch)
    curves = [Scenario(plain, rounds_between(plain, measured, k, share.mid))]
    for f, noise in product(share.ends(), (-_NOISE, _NOISE)):
        shifted = attrs.evolve(measured, seconds=measured.seconds * (1 + noise))
        curves.append(Scenario(plain, rounds_between(plain, shifted, k, f)))
    return RoundCost(
        batch=batch,
        k_max=k,
        middle=curves[0],
        scenarios=tuple(curves),
        basis=("baseline", "round"),
        terms=(
            CostTerm(name="target_step", seconds=Span.exact(plain), source="measured baseline", confidence="high"),
            CostTerm(
                name="draft_pass",
                seconds=Span.over((measured.seconds - plain) / (f + measured.k) for f in share.ends()),
                source=f"measured round with k = {measured.k}",
                confidence="medium",
            ),
        ),
        confidence="medium",
        moe=moe,
        findings=tuple(findings),
    )
