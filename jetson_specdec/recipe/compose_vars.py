# SPDX-License-Identifier: Apache-2.0
"""Variables in compose files: `$NAME`, `${NAME}`, `${NAME:-default}` and their like, `$$` for a dollar sign.

Rules: Compose file reference, "Interpolation". What the text and the `.env` file beside it do not say stays unknown,
because the environment of `docker compose up` may say it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from jetson_specdec.recipe.chars import ELSEWHERE, HOLE, Char, Note, text_of

__all__ = ["InvalidTemplateError", "interpolate"]

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_OPERATOR = re.compile(r":?[-?+]")
MAX_DEPTH = 8


class InvalidTemplateError(ValueError):
    """A dollar sign that begins no variable: compose refuses the file."""


def interpolate(chars: Sequence[Char], known: Mapping[str, str | None], depth: int = 0) -> list[Char]:
    """Replace variables.

    Raises:
        InvalidTemplateError: a `$` is neither doubled nor the start of a variable.
    """
    text = text_of(chars)
    if "$" not in text:
        return [_beside(char) for char in chars]
    result: list[Char] = []
    at = 0
    while at < len(chars):
        if text[at] != "$":
            result.append(_beside(chars[at]))
            at += 1
            continue
        if text[at + 1 : at + 2] == "$":
            pair = chars[at]._replace(end=chars[at + 1].end)
            result.append(_beside(pair))
            at += 2
            continue
        named = _NAME.match(text, at + 1)
        if named:
            result += _known(named[0], chars[at].start, chars[named.end() - 1].end, known)
            at = named.end()
            continue
        close = _closing(text, at)
        inside = _NAME.match(text, at + 2) if close > 0 else None
        if inside is None:
            raise InvalidTemplateError(text[at : at + 2])
        result += _braced(chars, text, inside, close, at, known, depth)
        at = close + 1
    return result


def _beside(char: Char) -> Char:
    return char if char.layers == ELSEWHERE else char._replace(layers=("dollar", *char.layers))


def _closing(text: str, at: int) -> int:
    """Return where the brace that opens behind `at` closes, or -1."""
    if text[at + 1 : at + 2] != "{":
        return -1
    depth = 0
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            at += 2
            continue
        if text[at] == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


def _known(name: str, start: int, end: int, known: Mapping[str, str | None]) -> list[Char]:
    value = known.get(name)
    if value is None:
        return [Char(HOLE, start, end, ELSEWHERE, Note(unresolved=(name,)))]
    return [Char(sign, start, end, ELSEWHERE, Note(resolved=(name,))) for sign in value]


def _braced(
    chars: Sequence[Char],
    text: str,
    named: re.Match[str],
    close: int,
    at: int,
    known: Mapping[str, str | None],
    depth: int,
) -> list[Char]:
    name, start, end = named[0], chars[at].start, chars[close].end
    value = known.get(name)
    if named.end() == close:
        return _known(name, start, end, known)
    operator = _OPERATOR.match(text, named.end(), close)
    if operator is None or depth >= MAX_DEPTH:
        raise InvalidTemplateError(text[at : named.end()])
    sign = operator[0][-1]
    if sign == "?" or (value is None and name in known):
        return _known(name, start, end, known)
    operand = interpolate(chars[operator.end() : close], known, depth + 1)
    if sign == "+":
        if value is not None:
            return [_from(char, start, end, Note(resolved=(name,))) for char in operand] if value else []
        return [_from(char, start, end, Note(optional=True)) for char in operand]
    if value is not None and (value or operator[0] == "-"):
        return _known(name, start, end, known)
    return [_from(char, start, end, Note(defaulted=(name,))) for char in operand]


def _from(char: Char, start: int, end: int, note: Note) -> Char:
    """Make a character of an operand one that stands where the whole variable stands."""
    old = char.note or Note()
    both = Note(
        unresolved=old.unresolved,
        resolved=(*note.resolved, *old.resolved),
        defaulted=(*note.defaulted, *old.defaulted),
        optional=note.optional or old.optional,
    )
    return Char(char.text, start, end, ELSEWHERE, both)
