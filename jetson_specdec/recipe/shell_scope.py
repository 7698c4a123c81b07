# SPDX-License-Identifier: Apache-2.0
"""Which variables a shell text assigns, and whether a value is certain where it is used.

A value counts as known only when the text assigns it exactly once (what goes on from a value, `X+=…` or `X="$X …"`, is
no second value) and every run that reaches the use has passed the assignment. A variable that a file which is read with
`source` sets as well has the value it was given last: such a file is there to set what the script set before, or is
followed by what it left open.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jetson_specdec.recipe.shell_assign import (
    MAX_WORDS,
    Assignment,
    Binding,
    array_of,
    assignment_of,
    command_words,
    exports_all,
    extends,
    is_whole,
)
from jetson_specdec.recipe.shell_lexer import MAX_DEPTH, Part, Word
from jetson_specdec.recipe.shell_order import REPEATS, Order, Structure
from jetson_specdec.recipe.shell_parse import Command

if TYPE_CHECKING:
    from jetson_specdec.recipe.shell_source import Files, Sourced

__all__ = ["Scope"]

MAX_VALUES = 200
"""A variable that gets a value more often is not followed."""

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_READS = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "let"})


class Scope:
    """The variables of one text.

    Args:
        commands: its commands.
        structure: its syntax tree.
        environment: what it inherits; None for a value that cannot be known.
        files: makes what reads the files that it names; None where they are out of reach.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        structure: Structure,
        environment: Mapping[str, str | None],
        files: Callable[[Scope], Files] | None = None,
    ) -> None:
        self.environment = environment
        self.commands = commands
        self.order = Order(commands, structure)
        self._assignments: dict[str, list[Assignment]] = {}
        self._unread: list[int] = []
        self._sourced: list[tuple[int, Word, Sourced | None]] = []
        self._from_files: set[str] = set()
        self._modes: list[tuple[int, int, bool]] = []
        self._bindings: dict[tuple[str, int], Binding] = {}
        self._values: dict[tuple[str, int], Binding] = {}
        self._states: dict[int, bool | None] = {}
        self.environments: dict[tuple[object, ...], dict[str, str | None]] = {}
        """What is exported at a `moment`, kept by whoever works it out."""
        self._depth = 0
        self.defaults: dict[str, Part] = {}
        self._exports: list[tuple[str, int, int, bool]] = []
        self.files = files(self) if files is not None else None
        found = list(self._defaults())
        self.defaults = {name: part for name, part, _ in reversed(found)}
        for assignment in self._collect():
            self._assignments.setdefault(assignment.name, []).append(assignment)
            self._forget()
            if assignment.exported is not False:
                sure = assignment.exported is True
                self._exports.append((assignment.name, assignment.start, assignment.command, sure))
        for name, part, number in found:
            if name in self._from_files:
                word = Word(part.start, part.end, (part._replace(op=part.op.replace("=", "-")),))
                self._assignments[name].append(Assignment(name, part.start, word, False, number))
        self._forget()
        starts = [one.start for found in self._assignments.values() for one in found]
        self._events = sorted([*starts, *(start for _, start, _, _ in self._exports), *self._unread])

    def _forget(self) -> None:
        """Forget what was looked up while not everything was read."""
        self._bindings.clear()
        self._values.clear()
        self._states.clear()

    def _defaults(self) -> Iterator[tuple[str, Part, int]]:
        """Yield what `: ${X:=value}` gives to variables that have no value."""
        for number, command in enumerate(self.commands):
            words = command_words(command)
            if words and words[0].literal == ":":
                for word in words[1:]:
                    for part in word.parts:
                        if part.kind == "param" and part.op in (":=", "="):
                            yield part.name, part, number

    def _collect(self) -> Iterator[Assignment]:
        for number, command in enumerate(self.commands):
            words = command_words(command)
            pairs = [assignment_of(word) for word in words]
            lead = next((at for at, pair in enumerate(pairs) if pair is None), len(pairs))
            if lead == len(words):
                for word, pair in zip(words, pairs, strict=True):
                    if pair:
                        exported = self._exports_all(word.start)
                        yield Assignment(pair[0], word.start, pair[2], pair[1], number, exported)
                continue
            head = words[lead].literal
            if head in _DECLARES:
                exported = head == "export" or self._exports_all(words[lead].start)
                for word, pair in zip(words[lead + 1 :], pairs[lead + 1 :], strict=True):
                    if pair:
                        yield Assignment(pair[0], word.start, pair[2], pair[1], number, exported)
                    elif head == "export" and word.literal and _NAME.match(word.literal):
                        self._exports.append((word.literal, word.start, number, True))
            elif head in _READS or head in ("for", "select"):
                for word in words[lead + 1 :]:
                    if word.literal and _NAME.match(word.literal):
                        yield Assignment(word.literal, word.start, None, False, number)
                    if head in ("for", "select"):
                        break
            elif head == "printf" and len(words) > lead + 2 and words[lead + 1].literal == "-v":
                name = words[lead + 2].literal
                if name:
                    yield Assignment(name, words[lead].start, None, False, number)
            elif head == "set":
                mode = exports_all([word.literal for word in words[lead + 1 :]])
                self._modes += [] if mode is None else [(words[lead].start, number, mode)]
            elif head in ("source", ".") and len(words) > lead + 1:
                file = words[lead + 1].literal
                if not (file and file.endswith("activate")):
                    yield from self._source(number, words[lead].start, words[lead + 1])

    def _source(self, number: int, start: int, word: Word) -> Iterator[Assignment]:
        """Read a file at the place where the script reads it."""
        exporting = self._exports_all(start) if self.files is not None else None
        sourced = self.files.source(word, start, exporting=exporting) if self.files is not None else None
        self._sourced.append((start, word, sourced))
        if sourced is None or sourced.why:
            self._unread.append(start)
            return
        if sourced.exporting is not None and sourced.exporting != exporting:
            self._modes.append((start, number, sourced.exporting))
        for name, binding in sourced.values.items():
            self._from_files.add(name)
            yield Assignment(name, start, None, False, number, read=binding)
        self._exports += [(name, start, number, sure) for name, sure in sourced.exported.items()]

    def _exports_all(self, at: int) -> bool | None:
        """Whether `set -a` is in force at a place; None where that is not certain."""
        for start, number, mode in reversed(self._modes):
            passed = self.passed(start, number, at)
            if passed is not False:
                return mode if passed else None
        return False

    def sourced(self, at: int) -> list[tuple[Word, Sourced | None]]:
        """Return the files that are read into this text before a place."""
        return [(word, sourced) for since, word, sourced in self._sourced if since < at]

    def exported(self, at: int) -> dict[str, bool]:
        """Return the variables that are exported before a place, and whether they are in any case."""
        found: dict[str, bool] = {}
        for name, since, number, sure in self._exports:
            passed = self.passed(since, number, at) if since < at else False
            if passed is not False:
                found[name] = (sure and passed is True) or found.get(name, False)
        return found

    def moment(self, at: int) -> tuple[object, ...]:
        """Return what two places have in common between which no variable changes."""
        return bisect_left(self._events, at), self.order.blocks(at) if self._exports else ()

    def names(self) -> Iterator[str]:
        """Return the names that this text assigns."""
        return iter(self._assignments)

    def from_file(self, name: str) -> bool:
        """Whether a file that is read into this text sets a variable: its assignments count in their order."""
        return name in self._from_files

    def lookup(self, name: str, at: int) -> Binding:
        """Say what a variable is at a place of use."""
        found = self._assignments.get(name, ())
        if name in self._from_files:
            return self._binding(name, found, at)
        if not found or (all(one.start > at for one in found) and not self.order.loops_back(at)):
            return Binding("unset")
        first, *later = sorted(found, key=lambda one: one.start)
        if first.append or first.value is None or not self._certain(first, at):
            return Binding("unknown")
        if any(first.start < source < at for source in self._unread) or not all(map(extends, later)):
            return Binding("unknown")
        if array_of(first.value) is None:
            return self._text(first, later, at)
        return self._array(first, later, at)

    def _binding(self, name: str, found: Sequence[Assignment], at: int) -> Binding:
        if (name, at) in self._bindings:
            return self._bindings[name, at]
        if self._depth >= MAX_DEPTH or len(found) > MAX_VALUES:
            return Binding("unknown")
        self._depth += 1
        try:
            binding = self._last(found, at)
        finally:
            self._depth -= 1
        self._bindings[name, at] = binding
        return binding

    def _certain(self, assignment: Assignment, at: int) -> bool:
        """Whether every run that reaches `at` has passed the assignment."""
        return self.order.certain(assignment.start, assignment.command, at)

    def passed(self, start: int, number: int, at: int, *, pipe: bool = False) -> bool | None:
        """Say whether a run that reaches `at` has passed `start`, in command `number`; None where that is uncertain."""
        return self.order.passed(start, number, at, self._status, pipe=pipe)

    def _last(self, found: Sequence[Assignment], at: int) -> Binding:
        """Return the value that was assigned last before a place."""
        before = sorted((one for one in found if one.start < at and not one.holds(at)), key=lambda one: one.start)
        if any(one.start > at for one in found) and self.order.loops_back(at):
            return Binding("unknown")
        for one in before:
            self._bound(one)  # in order, so that each rests on the one before it
        while before:
            last = before.pop()
            passed = self.passed(last.start, last.command, at)
            if passed is None or any(last.start < source < at for source in self._unread):
                return Binding("unknown")
            if passed:
                return self._bound(last)
        return Binding("unset")

    def _bound(self, assignment: Assignment) -> Binding:
        """Return what a variable is right behind an assignment."""
        key = (assignment.name, assignment.start)
        if key not in self._values:
            self._values[key] = self._given(assignment)
        return self._values[key]

    def _given(self, assignment: Assignment) -> Binding:
        value = assignment.value
        if value is None:
            return assignment.read or Binding("unknown")
        if array_of(value) is not None:
            return Binding("unknown") if extends(assignment) else self._array(assignment, (), assignment.start + 1)
        if assignment.append:
            before = Part("param", value.start, value.start, quote="double", seg=value.start, name=assignment.name)
            value = Word(value.start, value.end, (before, *value.parts))
        return self.files.value(value) if self.files is not None else Binding("unknown")

    def _status(self, number: int) -> bool | None:
        """Say whether a command succeeds: an assignment, a file that is read, a test of what is known."""
        if number not in self._states:
            self._states[number] = self._succeeds(number)
        return self._states[number]

    def _succeeds(self, number: int) -> bool | None:
        command = self.commands[number]
        words = command_words(command)
        heads = command.words[: len(command.words) - len(words)]
        pairs = [assignment_of(word) for word in words]
        found: bool | None = None
        if words and all(pairs):
            simple = all(part.kind != "command" for pair in pairs if pair and pair[2] for part in pair[2].parts)
            found = True if simple else None
        elif words and words[0].literal in ("true", ":", "false", "set", "export", "cd", "mkdir"):
            # a script that cannot go to its folder is of no interest
            found = words[0].literal != "false"
        elif words and words[0].literal in ("source", "."):
            found = next(
                (True for start, _, one in self._sourced if start == words[0].start and one and not one.why), None
            )
        elif words and self.files is not None:
            found = self.files.test(words)
        negated = sum(word.literal == "!" for word in heads) % 2 == 1
        return not found if found is not None and negated else found

    def _array(self, first: Assignment, later: Sequence[Assignment], at: int) -> Binding:
        """Follow `X=(…)`, `X+=(…)` and `X=("${X[@]}" …)`."""
        elements: list[tuple[Word, bool]] = []
        for one in (first, *later):
            more = array_of(one.value)
            if more is None:
                return Binding("unknown")
            if one.start >= at:
                continue
            certain = one is first or self._certain(one, at)
            if one is first or one.append:
                elements += [(element, certain) for element in more.elements]
                continue
            again = [at for at, element in enumerate(more.elements) if is_whole(element, one.name)]
            if len(again) != 1:
                return Binding("unknown")
            before = [(element, certain) for element in more.elements[: again[0]]]
            elements = [*before, *elements, *((element, certain) for element in more.elements[again[0] + 1 :])]
        return Binding("array", elements=tuple(elements)) if len(elements) <= MAX_WORDS else Binding("unknown")

    def _text(self, first: Assignment, later: Sequence[Assignment], at: int) -> Binding:
        """Follow `X="…"`, `X+=" …"` and `X="$X …"`."""
        assert first.value is not None
        parts = [(part, True) for part in first.value.parts]
        home = set(self.order.blocks(first.start))
        for one in later:
            if one.start >= at:
                if self.order.loops_back(at):
                    return Binding("unknown")
                continue
            repeats = any(block[0] in REPEATS and block not in home for block in self.order.blocks(one.start))
            if one.value is None or repeats:
                return Binding("unknown")
            certain = self._certain(one, at)
            added = [(part, certain) for part in one.value.parts]
            if one.append:
                parts += added
                continue
            again = [at for at, part in enumerate(one.value.parts) if part.kind == "param" and part.name == one.name]
            if len(again) != 1:
                return Binding("unknown")
            parts = [*added[: again[0]], *parts, *added[again[0] + 1 :]]
        if len(parts) > MAX_WORDS:
            return Binding("unknown")
        word = Word(first.value.start, first.value.end, tuple(part for part, _ in parts))
        return Binding("word", word, perhaps=frozenset(at for at, (_, certain) in enumerate(parts) if not certain))
