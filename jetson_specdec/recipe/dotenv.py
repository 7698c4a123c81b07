# SPDX-License-Identifier: Apache-2.0
"""Environment files: `.env` and `env_file` of compose, `EnvironmentFile=` of systemd, `--env-file` of containers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from jetson_specdec.values import frozen

__all__ = ["ContainerEnvFile", "read_container_env", "read_env"]

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


@frozen(kw_only=True)
class ContainerEnvFile:
    """What an `--env-file` of `docker run` or `podman run` sets.

    Attributes:
        values: the variables; None for one that is taken from the environment of the command, or in quotes that some
            releases take for a part of the value.
        quoted: those with quotes around the value.
        refused: the first line, from 1, with which the whole file is refused, or None.
    """

    values: Mapping[str, str | None]
    quoted: tuple[str, ...] = ()
    refused: int | None = None


def read_container_env(text: str, outer: Mapping[str, str | None], *, podman: bool = False) -> ContainerEnvFile:
    """Read an `--env-file`.

    A line is `NAME=value`, the value as it stands: no comment behind it, no variable in it, no `export`. A name alone
    takes its value from outside. Quotes are a part of the value for Podman and for Docker up to a release that is not
    known here. Source: docker/cli `pkg/kvfile/kvfile.go`, containers/podman `pkg/env/env.go`.

    Args:
        text: the file.
        outer: the environment of the command, as far as it is known.
        podman: whether Podman reads it: it takes any name.
    """
    values: dict[str, str | None] = {}
    quoted: list[str] = []
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.removesuffix("\r").lstrip(" \t" if podman else None)
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not name or (not podman and re.search(r"[ \t]", name)):
            return ContainerEnvFile(values={}, refused=number)
        values[name] = value if equals else outer.get(name)
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            quoted.append(name)
            values[name] = value if podman else None
    return ContainerEnvFile(values=values, quoted=tuple(quoted))
