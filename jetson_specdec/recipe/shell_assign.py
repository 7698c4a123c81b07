# SPDX-License-Identifier: Apache-2.0
"""What assignments and commands are made of: `NAME=value` taken apart, and what a variable can be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from jetson_specdec.recipe.shell_lexer import Part, Word
from jetson_specdec.recipe.shell_order import RESERVED
from jetson_specdec.recipe.shell_parse import Command

__all__ = [
    "MAX_WORDS",
    "Assignment",
    "Binding",
    "Variables",
    "array_of",
    "assignment_of",
    "command_words",
    "exports_all",
    "extends",
    "is_whole",
]

MAX_WORDS = 2000
"""A longer command or array is no launch command."""

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")


class Binding(NamedTuple):
    """What a variable is at a place of use.

    `word` is a scalar's value, `perhaps` says which of its parts (by index) only some runs add; `elements` are an
    array's, each with whether it is certain to be there. A `value` was read elsewhere: its `text`, and the variables
    whose defaults went into it.
    """

    kind: Literal["unset", "word", "array", "unknown", "value"]
    word: Word | None = None
    elements: tuple[tuple[Word, bool], ...] = ()
    perhaps: frozenset[int] = frozenset()
    text: str = ""
    defaulted: tuple[str, ...] = ()


class Assignment(NamedTuple):
    """One place where a variable gets a value.

    `value` is None where it is not in the text, but perhaps `read` from a file; `exported` where that is not known.
    """

    name: str
    start: int
    value: Word | None
    append: bool
    command: int
    exported: bool | None = False
    read: Binding | None = None

    def holds(self, at: int) -> bool:
        """Whether a place is in the value that is assigned."""
        return self.value is not None and self.value.start <= at < self.value.end


class Variables(Protocol):
    """Variables of a text: see `Scope`."""

    @property
    def environment(self) -> Mapping[str, str | None]:
        """What the text inherits; None for a value that cannot be known."""

    @property
    def defaults(self) -> Mapping[str, Part]:
        """The `${X:=value}` of commands that do nothing else."""

    def lookup(self, name: str, at: int) -> Binding:
        """Say what a variable is at a place of use."""

    def from_file(self, name: str) -> bool:
        """Whether a variable's assignments count in their order, because a file is among them."""


def assignment_of(word: Word) -> tuple[str, bool, Word | None] | None:
    """Take `NAME=value` apart: name, whether it appends, the value; an element `NAME[i]=` has no value to use."""
    if not word.parts or word.parts[0].kind != "text" or word.parts[0].quote != "bare" or not word.parts[0].plain:
        return None
    first = word.parts[0]
    match = _ASSIGN.match(first.text)
    if not match:
        return None
    cut = match.end()
    rest = first._replace(start=first.start + cut, text=first.text[cut:])
    parts: tuple[Part, ...] = (*((rest,) if rest.text else ()), *word.parts[1:])
    if rest.text.startswith("~") and (len(rest.text) == 1 or rest.text[1] == "/"):
        tilde = rest._replace(kind="tilde", text="~", end=rest.start + 1)
        tail = rest._replace(start=rest.start + 1, text=rest.text[1:])
        parts = (tilde, *((tail,) if tail.text else ()), *word.parts[1:])
    return match[1], bool(match[3]), None if match[2] else Word(first.start + cut, word.end, parts)


def command_words(command: Command) -> Sequence[Word]:
    """Return a command's words without leading reserved words, function heads and a pasted prompt."""
    words = command.words
    at = 0
    while at < len(words):
        literal = words[at].literal
        if literal in RESERVED:
            at += 1
        elif literal == "function" and at + 1 < len(words):
            at += 2
        elif at == 0 and literal is not None and _is_prompt(literal):
            at += 1
        else:
            break
    return words[at:]


def _is_prompt(word: str) -> bool:
    return word in ("$", "%") or (word[-1:] in ("$", "#") and "@" in word)


def extends(assignment: Assignment) -> bool:
    """Whether a value goes on from the one before it: `X+=…`, `X="$X …"`, `X=("${X[@]}" …)`."""
    value = assignment.value
    if assignment.append or value is None:
        return assignment.append
    array = array_of(value)
    if array is not None:
        return any(is_whole(element, assignment.name) for element in array.elements)
    # what stands in for an empty value does not matter: an empty one only lacks words
    own = [part for part in value.parts if part.kind == "param" and part.name == assignment.name]
    empty = all(part.op == "" or part.operand[0] == part.operand[1] for part in own)
    return bool(own) and empty and all(part.op in ("", ":-", "-") and not part.subscript for part in own)


def exports_all(words: Sequence[str | None]) -> bool | None:
    """Return whether `set` with these words turns the export of all variables on or off (`set -a`), or None."""
    mode: bool | None = None
    rest = iter(words)
    for word in rest:
        if word is None or word[:1] not in ("-", "+") or word in ("--", "-"):
            break
        if "a" in word[1:] or ("o" in word[1:] and next(rest, None) == "allexport"):
            mode = word[0] == "-"
    return mode


def array_of(value: Word | None) -> Part | None:
    """Return the `(…)` of an assigned value, or None."""
    return next((part for part in value.parts if part.kind == "array"), None) if value is not None else None


def is_whole(element: Word, name: str) -> bool:
    """Whether an element is `"${X[@]}"`."""
    part = element.parts[0]
    return len(element.parts) == 1 and part.kind == "param" and part.name == name and part.subscript == "@"
