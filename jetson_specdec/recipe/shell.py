# SPDX-License-Identifier: Apache-2.0
"""Shell recipes: `parse_shell` finds the serve commands of a text, `edit_shell` changes their arguments in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe.core import Arg, ArgEdit, Recipe, ServeCommand

if TYPE_CHECKING:
    from jetson_specdec.recipe.shell_find import Finder, Found
    from jetson_specdec.recipe.shell_script import Field

__all__ = ["edit_shell", "parse_shell", "read_shell"]

MAX_CHARACTERS = 128 * 1024
"""No recipe is that long; a longer text is a log or a dump handed over by mistake."""

MAX_FILES = 40
"""So often a recipe may read a file."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*$", re.MULTILINE)
_READS_FILES = re.compile(r"(?:^|[\s;&|({\"'`])(?:source|\.)[ \t]|--env-file", re.MULTILINE)
_SHELL_FENCES = frozenset({"", "bash", "sh", "shell", "console", "zsh", "shell-session", "terminal", "shellsession"})


def parse_shell(
    text: str,
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    read: Callable[[str], str | None] | None = None,
) -> Recipe:
    """Find the live serve commands of a shell script, a pasted command or a Markdown note with fenced commands.

    Args:
        text: the text, newlines untouched.
        path: where it was read from.
        environ: values of variables that the text does not assign itself. None by default, and on purpose: the recipe
            may run elsewhere, so what the text does not say stays unresolved.
        read: returns the text of a file that the script reads (`source`, `--env-file`), by its name from the recipe's
            folder, or None; without it such files count as not found.

    Raises:
        RecipeSyntaxError: empty (JSE200), too long (JSE201), not text (JSE202), a quote or the like that never ends
            (JSE203), no serve command (JSE204), nested too deeply (JSE205), too many commands (JSE206).
    """
    if read is None or not _READS_FILES.search(text):
        return _parsed(text, path) if environ is None else _parse(text, path, environ)
    beside: dict[str, str] = {}

    def remembered(name: str) -> str | None:
        content = read(name)
        if content is not None:
            beside[name] = content
        return content

    recipe = _parse(text, path, environ, remembered)
    return attrs.evolve(recipe, beside=beside) if beside else recipe


@lru_cache(maxsize=16)
def _parsed(text: str, path: str | None) -> Recipe:
    """`parse_shell` without an environment: an edit proves itself by reading texts that were just read."""
    return _parse(text, path, None)


def _parse(
    text: str,
    path: str | None,
    environ: Mapping[str, str] | None,
    read: Callable[[str], str | None] | None = None,
) -> Recipe:
    from jetson_specdec.recipe.shell_checks import recipe_findings

    finder = read_shell(text, path=path, environ=environ, read=read)
    commands = tuple(_command(index, found, text) for index, found in enumerate(finder.found))
    if not commands:
        others = list(dict.fromkeys(f"{what} (line {line})" for line, what in finder.others))[:8]
        raise RecipeSyntaxError("JSE204", found=others)
    return Recipe(
        text=text,
        form="shell",
        path=path,
        commands=commands,
        findings=recipe_findings(commands, text),
    )


def edit_shell(
    recipe: Recipe, index: int, edits: Sequence[ArgEdit], *, environ: Mapping[str, str] | None = None
) -> str:
    """Change the arguments of one command and nothing else.

    Args:
        recipe: from `parse_shell`.
        index: which of its commands.
        edits: what to do; indexes count the arguments as they were before any of the edits.
        environ: what the recipe was parsed with, if anything.

    Returns:
        The new text. It was parsed again and gives exactly the arguments asked for.

    Raises:
        CommandChoiceError: there is no such command (JSE219).
        UneditableError: it cannot be done safely (JSE210 to JSE216); the text says what to type by hand.
    """
    from jetson_specdec.recipe.shell_edit import edited

    return edited(recipe, index, edits, environ)


def read_shell(
    text: str,
    *,
    path: str | None = None,
    environ: Mapping[str, str] | None = None,
    read: Callable[[str], str | None] | None = None,
) -> Finder:
    """Walk a text and return the finder with what it found; raises as `parse_shell` does, but for JSE204."""
    return _walked(text, path) if environ is None and read is None else _walk(text, path, environ, read)


@lru_cache(maxsize=8)
def _walked(text: str, path: str | None) -> Finder:
    return _walk(text, path, None)


def _walk(
    text: str,
    path: str | None,
    environ: Mapping[str, str] | None,
    read: Callable[[str], str | None] | None = None,
) -> Finder:
    from jetson_specdec.recipe.shell_find import Finder
    from jetson_specdec.recipe.shell_launch import Launch
    from jetson_specdec.recipe.shell_script import Script

    _check_readable(text)
    root = Script(text=text)
    finder = Finder(root)
    launch = Launch(read=_limited(read) if read is not None else None)
    for start, end in _ranges(text, path):
        finder.walk(root, start, end, dict(environ or {}), launch)
    finder.found.sort(key=lambda one: one.outer)  # a stable sort: commands of one text keep their order
    return finder


def _limited(read: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """Return a reader that finds nothing any more after so many files as no recipe has."""
    left = iter(range(MAX_FILES))
    return lambda name: read(name) if next(left, None) is not None else None


def _check_readable(text: str) -> None:
    if not text.strip().strip("\ufeff"):
        raise RecipeSyntaxError("JSE200")
    if len(text) > MAX_CHARACTERS:
        raise RecipeSyntaxError("JSE201", characters=len(text), limit=MAX_CHARACTERS)
    if "\0" in text:
        raise RecipeSyntaxError("JSE202", line=text.count("\n", 0, text.index("\0")) + 1)


def _ranges(text: str, path: str | None) -> Iterator[tuple[int, int]]:
    """Yield what is shell: the whole text, or the fenced blocks of a Markdown note."""
    start = 1 if text.startswith("\ufeff") else 0
    script = text.startswith("#!", start) or bool(path and path.endswith((".sh", ".bash")))
    fences = [] if script else list(_FENCE.finditer(text))
    if not fences:
        yield start, len(text)
        return
    opened: re.Match[str] | None = None
    for fence in fences:
        if opened is None:
            opened = fence
        elif fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]) and not fence[2]:
            if opened[2].lower() in _SHELL_FENCES:
                yield min(opened.end() + 1, fence.start()), fence.start()
            opened = None
    if opened is not None and opened[2].lower() in _SHELL_FENCES:
        yield min(opened.end() + 1, len(text)), len(text)


def _command(index: int, found: Found, text: str) -> ServeCommand:
    from jetson_specdec.recipe.shell_checks import blocked, command_findings

    outcome, launch = found.outcome, found.outcome.launch
    args = tuple(_arg(field, found, text) for field in outcome.args)
    start, end = found.outer
    return ServeCommand(
        index=index,
        serve_form=outcome.serve_form,
        engine=outcome.engine,
        launcher=launch.launcher,
        image=launch.image,
        image_raw=launch.image_raw,
        entrypoint=launch.entrypoint,
        args=args,
        serve_words=tuple(field.shown(found.script.text) for field in outcome.serve_words),
        env=dict(launch.env),
        mounts=launch.mounts,
        ports=launch.ports,
        workdir=launch.workdir,
        writes=tuple(one.file for one in found.written),
        start=start,
        end=end,
        line=text.count("\n", 0, start) + 1,
        wrapped_in=found.script.layers,
        blocked=blocked(found, text),
        findings=command_findings(found, args, text),
    )


def _arg(field: Field, found: Found, text: str) -> Arg:
    start, end = found.script.to_root(field.start, field.end)
    return Arg(
        value=field.value,
        raw=text[start:end],
        start=start,
        end=end,
        unresolved=field.names("unresolved"),
        resolved_from=tuple(dict.fromkeys((*field.names("resolved"), *field.names("defaulted")))),
        optional=field.optional,
        splices=field.splices,
    )
