# SPDX-License-Identifier: Apache-2.0
"""What is served, and what could draft for it, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field

from jetson_specdec.values import frozen

__all__ = ["AcceptanceRecord", "DraftPair", "Head", "LoadsInVllm", "TargetIdentity", "TargetRecord"]

LoadsInVllm = Literal["tested", "documented", "unknown"]
"""`tested`: someone ran this head with this target in vLLM and published it (vLLM's own tests count); `documented`: its
card or vLLM's recipes say how to run it in vLLM; `unknown`: neither."""


@frozen(kw_only=True)
class AcceptanceRecord:
    """A published acceptance of one head or draft.

    Attributes:
        benchmark: data set and conditions as published.
        num_speculative_tokens: k it was measured with, or None.
        mean_length: mean acceptance length, bonus token counted, or None.
        per_position: acceptance at each position, unconditional, or None.
        source: where it was published.
    """

    benchmark: str
    num_speculative_tokens: int | None = None
    mean_length: float | None = None
    per_position: tuple[float, ...] | None = None
    source: str | None = None


@frozen(kw_only=True)
class Head:
    """A published drafter that is trained for one target (EAGLE-3, and other methods as data).

    Attributes:
        id: repository id.
        target: repository id of the model it was trained for.
        method: vLLM's method name (`eagle3`, `dflash`, `dspark`).
        loads_in_vllm: what is known about loading it in vLLM; decides whether it is chosen by itself.
        evidence: what `loads_in_vllm` rests on, or None.
        min_vllm: first release that loads it, or None.
        licence: SPDX-like id, or None when not known.
        gated: whether the repository asks for a licence click, or None.
        download_bytes: size of its weight files, or None.
        resident_bytes: what it adds to GPU memory (embedding shared with the target not counted), or None.
        kv_bytes_per_token: what its layers add per token in bf16, or None.
        size_status: `published` or `computed` for the two sizes.
        max_position_embeddings: of the head's config, or None.
        native_k: `num_speculative_tokens` stored in the repository, or None.
        format: `speculators`, `eagle`, or None.
        extra_config: further speculative-config keys the method needs (such as `parallel_drafting`).
        acceptance: published acceptance.
        notes: remarks worth showing.
        sources: where this entry comes from.
        confidence: `high`, `medium` or `low`.
        id_verified: whether the id was seen in a primary source.
    """

    id: str
    target: str
    method: str = "eagle3"
    loads_in_vllm: LoadsInVllm = "unknown"
    evidence: str | None = None
    min_vllm: str | None = None
    licence: str | None = None
    gated: bool | None = None
    download_bytes: int | None = None
    resident_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    size_status: str | None = None
    max_position_embeddings: int | None = None
    native_k: int | None = None
    format: str | None = None
    extra_config: Mapping[str, Any] = field(factory=dict)
    acceptance: tuple[AcceptanceRecord, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    confidence: str = "low"
    id_verified: bool = False


@frozen(kw_only=True)
class DraftPair:
    """A small model of the same family that could draft for a target.

    Attributes:
        target, draft: repository ids.
        target_vocab_size, draft_vocab_size: sizes vLLM compares.
        min_vllm: first release whose `draft_model` takes the pair, or None.
        usable: whether it may be proposed by itself; False for unequal vocabularies and for pairs that cannot gain.
        why_not: a word for it (`vocab-mismatch`, `draft-too-large`, `no-gain-expected`, `multimodal`,
            `chat-format-differs`), or None.
        weight_ratio: draft bytes read per token ÷ the target's, both in the same precision; computed, or None.
        loads_in_vllm, evidence: as for heads.
    """

    target: str
    draft: str
    target_vocab_size: int | None = None
    draft_vocab_size: int | None = None
    min_vllm: str | None = None
    usable: bool = False
    why_not: str | None = None
    loads_in_vllm: LoadsInVllm = "unknown"
    evidence: str | None = None
    licence: str | None = None
    gated: bool | None = None
    download_bytes: int | None = None
    resident_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    size_status: str | None = None
    weight_ratio: float | None = None
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    confidence: str = "low"


@frozen(kw_only=True)
class TargetRecord:
    """What the catalogue knows of a model that is served.

    Attributes:
        id: repository id of the base (unquantised) model.
        model_type: `model_type` of its (text) config, as vLLM's EAGLE-3 check reads it.
        architecture: first of its `architectures`.
        vocab_size, layers, hidden_size, max_position_embeddings: config numbers.
        moe, multimodal, hybrid: what kind of model, None when unknown.
        native_precision: what the base repository itself is stored in where that is not bf16 (`mxfp4`), or None.
        weight_bytes: precision (`bf16`, `fp8`, `w4a16`, `nvfp4`, `mxfp4`) → bytes, computed; empty where not known
            (of models with a vision part the size of that part is not).
        params_total, params_active: parameters of the text model, and those read for one token, or None.
        kv_bytes_per_token: bf16.
        variants: repository id of a quantised copy → precision.
        gated: whether the base repository is gated.
        sources: where the numbers come from.
        confidence: `high`, `medium`, `low`.
    """

    id: str
    model_type: str | None = None
    architecture: str | None = None
    vocab_size: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    max_position_embeddings: int | None = None
    moe: bool | None = None
    multimodal: bool | None = None
    hybrid: bool | None = None
    native_precision: str | None = None
    weight_bytes: Mapping[str, int] = field(factory=dict)
    params_total: int | None = None
    params_active: int | None = None
    kv_bytes_per_token: int | None = None
    variants: Mapping[str, str] = field(factory=dict)
    gated: bool | None = None
    sources: tuple[str, ...] = ()
    confidence: str = "low"


@frozen(kw_only=True)
class TargetIdentity:
    """Which model a recipe serves, and how that was found out.

    Attributes:
        served: the text of the recipe (repository id or path).
        id: repository id of what is served where that is known, else None. A quantised copy keeps its own id, an
            older name its spelling; an id the catalogue does not know is still the id of what is served.
        base: repository id that heads and drafts are published for (of a quantised copy: the original), or None. It
            can be known without `id`: a local folder that holds some quantised copy of a known model.
        precision: of the served copy where known.
        how: `exact`, `variant`, `cache_path`, `path_name`, `local_config`, `named` (by the user), `speculators`,
            `unknown`.
        config: the model's `config.json` where a local one was read.
        confidence: how sure that is (`high`: the recipe or a hub cache names the repository; `medium`: a folder's name
            or a naming convention does; `low`: another organisation's copy under the original's name), or None.
        head: the drafter's repository that was named as the model (`how` is then `speculators`), or None.
        remarks: words for what was noticed: `alias`, `renamed`, `gguf`, `object-store`, `ambiguous`,
            `third-party-copy`, `config-disagrees`, `config-unreadable` (a `config.json` that is no JSON object).
        near_misses: known ids that look like a misspelt one.
        looked_in: host paths that were looked up, and what was there, in order (`path: found|absent|…`).
        folder: host path of the model's directory where one was read, or None.
    """

    served: str | None
    id: str | None = None
    base: str | None = None
    precision: str | None = None
    how: str = "unknown"
    config: Mapping[str, Any] | None = None
    confidence: str | None = None
    head: str | None = None
    remarks: tuple[str, ...] = ()
    near_misses: tuple[str, ...] = ()
    looked_in: tuple[str, ...] = ()
    folder: str | None = None
