# SPDX-License-Identifier: Apache-2.0
"""JSON Schema (2020-12) of value classes, from their own types, so that it can never lag behind them."""

from __future__ import annotations

import collections.abc
import types
import typing
from typing import Any

import attrs

from jetson_specdec.findings import Finding, Step

__all__ = ["schema_of"]

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}
_FINDING: dict[str, Any] = {
    "type": "object",
    "required": ["code", "topic", "severity", "message"],
    "properties": {
        "code": {"type": "string"},
        "topic": {"type": "string"},
        "severity": {"enum": ["info", "warning", "blocking"]},
        "message": {"type": "string"},
        "values": {"type": "object"},
        "source": {"type": ["string", "null"]},
    },
}
_STEP: dict[str, Any] = {
    "type": "object",
    "required": ["kind", "text"],
    "properties": {
        "kind": {"type": "string"},
        "text": {"type": "string"},
        "values": {"type": "object"},
        "command": {"type": ["string", "null"]},
    },
}


def schema_of(kind: type, *, title: str, replaced: dict[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return the schema of an attrs class whose JSON has one key for each field.

    Args:
        kind: the class.
        title: of the document.
        replaced: properties that look different in JSON, or stand beside the fields.
    """
    definitions: dict[str, Any] = {}
    root = _object(kind, definitions)
    root["properties"].update(replaced or {})
    root["required"] = sorted({*root["required"], *(replaced or {})})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    attrs.resolve_types(kind)
    properties = {attribute.name: _of(attribute.type, definitions) for attribute in attrs.fields(kind)}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": sorted(properties),
    }


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _SIMPLE:
        return dict(_SIMPLE[kind])
    if kind is Finding:
        return _FINDING
    if kind is Step:
        return _STEP
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(part, definitions) for part in parts]}
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if origin is tuple:
        if len(parts) == 2 and parts[1] is Ellipsis:
            return {"type": "array", "items": _of(parts[0], definitions)}
        items = [_of(part, definitions) for part in parts]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is collections.abc.Mapping:
        return {"type": "object", "additionalProperties": _of(parts[1], definitions)}
    if kind.__name__ not in definitions:
        definitions[kind.__name__] = {}
        definitions[kind.__name__] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{kind.__name__}"}
