# SPDX-License-Identifier: Apache-2.0
"""Masking secrets in whatever is shown: tokens, keys, passwords become `***`.

A reference to a variable (`$HF_TOKEN`) is no secret and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import ServeCommand
    from jetson_specdec.recipe.occurrences import Occurrence

__all__ = ["MASK", "is_secret_name", "redact", "redact_args", "secrets_of"]

MASK = "***"
_SECRET_FLAGS = ("api-key", "hf-token")
_NAME_ENDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "APIKEY", "CREDENTIAL", "CREDENTIALS", "PASSPHRASE")
_SHORTEST = 4
"""Shorter known secrets are masked where they stand as a value, not everywhere in the text."""


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name holds a secret (`HF_TOKEN`, `EDGE_KEY`; not `MAX_TOKENS`, `KEYFILE`)."""
    return name.upper().replace("-", "_").rpartition("_")[2] in _NAME_ENDS


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Each pattern has the secret as its group `s`."""
    # A value: quoted (escaped quotes too), or up to white space or a closing sign. References start with `$`.
    value = r"""(?P<q>\\*["'])?(?(q)(?P<sq>(?!\$)(?:(?!(?P=q))[^\n])+)|(?P<s>(?!\$|--)[^\s"'`|&;<>(){}\[\],\\]+))"""
    names = "|".join(_NAME_ENDS)
    return (
        re.compile(r"(?P<s>\b(?:hf|api_org|ghp|gho|ghs|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{6,})"),
        re.compile(r"(?P<s>\b(?:sk|nvapi|AKIA|pk)-[A-Za-z0-9_-]{6,})"),
        re.compile(r"(?P<s>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*)"),
        re.compile(
            r"(?i)\bauthorization\b[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token)\s+)?(?P<s>(?!\$)[^\s\"'\\]+)"
        ),
        re.compile(r"(?i)\bbearer\s+(?P<s>(?!\$)[A-Za-z0-9._~+/=-]{4,})"),
        re.compile(r"(?i)[a-z][a-z0-9+.-]*://(?P<s>(?!\$)[^\s/@:\"']*:(?!\$)[^\s/@\"']+)@"),
        re.compile(
            r"""(?i)--?(?:api[-_]key|hf[-_]token)(?:=|["']\s*,\s*|["']?[ \t]*\r?\n\s*-\s+|\s+(?:\\\r?\n\s*)?)""" + value
        ),
        re.compile(rf"(?i)(?<![\w$])(?:[\w-]*[_-])?(?:{names})=" + value),
        re.compile(rf"(?i)(?<![\w$])(?:[\w-]*[_-](?:{names})|{names.replace('|KEY', '', 1)})[\"']?\s*:\s+" + value),
        re.compile(rf"(?i)(?<![\w$])[\w-]*[_-](?:{names})\\*\"\s*:\s*" + value),
    )


def _mask(match: re.Match[str]) -> str:
    groups = match.groupdict()
    name = "s" if groups.get("s") is not None else "sq"
    start, end = match.span(name)
    offset = match.start()
    whole = match.group(0)
    if whole[start - offset : end - offset] == MASK:
        return whole
    return whole[: start - offset] + MASK + whole[end - offset :]


def redact(text: str, secrets: Iterable[str] = ()) -> tuple[str, bool]:
    """Return the text with secrets masked, and whether anything was masked.

    Args:
        text: recipe text, log, JSON, command line.
        secrets: values known to be secret (`secrets_of`), masked wherever they stand.
    """
    shown = text
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST and secret != MASK:
            shown = shown.replace(secret, MASK)
    for pattern in _patterns():
        shown = pattern.sub(_mask, shown)
    return shown, shown != text


def redact_args(words: Sequence[str], occurrences: Iterable[Occurrence]) -> list[str]:
    """Return the words of a command with secrets masked; words and flags keep their places."""
    masked = list(words)
    for found in occurrences:
        if found.origin != "cli" or found.name not in _SECRET_FLAGS or not found.values:
            continue
        if found.inline:
            if found.value is not None:
                masked[found.first] = f"{found.spelled}={MASK}"
        else:
            for place, value in zip(
                range(found.last - len(found.values) + 1, found.last + 1), found.values, strict=True
            ):
                if value is not None:
                    masked[place] = MASK
    return [redact(word)[0] for word in masked]


def secrets_of(command: ServeCommand) -> tuple[str, ...]:
    """Return the secret values that stand literally in a command: keys on its command line and in its environment."""
    from jetson_specdec.recipe.occurrences import walk

    found = {value for name, value in command.env.items() if value and is_secret_name(name)}
    for occurrence in walk(command.args).occurrences:
        if occurrence.name in _SECRET_FLAGS:
            found.update(value for value in occurrence.values if value)
    return tuple(sorted(found))
