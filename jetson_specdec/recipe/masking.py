# SPDX-License-Identifier: Apache-2.0
"""Masking secrets in whatever is shown: tokens, keys, passwords become `***`.

A reference to a variable (`$HF_TOKEN`) is no secret and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jetson_specdec.recipe.secret_forms import is_secret_name, secret_patterns

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import ServeCommand
    from jetson_specdec.recipe.occurrences import Occurrence

__all__ = ["MASK", "is_secret_name", "redact", "redact_args", "secrets_of"]

MASK = "***"
_SHORTEST = 4
"""Shorter known secrets are masked where they stand as a value, not everywhere in the text."""
_PLAIN = re.compile(r"[A-Za-z]{1,7}|\d{1,7}")
"""Known secrets that might as well be ordinary words are masked where they are whole words."""


def _mask(match: re.Match[str]) -> str:
    groups = match.groupdict()
    whole = match.group(0)
    if groups.get("n") and not is_secret_name(groups["n"]):
        return whole
    name = "s" if groups.get("s") is not None else "sq"
    start, end = match.span(name)
    offset = match.start()
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
        if len(secret) < _SHORTEST or secret == MASK or secret not in shown:
            continue
        if _PLAIN.fullmatch(secret):
            shown = re.sub(rf"(?<![^\s=\"',:\[]){re.escape(secret)}(?![^\s\"',\]\\;|&)])", MASK, shown)
        else:
            shown = shown.replace(secret, MASK)
    for pattern in secret_patterns(shown):
        shown = pattern.sub(_mask, shown)
    return shown, shown != text


def redact_args(words: Sequence[str], occurrences: Iterable[Occurrence]) -> list[str]:
    """Return the words of a command with secrets masked; words and flags keep their places."""
    masked = list(words)
    for found in occurrences:
        if found.origin != "cli" or not is_secret_name(found.name) or not found.values:
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
    """Return the secret values that stand literally in a command: keys on its command line and in its environment.

    `secret_places.secrets_in` returns those of a whole recipe.
    """
    from jetson_specdec.recipe.occurrences import walk
    from jetson_specdec.recipe.secret_places import in_json

    found = {value for name, value in command.env.items() if value and is_secret_name(name)}
    for occurrence in walk(command.args).occurrences:
        if is_secret_name(occurrence.name):
            found.update(value for value in occurrence.values if value)
    for arg in command.args:
        if arg.value and "{" in arg.value:
            found.update(in_json(arg.value))
    return tuple(sorted(found))
