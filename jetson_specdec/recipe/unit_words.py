# SPDX-License-Identifier: Apache-2.0
"""How systemd makes words of a command line: systemd.service(5), "Command lines", and systemd.syntax(7).

Read in systemd's own order: continuation lines, quotes and C escapes, `%` specifiers, and at last variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jetson_specdec.recipe.chars import ELSEWHERE, HOLE, Char, Note, text_of
from jetson_specdec.recipe.embedded import Word

__all__ = ["UnitSplit", "split_unit", "unit_words"]

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_SIMPLE.update({"\\": "\\", '"': '"', "'": "'"})
_CODE = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3})")
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_PLAIN = re.compile(r"\$([A-Za-z_]\w*)\Z", re.ASCII)


class UnitSplit(NamedTuple):
    """Words as (characters, start, end, quoted), and where a quote that is never closed begins (or -1)."""

    words: tuple[tuple[tuple[Char, ...], int, int, bool], ...]
    unclosed: int = -1


def split_unit(chars: Sequence[Char]) -> UnitSplit:
    """Split characters at blanks; take quotes and escapes off."""
    words: list[tuple[tuple[Char, ...], int, int, bool]] = []
    text = text_of(chars)
    current: list[Char] = []
    first, opened, quote, quoted = -1, -1, "", False
    at = 0
    while at < len(chars):
        sign, stop = text[at], at + 1
        if sign in " \t\n\r" and not quote:
            if first >= 0:
                words.append((tuple(current), chars[first].start, chars[at - 1].end, quoted))
                current, first, quoted = [], -1, False
            at += 1
            continue
        first = at if first < 0 else first
        if sign in ("'", '"') and quote in ("", sign):
            quote, opened = ("" if quote else sign), at
            quoted = True
            at += 1
            continue
        if sign == "\\":
            sign, stop = _escape(text, at)
        layer = {"'": "unit-single", '"': "unit-double"}.get(quote, "unit-bare")
        char = chars[at]._replace(text=sign, end=chars[stop - 1].end, layers=(layer,), quoted=bool(quote))
        current += [char] if len(sign) == 1 else [char._replace(text=one) for one in sign]
        at = stop
    if first >= 0:
        words.append((tuple(current), chars[first].start, chars[-1].end, quoted))
    words = [_semicolon(word) for word in words]
    return UnitSplit(tuple(words), chars[opened].start if quote else -1)


def _semicolon(word: tuple[tuple[Char, ...], int, int, bool]) -> tuple[tuple[Char, ...], int, int, bool]:
    r"""Read `\;` of its own as the semicolon that does not begin another command."""
    chars, start, end, quoted = word
    if quoted or text_of(chars) != "\\;" or end - start != 2:
        return word
    return (chars[0]._replace(text=";", end=end),), start, end, quoted


def _escape(text: str, at: int) -> tuple[str, int]:
    """Return what an escape stands for and where the text goes on; one that is not known stays as it is."""
    follower = text[at + 1 : at + 2]
    if follower in _SIMPLE and follower:
        return _SIMPLE[follower], at + 2
    code = _CODE.match(text, at + 1)
    if code:
        octal = code[4]
        number = int(octal, 8) & 0xFF if octal else int(next(one for one in code.groups() if one), 16)
        if 0 < number <= 0x10FFFF and not 0xD800 <= number < 0xE000:
            return chr(number), code.end()
    return "\\", at + 1


def _specifiers(chars: Sequence[Char]) -> list[Char]:
    """Replace `%%`; every other specifier depends on the system and is not known."""
    result: list[Char] = []
    at = 0
    while at < len(chars):
        follower = chars[at + 1] if at + 1 < len(chars) else None
        if chars[at].text == "%" and follower is not None and follower.text == "%":
            result.append(chars[at]._replace(end=follower.end))
            at += 2
        elif chars[at].text == "%" and follower is not None and follower.text.isalpha() and follower.text.isascii():
            note = Note(unresolved=("%" + follower.text,))
            result.append(Char(HOLE, chars[at].start, follower.end, ELSEWHERE, note, chars[at].quoted))
            at += 2
        else:
            result.append(chars[at])
            at += 1
    return result


def _variables(chars: Sequence[Char], env: Mapping[str, str | None]) -> list[Char]:
    """Replace `${NAME}` and `$$`."""
    text = text_of(chars)
    result: list[Char] = []
    at = 0
    while at < len(chars):
        braced = _BRACED.match(text, at)
        if text.startswith("$$", at):
            result.append(chars[at]._replace(end=chars[at + 1].end))
            at += 2
        elif braced:
            start, end = chars[at].start, chars[braced.end() - 1].end
            value = env.get(braced[1])
            if value is None:
                result.append(Char(HOLE, start, end, ELSEWHERE, Note(unresolved=(braced[1],)), True))
            else:
                result += [Char(sign, start, end, ELSEWHERE, Note(resolved=(braced[1],)), True) for sign in value]
            at = braced.end()
        else:
            result.append(chars[at])
            at += 1
    return result


def unit_words(text: str, split: UnitSplit, env: Mapping[str, str | None], *, expand: bool = True) -> list[Word]:
    """Return the words of a command line with specifiers and variables replaced."""
    made: list[Word] = []
    for number, (raw, start, end, quoted) in enumerate(split.words):
        chars = _specifiers(raw)
        style = {"'": "single", '"': "double"}.get(text[end - 1], "bare") if quoted else "bare"
        plain = _PLAIN.match(text_of(raw)) if expand and number else None
        if plain is None:
            chars = _variables(chars, env) if expand and number else chars
            made.append(Word(chars=tuple(chars), start=start, end=end, style=style, outer=("unit",)))
            continue
        value = env.get(plain[1])
        if value is None:
            hole = Char(HOLE, start, end, ELSEWHERE, Note(unresolved=(plain[1],)))
            made.append(Word(chars=(hole,), start=start, end=end, style=style, outer=("unit",), splices=True))
            continue
        pieces = value.split()
        for piece in pieces:
            known = tuple(Char(sign, start, end, ELSEWHERE, Note(resolved=(plain[1],))) for sign in piece)
            made.append(Word(chars=known, start=start, end=end, style=style, outer=("unit",), shared=len(pieces) > 1))
    return made
