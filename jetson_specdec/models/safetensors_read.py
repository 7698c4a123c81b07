# SPDX-License-Identifier: Apache-2.0
"""Sizes from safetensors headers: the first bytes of each file, never the weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jetson_specdec.errors import ModelError
from jetson_specdec.host import Host
from jetson_specdec.values import frozen

__all__ = [
    "TensorInfo",
    "WeightSizes",
    "check_tensors",
    "dtype_of_files",
    "parse_header",
    "read_headers",
    "weight_sizes",
]

MAX_HEADER_BYTES = 100 * 2**20
"""The safetensors format allows no larger header."""

_VISION = (
    "visual.", "vision_", "vision.", "multi_modal_projector", "mm_projector", "audio_", "embed_vision", "embed_audio",
    "embed_tokens_extend.", ".lora_A.", ".lora_B.",
)  # fmt: skip
_SPEECH = ("talker.", "code2wav.", "token2wav.")
"""Parts of Omni models that make speech: vLLM's text server does not load them."""

_FUSED_EXPERTS = (
    ".experts.", ".block_sparse_moe.input_linear.", ".block_sparse_moe.output_linear.", ".moe.gate_proj.",
    ".moe.up_proj.", ".moe.down_proj.",
)  # fmt: skip
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64, "F4": 4,
}  # fmt: skip
"""Bits of one element of the format's dtypes; others are not checked."""


@frozen
class TensorInfo:
    """One tensor of a checkpoint: name, dtype as the format writes it, shape, bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file_bytes: int

    @property
    def elements(self) -> int:
        """Number of stored elements (packed formats store several weights in one)."""
        count = 1
        for size in self.shape:
            count *= size
        return count


@frozen(kw_only=True)
class WeightSizes:
    """Bytes of a checkpoint by what happens to them when vLLM loads it.

    Attributes:
        loaded: what ends up in memory: everything but `mtp` and `speech`, with 32-bit floats cast to the model's dtype.
        embedding: input embedding, part of `loaded`.
        head: output projection, part of `loaded`; 0 where there is none in the file or it is tied.
        experts: routed experts, part of `loaded`.
        vision: vision or audio tower, part of `loaded`; read for images, not for each token.
        mtp: layers for multi-token prediction, which vLLM loads for `method: mtp` only.
        lookup: embeddings of each layer (Gemma 3n and 4 E), part of `loaded`; a row a token is read.
        speech: parts that make speech, not loaded by a text server.
        file_bytes: the files' tensors as they are.
    """

    loaded: int
    embedding: int
    head: int
    experts: int
    vision: int
    mtp: int
    file_bytes: int
    lookup: int = 0
    speech: int = 0


def parse_header(data: bytes, *, where: str) -> tuple[TensorInfo, ...]:
    """Parse the start of a safetensors file (8-byte length, then JSON).

    Args:
        data: the file from its first byte, at least to the end of the header.
        where: shown in errors.

    Raises:
        ModelError: this is not a safetensors header, or not all of it.
    """
    if len(data) < 8:
        raise ModelError("JSE457", path=where)
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise ModelError("JSE458", path=where, length=length)
    if len(data) < 8 + length:
        raise ModelError("JSE459", path=where, present=len(data), needed=8 + length)
    try:
        content = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise ModelError("JSE460", path=where) from error
    if not isinstance(content, dict):
        raise ModelError("JSE461", path=where)
    return tuple(_tensor(name, entry, where) for name, entry in content.items() if name != "__metadata__")


def _tensor(name: str, entry: Any, where: str) -> TensorInfo:
    try:
        numbers = [*entry["data_offsets"], *entry["shape"]]
        start, end, *shape = numbers
        named = entry["dtype"]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError("JSE462", path=where, tensor=name) from error
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not whole or not isinstance(named, str) or len(entry["data_offsets"]) != 2:
        raise ModelError("JSE462", path=where, tensor=name)
    if min(numbers) < 0 or end < start:
        raise ModelError("JSE463", path=where, tensor=name)
    return TensorInfo(name, named, tuple(shape), end - start)


def dtype_of_files(tensors: Iterable[TensorInfo]) -> str | None:
    """Return the dtype that most bytes of a checkpoint are stored in, as vLLM does when the config names none."""
    names = {"BF16": "bfloat16", "F16": "float16", "F32": "bfloat16"}
    sums: dict[str, int] = {}
    for tensor in tensors:
        if tensor.dtype in names:
            sums[tensor.dtype] = sums.get(tensor.dtype, 0) + tensor.file_bytes
    return names[max(sums, key=sums.__getitem__)] if sums else None


def check_tensors(tensors: Iterable[TensorInfo], *, where: str) -> None:
    """Compare the place each tensor takes with what its shape and dtype need.

    Raises:
        ModelError: they differ: the file is damaged or made up.
    """
    for tensor in tensors:
        bits = _BITS.get(tensor.dtype)
        needed = None if bits is None else -(-tensor.elements * bits // 8)
        if needed is not None and needed != tensor.file_bytes:
            raise ModelError("JSE465", path=where, tensor=tensor.name, needed=needed, present=tensor.file_bytes)


def read_headers(
    host: Host, folder: str, names: Iterable[str]
) -> tuple[tuple[TensorInfo, ...], tuple[str, ...]] | None:
    """Read the headers of a local checkpoint's files.

    Returns:
        The tensors, and the files that end before their last tensor does; None when a file cannot be read.

    Raises:
        ModelError: a file is not safetensors (a Git LFS pointer, a broken download).
    """
    tensors: list[TensorInfo] = []
    short: list[str] = []
    for name in names:
        path = f"{folder.rstrip('/')}/{name}"
        first = host.read_bytes(path, limit=8)
        if first is None:
            return None
        length = int.from_bytes(first, "little")
        # One byte more than the header tells whether any weights follow.
        data = host.read_bytes(path, limit=9 + min(length, MAX_HEADER_BYTES)) or first
        own = parse_header(data, where=path)
        check_tensors(own, where=path)
        tensors.extend(own)
        measure = getattr(host, "file_size", None)
        size = measure(path) if measure is not None else None
        expected = sum(tensor.file_bytes for tensor in own)
        if expected and (len(data) if size is None else size) < 8 + length + (1 if size is None else expected):
            short.append(name)
    return tuple(tensors), tuple(short)


def weight_sizes(
    tensors: Iterable[TensorInfo], *, dtype_bytes: int | None, quantized: bool, tied: bool, layers: int | None = None
) -> WeightSizes:
    """Add up a checkpoint.

    Args:
        tensors: all tensors of all files.
        dtype_bytes: size of the dtype the model is served in; None keeps the file's.
        quantized: whether 32-bit tensors may be scales, which stay as they are.
        tied: whether the output projection is the embedding, so that one in the file is not loaded.
        layers: layers the config counts: layers from this number on are for multi-token prediction; None for heads.
    """
    sums = dict.fromkeys(("embedding", "head", "experts", "vision", "mtp", "lookup", "speech", "other"), 0)
    in_file = 0
    for tensor in tensors:
        in_file += tensor.file_bytes
        part = _part(tensor.name, layers)
        size = tensor.file_bytes
        if not quantized and dtype_bytes and tensor.dtype == "F32":
            size = tensor.elements * min(dtype_bytes, 4)
        if part == "head" and tied:
            continue
        sums[part] += size
    return WeightSizes(
        loaded=sum(size for part, size in sums.items() if part not in ("mtp", "speech")),
        embedding=sums["embedding"],
        head=sums["head"],
        experts=sums["experts"],
        vision=sums["vision"],
        mtp=sums["mtp"],
        file_bytes=in_file,
        lookup=sums["lookup"],
        speech=sums["speech"],
    )


def _part(name: str, layers: int | None) -> str:
    if name.startswith(_SPEECH):
        return "speech"
    if name.startswith("mtp.") or ".mtp." in name or ".mtp_" in name:
        return "mtp"
    if any(word in name for word in _VISION):
        return "vision"
    if layers and _beyond(name, layers):
        return "mtp"
    if name.startswith("lm_head.") or ".lm_head." in name or name.endswith("output_layer.weight"):
        return "head"
    if "embed_tokens_per_layer." in name:
        return "lookup"
    if any(word in name for word in ("embed_tokens.", "word_embeddings.", ".wte.", "embeddings.weight")):
        return "embedding"
    if any(word in name for word in _FUSED_EXPERTS):
        return "experts"
    return "other"


def _beyond(name: str, layers: int) -> bool:
    """Whether a tensor belongs to `model.layers.N` with N beyond the layers that the config counts."""
    _, found, rest = name.partition("model.layers.")
    number = rest.partition(".")[0]
    return bool(found) and number.isdecimal() and int(number[:9]) >= layers
