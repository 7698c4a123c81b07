# SPDX-License-Identifier: Apache-2.0
"""Docker compose files: which services start an engine, and with which words.

Rules: Compose file reference (services, interpolation, merge and extends) and compose-go. Pure; the files that a
compose file refers to (`.env`, `env_file`) are read by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.compose_service import ServiceReader
from jetson_specdec.recipe.core import Recipe
from jetson_specdec.recipe.dotenv import read_env
from jetson_specdec.recipe.embedded import Located, Place, line_of, locate, recipe_of
from jetson_specdec.recipe.embedded_notes import commented_alternatives, unshared
from jetson_specdec.recipe.shell_launch import Launch
from jetson_specdec.recipe.yaml_scalar import scalar_style
from jetson_specdec.recipe.yaml_tree import documents, entries, is_map, is_scalar, item, value_of, walk

__all__ = ["compose_recipe", "parse_compose"]

MAX_EXTENDS = 8
ENV_FILE = ".env"


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
    located, others = _read(text, where=where, read=read)
    if not located:
        raise RecipeSyntaxError("JSE240", where=where, form="a docker compose file", found=others[:8])
    return recipe_of(text, "compose", path, located), located


class _Service(NamedTuple):
    name: str
    node: Any
    start: int
    end: int


def _read(text: str, *, where: str, read: Callable[[str], str | None]) -> tuple[list[Located], list[str]]:
    """Return the serve commands with their places, findings on the whole, and the services that start no engine."""
    roots = documents(text, where)
    dotenv = read(ENV_FILE)
    reader = ServiceReader(text, read_env(dotenv) if dotenv is not None else {}, read)
    located: list[Located] = []
    owners: list[int] = []
    others: list[str] = []
    for root in roots:
        blocks = sorted(
            (node.start_mark.index, node.end_mark.index)
            for node in walk(root)
            if is_scalar(node) and scalar_style(node) in ("literal", "folded")
        )
        services = list(_services(root))
        table = {service.name: service.node for service in services}
        for service in services:
            found = _service(text, service, table, reader)
            comments = commented_alternatives(text, service.start, service.end, blocks) if found else ()
            located += [_noted(one, comments) for one in found]
            owners += [service.start] * len(found)
            if not found:
                others.append(f"{service.name} (line {line_of(text, service.start)})")
    return unshared(located, owners), others


def _noted(one: Located, findings: tuple[Finding, ...]) -> Located:
    command = one.command
    seen = {finding.code for finding in command.findings}
    more = tuple(finding for finding in findings if finding.code not in seen)
    return attrs.evolve(one, command=attrs.evolve(command, findings=(*command.findings, *more)))


def _services(root: Any) -> Iterator[_Service]:
    """Yield the services of a file, of a `services:`-less fragment, or the one service that the text is."""
    end = _document_end(root)
    holder = entries(root).get("services")
    if holder is None and {"image", "command", "entrypoint"} & set(entries(root)):
        yield _Service("service", root, root.start_mark.index, end)
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
        yield _Service(str(key.value), value, key.start_mark.index, following)


def _document_end(root: Any) -> int:
    # Comments behind the last value belong to the document as well.
    buffer = root.end_mark.buffer
    return len(buffer.rstrip("\0")) if isinstance(buffer, str) else int(root.end_mark.index)


def _extended(service: Any, table: dict[str, Any], depth: int = 0) -> tuple[dict[str, Any], list[str], list[Any]]:
    """Return a service's keys with what `extends` brings in, the files not read for it, and the services merged."""
    own = entries(service)
    base = own.get("extends")
    if base is None or depth > MAX_EXTENDS:
        return own, [], [service]
    file, name = value_of(item(base, "file")), value_of(item(base, "service")) or value_of(base)
    parent = table.get(name or "")
    if file is not None or parent is None or parent is service:
        return own, [file or name or "?"], [service]
    keys, unread, chain = _extended(parent, table, depth + 1)
    return {**keys, **own}, unread, [*chain, service]


def _service(text: str, service: _Service, table: dict[str, Any], reader: ServiceReader) -> list[Located]:
    keys, unread, chain = _extended(service.node, table)
    command, entrypoint = keys.get("command"), keys.get("entrypoint")
    entry = reader.words(entrypoint)
    words = reader.words(command)
    if entrypoint is not None and entry is None:
        entry = None if value_of(entrypoint) is None and is_scalar(entrypoint) else []
    image, shown = reader.shown(keys.get("image"))
    launch = Launch(
        launcher="compose",
        image=image or None,
        image_raw=shown or None if image is None else None,
        entrypoint=None if entry is None else tuple(word.value or "" for word in entry),
        workdir=reader.shown(keys.get("working_dir"))[0],
    )
    nodes = [node for node in (entrypoint, command) if node is not None] or [keys.get("image") or service.node]
    start, end = min(node.start_mark.index for node in nodes), max(_end(text, node) for node in nodes)
    noticed = reader.take()
    for one in chain:
        part = entries(one)
        launch = attrs.evolve(
            launch,
            env={**launch.env, **reader.environment(part)},
            mounts=(*launch.mounts, *reader.mounts(part.get("volumes"))),
            ports=(*launch.ports, *reader.ports(part.get("ports"))),
        )
    reader.take()
    if unread:
        noticed = (*noticed, Finding.of("JSD293", line=line_of(text, service.start), files=unread))
    place = Place(launch=launch, start=start, end=end, container=True, findings=noticed)
    return locate(text, entry, words or (), place)


def _end(text: str, node: Any) -> int:
    """Return where a node's last word ends (a block ends, for YAML, where the next token begins)."""
    start, end = node.start_mark.index, node.end_mark.index
    leaves = [one.end_mark.index for one in walk(node) if is_scalar(one)]
    if node.id != "scalar" and not node.flow_style:
        end = max(leaves, default=end)
    return int(start + len(text[start:end].rstrip()))
