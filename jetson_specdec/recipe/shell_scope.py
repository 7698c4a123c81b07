# SPDX-License-Identifier: Apache-2.0
"""Which variables a shell text assigns, and whether a value is certain where it is used.

A value counts as known only when the text assigns it exactly once (what goes on from a value, `X+=…` or `X="$X …"`, is
no second value) and every run that reaches the use has passed the assignment. Conditions, loops and functions are read
from tree-sitter's syntax tree.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from jetson_specdec.recipe.shell_lexer import Part, Word
from jetson_specdec.recipe.shell_parse import Command

__all__ = ["MAX_WORDS", "Assignment", "Binding", "Scope", "Structure", "assignment_of", "command_words"]

MAX_WORDS = 2000
"""A longer command or array is no launch command."""

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_NAME = re.compile(r"[A-Za-z_]\w*\Z")
_BLOCKS = frozenset(
    {
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_item",
        "function_definition",
        "subshell",
        "command_substitution",
        "ERROR",
    }
)
_REPEATS = frozenset({"while_statement", "for_statement", "c_style_for_statement", "function_definition"})
_RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done", "esac"})
_DECLARES = frozenset({"export", "declare", "typeset", "readonly", "local"})
_READS = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "let"})


class Assignment(NamedTuple):
    """One place where a variable gets a value; `value` None where the value is not in the text."""

    name: str
    start: int
    value: Word | None
    append: bool
    command: int
    exported: bool = False


class Binding(NamedTuple):
    """What a variable is at a place of use.

    `word` is a scalar's value, `perhaps` says which of its parts (by index) only some runs add; `elements` are an
    array's, each with whether it is certain to be there.
    """

    kind: Literal["unset", "word", "array", "unknown"]
    word: Word | None = None
    elements: tuple[tuple[Word, bool], ...] = ()
    perhaps: frozenset[int] = frozenset()


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
        if literal in _RESERVED:
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
    array = _array_of(value)
    if array is not None:
        return any(_is_whole(element, assignment.name) for element in array.elements)
    # what stands in for an empty value does not matter: an empty one only lacks words
    own = [part for part in value.parts if part.kind == "param" and part.name == assignment.name]
    empty = all(part.op == "" or part.operand[0] == part.operand[1] for part in own)
    return bool(own) and empty and all(part.op in ("", ":-", "-") and not part.subscript for part in own)


def _array_of(value: Word | None) -> Part | None:
    return next((part for part in value.parts if part.kind == "array"), None) if value is not None else None


def _is_whole(element: Word, name: str) -> bool:
    """Whether an element is `"${X[@]}"`."""
    part = element.parts[0]
    return len(element.parts) == 1 and part.kind == "param" and part.name == name and part.subscript == "@"


class Structure:
    """What surrounds a place in `text[start:end]`, by tree-sitter; the tree is built on first use."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self._range = start, end
        self._tree: Any = None
        self._offsets: list[int] = []

    def _root(self) -> Any:
        if self._tree is None:
            start, end = self._range
            # what is not shell (the prose of a note) is blanked, so that places stay the same
            text = re.sub(r"[^\n]", " ", self._text[:start]) + self._text[start:end]
            self._tree = _parser().parse(text.encode("utf-8", "surrogatepass"))
            if not text.isascii():
                sizes = (len(char.encode("utf-8", "surrogatepass")) for char in text)
                self._offsets = list(itertools.accumulate(sizes, initial=0))
        return self._tree.root_node

    def _byte(self, pos: int) -> int:
        return self._offsets[min(pos, len(self._offsets) - 1)] if self._offsets else pos

    def blocks(self, pos: int) -> tuple[tuple[str, int], ...]:
        """Return the conditions, loops, functions and subshells around a place, innermost first."""
        root = self._root()
        byte = self._byte(pos)
        node = root.descendant_for_byte_range(byte, byte + 1)
        found: list[tuple[str, int]] = []
        branch = False
        while node is not None:
            kind = node.type
            if kind in _BLOCKS:
                # a place in the `else` of an `if` has not passed its `then`
                found.append(("other" if kind == "if_statement" and branch else kind, node.start_byte))
                branch = kind in ("elif_clause", "else_clause")
            node = node.parent
        return tuple(found)


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class Scope:
    """The variables of one text.

    Args:
        commands: its commands.
        structure: its syntax tree.
        environment: what it inherits; None for a value that cannot be known.
    """

    def __init__(
        self,
        commands: Sequence[Command],
        structure: Structure,
        environment: Mapping[str, str | None],
    ) -> None:
        self.environment = environment
        self._structure = structure
        self._commands = commands
        self._assignments: dict[str, list[Assignment]] = {}
        self._sourced: list[int] = []
        self._files: list[tuple[int, Word]] = []
        self.defaults = {
            part.name: part
            for command in commands
            for words in [command_words(command)]
            if words and words[0].literal == ":"
            for word in words[1:]
            for part in word.parts
            if part.kind == "param" and part.op in (":=", "=")
        }
        self._exports: dict[str, int] = {}
        for assignment in self._collect():
            self._assignments.setdefault(assignment.name, []).append(assignment)
            if assignment.exported:
                self._exports.setdefault(assignment.name, assignment.start)

    def _collect(self) -> Iterator[Assignment]:
        for number, command in enumerate(self._commands):
            words = command_words(command)
            pairs = [assignment_of(word) for word in words]
            lead = next((at for at, pair in enumerate(pairs) if pair is None), len(pairs))
            if lead == len(words):
                for word, pair in zip(words, pairs, strict=True):
                    if pair:
                        yield Assignment(pair[0], word.start, pair[2], pair[1], number)
                continue
            head = words[lead].literal
            if head in _DECLARES:
                for word, pair in zip(words[lead + 1 :], pairs[lead + 1 :], strict=True):
                    if pair:
                        yield Assignment(pair[0], word.start, pair[2], pair[1], number, head == "export")
                    elif head == "export" and word.literal and _NAME.match(word.literal):
                        self._exports.setdefault(word.literal, word.start)
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
            elif head in ("source", ".") and len(words) > lead + 1:
                file = words[lead + 1].literal
                if not (file and file.endswith("activate")):
                    self._sourced.append(words[lead].start)
                    self._files.append((words[lead].start, words[lead + 1]))

    def sourced(self, at: int) -> list[Word]:
        """Return the files that are read into this text before a place."""
        return [word for since, word in self._files if since < at]

    def exported(self, at: int) -> list[str]:
        """Return the variables that are exported before a place."""
        return [name for name, since in self._exports.items() if since < at]

    def names(self) -> Iterator[str]:
        """Return the names that this text assigns."""
        return iter(self._assignments)

    def lookup(self, name: str, at: int) -> Binding:
        """Say what a variable is at a place of use."""
        found = self._assignments.get(name, ())
        if not found or (all(one.start > at for one in found) and not self._loops_back(at)):
            return Binding("unset")
        first, *later = sorted(found, key=lambda one: one.start)
        if first.append or first.value is None or not self._certain(first, at):
            return Binding("unknown")
        if any(first.start < source < at for source in self._sourced) or not all(map(extends, later)):
            return Binding("unknown")
        if _array_of(first.value) is None:
            return self._text(first, later, at)
        return self._array(first, later, at)

    def _array(self, first: Assignment, later: Sequence[Assignment], at: int) -> Binding:
        """Follow `X=(…)`, `X+=(…)` and `X=("${X[@]}" …)`."""
        elements: list[tuple[Word, bool]] = []
        for one in (first, *later):
            more = _array_of(one.value)
            if more is None:
                return Binding("unknown")
            if one.start >= at:
                continue
            certain = one is first or self._certain(one, at)
            if one is first or one.append:
                elements += [(element, certain) for element in more.elements]
                continue
            again = [at for at, element in enumerate(more.elements) if _is_whole(element, one.name)]
            if len(again) != 1:
                return Binding("unknown")
            before = [(element, certain) for element in more.elements[: again[0]]]
            elements = [*before, *elements, *((element, certain) for element in more.elements[again[0] + 1 :])]
        return Binding("array", elements=tuple(elements)) if len(elements) <= MAX_WORDS else Binding("unknown")

    def _text(self, first: Assignment, later: Sequence[Assignment], at: int) -> Binding:
        """Follow `X="…"`, `X+=" …"` and `X="$X …"`."""
        assert first.value is not None
        parts = [(part, True) for part in first.value.parts]
        home = set(self._structure.blocks(first.start))
        for one in later:
            if one.start >= at:
                if self._loops_back(at):
                    return Binding("unknown")
                continue
            repeats = any(block[0] in _REPEATS and block not in home for block in self._structure.blocks(one.start))
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

    def _loops_back(self, at: int) -> bool:
        return any(
            kind in ("while_statement", "for_statement", "function_definition")
            for kind, _ in self._structure.blocks(at)
        )

    def _certain(self, assignment: Assignment, at: int) -> bool:
        """Whether every run that reaches `at` has passed the assignment."""
        if assignment.start > at:
            return False
        command = self._commands[assignment.command]
        if command.before in ("&&", "||", "|", "|&") or command.after in ("|", "|&", "&"):
            user = next((n for n, one in enumerate(self._commands) if one.start <= at <= one.end), -1)
            links = {one.before for one in self._commands[assignment.command + 1 : user + 1]}
            if command.before in ("||", "|", "|&") or command.after in ("|", "|&", "&") or links - {"&&"}:
                return False
        around = set(self._structure.blocks(at))
        return all(block in around for block in self._structure.blocks(assignment.start))
