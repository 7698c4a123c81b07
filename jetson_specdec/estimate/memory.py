# SPDX-License-Identifier: Apache-2.0
"""Does it fit, and what does speculation cost in context: the memory ledger of both arms.

The arithmetic is vLLM's (0.32 `v1/worker/gpu_worker.py`): KV cache = ⌈total · utilisation⌉ − weights (target and
drafter) − activations − CUDA graphs. The drafter is inside the budget, so lowering the utilisation makes no room for
it. Nothing here reads a board or a file.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from jetson_specdec.estimate.kv import buckets_of, plan_kv
from jetson_specdec.estimate.ledger import ArmLedger, ArmState, LineConfidence, MemoryLedger, MemoryLine
from jetson_specdec.estimate.overhead import (
    activation_allowance,
    default_batched_tokens,
    default_num_seqs,
    graph_allowance,
    graphs_in_budget,
)
from jetson_specdec.estimate.start_check import counted_as_free, parse_version, passes_start_check
from jetson_specdec.findings import Finding
from jetson_specdec.models.core import DraftPair, Head
from jetson_specdec.models.profile import ModelProfile, profile_of_drafter
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["ArmLedger", "MemoryLedger", "MemoryLine", "build_ledger"]

_METHODS_WITHOUT_DRAFT = ("ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator")
_BATCHES_IN_FLIGHT = 2
_ORDER: tuple[LineConfidence, ...] = ("high", "medium", "low", "unknown")


@frozen(kw_only=True)
class _Case:
    """Everything an arm is computed from."""

    total: int | None
    available: int | None
    mem_free: int | None
    version: Version | None
    target: ModelProfile | None
    draft: ModelProfile | None
    speculating: bool
    k: int
    method: str | None
    kv_dtype: str | None
    max_model_len: int | None
    num_seqs: int | None
    batched_tokens: int | None
    kv_cache_memory_bytes: int | None
    eager: bool
    block_size: int


def build_ledger(
    *,
    device_total_bytes: int | None,
    available_bytes: int | None,
    utilization: float | None,
    release_version: str | None,
    target: ModelProfile | None,
    draft: ModelProfile | Head | DraftPair | None = None,
    k: int | None = None,
    kv_dtype: str | None = "auto",
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    kv_cache_memory_bytes: int | None = None,
    utilization_on: float | None = None,
    method: str | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool | None = False,
    block_size: int = 16,
    mem_free_bytes: int | None = None,
) -> MemoryLedger:
    """Return the ledger of both arms; unknown inputs give unknown lines, never zeros.

    Args:
        device_total_bytes: MemTotal of the board (CUDA's total is the same on a Jetson).
        available_bytes: MemAvailable at the start; None when not at hand. What a server that still runs holds is
            missing from it.
        utilization: `--gpu-memory-utilization` of the recipe.
        release_version: of vLLM; decides what counts as free and whether graphs are in the budget.
        target: what is served.
        draft: what drafts: a profile, or a catalogue entry.
        k: `num_speculative_tokens`.
        kv_dtype: `--kv-cache-dtype`; the drafter inherits it.
        max_model_len: `--max-model-len`; None is the target's own.
        max_num_seqs: `--max-num-seqs`; None is vLLM's default for this much memory.
        kv_cache_memory_bytes: `--kv-cache-memory-bytes`, which fixes the KV cache.
        utilization_on: of the speculative arm; None is the same.
        method: vLLM's method name; methods without a drafter have neither weights nor KV of their own.
        max_num_batched_tokens: `--max-num-batched-tokens`; None is vLLM's default for this much memory.
        enforce_eager: no CUDA graphs.
        block_size: `--block-size`.
        mem_free_bytes: MemFree, which releases before 0.12 come close to.
    """
    drafter = profile_of_drafter(draft)
    if method in _METHODS_WITHOUT_DRAFT:
        drafter = None
    case = _Case(
        total=_usable(device_total_bytes),
        available=available_bytes,
        mem_free=mem_free_bytes,
        version=parse_version(release_version),
        target=target,
        draft=drafter,
        speculating=draft is not None or k is not None,
        k=max(k or 0, 0),
        method=method,
        kv_dtype=kv_dtype,
        max_model_len=_served_len(max_model_len, target),
        num_seqs=_usable(max_num_seqs or default_num_seqs(device_total_bytes)),
        batched_tokens=_usable(max_num_batched_tokens or default_batched_tokens(device_total_bytes)),
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        eager=bool(enforce_eager),
        block_size=block_size,
    )
    utilization, utilization_on = _share(utilization), _share(utilization_on)
    off = _arm(case, "off", utilization)
    if not case.speculating:
        return MemoryLedger(off=off, findings=tuple(_findings(case, off, None, None, release_version)))
    same = _arm(case, "on", utilization)
    lower = utilization_on is not None and utilization_on != utilization
    on = _arm(case, "on", utilization_on) if lower else same
    return MemoryLedger(
        off=off,
        on=on,
        tokens_lost=_minus(off.kv_tokens, on.kv_tokens),
        tokens_lost_to_draft=_minus(off.kv_tokens, same.kv_tokens),
        tokens_lost_to_step=_minus(same.kv_tokens, on.kv_tokens),
        findings=tuple(_findings(case, off, on, same, release_version)),
    )


def _usable(value: int | None) -> int | None:
    """Return a count or size above 0; what cannot be one is unknown."""
    return value if value is not None and value > 0 else None


def _served_len(max_model_len: int | None, target: ModelProfile | None) -> int | None:
    """Return the length to compute for: the model's own where none or `auto` (−1) is asked for."""
    if max_model_len in (None, 0, -1):
        return _usable(target.max_position_embeddings) if target else None
    return _usable(max_model_len)


def _share(utilization: float | None) -> float | None:
    """Return a utilisation that vLLM takes, 0 < x ≤ 1; anything else, not-a-number too, is unknown."""
    return utilization if utilization is not None and 0 < utilization <= 1 else None


def _minus(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first - second


def _arm(case: _Case, name: str, utilization: float | None) -> ArmLedger:
    on = name == "on"
    budget = None if case.total is None or utilization is None else math.ceil(case.total * utilization)
    lines = [_weights_line("target_weights", case.target)]
    if on and case.draft is not None:
        lines.append(_weights_line("draft_weights", case.draft))
    lines += [_activation_line(case), _graph_line(case, on)]
    taken = [line for line in lines if line.inside == "budget"]
    kv_line, kv_available = _kv_line(case, budget, taken)
    lines.append(kv_line)
    lines += _inside_kv(case, on)
    missing = [line.name for line in lines if line.bytes is None and line.inside != "device"]
    if budget is None and case.kv_cache_memory_bytes is None:
        missing.append("memory_total" if case.total is None else "utilization")
    free, counts = counted_as_free(case.version, case.available, case.mem_free)
    starts = passes_start_check(case.version, budget, available=case.available, mem_free=case.mem_free)
    values = _capacity(case, on, kv_available)
    if case.max_model_len is None:
        missing.append("max_model_len")
    elif values is None and "kv_cache" not in missing:
        missing.append("kv_layers")
    capacity = values or {}
    arm = ArmLedger(
        name="on" if on else "off",
        utilization=utilization,
        lines=tuple(lines),
        budget_bytes=budget,
        free_bytes=free,
        free_counts=counts,
        starts=starts,
        kv_available_bytes=kv_available,
        kv_bytes_per_token=_per_token(case, on),
        max_model_len=case.max_model_len,
        confidence=_weakest([line for line in lines if line.inside == "budget"]),
        missing=tuple(dict.fromkeys(missing)),
        **capacity,
    )
    import attrs

    return attrs.evolve(arm, state=_state(arm))


def _state(arm: ArmLedger) -> ArmState:
    if arm.starts is False:
        return "start_check_fails"
    if arm.kv_available_bytes is not None and arm.kv_available_bytes <= 0:
        return "kv_cache_none"
    if arm.kv_fits is None:
        return "unknown"
    return "fits" if arm.kv_fits else "kv_cache_too_small"


def _weakest(lines: list[MemoryLine]) -> LineConfidence:
    return max((line.confidence for line in lines), key=_ORDER.index, default="unknown")


def _weights_line(name: str, profile: ModelProfile | None) -> MemoryLine:
    if profile is None or profile.weight_bytes is None:
        basis = "no profile" if profile is None else "size unknown"
        return MemoryLine(name=name, bytes=None, basis=basis, source="none", confidence="unknown")
    source = profile.bytes_source or "formula"
    return MemoryLine(
        name=name,
        bytes=profile.weight_bytes,
        basis={"headers": "safetensors headers", "formula": "parameter formula", "catalogue": "catalogue"}[source],
        source=profile.id or "config.json",
        confidence="high" if source == "headers" and not profile.incomplete else "medium",
    )


def _activation_line(case: _Case) -> MemoryLine:
    size = None
    if case.target is not None:
        size = activation_allowance(case.target, batched_tokens=case.batched_tokens, num_seqs=case.num_seqs)
    return MemoryLine(
        name="activations",
        bytes=size,
        basis=f"allowance: {case.batched_tokens} batched tokens, {case.num_seqs} sequences",
        source="fitted to two public logs of other GPUs",
        confidence="low" if size is not None else "unknown",
    )


def _graph_line(case: _Case, on: bool) -> MemoryLine:
    source = "fitted to one public log of another GPU"
    if case.eager:
        return MemoryLine(name="cuda_graphs", bytes=0, basis="--enforce-eager", source="recipe", confidence="high")
    size = None
    if case.target is not None:
        k, draft = (case.k, case.draft) if on else (0, None)
        size = graph_allowance(case.target, draft, num_seqs=case.num_seqs, k=k)
    inside = graphs_in_budget(case.version) is not False
    return MemoryLine(
        name="cuda_graphs",
        bytes=size,
        inside="budget" if inside else "device",
        basis="allowance by number of graphs and layers",
        source=source,
        confidence="low" if size is not None else "unknown",
    )  # fmt: skip


def _kv_line(case: _Case, budget: int | None, taken: list[MemoryLine]) -> tuple[MemoryLine, int | None]:
    if case.kv_cache_memory_bytes is not None:
        fixed = case.kv_cache_memory_bytes
        return (
            MemoryLine(
                name="kv_cache", bytes=fixed, inside="device", basis="--kv-cache-memory-bytes", source="recipe",
                confidence="high",
            ),
            fixed,
        )  # fmt: skip
    left = None
    if budget is not None and all(line.bytes is not None for line in taken):
        left = budget - sum(line.bytes or 0 for line in taken)
    line = MemoryLine(
        name="kv_cache",
        bytes=None if left is None else max(left, 0),
        basis="what the budget leaves",
        source="vLLM 0.32 v1/worker/gpu_worker.py",
        confidence="unknown" if left is None else _weakest(taken),
    )
    return line, left


def _element_bytes(case: _Case) -> int | None:
    return case.target.kv_element_bytes(case.kv_dtype) if case.target is not None else None


def _per_token(case: _Case, on: bool) -> int | None:
    if case.target is None:
        return None
    size = _element_bytes(case)
    first = case.target.kv_bytes_per_token(case.kv_dtype, case.max_model_len)
    if first is None or size is None or not on or case.draft is None:
        return first
    named = {1: "fp8", 2: "bf16", 4: "fp32"}[size]
    second = case.draft.kv_bytes_per_token(named, case.max_model_len)
    return None if second is None else first + second


def _inside_kv(case: _Case, on: bool) -> list[MemoryLine]:
    """Parts of the KV cache worth naming: recurrent states of all sequences, slots for drafted tokens."""
    lines: list[MemoryLine] = []
    target, source = case.target, "vLLM 0.32 v1/kv_cache_interface.py"
    k = case.k if on else 0
    if target is not None and target.hybrid:
        one = target.state_bytes_per_sequence(k)
        size = None if one is None or case.num_seqs is None else one * case.num_seqs
        lines.append(
            MemoryLine(
                name="recurrent_state",
                bytes=size,
                inside="kv_cache",
                basis=f"(1 + {k}) states for each of {case.num_seqs} sequences",
                source=source,
                confidence="medium" if size is not None else "unknown",
            )
        )
    if on and case.speculating and case.draft is not None:
        slots = k + 1 if case.method == "dflash" else k
        each = _per_token(case, on)
        size = None if each is None or case.num_seqs is None else each * slots * case.num_seqs
        lines.append(
            MemoryLine(
                name="lookahead",
                bytes=size,
                inside="kv_cache",
                basis=f"{slots} slots for each of {case.num_seqs} sequences",
                source="vLLM 0.32 config/vllm.py num_lookahead_tokens",
                confidence="medium" if size is not None else "unknown",
            )
        )
    return lines


def _capacity(case: _Case, on: bool, available: int | None) -> dict[str, Any] | None:
    size = _element_bytes(case)
    if case.target is None or size is None or case.max_model_len is None:
        return None
    buckets = buckets_of(case.target, size, case.k if on else 0)
    if on and case.draft is not None and buckets is not None:
        own = buckets_of(case.draft, size)
        buckets = None if own is None else buckets + own
    if buckets is None:
        return None
    in_flight = _BATCHES_IN_FLIGHT * (case.batched_tokens or 8192)
    plan = plan_kv(buckets, block_size=case.block_size, in_flight_tokens=in_flight)
    if plan is None:
        return None
    if available is None:
        return {"needed_bytes": plan.blocks_for(case.max_model_len) * plan.block_bytes}
    found = plan.capacity(available, case.max_model_len)
    return {
        "kv_tokens": found.tokens,
        "full_sequences": found.sequences,
        "needed_bytes": found.needed_bytes,
        "longest": found.longest,
    }


def _findings(
    case: _Case, off: ArmLedger, on: ArmLedger | None, same: ArmLedger | None, release: str | None
) -> list[Finding]:
    found: list[Finding] = []
    arm = on or off
    if arm.starts is False and arm.budget_bytes is not None and case.available is not None and case.total:
        feasible = math.floor(case.available / case.total * 100) / 100
        found.append(
            Finding.of(
                "JSD494",
                free=case.available,
                utilization=arm.utilization,
                requested=arm.budget_bytes,
                feasible=feasible,
            )
        )
    if case.version is not None and case.version.release[:2] < (0, 12):
        found.append(Finding.of("JSD499", release=release, available=case.available))
    if case.kv_cache_memory_bytes is not None and on is not None:
        found.append(Finding.of("JSD495", bytes=case.kv_cache_memory_bytes))
    if same is not None and case.draft is not None and off.kv_tokens is not None and same.kv_tokens is not None:
        found.append(
            Finding.of(
                "JSD496",
                tokens=off.kv_tokens - same.kv_tokens,
                weights=case.draft.weight_bytes,
                kv=_minus(same.kv_bytes_per_token, off.kv_bytes_per_token),
            )
        )
    if on is not None and case.target is not None and case.target.hybrid:
        before, after = case.target.state_bytes_per_sequence(0), case.target.state_bytes_per_sequence(case.k)
        total = None if after is None or case.num_seqs is None else after * case.num_seqs
        found.append(Finding.of("JSD497", before=before, after=after, k=case.k, max_num_seqs=case.num_seqs, all=total))
    return found
