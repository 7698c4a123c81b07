# SPDX-License-Identifier: Apache-2.0
"""The shape of a language model as values: layers of each kind, experts, recurrent states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["KVLayers", "MoE", "Shape", "StateLayers"]


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
    """Mixture of experts; None is a number that the config holds in a form that cannot be read.

    Attributes:
        layers: layers that have experts.
        experts: experts in each of them.
        top_k: experts read per token.
        intermediate: inner size of one expert.
        shared_intermediate: inner size of all that is read always.
    """

    layers: int
    experts: int | None
    top_k: int | None
    intermediate: int | None
    shared_intermediate: int = 0

    @property
    def known(self) -> bool:
        """Whether weights can be counted from these numbers."""
        return None not in (self.experts, self.top_k, self.intermediate)

    @property
    def fraction(self) -> float | None:
        """Share of the experts that one token reads; None when unknown."""
        return None if self.top_k is None or not self.experts else self.top_k / self.experts


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
    notes: tuple[Finding, ...] = ()

    @property
    def is_mla(self) -> bool:
        """Whether vLLM keeps one latent vector a token instead of keys and values."""
        return "mla" in self.kinds
