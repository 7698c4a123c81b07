# SPDX-License-Identifier: Apache-2.0
"""Catalogue files that users write: their form, and reading them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jetson_specdec.errors import CatalogueError
from jetson_specdec.files import parse_toml, read_text

__all__ = ["check_document", "read_user_file", "user_schema"]

SCHEMA_VERSION: Final = 1

# Plain `organisation/name`; where a head or a draft may lie on the board itself, an absolute path as well.
_ID: Final[dict[str, Any]] = {"type": "string", "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*$"}
_PLACE: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": r"^(/[^\x00]+|[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*)$",
}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_BOOL: Final[dict[str, Any]] = {"type": "boolean"}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 1}
_RELEASE: Final[dict[str, Any]] = {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}
_LOADS: Final[dict[str, Any]] = {"type": "string", "enum": ["tested", "documented", "unknown"]}
_CONFIDENCE: Final[dict[str, Any]] = {"type": "string", "enum": ["high", "medium", "low"]}
_TEXTS: Final[dict[str, Any]] = {"type": "array", "items": _TEXT}

_SIZES: Final[dict[str, Any]] = {
    "evidence": _TEXT,
    "min_vllm": _RELEASE,
    "licence": _TEXT,
    "gated": _BOOL,
    "download_bytes": _COUNT,
    "resident_bytes": _COUNT,
    "kv_bytes_per_token": _COUNT,
    "size_status": {"type": "string", "enum": ["published", "computed"]},
    "notes": _TEXTS,
    "confidence": _CONFIDENCE,
    "loads_in_vllm": _LOADS,
}
_ACCEPTANCE: Final[dict[str, Any]] = {
    "benchmark": _TEXT,
    "num_speculative_tokens": _COUNT,
    "mean_length": {"type": "number", "minimum": 1},
    "per_position": {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}},
    "source": _TEXT,
}
_TARGET: Final[dict[str, Any]] = {
    "id": _ID,
    "aliases": {"type": "array", "items": _ID},
    "variants": {"type": "object", "additionalProperties": _TEXT},
    "model_type": _TEXT,
    "architecture": _TEXT,
    "vocab_size": _COUNT,
    "layers": _COUNT,
    "hidden_size": _COUNT,
    "max_position_embeddings": _COUNT,
    "moe": _BOOL,
    "multimodal": _BOOL,
    "hybrid": _BOOL,
    "native_precision": _TEXT,
    "weight_bytes": {"type": "object", "additionalProperties": _COUNT},
    "params_total": _COUNT,
    "params_active": _COUNT,
    "kv_bytes_per_token": _COUNT,
    "gated": _BOOL,
    "confidence": _CONFIDENCE,
}
_HEAD: Final[dict[str, Any]] = {
    "id": _PLACE,
    "target": _ID,
    "method": {"type": "string", "enum": ["eagle3", "eagle", "dflash", "dspark", "medusa"]},
    "max_position_embeddings": _COUNT,
    "native_k": _COUNT,
    "format": {"type": "string", "enum": ["speculators", "eagle"]},
    "extra_config": {"type": "object"},
    "acceptance": {
        "type": "array",
        "items": {
            "type": "object",
            "properties": _ACCEPTANCE,
            "required": ["benchmark"],
            "additionalProperties": False,
        },
    },
    "id_verified": _BOOL,
    **_SIZES,
}
_PAIR: Final[dict[str, Any]] = {
    "target": _ID,
    "draft": _PLACE,
    "target_vocab_size": _COUNT,
    "draft_vocab_size": _COUNT,
    "usable": _BOOL,
    "weight_ratio": {"type": "number", "minimum": 0},
    **_SIZES,
}


def _list_of(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    entry = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "array", "items": entry}


def user_schema() -> dict[str, Any]:
    """Return the JSON Schema of a user's catalogue file; what is not known is left out, never null."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "jetson_specdec catalogue file",
        "type": "object",
        "properties": {
            "schema_version": {"type": "integer", "minimum": SCHEMA_VERSION, "maximum": SCHEMA_VERSION},
            "targets": _list_of(_TARGET, ["id"]),
            "heads": _list_of(_HEAD, ["id", "target"]),
            "pairs": _list_of(_PAIR, ["target", "draft"]),
        },
        "required": ["schema_version"],
        "additionalProperties": False,
    }


def read_user_file(path: Path) -> dict[str, Any]:
    """Read and check one file.

    Raises:
        CatalogueError: JSE005 it cannot be read, JSE006 it is not TOML or JSON, JSE410 to JSE419 it holds something
            that a catalogue does not.
    """
    kind = path.suffix.lower()
    if kind not in (".toml", ".json"):
        raise CatalogueError("JSE410", path=str(path))
    text = read_text(path, CatalogueError)
    try:
        document = json.loads(text) if kind == ".json" else parse_toml(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CatalogueError("JSE006", path=str(path), format=kind[1:].upper(), reason=reason) from error
    return check_document(document, where=str(path))


def check_document(document: Any, *, where: str) -> dict[str, Any]:
    """Return a parsed document if it is a catalogue file.

    Args:
        document: what the file parsed to.
        where: the file, for the error's text.

    Raises:
        CatalogueError: it is not; the text names the entry and the field.
    """
    _check(document, user_schema(), _Place(where, "the file", ""))
    checked: dict[str, Any] = document
    for name, key in (("targets", ("id",)), ("heads", ("id",)), ("pairs", ("target", "draft"))):
        seen: set[tuple[str, ...]] = set()
        for index, entry in enumerate(checked.get(name, ())):
            identity = tuple(entry[part] for part in key)
            if identity in seen:
                raise CatalogueError("JSE415", path=where, entry=f"{name}[{index}]", id=" + ".join(identity))
            seen.add(identity)
    return checked


class _Place:
    """Where in a file a value stands: the file, the entry (`heads[0]`) and the field inside it."""

    def __init__(self, path: str, entry: str, field: str) -> None:
        self.path, self.entry, self.field = path, entry, field

    def inside(self, name: str | int) -> _Place:
        step = f"[{name}]" if isinstance(name, int) else f".{name}"
        if self.entry == "the file" and isinstance(name, str):
            return _Place(self.path, name, "")
        if not self.field and isinstance(name, int):
            return _Place(self.path, f"{self.entry}{step}", "")
        return _Place(self.path, self.entry, f"{self.field}{step}".lstrip("."))

    def error(self, code: str, value: Any, **values: Any) -> CatalogueError:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        field = self.field or self.entry
        return CatalogueError(code, path=self.path, entry=self.entry, field=field, value=shown, **values)


_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _check(value: Any, schema: Mapping[str, Any], place: _Place) -> None:
    """Check a value against the part of JSON Schema that `user_schema` uses."""
    kind = schema["type"]
    if not _is_of(value, kind):
        raise place.error("JSE412", value, wanted=kind)
    if "enum" in schema and value not in schema["enum"]:
        raise place.error("JSE416", value, known=schema["enum"])
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        raise place.error("JSE417", value, pattern=schema["pattern"])
    if "minimum" in schema and value < schema["minimum"]:
        raise place.error("JSE418", value, low=schema["minimum"])
    if "maximum" in schema and value > schema["maximum"]:
        raise place.error("JSE419", value, high=schema["maximum"])
    if kind == "array":
        for index, item in enumerate(value):
            _check(item, schema["items"], place.inside(index))
    elif kind == "object":
        _check_table(value, schema, place)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind]) and value == value  # NaN is not a number


def _check_table(table: dict[str, Any], schema: Mapping[str, Any], place: _Place) -> None:
    known: Mapping[str, Any] = schema.get("properties", {})
    other = schema.get("additionalProperties", True)
    for name, item in table.items():
        if name in known:
            _check(item, known[name], place.inside(name))
        elif other is False:
            raise CatalogueError("JSE411", path=place.path, entry=place.entry, field=name, known=sorted(known))
        elif other is not True:
            _check(item, other, place.inside(name))
    for name in schema.get("required", ()):
        if name not in table:
            raise CatalogueError("JSE413", path=place.path, entry=place.entry, field=name)
