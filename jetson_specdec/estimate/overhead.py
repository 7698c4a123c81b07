# SPDX-License-Identifier: Apache-2.0
"""Allowances for what cannot be read from files: activations at the profiling run, CUDA graphs.

Both are fitted to public logs of other GPUs (`docs/memory.md` lists them); no Jetson log with all parts was found.
They are allowances, confidence low, and every ledger says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.models.profile import ModelProfile

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = [
    "LARGE_DEVICE_BYTES",
    "activation_allowance",
    "capture_sizes",
    "default_batched_tokens",
    "default_num_seqs",
    "graph_allowance",
    "graphs_in_budget",
]

LARGE_DEVICE_BYTES = 70 * 2**30
"""From this size on vLLM 0.32 takes its large defaults (`engine/arg_utils.py`); Thor has it, AGX Orin has not."""

_GRAPH_BYTES_PER_LAYER = 180_000
"""0.52 GiB for 86 graphs of 36 layers: vLLM log in LMCache issue 3430 (Qwen3-8B, 24 GB GPU)."""

_HEAD_WORKSPACE = 16
"""Bytes per sequence and vocabulary entry while sampling: four 32-bit copies of the logits."""

_ASSUMED_FFN_RATIO = 3.5


def default_batched_tokens(device_total_bytes: int | None) -> int | None:
    """Return `--max-num-batched-tokens` where the recipe has none; None when the device's memory is unknown."""
    if device_total_bytes is None:
        return None
    return 8192 if device_total_bytes >= LARGE_DEVICE_BYTES else 2048


def default_num_seqs(device_total_bytes: int | None) -> int | None:
    """Return `--max-num-seqs` where the recipe has none; None when the device's memory is unknown."""
    if device_total_bytes is None:
        return None
    return 1024 if device_total_bytes >= LARGE_DEVICE_BYTES else 256


def activation_allowance(profile: ModelProfile, *, batched_tokens: int | None, num_seqs: int | None) -> int | None:
    """Return bytes allowed for the profiling run: tokens · (3 · inner + 2 · hidden) · 2 + sequences · vocabulary · 16.

    The inner size of a mixture of experts is that of the experts one token uses. Where the feed-forward size is not
    known (catalogue entries), 3.5 times the hidden size is assumed.
    """
    hidden, vocab = profile.hidden_size, profile.vocab_size
    if hidden is None or vocab is None or batched_tokens is None or num_seqs is None:
        return None
    inner = profile.intermediate_size or round(_ASSUMED_FFN_RATIO * hidden)
    if profile.moe is not None:
        if profile.moe.top_k is None or profile.moe.intermediate is None:
            return None
        inner = max(profile.moe.top_k * profile.moe.intermediate + profile.moe.shared_intermediate, 1)
    return batched_tokens * (3 * inner + 2 * hidden) * 2 + num_seqs * vocab * _HEAD_WORKSPACE


def capture_sizes(num_seqs: int, k: int = 0) -> tuple[int, ...]:
    """Return batch sizes vLLM captures: 1, 2, 4, by 8 to 256, then by 16, up to min(sequences · (1 + k) · 2, 512)."""
    limit = min(num_seqs * (1 + k) * 2, 512)
    return tuple(size for size in (1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)) if size <= limit)


def graph_allowance(
    profile: ModelProfile, draft: ModelProfile | None, *, num_seqs: int | None, k: int = 0
) -> int | None:
    """Return bytes allowed for CUDA graphs: piecewise ones of every size, full ones up to the decode batch."""
    if num_seqs is None or profile.layers is None:
        return None
    sizes = capture_sizes(num_seqs, k)
    full = [size for size in sizes if size <= num_seqs * (1 + k)]
    layers = profile.layers + ((draft.layers or 1) if draft is not None else 0)
    return (len(sizes) + len(full)) * layers * _GRAPH_BYTES_PER_LAYER


def graphs_in_budget(version: Version | None) -> bool | None:
    """Whether a release takes CUDA graphs out of the budget before sizing the KV cache (0.20 and newer)."""
    return None if version is None else bool(version.release[:2] >= (0, 20))
