# SPDX-License-Identifier: Apache-2.0
"""Single values of a `config.json`, whatever type its author gave them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["first_text", "text_config", "whole", "whole_number"]

_TEXT_KEYS = ("text_config", "llm_config", "language_config", "transformer_layer_config", "thinker_config")
_MAX_NESTING = 8
_LARGEST = 2**31
"""No size in a config is larger; products of such numbers stay fast."""


def whole_number(value: Any) -> int | None:
    """Return a value that is a whole number from 0 to 2³¹, else None: texts and fractions are not read as numbers."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    return None


def whole(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of the named values that is a whole number, or None."""
    for name in names:
        value = whole_number(config.get(name))
        if value is not None:
            return value
    return None


def first_text(value: Any) -> str | None:
    """Return the first entry of a list of texts, or None."""
    return str(value[0]) if isinstance(value, (list, tuple)) and value else None


def text_config(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return the language model's part of a config, and whether it sits inside a wrapper."""
    inside = False
    for _ in range(_MAX_NESTING):
        inner = next((config[key] for key in _TEXT_KEYS if isinstance(config.get(key), Mapping)), None)
        if inner is None:
            break
        config, inside = inner, True
    return config, inside
