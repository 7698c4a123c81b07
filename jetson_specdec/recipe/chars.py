# SPDX-License-Identifier: Apache-2.0
"""Characters that remember where they were written, through every layer of quoting around them.

A word inside a YAML text inside a compose file is read layer by layer: YAML gives characters, interpolation replaces
some, splitting makes words of them. Each character keeps its place in the recipe's text and the layers it stands in,
so that a change made at the innermost layer can be written at the outermost one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["ELSEWHERE", "HOLE", "Char", "Note", "encode", "names_of", "text_of", "written"]

ELSEWHERE = ("elsewhere",)
"""The layers of a character that comes out of a variable: nothing can be written there."""

HOLE = "\U0010fffd"
"""Stands for what only the outside knows."""

Layers = tuple[str, ...]


class Note(NamedTuple):
    """Which variables a character comes from: known from files (`resolved`), a default, or not known."""

    unresolved: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    optional: bool = False


class Char(NamedTuple):
    """One character as it is read.

    Attributes:
        text: the character, or `HOLE`.
        start, end: where it stands in the recipe's text.
        layers: how a character put beside it has to be written, innermost layer first.
        note: the variables it comes from.
        quoted: whether it stands in quotes of the splitting layer.
    """

    text: str
    start: int
    end: int
    layers: Layers
    note: Note | None = None
    quoted: bool = False


def text_of(chars: Iterable[Char]) -> str:
    """Return the characters as a text."""
    return "".join(char.text for char in chars)


def names_of(chars: Iterable[Char], which: str) -> tuple[str, ...]:
    """Return the variables of one kind (`unresolved`, `resolved`, `defaulted`), each once."""
    found = (name for char in chars if char.note is not None for name in getattr(char.note, which))
    return tuple(dict.fromkeys(found))


def written(chars: Sequence[Char], text: str) -> str:
    """Return the characters with what is not known as written in the recipe's text."""
    return "".join(text[char.start : char.end] if char.text == HOLE else char.text for char in chars)


_BARE = re.compile(r"[\w./:=@+,\-]*\Z", re.ASCII)
_YAML_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _yaml_double(char: str) -> str:
    if char in _YAML_ESCAPES:
        return _YAML_ESCAPES[char]
    code = ord(char)
    return char if char.isprintable() and code < 0xD800 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unit(text: str) -> str:
    out = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    return out.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def _encode(text: str, layer: str) -> str:
    name, _, indent = layer.partition(":")
    if name in ("word-bare", "unit-bare"):
        if not _BARE.match(text):
            raise ValueError(layer)
        return text
    if name in ("word-single", "yaml-plain", "yaml-single", "yaml-folded", "yaml-folded-crlf"):
        if ("'" in text and name == "word-single") or "\n" in text or "\r" in text:
            raise ValueError(layer)
        return text.replace("'", "''") if name == "yaml-single" else text
    if name == "word-double":
        return text.replace("\\", "\\\\").replace('"', '\\"')
    if name == "unit":
        return text
    if name == "unit-single":
        return _unit(text).replace("'", "\\'")
    if name == "unit-double":
        return _unit(text).replace('"', '\\"')
    if name == "dollar":
        return text.replace("$", "$$")
    if name == "yaml-double":
        return "".join(_yaml_double(char) for char in text)
    if name in ("yaml-literal", "yaml-literal-crlf"):
        if "\r" in text:
            raise ValueError(layer)
        text = re.sub(r"\n(?!\n)", "\n" + " " * int(indent), text)
        return text.replace("\n", "\r\n") if name.endswith("crlf") else text
    raise ValueError(layer)


def encode(text: str, layers: Layers) -> str:
    """Write text so that it is read unchanged from within these layers.

    Raises:
        ValueError: it cannot stand there.
    """
    for layer in layers:
        text = _encode(text, layer)
    return text
