# SPDX-License-Identifier: Apache-2.0
"""The few shapes that answers take on a terminal: a headline, a table, a diff, marked lines.

Everything goes through one rich console: colours only on a terminal and never with `NO_COLOR`. Where nobody sees it,
`plain` prints the same without rich. Text from outside is never read as markup, and what people copy (commands, diffs)
is never wrapped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from jetson_specdec.render import plain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from jetson_specdec.findings import Finding, Step

__all__ = [
    "bytes_text",
    "console",
    "diff",
    "findings",
    "forgiving",
    "headline",
    "line",
    "section",
    "steps",
    "table",
    "yes_no",
]

_Row: TypeAlias = "tuple[tuple[str, str], str, tuple[str, str]]"
MARKS = {"blocking": ("✗", "bold red"), "warning": ("!", "yellow"), "info": ("·", "dim")}


@lru_cache(maxsize=1)
def console() -> Console:
    """Return the console that answers are printed to."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to the command line: rich would exit with 1, and the exit code is an answer too."""
            raise BrokenPipeError

    made = Quiet(highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = plain.UNSEEN_WIDTH
    return made


def _emit(shape: RenderableType) -> None:
    """Print a table; where nobody sees them, the blanks that fill its columns are left out."""
    if console().is_terminal:
        console().print(shape)
        return
    with console().capture() as captured:
        console().print(shape)
    for row in captured.get().splitlines():
        console().out(row.rstrip(), highlight=False)


def _grid(rows: Sequence[_Row]) -> None:
    """Print indented rows of a mark and a text, whose second half has a style of its own."""
    texts = [("", mark, first + second) for (mark, _), first, (second, _) in rows]
    lines = plain.columns(texts, gap=1) if plain.is_unseen() else None
    if lines is not None:
        plain.put_all(lines)
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    for mark, first, second in rows:
        grid.add_row("", Text(*mark), Text.assemble(first, second if second[0] else ""))
    _emit(grid)


def forgiving(stream: Any) -> None:
    """Let a stream write what its encoding lacks as an escape: an answer is never lost over a sign in a name."""
    # `strict` is what nobody chose; C and POSIX locales have `surrogateescape`, which still fails.
    if getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def headline(text: str, style: str = "bold") -> None:
    """Print the answer itself, first and on a line of its own."""
    line(text, style)


def section(title: str) -> None:
    """Start a part of the answer."""
    line("")
    line(title, "bold")


def line(text: str, style: str | None = None) -> None:
    """Print one unwrapped line."""
    if not (plain.is_unseen() and plain.put(text)):
        console().print(text, style=style, soft_wrap=True)


def diff(text: str) -> None:
    """Print a unified diff with the usual colours."""
    for row in text.splitlines():
        style = None
        if row.startswith(("+++", "---")):
            style = "bold"
        elif row.startswith("+"):
            style = "green"
        elif row.startswith("-"):
            style = "red"
        elif row.startswith("@@"):
            style = "cyan"
        line(row, style)


def findings(found: Iterable[Finding], *, secrets: tuple[str, ...] = ()) -> None:
    """Print findings, one paragraph each: mark, text (secrets masked), and its code for `explain`."""
    from jetson_specdec.recipe.masking import redact

    rows: list[_Row] = []
    for finding in found:
        code = f"  [{finding.code} {finding.topic}]"
        message = redact(finding.message, secrets)[0] if secrets else finding.message
        rows.append((MARKS[finding.severity.value], message, (code, "dim")))
    _grid(rows)


def steps(wanted: Sequence[Step]) -> None:
    """Print next steps, numbered, each with the command to paste."""
    rows: list[_Row] = []
    for number, step in enumerate(wanted, 1):
        command = f"\n{step.command}" if step.command is not None else ""
        rows.append(((f"{number}.", ""), step.text, (command, "cyan")))
    _grid(rows)


def table(header: Sequence[str], rows: Iterable[Sequence[str | None]], *, right: Sequence[int] = ()) -> None:
    """Print a plain table; None is shown as an em dash, columns in `right` are aligned to the right."""
    shown = [["—" if cell is None else cell for cell in row] for row in rows]
    lines = plain.columns([list(header), *shown], gap=2, right=right) if plain.is_unseen() else None
    if lines is not None:
        plain.put_all(lines)
        return
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, name in enumerate(header):
        made.add_column(name, justify="right" if index in right else "left", overflow="fold")
    for row in shown:
        made.add_row(*row)
    _emit(made)


def bytes_text(value: float | None) -> str | None:
    """Return bytes as GiB with two decimals (MiB below a tenth of that), or None for unknown."""
    if value is None:
        return None
    from jetson_specdec import messages

    return messages.bytes_text(value)


def yes_no(value: bool | None) -> str | None:
    """Return yes or no, or None for unknown."""
    return None if value is None else "yes" if value else "no"
