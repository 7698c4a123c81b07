# SPDX-License-Identifier: Apache-2.0
"""Serve commands inside other formats: from words with places to `ServeCommand`.

Compose files, units and manifests differ in how they write words. Once the words are there, what they start is asked of
the same code as for shell recipes; a text handed to `bash -c` is read as a shell recipe of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import field

from jetson_specdec.errors import RecipeError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.chars import ELSEWHERE, HOLE, Char, Layers, Note, names_of, text_of
from jetson_specdec.recipe.core import Arg, Form, Recipe, ServeCommand
from jetson_specdec.recipe.shell_docker import own_entrypoint
from jetson_specdec.recipe.shell_launch import Launch, Outcome, peel
from jetson_specdec.recipe.shell_script import Field, Run
from jetson_specdec.values import frozen

__all__ = [
    "Located",
    "Place",
    "ScriptSite",
    "Word",
    "line_of",
    "locate",
    "moved",
    "recipe_of",
]


@frozen(kw_only=True)
class Word:
    """One word and where it is written.

    Attributes:
        chars: its characters.
        start, end: what to replace to replace it, quotes included.
        style: how it is written: a YAML style for a list item, `bare`, `single` or `double` inside a text.
        outer: the layers around it, for a word inside a text.
        node: the YAML scalar it stands in, or None.
        parent: the YAML list it is an item of, or None.
        splices: it may become no word or several.
        shared: several words stand at this place.
    """

    chars: tuple[Char, ...]
    start: int
    end: int
    style: str = "plain"
    outer: Layers = ()
    node: Any = None
    parent: Any = None
    splices: bool = False
    shared: bool = False

    @property
    def value(self) -> str | None:
        """The word as the program receives it, or None."""
        return None if any(char.text == HOLE for char in self.chars) else text_of(self.chars)


@frozen(kw_only=True)
class ScriptSite:
    """A shell text that is one word of the recipe, which of its commands is meant, and what it is started with.

    `beside` holds the files that it reads.
    """

    word: Word
    chars: tuple[Char, ...]
    text: str
    index: int
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    beside: Mapping[str, str] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class Located:
    """A serve command and where its arguments are written.

    Attributes:
        command: the command; its index is given when the whole recipe is read.
        words: one for each of its arguments (none where it stands in a script).
        tail: the last word of the command, behind which arguments are added; None where there is no word at all.
        script: the shell text it stands in, or None.
        entry_words: how many words of the entrypoint override are in front of the arguments (or of the script) and
            stay as they are; None where the entrypoint is not one of this form's words.
    """

    command: ServeCommand
    words: tuple[Word, ...] = ()
    tail: Word | None = None
    script: ScriptSite | None = None
    entry_words: int | None = None

    @property
    def surroundings(self) -> ServeCommand:
        """The command with that part of the entrypoint only which is no argument."""
        if self.entry_words is None or self.command.entrypoint is None:
            return self.command
        return attrs.evolve(self.command, entrypoint=self.command.entrypoint[: self.entry_words])


@frozen(kw_only=True)
class Place:
    """Where words stand: what is known around them.

    Attributes:
        launch: launcher, image, environment, mounts.
        start, end: the range of the whole command in the text.
        container: whether an image's own entrypoint may be what runs.
        stands_for: the image that runs where none is named.
        blocked: why nothing can be changed here, or None.
        findings: what was noticed while reading the surroundings.
    """

    launch: Launch
    start: int
    end: int
    container: bool = False
    stands_for: str = ""
    blocked: Finding | None = None
    findings: tuple[Finding, ...] = field(default=())


def line_of(text: str, at: int) -> int:
    """Return the line, from 1, of a place."""
    return text.count("\n", 0, at) + 1


def recipe_of(text: str, form: Form, path: str | None, located: Sequence[Located]) -> Recipe:
    """Return the recipe that the commands found in a text make up."""
    commands = tuple(attrs.evolve(one.command, index=index) for index, one in enumerate(located))
    findings: tuple[Finding, ...] = ()
    if len(commands) > 1:
        findings = (Finding.of("JSD200", count=len(commands), lines=[command.line for command in commands]),)
    return Recipe(text=text, form=form, path=path, commands=commands, findings=findings)


def locate(text: str, entry: Sequence[Word] | None, words: Sequence[Word], place: Place) -> list[Located]:
    """Return the serve commands that words start (several where they are a script).

    Args:
        text: the recipe's text.
        entry: the words of an entrypoint override; None without one.
        words: the words behind it.
        place: where they stand.
    """
    everything = [*(entry or ()), *words]
    fields = [_field(word) for word in everything]
    sites = {id(one): word for one, word in zip(fields, everything, strict=True)}
    outcome = _outcome(text, fields, None if entry is None else len(entry), place)
    if outcome.kind == "serve":
        inside, found = outcome.args, [_serve(text, outcome, sites, everything, place)]
    elif outcome.kind == "script" and len(outcome.rest) == 1 and id(outcome.rest[0]) in sites:
        inside, found = outcome.rest, _script(text, outcome, sites[id(outcome.rest[0])], place)
    else:
        return []
    if entry is None:
        return found
    changeable = {id(one) for one in inside}
    first = next((at for at, one in enumerate(fields) if id(one) in changeable), len(fields))
    return [
        attrs.evolve(one, entry_words=min(first, len(entry))) if one.command.launcher == place.launch.launcher else one
        for one in found
    ]


def _outcome(text: str, fields: Sequence[Field], entry: int | None, place: Place) -> Outcome:
    launch = place.launch
    if not place.container:
        return peel(fields, launch, text, {})
    image = launch.image or launch.image_raw or place.stands_for
    found = peel(fields, launch, text, {}) if fields else Outcome(kind="none", launch=launch)
    if found.kind in ("serve", "script"):
        return found
    if entry is None:
        return own_entrypoint(fields, image, launch, text, {})
    if entry < len(fields) and entry:
        # a start script of the owner's: what is behind it may still be vLLM's arguments
        return own_entrypoint(fields[entry:], image, launch.note("JSD209", fields[0].shown(text)), text, {})
    return found


def _field(word: Word) -> Field:
    runs: list[Run] = []
    known: list[Char] = []

    def flush() -> None:
        if known:
            run = Run(text_of(known), known[0].start, known[-1].end, False, "elsewhere", word.start, True)
            runs.append(
                run._replace(
                    resolved=names_of(known, "resolved"),
                    defaulted=names_of(known, "defaulted"),
                    optional=any(char.note is not None and char.note.optional for char in known),
                )
            )
            known.clear()

    for char in word.chars:
        if char.text != HOLE:
            known.append(char)
            continue
        flush()
        names = char.note.unresolved if char.note else ()
        runs.append(
            Run(
                None,
                char.start,
                char.end,
                False,
                "elsewhere",
                word.start,
                not word.splices,
                unresolved=names,
                splices=word.splices,
            )
        )
    flush()
    return Field(
        runs=tuple(runs) or (Run("", word.start, word.end, False, "elsewhere", word.start, True),),
        start=word.start,
        end=word.end,
        word=(word.start, word.end),
        shared=word.shared,
        optional=any(run.optional for run in runs),
        splices=word.splices,
    )


def _arg(one: Field, text: str) -> Arg:
    return Arg(
        value=one.value,
        raw=text[one.start : one.end],
        start=one.start,
        end=one.end,
        unresolved=one.names("unresolved"),
        resolved_from=tuple(dict.fromkeys((*one.names("resolved"), *one.names("defaulted")))),
        optional=one.optional,
        splices=one.splices or (one.value is None and one.shared),
    )


def _command(text: str, launch: Launch, place: Place, **more: Any) -> ServeCommand:
    return ServeCommand(
        index=0,
        launcher=launch.launcher,
        image=launch.image,
        image_raw=launch.image_raw,
        entrypoint=launch.entrypoint,
        env=dict(launch.env),
        mounts=launch.mounts,
        ports=launch.ports,
        workdir=launch.workdir,
        start=place.start,
        end=place.end,
        line=line_of(text, place.start),
        **more,
    )


def _serve(text: str, outcome: Outcome, sites: Mapping[int, Word], everything: Sequence[Word], place: Place) -> Located:
    known = all(id(one) in sites for one in outcome.args)
    line = line_of(text, place.start)
    findings = outcome.launch.findings(line)
    defaulted = list(dict.fromkeys(name for one in outcome.args for name in one.names("defaulted")))
    findings += [Finding.of("JSD207", line=line, names=defaulted)] if defaulted else []
    findings += _split_flags(text, outcome.args)
    blocked = place.blocked
    if not known and blocked is None:
        blocked = Finding.of("JSD233", line=line)
    command = _command(
        text,
        outcome.launch,
        place,
        serve_form=outcome.serve_form,
        engine=outcome.engine,
        args=tuple(_arg(one, text) for one in outcome.args),
        serve_words=tuple(one.shown(text) for one in outcome.serve_words),
        blocked=blocked,
        findings=(*findings, *place.findings, *((blocked,) if blocked else ())),
    )
    words = tuple(sites[id(one)] for one in outcome.args) if known else ()
    return Located(command=command, words=words, tail=everything[-1] if everything else None)


def _split_flags(text: str, args: Sequence[Field]) -> list[Finding]:
    """A list item such as `- --port 8000` is one argument; vLLM does not know a flag of that name."""
    glued = [one for one in args if re.match(r"--?[A-Za-z][\w-]*[ \t]+\S", one.value or "")]
    return [
        Finding.of("JSD232", line=line_of(text, one.start), word=one.value, flag=(one.value or "").split()[0])
        for one in glued
    ]


# --- scripts inside words --------------------------------------------------------------------------------------------


def _script(text: str, outcome: Outcome, word: Word, place: Place) -> list[Located]:
    from jetson_specdec.recipe.shell import parse_shell

    chars = _shell_chars(word.chars)
    script = text_of(chars)
    known = {name: value for name, value in outcome.launch.env.items() if value is not None}
    try:
        inner = parse_shell(script, environ=known, read=outcome.launch.read)
    except RecipeError:
        return []  # no serve command in it, or nothing a shell would read
    found = [_inside(text, outcome, word, chars, inner, one, place) for one in inner.commands]
    site = ScriptSite(word=word, chars=chars, text=script, index=0, environ=known, beside=inner.beside)
    return [attrs.evolve(one, script=attrs.evolve(site, index=at)) for at, one in enumerate(found)]


def _shell_chars(chars: Sequence[Char]) -> tuple[Char, ...]:
    """Write what is not known as a shell variable, which is not known either."""
    result: list[Char] = []
    for char in chars:
        if char.text != HOLE:
            result.append(char)
            continue
        names = (char.note or Note()).unresolved
        name = re.sub(r"\W", "_", names[0]) if names else "UNKNOWN"
        result += [Char(sign, char.start, char.end, ELSEWHERE, char.note) for sign in "${" + name + "}"]
    return tuple(result)


def _inside(
    text: str,
    outcome: Outcome,
    word: Word,
    chars: tuple[Char, ...],
    inner: Recipe,
    one: ServeCommand,
    place: Place,
) -> Located:
    def span(start: int, end: int) -> tuple[int, int]:
        if start < end:
            return chars[start].start, chars[end - 1].end
        at = chars[start].start if start < len(chars) else word.end
        return at, at

    args = []
    for arg in one.args:
        start, end = span(arg.start, arg.end)
        names = names_of(chars[arg.start : arg.end], "resolved")
        args.append(
            attrs.evolve(arg, start=start, end=end, raw=text[start:end], resolved_from=(*arg.resolved_from, *names))
        )
    starts = [0, *(at + 1 for at, char in enumerate(inner.text) if char == "\n")]

    def line(number: int) -> int:
        at = starts[number - 1] if number - 1 < len(starts) else len(chars)
        return line_of(text, chars[at].start if at < len(chars) else word.end)

    start, end = span(one.start, one.end)
    own = one.launcher == "native"
    launch = outcome.launch
    blocked = one.blocked if one.blocked is None else moved(one.blocked, line)
    blocked = place.blocked or blocked
    findings = [moved(finding, line) for finding in (*inner.findings, *one.findings) if finding.code != "JSD200"]
    notes = launch.findings(line(one.line))
    command = attrs.evolve(
        one,
        args=tuple(args),
        launcher=launch.launcher if own else one.launcher,
        image=launch.image if own else one.image,
        image_raw=launch.image_raw if own else one.image_raw,
        entrypoint=launch.entrypoint if own else one.entrypoint,
        env={**launch.env, **one.env} if own else one.env,
        mounts=launch.mounts if own else one.mounts,
        ports=launch.ports if own else one.ports,
        workdir=one.workdir or launch.workdir if own else one.workdir,
        writes=tuple(attrs.evolve(file, line=line(file.line)) for file in one.writes),
        start=start,
        end=end,
        line=line_of(text, start),
        wrapped_in=(outcome.layer, *one.wrapped_in),
        blocked=blocked,
        findings=(*notes, *findings, *place.findings, *((place.blocked,) if place.blocked else ())),
    )
    return Located(command=command, tail=word)


def moved(finding: Finding, line: Any) -> Finding:
    """Count a finding's lines in the recipe instead of in the script."""
    values = dict(finding.values)
    if isinstance(values.get("line"), int):
        values["line"] = line(values["line"])
    if isinstance(values.get("lines"), (list, tuple)):
        values["lines"] = [line(one) for one in values["lines"]]
    return attrs.evolve(finding, values=values)
