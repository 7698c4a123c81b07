# SPDX-License-Identifier: Apache-2.0
"""What the name of a model or of a setting tells: precision, mixture of experts, method, k."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["is_moe", "k_of", "method_of", "precision_of", "same_but_precision"]

_PRECISION: Final = (
    r"(?<![a-z0-9])(nvfp4|mxfp4|fp4|fp8|w4a16|w8a8|w8a16|awq|gptq|int4|int8|bnb|gguf|q[2-8](?:_[a-z0-9]+)*)(?![a-z0-9])"
)
_METHODS: Final = (
    (r"eagle[-_ ]?3", "eagle3"),
    (r"eagle", "eagle"),
    (r"n[-_ ]?gram|prompt[-_ ]?lookup", "ngram"),
    (r"suffix", "suffix"),
    (r"medusa", "medusa"),
    (r"dflash", "dflash"),
    (r"\bmtp\b", "mtp"),
    (r"draft", "draft_model"),
)


def precision_of(model: str | None) -> str | None:
    """Return the precision that a model's id tells, in lower case, or None."""
    if model is None:
        return None
    from jetson_specdec.models.catalog import Catalog

    copy = Catalog.default().copy_of(model)
    if copy is not None:
        return copy.precision
    found = re.search(_PRECISION, model.lower())
    return found[1] if found else None


def same_but_precision(first: str | None, second: str | None) -> bool:
    """Say whether two ids name the same model in different precisions."""
    if first is None or second is None or precision_of(first) == precision_of(second):
        return False
    return _base(first) == _base(second)


def _base(model: str) -> str:
    from jetson_specdec.models.catalog import Catalog

    catalog = Catalog.default()
    copy = catalog.copy_of(model)
    base = copy.base if copy is not None else catalog.canonical(model) or model
    name = re.sub(_PRECISION, "", base.lower().rsplit("/", 1)[-1])
    return re.sub(r"quantized|dynamic|[^a-z0-9]", "", name).removeprefix("meta")


def is_moe(model: str | None) -> bool | None:
    """Say whether a target is a mixture of experts: by the catalogue, else by `-A3B` or the like in its name."""
    if model is None:
        return None
    from jetson_specdec.models.catalog import Catalog

    target = Catalog.default().target(model)
    if target is not None and target.moe is not None:
        return target.moe
    return True if re.search(r"(?i)(?<![a-z0-9])(?:a\d+(?:\.\d+)?b|\d+x\d+b|moe)(?![a-z0-9])", model) else None


def method_of(config: Mapping[str, Any] | None, label: str | None = None) -> str | None:
    """Return the method of a speculative configuration, else of a label such as `n-gram k=4`."""
    if config and isinstance(config.get("method"), str):
        return str(config["method"])
    text = (label or "").lower()
    return next((name for pattern, name in _METHODS if re.search(pattern, text)), None)


def k_of(config: Mapping[str, Any] | None, label: str | None = None) -> int | None:
    """Return num_speculative_tokens of a configuration, else of a label such as `eagle k=4` or `4`."""
    value = (config or {}).get("num_speculative_tokens")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    found = re.search(r"\bk\s*=\s*(\d{1,3})\b|^\s*(\d{1,3})\s*$", label or "")
    return int(found[1] or found[2]) if found else None
