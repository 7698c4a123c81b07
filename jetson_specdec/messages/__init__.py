# SPDX-License-Identifier: Apache-2.0
"""How things are said: codes and values in, text out.

Rooms never build sentences. They hand over a code (`JSD…` finding, `JSE…` error, or the kind of a `Step`) and values;
this package renders them from a catalogue. A second language is one more folder beside `en/`.

Catalogue files are JSON, one a room, found by the first digit of the code (`AREAS`). `codes/AREA.json` holds what is
the same in every language (topic, severity, source of the rule), `LANG/AREA.json` the texts:

```json
{"JSD101": {"message": "This is {model}, not a Jetson.", "explain": "A longer text for `jetson-specdec explain`."}}
```

Placeholders are `str.format` fields with these extra formats: `{x:gib}` bytes as GiB with one decimal, `{x:mib}`,
`{x:bytes}` whichever of the two fits (see `bytes_text`), `{x:pct}` a fraction as a percentage, `{x:list}` items joined
by commas, `{x:or}` alternatives joined by "or", `{x:n start}` a number with its noun ("1 start", "3 starts";
`{x:n launch|launches}` where the plural is not formed with s). A value that is missing or `None` is shown as "unknown".
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from jetson_specdec.packaged import packaged_json

__all__ = ["AREAS", "all_codes", "bytes_text", "code_info", "explain", "render", "template"]

AREAS: Mapping[str, str] = {
    "0": "core",
    "1": "device",
    "2": "recipe",
    "3": "engine",
    "4": "models",
    "5": "planner",
    "6": "measure",
    "7": "logs",
    "8": "apply",
    "9": "server",
}
"""First digit of a code → room. Step kinds live in `LANG/steps.json`."""

_UNKNOWN = "unknown"


def bytes_text(value: float, unit: str = "bytes") -> str:
    """Return bytes for a person: `gib` with one decimal, `mib` whole, `bytes` GiB to the hundredth or, if few, MiB."""
    if unit == "mib" or (unit == "bytes" and abs(value) < 2**30 / 10):
        return f"{value / 2**20:.0f} MiB"
    return f"{value / 2**30:.{1 if unit == 'gib' else 2}f} GiB"


class _Formatter(string.Formatter):
    """`str.format` that never fails on a missing value and knows this project's units."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return kwargs.get(key) if isinstance(key, str) else None

    def format_field(self, value: Any, format_spec: str) -> Any:
        if value is None:
            return _UNKNOWN
        if format_spec in ("gib", "mib", "bytes"):
            return bytes_text(value, format_spec)
        if format_spec == "pct":
            return f"{value * 100:.4g} %"
        if format_spec in ("list", "or"):
            items = [str(item) for item in value]
            if format_spec == "or" and len(items) > 1:
                return ", ".join(items[:-1]) + " or " + items[-1]
            return ", ".join(items) if items else "none"
        if format_spec.startswith("n "):
            one, _, many = format_spec[2:].partition("|")
            return f"{value} {one if value == 1 else many or one + 's'}"
        return super().format_field(value, format_spec)


_FORMATTER = _Formatter()


@lru_cache(maxsize=64)
def _load(folder: str, area: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = packaged_json("messages", folder, f"{area}.json")
    except FileNotFoundError:
        return {}
    return data


def _area_of(key: str) -> str:
    return AREAS.get(key[3:4], "core") if key[:3] in ("JSD", "JSE") else "steps"


def _entry(key: str, lang: str) -> dict[str, Any]:
    entry = _load(lang, _area_of(key)).get(key) or _load("en", _area_of(key)).get(key) or {}
    return entry if isinstance(entry, dict) else {"message": entry}


def render(key: str, values: Mapping[str, Any] | None = None, *, lang: str = "en") -> str:
    """Return the text of a finding, error or step.

    An unknown key is rendered as itself with its values, so that a message is never lost to a missing text.
    """
    values = values or {}
    template = _entry(key, lang).get("message")
    if template is None:
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{key} ({shown})" if shown else key
    return _FORMATTER.vformat(template, (), dict(values))


def template(key: str, *, lang: str = "en") -> str | None:
    """Return the text of a code with its placeholders, or None where the catalogue has none."""
    text = _entry(key, lang).get("message")
    return text if isinstance(text, str) else None


def explain(key: str, *, lang: str = "en") -> str | None:
    """Return the long explanation of a code, or None where the catalogue has none."""
    text = _entry(key, lang).get("explain")
    return text if isinstance(text, str) else None


def code_info(code: str) -> dict[str, Any]:
    """Return `{topic, severity, source}` of a finding code.

    Raises:
        KeyError: the code is not in the catalogue.
    """
    info: dict[str, Any] = _load("codes", _area_of(code))[code]
    return info


def all_codes() -> dict[str, dict[str, Any]]:
    """Return every finding code with what is known of it, in code order."""
    found = {code: info for area in AREAS.values() for code, info in _load("codes", area).items()}
    return dict(sorted(found.items()))
