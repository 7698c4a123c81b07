# SPDX-License-Identifier: Apache-2.0
"""What a `config.json` says about the shape of a language model: its numbers, and one word for each layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jetson_specdec.findings import Finding
from jetson_specdec.models.config_cache import kv_layers_of, state_layers_of
from jetson_specdec.models.config_experts import read_experts
from jetson_specdec.models.config_values import first_text, text_config, whole
from jetson_specdec.models.shape import KVLayers, MoE, Shape, StateLayers
from jetson_specdec.packaged import packaged_json

__all__ = ["KVLayers", "MoE", "Shape", "StateLayers", "first_text", "formula_verified", "read_shape", "text_config"]

_MAX_LAYERS = 2000
_LAYER_WORDS = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "gdn",
    "mamba": "mamba2",
    "conv": "conv",
    "mlp": "ffn",
    "moe": "moe",
    "hybrid": "full+mamba2",
}
_HYBRID_LETTERS = {"M": "mamba2", "*": "full", "-": "ffn", "E": "moe"}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    data: dict[str, Any] = packaged_json("models", "data", "config_defaults.json")
    return data


def read_shape(config: Mapping[str, Any]) -> Shape:
    """Read the shape of the language model in a `config.json`; what is not said stays None."""
    text, _ = text_config(config)
    named = text.get("model_type") or config.get("model_type")
    model_type = named if isinstance(named, str) else None
    defaults = {key: value for key, value in (_defaults().get(str(model_type)) or {}).items() if text.get(key) is None}
    # An explicit null means "off" for the window; only absent keys take the library's default.
    defaults = {key: value for key, value in defaults.items() if key not in text or key != "sliding_window"}
    full: dict[str, Any] = {**text, **defaults}
    if "tie_word_embeddings" in config:
        # the wrapper's own value is the one that counts when both are written
        full["tie_word_embeddings"] = config["tie_word_embeddings"]
    hidden = whole(full, "hidden_size", "n_embd", "d_model", "dim")
    heads = whole(full, "num_attention_heads", "n_head", "n_heads")
    head_dim = whole(full, "head_dim", "attention_head_dim")
    if head_dim is None and hidden and heads:
        head_dim = hidden // heads
    layers = whole(full, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    kinds = _kinds(full, layers)
    shape = Shape(
        config=full,
        model_type=model_type,
        architecture=first_text(config.get("architectures")) or first_text(text.get("architectures")),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=whole(full, "num_key_value_heads", "n_head_kv", "num_kv_heads") or heads,
        head_dim=head_dim,
        intermediate=whole(full, "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
        vocab=whole(full, "vocab_size") or whole(config, "vocab_size"),
        max_position=whole(full, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        tied=full.get("tie_word_embeddings") if isinstance(full.get("tie_word_embeddings"), bool) else None,
        sliding_window=whole(full, "sliding_window"),
        kinds=kinds,
        kv_layers=None,
        state_layers=None,
        moe=None,
        moe_layers=frozenset(),
        multimodal=_multimodal(config),
        defaulted=tuple(sorted(defaults)),
    )
    import attrs

    moe, moe_layers = _moe(shape)
    return attrs.evolve(
        shape, kv_layers=_kv_layers(shape), state_layers=_state_layers(shape), moe=moe, moe_layers=moe_layers
    )


def _multimodal(config: Mapping[str, Any]) -> bool:
    keys = ("vision_config", "audio_config", "thinker_config", "visual", "vision_tower")
    return any(isinstance(config.get(key), (Mapping, str)) for key in keys)


def _kinds(config: Mapping[str, Any], layers: int | None) -> tuple[str, ...]:
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return tuple(_HYBRID_LETTERS.get(letter, "unknown") for letter in pattern)
    words = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(words, (list, tuple)):
        listed = tuple(_LAYER_WORDS.get(str(word), "unknown") for word in words)
        return listed[:layers] if layers else listed
    if not layers:
        return ()
    interval = whole(config, "full_attention_interval")
    if interval and "linear_num_value_heads" in config:
        return tuple("full" if (index + 1) % interval == 0 else "gdn" for index in range(layers))
    period = whole(config, "attn_layer_period")
    if period:
        offset = whole(config, "attn_layer_offset") or 0
        return tuple("full" if index % period == offset else "mamba1" for index in range(layers))
    indices = config.get("attn_layer_indices")
    if isinstance(indices, (list, tuple)):
        return tuple("full" if index in indices else "mamba2" for index in range(layers))
    if str(config.get("model_type")) == "falcon_h1":
        return ("full+mamba2",) * layers
    if "kv_lora_rank" in config and "qk_rope_head_dim" in config:
        return ("mla",) * layers
    return _attention_kinds(config, layers)


def _attention_kinds(config: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    chunk = whole(config, "attention_chunk_size")
    no_rope = config.get("no_rope_layers")
    if chunk and isinstance(no_rope, (list, tuple)) and len(no_rope) == layers:
        # Llama 4: layers with rotary positions attend in chunks, those without attend to everything.
        return tuple("chunked" if rotary else "full" for rotary in no_rope)
    window = whole(config, "sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return ("full",) * layers
    every = whole(config, "sliding_window_pattern", "_sliding_window_pattern")
    if every:
        return tuple("full" if (index + 1) % every == 0 else "sliding" for index in range(layers))
    first = whole(config, "max_window_layers")
    if first is not None:
        return tuple("sliding" if index >= first else "full" for index in range(layers))
    return ("sliding",) * layers


