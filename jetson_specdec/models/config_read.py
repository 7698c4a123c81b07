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
_LISTS_LAYERS = ("gemma3n_text", "gemma4_text")
"""Types whose kinds of layers follow no simple period: without a list they are unknown."""

_RECURRENT_KEYS = ("mamba_", "ssm_", "linear_num_", "rwkv", "attn_type_list", "block_types", "layer_group_size")
_OFF: tuple[Any, ...] = (None, False, 0, [], {}, "")

_NULL_MEANS = ("sliding_window", "num_key_value_heads")
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


@lru_cache(maxsize=1)
def _types() -> dict[str, frozenset[str]]:
    data = packaged_json("models", "data", "model_types.json")
    return {key: frozenset(value) for key, value in data.items() if isinstance(value, list)}


def formula_verified(model_type: str | None) -> bool:
    """Whether the parameter formula was compared with models of this type that a library built."""
    return model_type in _types()["formula"]


def read_shape(config: Mapping[str, Any]) -> Shape:
    """Read the shape of the language model in a `config.json`; what is not said stays None."""
    text, _ = text_config(config)
    named = text.get("model_type") or config.get("model_type")
    model_type = named if isinstance(named, str) else None
    defaults = {key: value for key, value in (_defaults().get(str(model_type)) or {}).items() if text.get(key) is None}
    # An explicit null says something of its own here; only absent keys take the library's default.
    defaults = {key: value for key, value in defaults.items() if key not in text or key not in _NULL_MEANS}
    full: dict[str, Any] = {**text, **defaults, "model_type": model_type}
    if "tie_word_embeddings" in config:
        # the wrapper's own value is the one that counts when both are written
        full["tie_word_embeddings"] = config["tie_word_embeddings"]
    hidden = whole(full, "hidden_size", "n_embd", "d_model", "dim")
    heads = whole(full, "num_attention_heads", "n_head", "n_heads")
    head_dim = whole(full, "head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None and hidden and heads:
        head_dim = hidden // heads
    layers = whole(full, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if layers is not None and layers > _MAX_LAYERS:
        layers = None
    kinds, notes = _layer_words(full, layers, str(model_type))
    shape = Shape(
        config=full,
        model_type=model_type,
        architecture=first_text(config.get("architectures")) or first_text(text.get("architectures")),
        layers=layers,
        hidden=hidden or None,
        heads=heads or None,
        kv_heads=_kv_heads(full, text, str(model_type), heads),
        head_dim=head_dim or None,
        intermediate=whole(full, "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
        vocab=whole(full, "vocab_size", "padded_vocab_size") or whole(config, "vocab_size"),
        max_position=whole(
            full, "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length"
        ),
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

    moe, moe_layers = read_experts(shape)
    kv_layers, state_layers = kv_layers_of(shape), state_layers_of(shape)
    if moe is not None and not moe.known:
        notes.append(Finding.of("JSD482", experts=moe.experts, top_k=moe.top_k, size=moe.intermediate))
    if kv_layers is None and shape.kv_heads is None and heads:
        notes.append(Finding.of("JSD484", model_type=model_type))
    return attrs.evolve(
        shape, kv_layers=kv_layers, state_layers=state_layers, moe=moe, moe_layers=moe_layers, notes=tuple(notes)
    )


def _kv_heads(full: Mapping[str, Any], text: Mapping[str, Any], model_type: str, heads: int | None) -> int | None:
    """Return the number of KV heads; that of attention heads only where the library is known to take it for missing."""
    if model_type == "falcon":
        # One KV head by default; the number counts in the newer decoder only.
        if full.get("new_decoder_architecture"):
            return whole(full, "num_kv_heads", "n_head_kv") or heads
        return 1 if full.get("multi_query", True) else heads
    if model_type == "gpt_bigcode":
        return 1 if full.get("multi_query", True) else heads
    if full.get("multi_query_attention") is False:
        return heads
    inner = full.get("attn_config")
    written = whole(full, "num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
    written = written or (whole(inner, "kv_n_heads") if isinstance(inner, Mapping) else None)
    if written:
        return written
    types = _types()
    if model_type in types["heads_when_absent"]:
        return heads if text.get("num_key_value_heads") is None else None
    null = "num_key_value_heads" in text and text["num_key_value_heads"] is None
    return heads if null and model_type in types["heads_when_null"] else None


def _multimodal(config: Mapping[str, Any]) -> bool:
    keys = ("vision_config", "audio_config", "thinker_config", "visual", "vision_tower", "img_processor", "embd_layer")
    return any(isinstance(config.get(key), (Mapping, str)) for key in keys)


def _layer_words(
    config: Mapping[str, Any], layers: int | None, model_type: str
) -> tuple[tuple[str, ...], list[Finding]]:
    """Return one word a layer, `unknown` for all where a list of them does not fit the number of layers."""
    kinds = _kinds(config, layers, model_type)
    if layers is None or len(kinds) in (0, layers):
        return kinds, []
    return ("unknown",) * layers, [Finding.of("JSD483", listed=len(kinds), layers=layers)]


def _kinds(config: Mapping[str, Any], layers: int | None, model_type: str) -> tuple[str, ...]:
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return tuple(_HYBRID_LETTERS.get(letter, "unknown") for letter in pattern[:_MAX_LAYERS])
    if isinstance(config.get("block_configs"), (list, tuple)) or isinstance(config.get("linear_attn_config"), Mapping):
        # Layers of which each is another, and Kimi's delta attention: no formula for either.
        return ("unknown",) * (layers or 0)
    words = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(words, (list, tuple)):
        listed = tuple(_LAYER_WORDS.get(str(word), "unknown") for word in words[:_MAX_LAYERS])
        latent = _latent(config, model_type)
        if latent:
            listed = tuple(latent if word == "full" else word for word in listed)
        return listed[:layers] if layers else listed
    if not layers:
        return ()
    if model_type in _LISTS_LAYERS:
        return ("unknown",) * layers
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
    if model_type == "falcon_h1":
        return ("full+mamba2",) * layers
    attending = config.get("full_attn_idxs")
    if isinstance(attending, (list, tuple)):
        return tuple("full" if index in attending else "conv" for index in range(layers))
    if any(key.startswith(_RECURRENT_KEYS) and config[key] not in _OFF for key in config if isinstance(key, str)):
        # Some layers are recurrent, and which ones is said in a way that is not read here.
        return ("unknown",) * layers
    latent = _latent(config, model_type)
    return (latent,) * layers if latent else _attention_kinds(config, layers, model_type)


def _latent(config: Mapping[str, Any], model_type: str) -> str | None:
    """Return `mla` where vLLM caches a latent vector, `unknown` where it is not known to, None without one."""
    # A sparse indexer (DeepSeek 3.2) keeps keys of its own beside the latent vector.
    latent = model_type in _types()["latent_attention"] and config.get("index_topk") in _OFF
    if config.get("kv_lora_rank") is None:
        return "unknown" if model_type in _types()["latent_attention"] else None
    if model_type == "minicpm3":
        return "full"
    return "mla" if latent else "unknown"


def _attention_kinds(config: Mapping[str, Any], layers: int, model_type: str) -> tuple[str, ...]:
    chunk = whole(config, "attention_chunk_size")
    no_rope = config.get("no_rope_layers")
    if chunk and isinstance(no_rope, (list, tuple)) and len(no_rope) == layers:
        # Llama 4: layers with rotary positions attend in chunks, those without attend to everything.
        return tuple("chunked" if rotary else "full" for rotary in no_rope)
    if chunk and model_type == "llama4_text":
        interval = whole(config, "no_rope_layer_interval") or 4
        return tuple("full" if (index + 1) % interval == 0 else "chunked" for index in range(layers))
    window = whole(config, "sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return ("full",) * layers
    letters = config.get("sliding_window_pattern")
    if isinstance(letters, str) and letters and set(letters) <= {"L", "G"}:
        # EXAONE: L looks back a window, G at everything.
        return tuple("sliding" if letters[index % len(letters)] == "L" else "full" for index in range(layers))
    every = whole(config, "sliding_window_pattern", "_sliding_window_pattern")
    if every:
        return tuple("full" if (index + 1) % every == 0 else "sliding" for index in range(layers))
    first = whole(config, "max_window_layers")
    if first is not None:
        return tuple("sliding" if index >= first else "full" for index in range(layers))
    return ("sliding",) * layers
