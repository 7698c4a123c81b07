# SPDX-License-Identifier: Apache-2.0
"""What is noticed around serve commands in other formats: texts that several share, comments that are commands."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from typing import Any

import attrs

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.embedded import Located, Word, line_of

__all__ = ["commented_alternatives", "unshared"]

_COMMENT = re.compile(r"^[ \t]*[#;][#; \t]*(.*)$", re.MULTILINE)
_ALTERNATIVE = re.compile(
    r"(?:- )?[\"']?-{1,2}[A-Za-z]|(?:command|args|entrypoint|ExecStart)\s*[:=]|(?:sudo\s+)?docker\s+run\b"
    r"|.*\bvllm\s+serve\b"
)


def unshared(located: Sequence[Located], owners: Sequence[int]) -> list[Located]:
    """Block commands whose words are written once and used by several owners (services, containers)."""
    users: dict[int, set[int]] = {}
    for one, owner in zip(located, owners, strict=True):
        for node in _nodes(one):
            users.setdefault(id(node), set()).add(owner)
    result: list[Located] = []
    for one in located:
        together = {owner for node in _nodes(one) for owner in users[id(node)]}
        if len(together) > 1:
            blocked = Finding.of("JSD299", line=one.command.line, count=len(together))
            command = attrs.evolve(one.command, blocked=blocked, findings=(*one.command.findings, blocked))
            one = attrs.evolve(one, command=command)
        result.append(one)
    return result


def _nodes(one: Located) -> list[Any]:
    words: list[Word] = [*one.words, *([one.tail] if one.tail else [])]
    return [node for word in words for node in (word.node, word.parent) if node is not None]


def commented_alternatives(text: str, start: int, end: int, spans: Sequence[tuple[int, int]]) -> tuple[Finding, ...]:
    """Return a finding on comments that are commands or flags; in `spans` (sorted) a `#` begins no comment."""
    lines: list[int] = []
    starts = [left for left, _ in spans]
    for match in _COMMENT.finditer(text, start, end):
        before = bisect.bisect_right(starts, match.start()) - 1
        if before >= 0 and match.start() < spans[before][1]:
            continue
        if _ALTERNATIVE.match(match[1]):
            lines.append(line_of(text, match.start(1)))
    return (Finding.of("JSD201", lines=lines),) if lines else ()
