# SPDX-License-Identifier: Apache-2.0
"""Sizes from safetensors headers: the first bytes of each file, never the weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from attrs import frozen

from jetson_specdec.errors import ModelError
from jetson_specdec.host import Host

__all__ = ["TensorInfo", "WeightSizes", "parse_header", "read_headers", "weight_sizes"]

MAX_HEADER_BYTES = 100 * 2**20
"""The safetensors format allows no larger header."""

_VISION = ("visual.", "vision_", "vision.", "multi_modal_projector", "mm_projector", "audio_", "embed_vision")


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
        loaded: what ends up in memory: everything but `mtp`, with 32-bit floats cast to the model's dtype.
        embedding: input embedding, part of `loaded`.
        head: output projection, part of `loaded`; 0 where there is none in the file or it is tied.
        experts: routed experts, part of `loaded`.
        vision: vision or audio tower, part of `loaded`; read for images, not for each token.
        mtp: layers for multi-token prediction, which vLLM loads for `method: mtp` only.
        file_bytes: the files' tensors as they are.
    """

    loaded: int
    embedding: int
    head: int
    experts: int
    vision: int
    mtp: int
    file_bytes: int


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
    except ValueError as error:
        raise ModelError("JSE460", path=where) from error
    if not isinstance(content, dict):
        raise ModelError("JSE461", path=where)
    return tuple(_tensor(name, entry, where) for name, entry in content.items() if name != "__metadata__")


def _tensor(name: str, entry: Any, where: str) -> TensorInfo:
    try:
        start, end = entry["data_offsets"]
        shape = tuple(int(size) for size in entry["shape"])
        info = TensorInfo(name, str(entry["dtype"]), shape, int(end) - int(start))
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError("JSE462", path=where, tensor=name) from error
    if info.file_bytes < 0:
        raise ModelError("JSE463", path=where, tensor=name)
    return info


def read_headers(host: Host, folder: str, names: Iterable[str]) -> tuple[TensorInfo, ...] | None:
    """Read the headers of a local checkpoint's files; None when a file of the set cannot be read.

    Raises:
        ModelError: a file is not safetensors (a Git LFS pointer, a broken download).
    """
    tensors: list[TensorInfo] = []
    for name in names:
        path = f"{folder.rstrip('/')}/{name}"
        first = host.read_bytes(path, limit=8)
        if first is None:
            return None
        length = int.from_bytes(first, "little")
        data = host.read_bytes(path, limit=8 + min(length, MAX_HEADER_BYTES))
        tensors.extend(parse_header(data or first, where=path))
    return tuple(tensors)


def weight_sizes(tensors: Iterable[TensorInfo], *, dtype_bytes: int | None, quantized: bool, tied: bool) -> WeightSizes:
    """Add up a checkpoint.

    Args:
        tensors: all tensors of all files.
        dtype_bytes: size of the dtype the model is served in; None keeps the file's.
        quantized: whether 32-bit tensors may be scales, which stay as they are.
        tied: whether the output projection is the embedding, so that one in the file is not loaded.
    """
    sums = dict.fromkeys(("embedding", "head", "experts", "vision", "mtp", "other"), 0)
    in_file = 0
    for tensor in tensors:
        in_file += tensor.file_bytes
        part = _part(tensor.name)
        size = tensor.file_bytes
        if not quantized and dtype_bytes and tensor.dtype == "F32":
            size = tensor.elements * min(dtype_bytes, 4)
        if part == "head" and tied:
            continue
        sums[part] += size
    return WeightSizes(
        loaded=sum(size for part, size in sums.items() if part != "mtp"),
        embedding=sums["embedding"],
        head=sums["head"],
        experts=sums["experts"],
        vision=sums["vision"],
        mtp=sums["mtp"],
        file_bytes=in_file,
    )


def _part(name: str) -> str:
    if name.startswith("mtp.") or ".mtp." in name or ".mtp_" in name:
        return "mtp"
    if any(word in name for word in _VISION):
        return "vision"
    if name.startswith("lm_head.") or ".lm_head." in name or name.endswith("output_layer.weight"):
        return "head"
    if any(word in name for word in ("embed_tokens.", "word_embeddings.", ".wte.", "embeddings.weight")):
        return "embedding"
    if ".experts." in name:
        return "experts"
    return "other"
