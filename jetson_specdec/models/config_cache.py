# SPDX-License-Identifier: Apache-2.0
"""What each layer of a model keeps per token or per sequence, read from its `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.models.config_values import whole
from jetson_specdec.models.shape import KVLayers, Shape, StateLayers

__all__ = ["kv_layers_of", "state_layers_of"]

_WINDOWED = {"sliding", "chunked"}


def kv_layers_of(shape: Shape) -> tuple[KVLayers, ...] | None:
    """Group the layers that hold keys and values; None when a needed number is missing."""
    config = shape.config
    if not shape.kinds or "unknown" in shape.kinds:
        return None
    shared = min(whole(config, "num_kv_shared_layers") or 0, len(shape.kinds))
    own = shape.kinds[: len(shape.kinds) - shared] if shared else shape.kinds
    counts: dict[str, int] = {}
    for kind in own:
        attention = kind.split("+", maxsplit=1)[0]
        if attention in ("full", "sliding", "chunked", "mla"):
            counts[attention] = counts.get(attention, 0) + 1
    groups: dict[tuple[str, int, int | None], int] = {}
    for kind, count in counts.items():
        elements = _elements(shape, kind)
        if elements is None:
            return None
        window = None
        if kind in _WINDOWED:
            window = whole(config, "attention_chunk_size") if kind == "chunked" else shape.sliding_window
            if not window:
                return None
            if shape.max_position is not None and window >= shape.max_position:
                # Nothing is ever left out of such a window.
                kind, window = "full", None
        key = (kind, elements, window)
        groups[key] = groups.get(key, 0) + count
    return tuple(
        KVLayers(kind=kind, count=count, elements_per_token=elements, window=window)
        for (kind, elements, window), count in groups.items()
    )


def _elements(shape: Shape, kind: str) -> int | None:
    config = shape.config
    if kind == "mla":
        rank, rope = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
        return None if rank is None or rope is None else rank + rope
    heads, dim = shape.kv_heads, shape.head_dim
    if shape.model_type == "minicpm3":
        # Latent weights, but full heads in the cache, values padded to the keys' size (vLLM 0.32 models/minicpm3.py).
        nope, rope = whole(config, "qk_nope_head_dim"), whole(config, "qk_rope_head_dim")
        return None if not (heads and nope and rope) else 2 * heads * (nope + rope)
    if kind == "full":
        # Gemma 4 gives its global layers another shape.
        dim = whole(config, "global_head_dim") or dim
        heads = whole(config, "num_global_key_value_heads") or heads
    if not heads or not dim:
        return None
    return heads * (dim + (whole(config, "v_head_dim") or dim))


def state_layers_of(shape: Shape) -> tuple[StateLayers, ...] | None:
    """Group the layers with a recurrent state; an empty tuple when there are none, None when unknown."""
    kinds = [part for kind in shape.kinds for part in kind.split("+") if part in ("gdn", "mamba2", "mamba1", "conv")]
    if "unknown" in shape.kinds:
        return None
    groups: list[StateLayers] = []
    for kind in dict.fromkeys(kinds):
        sizes = _state_sizes(shape, kind)
        if sizes is None:
            return None
        channels, kernel, elements = sizes
        groups.append(
            StateLayers(
                kind=kind,
                count=kinds.count(kind),
                conv_channels=channels,
                conv_kernel=kernel,
                state_elements=elements,
                state_dtype_bytes=_state_dtype(shape.config),
            )
        )
    return tuple(groups)


def _state_dtype(config: Mapping[str, Any]) -> int | None:
    named = config.get("mamba_ssm_dtype") or config.get("mamba_ssm_cache_dtype")
    if named is None and config.get("model_type") == "nemotron_h":
        named = "float32"  # vLLM 0.32 model_executor/models/config.py: DEFAULT_MAMBA_SSM_CACHE_DTYPE
    return {"float32": 4, "bfloat16": 2, "float16": 2}.get(str(named))


def _state_sizes(shape: Shape, kind: str) -> tuple[int, int, int] | None:
    """Return convolution channels, kernel and state numbers of one layer."""
    config, hidden = shape.config, shape.hidden
    if kind == "gdn":
        keys, values = whole(config, "linear_num_key_heads"), whole(config, "linear_num_value_heads")
        key_dim, value_dim = whole(config, "linear_key_head_dim"), whole(config, "linear_value_head_dim")
        kernel = whole(config, "linear_conv_kernel_dim")
        if not (keys and values and key_dim and value_dim and kernel):
            return None
        return 2 * keys * key_dim + values * value_dim, kernel, values * value_dim * key_dim
    if kind == "mamba2":
        heads = whole(config, "mamba_num_heads", "mamba_n_heads")
        dim = whole(config, "mamba_head_dim", "mamba_d_head")
        state, groups = whole(config, "ssm_state_size", "mamba_d_state"), whole(config, "n_groups", "mamba_n_groups")
        kernel = whole(config, "conv_kernel", "mamba_d_conv")
        if not (heads and dim and state and groups and kernel):
            return None
        return heads * dim + 2 * groups * state, kernel, heads * dim * state
    if kind == "mamba1":
        expand, state = whole(config, "mamba_expand"), whole(config, "mamba_d_state")
        kernel = whole(config, "mamba_d_conv")
        if not (hidden and expand and state and kernel):
            return None
        return expand * hidden, kernel, expand * hidden * state
    kernel = whole(config, "conv_L_cache")
    return (hidden, kernel, 0) if hidden and kernel else None
