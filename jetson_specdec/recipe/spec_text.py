# SPDX-License-Identifier: Apache-2.0
"""Reading the JSON of `--speculative-config`, and saying what broke it where it did not survive its quoting."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from jetson_specdec.values import frozen

__all__ = ["SpecText", "read_spec_text", "spec_json"]

_CURLY = str.maketrans({"“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "\u00a0": " "})


@frozen(kw_only=True)
class SpecText:
    """What a text given to `--speculative-config` is.

    Attributes:
        config: the mapping, keys with underscores; None where off or broken.
        off: the text turns speculation off (empty, `None`, `null`).
        variant: what broke it: `literal_single_quotes`, `inner_quotes_lost`, `split_by_brace_expansion`,
            `split_by_blanks`, `double_braces`, `every_character_escaped`, `single_quoted_keys`, `typographic_quotes`,
            `not_an_object`, `invalid_json`; None where it is fine.
        repaired: the mapping that was meant, where that is certain enough to offer.
        reason: what a JSON reader says about it, for `invalid_json`.
    """

    config: Mapping[str, Any] | None = None
    off: bool = False
    variant: str | None = None
    repaired: Mapping[str, Any] | None = None
    reason: str | None = None


def spec_json(config: Mapping[str, Any]) -> str:
    """Return a configuration as the compact JSON that this package writes."""
    return json.dumps(dict(config), ensure_ascii=False, separators=(",", ":"))


def _underscored(config: Mapping[str, Any]) -> dict[str, Any]:
    """Keys with dashes count as keys with underscores (vLLM 0.32 `engine/arg_utils.py`)."""
    return {str(key).replace("-", "_"): value for key, value in config.items()}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _underscored(value) if isinstance(value, dict) else None


def _python(text: str) -> dict[str, Any] | None:
    """Read a Python dict display, such as `{'method': 'eagle3'}`."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return _underscored(value) if isinstance(value, dict) and all(isinstance(key, str) for key in value) else None


def _word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _unquoted(text: str) -> dict[str, Any] | None:
    """Read `method:eagle3,num_speculative_tokens:3`, what is left of flat JSON without its quotes."""
    found: dict[str, Any] = {}
    for part in text.replace("\n", " ").split(","):
        key, colon, value = part.strip().partition(":")
        key, value = key.strip(), value.strip()
        if not colon or not key.replace("_", "").replace("-", "").isalnum() or not value or value[0] in "{[":
            return None
        found[key.replace("-", "_")] = _word(value)
    return found or None


def _inner(text: str) -> str | None:
    stripped = text.strip()
    return stripped[1:-1] if stripped[:1] == "{" and stripped[-1:] == "}" else None


def _broken(text: str, raw: str, following: tuple[str, ...]) -> SpecText:
    stripped = text.strip()
    if raw[:1] == "{" and '"' in raw and "," in raw:
        # A bare brace in front: the shell expanded it and took the quotes away.
        return SpecText(variant="split_by_brace_expansion", repaired=_object(raw) or _unquoted(_inner(raw) or ""))
    if stripped[:1] in "\"'" and stripped[-1:] == stripped[:1] and len(stripped) > 2:
        variant = "literal_single_quotes" if stripped[:1] == "'" else "invalid_json"
        return SpecText(variant=variant, repaired=_object(stripped[1:-1]) or _python(stripped[1:-1]))
    if stripped[:1] == "'":
        # The shell cut the word at its first space: `'{method:` and the rest behind it.
        joined = " ".join((stripped, *following)).strip("'")
        return SpecText(
            variant="literal_single_quotes", repaired=_object(joined) or _unquoted(_inner(joined) or "") or None
        )
    if stripped.startswith("{{"):
        return SpecText(variant="double_braces", repaired=_object(stripped.replace("{{", "{").replace("}}", "}")))
    if "\\" in stripped and (fixed := _object(stripped.replace("\\", ""))) is not None:
        return SpecText(variant="every_character_escaped", repaired=fixed)
    if any(sign in stripped for sign in "“”„«»‘’\u00a0"):
        plain = " ".join((stripped, *following)) if stripped[-1:] not in "}”’" else stripped
        plain = plain.translate(_CURLY)
        bare = plain.strip("\"'")
        whole = _object(raw.translate(_CURLY).strip("\"'"))
        repaired = _object(plain) or _python(plain) or _object(bare) or whole or _unquoted(_inner(bare) or "")
        return SpecText(variant="typographic_quotes", repaired=repaired)
    inner = _inner(stripped)
    if inner is not None and '"' not in inner:
        if (python := _python(stripped)) is not None:
            return SpecText(variant="single_quoted_keys", repaired=python)
        return SpecText(variant="inner_quotes_lost", repaired=_unquoted(inner))
    if inner is None and '"' not in stripped and ":" in stripped:
        joined = " ".join((stripped, *following))
        if stripped.startswith("{"):
            return SpecText(variant="inner_quotes_lost", repaired=_unquoted(_inner(joined) or ""))
        parts = (stripped, *(word for word in following if ":" in word))
        # One part alone is not the whole: the shell expands braces only around several.
        repaired = _unquoted(",".join(parts)) if len(parts) > 1 else None
        return SpecText(variant="split_by_brace_expansion", repaired=repaired)
    if following and (joined_config := _object(" ".join((stripped, *following)))) is not None:
        return SpecText(variant="split_by_blanks", repaired=joined_config)
    trimmed = stripped.replace(",}", "}").replace(", }", "}")
    try:
        json.loads(stripped)
        reason = None
    except (ValueError, RecursionError) as error:
        reason = str(error)
    return SpecText(variant="invalid_json", repaired=_object(trimmed) or _python(stripped), reason=reason)


def read_spec_text(text: str | None, *, raw: str = "", following: tuple[str, ...] = ()) -> SpecText:
    """Read what the engine receives for `--speculative-config`.

    Args:
        text: the word as the engine receives it; None where the shell makes several words of it.
        raw: the word as it stands in the recipe, quotes and all; shows what the shell did to it.
        following: words behind it that belong to no flag: the rest of a word that was split.
    """
    if text is None:
        return _broken(raw, raw, following)
    if text in ("", "None") or text.strip() == "null":
        return SpecText(off=True)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _broken(text, raw, following)
    if isinstance(value, dict):
        return SpecText(config=_underscored(value))
    return SpecText(variant="not_an_object", repaired=_object(value) if isinstance(value, str) else None)
