# SPDX-License-Identifier: Apache-2.0
"""The environment of a container in a Kubernetes manifest, and `$(NAME)` in its words (Container v1 core)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field

from jetson_specdec.recipe.chars import ELSEWHERE, HOLE, Char, Note, text_of
from jetson_specdec.recipe.yaml_tree import entries, item, items, value_of
from jetson_specdec.values import frozen

__all__ = ["ContainerEnv", "config_maps", "container_env", "expand"]


@frozen(kw_only=True)
class ContainerEnv:
    """What a container's environment holds.

    Attributes:
        values: by name; None where the value is not in the manifest.
        origins: where the unknown ones come from, such as `ConfigMap decoding, key spec-json`.
        complete: whether every name is known (no ConfigMap or Secret from elsewhere as a whole).
    """

    values: Mapping[str, str | None] = field(factory=dict)
    origins: Mapping[str, str] = field(factory=dict)
    complete: bool = True


def config_maps(roots: Sequence[Any]) -> dict[str, dict[str, str]]:
    """Return the data of the ConfigMaps in a text, by name."""
    found: dict[str, dict[str, str]] = {}
    waiting = list(roots)
    while waiting:
        root = waiting.pop()
        kind = value_of(item(root, "kind"))
        if kind == "List":
            waiting += items(item(root, "items"))
        name = value_of(item(root, "metadata", "name"))
        if kind == "ConfigMap" and name:
            data = entries(item(root, "data"))
            found[name] = {key: text for key, node in data.items() if (text := value_of(node)) is not None}
    return found


def container_env(container: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]]) -> ContainerEnv:
    """Read `envFrom` and `env` of a container; later names win, and may refer to earlier ones."""
    values: dict[str, str | None] = {}
    origins: dict[str, str] = {}
    complete = True
    for source in items(container.get("envFrom")):
        prefix = value_of(item(source, "prefix")) or ""
        name = value_of(item(source, "configMapRef", "name"))
        if name in maps and name is not None:
            values.update({prefix + key: text for key, text in maps[name].items()})
        else:
            complete = False
    for one in items(container.get("env")):
        name = value_of(item(one, "name"))
        if not name:
            continue
        given = item(one, "value")
        if given is not None or item(one, "valueFrom") is None:
            chars = [Char(sign, 0, 0, ELSEWHERE) for sign in value_of(given) or ""]
            expanded = expand(chars, values)
            values[name] = None if any(char.text == HOLE for char in expanded) else text_of(expanded)
            continue
        values[name], origins[name] = _from(item(one, "valueFrom"), maps)
    return ContainerEnv(values=values, origins=origins, complete=complete)


def _from(node: Any, maps: Mapping[str, Mapping[str, str]]) -> tuple[str | None, str]:
    name, key = value_of(item(node, "configMapKeyRef", "name")), value_of(item(node, "configMapKeyRef", "key"))
    if name is not None:
        return maps.get(name, {}).get(key or ""), f"ConfigMap {name}, key {key}"
    name, key = value_of(item(node, "secretKeyRef", "name")), value_of(item(node, "secretKeyRef", "key"))
    if name is not None:
        return None, f"Secret {name}, key {key}"
    path = value_of(item(node, "fieldRef", "fieldPath")) or value_of(item(node, "resourceFieldRef", "resource"))
    return None, f"field {path}" if path else "elsewhere"


def expand(chars: Sequence[Char], env: Mapping[str, str | None]) -> list[Char]:
    """Replace `$(NAME)`; `$$` is one dollar sign. A name that is not in `env` counts as not known."""
    text = text_of(chars)
    result: list[Char] = []
    at = 0
    while at < len(chars):
        char = chars[at]
        beside = char if char.layers == ELSEWHERE else char._replace(layers=("dollar", *char.layers))
        close = text.find(")", at) if text.startswith("$(", at) else -1
        if text.startswith("$$", at):
            result.append(beside._replace(end=chars[at + 1].end))
            at += 2
        elif close > 0:
            name = text[at + 2 : close]
            start, end = char.start, chars[close].end
            value = env.get(name)
            if value is None:
                result.append(Char(HOLE, start, end, ELSEWHERE, Note(unresolved=(name,))))
            else:
                result += [Char(sign, start, end, ELSEWHERE, Note(resolved=(name,))) for sign in value]
            at = close + 1
        else:
            result.append(beside)
            at += 1
    return result
