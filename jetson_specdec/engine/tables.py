# SPDX-License-Identifier: Apache-2.0
"""The table of vLLM releases: which rows a version falls into, and what a range in the data means.

The data lists the releases that were read. A version between two of them behaves like the older one as far as this
package knows; one above the newest counts as the newest; one below the oldest has no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from jetson_specdec.packaged import packaged_json

__all__ = ["NEWEST_KNOWN", "OLDEST_KNOWN", "in_ranges", "load", "release_key", "rows_between", "step_value", "table"]

NEWEST_KNOWN = "0.33.0"
"""The newest release in the table (a test holds it to the data)."""
OLDEST_KNOWN = "0.8.5"

Range = Sequence["str | None"]


@lru_cache(maxsize=8)
def load(name: str) -> Mapping[str, Any]:
    """Return a data file of this room, parsed once; `name` without `.json`."""
    data: Mapping[str, Any] = packaged_json("engine", "data", f"{name}.json")
    return data


def table() -> Mapping[str, Any]:
    """Return the release table."""
    return load("releases")


@lru_cache(maxsize=512)
def release_key(text: str) -> tuple[int, ...]:
    """Return a sortable key of the numbers in front of a version: `0.20` and `0.20.0` are equal, suffixes do not count.

    Pre-releases count as the release they lead to: what the table says of a release holds for its candidates.
    """
    numbers: list[int] = []
    for part in text.split("."):
        digits = ""
        for character in part:
            if not character.isascii() or not character.isdigit():
                break
            digits += character
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@lru_cache(maxsize=256)
def rows_between(first: str | None = None, last: str | None = None) -> tuple[str, ...]:
    """Return the listed releases from `first` to `last`, both inclusive; None is open."""
    return tuple(
        row
        for row in table()["releases"]
        if (first is None or release_key(row) >= release_key(first))
        and (last is None or release_key(row) <= release_key(last))
    )


def row_of(version: str) -> str | None:
    """Return the newest listed release that is not newer than `version`, or None below the oldest."""
    rows = rows_between(None, version)
    return rows[-1] if rows else None


def in_ranges(row: str, ranges: Iterable[Range]) -> bool:
    """Say whether a listed release lies in one of the `[first, last]` ranges; a `last` of None is open."""
    key = release_key(row)
    return any(
        (first is None or release_key(first) <= key) and (last is None or key <= release_key(last))
        for first, last in ranges
    )


def step_value(row: str, steps: Iterable[Sequence[Any]]) -> Any:
    """Return the value of the last `[since, value]` step that applies to a release, or None before the first."""
    key, found = release_key(row), None
    for since, value in steps:
        if since is None or release_key(since) <= key:
            found = value
    return found
