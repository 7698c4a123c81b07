# SPDX-License-Identifier: Apache-2.0
"""From a file, standard input or a string to a `Recipe`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Arg, Form, Recipe, ServeCommand

if TYPE_CHECKING:
    from jetson_specdec.host import Host

__all__ = ["MAX_RECIPE_BYTES", "beside_reader", "config_recipe", "load_recipe", "parse_recipe"]

MAX_RECIPE_BYTES = 2**20
MAX_BESIDE_BYTES = 2**18


def load_recipe(source: str | Path, *, host: Host | None = None, text: str | None = None) -> Recipe:
    """Read a recipe.

    Args:
        source: a path, or `-` for standard input; with `text` it only names where the text is from.
        host: reads from that machine (absolute paths) instead of this one.
        text: the recipe itself.

    Raises:
        RecipeSyntaxError: there is no such file, it is too large, empty or binary, or it is not what its form requires.
    """
    where = str(source)
    if text is None:
        data = _stdin() if where == "-" else _read(where, host)
        if len(data) > MAX_RECIPE_BYTES:
            raise RecipeSyntaxError("JSE221", where=where, limit=MAX_RECIPE_BYTES)
        text = data.decode("utf-8", errors="surrogateescape")
    elif len(text) > MAX_RECIPE_BYTES:
        raise RecipeSyntaxError("JSE221", where=where, limit=MAX_RECIPE_BYTES)
    path = None if where in ("-", "") else where
    return parse_recipe(text, path=path, read=beside_reader(path, host))


def parse_recipe(text: str, *, path: str | None = None, read: Callable[[str], str | None] | None = None) -> Recipe:
    """Read a recipe text, whatever its form.

    Args:
        text: the recipe.
        path: where it was read from.
        read: returns the text of a file that the recipe refers to (`.env`, `EnvironmentFile=`, `source FILE`), or None;
            without it such files count as not found.

    Raises:
        RecipeSyntaxError: it is empty or binary, a template that is not rendered yet (JSE243), or is not what its form
            requires.
    """
    where = path or "the recipe"
    if not text.strip("\ufeff \t\r\n"):
        raise RecipeSyntaxError("JSE220", where=where)
    if "\0" in text:
        raise RecipeSyntaxError("JSE222", where=where)
    from jetson_specdec.recipe.forms import recognise, template_line

    if _is_report(text):
        raise RecipeSyntaxError("JSE526", where=where)
    form: Form = recognise(text)
    if form != "python" and (line := template_line(text, form)) is not None:
        raise RecipeSyntaxError("JSE243", where=where, line=line)
    if form in ("compose", "unit", "manifest"):
        from jetson_specdec.recipe.forms_embedded import parse_embedded

        return parse_embedded(form, text, path=path, read=read)
    if form == "python":
        from jetson_specdec.recipe.python_calls import parse_python

        return parse_python(text, path=path)
    if form == "config_file":
        return config_recipe(text, path=path)
    if form == "mem_tune":
        from jetson_specdec.recipe.handover import mem_tune_recipe

        return mem_tune_recipe(text, path=path)
    from jetson_specdec.recipe.shell import parse_shell

    return parse_shell(text, path=path, read=read)


def config_recipe(text: str, *, path: str | None = None) -> Recipe:
    """Read a `--config` YAML as a recipe of its own: one `vllm serve` whose words stand in the file.

    Raises:
        RecipeSyntaxError: it is no YAML mapping, or has a key twice.
    """
    from jetson_specdec.recipe.config_file import parse_config
    from jetson_specdec.recipe.occurrences import config_words

    config = parse_config(text, path=path)
    args: list[Arg] = []
    findings: list[Finding] = []
    for entry in config.entries:
        words = config_words(entry.value)
        if words is None:
            if entry.value is False:
                findings.append(Finding.of("JSD252", key=entry.key, line=entry.line, path=path or "the config file"))
            continue
        start = max(entry.key_start, 0)
        key_end = start + len(entry.key) if entry.key_start >= 0 else 0
        args.append(Arg(value=f"--{entry.key}", raw=text[start:key_end], start=start, end=key_end))
        span = (max(entry.start, 0), max(entry.end, 0))
        args.extend(Arg(value=word, raw=text[span[0] : span[1]], start=span[0], end=span[1]) for word in words)
    command = ServeCommand(
        index=0,
        serve_form="vllm_serve",
        args=tuple(args),
        serve_words=("vllm", "serve"),
        start=config.body[0],
        end=config.body[1],
        line=config.entries[0].line if config.entries else 1,
        wrapped_in=("yaml",),
        findings=tuple(findings),
    )
    return Recipe(text=text, form="config_file", path=path, commands=(command,))


def beside_reader(path: str | None, host: Host | None = None) -> Callable[[str], str | None]:
    """Return a reader of small text files, by a name as the recipe at `path` uses it.

    A name that ends in a slash gives the names in that folder, one a line.
    """

    def read(name: str) -> str | None:
        if "$" in name or "%" in name or "\0" in name or name.startswith("~"):
            return None
        folder = PurePosixPath(path).parent if path is not None else PurePosixPath(".")
        full = str(folder / name)
        if path is None and not name.startswith("/"):
            return None  # a text from nowhere has nothing beside it
        try:
            if name.endswith("/"):
                return _names(full, host)
            if host is not None:
                data = host.read_bytes(full, limit=MAX_BESIDE_BYTES + 1) if host.kind(full) == "file" else None
            else:
                file = Path(full)
                data = file.read_bytes() if file.is_file() and file.stat().st_size <= MAX_BESIDE_BYTES else None
        except (OSError, ValueError):
            return None
        if data is None or len(data) > MAX_BESIDE_BYTES or b"\0" in data:
            return None
        return data.decode("utf-8", errors="surrogateescape")

    return read


def _names(folder: str, host: Host | None) -> str | None:
    """Return the names in a folder, one a line; None where there is none."""
    if host is not None:
        names = host.list_dir(folder)
    else:
        names = tuple(one.name for one in Path(folder).iterdir()) if Path(folder).is_dir() else ()
    return "\n".join(sorted(names)) or None


def _stdin() -> bytes:
    import sys

    return sys.stdin.buffer.read(MAX_RECIPE_BYTES + 1)


def _read(where: str, host: Host | None) -> bytes:
    if host is not None:
        kind = host.kind(where)
        if kind == "directory":
            raise RecipeSyntaxError("JSE223", where=where)
        data = host.read_bytes(where, limit=MAX_RECIPE_BYTES + 1)
        if data is None:
            raise RecipeSyntaxError(
                "JSE224", where=where, reason="no such file" if kind == "absent" else "not readable"
            )
        return data
    path = Path(where)
    try:
        if path.is_dir():
            raise RecipeSyntaxError("JSE223", where=where)
        with path.open("rb") as file:
            return file.read(MAX_RECIPE_BYTES + 1)
    except FileNotFoundError:
        raise RecipeSyntaxError("JSE224", where=where, reason="no such file") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "not readable"
        raise RecipeSyntaxError("JSE224", where=where, reason=reason.lower()) from None


def _is_report(text: str) -> bool:
    """Whether the text is the JSON of a benchmark (ours or another tool's), handed over in the wrong place."""
    if not text.lstrip().startswith("{"):
        return False
    import json

    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return False
    marks = ({"runs", "skill"}, {"runs", "runtime"}, {"benchmarks", "args"}, {"output_throughput", "duration"})
    return isinstance(data, dict) and any(mark <= set(data) for mark in marks)
