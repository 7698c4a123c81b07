# SPDX-License-Identifier: Apache-2.0
"""Files that a script writes itself, such as a `--config` YAML: `cat > x.yaml <<EOF`, `tee`, and what changes them.

Only a here-document is read; of every other way to write a file it is known that it was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from jetson_specdec.recipe.core import WrittenFile
from jetson_specdec.recipe.shell_assign import command_words
from jetson_specdec.recipe.shell_lexer import Word, read_double
from jetson_specdec.recipe.shell_parse import Command, Redirect
from jetson_specdec.recipe.shell_scope import Scope
from jetson_specdec.recipe.shell_script import Origin, Run, Script, nested_body
from jetson_specdec.recipe.shell_words import Expander
from jetson_specdec.values import frozen

__all__ = ["Writing", "Writings", "body_of"]

MAX_FILES = 100
_CONTINUED = re.compile(r"\$\{?\w*\\\r?\n")
_WRITES = (">", ">|", ">>")
_CHANGES = frozenset(
    {"sed", "yq", "perl", "ruby", "awk", "gawk", "cp", "mv", "rm", "ln", "install", "envsubst", "truncate", "dd"}
    | {"python", "python3", "ed", "ex", "patch", "jq", "sponge", "rsync"}
)


@frozen(kw_only=True)
class Writing:
    """One writing of a file.

    Attributes:
        file: the file as it is then.
        body: the here-document that it is, for changes; None where it is more than that.
        scope, number, start: where it is written.
        launcher: what the text that writes it runs in.
    """

    file: WrittenFile
    body: Script | None
    scope: Scope
    number: int
    start: int
    launcher: str

    def seen(self, scope: Scope, at: int, launcher: str) -> Writing:
        """Return this as a command at a place sees it: whether it is sure, and under the same name."""
        if scope is self.scope:
            sure = scope.passed(self.start, self.number, at, pipe=True) is True
        else:
            # used in a text inside, or a text written before: it has to be written whatever happens
            runs = self.scope.passed(self.start, self.number, self.start + 1, pipe=True)
            sure = runs is True and not self.scope.order.blocks(self.start)
        return attrs.evolve(self, file=attrs.evolve(self.file, sure=sure, direct=self.launcher == launcher))


class Writings:
    """The files that a recipe writes, in order."""

    def __init__(self) -> None:
        self._found: list[Writing] = []

    def note(self, expander: Expander, script: Script, scope: Scope, number: int, launcher: str, line: int) -> None:
        """Remember what a command writes."""
        command = scope.commands[number]
        words = command_words(command)
        program = _program(words)
        if program in _CHANGES:
            self._changed(expander, script, scope, number, launcher, line)
        if not (command.redirects or program == "tee") or len(self._found) >= MAX_FILES:
            return
        here = next((one for one in command.redirects if one.body is not None), None)
        targets = [(one.target, one.op == ">>") for one in command.redirects if one.target and _to_file(one, script)]
        if program == "tee" and number and _feeds_tee(scope.commands[number - 1]):
            pass  # `cat <<EOF | tee …` was noted with its `cat`
        elif program == "tee":
            targets += _tee(words)
        elif _feeds_tee(command):
            following = command_words(scope.commands[number + 1]) if number + 1 < len(scope.commands) else ()
            targets = _tee(following) if _program(following) == "tee" else []
        plain = program == "tee" or (program == "cat" and all(word.literal in ("cat", "-") for word in words))
        for target, appends in targets:
            name = _name(expander, script, target)
            body = body_of(expander, script, here) if here is not None and plain else None
            why = "not with a here-document" if body is None else _missing(body)
            if (
                here is not None
                and here.body is not None
                and not here.quoted
                and _CONTINUED.search(script.text, *here.body)
            ):
                why = why or "with a text that is not certain"  # a name that goes on in the next line
            text = None if body is None or why else body.text
            whole: Script | None = body
            if appends:
                earlier = next((one for one in reversed(self._found) if one.file.name == name), None)
                whole = None
                if earlier is None or earlier.file.text is None or text is None:
                    text, why = None, why or (earlier.file.why if earlier else "") or "as an addition to another text"
                else:
                    text = earlier.file.text + text
            self._found.append(
                Writing(
                    file=WrittenFile(name=name, text=text, line=line, why=why),
                    body=whole if text is not None else None,
                    scope=scope,
                    number=number,
                    start=command.start,
                    launcher=launcher,
                )
            )

    def _changed(self, expander: Expander, script: Script, scope: Scope, number: int, launcher: str, line: int) -> None:
        """Notice a program that is given the name of a file that was written before."""
        known = {one.file.name for one in self._found}
        command = scope.commands[number]
        if not known or any(one.body is not None for one in command.redirects):
            return
        names = {_name(expander, script, word) for word in command_words(command)[1:]}
        for name in sorted(names & known):
            file = WrittenFile(name=name, text=None, line=line, why="changed again by another program")
            self._found.append(
                Writing(file=file, body=None, scope=scope, number=number, start=command.start, launcher=launcher)
            )

    def seen(self, scope: Scope, at: int, launcher: str) -> tuple[Writing, ...]:
        """Return the files as a command sees them: of each the last writing, and the one before it is not sure."""
        found: dict[str, Writing] = {}
        for one in self._found:
            seen = one.seen(scope, at, launcher)
            earlier = found.pop(seen.file.name, None)
            if earlier is not None and not seen.file.sure:
                file = attrs.evolve(seen.file, text=None, sure=earlier.file.sure, why="a second time under a condition")
                seen = attrs.evolve(seen, file=file, body=None)
            found[seen.file.name] = seen
        return tuple(found.values())


def _feeds_tee(command: Command) -> bool:
    """Whether it is `cat <<EOF |`."""
    targets = [one for one in command.redirects if one.op in _WRITES]
    here = any(one.body is not None for one in command.redirects)
    return command.after == "|" and here and not targets and _program(command_words(command)) == "cat"


def _program(words: Sequence[Word]) -> str | None:
    literals = [word.literal or "" for word in words[:3]]
    if literals[:1] == ["sudo"]:
        literals = [word for word in literals[1:] if not word.startswith("-")]
    return literals[0].rpartition("/")[2] if literals else None


def _to_file(redirect: Redirect, script: Script) -> bool:
    """Whether it sends the standard output to a file."""
    first = script.text[redirect.start : redirect.start + 1]
    target = redirect.target.literal if redirect.target else None
    return redirect.op in _WRITES and first in (">", "1") and target != "/dev/null"


def _tee(words: Sequence[Word]) -> list[tuple[Word, bool]]:
    """Return the files of a `tee`, and whether it adds to them."""
    at = next((at for at, word in enumerate(words) if (word.literal or "").rpartition("/")[2] == "tee"), len(words))
    literals = [word.literal or "" for word in words[at + 1 :]]
    appends = any(word in ("-a", "--append") for word in literals)
    return [(word, appends) for word in words[at + 1 :] if not (word.literal or "").startswith("-")]


def _name(expander: Expander, script: Script, word: Word) -> str:
    """Return how a file is named: its name, or what is written where that is not known."""
    runs = expander.scalar(word)
    if all(run.text is not None for run in runs):
        return "".join(run.text or "" for run in runs)
    return script.text[word.start : word.end].strip("\"'")


def body_of(expander: Expander, script: Script, redirect: Redirect) -> Script:
    """Return the text of a here-document."""
    assert redirect.body is not None
    start, end = redirect.body
    if redirect.quoted:
        body = nested_body(script, redirect.body, None, ())
    else:
        parts = read_double(script.text, start, end, start, heredoc=True)
        body = nested_body(script, redirect.body, parts, expander.runs(parts))
    return _without_tabs(body, script) if redirect.op == "<<-" else body


def _without_tabs(body: Script, script: Script) -> Script:
    """Leave out the tabs at the beginning of lines, as `<<-` does."""
    text: list[str] = []
    origins: list[Origin] = []
    holes: dict[int, Run] = {}
    first = True
    for at, (char, origin) in enumerate(zip(body.text, body.origins, strict=True)):
        written = script.text[origin.start : origin.end] == char
        if first and char == "\t" and written:
            continue
        if at in body.holes:
            holes[len(text)] = body.holes[at]
        text.append(char)
        origins.append(origin)
        first = char == "\n" and written
    return Script(text="".join(text), parent=body.parent, origins=origins, holes=holes, layer=body.layer)


def _missing(body: Script) -> str:
    """Say what keeps the text from being known, or nothing."""
    names = tuple(dict.fromkeys(name for hole in body.holes.values() for name in hole.unresolved))
    if body.holes:
        return f"with a text that depends on {', '.join(names)}" if names else "with a text that is not certain"
    return ""
