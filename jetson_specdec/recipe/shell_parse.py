# SPDX-License-Identifier: Apache-2.0
"""Which simple commands a shell text holds: what bash(1) calls SHELL GRAMMAR, down to words and redirections.

What surrounds a command (conditions, loops, functions) is asked of tree-sitter, see `shell_scope`; here a reserved
word such as `if` or `{` is a word like any other.
"""

from __future__ import annotations

import re

from jetson_specdec.recipe.shell_lexer import GAP, Word, WordReader
from jetson_specdec.values import frozen

__all__ = ["Command", "Comment", "Redirect", "read_commands"]


@frozen(kw_only=True)
class Redirect:
    """A redirection.

    Attributes:
        op: the operator, such as `>` or `<<`.
        start, end: where it stands, its target included.
        target: the file, the delimiter of a here-document, or the word of a here-string.
        body: where the lines of a here-document stand.
        quoted: whether its delimiter is quoted, so that nothing in the body is expanded.
    """

    op: str
    start: int
    end: int
    target: Word | None = None
    body: tuple[int, int] | None = None
    quoted: bool = False


@frozen(kw_only=True)
class Command:
    """A simple command: everything up to an operator or the end of the line.

    Attributes:
        words: its words, reserved words and assignments among them.
        redirects: its redirections, in order.
        start, end: from its first to behind its last token.
        before, after: the operator on either side; a newline, or empty at the ends of the text.
    """

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    start: int
    end: int
    before: str = ""
    after: str = ""


@frozen
class Comment:
    """A comment, from its `#` to the end of the line."""

    start: int
    end: int


_OPERATOR = re.compile(r"&&|\|\||\|&|;;&|;;|;&|[;&|()\n]|\r\n")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(<<<|<<-?|<>|<&|&>>|&>|>&|>>|>\||<(?!\()|>(?!\())")
_OPERATOR_START = frozenset("&|;()\n\r")
_REDIRECT_START = frozenset("<>&{0123456789")
_ARITHMETIC = re.compile(r"\(\([^\n\"'`]{0,200}?\)\)")


class _Draft:
    """A command being read, and the here-documents whose bodies are still to come."""

    def __init__(self, before: str) -> None:
        self.before = before
        self.words: list[Word] = []
        self.redirects: list[Redirect] = []
        self.start = self.end = 0

    def add(self, token: Word | Redirect) -> None:
        if not self.words and not self.redirects:
            self.start = token.start
        self.end = token.end
        if isinstance(token, Word):
            self.words.append(token)
        else:
            self.redirects.append(token)

    def done(self, after: str) -> Command:
        return Command(
            words=tuple(self.words),
            redirects=tuple(self.redirects),
            start=self.start,
            end=self.end,
            before=self.before,
            after=after,
        )


def read_commands(text: str, start: int = 0, end: int | None = None) -> tuple[list[Command], list[Comment]]:
    """Part a text into simple commands and comments.

    Raises:
        RecipeSyntaxError: a quote, substitution or array that never ends (JSE203), or nesting too deep (JSE205).
    """
    limit = len(text) if end is None else end
    reader = WordReader(text, limit)
    drafts: list[tuple[_Draft, str]] = []
    comments: list[Comment] = []
    waiting: list[tuple[_Draft, int]] = []
    draft = _Draft("")
    pos = start
    while True:
        pos = GAP.match(text, pos, limit).end()  # type: ignore[union-attr]
        if pos >= limit:
            break
        char = text[pos]
        if char == "#":
            stop = reader.line_end(pos)
            comments.append(Comment(pos, stop))
            pos = stop
            continue
        redirect = _REDIRECT.match(text, pos, limit) if char in _REDIRECT_START else None
        if redirect:
            token, pos = _redirect(reader, redirect)
            draft.add(token)
            if token.op in ("<<", "<<-") and token.target:
                waiting.append((draft, len(draft.redirects) - 1))
            continue
        operator = _OPERATOR.match(text, pos, limit) if char in _OPERATOR_START else None
        if operator:
            arithmetic = _ARITHMETIC.match(text, pos, limit) if text.startswith("((", pos) else None
            pos = arithmetic.end() if arithmetic else operator.end()
            link = "\n" if operator[0] == "\r\n" else operator[0]
            if draft.words or draft.redirects:
                drafts.append((draft, link))
                draft = _Draft(link)
            elif not (link == "\n" and draft.before in ("&&", "||", "|", "|&")):
                draft.before = link
            if link == "\n":
                for owner, index in waiting:
                    pos = _heredoc(text, pos, limit, owner, index)
                waiting.clear()
            continue
        word = reader.word(pos)
        if word:
            draft.add(word)
        pos = word.end if word else pos + 1
    if draft.words or draft.redirects:
        drafts.append((draft, ""))
    return [done.done(after) for done, after in drafts], comments


def _redirect(reader: WordReader, match: re.Match[str]) -> tuple[Redirect, int]:
    pos = GAP.match(reader.text, match.end(), reader.limit).end()  # type: ignore[union-attr]
    target = reader.word(pos)
    end = target.end if target else match.end()
    return Redirect(op=match[1], start=match.start(), end=end, target=target), end


def _heredoc(text: str, pos: int, limit: int, owner: _Draft, index: int) -> int:
    """Read the body of a here-document from `pos` and return where the text goes on."""
    redirect = owner.redirects[index]
    target = redirect.target
    if target is None:
        return pos
    raw = text[target.start : target.end]
    delimiter = "".join(part.text for part in target.parts) if target.literal is not None else raw
    start = pos
    while True:
        newline = text.find("\n", pos, limit)
        stop = limit if newline < 0 else newline
        line = text[pos:stop].removesuffix("\r")
        if (line.lstrip("\t") if redirect.op == "<<-" else line) == delimiter or stop >= limit:
            # an unfinished here-document runs to the end of the text; bash only warns
            body_end = pos if line.lstrip("\t") == delimiter else limit
            owner.redirects[index] = Redirect(
                op=redirect.op,
                start=redirect.start,
                end=redirect.end,
                target=target,
                body=(start, body_end),
                quoted=raw != delimiter or target.parts[0].quote != "bare",
            )
            return stop
        pos = stop + 1
