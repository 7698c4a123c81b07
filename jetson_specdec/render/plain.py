# SPDX-License-Identifier: Apache-2.0
"""Answers that go into a pipe or a file, laid out as rich does where there is no terminal, without loading it.

There are no colours and no width to wrap at then, and printable text needs nothing but its columns. Whatever asks for
more (control characters, signs whose width is not known here) is left to rich.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Sequence

__all__ = ["UNSEEN_WIDTH", "columns", "is_unseen", "put", "put_all"]

UNSEEN_WIDTH = 10_000
"""A pipe or a file has no width: long lines stay whole, for whoever searches or copies them."""

_TAB = 8
_NARROW = frozenset("·—–…✗✓←→↔×≤≥±«»“”‘’°§")
"""Signs beyond ASCII that are one cell wide."""


def is_unseen() -> bool:
    """Whether stdout is no terminal, and nothing asks to be treated as one (`FORCE_COLOR`, a notebook)."""
    stream = sys.stdout
    if stream is None or stream.isatty() or hasattr(builtins, "get_ipython"):
        return False
    return "FORCE_COLOR" not in os.environ and "TTY_COMPATIBLE" not in os.environ


def put(text: str) -> bool:
    """Print one line, and say whether that was possible."""
    if "\t" in text and text.isascii():
        text = text.expandtabs(_TAB)
    if not text.isprintable():
        return False
    put_all([text])
    return True


def put_all(lines: Sequence[str]) -> None:
    """Print lines; like everything on stdout they are there before what is said on stderr next."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def columns(rows: Sequence[Sequence[str]], *, gap: int, right: Sequence[int] = ()) -> list[str] | None:
    """Return the lines of a table without the blanks that fill its last column, or None where its widths are in doubt.

    Args:
        rows: the cells, all rows of one length; a cell may have several lines.
        gap: blanks between two columns.
        right: columns that are aligned to the right.
    """
    if not rows:
        return [""]
    if any(len(row) != len(rows[0]) for row in rows):
        return None
    cells = [[cell.split("\n") for cell in row] for row in rows]
    if not all(_is_simple(line) for row in cells for cell in row for line in cell):
        return None
    if any(len(cell) > 1 and not cell[-1] for row in cells for cell in row):
        return None
    widths = [max(len(line) for row in cells for line in row[place]) for place in range(len(rows[0]))]
    if sum(widths) + gap * (len(widths) - 1) > UNSEEN_WIDTH:
        return None
    lines = []
    for row in cells:
        for number in range(max(map(len, row))):
            parts = []
            for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
                line = cell[number] if number < len(cell) else ""
                parts.append(line.rstrip().rjust(width) if place in right else line.ljust(width))
            lines.append((" " * gap).join(parts).rstrip())
    return lines


def _is_simple(line: str) -> bool:
    """Whether every sign of a line is printable and surely one cell wide."""
    return line.isprintable() and (line.isascii() or _NARROW.issuperset(sign for sign in line if not sign.isascii()))
