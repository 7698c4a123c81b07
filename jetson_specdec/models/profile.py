# SPDX-License-Identifier: Apache-2.0
"""What a served model needs of memory: weights, keys and values per token, recurrent state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs

from jetson_specdec.findings import Finding
from jetson_specdec.models.core import DraftPair, Head, TargetRecord
from jetson_specdec.models.draft_config import DraftConfig, read_draft_config
from jetson_specdec.models.memory import weights_of
from jetson_specdec.models.quantization import Quantization, dtype_bytes, kv_dtype_bytes, read_quantization
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.models.safetensors_read import TensorInfo, WeightSizes
    from jetson_specdec.models.shape import KVLayers, MoE, Shape, StateLayers

__all__ = [
    "BytesSource",
    "ModelProfile",
    "profile_from_catalogue",
    "profile_from_config",
    "profile_from_draft",
    "profile_from_head",
    "profile_of_drafter",
]

BytesSource = Literal["headers", "formula", "catalogue"]


@frozen(kw_only=True)
class ModelProfile:
    """A model as far as memory and pairing go. None is unknown throughout; sizes are bytes.

    Attributes:
        id: repository id or path, as far as the caller knew it.
        bytes_source: where the weight sizes come from.
        weight_bytes: what vLLM loads; for a head without the embedding it shares with its target.
        weight_bytes_active: what one generated token reads (of a mixture of experts the chosen ones; the input
            embedding and a vision tower are not read).
        embedding_bytes, head_bytes, expert_bytes, vision_bytes: parts of `weight_bytes`.
        layers, hidden_size, intermediate_size, vocab_size, max_position_embeddings: config numbers.
        kv_layers, state_layers: layers by what they keep; None when unknown.
        kv_bytes_bf16: bytes per token of the layers that keep every token, in bf16.
        dtype: dtype the model is served in with `--dtype auto`.
        precision: of most weights: `bf16`, `fp8`, `w4a16`, `nvfp4`, `mxfp4`, …
        remote_code: whether the config names code of its own (`auto_map`).
        draft: what the config of a drafter says about its target; None for ordinary models.
        files: names of the safetensors files that were read.
        incomplete: whether the files are not all there, or end early.
    """

    id: str | None = None
    model_type: str | None = None
    architecture: str | None = None
    bytes_source: BytesSource | None = None
    weight_bytes: int | None = None
    weight_bytes_active: int | None = None
    embedding_bytes: int | None = None
    head_bytes: int | None = None
    expert_bytes: int | None = None
    vision_bytes: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    vocab_size: int | None = None
    max_position_embeddings: int | None = None
    kv_layers: tuple[KVLayers, ...] | None = None
    state_layers: tuple[StateLayers, ...] | None = None
    kv_bytes_bf16: int | None = None
    dtype: str | None = None
    precision: str | None = None
    quantization: Quantization | None = None
    moe: MoE | None = None
    hybrid: bool | None = None
    multimodal: bool | None = None
    tied: bool | None = None
    remote_code: bool | None = None
    draft: DraftConfig | None = None
    files: tuple[str, ...] = ()
    incomplete: bool = False
    sources: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    def kv_element_bytes(self, kv_dtype: str | None = "auto") -> int | None:
        """Return bytes of one stored number for a `--kv-cache-dtype`.

        `auto` is what the checkpoint asks for (ModelOpt and compressed-tensors can), else the model's dtype. A
        checkpoint that asks for a format whose size is not known here has none.
        """
        if kv_dtype in (None, "auto"):
            asked = self.quantization.kv_cache if self.quantization else None
            return kv_dtype_bytes(asked or self.dtype)
        return kv_dtype_bytes(kv_dtype)

    def kv_bytes_per_token(self, kv_dtype: str | None = "auto", max_model_len: int | None = None) -> int | None:
        """Return what one more token costs in the layers that keep all tokens; None when unknown, never 0.

        Layers with a window keep at most that many tokens and are left out, unless nothing beyond it is served
        (`max_model_len`) or every layer has one: then this is what a token costs until the shortest window is full.
        """
        size = self.kv_element_bytes(kv_dtype)
        if size is None:
            return None
        if self.kv_layers is None:
            return None if self.kv_bytes_bf16 is None else self.kv_bytes_bf16 * size // 2
        return _kv_elements(self.kv_layers, max_model_len) * size or None

    def state_bytes_per_sequence(self, k: int = 0) -> int | None:
        """Return the recurrent state of one sequence: (1 + k) copies, each with k more convolution columns.

        0 for models without recurrent layers, None when unknown. Source: vLLM 0.32 `MambaSpec.max_memory_usage_bytes`
        and `MambaStateShapeCalculator` (`mamba_cache_mode` none; `align` takes one more copy).
        """
        if self.state_layers is None:
            return None
        size = kv_dtype_bytes(self.dtype)
        if not self.state_layers:
            return 0
        if size is None:
            return None
        return sum(
            group.count * (1 + k) * (
                group.conv_channels * (group.conv_kernel - 1 + k) * size
                + group.state_elements * (group.state_dtype_bytes or size)
            )
            for group in self.state_layers
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form: the numbers, the sources, the findings."""
        data = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "findings")
        data["findings"] = [finding.to_json() for finding in self.findings]
        return data


def profile_from_config(
    config: Mapping[str, Any],
    *,
    id: str | None = None,
    headers: Iterable[TensorInfo] | None = None,
    quantization: Mapping[str, Any] | str | None = None,
    dtype: str | None = None,
    files: tuple[str, ...] = (),
    source: str = "config.json",
) -> ModelProfile:
    """Make a profile from a parsed `config.json`.

    Args:
        config: the model's (or head's) config; a multimodal wrapper's is looked into.
        id: repository id or path.
        headers: all tensors of the checkpoint; without them sizes come from a formula.
        quantization: content of `hf_quant_config.json` (ModelOpt), where the config itself says nothing; or the
            value of `--quantization`, which counts (`fp8` while loading) where the checkpoint is not quantised.
        dtype: value of `--dtype` other than `auto`.
        files: names of the files the headers come from.
        source: where the config was read.
    """
    # What reads configs and counts parameters is not needed for a model that the catalogue knows.
    from jetson_specdec.models.config_read import read_shape
    from jetson_specdec.models.config_values import text_config
    from jetson_specdec.models.safetensors_read import dtype_of_files, weight_sizes

    shape = read_shape(config)
    text, _ = text_config(config)
    beside = quantization if isinstance(quantization, Mapping) else None
    found = read_quantization(config, beside) or read_quantization(text, beside)
    while_loading = found is None and quantization == "fp8"
    if while_loading:
        found = Quantization(precision="fp8", method="fp8", bits=8, group_size=0)
    named = dtype or text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or config.get("dtype")
    served, size = dtype_bytes(named)
    if served == "fp32" and dtype is None:
        served, size = "bf16", 2  # vLLM serves 32-bit checkpoints in 16 bits unless told otherwise
    draft = read_draft_config(config)
    # What vLLM quantises while loading is not what the files hold: only the formula knows its size.
    tensors = tuple(headers) if headers is not None and not while_loading else None
    if served is None and tensors:
        served, size = dtype_bytes(dtype_of_files(tensors))
    sizes = None
    if tensors:
        sizes = weight_sizes(
            tensors,
            dtype_bytes=size,
            quantized=found is not None,
            tied=bool(shape.tied),
            layers=None if draft is not None else shape.layers,
        )
    profile = ModelProfile(
        id=id,
        model_type=shape.model_type,
        architecture=shape.architecture,
        layers=shape.layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        vocab_size=shape.vocab,
        max_position_embeddings=shape.max_position,
        kv_layers=shape.kv_layers,
        state_layers=shape.state_layers,
        kv_bytes_bf16=None if shape.kv_layers is None else _kv_elements(shape.kv_layers) * 2 or None,
        dtype=served,
        precision=found.precision if found else served,
        quantization=found,
        moe=shape.moe,
        hybrid=None if shape.state_layers is None else bool(shape.state_layers),
        multimodal=shape.multimodal,
        tied=shape.tied,
        remote_code=bool(config.get("auto_map") or text.get("auto_map")),
        draft=draft,
        files=files,
        sources=(source, *(f"library default: {name}" for name in shape.defaulted)),
        findings=shape.notes,
    )
    if sizes is not None:
        return _with_headers(profile, sizes)
    if draft is not None:
        return _with_head_formula(profile, shape, draft, size)
    return _with_formula(profile, shape, config, size)


def _kv_elements(groups: tuple[KVLayers, ...], max_model_len: int | None = None) -> int:
    kept = [
        group.count * group.elements_per_token
        for group in groups
        if group.window is None or (max_model_len is not None and group.window >= max_model_len)
    ]
    return sum(kept) or sum(group.count * group.elements_per_token for group in groups)


def _with_headers(profile: ModelProfile, sizes: WeightSizes) -> ModelProfile:
    is_head = profile.draft is not None
    # A head's embedding is the target's: vLLM keeps one of the two when they are equal.
    loaded = sizes.loaded - (sizes.embedding if is_head else 0)
    reads_embedding = bool(profile.tied) and not is_head
    active: int | None = loaded - sizes.vision - sizes.lookup - (0 if is_head or reads_embedding else sizes.embedding)
    moe = profile.moe
    if moe is not None and not moe.known:
        active = None
    elif moe is not None and sizes.experts and active is not None:
        active -= sizes.experts - sizes.experts * (moe.top_k or 0) // (moe.experts or 1)
    findings = []
    if sizes.mtp:
        findings.append(Finding.of("JSD472", bytes=sizes.mtp))
    if sizes.speech:
        findings.append(Finding.of("JSD447", bytes=sizes.speech))
    if is_head and sizes.embedding:
        findings.append(Finding.of("JSD473", bytes=sizes.embedding))
    return attrs.evolve(
        profile,
        bytes_source="headers",
        weight_bytes=loaded,
        weight_bytes_active=active,
        embedding_bytes=sizes.embedding + sizes.lookup,
        head_bytes=sizes.head,
        expert_bytes=sizes.experts,
        vision_bytes=sizes.vision,
        findings=(*profile.findings, *findings),
    )


def _with_head_formula(profile: ModelProfile, shape: Shape, draft: DraftConfig, size: int | None) -> ModelProfile:
    vocab = draft.draft_vocab_size or shape.vocab
    numbers = (shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.intermediate, vocab, size)
    if draft.method != "eagle3" or any(number is None for number in numbers):
        return attrs.evolve(profile, findings=(*profile.findings, Finding.of("JSD471", id=profile.id)))
    from jetson_specdec.models.parameters import count_head_parameters

    hidden, heads, kv_heads, dim, inner, vocab, size = (int(number or 0) for number in numbers)
    count = count_head_parameters(
        hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=dim, intermediate=inner, draft_vocab=vocab,
        layers=shape.layers or 1, target_hidden=draft.target_hidden_size, aux_layers=len(draft.aux_layers or ()) or 3,
    )  # fmt: skip
    return attrs.evolve(
        profile,
        bytes_source="formula",
        weight_bytes=count * size,
        weight_bytes_active=count * size,
        head_bytes=vocab * hidden * size,
    )


def _with_formula(profile: ModelProfile, shape: Shape, config: Mapping[str, Any], size: int | None) -> ModelProfile:
    from jetson_specdec.models.config_read import formula_verified
    from jetson_specdec.models.parameters import count_parameters, vision_parameters

    count = count_parameters(shape)
    each = _bytes_per_weight(profile.quantization, size)
    if count is None or each is None or size is None:
        unverified = shape.model_type is not None and not formula_verified(shape.model_type)
        why = Finding.of("JSD481" if unverified else "JSD471", id=profile.id, model_type=shape.model_type)
        return attrs.evolve(profile, findings=(*profile.findings, why))
    vision = 0
    findings = []
    if profile.multimodal:
        # An audio tower is not estimated.
        estimated = None if isinstance(config.get("audio_config"), Mapping) else vision_parameters(config)
        if estimated is None:
            return attrs.evolve(profile, findings=(*profile.findings, Finding.of("JSD471", id=profile.id)))
        vision = estimated * size
        findings.append(Finding.of("JSD470", bytes=vision))
    quantization = profile.quantization
    if quantization is not None and quantization.layers_ignored:
        findings.append(Finding.of("JSD474", ignored=list(quantization.ignored[:4]), count=len(quantization.ignored)))
    # Of models in MXFP4 only the experts are quantised.
    only_experts = quantization is not None and quantization.method == "mxfp4" and count.experts > 0
    linear = round(count.linear * (size if only_experts else each))
    experts, active = round(count.experts * each), round(count.experts_active * each)
    head_each = each if quantization is not None and quantization.head_quantized else float(size)
    head, embedding = round(count.head * head_each), (count.embedding + count.lookup) * size
    rest = count.other * size
    return attrs.evolve(
        profile,
        bytes_source="formula",
        weight_bytes=linear + experts + head + embedding + rest + vision,
        weight_bytes_active=linear + active + rest + (head if count.head else embedding - count.lookup * size),
        embedding_bytes=embedding,
        head_bytes=head,
        expert_bytes=experts,
        vision_bytes=vision,
        findings=(*profile.findings, *findings),
    )


def _bytes_per_weight(quantization: Quantization | None, size: int | None) -> float | None:
    return quantization.bytes_per_weight if quantization is not None else size


def profile_from_catalogue(record: TargetRecord, precision: str | None = None) -> ModelProfile:
    """Make a profile of a catalogued model in one of its precisions (None: the base repository's own)."""
    chosen = precision or record.native_precision or "bf16"
    total = weights_of(record, precision)
    # Heads and KV stay in 16 bits whatever the weights' precision is.
    served = chosen if chosen in ("bf16", "fp16", "fp32") else "bf16"
    embedding = None
    if record.vocab_size is not None and record.hidden_size is not None:
        embedding = record.vocab_size * record.hidden_size * 2
    return ModelProfile(
        id=record.id,
        model_type=record.model_type,
        architecture=record.architecture,
        bytes_source="catalogue" if total is not None else None,
        weight_bytes=total,
        layers=record.layers,
        hidden_size=record.hidden_size,
        vocab_size=record.vocab_size,
        max_position_embeddings=record.max_position_embeddings,
        embedding_bytes=embedding,
        kv_bytes_bf16=record.kv_bytes_per_token,
        state_layers=() if record.hybrid is False else None,
        dtype=served,
        precision=chosen,
        hybrid=record.hybrid,
        multimodal=record.multimodal,
        sources=record.sources,
    )


def profile_from_head(head: Head) -> ModelProfile:
    """Make a profile of a catalogued head; its numbers are the catalogue's."""
    return ModelProfile(
        id=head.id,
        bytes_source="catalogue" if head.resident_bytes is not None else None,
        weight_bytes=head.resident_bytes,
        weight_bytes_active=head.resident_bytes,
        max_position_embeddings=head.max_position_embeddings,
        kv_bytes_bf16=head.kv_bytes_per_token,
        state_layers=(),
        dtype="bf16",
        draft=DraftConfig(method=head.method, format=head.format, verifier=head.target, native_k=head.native_k),
        sources=head.sources,
    )


def profile_from_draft(pair: DraftPair) -> ModelProfile:
    """Make a profile of a catalogued draft model; its numbers are the catalogue's."""
    return ModelProfile(
        id=pair.draft,
        bytes_source="catalogue" if pair.resident_bytes is not None else None,
        weight_bytes=pair.resident_bytes,
        weight_bytes_active=pair.resident_bytes,
        vocab_size=pair.draft_vocab_size,
        kv_bytes_bf16=pair.kv_bytes_per_token,
        state_layers=(),
        dtype="bf16",
        sources=pair.sources,
    )


def profile_of_drafter(drafter: ModelProfile | Head | DraftPair | None) -> ModelProfile | None:
    """Return the profile of whatever drafts: that of a catalogue entry's numbers, a profile as it is, None for None."""
    if isinstance(drafter, Head):
        return profile_from_head(drafter)
    if isinstance(drafter, DraftPair):
        return profile_from_draft(drafter)
    return drafter
