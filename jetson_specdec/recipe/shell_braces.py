# SPDX-License-Identifier: Apache-2.0
"""Brace expansion (bash(1), EXPANSION): what tears an unquoted JSON text apart."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from jetson_specdec.recipe.shell_lexer import Part

__all__ = ["expand_braces"]

LIMIT = 256
"""More variants than this are left as written: no command line of an engine has them."""

MAX_BRACES = 64

_SEQUENCE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?\Z|([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?\Z")


def expand_braces(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Return the part lists that a word's parts become; one, the same, where there is nothing to expand."""
    bare = [part.text for part in parts if part.kind == "text" and part.quote == "bare" and part.plain]
    if not 0 < sum(text.count("{") for text in bare) <= MAX_BRACES:
        return [parts]
    atoms: list[Part] = []
    for part in parts:
        if part.kind == "text" and part.quote == "bare" and part.plain:
            atoms += [
                part._replace(start=part.start + at, end=part.start + at + 1, text=char)
                for at, char in enumerate(part.text)
            ]
        else:
            atoms.append(part)
    variants = _expand(atoms)
    if len(variants) > LIMIT or len(variants) == 1:
        return [parts]
    return [_merged(variant) for variant in variants]


def _is(part: Part, char: str) -> bool:
    return part.text == char and part.kind == "text" and part.quote == "bare" and part.plain


def _expand(atoms: Sequence[Part]) -> list[list[Part]]:
    for at, atom in enumerate(atoms):
        if not _is(atom, "{"):
            continue
        close, commas = _close(atoms, at)
        if close < 0:
            continue
        if commas:
            edges = [at, *commas, close]
            inner = [atoms[left + 1 : right] for left, right in itertools.pairwise(edges)]
        else:
            inner = _sequence(atoms[at + 1 : close])
            if not inner:
                continue
        heads = [variant for one in inner for variant in _expand(one)]
        tails = _expand(atoms[close + 1 :])
        if len(heads) * len(tails) > LIMIT:
            break
        return [[*atoms[:at], *head, *tail] for head in heads for tail in tails]
    return [list(atoms)]


def _close(atoms: Sequence[Part], at: int) -> tuple[int, list[int]]:
    depth = 0
    commas: list[int] = []
    for index in range(at + 1, len(atoms)):
        if _is(atoms[index], "{"):
            depth += 1
        elif _is(atoms[index], "}"):
            if not depth:
                return index, commas
            depth -= 1
        elif not depth and _is(atoms[index], ","):
            commas.append(index)
    return -1, []


def _sequence(atoms: Sequence[Part]) -> list[Sequence[Part]]:
    if not atoms or any(len(atom.text) != 1 or atom.quote != "bare" or not atom.plain for atom in atoms):
        return []
    match = _SEQUENCE.match("".join(atom.text for atom in atoms))
    if not match:
        return []
    letters = match[4] is not None
    first, last = (ord(match[4]), ord(match[5])) if letters else (int(match[1]), int(match[2]))
    step = abs(int(match[6 if letters else 3] or 1)) or 1
    if abs(last - first) // step >= LIMIT:
        return []
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    width = 0
    if not letters and re.search(r"(?:^|\.\.)-?0\d", match[0]):
        width = max(len(match[1]), len(match[2]))
    return [
        [atoms[0]._replace(text=chr(value) if letters else f"{value:0{width}d}", end=atoms[-1].end, plain=False)]
        for value in values
    ]


def _merged(atoms: Sequence[Part]) -> tuple[Part, ...]:
    merged: list[Part] = []
    for atom in atoms:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.kind == atom.kind == "text"
            and last.quote == atom.quote == "bare"
            and last.plain
            and atom.plain
            and last.end == atom.start
        ):
            merged[-1] = last._replace(text=last.text + atom.text, end=atom.end)
        else:
            merged.append(atom)
    return tuple(merged)
