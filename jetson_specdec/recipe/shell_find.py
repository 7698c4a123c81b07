# SPDX-License-Identifier: Apache-2.0
"""Finding the serve commands of a shell text, also those inside texts inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe.shell_assign import MAX_WORDS, assignment_of, command_words
from jetson_specdec.recipe.shell_launch import Launch, Outcome, basename, peel
from jetson_specdec.recipe.shell_lexer import Word
from jetson_specdec.recipe.shell_options import cut, launchers
from jetson_specdec.recipe.shell_order import Structure
from jetson_specdec.recipe.shell_parse import Command, Comment, read_commands
from jetson_specdec.recipe.shell_scope import Scope
from jetson_specdec.recipe.shell_script import Field, Script, nested
from jetson_specdec.recipe.shell_words import Expander
from jetson_specdec.recipe.shell_written import Writing, Writings, body_of
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.shell_source import Files

__all__ = ["Finder", "Found"]

MAX_LAYERS = 5
MAX_COMMANDS = 100
MAX_OTHERS = 40
# Where the name of a program surely ends: what follows may be anything, a key too.
_NO_NAME = {ord(sign): "\0" for sign in "([{<,=\"'`"}
_NOT_SHELL = (".yaml", ".yml", ".json", ".py", ".md", ".toml", ".ini", ".conf", ".service", ".txt", ".html", ".js")


@frozen(kw_only=True)
class Found:
    """A serve command where it was found.

    Attributes:
        script: the text it stands in.
        command: itself, in that text.
        outcome: what it starts.
        outer: the range, in the recipe's text, of the command that holds it.
        comments: the comments of its text.
        following: where the next command of its text begins.
        previous: where the command before it in its text ends.
        written: the files that are written before it.
    """

    script: Script
    command: Command
    outcome: Outcome
    outer: tuple[int, int]
    comments: tuple[Comment, ...]
    following: int
    previous: int
    written: tuple[Writing, ...] = ()


class Finder:
    """Walks a recipe's text and collects what it starts.

    Attributes:
        found: the serve commands, in reading order.
        others: what else was started, `(line, words)`, for the error that names it.
        comments: every comment, with the text it stands in.
        containers: containers started so far, by name.
        typing: the container that somebody types in from here on.
    """

    def __init__(self, root: Script) -> None:
        self._root = root
        self.found: list[Found] = []
        self.others: list[tuple[int, str]] = []
        self.comments: list[tuple[Script, Comment]] = []
        self.containers: dict[str, Launch] = {}
        self.typing: Launch | None = None
        self.writings = Writings()

    def walk(
        self,
        script: Script,
        start: int,
        end: int,
        environment: Mapping[str, str | None],
        launch: Launch,
        outer: tuple[int, int] | None = None,
        structure: Structure | None = None,
    ) -> None:
        """Read `script.text[start:end]` and follow every command in it.

        Raises:
            RecipeSyntaxError: the text cannot be read (JSE203, JSE205), or holds too much (JSE206).
        """
        commands, comments = read_commands(script.text, start, end)
        files = _files(script, launch)
        self.comments += [(script, comment) for comment in comments]
        structure = structure or Structure(script.text, start, end)
        scope = Scope(commands, structure, environment, files)
        expander = Expander(script, scope)
        notes = tuple(comments)
        for number, command in enumerate(commands):
            following = commands[number + 1].start if number + 1 < len(commands) else end
            previous = commands[number - 1].end if number else start
            place = outer or script.to_root(command.start, command.end)
            self.writings.note(expander, script, scope, number, launch.launcher, self.line(place[0]))
            step = _Step(self, script, scope, expander, launch, place, structure)
            step.follow(command, notes, following, previous)

    def other(self, pos: int, what: str) -> None:
        """Remember something else that the text runs; a few are enough to name."""
        what = what.translate(_NO_NAME).split("\0")[0].strip()
        if what and len(self.others) < MAX_OTHERS:
            self.others.append((self.line(pos), what))

    def line(self, pos: int) -> int:
        """Return the line, from 1, of a place in the recipe's text."""
        return self._root.text.count("\n", 0, pos) + 1


def _files(script: Script, launch: Launch) -> Callable[[Scope], Files] | None:
    """Return what makes a reader of the files that a text names, or None where it does not see them."""
    if launch.read is None:
        return None
    from jetson_specdec.recipe.shell_source import Files

    return partial(Files, script, launch.read)


@lru_cache(maxsize=1)
def _programs() -> frozenset[str]:
    """Return the programs that start something of interest; all others are passed over quickly."""
    table = launchers()
    names = {"vllm", "eval", "alias", "su", "runuser", "script", "cat", "tee", "run.sh", "docker-compose"}
    names |= {key.split(" ")[0] for key in table["wrappers"]["values"]}
    names |= {key.split(" ")[0] for kind in ("programs", "subcommands") for key in table["engines"][kind]}
    names |= {*table["shells"]["values"], *table["unknown_wrappers"]["values"], *table["remote"]["values"]}
    return frozenset(names | set(table["containers"]["programs"]["values"]))


def _interesting(program: str | None) -> bool:
    """Whether a command's first word may lead to an engine; one that is not known may."""
    name = basename(program) if program is not None else None
    return name is None or name in _programs() or name.startswith(("python", "pypy"))


class _Step:
    """Follows one command."""

    def __init__(
        self,
        finder: Finder,
        script: Script,
        scope: Scope,
        expander: Expander,
        launch: Launch,
        place: tuple[int, int],
        structure: Structure,
    ) -> None:
        self.finder = finder
        self.script = script
        self.scope = scope
        self.expander = expander
        self.launch = launch
        self.place = place
        self.structure = structure

    def follow(self, command: Command, comments: tuple[Comment, ...], following: int, previous: int) -> None:
        finder, script = self.finder, self.script
        self._substitutions(command)
        words = command_words(command)
        prefix: dict[str, str | None] = {}
        at = 0
        while at + 1 < len(words) and (pair := assignment_of(words[at])):
            prefix[pair[0]] = self._known(pair[2])
            at += 1
        if not words or assignment_of(words[at]):
            return
        if len(words) > MAX_WORDS or not _interesting(words[at].literal):
            finder.other(self.place[0], words[at].literal or "")
            return
        fields = self.expander.fields(words[at:])
        if not fields:
            return
        if fields[0].value == "alias":
            self._alias(fields[1:])
            return
        native = self.launch.launcher == "native"
        exported = self._exported(command.start) if native else {}
        launch = self.launch.with_env({**exported, **prefix})
        launch = self._reading(launch, command.start)
        outcome = peel(fields, launch, script.text, finder.containers)
        if outcome.kind == "serve":
            outcome = self._entered(outcome)
            if len(finder.found) >= MAX_COMMANDS:
                raise RecipeSyntaxError("JSE206", limit=MAX_COMMANDS)
            finder.found.append(
                Found(
                    script=script,
                    command=command,
                    outcome=outcome,
                    outer=self.place,
                    comments=comments,
                    following=following,
                    previous=previous,
                    written=finder.writings.seen(self.scope, command.start, outcome.launch.launcher),
                )
            )
        elif outcome.kind == "script":
            child = nested(outcome.rest, script, outcome.layer)
            self._descend(child, self._environment(outcome, command.start), outcome.launch)
        elif outcome.kind == "stdin":
            if not self._input(command, outcome) and outcome.launch.interactive:
                finder.typing = outcome.launch
        else:
            self._written(command, fields)
            if outcome.what:
                finder.other(self.place[0], outcome.what)
        if outcome.launch.container:
            finder.containers[outcome.launch.container] = attrs.evolve(outcome.launch, interactive=False)

    def _reading(self, launch: Launch, at: int) -> Launch:
        """Return a launch with the files that are read before it, and a reader for those that it reads itself."""
        files = self.scope.files
        for word, sourced in self.scope.sourced(at):
            what = self.script.text[word.start : word.end]
            line = self.finder.line(self.script.to_root(word.start, word.end)[0])
            why = "its files are out of reach here" if sourced is None else sourced.why
            if sourced is None or why:
                launch = launch.note("JSD215", what, line=line, why=why)
            else:
                launch = launch.note("JSD218", what, line=line, names=tuple(sourced.values))
        if files is None:
            return launch
        return attrs.evolve(launch, read=files.reader(at), opens=lambda one: files.named(one.start, one.end))

    def _entered(self, outcome: Outcome) -> Outcome:
        typing = self.finder.typing
        if typing is None or outcome.launch.launcher != "native" or self.script.parent is not None:
            return outcome
        image = typing.image or typing.image_raw or typing.container or ""
        return attrs.evolve(outcome, launch=typing.with_env(outcome.launch.env).note("JSD208", image))

    def _known(self, value: Word | None) -> str | None:
        if value is None:
            return None
        runs = self.expander.scalar(value)
        return (
            None if any(run.text is None or run.optional for run in runs) else "".join(run.text or "" for run in runs)
        )

    def _value(self, name: str, at: int) -> str | None:
        binding = self.scope.lookup(name, at)
        if binding.kind == "value":
            return binding.text
        return self._known(binding.word) if binding.kind == "word" else None

    def _exported(self, at: int) -> dict[str, str | None]:
        known, moment = self.scope.environments, self.scope.moment(at)
        if moment not in known:
            exported = self.scope.exported(at)
            known[moment] = {name: self._value(name, at) if sure else None for name, sure in exported.items()}
        return known[moment]

    def _environment(self, outcome: Outcome, at: int) -> dict[str, str | None]:
        """Return the variables that a nested text sees."""
        known: dict[str, str | None] = {}
        if outcome.launch.launcher == "native" and outcome.layer != "ssh":
            known.update(self.scope.environment)
        if outcome.inherits:
            known.update({name: self._value(name, at) for name in self.scope.names()})
        known.update(outcome.launch.env)
        return known

    def _descend(self, child: Script, environment: Mapping[str, str | None], launch: Launch) -> None:
        if len(child.layers) > MAX_LAYERS:
            raise RecipeSyntaxError("JSE205", line=self.finder.line(self.place[0]))
        outer = None if child.layer == "heredoc" else self.place
        self.finder.walk(child, 0, len(child.text), environment, launch, outer if child.origins else self.place)

    def _alias(self, fields: Sequence[Field]) -> None:
        for field in fields:
            shown = field.shown(self.script.text)
            equals = shown.find("=")
            if equals > 0 and field.runs[0].text is not None and len(field.runs[0].text) >= equals + 1:
                body = nested([cut(field, equals + 1)], self.script, "alias")
                self._descend(body, {}, self.launch)

    def _substitutions(self, command: Command) -> None:
        """Follow `$(…)`: a container's id is often kept that way."""
        for word in command.words:
            for part in word.parts:
                if part.kind == "command" and part.end - part.start > 3 and "\\" not in part.text:
                    skip = 2 if self.script.text.startswith(("$(", "<(", ">("), part.start) else 1
                    self.finder.walk(
                        self.script,
                        part.start + skip,
                        part.end - 1,
                        {name: self._value(name, part.start) for name in self.scope.names()},
                        self.launch,
                        self.place,
                        self.structure,
                    )

    def _input(self, command: Command, outcome: Outcome) -> bool:
        """Follow what a shell reads from its input."""
        for redirect in command.redirects:
            if redirect.body is not None:
                body = body_of(self.expander, self.script, redirect)
                self._descend(body, self._environment(outcome, command.start), outcome.launch)
                return True
            if redirect.op == "<<<" and redirect.target is not None:
                text = nested(self.expander.word(redirect.target), self.script, "heredoc")
                self._descend(text, self._environment(outcome, command.start), outcome.launch)
                return True
        return False

    def _written(self, command: Command, fields: Sequence[Field]) -> None:
        """Follow `cat > run.sh <<EOF`: the text is a script that somebody will run."""
        if basename(fields[0].shown(self.script.text)) not in ("cat", "tee", "sudo"):
            return
        targets = [one.target for one in command.redirects if one.op in (">", ">>", ">|") and one.target]
        names = [self.script.text[word.start : word.end].strip("\"'") for word in targets]
        names += [field.shown(self.script.text) for field in fields[1:]]
        if any(name.lower().endswith(_NOT_SHELL) for name in names):
            return
        for redirect in command.redirects:
            if redirect.body is not None:
                self._descend(body_of(self.expander, self.script, redirect), {}, self.launch.elsewhere())
