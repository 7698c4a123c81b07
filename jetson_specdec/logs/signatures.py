# SPDX-License-Identifier: Apache-2.0
"""What launch logs print, by cause: the table in `data/signatures.json`, ready to match."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from attrs import field

from jetson_specdec.packaged import packaged_json
from jetson_specdec.values import frozen

__all__ = ["Signature", "signatures", "to_gib"]


@frozen(kw_only=True, eq=False)
class Signature:
    """One thing a log can print, and what it proves.

    Attributes:
        id: name of the entry.
        cause: what it proves.
        tier: 1 proves the cause; 2 proves it unless the log has a line of tier 1; 3 is noise unless the start failed
            without a better reason; 4 only says that the engine failed.
        anchors: texts of which a line must hold one; cheap to look for.
        pattern: what the line must match, or None where an anchor is enough.
        quiet: whether a line of level INFO or WARNING counts.
        under: the pydantic report the line must belong to (`SpeculativeConfig`), as a pattern.
        frame: what must stand in the traceback close before it.
        until: the message may go on over the following lines up to this text.
        lines: over how many of them.
        values: names of groups → how to read them.
        set: values that go with this entry.
        remedy: the remedy, where it differs from the usual one of the cause.
        stage: the stage, where it is certain.
        speculation: whether it is about speculation by itself.
        source: where the text comes from.
        example, look_alike: a line that matches and one that must not.
    """

    id: str
    cause: str
    source: str
    example: str
    tier: int = 1
    anchors: tuple[str, ...] = ()
    pattern: str | None = None
    quiet: bool = False
    under: str | None = None
    frame: str | None = None
    until: str | None = None
    lines: int = 40
    values: Mapping[str, str] = field(factory=dict)
    set: Mapping[str, Any] = field(factory=dict)
    remedy: str | None = None
    stage: str | None = None
    speculation: bool | None = None
    releases: str | None = None
    look_alike: str | None = None

    def match(self, text: str) -> dict[str, Any] | None:
        """Return the values in a message that holds an anchor, or None where it does not match."""
        if self.pattern is None:
            return dict(self.set)
        found = _compiled(self.pattern).search(text)
        if found is None:
            return None
        groups = {name: value for name, value in found.groupdict().items() if value is not None}
        read = {name: _READERS[self.values[name]](value) for name, value in groups.items() if name in self.values}
        return {**self.set, **{name: value for name, value in read.items() if value is not None}}

    def fits(self, before: str) -> bool:
        """Whether the lines before allow it: the pydantic report and the traceback it must belong to."""
        if self.under is not None:
            reports = re.findall(r"validation errors? for (\w+)", before)
            if not reports or re.fullmatch(self.under, reports[-1]) is None:
                return False
        return self.frame is None or _compiled(self.frame).search(before) is not None


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=1)
def signatures() -> tuple[Signature, ...]:
    """Return the table in its order."""
    data = packaged_json("logs", "data", "signatures.json")
    return tuple(Signature(**{**entry, "anchors": tuple(entry["anchors"])}) for entry in data["signatures"])


def to_gib(text: str) -> float | None:
    """Return a size as GiB: as printed where it is in GiB, else with two decimals; a bare number is bytes."""
    number, _, unit = text.strip().partition(" ")
    try:
        value = float(number)
    except ValueError:
        return None
    if unit == "GiB":
        return value
    shift = {"MiB": 10, "KiB": 20, "B": 30, "bytes": 30, "": 30}.get(unit)
    if shift is None or value == float("inf"):
        return None
    if unit == "" and value < 2**20:
        # Too small for bytes: a figure in GiB whose unit stands elsewhere in the message.
        return value
    return round(value / float(1 << shift), 2)


def _float(text: str) -> float | None:
    try:
        return float(text.rstrip("."))
    except ValueError:
        return None


def _int(text: str) -> int | None:
    return int(text.replace(",", "")) if len(text) <= 18 else None


_READERS: Mapping[str, Callable[[str], Any]] = {
    "float": _float,
    "int": _int,
    "text": str.strip,
    "lower": lambda text: text.strip().lower(),
    "quoted": lambda text: text.strip().strip("'\""),
    "size": to_gib,
}
