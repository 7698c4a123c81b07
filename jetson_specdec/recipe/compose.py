# SPDX-License-Identifier: Apache-2.0
"""Docker compose files: which services start an engine, and with which words.

Rules: Compose file reference (services, interpolation, merge and extends) and compose-go. Pure; the files that a
compose file refers to (`.env`, `env_file`) are read by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.chars import ELSEWHERE
from jetson_specdec.recipe.compose_files import Layer, Project, Service, Source, Whole, environment
from jetson_specdec.recipe.core import Mount, Recipe
from jetson_specdec.recipe.embedded import Located, Place, Word, line_of, locate, recipe_of
from jetson_specdec.recipe.embedded_notes import commented_alternatives, unshared
from jetson_specdec.recipe.shell_launch import Launch
from jetson_specdec.recipe.yaml_scalar import scalar_style
from jetson_specdec.recipe.yaml_tree import entries, is_scalar, value_of, walk

__all__ = ["compose_recipe", "parse_compose"]


def _nothing(name: str) -> str | None:
    return None


def parse_compose(text: str, *, path: str | None = None, read: Callable[[str], str | None] | None = None) -> Recipe:
    """Find the serve commands of a compose file.

    Args:
        text: the file.
        path: where it was read from.
        read: returns the text of a file that the compose file refers to (by the name used there), or None.

    Raises:
        RecipeSyntaxError: no YAML (JSE226), a key twice (JSE227), no service starts an engine (JSE240).
    """
    return compose_recipe(text, path=path, read=read or _nothing)[0]


def compose_recipe(text: str, *, path: str | None, read: Callable[[str], str | None]) -> tuple[Recipe, list[Located]]:
    """Return the recipe, and where the words of its commands are written."""
    where = path or "the recipe"
    located, others = _read(Project(text, where, path, read))
    if not located:
        raise RecipeSyntaxError("JSE240", where=where, form="a docker compose file", found=others[:8])
    return recipe_of(text, "compose", path, located), located


def _read(project: Project) -> tuple[list[Located], list[str]]:
    """Return the serve commands with their places, and the services that start no engine."""
    text = project.main.text
    located: list[Located] = []
    owners: list[int] = []
    others: list[str] = []
    blocks = sorted(
        (node.start_mark.index, node.end_mark.index)
        for root in project.main.roots
        for node in walk(root)
        if is_scalar(node) and scalar_style(node) in ("literal", "folded")
    )
    for number, service in enumerate([*project.services()]):
        found = _service(project, service)
        own = found and service.file is None
        comments = commented_alternatives(text, service.start, service.end, blocks) if own else ()
        located += [_noted(one, comments) for one in found]
        owners += [number] * len(found)
        if not found:
            others.append(f"{service.name} ({service.file or f'line {line_of(text, service.start)}'})")
    unread = [f"{name} (included, not found)" for name in project.missing]
    return unshared(located, owners), [*others, *unread]


def _noted(one: Located, findings: tuple[Finding, ...]) -> Located:
    command = one.command
    seen = {finding.code for finding in command.findings}
    more = tuple(finding for finding in findings if finding.code not in seen)
    return attrs.evolve(one, command=attrs.evolve(command, findings=(*command.findings, *more)))


def _service(project: Project, service: Service) -> list[Located]:
    text, main, whole = project.main.text, project.main, project.whole(service)
    at = _brought_in(service)
    written: dict[int, str] = {}

    def words(key: str) -> list[Word] | None:
        layer = whole.keys.get(key)
        found = layer.source.reader.words(layer.node) if layer is not None else None
        if layer is None or found is None or layer.source is main:
            return found
        return [_elsewhere(word, layer.source, at, written) for word in found]

    entry, command = words("entrypoint"), words("command")
    entrypoint = whole.keys.get("entrypoint")
    if entrypoint is not None and entry is None:
        entry = None if value_of(entrypoint.node) is None and is_scalar(entrypoint.node) else []
    image, shown = _shown(whole.keys.get("image"))
    launch = Launch(
        launcher="compose",
        image=image or None,
        image_raw=shown or None if image is None else None,
        entrypoint=None if entry is None else tuple(word.value or "" for word in entry),
        workdir=_shown(whole.keys.get("working_dir"))[0],
    )
    given = [whole.keys[key] for key in ("entrypoint", "command") if whole.keys.get(key) is not None]
    nodes = [layer.node for layer in given if layer.source is main]
    if not given and service.file is None:
        picture = whole.keys.get("image")
        nodes = [picture.node if picture is not None and picture.source is main else service.layers[0].node]
    start, end = at
    if nodes:
        start, end = min(node.start_mark.index for node in nodes), max(_end(text, node) for node in nodes)
    noticed = main.reader.take()
    mounts: dict[str, Mount] = {}
    for source, node in whole.parts:
        part = entries(node)
        mounts |= {mount.container: mount for mount in source.mounts(part.get("volumes"))}
        launch = attrs.evolve(launch, ports=(*launch.ports, *source.reader.ports(part.get("ports"))))
    launch = attrs.evolve(launch, env=environment(whole.parts), mounts=tuple(mounts.values()))
    for source, _ in whole.parts:
        source.reader.take()
    noticed = (*noticed, *_about_files(project, service, whole, line_of(text, at[0])))
    blocked = _elsewhere_written(service, whole, given, line_of(text, at[0]))
    place = Place(launch=launch, start=start, end=end, container=True, findings=noticed, blocked=blocked)
    return [_named(one, service, written) for one in locate(text, entry, command or (), place)]


def _brought_in(service: Service) -> tuple[int, int]:
    """Return the part of the recipe that brings in what stands in another file."""
    if service.file is None:
        node = entries(service.layers[0].node).get("extends")
        if node is not None:
            return int(node.start_mark.index), int(node.end_mark.index)
        return service.start, service.start
    return service.start, service.end


def _elsewhere(word: Word, source: Source, at: tuple[int, int], written: dict[int, str]) -> Word:
    """Return a word of another file as one that stands where that file is named."""
    chars = tuple(char._replace(start=at[0], end=at[1], layers=ELSEWHERE) for char in word.chars)
    found = attrs.evolve(word, chars=chars, start=at[0], end=at[1], outer=(), node=None, parent=None, style="plain")
    written[id(found)] = source.text[word.start : word.end]
    return found


def _shown(layer: Layer | None) -> tuple[str | None, str]:
    return layer.source.reader.shown(layer.node) if layer is not None else (None, "")


def _about_files(project: Project, service: Service, whole: Whole, line: int) -> tuple[Finding, ...]:
    """Say which other files a service was read from, and which were not read."""
    files = [*(layer.source.name for layer in service.layers if layer.source.name), *whole.files]
    found = [Finding.of("JSD222", line=line, service=service.name, files=list(dict.fromkeys(files)))] if files else []
    if whole.unread:
        found.append(Finding.of("JSD293", line=line, files=list(whole.unread)))
    if project.missing:
        found.append(Finding.of("JSD223", files=list(dict.fromkeys(project.missing))))
    return tuple(found)


def _elsewhere_written(service: Service, whole: Whole, given: Sequence[Layer], line: int) -> Finding | None:
    """Return why a command is not changed here: it stands in another file."""
    first = given[0] if given else service.layers[-1] if service.file is not None else None
    layer = whole.keys.get("command") or first
    if layer is None or not layer.source.name:
        return None
    at = line_of(layer.source.text, layer.node.start_mark.index)
    return Finding.of("JSD221", line=line, file=layer.source.name, at=at)


def _named(one: Located, service: Service, written: dict[int, str]) -> Located:
    """Return a command with its service's name, and words of other files as they are written there."""
    args = one.command.args
    if one.words:
        args = tuple(
            attrs.evolve(arg, raw=written.get(id(word), arg.raw)) for arg, word in zip(args, one.words, strict=True)
        )
    return attrs.evolve(one, command=attrs.evolve(one.command, args=args, service=service.name))


def _end(text: str, node: Any) -> int:
    """Return where a node's last word ends (a block ends, for YAML, where the next token begins)."""
    start, end = node.start_mark.index, node.end_mark.index
    leaves = [one.end_mark.index for one in walk(node) if is_scalar(one)]
    if node.id != "scalar" and not node.flow_style:
        end = max(leaves, default=end)
    return int(start + len(text[start:end].rstrip()))
