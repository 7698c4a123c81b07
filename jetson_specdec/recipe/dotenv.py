# SPDX-License-Identifier: Apache-2.0
"""Environment files: `.env` and `env_file` of compose, `EnvironmentFile=` of systemd."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["read_env"]

_LINE = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)[ \t]*=[ \t]*")
_COMMENT = re.compile(r"[ \t]#")


def read_env(text: str, kind: Literal["compose", "unit"] = "compose") -> dict[str, str | None]:
    """Return the variables of an environment file.

    A value that refers to other variables is None: it depends on more than the file.
    """
    found: dict[str, str | None] = {}
    lines = iter(text.splitlines())
    for line in lines:
        match = _LINE.match(line)
        if line.lstrip().startswith(("#", ";")) or not match:
            continue
        value = line[match.end() :].rstrip()
        quote = value[:1] if value[:1] in ("'", '"') else ""
        while quote and not _closed(value, quote):
            following = next(lines, None)
            if following is None:
                break
            value += "\n" + following.rstrip()
        found[match[1]] = _value(value, quote, kind)
    return found


def _closed(value: str, quote: str) -> bool:
    return _end(value, quote) > 0


def _end(value: str, quote: str) -> int:
    at = 1
    while at < len(value):
        if value[at] == "\\" and quote == '"':
            at += 2
            continue
        if value[at] == quote:
            return at
        at += 1
    return -1


def _value(value: str, quote: str, kind: str) -> str | None:
    if not quote:
        comment = _COMMENT.search(value) if kind == "compose" else None
        plain = value[: comment.start()].rstrip() if comment else value
        return None if "$" in plain and kind == "compose" else plain
    end = _end(value, quote)
    inner = value[1:end] if end > 0 else value[1:]
    if quote == "'":
        return inner
    if "$" in inner and kind == "compose":
        return None
    return re.sub(r"\\([\"\\$`])", r"\1", inner).replace("\\n", "\n") if "\\" in inner else inner
