# SPDX-License-Identifier: Apache-2.0
"""The backslash escapes of `$'…'` (bash(1), QUOTING)."""

from __future__ import annotations

import re

__all__ = ["decode_ansi"]

_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}
_NUMBER = re.compile(r"([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})")


def decode_ansi(text: str, pos: int, limit: int) -> tuple[str, int]:
    """Return what the character or escape at `pos` stands for, and the position behind it."""
    if text[pos] != "\\" or pos + 1 >= limit:
        return text[pos], pos + 1
    letter = text[pos + 1]
    if letter in _LETTERS:
        return _LETTERS[letter], pos + 2
    if letter == "c" and pos + 2 < limit:
        return chr(ord(text[pos + 2]) & 0x1F), pos + 3
    number = _NUMBER.match(text, pos + 1, limit)
    if not number:
        return "\\" + letter, pos + 2
    octal, *hexes = number.groups()
    # bash keeps the low byte of an octal escape; bytes above 0x7F would be parts of UTF-8, which no recipe spells out
    code = int(octal, 8) & 0xFF if octal else int(next(digits for digits in hexes if digits), 16)
    return (chr(code) if code <= 0x10FFFF else "\ufffd"), number.end()
