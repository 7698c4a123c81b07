# SPDX-License-Identifier: Apache-2.0
"""How many weights a model of a given shape has, and how many of them one token reads.

The counts follow the layer definitions of the transformers library; tests compare them with the parameter counts of
models that library builds from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from jetson_specdec.models.config_read import Shape

__all__ = ["ParameterCount", "count_head_parameters", "count_parameters", "vision_parameters"]

_NORM_PAIRS_FOUR = ("gemma2", "gemma3_text", "gemma3n_text", "gemma4_text")
_QK_NORM = ("qwen3", "qwen3_moe", "qwen3_vl_text", "gemma3_text", "gemma4_text", "qwen3_next", "qwen3_5", "qwen3_5_moe")


@frozen(kw_only=True)
class ParameterCount:
    """Weights by what happens to them.

    Attributes:
        linear: matrices of the decoder layers that quantisation touches, experts left out.
        experts: matrices of the routed experts.
        experts_active: of those, what one token reads.
        embedding: the input embedding.
        head: the output projection; 0 when it is tied to the embedding.
        other: norms, biases, routers, convolutions: small, and never quantised.
    """

    linear: int
    experts: int
    experts_active: int
    embedding: int
    head: int
    other: int

    @property
    def total(self) -> int:
        """All weights."""
        return self.linear + self.experts + self.embedding + self.head + self.other


def count_parameters(shape: Shape) -> ParameterCount | None:
    """Count the weights of the text model; None when a needed number or layer kind is unknown."""
    hidden, vocab = shape.hidden, shape.vocab
    if not hidden or not vocab or not shape.kinds or "unknown" in shape.kinds:
        return None
    linear = experts = active = 0
    norms = 4 if str(shape.model_type) in _NORM_PAIRS_FOUR else 2
    other = hidden  # the final norm
    alone = isinstance(shape.config.get("hybrid_override_pattern"), str)
    for index, kind in enumerate(shape.kinds):
        other += (1 if alone else norms) * hidden
        for part in kind.split("+"):
            if part in ("ffn", "moe"):
                continue
            mixer = _mixer(shape, part)
            if mixer is None:
                return None
            linear += mixer[0]
            other += mixer[1]
        if alone and kind not in ("ffn", "moe"):
            continue
        feed = _feed_forward(shape, index)
        if feed is None:
            return None
        linear += feed[0]
        experts += feed[1]
        active += feed[2]
        other += feed[3]
    return ParameterCount(
        linear=linear,
        experts=experts,
        experts_active=active,
        embedding=vocab * hidden,
        head=0 if shape.tied else vocab * hidden,
        other=other,
    )


def _mixer(shape: Shape, kind: str) -> tuple[int, int] | None:
    """Return matrix and other weights of one layer's attention or recurrence."""
    if kind == "mla" or (kind == "full" and shape.is_mla):
        return _mla(shape)
    if kind in ("full", "sliding", "chunked"):
        return _attention(shape, kind)
    return _recurrent(shape, kind)


def _attention(shape: Shape, kind: str) -> tuple[int, int] | None:
    config, hidden = shape.config, shape.hidden
    heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
    if kind == "full" and config.get("global_head_dim"):
        dim = int(config["global_head_dim"])
        kv_heads = int(config.get("num_global_key_value_heads") or kv_heads or 0)
    if not (hidden and heads and kv_heads and dim):
        return None
    model = str(shape.model_type)
    gated = model.startswith(("qwen3_next", "qwen3_5")) or bool(config.get("attn_output_gate"))
    query = heads * dim * (2 if gated else 1)
    matrices = hidden * query + 2 * hidden * kv_heads * dim + heads * dim * hidden
    small = 0
    if model.startswith("qwen2"):
        small += (heads + 2 * kv_heads) * dim
    elif config.get("attention_bias"):
        small += (heads + 2 * kv_heads) * dim + hidden
    if model == "gpt_oss":
        small += heads + (0 if config.get("attention_bias") else (heads + 2 * kv_heads) * dim + hidden)
    if model.startswith(_QK_NORM):
        small += 2 * dim
    return matrices, small


def _mla(shape: Shape) -> tuple[int, int] | None:
    config, hidden, heads = shape.config, shape.hidden, shape.heads
    rank, rope = config.get("kv_lora_rank"), config.get("qk_rope_head_dim")
    nope, value = config.get("qk_nope_head_dim"), config.get("v_head_dim")
    if not (hidden and heads and rank and rope and nope and value):
        return None
    query_rank = config.get("q_lora_rank")
    width = heads * (nope + rope)
    matrices = hidden * query_rank + query_rank * width if query_rank else hidden * width
    matrices += hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    return int(matrices), int((query_rank or 0) + rank)


def _recurrent(shape: Shape, kind: str) -> tuple[int, int] | None:
    states = {group.kind: group for group in shape.state_layers or ()}
    group, hidden, config = states.get(kind), shape.hidden, shape.config
    if group is None or not hidden:
        return None
    convolution = group.conv_channels * group.conv_kernel
    if kind == "gdn":
        heads, value_dim = int(config["linear_num_value_heads"]), int(config["linear_value_head_dim"])
        inner = heads * value_dim
        matrices = hidden * (group.conv_channels + inner) + hidden * 2 * heads + inner * hidden
        return matrices, convolution + 2 * heads + value_dim
    if kind == "mamba2":
        heads = int(config.get("mamba_num_heads") or config.get("mamba_n_heads") or 0)
        dim = int(config.get("mamba_head_dim") or config.get("mamba_d_head") or 0)
        inner = heads * dim
        matrices = hidden * (inner + group.conv_channels + heads) + inner * hidden
        return matrices, convolution + group.conv_channels + 3 * heads + inner
    if kind == "conv":
        return 4 * hidden * hidden, convolution
    return None  # Mamba 1 has too many variants to count from a config


def _feed_forward(shape: Shape, index: int) -> tuple[int, int, int, int] | None:
    """Return matrix, expert, active expert and other weights of one layer's feed-forward part."""
    hidden, moe, config = shape.hidden or 0, shape.moe, shape.config
    model = str(shape.model_type)
    factor = 2 if model == "nemotron_h" else 3  # squared ReLU needs no gate matrix
    if moe is not None and index in shape.moe_layers:
        one = factor * hidden * moe.intermediate
        shared = factor * hidden * moe.shared_intermediate
        small = hidden * moe.experts
        if model == "gpt_oss":
            small += moe.experts * (1 + 2 * moe.intermediate + hidden)
        if moe.shared_intermediate and model.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")):
            small += hidden
        return shared, one * moe.experts, one * moe.top_k, small
    size = shape.intermediate
    listed = config.get("intermediate_size")
    if isinstance(listed, (list, tuple)):
        size = int(listed[index]) if index < len(listed) else None
    if size is None:
        return None
    return factor * hidden * size, 0, 0, 0


def count_head_parameters(
    *, hidden: int, heads: int, kv_heads: int, head_dim: int, intermediate: int, draft_vocab: int, layers: int = 1,
    target_hidden: int | None = None, aux_layers: int = 3,
) -> int:  # fmt: skip
    """Count what an EAGLE-3 head adds when it shares the target's embedding (vLLM `models/llama_eagle3.py`).

    The first layer reads embedding and hidden state side by side, so its query, key and value matrices are twice as
    wide; `fc` folds the target's auxiliary hidden states into one.
    """
    fold = aux_layers * (target_hidden or hidden) * hidden
    rest = heads * head_dim * hidden + 3 * hidden * intermediate
    first = 2 * hidden * (heads + 2 * kv_heads) * head_dim + rest
    further = hidden * (heads + 2 * kv_heads) * head_dim + rest
    return fold + first + (layers - 1) * further + draft_vocab * hidden


def vision_parameters(config: Mapping[str, Any]) -> int | None:
    """Estimate a vision tower from its config: layers · (4 · h² + MLP) + patches; None where it is not described.

    Projectors, position tables and merger layers differ too much to count: the estimate may be 10 % off.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, Mapping):
        return None
    depth = vision.get("depth") or vision.get("num_hidden_layers")
    hidden, inner = vision.get("hidden_size"), vision.get("intermediate_size")
    if hidden is None or vision.get("embed_dim"):
        hidden = vision.get("embed_dim") or hidden
    if not (isinstance(depth, int) and isinstance(hidden, int) and isinstance(inner, int)):
        return None
    gated = 3 if str(vision.get("hidden_act", "")) in ("silu", "swiglu") else 2
    patch = vision.get("patch_size") or 14
    channels = vision.get("in_channels") or vision.get("in_chans") or vision.get("num_channels") or 3
    frames = vision.get("temporal_patch_size") or 1
    return depth * (4 * hidden * hidden + gated * hidden * inner) + hidden * channels * frames * patch * patch
