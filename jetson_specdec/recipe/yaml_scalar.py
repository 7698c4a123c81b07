# SPDX-License-Identifier: Apache-2.0
"""YAML texts character by character (YAML 1.2.2, chapters 7 and 8), and writing them in a style."""

from __future__ import annotations

import re
from typing import Any, Literal

from jetson_specdec.recipe.chars import Char, encode, text_of

__all__ = ["decode", "in_style", "is_text", "scalar_start", "scalar_style", "spell_scalar"]

Style = Literal["plain", "single", "double", "literal", "folded"]

_PROPERTIES = re.compile(r"(?:[&!][^\s]*[ \t]+|[&!][^\s]*[ \t]*\r?\n[ \t]*)+")
_BLANKS = re.compile(r"[ \t]+")
_BREAK = re.compile(r"[ \t]*(?:\r?\n[ \t]*)+")
_HEADER = re.compile(r"[|>]([+-]?)[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z)")
_SIMPLE = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    " ": " ",
    '"': '"',
    "/": "/",
    "\\": "\\",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})")
_STYLES: dict[str | None, Style] = {None: "plain", "": "plain", "'": "single", '"': "double", "|": "literal"}
_PLAIN = re.compile(r"[A-Za-z0-9_./~-][\w./=+@%~-]*\Z", re.ASCII)
_NOT_TEXT = re.compile(
    r"(?:[-+]?[\d.][\d_.,:eExXabcdefABCDEFo+-]*|[-+]?\.?(?:inf|nan)|~|null|y|n|yes|no|on|off|true|false|-+|\.+)\Z",
    re.IGNORECASE,
)


def scalar_style(node: Any) -> Style:
    """Return the style a scalar is written in."""
    return _STYLES.get(node.style, "folded")


def is_text(node: Any) -> bool:
    """Whether YAML reads a scalar as a text (and not as a number, a truth value or nothing)."""
    return scalar_style(node) != "plain" or str(node.tag).endswith(":str")


def scalar_start(text: str, node: Any) -> int:
    """Return where a scalar itself begins, behind its anchor and tag."""
    start, end = node.start_mark.index, node.end_mark.index
    match = _PROPERTIES.match(text, start, end) if text[start : start + 1] in ("&", "!") else None
    return int(match.end()) if match else int(start)


def decode(text: str, node: Any) -> list[Char] | None:
    """Return a scalar's characters with their places, or None where it is written in a way that is not followed."""
    style = scalar_style(node)
    start, end = scalar_start(text, node), node.end_mark.index
    if style == "plain":
        chars = _flow(text, start, end, "yaml-plain")
    elif style in ("single", "double"):
        chars = _flow(text, start + 1, end - 1, f"yaml-{style}")
    else:
        chars = _block(text, start, end, style)
    return chars if chars is not None and text_of(chars) == node.value else None


def _flow(text: str, start: int, end: int, layer: str) -> list[Char] | None:
    layers = (layer,)
    chars: list[Char] = []
    at = start
    while at < end:
        gap = _BREAK.match(text, at, end)
        if gap and "\n" in gap[0]:
            breaks = gap[0].count("\n") - 1
            chars += [Char(sign, at, gap.end(), layers) for sign in ("\n" * breaks or " ")]
            at = gap.end()
            continue
        sign, stop = text[at], at + 1
        blanks = _BLANKS.match(text, at, end)
        if blanks:  # all at once, so that a long run is not looked at again and again
            chars += [Char(text[place], place, place + 1, layers) for place in range(at, blanks.end())]
            at = blanks.end()
            continue
        if layer == "yaml-single" and sign == "'":
            stop = at + 2
        elif layer == "yaml-double" and sign == "\\":
            joined = re.compile(r"\\\r?\n[ \t]*").match(text, at, end)
            if joined:
                at = joined.end()
                continue
            escape = _CODE.match(text, at + 1, end)
            if escape:
                sign, stop = chr(int(next(code for code in escape.groups() if code), 16)), escape.end()
            elif text[at + 1 : at + 2] in _SIMPLE:
                sign, stop = _SIMPLE[text[at + 1]], at + 2
            else:
                return None
        chars.append(Char(sign, at, stop, layers))
        at = stop
    return chars


def _block(text: str, start: int, end: int, style: Style) -> list[Char] | None:
    header = _HEADER.match(text, start, end)
    if not header:
        return None
    lines: list[tuple[int, int]] = []
    at = header.end()
    while at < end:
        stop = text.find("\n", at, end)
        stop = end if stop < 0 else stop
        lines.append((at, stop - 1 if text[stop - 1 : stop] == "\r" and stop > at else stop))
        at = stop + 1
    filled = [text[left:right] for left, right in lines if text[left:right].strip(" ")]
    indent = len(filled[0]) - len(filled[0].lstrip(" ")) if filled else 0
    crlf = "\r\n" in text[start:end]
    layers = (f"yaml-{style}{'-crlf' if crlf else ''}:{indent}",)
    chars: list[Char] = []
    previous = ""
    for number, (left, right) in enumerate(lines):
        body = text[left + indent : right] if right - left > indent else ""
        if number:
            line_break = _folded(previous, body, chars) if style == "folded" else "\n"
            if line_break:
                chars.append(Char(line_break, lines[number - 1][1], max(left, min(left + indent, right)), layers))
        chars += [Char(sign, left + indent + at, left + indent + at + 1, layers) for at, sign in enumerate(body)]
        previous = body
    chomp = header[1]
    tail = lines[-1][1] if lines else end
    if "\n" in text[tail:end]:
        chars.append(Char("\n", tail, min(tail + (2 if crlf else 1), end), layers))
    if chomp != "+":
        keep = len(chars)
        while keep and chars[keep - 1].text == "\n":
            keep -= 1
        had = keep < len(chars)
        chars = chars[: keep + 1] if had and not chomp and keep else chars[:keep]
    return chars


def _folded(previous: str, body: str, chars: list[Char]) -> str:
    """Return what the line break between two lines of a folded text becomes."""
    if not body:
        return "\n" if previous[:1] in (" ", "\t") and previous else "\n" if not previous else ""
    if body[:1] in (" ", "\t") or previous[:1] in (" ", "\t"):
        return "\n"
    return "\n" if not previous else " "


def in_style(value: str, style: Style) -> str | None:
    """Write a text in a style, or return None where that style cannot hold it."""
    if style == "plain":
        return value if _PLAIN.match(value) and not _NOT_TEXT.match(value) and value[:2] != "- " else None
    if style == "single":
        return "'" + value.replace("'", "''") + "'" if value.isprintable() else None
    if style == "double":
        return '"' + encode(value, ("yaml-double",)) + '"'
    return None


def spell_scalar(value: str, prefer: Style = "plain", *, number_quote: Style = "double") -> str:
    """Write a text as YAML reads it back as text: as preferred, else plain, else in the quotes that need no escapes."""
    quotes: tuple[Style, ...] = ("single", "double") if '"' in value or "\\" in value else (number_quote, "double")
    order: tuple[Style, ...] = (prefer, "plain", *quotes) if prefer == "plain" else (prefer, *quotes)
    if prefer == "double" and ('"' in value or "\\" in value):
        order = quotes
    for style in order:
        written = in_style(value, style)
        if written is not None:
            return written
    return '"' + encode(value, ("yaml-double",)) + '"'
