# SPDX-License-Identifier: Apache-2.0
"""Files that a script reads with `source`: which file is meant, and what it sets.

Only a file of plain assignments is followed: its values are those that bash would give them. What else a file does
(commands, conditions, arrays of options) is not guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from posixpath import join
from typing import NamedTuple

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe.shell_assign import Binding, assignment_of, command_words, exports_all
from jetson_specdec.recipe.shell_lexer import Part, Word, read_words
from jetson_specdec.recipe.shell_parse import read_commands
from jetson_specdec.recipe.shell_paths import beside_script
from jetson_specdec.recipe.shell_scope import Scope
from jetson_specdec.recipe.shell_script import HOLE, Script
from jetson_specdec.recipe.shell_words import MAX_TEXT, Expander

__all__ = ["Files", "Read", "Sourced", "read_settings"]

MAX_DEPTH = 5
MAX_SETTINGS = 1000
_LEAVES = frozenset({"subshell", "command_substitution", "function_definition"})
_TESTS = {"[": "]", "[[": "]]", "test": ""}
_FILE_TESTS = ("-f", "-e", "-r", "-s")
_PATTERN = re.compile(r"[*?\[]")
# `${X:=v}` and arithmetic assign, `${X:?}` ends the script.
_DOES_MORE = re.compile(r"\$\{\w+(?:\[[^\]]*\])?:?[=?]|\$\(\([^)]*(?:=|\+\+|--)")
_SETS_THE_SHELL = frozenset({"IFS", "BASH_ENV", "ENV", "POSIXLY_CORRECT", "SHELLOPTS", "BASHOPTS"})


Read = Callable[[str], "str | None"]
"""Returns the text of a file by its name, from the recipe's folder, or None."""


class Sourced(NamedTuple):
    """What reading a file came to.

    Attributes:
        name: the file; None where the script does not tell.
        values: the variables that it sets.
        exported: those of its variables (or of the script's) that it exports, and whether it does in any case.
        exporting: whether every variable set behind it is exported; None where that is not certain.
        why: why its values do not count; empty where they do.
    """

    name: str | None = None
    values: Mapping[str, Binding] = {}
    exported: Mapping[str, bool] = {}
    exporting: bool | None = False
    why: str = ""


class Files:
    """Reads the files that one script names.

    Args:
        script: the script.
        read: reads a file by a name as it would be at the script's start.
        scope: the script's variables.
    """

    def __init__(self, script: Script, read: Read, scope: Scope) -> None:
        self._script = script
        self._read = read
        self._scope = scope
        self._expander = Expander(script, scope)

    # --- names -------------------------------------------------------------------------------------------------------

    def name(self, word: Word) -> str | None:
        """Return the file that a word names, from the recipe's folder; None where that is not certain."""
        found = self._place(word, 0)
        if found is None:
            return None
        anchor, path = found
        if anchor and path and not path.startswith("/"):
            return None
        if anchor == "script":
            return path.lstrip("/") or "."
        folder = self._folder(word.start)
        if path.startswith("/") and not anchor:
            return path
        return None if folder is None or not (anchor or path) else join(folder, path.lstrip("/"))

    def text(self, word: Word) -> str | None:
        """Return the text of the file that a word names, or None."""
        name = self.name(word)
        return self._read(name) if name is not None else None

    def named(self, start: int, end: int) -> tuple[str, str | None] | None:
        """Return name and text of the file that stands as (a part of) a word at a place; None where it is uncertain."""
        try:
            words = read_words(self._script.text, start, end)
        except RecipeSyntaxError:
            return None
        name = self.name(words[0]) if len(words) == 1 else None
        return None if name is None else (name, self._read(name))

    def reader(self, at: int) -> Read:
        """Return a reader for a shell that is started at a place."""

        def read(name: str) -> str | None:
            folder = self._folder(at) if not name.startswith("/") else ""
            return None if folder is None else self._read(join(folder, name))

        return read

    def _place(self, word: Word, depth: int) -> tuple[str, str] | None:
        """Return what a word is relative to (`script`, `here`, or empty for as written) and the rest of it."""
        runs = self._expander.scalar(word)
        if all(run.text is not None and not run.optional for run in runs):
            return "", "".join(run.text or "" for run in runs)
        anchor, rest = "", ""
        for part in word.parts:
            piece = self._piece(part, depth)
            if piece is None or (piece[0] and rest):
                return None
            anchor, rest = anchor or piece[0], rest + piece[1]
        return anchor, rest

    def _piece(self, part: Part, depth: int) -> tuple[str, str] | None:
        if part.kind == "text":
            return None if HOLE in part.text else ("", part.text)
        if self._script.parent is None and part.kind in ("command", "param"):
            written = self._script.text[part.start : part.end]
            path = beside_script(written)
            if path is not None:
                return "script", path
        if part.kind == "command":
            return ("here", "") if part.text.strip() == "pwd" else None
        if part.kind != "param" or part.op or part.subscript or depth >= MAX_DEPTH:
            return None
        binding = self._scope.lookup(part.name, part.start)
        if part.name == "PWD" and binding.kind == "unset":
            return "here", ""
        if binding.kind == "value":
            return "", binding.text
        return self._place(binding.word, depth + 1) if binding.word is not None and not binding.perhaps else None

    def _folder(self, at: int) -> str | None:
        """Return the folder a script is in at a place, from the recipe's; None where that is not certain."""
        scope, folder = self._scope, ""
        for number, command in enumerate(scope.commands):
            if command.start >= at:
                break
            words = command_words(command)
            head = words[0].literal if words else None
            if head not in ("cd", "pushd", "popd"):
                continue
            around = scope.order.blocks(at)
            outside = [kind for kind, start in scope.order.blocks(words[0].start) if (kind, start) not in around]
            if any(kind in _LEAVES for kind in outside):
                continue
            target = [word for word in words[1:] if word.literal not in ("--", "-P", "-L")]
            if len(target) != 1 or head == "popd" or not scope.order.certain(words[0].start, number, at):
                return None
            place = self._place(target[0], 0)
            if place is None or place in (("", ""), ("", "-")):
                return None
            anchor, path = place
            folder = join("" if anchor == "script" else folder, path.lstrip("/") if anchor else path)
        return folder

    # --- contents ----------------------------------------------------------------------------------------------------

    def source(self, word: Word, start: int, *, exporting: bool | None) -> Sourced:
        """Read a file as `source` does at a place."""
        name = self.name(word)
        if name is None:
            return Sourced(why="its name is not certain")
        text = self._read(name)
        if text is None:
            return Sourced(name=name, why="no such file was found")
        defaulted = tuple(name for run in self._expander.scalar(word) for name in run.defaulted)
        return read_settings(text, _Outer(self._scope, self._expander, start), name, exporting, defaulted)

    def value(self, word: Word) -> Binding:
        """Return what a variable that is assigned a word becomes."""
        runs = self._expander.scalar(word)
        text = "".join(run.text or "" for run in runs)
        if any(run.text is None or run.optional for run in runs) or len(text) > MAX_TEXT:
            return Binding("unknown")
        defaulted = tuple(dict.fromkeys(name for run in runs for name in run.defaulted))
        return Binding("value", text=text, defaulted=defaulted)

    # --- tests -------------------------------------------------------------------------------------------------------

    def test(self, words: Sequence[Word]) -> bool | None:
        """Say how a `[ … ]`, `[[ … ]]` or `test …` comes out; None where it depends on what is not known."""
        head = words[0].literal or ""
        close = _TESTS.get(head)
        if close is None or (close and words[-1].literal != close):
            return None
        inside = list(words[1:-1] if close else words[1:])
        negated = bool(inside) and inside[0].literal == "!"
        found = self._condition(inside[negated:], safe=head == "[[")
        return found if found is None else found != negated

    def _condition(self, words: Sequence[Word], *, safe: bool) -> bool | None:
        if not 1 <= len(words) <= 3:
            return None
        operator = words[-2].literal if len(words) > 1 else "-n"
        if operator in _FILE_TESTS and len(words) == 2:
            text = self.text(words[1])
            return None if text is None else bool(text) or operator != "-s"
        last = self._value(words[-1], safe)
        if len(words) < 3:
            return None if last is None or operator not in ("-n", "-z") else bool(last) == (operator == "-n")
        first = self._value(words[0], safe)
        pattern = safe and any(part.quote == "bare" and _PATTERN.search(part.text) for part in words[-1].parts)
        if first is None or last is None or pattern or operator not in ("=", "==", "!="):
            return None
        return (first == last) == (operator != "!=")

    def _value(self, word: Word, safe: bool) -> str | None:
        """Return what a word of a test is; None where it is not certain, or would be split."""
        if not safe and any(part.kind != "text" and part.quote != "double" for part in word.parts):
            return None
        runs = self._expander.scalar(word)
        if any(run.text is None or run.optional or run.defaulted for run in runs):
            return None
        return "".join(run.text or "" for run in runs)


class _Outer:
    """The variables of a script at the place where it reads a file."""

    def __init__(self, scope: Scope, expander: Expander, at: int) -> None:
        self.environment = scope.environment
        self._scope = scope
        self._expander = expander
        self._at = at

    def lookup(self, name: str) -> Binding:
        binding = self._scope.lookup(name, self._at)
        if binding.kind == "value" or (binding.kind == "unset" and name not in self._scope.defaults):
            return binding
        at = self._at
        runs = self._expander.scalar(Word(at, at, (Part("param", at, at, quote="double", seg=at, name=name),)))
        if any(run.text is None or run.optional for run in runs):
            return Binding("unknown")
        defaulted = tuple(name for run in runs for name in run.defaulted)
        return Binding("value", text="".join(run.text or "" for run in runs), defaulted=defaulted)


class _Inside:
    """The variables of a file while it is read."""

    defaults: Mapping[str, Part] = {}

    def __init__(self, outer: _Outer) -> None:
        self.environment = outer.environment
        self.values: dict[str, Binding] = {}
        self._outer = outer

    def lookup(self, name: str, at: int) -> Binding:
        return self.values[name] if name in self.values else self._outer.lookup(name)

    def from_file(self, name: str) -> bool:
        return True


def read_settings(
    text: str, outer: _Outer, name: str | None, exporting: bool | None, defaulted: tuple[str, ...] = ()
) -> Sourced:
    """Return what a file of assignments sets.

    Args:
        text: the file.
        outer: the variables that are set before.
        name: the file's name.
        exporting: whether every variable that is set is exported (`set -a`); None where that is not certain.
        defaulted: variables whose defaults the name rests on.
    """
    if "\r" in text:
        return Sourced(name=name, why="its lines end as on Windows, and bash keeps the carriage returns")
    try:
        commands, _ = read_commands(text)
    except RecipeSyntaxError:
        return Sourced(name=name, why="a quote or the like in it never ends")
    if len(commands) > MAX_SETTINGS:
        return Sourced(name=name, why="it is too long for a file of settings")
    inside = _Inside(outer)
    expander = Expander(Script(text=text), inside)
    exported: dict[str, bool] = {}
    for command in commands:
        words = command.words
        plain = command.before in ("", "\n", ";") and command.after in ("", "\n", ";") and not command.redirects
        pairs = [assignment_of(word) for word in words]
        head = words[0].literal if words else None
        if not plain or _DOES_MORE.search(text, command.start, command.end):
            return Sourced(name=name, why=_more(text, command.start))
        if head == "set" and all(_option(word.literal) for word in words[1:]):
            mode = exports_all([word.literal for word in words[1:]])
            exporting = exporting if mode is None else mode
            continue
        if head == "export":
            words, pairs = words[1:], pairs[1:]
            if not all(pair or _is_name(word) for word, pair in zip(words, pairs, strict=True)):
                return Sourced(name=name, why=_more(text, command.start))
        elif not all(pairs) and not (head in (":", "true") and len(words) == 1):
            return Sourced(name=name, why=_more(text, command.start))
        for word, pair in zip(words, pairs, strict=True):
            variable = pair[0] if pair else word.literal or ""
            if variable in _SETS_THE_SHELL:
                return Sourced(name=name, why=_more(text, command.start))
            if pair:
                inside.values[variable] = _assigned(pair, inside, expander, defaulted)
            if head == "export" or (pair and exporting is not False):
                exported[variable] = head == "export" or exporting is True or exported.get(variable, False)
    return Sourced(name=name, values=inside.values, exported=exported, exporting=exporting)


def _assigned(
    pair: tuple[str, bool, Word | None], inside: _Inside, expander: Expander, defaulted: tuple[str, ...]
) -> Binding:
    """Return what a variable of a file becomes."""
    name, append, value = pair
    if value is None or any(part.kind == "array" for part in value.parts):
        return Binding("unknown")
    if any(part.kind == "text" and part.quote == "bare" and ":~" in part.text for part in value.parts):
        return Binding("unknown")  # a home directory
    runs = expander.scalar(value)
    text = "".join(run.text or "" for run in runs)
    names = (*defaulted, *(one for run in runs for one in run.defaulted))
    if any(run.text is None or run.optional for run in runs) or len(text) > MAX_TEXT:
        return Binding("unknown")
    if append:
        before = inside.lookup(name, value.start)
        if before.kind != "value":
            return Binding("unknown")
        text, names = before.text + text, (*before.defaulted, *names)
    return Binding("value", text=text, defaulted=tuple(dict.fromkeys(names)))


def _option(word: str | None) -> bool:
    return word is not None and (
        re.fullmatch(r"[-+][aeuoxvBEh]+", word) is not None or word in ("pipefail", "allexport")
    )


def _is_name(word: Word) -> bool:
    return word.literal is not None and re.fullmatch(r"[A-Za-z_]\w*", word.literal) is not None


def _more(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"its line {line} is no plain assignment"
