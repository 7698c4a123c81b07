# SPDX-License-Identifier: Apache-2.0
"""What a recipe is, whatever its form: serve commands whose words know where they stand in the text.

A form module (`shell`, `config_file`, …) parses text into these values and carries out `ArgEdit`s on it. Nothing here
knows a shell or YAML; nothing in a form module knows what a flag means (`flags` does).

Offsets count characters of `Recipe.text` (not bytes), end exclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = [
    "AppendArgs",
    "Arg",
    "ArgEdit",
    "Form",
    "Mount",
    "Recipe",
    "RemoveArgs",
    "ReplaceArg",
    "ServeCommand",
    "ServeForm",
    "WrittenFile",
    "reader_of",
]

Form = Literal["shell", "config_file", "compose", "unit", "manifest", "mem_tune", "python"]
ServeForm = Literal["vllm_serve", "api_server", "image_entrypoint", "other"]


@frozen(kw_only=True)
class Arg:
    """One word that reaches the engine after `serve` (or after the image, or after the api_server module).

    Attributes:
        value: what the engine would receive; None where a variable or command in it cannot be resolved.
        raw: the word as written, quotes and all.
        start, end: where `raw` stands in the recipe's text.
        unresolved: names of variables (or the text of command substitutions) that kept `value` from being known.
        resolved_from: names of variables whose values, found in the recipe itself, went into `value`.
        optional: the word comes from `${X:+…}` or the like: whether it is there depends on the environment;
            `value` then is what it would be.
        splices: the word may become no word or several (an unquoted variable, an array): nothing may be put into it.
    """

    value: str | None
    raw: str
    start: int
    end: int
    unresolved: tuple[str, ...] = ()
    resolved_from: tuple[str, ...] = ()
    optional: bool = False
    splices: bool = False


@frozen(kw_only=True)
class Mount:
    """A host path visible inside the container (`-v`, `--volume`, `--mount`); named volumes have no host path."""

    host: str | None
    container: str
    read_only: bool = False


@frozen(kw_only=True)
class WrittenFile:
    """A file that the recipe itself writes before a command runs.

    Attributes:
        name: how the recipe names it; what is not known of the name as written.
        text: what is written; None where that is not known.
        line: where, from 1.
        why: how it is written where `text` is None.
        sure: whether it is written in any case.
        direct: whether the command sees it under the same name; else through its mounts.
    """

    name: str
    text: str | None = field(repr=False)
    line: int
    why: str = ""
    sure: bool = True
    direct: bool = True


@frozen(kw_only=True)
class ServeCommand:
    """One serve command of a recipe.

    Attributes:
        index: which command of the recipe, from 0 in reading order.
        serve_form: how the engine is started; `other` for an engine that is not vLLM.
        engine: `vllm`, or the name of the engine that this command starts (`sglang`, `llama.cpp`, `ollama`,
            `tensorrt-edge-llm`, `tensorrt-llm`, `mlc`, `tgi`).
        launcher: `native`, `docker`, `podman`, `nerdctl`, `jetson-containers`, `compose`, `systemd`, `kubernetes`.
        image: container image as resolved, or None (native, or unresolvable: then `image_raw` has the text).
        entrypoint: the entrypoint override as words (`--entrypoint ""` is an empty tuple), None without one.
        args: the words after `serve`, in order; the positional model is among them.
        serve_words: the words between the image (or the line's start) and `args`, e.g. `("vllm", "serve")`,
            `("python3", "-m", "vllm.entrypoints.openai.api_server")`, `()` for an image's own entrypoint.
        env: environment that reaches the engine (prefix assignments, `export`, `docker -e`); None where unresolvable.
        mounts: container mounts.
        ports: published ports as written (`8500:8000`).
        workdir: directory the engine starts in where the recipe says so.
        model_named: the model that the surroundings name (KServe's `storageUri`), for words that do not; else None.
        runner: a program that starts the engine and takes flags of its own beside the engine's (`kserve-huggingface`).
        service: the compose service that it is the command of, or None.
        writes: files that the recipe writes before this command, the last writing of each.
        start, end: the whole command in the text, redirections included, trailing comment not.
        line: first line of the command, from 1.
        wrapped_in: quoting layers around the serve words, outermost first: `alias`, `bash -c`, `heredoc`, `eval`.
        blocked: why the arguments cannot be edited safely (a finding), or None where they can.
        findings: what was noticed about this command while parsing.
    """

    index: int
    serve_form: ServeForm
    engine: str = "vllm"
    launcher: str = "native"
    image: str | None = None
    image_raw: str | None = None
    entrypoint: tuple[str, ...] | None = None
    args: tuple[Arg, ...] = ()
    serve_words: tuple[str, ...] = ()
    env: Mapping[str, str | None] = field(factory=dict)
    mounts: tuple[Mount, ...] = ()
    ports: tuple[str, ...] = ()
    workdir: str | None = None
    model_named: str | None = None
    runner: str | None = None
    service: str | None = None
    writes: tuple[WrittenFile, ...] = ()
    start: int = 0
    end: int = 0
    line: int = 1
    wrapped_in: tuple[str, ...] = ()
    blocked: Finding | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def editable(self) -> bool:
        """Whether the arguments can be changed in place."""
        return self.blocked is None


@frozen(kw_only=True)
class Recipe:
    """A deployment as its owner wrote it.

    Attributes:
        text: the whole text, byte for byte what was read (decoded as UTF-8 with surrogateescape, newlines untouched).
        form: which form it is in.
        path: where it was read from, or None (standard input, a string).
        commands: the serve commands in it; a commented-out command is not one.
        findings: what was noticed about the text as a whole.
        beside: texts of other files that were read with it (`.env`, `EnvironmentFile=`, `source`), by the name used;
            they may hold secrets and are never shown.
    """

    text: str
    form: Form
    path: str | None = None
    commands: tuple[ServeCommand, ...] = ()
    findings: tuple[Finding, ...] = ()
    beside: Mapping[str, str] = field(factory=dict, repr=False)


def reader_of(recipe: Recipe) -> Callable[[str], str | None] | None:
    """Return a reader of the files that were read with a recipe, for reading it (or a change of it) again."""
    return recipe.beside.get if recipe.beside else None


@frozen(kw_only=True)
class ReplaceArg:
    """Give the word at `index` of `args` a new value; its quoting style is kept where the new value allows it."""

    index: int
    value: str


@frozen(kw_only=True)
class RemoveArgs:
    """Take the words `first`…`last` (inclusive) out, with the white space and line continuation they stood in."""

    first: int
    last: int


@frozen(kw_only=True)
class AppendArgs:
    """Put words behind the last argument of the command, in the style of the recipe (own line, indentation).

    Attributes:
        values: the words.
        before: index of the argument to put them in front of, or of one that is written in the same word; None
            puts them last.
    """

    values: tuple[str, ...]
    before: int | None = None


ArgEdit = ReplaceArg | RemoveArgs | AppendArgs
