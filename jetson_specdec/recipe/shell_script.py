# SPDX-License-Identifier: Apache-2.0
"""Texts inside texts: the argument of `bash -c`, an alias, a here-document, and where each character really stands.

A `Script` is one text that some shell reads. A nested one knows, for each of its characters, where in its parent's
text that character was written and in which quoting, so that places can be mapped outwards and changes written back.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from attrs import field

from jetson_specdec.errors import UneditableError
from jetson_specdec.recipe.shell_lexer import Part
from jetson_specdec.values import frozen

__all__ = ["Edit", "Field", "Origin", "Run", "Script", "encode", "lift", "nested", "nested_body"]

Context = Literal["bare", "single", "double", "ansi", "body", "literal", "joined", "elsewhere"]
"""How a character was written: the four quotings; `body` of a here-document that is expanded, or a `literal` one;
between words that were `joined` by blanks; or `elsewhere`, where it cannot be changed."""

HOLE = "\U0010fffd"
"""Stands in a nested text for what only the outer shell knows."""


class Origin(NamedTuple):
    """Where one character of a nested text was written (a tuple, because there is one for each character)."""

    start: int
    end: int
    context: Context
    seg: int


class Run(NamedTuple):
    """A stretch of a field: known characters, or an expansion that is not known (`text` None)."""

    text: str | None
    start: int
    end: int
    plain: bool
    context: Context
    seg: int
    quoted: bool
    site: tuple[int, int] | None = None
    unresolved: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    defaulted: tuple[str, ...] = ()
    optional: bool = False
    splices: bool = False
    came: Literal["", "variable", "operand", "array"] = ""


@frozen(kw_only=True)
class Field:
    """One argument as the command would receive it.

    Attributes:
        runs: what it is made of.
        start, end: the text to change to change this argument, in its script's text.
        word: the word of the command that it comes from.
        split: it is one of several pieces of an unquoted variable, so quotes in it would be plain characters.
        shared: its place cannot be used for changes: it stands for several arguments.
        optional, splices: as in `Arg`.
    """

    runs: tuple[Run, ...]
    start: int
    end: int
    word: tuple[int, int]
    split: bool = False
    shared: bool = False
    optional: bool = False
    splices: bool = False

    @property
    def value(self) -> str | None:
        """What the command receives, or None."""
        texts = [run.text for run in self.runs]
        return None if None in texts else "".join(text for text in texts if text is not None)

    def names(self, which: Literal["unresolved", "resolved", "defaulted"]) -> tuple[str, ...]:
        """Return the variables of one kind, each once, in order."""
        return tuple(dict.fromkeys(name for run in self.runs for name in getattr(run, which)))

    def shown(self, text: str) -> str:
        """Return the value, with what is not known as written."""
        return "".join(run.text if run.text is not None else text[run.start : run.end] for run in self.runs)


@frozen(kw_only=True)
class Script:
    """A text that a shell reads.

    Attributes:
        text: the text.
        parent: the text it is written in; None for the recipe itself.
        origins: of each character, where it stands in the parent.
        holes: positions of `HOLE` and what is missing there.
        layer: how it is nested, a word of `ServeCommand.wrapped_in`; empty for the recipe itself.
    """

    text: str
    parent: Script | None = None
    origins: Sequence[Origin] = ()
    holes: dict[int, Run] = field(factory=dict)
    layer: str = ""

    def to_root(self, start: int, end: int) -> tuple[int, int]:
        """Map a range outwards to the recipe's text."""
        if self.parent is None:
            return start, end
        if not self.origins:
            return self.parent.to_root(0, 0)
        last = len(self.origins) - 1
        if start < end:
            return self.parent.to_root(self.origins[start].start, self.origins[min(end - 1, last)].end)
        at = self.origins[start].start if start <= last else self.origins[last].end
        return self.parent.to_root(at, at)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers around this text, outermost first."""
        outer = self.parent.layers if self.parent else ()
        return (*outer, self.layer) if self.layer else outer


class Edit(NamedTuple):
    """Put `pieces` in the place of a range; a piece marked True is layout, which goes out as it is."""

    start: int
    end: int
    pieces: tuple[tuple[str, bool], ...]

    @property
    def text(self) -> str:
        """The new text."""
        return "".join(piece for piece, _ in self.pieces)


_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-")


def encode(text: str, context: Context) -> str:
    """Write text so that it comes out unchanged from where it is put.

    Raises:
        ValueError: it cannot stand there.
    """
    if context == "literal":
        return text
    if context == "single":
        return text.replace("'", "'\\''")
    if context == "ansi":
        return text.replace("\\", "\\\\").replace("'", "\\'")
    if context in ("double", "body"):
        special = '\\$`"' if context == "double" else "\\$`"
        return "".join("\\" + char if char in special else char for char in text)
    if context == "elsewhere":
        raise ValueError(context)
    return _quoted(text)


def lift(script: Script, edits: Sequence[Edit], line: int) -> list[Edit]:
    """Carry changes of a nested text out to the recipe's own text.

    Raises:
        UneditableError: a change would cross from one kind of quoting into another, or into a variable (JSE212).
    """
    while script.parent is not None:
        edits = [_lift_one(script, edit, line) for edit in edits]
        script = script.parent
    return list(edits)


_BETWEEN = re.compile(r"(?:['\"$]|\\\r?\n)*\Z")
_OPEN = {"single": "'", "double": '"', "ansi": "$'"}
_CLOSE = {"single": "'", "double": '"', "ansi": "'"}


def _lift_one(script: Script, edit: Edit, line: int) -> Edit:
    """Carry one change to the parent: what is put in leaves the quoting as the replaced characters left it."""
    assert script.parent is not None
    insert = edit.start == edit.end
    covered = script.origins[max(edit.start - 1, 0) : edit.start] if insert else script.origins[edit.start : edit.end]
    outer = script.parent.text
    refusal = UneditableError("JSE212", line=line, type=edit.text.strip())
    if not covered or any(origin.context == "elsewhere" for origin in covered):
        raise refusal
    for left, right in itertools.pairwise(covered):
        gap = outer[left.end : right.start] if left.end <= right.start else None
        same = left.start == right.start and left.end == right.end
        joined = "joined" in (left.context, right.context)
        if not same and (gap is None or not (joined or _BETWEEN.match(gap))):
            raise refusal
    first, last = covered[0].context, covered[-1].context
    start = covered[-1].end if insert else covered[0].start
    try:
        pieces = _encoded(edit.pieces, last if insert else first, joined=script.layer in JOINING)
    except ValueError as error:
        raise refusal from error
    if not insert and covered[0].seg != covered[-1].seg and first != last:
        pieces = ((_CLOSE.get(first, ""), True), (_OPEN.get(last, ""), True)) if not edit.text else pieces
        if edit.text:
            pieces = (*pieces, (_CLOSE.get(first, ""), True), (_OPEN.get(last, ""), True))
    return Edit(start, covered[-1].end, pieces)


JOINING = frozenset({"ssh", "eval", "tmux"})
"""Layers that join their arguments with blanks."""


def _encoded(pieces: Sequence[tuple[str, bool]], context: Context, *, joined: bool) -> tuple[tuple[str, bool], ...]:
    if context not in ("bare", "joined"):
        return tuple((piece if layout else encode(piece, context), layout) for piece, layout in pieces)
    text = "".join(" " if layout else piece for piece, layout in pieces)
    if joined:
        words = [_quoted(word) if word else "" for word in text.split(" ")]
        return ((" ".join(words), False),)
    return ((_quoted(text), False),)


def _quoted(text: str) -> str:
    """Quote text where nothing is quoted yet."""
    if all(char in _SAFE for char in text):
        return text
    quoted = ["'" + encode(text, "single") + "'", '"' + encode(text, "double") + '"']
    return min(quoted, key=lambda one: ("'\\''" in one, len(one)))


def nested(fields: Sequence[Field], parent: Script, layer: str) -> Script:
    """Make the text that a shell reads from arguments (joined by blanks where there are several)."""
    text: list[str] = []
    origins: list[Origin] = []
    holes: dict[int, Run] = {}
    for number, one in enumerate(fields):
        if number:
            text.append(" ")
            origins.append(Origin(fields[number - 1].end, one.start, "joined", one.start))
        for run in one.runs:
            _add_run(run, text, origins, holes)
    return Script(text="".join(text), parent=parent, origins=origins, holes=holes, layer=layer)


def _add_run(run: Run, text: list[str], origins: list[Origin], holes: dict[int, Run]) -> None:
    if run.text is None:
        holes[len(origins)] = run
        text.append(HOLE)
        origins.append(Origin(run.start, run.end, run.context, run.seg))
    elif run.plain:
        text.append(run.text)
        origins.extend(Origin(at, at + 1, run.context, run.seg) for at in range(run.start, run.start + len(run.text)))
    else:
        text.append(run.text)
        origins.extend(Origin(run.start, run.end, run.context, run.seg) for _ in run.text)


def nested_body(parent: Script, body: tuple[int, int], parts: Sequence[Part] | None, runs: Sequence[Run]) -> Script:
    """Make the text of a here-document; `parts` is None for one in which nothing is expanded, else `runs` has it."""
    start, end = body
    if parts is None:
        origins = [Origin(at, at + 1, "literal", start) for at in range(start, end)]
        return Script(text=parent.text[start:end], parent=parent, origins=origins, layer="heredoc")
    text: list[str] = []
    spots: list[Origin] = []
    holes: dict[int, Run] = {}
    for run in runs:
        context: Context = "body" if run.context == "double" else run.context
        _add_run(run._replace(context=context), text, spots, holes)
    return Script(text="".join(text), parent=parent, origins=spots, holes=holes, layer="heredoc")
