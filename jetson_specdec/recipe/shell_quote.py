# SPDX-License-Identifier: Apache-2.0
"""How a new argument is written: the old word's quoting where that works, else the least surprising one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from jetson_specdec.recipe.shell_script import Context, encode

__all__ = ["by_hand", "like", "spell", "style_of"]

Style = Literal["bare", "single", "double"]

_BARE = re.compile(r"[\w./:=@%+,\-]+\Z", re.ASCII)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*=")


def _written(value: str, style: Style) -> str | None:
    if style == "bare":
        return value if _BARE.match(value) else None
    if style == "single":
        return "'" + value.replace("'", "'\\''") + "'"
    return '"' + encode(value, "double") + '"'


def spell(value: str, outer: Sequence[Context] = ()) -> str:
    """Write a value for a shell, as it looks best after the quotings in `outer` (innermost first) are put around it.

    Bare where nothing needs quoting; otherwise single quotes, or double ones where single quotes would have to be
    taken apart.
    """
    if _BARE.match(value):
        return value
    candidates = ["'" + encode(value, "single") + "'", '"' + encode(value, "double") + '"']

    def cost(text: str) -> tuple[bool, int]:
        for context in outer:
            text = encode(text, context) if context != "elsewhere" else text
        return "'\\''" in text, len(text)

    return min(candidates, key=cost)


def style_of(raw: str) -> Style:
    """Return the quoting of a word as written, by its last quoted stretch."""
    if raw.endswith("'") and not raw.endswith("\\'"):
        return "single"
    if raw.endswith('"') and not raw.endswith('\\"'):
        return "double"
    return "bare"


def like(raw: str, value: str, outer: Sequence[Context] = ()) -> str:
    """Write a new value in the quoting of the old word; `--flag='…'` keeps its flag unquoted."""
    option = _OPTION.match(raw)
    if option and value.startswith(option[0]):
        rest = value[option.end() :]
        return option[0] + (like(raw[option.end() :], rest, outer) if rest else "")
    style = style_of(raw)
    if style == "bare" or (not value.isprintable() and style == "double"):
        return spell(value, outer)
    if style == "single" and "'" in value:
        return spell(value, outer)
    written = _written(value, style)
    return written if written is not None else spell(value, outer)


def by_hand(values: Sequence[str]) -> str:
    """Return words as a person types them at a prompt."""
    return " ".join(spell(value) for value in values)
