# SPDX-License-Identifier: Apache-2.0
"""What a command starts in the end: the engine behind `sudo`, `docker run`, `bash -c`, `uv run` and their like."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import attrs
from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Mount, ServeForm
from jetson_specdec.recipe.shell_options import Option, cut, launchers, split_options
from jetson_specdec.recipe.shell_script import Field
from jetson_specdec.values import frozen

__all__ = ["Launch", "Outcome", "basename", "environment_pair", "peel"]

Kind = Literal["serve", "script", "stdin", "container", "none"]

_PAIR = re.compile(r"([A-Za-z_]\w*)=")
_PYTHON = re.compile(r"python[\d.]*\Z|pypy3?\Z")
_VLLM = re.compile(r"vllm(?:\[[\w.,-]*\])?(?:(?:@|[=~><!]=).*)?\Z")
"""`vllm`, or as uvx and pipx take it: `vllm@0.20.1`, `vllm[flashinfer]==0.20.1`."""
_API_MODULE = re.compile(r"vllm\.entrypoints\.(?:\w+\.)*api_server(?:\.\w+)*\Z")
_API_FILE = re.compile(r"(?:^|/)vllm/entrypoints/(?:\w+/)*api_server\.py\Z")
_KEYS = frozenset({"Enter", "C-m", "C-j", "KPEnter"})
MAX_WRAPPERS = 12


@frozen(kw_only=True)
class Launch:
    """What is known about where an engine runs, on the way to it.

    Attributes as in `ServeCommand`; `container` is the container's name, `interactive` whether somebody types in it;
    `read` reads a file by its name as it would be here, `opens` the file that a word names (its name and its text).
    Both are None where files are out of reach: in a container, on another machine.
    """

    launcher: str = "native"
    image: str | None = None
    image_raw: str | None = None
    entrypoint: tuple[str, ...] | None = None
    env: Mapping[str, str | None] = field(factory=dict)
    mounts: tuple[Mount, ...] = ()
    ports: tuple[str, ...] = ()
    workdir: str | None = None
    container: str | None = None
    interactive: bool = False
    read: Callable[[str], str | None] | None = field(default=None, eq=False, repr=False)
    opens: Callable[[Field], tuple[str, str | None] | None] | None = field(default=None, eq=False, repr=False)
    notes: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()

    def note(self, code: str, what: str, **more: Any) -> Launch:
        """Return this with a finding to make: its code, what it is about, and further (hashable) values."""
        return attrs.evolve(self, notes=(*self.notes, (code, (("what", what), *more.items()))))

    def findings(self, line: int) -> list[Finding]:
        """Return the findings to make on a command in a line."""
        return [Finding.of(code, **{"line": line, **dict(values)}) for code, values in dict.fromkeys(self.notes)]

    def elsewhere(self) -> Launch:
        """Return this for a place that does not see the files of this one."""
        return attrs.evolve(self, read=None, opens=None)

    def with_env(self, more: Mapping[str, str | None]) -> Launch:
        """Return this with further environment variables."""
        return attrs.evolve(self, env={**self.env, **more}) if more else self


@frozen(kw_only=True)
class Outcome:
    """What a command comes down to.

    Attributes:
        kind: `serve` an engine; `script` a text for a shell, in `rest`; `stdin` a shell that reads its input;
            `container` one that somebody will type in; `none` nothing of interest, `what` names it.
        serve_words, args: the words of a `serve`.
        layer: of a `script`.
        inherits: whether a `script` sees all variables (`eval`), not only the exported ones.
    """

    kind: Kind
    launch: Launch = field(factory=Launch)
    serve_form: ServeForm = "vllm_serve"
    engine: str = "vllm"
    serve_words: tuple[Field, ...] = ()
    args: tuple[Field, ...] = ()
    rest: tuple[Field, ...] = ()
    layer: str = ""
    inherits: bool = False
    what: str = ""


def basename(word: str) -> str:
    """Return the last component of a program's path."""
    return word.rstrip("/").rpartition("/")[2]


def environment_pair(one: Field, text: str) -> tuple[str, str | None] | None:
    """Read `NAME=value`; the value is None where it is not known."""
    match = _PAIR.match(one.shown(text))
    if not match or one.runs[0].text is None or len(one.runs[0].text) < match.end():
        return None
    return match[1], cut(one, match.end()).value


def peel(fields: Sequence[Field], launch: Launch, text: str, containers: Mapping[str, Launch]) -> Outcome:
    """Follow a command to what it starts.

    Args:
        fields: its words.
        launch: what is known of the place it runs in.
        text: the script's text, to show words that are not known.
        containers: containers started before, by name.
    """
    table = launchers()
    wrappers: dict[str, Any] = table["wrappers"]["values"]
    at = 0
    for _ in range(MAX_WRAPPERS):
        pairs: dict[str, str | None] = {}
        while at < len(fields) and (pair := environment_pair(fields[at], text)):
            pairs[pair[0]] = pair[1]
            at += 1
        launch = launch.with_env(pairs)
        if at >= len(fields):
            return Outcome(kind="none", launch=launch)
        name = basename(fields[at].shown(text))
        second = fields[at + 1].shown(text) if at + 1 < len(fields) else ""
        third = fields[at + 2].shown(text) if at + 2 < len(fields) else ""
        keys = (f"{name} {second} {third}", f"{name} {second}", name)
        key = next((key for key in keys if key in wrappers), None)
        if key is None:
            return _program(fields, at, name, launch, text, containers)
        rule = wrappers[key]
        options, at = split_options(fields, at + 1 + key.count(" "), rule.get("with_value", ()), text)
        launch = _from_wrapper(launch, options)
        module = next((n for n, one in enumerate(options) if one.name in ("-m", "--module")), None)
        if key == "uv run" and module is not None and at < len(fields):
            return _module(fields, at, at, launch, text)
        at += rule.get("operands", 0)
    return Outcome(kind="none", launch=launch)


def _from_wrapper(launch: Launch, options: Sequence[Option]) -> Launch:
    pairs: dict[str, str | None] = {}
    for option in options:
        if option.name in ("-E", "--setenv") and option.field and (match := _PAIR.match(option.shown)):
            pairs[match[1]] = option.value[match.end() :] if option.value is not None else None
        elif option.name in ("--chdir", "--working-directory") and option.value:
            launch = attrs.evolve(launch, workdir=option.value)
    return launch.with_env(pairs)


def _program(
    fields: Sequence[Field], at: int, name: str, launch: Launch, text: str, containers: Mapping[str, Launch]
) -> Outcome:
    table = launchers()
    shown = [one.shown(text) for one in fields[at : at + 3]]
    second = shown[1] if len(shown) > 1 else ""
    engines = table["engines"]
    if second == "serve" and _VLLM.match(name):
        return _serve(fields, at, at + 2, launch, "vllm_serve")
    if name in engines["programs"]:
        return _serve(fields, at, at + 1, launch, "other", engines["programs"][name])
    if f"{name} {second}" in engines["subcommands"]:
        return _serve(fields, at, at + 2, launch, "other", engines["subcommands"][f"{name} {second}"])
    if _PYTHON.match(name) or (fields[at].value is None and second == "-m"):
        return _python(fields, at, launch, text)
    if name in table["shells"]["values"]:
        return _shell(fields, at, launch, text)
    if name in table["containers"]["programs"]["values"] or name in ("docker-compose", "run.sh"):
        from jetson_specdec.recipe.shell_docker import container

        return container(fields, at, name, launch, text, containers)
    nested = _nested(fields, at, name, launch, text, containers)
    if nested:
        return nested
    if name in table["unknown_wrappers"]["values"]:
        for later in range(at + 1, len(fields)):
            found = peel(fields[later:], launch.note("JSD209", name), text, containers)
            if found.kind in ("serve", "script"):
                return found
    return Outcome(kind="none", launch=launch, what=" ".join(shown[:2]))


def _serve(
    fields: Sequence[Field], first: int, at: int, launch: Launch, form: ServeForm, engine: str = "vllm"
) -> Outcome:
    return Outcome(
        kind="serve",
        launch=launch,
        serve_form=form,
        engine=engine,
        serve_words=tuple(fields[first:at]),
        args=tuple(fields[at:]),
    )


def _python(fields: Sequence[Field], at: int, launch: Launch, text: str) -> Outcome:
    position = at + 1
    while position < len(fields):
        word = fields[position].shown(text)
        if word == "-m" and position + 1 < len(fields):
            return _module(fields, at, position + 1, launch, text)
        if word in ("-X", "-W", "--check-hash-based-pycs"):
            position += 2
        elif word.startswith("-") and word != "-" and word != "-c":
            position += 1
        else:
            break
    if position >= len(fields):
        return Outcome(kind="none", launch=launch)
    file = fields[position].shown(text)
    if _API_FILE.search(file):
        return _serve(fields, at, position + 1, launch, "api_server")
    following = fields[position + 1].value if position + 1 < len(fields) else None
    if basename(file) == "vllm" and following == "serve":
        return _serve(fields, at, position + 2, launch, "vllm_serve")
    return Outcome(kind="none", launch=launch, what=basename(file))


def _module(fields: Sequence[Field], first: int, at: int, launch: Launch, text: str) -> Outcome:
    module = fields[at].shown(text)
    following = fields[at + 1].value if at + 1 < len(fields) else None
    if _API_MODULE.match(module):
        return _serve(fields, first, at + 1, launch, "api_server")
    if module in ("vllm", "vllm.entrypoints.cli.main") and following == "serve":
        return _serve(fields, first, at + 2, launch, "vllm_serve")
    engine = launchers()["engines"]["modules"].get(module)
    if engine:
        return _serve(fields, first, at + 1, launch, "other", engine)
    return Outcome(kind="none", launch=launch, what=f"python -m {module}")


def _shell(fields: Sequence[Field], at: int, launch: Launch, text: str) -> Outcome:
    position, command = at + 1, False
    while position < len(fields):
        word = fields[position].shown(text)
        if word in ("--rcfile", "--init-file"):
            position += 2
        elif word.startswith("--"):
            position += 1
        elif word[:1] in ("-", "+") and len(word) > 1:
            command = command or (word[0] == "-" and "c" in word)
            position += 2 if word[-1] in "oO" else 1
        else:
            break
    rest = tuple(fields[position:])
    if command and rest:
        return Outcome(kind="script", launch=launch, rest=rest[:1], layer="bash -c")
    if not rest:
        return Outcome(kind="stdin", launch=launch, what=basename(fields[at].shown(text)))
    return Outcome(kind="none", launch=launch, what=f"{basename(fields[at].shown(text))} {rest[0].shown(text)}")


def _nested(
    fields: Sequence[Field], at: int, name: str, launch: Launch, text: str, containers: Mapping[str, Launch]
) -> Outcome | None:
    """Follow programs that hand a text to a shell."""
    remote = launchers()["remote"]["values"]
    if name == "eval":
        return Outcome(kind="script", launch=launch, rest=tuple(fields[at + 1 :]), layer="eval", inherits=True)
    if name in ("su", "runuser", "script"):
        options, _ = split_options(fields, at + 1, ("-c", "--command", "-s", "-g", "-G", "-w"), text)
        if not any(one.name in ("-c", "--command") for one in options):
            # su takes options behind the user's name as well
            options, _ = split_options(fields, min(at + 2, len(fields)), ("-c", "--command", "-s"), text)
            if not options:
                options, _ = split_options(fields, min(at + 3, len(fields)), ("-c", "--command", "-s"), text)
        given = next((one.field for one in options if one.name in ("-c", "--command") and one.field), None)
        return Outcome(kind="script", launch=launch, rest=(given,), layer="bash -c") if given else None
    if name not in remote:
        return None
    _, position = split_options(fields, at + 1, remote[name], text)
    if name == "ssh":
        rest = tuple(fields[position + 1 :])
        if not rest:
            return Outcome(kind="stdin", launch=launch.elsewhere(), what="ssh")
        return Outcome(kind="script", launch=launch.elsewhere(), rest=rest, layer="ssh")
    if name == "screen":
        return peel(fields[position:], launch, text, containers) if position < len(fields) else None
    verb = fields[position].shown(text) if position < len(fields) else ""
    _, position = split_options(fields, position + 1, remote["tmux"], text)
    rest = tuple(one for one in fields[position:] if one.value not in _KEYS)
    if not rest:
        return None
    if len(rest) == 1 or verb in ("send", "send-keys"):
        return Outcome(kind="script", launch=launch, rest=rest, layer="tmux")
    return peel(rest, launch, text, containers)
