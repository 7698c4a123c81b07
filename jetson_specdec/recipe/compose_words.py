# SPDX-License-Identifier: Apache-2.0
"""How docker compose makes words of a `command:` or `entrypoint:` that is one text.

There is no shell: quotes and backslashes are taken off, nothing else. Both readers in use count: mattn/go-shellwords
(compose v2) and Python's shlex (compose v1, podman-compose). What only one of them would read is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jetson_specdec.recipe.chars import ELSEWHERE, Char

__all__ = ["Split", "SplitWord", "split_words"]


class SplitWord(NamedTuple):
    """One word: its characters, and which of the read characters it was made of (quotes among them)."""

    chars: tuple[Char, ...]
    first: int
    last: int
    quoted: bool = False


class Split(NamedTuple):
    """The words of a text.

    `problem` is empty, or says why the readers disagree or fail: `quote` never closed, `stop` at an operator,
    `parenthesis`; `at` is where.
    """

    words: tuple[SplitWord, ...]
    problem: str = ""
    at: int = 0


def split_words(chars: Sequence[Char]) -> Split:
    """Split characters into words."""
    words: list[SplitWord] = []
    current: list[Char] = []
    first = -1
    quote = ""
    quoted = False
    last = 0
    escaped = False
    for at, char in enumerate(chars):
        sign = char.text
        if escaped:
            escaped = False
            # go-shellwords makes \t and \n control characters, shlex the letters; the former is in use today
            plain = {"t": "\t", "n": "\n"}.get(sign, sign)
            current.append(char._replace(text=plain, start=chars[at - 1].start, layers=_inside(char, quote)))
            last = at
            continue
        if sign == "\\" and quote != "'":
            escaped, first, last = True, at if first < 0 else first, at
            continue
        if sign in " \t\r\n" and not quote:
            if first >= 0:
                words.append(SplitWord(tuple(current), first, last, quoted))
                current, first, quoted = [], -1, False
            continue
        if sign in ("'", '"') and quote in ("", sign):
            quote = "" if quote else sign
            quoted = True
            first, last = at if first < 0 else first, at
            continue
        if not quote and sign in ";&|<>":
            if first >= 0 and not (sign == ">" and all(one.text.isdigit() for one in current)):
                words.append(SplitWord(tuple(current), first, last, quoted))
            return Split(tuple(words), "stop", at)
        if not quote and sign in "()`":
            return Split(tuple(words), "parenthesis", at)
        first, last = at if first < 0 else first, at
        current.append(char._replace(layers=_inside(char, quote), quoted=bool(quote)))
    if first >= 0:
        words.append(SplitWord(tuple(current), first, last, quoted))
    return Split(tuple(words), "quote" if quote or escaped else "", len(chars) - 1)


def _inside(char: Char, quote: str) -> tuple[str, ...]:
    if char.layers == ELSEWHERE:
        return ELSEWHERE
    layer = {"'": "word-single", '"': "word-double"}.get(quote, "word-bare")
    return (layer, *char.layers)
