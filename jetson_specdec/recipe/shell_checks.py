# SPDX-License-Identifier: Apache-2.0
"""What is worth saying about a shell command: broken quoting, typography, comments that are commands, ambiguities."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Arg, ServeCommand

if TYPE_CHECKING:
    from jetson_specdec.recipe.shell_find import Found

__all__ = ["blocked", "command_findings", "recipe_findings"]

MAX_LINES = 20

_GLUE = re.compile("[\u00a0\u202f\u3000]")
_SMART = re.compile("[\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb]")
_ALTERNATIVE = re.compile(
    r"#[#\s]*(?:-{1,2}[A-Za-z]|command:|(?:sudo\s+)?docker\s+run\s+(?:-|\S+[/:])"
    # prose has `vllm serve` too: a flag, an id, or nothing but one more word behind it
    r"|.*\bvllm\s+serve\s+(?:.*(?<=\s)-{1,2}[A-Za-z]|[\w.-]+/\S)"
    r"|(?:\w+=\S*\s+)*vllm\s+serve\s+\S+[ \t]*\\?[ \t\r]*\Z)"
)
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_PROMPT = re.compile(r"[$%][ \t]|\S+@\S+[$#][ \t]")
_AT_LINE_START = re.compile(r"\n[ \t]*\Z")
_WINDOWS = re.compile(r"\r\n")
_CONTINUED = re.compile(r"\\\r?\n[ \t]*\Z")
_NEXT_FLAG = re.compile(r"[^\n]*\n(?:[ \t]*#[^\n]*\n)*[ \t]*-{1,2}[A-Za-z]")
_BROKEN_CONTINUATION = re.compile(r"\\[ \t]+(?:\r?\n|\Z)")


def blocked(found: Found, text: str) -> Finding | None:
    """Return why a command cannot be changed safely, or None."""
    line = text.count("\n", 0, found.outer[0]) + 1
    quoted = [layer for layer in found.script.layers if layer != "heredoc"]
    if len(quoted) > 1:
        return Finding.of("JSD205", line=line, layers=quoted)
    broken = _broken_continuation(found, text) or _cut_by_comment(found, text) or _pasted_prompt(found, text)
    return broken[0] if broken else None


def _broken_continuation(found: Found, text: str) -> list[Finding]:
    """A backslash that is followed by blanks does not continue the line: the shell makes it a blank argument."""
    for word in found.command.words[-1:]:
        source = found.script.text
        if source[word.start : word.start + 1] == "\\" and _BROKEN_CONTINUATION.match(source, word.start):
            start, _ = found.script.to_root(word.start, word.end)
            return [Finding.of("JSD204", line=text.count("\n", 0, start) + 1)]
    return []


def _pasted_prompt(found: Found, text: str) -> list[Finding]:
    """The `> ` that a terminal shows in front of a continued line, copied along: for the shell a redirection."""
    source, command = found.script.text, found.command
    prompted = bool(_PROMPT.match(source, command.start))
    for one in command.redirects:
        if one.op != ">" or one.target is None or not _AT_LINE_START.search(source[max(0, one.start - 80) : one.start]):
            continue
        target = source[one.target.start : one.target.end]
        if target.startswith("-") or prompted:
            start, _ = found.script.to_root(one.start, one.end)
            return [Finding.of("JSD214", line=text.count("\n", 0, start) + 1, word=target)]
    return []


def _cut_by_comment(found: Found, text: str) -> list[Finding]:
    """A comment behind a continued line ends the command: the options below it are lost."""
    source, command = found.script.text, found.command
    starts = [comment.start for comment in found.comments]
    at = bisect_left(starts, command.end)
    if at == len(starts) or starts[at] > found.following:
        return []
    between = source[command.end : starts[at]]
    if _CONTINUED.search(between) and not between.strip(" \t\r\n\\") and _NEXT_FLAG.match(source, starts[at]):
        start, _ = found.script.to_root(starts[at], found.comments[at].end)
        return [Finding.of("JSD202", line=text.count("\n", 0, start) + 1)]
    return []


def command_findings(found: Found, args: Sequence[Arg], text: str) -> tuple[Finding, ...]:
    """Return what is worth saying about one command."""
    line = text.count("\n", 0, found.outer[0]) + 1
    findings = found.outcome.launch.findings(line)
    defaulted = [name for field in found.outcome.args for name in field.names("defaulted")]
    if defaulted:
        findings.append(Finding.of("JSD207", line=line, names=list(dict.fromkeys(defaulted))))
    findings += _comments(found, text)
    obstacle = blocked(found, text)
    findings += [obstacle] if obstacle else []
    findings += _lost_quotes(args, text)
    findings += _glued(args, text)
    findings += _invisible(args, text)
    smart = [arg for arg in args if arg.value is not None and _is_smart_quoted(arg.value)]
    if smart:
        findings.append(
            Finding.of("JSD206", line=text.count("\n", 0, smart[0].start) + 1, words=[arg.raw for arg in smart])
        )
    return tuple(findings)


def _glued(args: Sequence[Arg], text: str) -> list[Finding]:
    """A no-break space looks like a blank and parts nothing."""
    glued = [arg for arg in args if arg.value is not None and _GLUE.search(arg.value)]
    if not glued:
        return []
    return [Finding.of("JSD211", line=text.count("\n", 0, glued[0].start) + 1, words=[arg.raw for arg in glued])]


def _invisible(args: Sequence[Arg], text: str) -> list[Finding]:
    """Characters that nobody sees, copied along from a web page."""
    import unicodedata

    found = [(arg, sign) for arg in args if arg.value is not None for sign in _INVISIBLE.findall(arg.value)]
    if not found:
        return []
    names = list(dict.fromkeys(f"U+{ord(sign):04X} {unicodedata.name(sign)}" for _, sign in found))
    words = list(dict.fromkeys(_INVISIBLE.sub("", arg.raw) for arg, _ in found))
    return [Finding.of("JSD213", line=text.count("\n", 0, found[0][0].start) + 1, signs=names, words=words)]


def _is_smart_quoted(value: str) -> bool:
    """Typographic quotes at an edge, or inside what should be JSON, were meant as quotes."""
    found = _SMART.search(value)
    return bool(found) and (bool(_SMART.match(value[:1]) or _SMART.match(value[-1:])) or "{" in value or "=" in value)


def _lost_quotes(args: Sequence[Arg], text: str) -> list[Finding]:
    """JSON whose double quotes the shell took away, or that brace expansion tore apart."""
    groups: dict[tuple[int, int], list[str]] = {}
    for arg in args:
        groups.setdefault((arg.start, arg.end), []).append(arg.value or "")
    findings: list[Finding] = []
    for (start, end), values in groups.items():
        raw = text[start:end]
        torn = len(values) > 1 and "{" in raw and ":" in raw
        body = values[0].partition("=")[2] if values[0].startswith("-") else values[0]
        inner = body.startswith("{") and body.endswith("}") and ":" in body and '"' not in body and '"' in raw
        if torn or inner:
            findings.append(Finding.of("JSD203", line=text.count("\n", 0, start) + 1, raw=raw, values=[*values]))
    return findings


def _comments(found: Found, text: str) -> list[Finding]:
    source, command = found.script.text, found.command
    first = found.previous if source.count("\n", 0, found.previous) == 0 else command.start
    starts = [comment.start for comment in found.comments]
    nearby = found.comments[bisect_left(starts, first) : bisect_right(starts, found.following)]
    near = [comment for comment in nearby if _ALTERNATIVE.match(source, comment.start, comment.end)]
    if not near:
        return []
    lines = [text.count("\n", 0, found.script.to_root(one.start, one.end)[0]) + 1 for one in near[:MAX_LINES]]
    return [Finding.of("JSD201", lines=lines)]


def recipe_findings(commands: Sequence[ServeCommand], text: str) -> tuple[Finding, ...]:
    """Return what is worth saying about a recipe as a whole."""
    findings: list[Finding] = []
    if len(commands) > 1:
        findings.append(Finding.of("JSD200", count=len(commands), lines=[command.line for command in commands]))
    windows = _WINDOWS.search(text)
    if windows:
        findings.append(Finding.of("JSD212", line=text.count("\n", 0, windows.start()) + 1))
    return tuple(findings)
