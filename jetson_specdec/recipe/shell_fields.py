# SPDX-License-Identifier: Apache-2.0
"""From the pieces that a word expands to, to the arguments they make up, and the places to change these at."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_specdec.recipe.shell_lexer import Word
from jetson_specdec.recipe.shell_script import Field, Run

__all__ = ["Piece", "assemble"]

Piece = Run | None
"""None parts one argument from the next."""


def assemble(pieces: Sequence[Piece], word: Word) -> list[Field]:
    """Return the arguments that the pieces of a word make up."""
    groups: list[list[Run]] = [[]]
    for piece in pieces:
        if piece is None:
            groups.append([])
        else:
            groups[-1].append(piece)
    groups = [group for group in groups if any(run.text is None or run.text or run.quoted for run in group)]
    fields: list[Field] = []
    for group in groups:
        came = group[0].came
        own = _site(group)
        place = own if len(groups) > 1 or came == "array" else None
        start, end = place or (word.start, word.end)
        fields.append(
            Field(
                runs=tuple(group),
                start=start,
                end=end,
                word=(word.start, word.end),
                split=place is not None and came == "variable",
                shared=place is None and len(groups) > 1,
                optional=any(run.optional for run in group),
                splices=any(run.splices for run in group),
            )
        )
    return fields


def _site(group: Sequence[Run]) -> tuple[int, int] | None:
    """Return the one place where all of an argument is written, if it is not the word itself."""
    sites = {run.site for run in group}
    if len(sites) == 1:
        return group[0].site
    first, last = group[0].site, group[-1].site
    if all(run.came == "variable" for run in group) and first and last and first[0] < last[1]:
        return first[0], last[1]
    return None
