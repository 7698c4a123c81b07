# SPDX-License-Identifier: Apache-2.0
"""How a checkpoint is quantised, read from its own metadata (`quantization_config` or `hf_quant_config.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.values import frozen

__all__ = ["PRECISION_BITS", "Quantization", "dtype_bytes", "kv_dtype_bytes", "read_quantization"]

PRECISION_BITS: Mapping[str, float] = {
    "fp32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "int8": 8,
    "w4a16": 4,
    "nvfp4": 4,
    "mxfp4": 4,
}
"""Precision → bits of one quantised weight, scales not counted."""

_DTYPES: Mapping[str, tuple[str, int]] = {
    "float32": ("fp32", 4),
    "float": ("fp32", 4),
    "bfloat16": ("bf16", 2),
    "float16": ("fp16", 2),
    "half": ("fp16", 2),
}
_KV_BYTES: Mapping[str, int] = {
    "bfloat16": 2,
    "bf16": 2,
    "float16": 2,
    "fp16": 2,
    "half": 2,
    "float32": 4,
    "float": 4,
    "fp32": 4,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
    "fp8_inc": 1,
}


@frozen(kw_only=True)
class Quantization:
    """What a checkpoint says about its own quantisation.

    Attributes:
        precision: `fp8`, `int8`, `w4a16`, `nvfp4`, `mxfp4`, or None where the metadata names none of these.
        method: `quant_method` (or producer) as written: `fp8`, `awq`, `gptq`, `compressed-tensors`, `modelopt`, …
        bits: bits of one weight.
        group_size: weights that share one scale; 0 is one scale per tensor or channel; None is unknown.
        scale_bytes: bytes of one scale.
        zero_point_bytes: bytes of one zero point per group (0 for symmetric).
        head_quantized: whether the output projection is quantised too.
        kv_cache: KV dtype that the checkpoint asks for (`fp8`), `unknown` for one whose size is not known here
            (NVFP4, INT8), or None.
        ignored: module names or patterns left unquantised.
        layers_ignored: whether `ignored` names modules inside the decoder layers, so that a formula over all linear
            layers gives too little.
    """

    precision: str | None = None
    method: str | None = None
    bits: float | None = None
    group_size: int | None = None
    scale_bytes: float = 0
    zero_point_bytes: float = 0
    head_quantized: bool = False
    kv_cache: str | None = None
    ignored: tuple[str, ...] = ()
    layers_ignored: bool = False

    @property
    def bytes_per_weight(self) -> float | None:
        """Bytes one quantised weight takes, its share of scales and zero points counted; None when unknown."""
        if self.bits is None or self.group_size is None:
            return None
        shared = (self.scale_bytes + self.zero_point_bytes) / self.group_size if self.group_size else 0.0
        return self.bits / 8 + shared


def dtype_bytes(name: str | None) -> tuple[str | None, int | None]:
    """Return the short name and size of a `torch_dtype` text; `(None, None)` when it is not a known one."""
    return _DTYPES.get(str(name).removeprefix("torch."), (None, None)) if name else (None, None)


def kv_dtype_bytes(name: str | None) -> int | None:
    """Return bytes of one KV element of a `--kv-cache-dtype` value; None for `auto` and for packed formats."""
    return _KV_BYTES.get(str(name).lower()) if name else None


def read_quantization(
    config: Mapping[str, Any], hf_quant_config: Mapping[str, Any] | None = None
) -> Quantization | None:
    """Read how a checkpoint is quantised.

    Args:
        config: the model's `config.json`.
        hf_quant_config: content of a `hf_quant_config.json` beside it (ModelOpt), if there is one.

    Returns:
        None when there is no quantisation metadata; a `Quantization` with `precision=None` when there is some that
        this package cannot read.
    """
    data = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(data, Mapping):
        inner = (hf_quant_config or {}).get("quantization")
        if not isinstance(inner, Mapping):
            return None
        data = {"quant_method": "modelopt", **inner}
    method = str(data.get("quant_method") or data.get("producer", "") or "").lower()
    if isinstance(data.get("config_groups"), Mapping):
        return _from_groups(data, method or "compressed-tensors")
    if method.startswith("modelopt") or "quant_algo" in data:
        return _from_modelopt(data, method or "modelopt")
    if method in ("awq", "awq_marlin", "gptq", "gptq_marlin", "auto-round", "auto_round"):
        return _from_weight_only(data, method)
    if method in ("fp8", "fbgemm_fp8"):
        return _from_fp8(data, method)
    if method == "mxfp4":
        return _make(data, method, "mxfp4", 4, 32, scale_bytes=1)
    return _make(data, method or None, None, None, None)


def _size(value: Any, default: int) -> int:
    """Return a positive whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def _area(block: Any) -> int:
    """Return how many weights a two-dimensional block has; 0 where it is not one."""
    if not isinstance(block, (list, tuple)) or len(block) != 2:
        return 0
    return _size(block[0], 0) * _size(block[1], 0)


def _ignored(data: Mapping[str, Any]) -> tuple[str, ...]:
    for key in ("ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"):
        value = data.get(key)
        if isinstance(value, (list, tuple)):
            return tuple(str(item) for item in value)
    return ()


def _make(
    data: Mapping[str, Any],
    method: str | None,
    precision: str | None,
    bits: float | None,
    group_size: int | None,
    *,
    scale_bytes: float = 0,
    zero_point_bytes: float = 0,
) -> Quantization:
    ignored = _ignored(data)
    return Quantization(
        precision=precision,
        method=method,
        bits=bits,
        group_size=group_size,
        scale_bytes=scale_bytes,
        zero_point_bytes=zero_point_bytes,
        head_quantized=bool(data.get("lm_head", False)),
        kv_cache=_kv_cache(data),
        ignored=ignored,
        layers_ignored=any(_inside_layers(name) for name in ignored),
    )


def _inside_layers(name: str) -> bool:
    """Whether an ignore entry names part of a decoder layer (routers stay unquantised anyway and are tiny)."""
    lowered = name.lower()
    if any(word in lowered for word in ("lm_head", "vision", "visual", "embed", "router", "mtp")):
        return False
    return not lowered.endswith(("gate", "gate$", ".gate.*"))


def _kv_cache(data: Mapping[str, Any]) -> str | None:
    scheme = data.get("kv_cache_scheme") or data.get("kv_cache_quant_algo")
    if isinstance(scheme, Mapping):
        eight = scheme.get("num_bits") == 8 and scheme.get("type") == "float"
        return "fp8" if eight else "unknown"
    if scheme is None or str(scheme).upper() in ("", "NONE", "AUTO"):
        return None
    return "fp8" if str(scheme).upper() == "FP8" else "unknown"


def _from_groups(data: Mapping[str, Any], method: str) -> Quantization:
    """`compressed-tensors` and ModelOpt's newer files; of several groups the widest decides, so as not to promise."""
    found: list[Quantization] = []
    for group in data["config_groups"].values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if isinstance(weights, Mapping):
            found.append(_from_weights(data, method, weights))
    if not found:
        return _make(data, method, None, None, None)
    if any(item.bits is None for item in found):
        return _make(data, method, None, None, None)
    return max(found, key=lambda item: item.bytes_per_weight or 0)


def _from_weights(data: Mapping[str, Any], method: str, weights: Mapping[str, Any]) -> Quantization:
    bits, kind = weights.get("num_bits"), weights.get("type", "int")
    strategy = weights.get("strategy")
    group = weights.get("group_size")
    group_size = _size(group, 0)
    if bits == 8:
        group_size = (_area(weights.get("block_structure")) or group_size) if strategy == "block" else group_size
        precision = "fp8" if kind == "float" else "int8"
        return _make(data, method, precision, 8, group_size, scale_bytes=4 if strategy == "block" else 2)
    if bits == 4 and kind == "float":
        mx = group_size == 32
        return _make(data, method, "mxfp4" if mx else "nvfp4", 4, group_size or 16, scale_bytes=1)
    if bits == 4:
        zero = 0.0 if weights.get("symmetric", True) else 0.5
        return _make(data, method, "w4a16", 4, group_size, scale_bytes=2, zero_point_bytes=zero)
    return _make(data, method, None, None, None)


def _from_modelopt(data: Mapping[str, Any], method: str) -> Quantization:
    algorithm = str(data.get("quant_algo") or "").upper()
    group = data.get("group_size")
    if "NVFP4" in algorithm or algorithm == "FP4":
        return _make(data, method, "nvfp4", 4, _size(group, 16), scale_bytes=1)
    if algorithm.startswith("MXFP4"):
        return _make(data, method, "mxfp4", 4, _size(group, 32), scale_bytes=1)
    if algorithm.startswith("FP8"):
        return _make(data, method, "fp8", 8, 0)
    if algorithm.startswith("W4A16") or "AWQ" in algorithm:
        return _make(data, method, "w4a16", 4, _size(group, 128), scale_bytes=2)
    return _make(data, method, None, None, None)


def _from_weight_only(data: Mapping[str, Any], method: str) -> Quantization:
    bits = data.get("bits") or data.get("w_bit")
    group = data.get("group_size") if data.get("group_size") is not None else data.get("q_group_size")
    size = _size(group, 0)
    symmetric = bool(data.get("sym", False)) if "gptq" in method else not data.get("zero_point", True)
    if bits == 4:
        # GPTQ files hold packed zero points even when they are symmetric; engines drop them, files keep them.
        zero = 0.0 if symmetric else 0.5
        return _make(data, method, "w4a16", 4, size, scale_bytes=2, zero_point_bytes=zero)
    if bits == 8:
        return _make(data, method, "int8", 8, size, scale_bytes=2)
    return _make(data, method, None, None, None)


def _from_fp8(data: Mapping[str, Any], method: str) -> Quantization:
    area = _area(data.get("weight_block_size"))
    if area:
        return _make(data, method, "fp8", 8, area, scale_bytes=4)
    return _make(data, method, "fp8", 8, 0)
