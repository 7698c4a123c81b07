# SPDX-License-Identifier: Apache-2.0
"""How scripts name their own folder: `$(dirname "$0")`, `${BASH_SOURCE%/*}`, `$(cd … && pwd)` and their like."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["beside_script"]

_SELF, _HERE = "\0", "\1"
MAX_LENGTH = 400
MAX_ROUNDS = 6


@lru_cache(maxsize=1)
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return what stands for what: `_SELF` for the script's file, `_HERE` for its folder, with what follows it."""
    here = rf"({_HERE}[\w./-]*)"
    away = r"(?: ?(?:[12]|&)?>>? ?(?:/dev/null|&[12]))*"
    resolve = r"(?:readlink(?: -[a-z]+)*|realpath(?: -[a-z]+)*)(?: --)? "
    return (
        (re.compile(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}"), _HERE),
        (re.compile(r"\$0|\$\{0\}|\$BASH_SOURCE\b(?!\[)|\$\{BASH_SOURCE(?:\[0\])?(?::-\$0)?\}"), _SELF),
        (re.compile(rf"\$\( ?{resolve}{_SELF}{away} ?\)"), _SELF),
        (re.compile(rf"\$\( ?dirname(?: --)? {_SELF} ?\)"), _HERE),
        (re.compile(rf"\$\( ?dirname(?: --)? {here} ?\)"), r"\1/.."),
        (re.compile(rf"\$\( ?{resolve}{here}{away} ?\)"), r"\1"),
        (
            re.compile(rf"\$\( ?(?:builtin )?cd(?: -[LPe]+)*(?: --)? {here}{away} ?(?:&&|;) ?pwd(?: -[LP])?{away} ?\)"),
            r"\1",
        ),
    )


def beside_script(written: str) -> str | None:
    """Return what an expansion adds to the folder of the script (`/..`, or nothing); None where it is another one.

    Args:
        written: one expansion as it stands in the script, its delimiters included.
    """
    if len(written) > MAX_LENGTH or _SELF in written or _HERE in written:
        return None
    text = re.sub(r"\\\r?\n", " ", written)
    if text[:1] == "`" and text[-1:] == "`":
        text = "$(" + text[1:-1].replace("\\`", "`") + ")"
    text = " ".join(re.sub(r"[\"']", "", text).split())
    for _ in range(MAX_ROUNDS):
        before = text
        for pattern, instead in _rules():
            text = pattern.sub(instead, text)
        if text == before:
            break
    found = re.fullmatch(rf"{_HERE}([\w./-]*)", text)
    return found[1] if found else None
