# SPDX-License-Identifier: Apache-2.0
"""What a reader of another tool's report is, and how all of them read numbers.

Other tools' files are read tolerantly: a key that is missing or of the wrong type is unknown, never an error. What
must be there is only what makes the format recognisable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from jetson_specdec.measurements.core import BenchReport

__all__ = ["ReportReader", "count", "dig", "endpoint_kind", "number", "positive", "text"]


@runtime_checkable
class ReportReader(Protocol):
    """Reads one format. Register third-party ones as entry points of `jetson_specdec.report_readers`."""

    @property
    def name(self) -> str:
        """The format's name, as `read_report(format=…)` takes it."""

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether this looks like the format; `data` is the parsed JSON (NaN is None), or None where it is none."""

    def read(self, text: str, data: Any, where: str) -> BenchReport:
        """Return the report.

        Raises:
            ReportError: it is the format, but holds nothing that can be used.
        """


def number(value: Any) -> float | None:
    """Return a finite number as float, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) else None


def positive(value: Any) -> float | None:
    """Return a number above zero, else None: a time or a speed of 0 means that nothing was found."""
    result = number(value)
    return result if result is not None and result > 0 else None


def count(value: Any) -> int | None:
    """Return a whole number of 0 or more, else None."""
    result = number(value)
    return int(result) if result is not None and result >= 0 and result == int(result) else None


def text(value: Any) -> str | None:
    """Return a text that says something; `unknown` says nothing."""
    return value if isinstance(value, str) and value.strip() and value.strip().lower() != "unknown" else None


def dig(data: Any, *keys: str) -> Any:
    """Return what stands under a path of keys, or None."""
    for key in keys:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def endpoint_kind(named: Any) -> str | None:
    """Return `chat` or `completions` from the name of a backend or the path of an endpoint, else None."""
    if not isinstance(named, str):
        return None
    if "chat" in named:
        return "chat"
    return "completions" if named in ("vllm", "openai") or "completions" in named else None
