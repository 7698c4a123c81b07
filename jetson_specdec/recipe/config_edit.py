# SPDX-License-Identifier: Apache-2.0
"""Changing a `--config` YAML by splicing text: every byte that need not change stays."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from jetson_specdec.errors import UneditableError
from jetson_specdec.recipe.config_file import ConfigEntry, ConfigFile, parse_config

__all__ = ["edit_config"]

Splice = tuple[int, int, str]


def _where(config: ConfigFile) -> str:
    return config.path or config.named or "the config file"


def _refuse(config: ConfigFile, entry: ConfigEntry | None, reason: str) -> UneditableError:
    line = entry.line if entry is not None else 1
    key = entry.key if entry is not None else "the file"
    return UneditableError("JSE233", where=_where(config), line=line, key=key, reason=reason)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, offset: int) -> int:
    return text.rfind("\n", 0, offset) + 1


def _next_line(text: str, offset: int) -> int:
    at = text.find("\n", offset)
    return len(text) if at < 0 else at + 1


def _scalar(value: Any) -> str:
    """Return YAML text of a scalar that reads back as the same value under YAML 1.1."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    text = str(value)
    plain = text[:1].isalpha() and all(sign.isalnum() or sign in "._/-" for sign in text) and text.isascii()
    words = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return text if plain and text.lower() not in words else json.dumps(text)


def _single_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _prefers_underscores(config: ConfigFile) -> bool:
    keys = [entry.key for entry in config.entries]
    return sum("_" in key for key in keys) > sum("-" in key for key in keys)


def _json_style(config: ConfigFile) -> bool:
    """Whether the file writes its mappings as JSON texts."""
    nested = sum(isinstance(entry.value, dict) for entry in config.entries)
    texts = sum(isinstance(entry.value, str) and entry.value.lstrip().startswith("{") for entry in config.entries)
    return texts > nested


def _render(key: str, value: Any, *, indent: str, newline: str, as_json: bool) -> str:
    """Return the lines of an entry without a newline at the end."""
    if isinstance(value, Mapping):
        if as_json or any(isinstance(item, (dict, list)) for item in value.values()):
            return f"{indent}{key}: {_single_quoted(json.dumps(dict(value), ensure_ascii=False))}"
        lines = [f"{indent}{key}:", *(f"{indent}  {name}: {_scalar(item)}" for name, item in value.items())]
        return newline.join(lines)
    return f"{indent}{key}: {_scalar(value)}"


def _set(config: ConfigFile, entry: ConfigEntry, text: str) -> Splice:
    if entry.style in ("block", "flow", "literal", "folded"):
        raise _refuse(config, entry, "its value is not a single word")
    start, end = entry.start, entry.end
    written = config.text[start:end]
    if entry.anchor and entry.style != "alias":
        if entry.anchor in config.aliases:
            raise _refuse(config, entry, f"its value is shared through the anchor &{entry.anchor}")
        body = written[written.index(entry.anchor) + len(entry.anchor) :].lstrip()
        start = end - len(body)
        written = body
    if written[:1] == "'":
        text = _single_quoted(text)
    elif written[:1] == '"':
        text = json.dumps(text, ensure_ascii=False)
    if start == end and config.text[start - 1 : start] == ":":
        text = " " + text
    return start, end, text


def _extent(config: ConfigFile, entry: ConfigEntry) -> tuple[int, int]:
    """Return the whole lines of an entry: its first line's start, and the start of the line after its value."""
    if config.flow:
        raise _refuse(config, entry, "the file is written as one {…}")
    if entry.anchor and entry.style != "alias" and entry.anchor in config.aliases:
        raise _refuse(config, entry, f"its value is shared through the anchor &{entry.anchor}")
    start = _line_start(config.text, entry.key_start)
    if config.text[start : entry.key_start].strip(" \ufeff"):
        raise _refuse(config, entry, "it does not start its line")
    return start, _next_line(config.text, max(entry.end, entry.key_start))


def _append(config: ConfigFile, lines: list[str], newline: str) -> Splice:
    text = config.text
    last = max((entry for entry in config.entries if entry.start >= 0), key=lambda entry: entry.end, default=None)
    if last is None:
        lead = "" if not text or text.endswith("\n") else newline
        return len(text), len(text), lead + newline.join(lines) + newline
    at = _next_line(text, last.end)
    body = newline.join(lines)
    return at, at, body + newline if text[:at].endswith("\n") else newline + body


def _append_flow(config: ConfigFile, added: Mapping[str, Any]) -> Splice:
    close = config.text.rfind("}", 0, config.body[1])
    last = max((entry.end for entry in config.entries if entry.start >= 0), default=None)
    items = ", ".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in added.items())
    if last is None:
        return close, close, items
    if config.text[last:close].strip():
        raise _refuse(config, None, "something stands between the last value and the closing brace")
    return last, last, f", {items}"


def edit_config(
    config: ConfigFile,
    *,
    set_values: Mapping[str, str] | None = None,
    add: Mapping[str, Any] | None = None,
    remove: Iterable[str] = (),
) -> str:
    """Return the file's text with values changed, added and removed; all other bytes stay.

    Args:
        config: the file as read.
        set_values: flag name (dashes) → scalar text; replaced in place where the key is there, else added.
        add: flag name → value (a mapping becomes a nested mapping, or a JSON text where the file writes those);
            an entry that is there is rewritten where it stands.
        remove: keys (either spelling) to take out with their lines.

    Raises:
        UneditableError: the change cannot be made safely (shared anchors, unusual layout), or the changed text does
            not read back as intended.
    """
    newline, underscores, as_json = _newline(config.text), _prefers_underscores(config), _json_style(config)
    first = next((entry for entry in config.entries if entry.key_start >= 0), None)
    indent = (
        "" if first is None or config.flow else config.text[_line_start(config.text, first.key_start) : first.key_start]
    )
    indent = indent.lstrip("\ufeff")
    if indent.strip():
        raise _refuse(config, first, "it does not start its line")
    expected: dict[str, Any] = {entry.key: entry.value for entry in config.entries}
    splices: list[Splice] = []
    appended: dict[str, Any] = {}

    def new_key(name: str) -> str:
        return name.replace("-", "_") if underscores else name

    for key in remove:
        entry = config.entry(key)
        if entry is None:
            continue
        if entry.start < 0:
            raise _refuse(config, entry, "it comes in through a merge (<<)")
        splices.append((*_extent(config, entry), ""))
        del expected[entry.key]
    for name, text in (set_values or {}).items():
        entry = config.entry(name)
        typed = _typed(text)
        if entry is None or entry.start < 0:
            appended[new_key(name) if entry is None else entry.key] = typed
            expected[new_key(name) if entry is None else entry.key] = typed
        elif str(entry.value) != text:
            splices.append(_set(config, entry, text))
            expected[entry.key] = text if config.text[entry.end - 1 : entry.end] in ("'", '"') else typed
    for name, value in (add or {}).items():
        entry = config.entry(name)
        if entry is None or entry.start < 0:
            key = new_key(name) if entry is None else entry.key
            appended[key] = value
            expected[key] = _as_read(value, as_json and not config.flow)
        elif _plain(entry.value) != _plain(value):
            start, end = _extent(config, entry)
            style = as_json or isinstance(entry.value, str)
            body = _render(entry.key, value, indent=indent, newline=newline, as_json=style)
            tail = newline if config.text[:end].endswith("\n") else ""
            splices.append((start, end, body + tail))
            expected[entry.key] = _as_read(value, style)
    if appended and config.flow:
        splices.append(_append_flow(config, appended))
    elif appended:
        lines = [
            _render(key, value, indent=indent, newline=newline, as_json=as_json) for key, value in appended.items()
        ]
        splices.append(_append(config, lines, newline))
    return _verified(config, _apply(config.text, splices), expected)


def _typed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        return _typed(value)
    return dict(value) if isinstance(value, Mapping) else value


def _as_read(value: Any, as_json: bool) -> Any:
    if not isinstance(value, Mapping):
        return value
    nested = any(isinstance(item, (dict, list)) for item in value.values())
    return json.dumps(dict(value), ensure_ascii=False) if as_json or nested else dict(value)


def _apply(text: str, splices: list[Splice]) -> str:
    for start, end, new in sorted(splices, key=lambda splice: splice[:2], reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _verified(config: ConfigFile, text: str, expected: Mapping[str, Any]) -> str:
    from jetson_specdec.errors import RecipeSyntaxError

    try:
        again = parse_config(text, path=config.path, named=config.named)
    except RecipeSyntaxError as error:
        raise _refuse(config, None, str(error)) from error
    if {entry.key: _plain(entry.value) for entry in again.entries} != {
        key: _plain(value) for key, value in expected.items()
    }:
        raise _refuse(config, None, "the changed text does not read back as intended")
    return text
