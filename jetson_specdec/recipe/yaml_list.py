# SPDX-License-Identifier: Apache-2.0
"""Changing YAML lists of words in place: items keep the style, indentation and quotes of their neighbours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jetson_specdec.recipe.embedded import Word
from jetson_specdec.recipe.yaml_scalar import Style, spell_scalar

__all__ = ["append_items", "remove_items", "replace_item"]

_NUMBER = re.compile(r"-?[\d.]+\Z")
_INDENT = re.compile(r"[ \t]*")
_COMMA = re.compile(r"\s*,")


def _style_of(words: Sequence[Word], parent: Any) -> Style:
    """Return how a list writes ordinary words: in one kind of quotes throughout, or plain."""
    styles = {word.style for word in words if word.parent is parent and word.node is not None}
    return "single" if styles == {"single"} else "double" if styles == {"double"} else "plain"


def _number_quote(words: Sequence[Word], parent: Any) -> Style:
    numbers = [word for word in words if word.parent is parent and _NUMBER.match(word.value or "")]
    single = any(word.style == "single" for word in numbers)
    return "single" if single else "double"


def _spell(text: str, value: str, prefer: Style, words: Sequence[Word], parent: Any) -> str:
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[") and prefer == "double":
        # JSON knows double quotes only
        return '"' + spell_json(value) + '"'
    return spell_scalar(value, prefer, number_quote=_number_quote(words, parent))


def spell_json(value: str) -> str:
    """Write a text for between the double quotes of JSON."""
    import json

    return json.dumps(value, ensure_ascii=False)[1:-1]


def replace_item(text: str, word: Word, value: str, words: Sequence[Word]) -> str:
    """Return a new value for an item, in the item's own style where it can be."""
    style: Style = "single" if word.style == "single" else "double" if word.style == "double" else "plain"
    new = _spell(text, value, style, words, word.parent)
    # A block text ends with its line break, a quoted one does not.
    return new + "\n" if word.style in ("literal", "folded") and text[word.end - 1 : word.end] == "\n" else new


def append_items(text: str, tail: Word, values: Sequence[str], words: Sequence[Word]) -> tuple[int, str]:
    """Return where new items go, and their text."""
    parent = tail.parent
    prefer = _style_of(words, parent)
    spelled = [_spell(text, value, prefer, words, parent) for value in values]
    newline = "\r\n" if "\r\n" in text else "\n"
    start = text.rfind("\n", 0, tail.start) + 1
    lead = text[start : tail.start]
    if parent.flow_style:
        own_line = not lead.strip(" \t") and "\n" in text[parent.start_mark.index : tail.start]
        part = f",{newline}{lead}" if own_line else ", "
        return tail.end, "".join(part + one for one in spelled)
    dash = text.rfind("-", start, tail.start)
    indent = _INDENT.match(text, start)[0]  # type: ignore[index]
    if dash < 0 or text[start:dash].strip(" "):
        # the list begins on the line of something else; items below it stand in the same column
        indent = " " * (dash - start)
    gap = _INDENT.match(text, dash + 1)[0] or " "  # type: ignore[index]
    lines = "".join(f"{indent}-{gap}{one}{newline}" for one in spelled)
    if tail.style in ("literal", "folded") and text[tail.end - 1 : tail.end] == "\n":
        return tail.end, lines
    at = text.find("\n", tail.end)
    if at < 0:
        return len(text), newline + lines[: -len(newline)]
    return at + 1, lines


def remove_items(text: str, words: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the ranges to take out: whole lines in a block list, items with their comma in a flow list."""
    ranges: list[tuple[int, int]] = []
    flows: dict[int, list[Word]] = {}
    for word in words:
        if word.parent.flow_style:
            flows.setdefault(id(word.parent), []).append(word)
            continue
        start = text.rfind("\n", 0, word.start) + 1
        end = word.end
        if not (word.style in ("literal", "folded") and text[end - 1 : end] == "\n"):
            at = text.find("\n", end)
            end = len(text) if at < 0 else at + 1
        ranges.append((start, end))
    for group in flows.values():
        ranges += _flow_ranges(text, group)
    return ranges


def _flow_ranges(text: str, words: Sequence[Word]) -> list[tuple[int, int]]:
    """Return the ranges of items of one flow list, neighbours together."""
    nodes = words[0].parent.value
    gone = {id(word.node) for word in words}
    ranges: list[tuple[int, int]] = []
    at = 0
    while at < len(nodes):
        if id(nodes[at]) not in gone:
            at += 1
            continue
        first = at
        while at < len(nodes) and id(nodes[at]) in gone:
            at += 1
        start, end = nodes[first].start_mark.index, nodes[at - 1].end_mark.index
        if first:
            comma = text.rfind(",", nodes[first - 1].end_mark.index, start)
            ranges.append((comma if comma >= 0 else start, end))
        elif at < len(nodes):
            ranges.append((start, nodes[at].start_mark.index))
        else:
            after = _COMMA.match(text, end)
            ranges.append((start, after.end() if after else end))
    return ranges
