# SPDX-License-Identifier: Apache-2.0
"""How many weights a model of a given shape has, and how many of them one token reads.

The counts follow the layer definitions of the transformers library; tests compare them with the parameter counts of
models that library builds from the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.models.config_read import formula_verified
from jetson_specdec.models.config_values import whole, whole_number
from jetson_specdec.models.shape import Shape
from jetson_specdec.values import frozen

__all__ = ["ParameterCount", "count_head_parameters", "count_parameters", "vision_parameters"]

_NORMS = {"gemma2": 4, "gemma3_text": 4, "gemma4_text": 4, "glm4": 4, "cohere2": 1}
"""Norms of a layer where it is not two."""

_BIASED_NORMS = ("nemotron", "starcoder2", "phimoe")
_NO_GATE = ("nemotron_h", "nemotron", "starcoder2", "arcee")
"""Types whose feed-forward part has two matrices, not three."""

_QK_NORM = ("qwen3", "gemma3_text", "gemma4_text", "exaone4")
_QK_NORM_WIDE = ("olmo2", "olmoe")
"""Norms over all heads at once instead of one head."""


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
        lookup: embeddings of each layer (Gemma 4 E): one row a token is read, nothing is multiplied.
    """

    linear: int
    experts: int
    experts_active: int
    embedding: int
    head: int
    other: int
    lookup: int = 0

    @property
    def total(self) -> int:
        """All weights."""
        return self.linear + self.experts + self.embedding + self.head + self.other + self.lookup


def count_parameters(shape: Shape) -> ParameterCount | None:
    """Count the weights of the text model; None when a needed number or layer kind is unknown.

    Only types whose formula was compared with a built model are counted (`data/model_types.json`).
    """
    hidden, vocab, model = shape.hidden, shape.vocab, str(shape.model_type)
    if not formula_verified(shape.model_type) or (shape.moe is not None and not shape.moe.known):
        return None
    if not hidden or not vocab or not shape.kinds or "unknown" in shape.kinds:
        return None
    linear = experts = active = 0
    norms = _NORMS.get(model, 2)
    each_norm = hidden * (2 if model in _BIASED_NORMS else 1)
    other = each_norm  # the final norm
    alone = isinstance(shape.config.get("hybrid_override_pattern"), str)
    for index, kind in enumerate(shape.kinds):
        other += (1 if alone else norms) * each_norm
        for part in kind.split("+"):
            if part in ("ffn", "moe"):
                continue
            mixer = _mixer(shape, part, index)
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
    own = _per_layer_inputs(shape)
    return ParameterCount(
        linear=linear + own[1],
        experts=experts,
        experts_active=active,
        embedding=vocab * hidden,
        head=0 if shape.tied else vocab * hidden,
        other=other + own[2],
        lookup=own[0],
    )


def _per_layer_inputs(shape: Shape) -> tuple[int, int, int]:
    """Return table, matrices and norms of the embeddings that Gemma 4 E gives each layer."""
    width = whole({"hidden_size_per_layer_input": 256, **shape.config}, "hidden_size_per_layer_input")
    hidden, layers = shape.hidden or 0, len(shape.kinds)
    if shape.model_type != "gemma4_text" or not width:
        return 0, 0, 0
    rows = whole(shape.config, "vocab_size_per_layer_input") or 262144
    all_widths = layers * width
    return rows * all_widths, hidden * all_widths + layers * 2 * hidden * width, width + layers * hidden


def _mixer(shape: Shape, kind: str, index: int) -> tuple[int, int] | None:
    """Return matrix and other weights of one layer's attention or recurrence."""
    if kind == "mla":
        return _mla(shape)
    if kind in ("full", "sliding", "chunked"):
        return _attention(shape, kind, index)
    return _recurrent(shape, kind)


def _attention(shape: Shape, kind: str, index: int) -> tuple[int, int] | None:
    config, hidden = shape.config, shape.hidden
    heads, kv_heads, dim = shape.heads, shape.kv_heads, shape.head_dim
    model = str(shape.model_type)
    same_values = False
    if kind == "full" and model == "gemma4_text":
        same_values = config.get("attention_k_eq_v") is True
        dim = whole(config, "global_head_dim") or dim
        kv_heads = (whole(config, "num_global_key_value_heads") if same_values else None) or kv_heads
    if not (hidden and heads and kv_heads and dim):
        return None
    gated = model.startswith(("qwen3_next", "qwen3_5")) or bool(config.get("attn_output_gate"))
    query = heads * dim * (2 if gated else 1)
    # Gemma 4 takes keys for values in its global layers, and the last layers take both from an earlier one.
    borrowed = model == "gemma4_text" and index >= len(shape.kinds) - (whole(config, "num_kv_shared_layers") or 0)
    pairs = 0 if borrowed else 1 if same_values else 2
    matrices = hidden * query + pairs * hidden * kv_heads * dim + heads * dim * hidden
    small = 0
    biases, out_bias = (heads + 2 * kv_heads) * dim, hidden
    if model.startswith("qwen2"):
        small += biases
    elif model in ("seed_oss", "glm4_moe", "glm4"):
        small += biases if config.get("attention_bias") else 0
        small += out_bias if config.get("attention_out_bias") else 0
    elif model == "starcoder2":
        small += biases + out_bias if config.get("use_bias", True) else 0
    elif config.get("attention_bias") or model == "gpt_oss":
        small += biases + out_bias
    if model == "gpt_oss":
        small += heads
    if model.startswith(_QK_NORM) or (model == "glm4_moe" and config.get("use_qk_norm")):
        small += dim if borrowed else 2 * dim
    if model in _QK_NORM_WIDE:
        small += (heads + kv_heads) * dim
    if model.startswith("lfm2"):
        small += 2 * dim
    return matrices, small


def _mla(shape: Shape) -> tuple[int, int] | None:
    config, hidden, heads = shape.config, shape.hidden, shape.heads
    rank, rope = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
    nope, value = whole(config, "qk_nope_head_dim"), whole(config, "v_head_dim")
    if not (hidden and heads and rank and rope and nope and value):
        return None
    query_rank = whole(config, "q_lora_rank")
    width = heads * (nope + rope)
    matrices = hidden * query_rank + query_rank * width if query_rank else hidden * width
    matrices += hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden
    return matrices, (query_rank or 0) + rank


def _recurrent(shape: Shape, kind: str) -> tuple[int, int] | None:
    states = {group.kind: group for group in shape.state_layers or ()}
    group, hidden, config = states.get(kind), shape.hidden, shape.config
    if group is None or not hidden:
        return None
    convolution = group.conv_channels * group.conv_kernel
    if kind == "gdn":
        heads, value_dim = whole(config, "linear_num_value_heads") or 0, whole(config, "linear_value_head_dim") or 0
        inner = heads * value_dim
        matrices = hidden * (group.conv_channels + inner) + hidden * 2 * heads + inner * hidden
        return matrices, convolution + 2 * heads + value_dim
    if kind == "mamba2":
        heads = whole(config, "mamba_num_heads", "mamba_n_heads") or 0
        dim = whole(config, "mamba_head_dim", "mamba_d_head") or 0
        inner = heads * dim
        matrices = hidden * (inner + group.conv_channels + heads) + inner * hidden
        own_norm = inner if shape.model_type != "falcon_h1" or config.get("mamba_rms_norm") else 0
        return matrices, convolution + group.conv_channels + 3 * heads + own_norm
    if kind == "conv":
        return 4 * hidden * hidden, convolution
    return None  # Mamba 1 has too many variants to count from a config


def _feed_forward(shape: Shape, index: int) -> tuple[int, int, int, int] | None:
    """Return matrix, expert, active expert and other weights of one layer's feed-forward part."""
    hidden, moe, config = shape.hidden or 0, shape.moe, shape.config
    model = str(shape.model_type)
    factor = 2 if model in _NO_GATE else 3
    if moe is None or index not in shape.moe_layers:
        size = _dense_size(shape, index)
        biased = model == "starcoder2" and config.get("use_bias", True)
        biased = biased or (config.get("mlp_bias") is True and model != "gemma4_text")
        if size is None:
            return None
        return factor * hidden * size, 0, 0, ((factor - 1) * size + hidden if biased else 0)
    experts, top_k, inner = moe.experts or 0, moe.top_k or 0, moe.intermediate or 0
    one = factor * hidden * inner
    shared = factor * hidden * moe.shared_intermediate
    small = hidden * experts
    if model == "gpt_oss":
        small += experts * (1 + 2 * inner + hidden)
    if model == "gemma4_text":
        # A dense part beside the experts, three norms and two scales of the router more.
        shared = factor * hidden * (shape.intermediate or 0)
        small += 4 * hidden + experts
    if model == "ernie4_5_moe":
        small += experts  # the router's correction
    if moe.shared_intermediate and model.startswith(("qwen2_moe", "qwen3_next", "qwen3_5")):
        small += hidden
    return shared, one * experts, one * top_k, small


def _dense_size(shape: Shape, index: int) -> int | None:
    config, model = shape.config, str(shape.model_type)
    listed = config.get("intermediate_size")
    if isinstance(listed, (list, tuple)):
        return whole_number(listed[index]) if index < len(listed) else None
    if model == "llama4_text":
        return whole(config, "intermediate_size_mlp")
    if model == "granitemoehybrid":
        return whole(config, "shared_intermediate_size")
    if model == "lfm2":
        return _lfm2_size(shape)
    if model == "gemma4_text" and config.get("use_double_wide_mlp"):
        borrowed = index >= len(shape.kinds) - (whole(config, "num_kv_shared_layers") or 0)
        return shape.intermediate and shape.intermediate * (2 if borrowed else 1)
    return shape.intermediate


def _lfm2_size(shape: Shape) -> int | None:
    """Return the inner size of LFM2, whose config holds the size before it is adjusted."""
    config, size = shape.config, whole(shape.config, "block_ff_dim", "intermediate_size")
    if size is None or config.get("block_auto_adjust_ff_dim", True) is False:
        return size
    factor, step = config.get("block_ffn_dim_multiplier", 1.0), whole(config, "block_multiple_of") or 256
    if not isinstance(factor, (int, float)) or not 0 < factor < 100:
        return None
    size = int(factor * (2 * size // 3))
    return step * (-(-size // step))


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
    depth = whole(vision, "depth", "num_hidden_layers")
    hidden, inner = whole(vision, "embed_dim", "hidden_size"), whole(vision, "intermediate_size")
    patch = vision.get("patch_size", 14)
    sides = patch if isinstance(patch, (list, tuple)) and len(patch) == 2 else (patch, patch)
    height, width = whole_number(sides[0]), whole_number(sides[1])
    if not (depth and hidden and inner and height and width):
        return None
    gated = 3 if str(vision.get("hidden_act", "")) in ("silu", "swiglu") else 2
    channels = whole(vision, "in_channels", "in_chans", "num_channels") or 3
    frames = whole(vision, "temporal_patch_size") or 1
    return depth * (4 * hidden * hidden + gated * hidden * inner) + hidden * channels * frames * height * width
