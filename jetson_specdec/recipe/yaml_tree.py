# SPDX-License-Identifier: Apache-2.0
"""YAML documents as trees whose nodes know where they stand; anchors and merge keys (`<<`) are followed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from jetson_specdec.errors import RecipeSyntaxError

__all__ = ["documents", "entries", "is_list", "is_map", "is_scalar", "item", "items", "value_of", "walk"]

MAX_MERGES = 100
MAX_NODES = 200_000


def documents(text: str, where: str) -> list[Any]:
    """Return the root nodes of the documents in a text.

    Raises:
        RecipeSyntaxError: it is no YAML (JSE226) or a mapping has a key twice (JSE227).
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from jetson_specdec.recipe.config_file import _one_line, _printable

    yaml = YAML(typ="safe", pure=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            roots = [root for root in yaml.compose_all(_printable(text)) if root is not None]
    except MarkedYAMLError as error:
        unclosed = "end" in (error.problem or "") and error.context_mark is not None
        mark = error.context_mark if unclosed else error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else None
        reason = _one_line(error.problem or error.context)
        raise RecipeSyntaxError("JSE226", where=where, line=line, reason=reason) from None
    except (YAMLError, ValueError, RecursionError, AttributeError, IndexError) as error:
        # The last two: ruamel.yaml trips over some malformed directives and tags.
        raise RecipeSyntaxError("JSE226", where=where, line=None, reason=_one_line(str(error))) from None
    for root in roots:
        _refuse_twice(root, where)
    return roots


def _refuse_twice(root: Any, where: str) -> None:
    for node in walk(root):
        if not is_map(node):
            continue
        seen: set[str] = set()
        for key, _ in node.value:
            if is_scalar(key) and key.value != "<<":
                if key.value in seen:
                    raise RecipeSyntaxError("JSE227", where=where, line=key.start_mark.line + 1, key=key.value)
                seen.add(key.value)


def is_map(node: Any) -> bool:
    """Whether a node is a mapping."""
    return node is not None and node.id == "mapping"


def is_list(node: Any) -> bool:
    """Whether a node is a sequence."""
    return node is not None and node.id == "sequence"


def is_scalar(node: Any) -> bool:
    """Whether a node is a scalar."""
    return node is not None and node.id == "scalar"


def walk(root: Any) -> Iterator[Any]:
    """Yield a node and everything below it, each once, in order."""
    stack: list[Any] = [root]
    seen: set[int] = set()
    while stack and len(seen) < MAX_NODES:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if is_map(node):
            stack += [child for pair in reversed(node.value) for child in reversed(pair)]
        elif is_list(node):
            stack += reversed(node.value)


def entries(node: Any, merged: set[int] | None = None) -> dict[str, Any]:
    """Return a mapping's values by key, with what `<<` brings in behind its own."""
    if not is_map(node):
        return {}
    # Bringing the same mapping in twice changes nothing, and could be made to take for ever.
    merged = {id(node)} if merged is None else merged
    own: dict[str, Any] = {}
    more: list[Any] = []
    for key, value in node.value:
        if not is_scalar(key):
            continue
        if key.value == "<<" and (is_map(value) or is_list(value)):
            more += value.value if is_list(value) else [value]
        else:
            own[str(key.value)] = value
    for one in more:
        if id(one) in merged or len(merged) > MAX_MERGES:
            continue
        merged.add(id(one))
        for name, value in entries(one, merged).items():
            own.setdefault(name, value)
    return own


def item(node: Any, *path: str) -> Any:
    """Return what stands at a path of keys, or None."""
    for key in path:
        node = entries(node).get(key)
        if node is None:
            return None
    return node


def items(node: Any) -> list[Any]:
    """Return the members of a sequence; none for anything else."""
    return list(node.value) if is_list(node) else []


def value_of(node: Any) -> str | None:
    """Return a scalar's text, or None for anything else (and for nothing)."""
    if not is_scalar(node) or str(node.tag).endswith(":null"):
        return None
    return str(node.value)
