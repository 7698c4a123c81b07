# SPDX-License-Identifier: Apache-2.0
"""Changing a file where the script writes it: in its here-document, proved by reading the script again."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import accumulate

from jetson_specdec.errors import RecipeError, UneditableError
from jetson_specdec.recipe.core import Recipe, WrittenFile, reader_of
from jetson_specdec.recipe.shell import parse_shell, read_shell
from jetson_specdec.recipe.shell_edit import context_of, shape_of
from jetson_specdec.recipe.shell_script import Edit, Script, lift

__all__ = ["edit_written"]


def edit_written(
    recipe: Recipe, index: int, file: WrittenFile, text: str, environ: Mapping[str, str] | None = None
) -> Recipe:
    """Return the recipe with a file that one of its commands reads written differently.

    Args:
        recipe: from `parse_shell`.
        index: which of its commands.
        file: one of the files that it writes before that command.
        text: the file's new text.
        environ: what the recipe was parsed with, if anything.

    Raises:
        UneditableError: it cannot be done safely (JSE245).
    """
    refusal = UneditableError("JSE245", name=file.name, line=file.line)
    if recipe.form != "shell":
        raise refusal
    found = read_shell(recipe.text, path=recipe.path, environ=environ, read=reader_of(recipe)).found[index]
    body = next((one.body for one in found.written if one.file == file), None)
    if body is None:
        raise refusal
    splices = [_widened(body, one) for one in _splices(body.text, text)]
    changes = sorted(lift(body, splices, file.line), key=lambda one: (one.start, one.end))
    pieces: list[str] = []
    at = 0
    for change in changes:
        if change.start < at:
            raise refusal
        pieces += [recipe.text[at : change.start], change.text]
        at = change.end
    after = "".join([*pieces, recipe.text[at:]])
    try:
        again = parse_shell(after, path=recipe.path, environ=environ, read=reader_of(recipe))
    except RecipeError as error:
        raise refusal from error
    same = len(again.commands) == len(recipe.commands) and all(
        context_of(old) == context_of(new)
        and [shape_of(arg) for arg in old.args] == [shape_of(arg) for arg in new.args]
        for old, new in zip(recipe.commands, again.commands, strict=True)
    )
    if not same or [one.text for one in again.commands[index].writes if one.name == file.name] != [text]:
        raise refusal
    return again


def _splices(old: str, new: str) -> Iterator[Edit]:
    """Yield the changes that turn one text into another: whole lines put in or taken out, parts of lines replaced."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    places = list(accumulate(map(len, before), initial=0))
    for kind, first, last, left, right in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        was, becomes = "".join(before[first:last]), "".join(after[left:right])
        head = _common(was, becomes) if kind == "replace" else 0
        tail = _common(was[head:][::-1], becomes[head:][::-1]) if kind == "replace" else 0
        start, end = places[first] + head, places[last] - tail
        yield Edit(start, end, ((becomes[head : len(becomes) - tail], False),))


def _widened(body: Script, splice: Edit) -> Edit:
    """Return a splice that takes in whole variables: their place can only be written as a whole."""
    start, end = splice.start, splice.end
    if start == end:
        return splice
    while start > 0 and body.origins[start - 1] == body.origins[start]:
        start -= 1
    while end < len(body.text) and body.origins[end] == body.origins[end - 1]:
        end += 1
    return Edit(start, end, ((body.text[start : splice.start] + splice.text + body.text[splice.end : end], False),))


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))
