# SPDX-License-Identifier: Apache-2.0
"""Experts of a model, read from its `config.json`: which layers have them, how many, how large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.models.config_values import whole, whole_number
from jetson_specdec.models.shape import MoE, Shape

__all__ = ["read_experts"]

_EXPERTS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts",
    "moe_num_primary_experts",
)  # fmt: skip
_TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "experts_per_token", "moe_k",
    "moe_top_k", "num_selected_experts", "moe_router_topk", "moe_num_active_primary_experts",
)  # fmt: skip
_SIZE = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size")
_SHARED_SIZE = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
_SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
_ONE_SIZE = (
    "mixtral", "olmoe", "phimoe", "gpt_oss", "llama4_text", "granitemoe", "granitemoeshared", "granitemoehybrid",
)  # fmt: skip
"""Types whose experts have `intermediate_size`, whatever else is written."""

_NOTHING = (None, 0, 1, False)


def read_experts(shape: Shape) -> tuple[MoE | None, frozenset[int]]:
    """Return the experts and the layers that have them; None only where the config names no experts.

    Experts whose number, size or share per token cannot be read are experts all the same: such a field is None.
    """
    config = _flat(shape.config)
    written = [config[name] for name in _EXPERTS if config.get(name) not in _NOTHING]
    if not written or not shape.layers or config.get("enable_moe_block") is False:
        return None, frozenset()
    experts = _same(config, _EXPERTS)
    top_k = _same(config, _TOP_K)
    if not top_k or (experts is not None and top_k > experts):
        top_k = None
    own = shape.model_type not in _ONE_SIZE and any(config.get(name) is not None for name in _SIZE)
    size = _same(config, _SIZE) if own else shape.intermediate
    which = frozenset(index for index in range(len(shape.kinds)) if _is_moe_layer(shape, config, index))
    moe = MoE(
        layers=len(which), experts=experts, top_k=top_k, intermediate=size or None,
        shared_intermediate=_shared(shape, config, size or 0),
    )  # fmt: skip
    return moe, which


def _flat(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put what DBRX keeps in `ffn_config` beside the rest."""
    inner = config.get("ffn_config")
    if not isinstance(inner, Mapping):
        return config
    return {**config, **inner, "moe_intermediate_size": inner.get("ffn_hidden_size")}


def _same(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    """Return the first named value; of a list with one number per layer that number, if it is the same everywhere."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, (list, tuple)):
            numbers = {whole_number(item) for item in value}
            return numbers.pop() if len(numbers) == 1 else None
        return whole_number(value)
    return None


def _shared(shape: Shape, config: Mapping[str, Any], size: int) -> int:
    if shape.model_type == "llama4_text":
        return shape.intermediate or 0
    written = _same(config, _SHARED_SIZE)
    return written if written is not None else (_same(config, _SHARED_COUNT) or 0) * size


def _is_moe_layer(shape: Shape, config: Mapping[str, Any], index: int) -> bool:
    if isinstance(config.get("hybrid_override_pattern"), str):
        return shape.kinds[index] == "moe"
    dense = config.get("mlp_only_layers")
    if isinstance(dense, (list, tuple)) and index in dense:
        return False
    listed = config.get("moe_layers")
    if isinstance(listed, (list, tuple)):
        return index in listed
    first = whole(config, "first_k_dense_replace", "moe_layer_start_index") or 0
    last = whole(config, "moe_layer_end_index")
    if index < first or (last is not None and index > last):
        return False
    every = config.get("moe_layer_freq")
    if isinstance(every, (list, tuple)):
        return index < len(every) and every[index] not in (0, False)
    if whole_number(every):
        return index % (whole_number(every) or 1) == 0
    step = whole(config, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval") or 1
    return (index + 1) % step == 0
