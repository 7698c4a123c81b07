# SPDX-License-Identifier: Apache-2.0
"""The `--config` YAML of `vllm serve`: what is in it, where each value stands, and where the file is.

Only top-level keys matter to vLLM (each becomes a flag), so only those get positions.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetson_specdec.host import Host
    from jetson_specdec.recipe.core import Recipe, ServeCommand, WrittenFile

__all__ = ["ConfigEntry", "ConfigFile", "config_reference", "find_config", "parse_config", "read_again"]

MAX_CONFIG_BYTES = 2**20


@frozen(kw_only=True)
class ConfigEntry:
    """One top-level key of the file.

    Attributes:
        key: as written (`gpu_memory_utilization` or `gpu-memory-utilization`).
        value: as YAML 1.1 reads it (`yes` is true), which is what vLLM uses.
        line: line of the key, from 1.
        key_start, start, end: offsets of the key, and of the value with its anchor and quotes, end exclusive;
            an empty value has `start == end`. All are -1 where the key comes in through a merge (`<<`).
        style: `plain`, `single`, `double`, `literal`, `folded`, `block` or `flow` (mappings and lists), `alias`.
        anchor: name of the anchor on the value, or None.
    """

    key: str
    value: Any
    line: int
    key_start: int = -1
    start: int = -1
    end: int = -1
    style: str = "plain"
    anchor: str | None = None

    @property
    def name(self) -> str:
        """The key with dashes, as flags are named here."""
        head, dot, rest = self.key.partition(".")
        return head.replace("_", "-") + dot + rest


@frozen(kw_only=True)
class ConfigFile:
    """A `--config` file, found or not.

    Attributes:
        named: how the command names it (a path inside the container, often).
        path: the file that was read, or None where none was found.
        text: its text, newlines untouched; empty where not found.
        entries: its top-level keys in order.
        looked_in: the paths that were tried, in order.
        flow: whether the file is one `{…}`.
        body: offsets of the top-level mapping; `(0, 0)` where the file is empty.
        aliases: names of anchors that are used somewhere.
        written: how the recipe itself writes the file, or None where it does not.
    """

    named: str
    path: str | None = None
    text: str = ""
    entries: tuple[ConfigEntry, ...] = ()
    looked_in: tuple[str, ...] = ()
    flow: bool = False
    body: tuple[int, int] = (0, 0)
    aliases: frozenset[str] = frozenset()
    written: WrittenFile | None = None

    @property
    def found(self) -> bool:
        """Whether there is a text to read."""
        return self.path is not None or bool(self.entries) or self.in_recipe

    @property
    def in_recipe(self) -> bool:
        """Whether the text stands in the recipe, which writes the file before it is read."""
        return self.written is not None and self.written.text is not None and self.path is None

    def entry(self, name: str) -> ConfigEntry | None:
        """Return the entry of a flag (dashes or underscores), or None."""
        wanted = name.replace("_", "-")
        return next((entry for entry in reversed(self.entries) if entry.name == wanted), None)


_STYLES = {"'": "single", '"': "double", "|": "literal", ">": "folded"}


def _load(text: str, where: str) -> tuple[Any, list[Any]]:
    """Return the data and the parser's events.

    Raises:
        RecipeSyntaxError: the text is no YAML, or has a key twice.
    """
    import warnings

    from ruamel.yaml import YAML
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    def loader() -> Any:
        yaml = YAML(typ="safe", pure=True)
        yaml.version = (1, 1)
        return yaml

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return loader().load(text), list(loader().parse(text))
    except DuplicateKeyError as error:
        mark = error.problem_mark
        line = mark.line + 1 if mark is not None else None
        lines = text.splitlines()
        key = lines[line - 1].partition(":")[0].strip() if line and line <= len(lines) else None
        raise RecipeSyntaxError("JSE227", where=where, line=line, key=key) from None
    except MarkedYAMLError as error:
        # What is never closed is best looked for where it was opened, not at the end of the file.
        unclosed = "end" in (error.problem or "") and error.context_mark is not None
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        raise RecipeSyntaxError(
            "JSE226", where=where, line=line, reason=_one_line(error.problem or error.context)
        ) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise RecipeSyntaxError("JSE226", where=where, line=None, reason=_one_line(str(error))) from None


def _one_line(text: str | None) -> str:
    return " ".join((text or "unreadable").split())[:200]


def _printable(text: str) -> str:
    """Return a text of the same length that a YAML reader accepts where bytes could not be decoded."""
    return "".join("\ufffd" if "\ud800" <= sign <= "\udfff" else sign for sign in text)


def _spans(events: list[Any]) -> tuple[bool, tuple[int, int], list[tuple[str, int, int, int, int, str, str | None]]]:
    """Walk the top-level mapping: (flow?, its span, [(key, line, key start, start, end, style, anchor)])."""
    found: list[tuple[str, int, int, int, int, str, str | None]] = []
    depth = 0
    key: Any = None
    opened: Any = None
    root: Any = None
    end = leaf = 0
    for event in events:
        kind = type(event).__name__
        if not kind.endswith("StartEvent") and event.end_mark.index > event.start_mark.index:
            # A block ends, for the parser, where the next token begins (behind comments); here with its last word.
            leaf = event.end_mark.index
        if kind.endswith("StartEvent") and kind[:8] in ("MappingS", "Sequence"):
            if depth == 0:
                root = event
            elif depth == 1:
                opened = event
            depth += 1
            continue
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            depth -= 1
            if depth == 0:
                end = event.end_mark.index
            if depth != 1:
                continue
            style = "flow" if opened.flow_style else "block"
            start, stop, anchor = opened.start_mark.index, leaf, opened.anchor
        elif kind == "ScalarEvent" and depth == 1:
            style = _STYLES.get(event.style or "", "plain")
            start, stop, anchor = event.start_mark.index, event.end_mark.index, event.anchor
        elif kind == "AliasEvent" and depth == 1:
            style, start, stop, anchor = "alias", event.start_mark.index, event.end_mark.index, event.anchor
        else:
            continue
        if key is None:
            key = event
            continue
        if getattr(key, "value", None) is not None:
            mark = key.start_mark
            if start == stop and style == "plain":
                # An empty value is reported where the next token begins; it belongs behind its colon.
                start = stop = key.end_mark.index + 1
            found.append((str(key.value), mark.line + 1, mark.index, start, stop, style, anchor))
        key = None
    flow = bool(root is not None and root.flow_style)
    return flow, (root.start_mark.index, end) if root is not None else (0, 0), found


def parse_config(
    text: str,
    *,
    path: str | None = None,
    named: str | None = None,
    looked_in: tuple[str, ...] = (),
    written: WrittenFile | None = None,
) -> ConfigFile:
    """Read a `--config` file.

    Raises:
        RecipeSyntaxError: it is no YAML mapping, or has a key twice.
    """
    where = path or named or "the config file"
    clean = _printable(text)
    data, events = _load(clean, where)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise RecipeSyntaxError("JSE228", where=where)
    flow, body, spans = _spans(events)
    entries = []
    seen = set()
    for key, line, key_start, start, end, style, anchor in spans:
        if key == "<<" or key not in data:
            continue
        seen.add(key)
        last = end
        if style in ("literal", "folded", "block"):
            last = start + len(clean[start:end].rstrip())
        entries.append(
            ConfigEntry(
                key=key,
                value=data[key],
                line=line,
                key_start=key_start,
                start=start,
                end=last,
                style=style,
                anchor=anchor,
            )
        )
    entries.extend(ConfigEntry(key=str(key), value=data[key], line=1) for key in data if str(key) not in seen)
    aliases = frozenset(event.anchor for event in events if type(event).__name__ == "AliasEvent")
    return ConfigFile(
        named=named or path or "",
        path=path,
        text=text,
        entries=tuple(entries),
        looked_in=looked_in,
        flow=flow,
        body=body,
        aliases=aliases,
        written=written,
    )


def config_reference(command: ServeCommand) -> str | None:
    """Return what follows the word `--config`, or None.

    vLLM looks for exactly this word: `--config=FILE` and shortened spellings are not read.
    """
    words = [arg.value for arg in command.args]
    if "--config" not in words:
        return None
    index = words.index("--config")
    if index + 1 >= len(words):
        return None
    from jetson_specdec.recipe.occurrences import shown

    return shown(command.args[index + 1])


def _absolute(path: str, base: str, host: Host) -> str:
    home = host.environ.get("HOME")
    for mark in ("~", "$HOME", "${HOME}"):
        if home and (path == mark or path.startswith(mark + "/")):
            path = home + path[len(mark) :]
    for mark in ("$PWD", "${PWD}", "$(pwd)"):
        if path == mark or path.startswith(mark + "/"):
            path = base + path[len(mark) :]
    joined = PurePosixPath(base) / path
    parts: list[str] = []
    for part in joined.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        elif part != "..":
            parts.append(part)
    return str(PurePosixPath(*parts))


def _base(recipe: Recipe, host: Host) -> str:
    """Return the folder that relative host paths start from: the recipe's, else the current one."""
    if recipe.path is not None:
        folder = PurePosixPath(recipe.path).parent
        if folder.is_absolute():
            return str(folder)
    import os

    here = os.getcwd() if host.live else "/"  # noqa: PTH109 - a text is needed, not a Path
    return str(PurePosixPath(here) / (PurePosixPath(recipe.path).parent if recipe.path else "."))


def _host_paths(named: str, command: ServeCommand, base: str, host: Host) -> list[str]:
    """Return where a file that the command names lies on the host: as named, or where its mounts lead."""
    inside = named if named.startswith("/") or command.workdir is None else f"{command.workdir.rstrip('/')}/{named}"
    if command.launcher in ("native", "systemd"):
        return [_absolute(inside, base, host)]
    fitting = [
        mount
        for mount in command.mounts
        if mount.host is not None
        and (inside == mount.container or inside.startswith(mount.container.rstrip("/") + "/"))
    ]
    return [
        _absolute((mount.host or "") + inside[len(mount.container.rstrip("/")) :], base, host)
        for mount in sorted(fitting, key=lambda mount: -len(mount.container))[:1]
    ]


def _written(named: str, recipe: Recipe, command: ServeCommand, host: Host) -> WrittenFile | None:
    """Return the file that the recipe itself writes under the name (or where its mounts lead), or None."""
    base = _base(recipe, host)
    for file in command.writes:
        if file.direct and (file.name == named or _absolute(file.name, base, host) == _absolute(named, base, host)):
            return file
        if not file.direct and _absolute(file.name, base, host) in _host_paths(named, command, base, host):
            return file
    return None


def find_config(recipe: Recipe, command: ServeCommand, *, host: Host) -> ConfigFile | None:
    """Find and read the `--config` file of a command.

    A file named inside a container is looked up through the command's mounts (the longest fitting one), then by its
    name beside the recipe; a file of a native command from the recipe's working directory, then beside the recipe.

    A file that the recipe itself writes before (`cat > FILE <<EOF`) is read from the recipe.

    Returns:
        None where the command names no config file; a `ConfigFile` with `found` false where there is none to read.

    Raises:
        RecipeSyntaxError: the file is no YAML mapping.
    """
    named = config_reference(command)
    if named is None:
        return None
    written = _written(named, recipe, command, host)
    if written is not None and written.sure:
        if written.text is None:
            return ConfigFile(named=named, written=written)
        return parse_config(written.text, named=named, written=written)
    looked: list[str] = []
    if not any(sign in named for sign in "$`") or named.startswith(("$HOME", "${HOME}", "$PWD", "${PWD}")):
        base = _base(recipe, host)
        beside = str(PurePosixPath(base) / PurePosixPath(named).name)
        for path in dict.fromkeys((*_host_paths(named, command, base, host), beside)):
            looked.append(path)
            data = host.read_bytes(path, limit=MAX_CONFIG_BYTES + 1) if host.kind(path) == "file" else None
            if data is None:
                continue
            if len(data) > MAX_CONFIG_BYTES:
                raise RecipeSyntaxError("JSE221", where=path, limit=MAX_CONFIG_BYTES)
            text = data.decode("utf-8", errors="surrogateescape")
            return parse_config(text, path=path, named=named, looked_in=tuple(looked))
    if written is not None:
        from attrs import evolve

        written = evolve(written, text=None, why="under a condition, or in a function")
    return ConfigFile(named=named, looked_in=tuple(looked), written=written)


def read_again(config: ConfigFile, command: ServeCommand, files: Mapping[str, str]) -> ConfigFile:
    """Return a config file as it is after a change of the recipe.

    Args:
        config: as it was.
        command: the command, in the changed recipe.
        files: other files that changed: path → text.

    Raises:
        RecipeSyntaxError: it is no YAML mapping any more.
    """
    if config.in_recipe and config.written is not None:
        name = config.written.name
        file = next((file for file in command.writes if file.name == name and file.text is not None), None)
        if file is None or file.text is None:
            return ConfigFile(named=config.named, written=config.written)
        return parse_config(file.text, named=config.named, written=file)
    after = files.get(config.path or config.named)
    if after is None:
        return config
    return parse_config(after, path=config.path, named=config.named, looked_in=config.looked_in)
