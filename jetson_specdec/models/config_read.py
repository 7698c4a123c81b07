# SPDX-License-Identifier: Apache-2.0
"""What a `config.json` says about the shape of a language model: layers of each kind, heads, experts, states."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attrs import frozen

from jetson_specdec.packaged import packaged_json

__all__ = ["KVLayers", "MoE", "Shape", "StateLayers", "read_shape", "text_config"]

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "transformer_layer_config", "thinker_config")
_WINDOWED = {"sliding", "chunked"}
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


@frozen(kw_only=True)
class KVLayers:
    """Layers that keep keys and values, all of one kind and shape.

    Attributes:
        kind: `full`, `sliding`, `chunked` or `mla`.
        count: number of layers.
        elements_per_token: stored numbers per token and layer: kv_heads · (head_dim_k + head_dim_v), for MLA
            kv_lora_rank + qk_rope_head_dim (vLLM 0.32 `v1/kv_cache_interface.py`).
        window: tokens that `sliding` and `chunked` layers look back.
    """

    kind: str
    count: int
    elements_per_token: int
    window: int | None = None


@frozen(kw_only=True)
class StateLayers:
    """Layers that keep a recurrent state of fixed size per sequence (vLLM 0.32 `layers/mamba/mamba_utils.py`).

    Attributes:
        kind: `gdn`, `mamba2`, `mamba1` or `conv`.
        count: number of layers.
        conv_channels, conv_kernel: the short convolution: channels · (kernel − 1 + k) numbers.
        state_elements: numbers of the recurrent matrix.
        state_dtype_bytes: bytes of one of them where the config fixes it, else None (the model's dtype).
    """

    kind: str
    count: int
    conv_channels: int
    conv_kernel: int
    state_elements: int
    state_dtype_bytes: int | None = None


@frozen(kw_only=True)
class MoE:
    """Mixture of experts: `layers` of them, `experts` each, `top_k` read per token, `shared` ones always read."""

    layers: int
    experts: int
    top_k: int
    intermediate: int
    shared_intermediate: int = 0


@frozen(kw_only=True)
class Shape:
    """The numbers of a text model; None is unknown. `kinds` holds one word a layer."""

    config: Mapping[str, Any]
    model_type: str | None
    architecture: str | None
    layers: int | None
    hidden: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    intermediate: int | None
    vocab: int | None
    max_position: int | None
    tied: bool | None
    sliding_window: int | None
    kinds: tuple[str, ...]
    kv_layers: tuple[KVLayers, ...] | None
    state_layers: tuple[StateLayers, ...] | None
    moe: MoE | None
    moe_layers: frozenset[int]
    multimodal: bool
    defaulted: tuple[str, ...] = ()

    @property
    def is_mla(self) -> bool:
        """Whether attention is multi-head latent (one latent vector a token instead of keys and values)."""
        return "kv_lora_rank" in self.config and "qk_rope_head_dim" in self.config


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    data: dict[str, Any] = packaged_json("models", "data", "config_defaults.json")
    return data


def text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the language model's part of a config, and whether it sits inside a wrapper."""
    for key in _TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            deeper, _ = text_config(inner)
            return deeper, True
    return config, False


def first_text(value: Any) -> str | None:
    """Return the first entry of a list of texts, or None."""
    return str(value[0]) if isinstance(value, (list, tuple)) and value else None


def _int(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


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
    hidden = _int(full, "hidden_size", "n_embd", "d_model", "dim")
    heads = _int(full, "num_attention_heads", "n_head", "n_heads")
    head_dim = _int(full, "head_dim", "attention_head_dim")
    if head_dim is None and hidden and heads:
        head_dim = hidden // heads
    layers = _int(full, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    kinds = _kinds(full, layers)
    shape = Shape(
        config=full,
        model_type=model_type,
        architecture=first_text(config.get("architectures")) or first_text(text.get("architectures")),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_int(full, "num_key_value_heads", "n_head_kv", "num_kv_heads") or heads,
        head_dim=head_dim,
        intermediate=_int(full, "intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"),
        vocab=_int(full, "vocab_size") or _int(config, "vocab_size"),
        max_position=_int(full, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        tied=full.get("tie_word_embeddings") if isinstance(full.get("tie_word_embeddings"), bool) else None,
        sliding_window=_int(full, "sliding_window"),
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
    interval = _int(config, "full_attention_interval")
    if interval and "linear_num_value_heads" in config:
        return tuple("full" if (index + 1) % interval == 0 else "gdn" for index in range(layers))
    period = _int(config, "attn_layer_period")
    if period:
        offset = _int(config, "attn_layer_offset") or 0
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
    chunk = _int(config, "attention_chunk_size")
    no_rope = config.get("no_rope_layers")
    if chunk and isinstance(no_rope, (list, tuple)) and len(no_rope) == layers:
        # Llama 4: layers with rotary positions attend in chunks, those without attend to everything.
        return tuple("chunked" if rotary else "full" for rotary in no_rope)
    window = _int(config, "sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return ("full",) * layers
    every = _int(config, "sliding_window_pattern", "_sliding_window_pattern")
    if every:
        return tuple("full" if (index + 1) % every == 0 else "sliding" for index in range(layers))
    first = _int(config, "max_window_layers")
    if first is not None:
        return tuple("sliding" if index >= first else "full" for index in range(layers))
    return ("sliding",) * layers


def _kv_layers(shape: Shape) -> tuple[KVLayers, ...] | None:
    """Group the layers that hold keys and values; None when a needed number is missing."""
    config = shape.config
    if not shape.kinds or "unknown" in shape.kinds:
        return None
    shared = _int(config, "num_kv_shared_layers") or 0
    own = shape.kinds[: len(shape.kinds) - shared] if shared else shape.kinds
    counts: dict[str, int] = {}
    for kind in own:
        attention = kind.split("+", maxsplit=1)[0]
        if attention in ("full", "sliding", "chunked", "mla"):
            name = "mla" if attention == "full" and shape.is_mla else attention
            counts[name] = counts.get(name, 0) + 1
    groups: list[KVLayers] = []
    for kind, count in counts.items():
        elements = _elements(shape, kind)
        if elements is None:
            return None
        window = None
        if kind in _WINDOWED:
            window = _int(config, "attention_chunk_size") if kind == "chunked" else shape.sliding_window
            if window is None:
                return None
        groups.append(KVLayers(kind=kind, count=count, elements_per_token=elements, window=window))
    return tuple(groups)


def _elements(shape: Shape, kind: str) -> int | None:
    config = shape.config
    if kind == "mla":
        rank, rope = _int(config, "kv_lora_rank"), _int(config, "qk_rope_head_dim")
        return None if rank is None or rope is None else rank + rope
    heads, dim = shape.kv_heads, shape.head_dim
    if kind == "full":
        # Gemma 4 gives its global layers another shape.
        dim = _int(config, "global_head_dim") or dim
        heads = _int(config, "num_global_key_value_heads") or heads
    if heads is None or dim is None:
        return None
    return heads * (dim + (_int(config, "v_head_dim") or dim))


def _state_layers(shape: Shape) -> tuple[StateLayers, ...] | None:
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
        keys, values = _int(config, "linear_num_key_heads"), _int(config, "linear_num_value_heads")
        key_dim, value_dim = _int(config, "linear_key_head_dim"), _int(config, "linear_value_head_dim")
        kernel = _int(config, "linear_conv_kernel_dim")
        if not (keys and values and key_dim and value_dim and kernel):
            return None
        return 2 * keys * key_dim + values * value_dim, kernel, values * value_dim * key_dim
    if kind == "mamba2":
        heads = _int(config, "mamba_num_heads", "mamba_n_heads")
        dim = _int(config, "mamba_head_dim", "mamba_d_head")
        state, groups = _int(config, "ssm_state_size", "mamba_d_state"), _int(config, "n_groups", "mamba_n_groups")
        kernel = _int(config, "conv_kernel", "mamba_d_conv")
        if not (heads and dim and state and groups and kernel):
            return None
        return heads * dim + 2 * groups * state, kernel, heads * dim * state
    if kind == "mamba1":
        expand, state = _int(config, "mamba_expand"), _int(config, "mamba_d_state")
        kernel = _int(config, "mamba_d_conv")
        if not (hidden and expand and state and kernel):
            return None
        return expand * hidden, kernel, expand * hidden * state
    kernel = _int(config, "conv_L_cache")
    return (hidden, kernel, 0) if hidden and kernel else None


def _moe(shape: Shape) -> tuple[MoE | None, frozenset[int]]:
    config = shape.config
    experts = _int(config, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    top_k = _int(
        config, "num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts", "experts_per_token"
    )
    if not experts or experts < 2 or not top_k or not shape.layers:
        return None, frozenset()
    size = _int(config, "moe_intermediate_size", "expert_ffn_hidden_size") or shape.intermediate
    if not size:
        return None, frozenset()
    shared = _int(config, "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    if shared is None:
        shared = (_int(config, "n_shared_experts", "num_shared_experts") or 0) * size
    which = frozenset(index for index in range(len(shape.kinds)) if _is_moe_layer(shape, index))
    moe = MoE(layers=len(which), experts=experts, top_k=top_k, intermediate=size, shared_intermediate=shared)
    return moe, which


def _is_moe_layer(shape: Shape, index: int) -> bool:
    config = shape.config
    if isinstance(config.get("hybrid_override_pattern"), str):
        return shape.kinds[index] == "moe"
    dense = config.get("mlp_only_layers")
    if isinstance(dense, (list, tuple)) and index in dense:
        return False
    listed = config.get("moe_layers")
    if isinstance(listed, (list, tuple)):
        return index in listed
    if index < (_int(config, "first_k_dense_replace") or 0):
        return False
    step = _int(config, "decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step") or 1
    if step <= 1:
        return True
    return (index + 1) % step == 0
