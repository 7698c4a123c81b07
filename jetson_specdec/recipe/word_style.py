# SPDX-License-Identifier: Apache-2.0
"""How a new word is written inside a text that compose or systemd splits: the old quoting where it works."""

from __future__ import annotations

import re

from jetson_specdec.recipe.chars import Layers, encode
from jetson_specdec.recipe.embedded import Word

__all__ = ["respelled", "spelled"]

_BARE = re.compile(r"[\w./:=@%+,\-]+\Z", re.ASCII)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*=(?=['\"])")
_UNIT = "unit"


def _family(outer: Layers) -> str:
    return "unit" if _UNIT in outer else "word"


def _in_quotes(value: str, style: str, outer: Layers) -> str | None:
    quote = {"single": "'", "double": '"'}[style]
    try:
        return quote + encode(value, (f"{_family(outer)}-{style}",)) + quote
    except ValueError:
        return None


def spelled(value: str, outer: Layers, prefer: str = "bare") -> str:
    """Write a value as one word; bare where nothing needs quotes, else in the quotes that need fewer escapes."""
    if prefer == "bare" and _BARE.match(value) and "%" not in value:
        return value
    order = [prefer] if prefer in ("single", "double") else []
    order += ["single", "double"] if "'" not in value else ["double", "single"]
    return next(text for style in order if (text := _in_quotes(value, style, outer)) is not None)


def respelled(raw: str, word: Word, value: str) -> str:
    """Write a new value in the quoting of the old word; `--flag='…'` keeps its flag unquoted."""
    option = _OPTION.match(raw)
    if option and value.startswith(option[0]):
        style = {"'": "single", '"': "double"}[raw[option.end()]]
        return option[0] + spelled(value[option.end() :], word.outer, style)
    style = word.style if raw[:1] in ("'", '"') else "bare"
    return spelled(value, word.outer, style)
