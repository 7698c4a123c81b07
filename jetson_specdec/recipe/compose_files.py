# SPDX-License-Identifier: Apache-2.0
"""A compose file and those that it brings in (`include`, `extends: file:`): services and where their parts stand.

Rules: Compose file reference, "include", "extends" and "merge": a part of a service that is given later counts, lists
and mappings are added to. Paths count from the file that they stand in. Pure; the files are read by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from posixpath import basename, dirname, join, normpath
from typing import Any, NamedTuple

import attrs

from jetson_specdec.errors import RecipeError
from jetson_specdec.recipe.compose_service import ServiceReader
from jetson_specdec.recipe.core import Mount
from jetson_specdec.recipe.dotenv import read_env
from jetson_specdec.recipe.yaml_tree import documents, entries, is_map, is_scalar, item, items, value_of

__all__ = ["Layer", "Project", "Service", "Source", "Whole"]

MAX_EXTENDS = 8
MAX_FILES = 50
ENV_FILE = ".env"


class Layer(NamedTuple):
    """A mapping in a file."""

    source: Source
    node: Any


class Service(NamedTuple):
    """A service of a project.

    Attributes:
        name: its name.
        layers: the mappings that describe it, later ones counting before earlier ones.
        start, end: the part of the recipe's text that brings it in.
        file: the file that it stands in, where that is another one.
    """

    name: str
    layers: tuple[Layer, ...]
    start: int
    end: int
    file: str | None = None


class Whole(NamedTuple):
    """A service with everything that `extends` brings in.

    Attributes:
        keys: its keys, with the file that each stands in.
        parts: the mappings it is merged from, in order.
        files: other files that were read for it.
        unread: files (or services) that were not.
    """

    keys: dict[str, Layer]
    parts: tuple[Layer, ...]
    files: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class Source:
    """One file of a project.

    Args:
        name: the file, from the recipe's folder; empty for the recipe itself.
        text: its text.
        where: how errors name it.
        known: values of variables.
        read: reads files by names from the recipe's folder.

    Raises:
        RecipeSyntaxError: it is no YAML, or has a key twice.
    """

    def __init__(
        self, name: str, text: str, where: str, known: Mapping[str, str | None], read: Callable[[str], str | None]
    ) -> None:
        self.name = name
        self.text = text
        self.folder = dirname(name)
        self.roots = documents(text, where)
        self.reader = ServiceReader(text, known, lambda one: read(self.path(one)))
        self.table = {key: node for root in self.roots for key, node in _named(root)}

    def path(self, name: str) -> str:
        """Return a path in this file from the recipe's folder."""
        return normpath(join(self.folder, name)) if self.folder else name

    def mounts(self, node: Any) -> tuple[Mount, ...]:
        """Return the mounts of `volumes`, host paths from the recipe's folder."""
        return tuple(
            attrs.evolve(mount, host=f"./{self.path(mount.host)}")
            if self.folder and mount.host is not None and mount.host.startswith(".")
            else mount
            for mount in self.reader.mounts(node)
        )


class Project:
    """A compose file with those that it refers to.

    Args:
        text: the recipe.
        where: how errors name it.
        path: where it was read from.
        read: reads files by names from the recipe's folder.

    Raises:
        RecipeSyntaxError: it is no YAML, or has a key twice.
    """

    def __init__(self, text: str, where: str, path: str | None, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._own = basename(path) if path else None
        dotenv = read(ENV_FILE)
        self._known = read_env(dotenv) if dotenv is not None else {}
        self.main = Source("", text, where, self._known, read)
        self._sources: dict[tuple[str, bool], Source | None] = {}
        self.missing: list[str] = []
        """Included files that were not read."""

    def services(self) -> Iterator[Service]:
        """Yield the services of the recipe, and those of the files that it includes."""
        for root in self.main.roots:
            yield from self._of_text(root)
        for root in self.main.roots:
            yield from self._included(self.main, root, None, 0)

    def whole(self, service: Service) -> Whole:
        """Return a service with what `extends` brings in."""
        keys: dict[str, Layer] = {}
        parts: list[Layer] = []
        files: list[str] = []
        unread: list[str] = []
        for layer in service.layers:
            one = self._extended(layer, 0)
            keys.update(one.keys)
            parts += one.parts
            files += one.files
            unread += one.unread
        return Whole(keys, tuple(parts), tuple(dict.fromkeys(files)), tuple(dict.fromkeys(unread)))

    # --- files -------------------------------------------------------------------------------------------------------

    def _open(self, name: str, *, own_env: bool = False) -> Source | None:
        """Return a file of the project; with `own_env` the `.env` beside it gives what the project's does not."""
        if self._own is not None and normpath(name) == self._own:
            return self.main
        key = (normpath(name), own_env)
        if key not in self._sources and len(self._sources) < MAX_FILES:
            text = None if ":" in name else self._read(name)
            known = self._known
            beside = self._read(join(dirname(name), ENV_FILE)) if own_env and dirname(name) and text else None
            if beside is not None:
                known = {**read_env(beside), **known}
            try:
                self._sources[key] = Source(key[0], text, name, known, self._read) if text is not None else None
            except RecipeError:
                self._sources[key] = None
        return self._sources.get(key)

    def _included(self, source: Source, root: Any, place: tuple[int, int] | None, depth: int) -> Iterator[Service]:
        listed = entries(root).get("include")
        for one in items(listed) or ([listed] if listed is not None and depth <= MAX_EXTENDS else []):
            span = place or (one.start_mark.index, one.end_mark.index)
            given = entries(one).get("path") if is_map(one) else one
            found: dict[str, list[Layer]] = {}
            opened: list[Source] = []
            for each in items(given) or [given]:
                value, shown = source.reader.shown(each)
                file = self._open(source.path(value), own_env=True) if value else None
                if file is None:
                    self.missing.append(value or shown)
                    continue
                if file is self.main:
                    continue
                opened.append(file)
                for name, node in file.table.items():
                    found.setdefault(name, []).append(Layer(file, node))
            for name, layers in found.items():
                yield Service(name, tuple(layers), span[0], span[1], layers[-1].source.name)
            for file in opened:
                if depth < MAX_EXTENDS:
                    for inner in file.roots:
                        yield from self._included(file, inner, span, depth + 1)

    # --- services ----------------------------------------------------------------------------------------------------

    def _of_text(self, root: Any) -> Iterator[Service]:
        """Yield the services of a file, of a `services:`-less fragment, or the one service that the text is."""
        end = _document_end(root)
        holder = entries(root).get("services")
        if holder is None and {"image", "command", "entrypoint"} & set(entries(root)):
            yield Service("service", (Layer(self.main, root),), root.start_mark.index, end)
            return
        holder = root if holder is None else holder
        if not is_map(holder):
            return
        if holder is not root:
            later = [key.start_mark.index for key, _ in root.value if key.start_mark.index > holder.end_mark.index - 1]
            end = min([end, *later])
        own = [(key, value) for key, value in holder.value if is_scalar(key) and is_map(value) and key.value != "<<"]
        for number, (key, value) in enumerate(own):
            following = own[number + 1][0].start_mark.index if number + 1 < len(own) else end
            yield Service(str(key.value), (Layer(self.main, value),), key.start_mark.index, following)

    def _extended(self, layer: Layer, depth: int) -> Whole:
        own = entries(layer.node)
        keys = {name: Layer(layer.source, node) for name, node in own.items()}
        base = own.get("extends")
        if base is None or depth > MAX_EXTENDS:
            return Whole(keys, (layer,))
        file, name = item(base, "file"), value_of(item(base, "service")) or value_of(base) or "?"
        named, shown = layer.source.reader.shown(file) if file is not None else (None, "")
        source = layer.source
        if file is not None:
            opened = self._open(layer.source.path(named)) if named else None
            if opened is None:
                return Whole(keys, (layer,), unread=(named or shown or "?",))
            source = opened
        parent = source.table.get(name)
        if parent is None or parent is layer.node:
            return Whole(keys, (layer,), unread=(name,))
        one = self._extended(Layer(source, parent), depth + 1)
        files = (source.name, *one.files) if source is not layer.source and source.name else one.files
        return Whole({**one.keys, **keys}, (*one.parts, layer), files, one.unread)


def _named(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield the services of a document by name."""
    holder = entries(root).get("services")
    holder = root if holder is None else holder
    for key, value in holder.value if is_map(holder) else ():
        if is_scalar(key) and is_map(value) and key.value != "<<":
            yield str(key.value), value


def _document_end(root: Any) -> int:
    # Comments behind the last value belong to the document as well.
    buffer = root.end_mark.buffer
    return len(buffer.rstrip("\0")) if isinstance(buffer, str) else int(root.end_mark.index)


def environment(parts: Sequence[Layer]) -> dict[str, str | None]:
    """Return the environment of a service: what files say, then what the service says itself."""
    env: dict[str, str | None] = {}
    for source, node in parts:
        env.update(source.reader.environment_of_files(entries(node)))
    for source, node in parts:
        env.update(source.reader.environment(entries(node)))
    return env
