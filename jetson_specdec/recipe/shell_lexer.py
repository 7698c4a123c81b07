# SPDX-License-Identifier: Apache-2.0
r"""How one word of a shell text is written: what bash(1) calls QUOTING, with the place of every character.

One deviation from bash, on purpose: `\r\n` ends a line like `\n` does (recipes edited on Windows).
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe.shell_ansi import decode_ansi

__all__ = ["GAP", "Part", "Quote", "Word", "WordReader", "read_double", "read_words"]

Quote = Literal["bare", "single", "double", "ansi"]
PartKind = Literal["text", "param", "command", "array", "tilde"]

MAX_DEPTH = 40


class Part(NamedTuple):
    """A piece of a word (a tuple, because a large text has hundreds of thousands of them).

    Attributes:
        kind: `text` stands for itself; `param` is `$x` or `${…}`; `command` a substitution; `array` is `(…)` behind an
            assignment; `tilde` a home directory.
        start, end: where it stands.
        text: the characters it stands for (`text`), or the source between the delimiters (`command`).
        plain: character i of `text` stands at `start + i`; otherwise the whole part was written for all of `text`.
        quote, seg: in which quoting it stands, and where that stretch of quoting begins.
        name, subscript, op, operand: of a `param`.
        elements: the words of an `array`.
    """

    kind: PartKind
    start: int
    end: int
    text: str = ""
    plain: bool = True
    quote: Quote = "bare"
    seg: int = 0
    name: str = ""
    subscript: str = ""
    op: str = ""
    operand: tuple[int, int] = (0, 0)
    elements: tuple[Any, ...] = ()


class Word(NamedTuple):
    """One word as written."""

    start: int
    end: int
    parts: tuple[Part, ...]

    @property
    def literal(self) -> str | None:
        """What it stands for when nothing has to be expanded, else None."""
        if len(self.parts) == 1:
            return self.parts[0].text if self.parts[0].kind == "text" else None
        if any(part.kind != "text" for part in self.parts):
            return None
        return "".join(part.text for part in self.parts)


_SIMPLE = re.compile(r"[A-Za-z0-9_./:=@%+,\-]+(?=[ \t\n;&|)]|\Z)")
_BARE = re.compile(r"[^ \t\r\n\\'\"`$|&;()<>]+")
_BARE_OPERAND = re.compile(r"[^ \t\r\n\\'\"`$]+")
GAP = re.compile(r"(?:[ \t]|\r(?=\n)|\\\r?\n)*")
_EOL = re.compile(r"\r?\n")
_TILDE = re.compile(r"~[\w.+-]*")
_NAME = re.compile(r"[A-Za-z_]\w*|\d+|[@*#?$!-]", re.ASCII)
_SIMPLE_NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_NAME_GOES_ON = re.compile(r"\\\r?\n(\w+)", re.ASCII)
_OP = re.compile(r":[-+=?]|[-+=?]")
_ASSIGN_ARRAY = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=\Z")
_DOUBLE_RUN = re.compile(r"[^\"\\$`]+")


class WordReader:
    """Reads words of one text; `limit` is where the readable range ends.

    Raises:
        RecipeSyntaxError: something that never ends (JSE203), or nesting too deep (JSE205).
    """

    def __init__(self, text: str, limit: int) -> None:
        self.text = text
        self.limit = limit

    def fail(self, what: str, pos: int) -> RecipeSyntaxError:
        """Return the error for something that begins at `pos` and never ends."""
        line = self.text.count("\n", 0, pos) + 1
        return RecipeSyntaxError("JSE203", what=what, line=line)

    def _find(self, needle: str, pos: int, what: str, at: int) -> int:
        found = self.text.find(needle, pos, self.limit)
        if found < 0:
            raise self.fail(what, at)
        return found

    # --- skipping what is not looked into ------------------------------------------------------------------------

    def skip_double(self, pos: int, depth: int) -> int:
        """Return the end of the double-quoted text whose first character is at `pos`."""
        text, start = self.text, pos - 1
        while pos < self.limit:
            char = text[pos]
            if char == '"':
                return pos + 1
            if char == "\\":
                pos += 2
            elif char == "$" and text[pos + 1 : pos + 2] in ("(", "{"):
                pos = self.skip_dollar(pos, depth + 1)
            elif char == "`":
                pos = self.skip_backtick(pos)
            else:
                pos += 1
        raise self.fail('"', start)

    def skip_backtick(self, pos: int) -> int:
        """Return the end of the `` `…` `` that starts at `pos`."""
        start, pos = pos, pos + 1
        while pos < self.limit:
            if self.text[pos] == "`":
                return pos + 1
            pos += 2 if self.text[pos] == "\\" else 1
        raise self.fail("`", start)

    def skip_dollar(self, pos: int, depth: int) -> int:
        """Return the end of the `$(…)`, `$((…))` or `${…}` that starts at `pos`."""
        if depth > MAX_DEPTH:
            raise RecipeSyntaxError("JSE205", line=self.text.count("\n", 0, pos) + 1)
        if self.text.startswith("${", pos):
            return self.skip_to("}", pos + 2, pos, depth)
        return self.skip_to(")", pos + 2, pos, depth)

    def skip_to(self, closer: str, pos: int, start: int, depth: int, *, double: bool = False) -> int:
        """Return the position behind the `closer` that ends what began at `start`."""
        text, nested = self.text, 0
        while pos < self.limit:
            char = text[pos]
            if char == "\\":
                pos += 2
            elif char == closer and not nested:
                return pos + 1
            elif char == "'" and not double:
                pos = self._find("'", pos + 1, "'", pos) + 1
            elif char == '"':
                pos = self.skip_double(pos + 1, depth)
            elif char == "`":
                pos = self.skip_backtick(pos)
            elif char == "$" and text[pos + 1 : pos + 2] in ("(", "{"):
                pos = self.skip_dollar(pos, depth + 1)
            elif closer == ")" and char == "#" and text[pos - 1] in " \t\n;(":
                pos = self.line_end(pos)
            else:
                if closer == ")":
                    nested += (char == "(") - (char == ")")
                pos += 1
        raise self.fail(text[start : start + 2], start)

    def line_end(self, pos: int) -> int:
        """Return where the line ends, its line break not included."""
        found = self.text.find("\n", pos, self.limit)
        if found < 0:
            return self.limit
        return found - 1 if found > pos and self.text[found - 1] == "\r" else found

    # --- words ---------------------------------------------------------------------------------------------------

    def word(self, pos: int, *, operand: bool = False) -> Word | None:
        """Read the word at `pos`; None when none starts there. In an `operand` only blanks end a word."""
        text, limit, start = self.text, self.limit, pos
        if not operand:
            simple = _SIMPLE.match(text, pos, limit)
            if simple:
                return Word(pos, simple.end(), (Part("text", pos, simple.end(), simple[0], True, "bare", pos),))
        bare = _BARE_OPERAND if operand else _BARE
        parts: list[Part] = []
        seg = pos
        while pos < limit:
            char = text[pos]
            match = bare.match(text, pos, limit)
            if match:
                if pos == start and char == "~":
                    end = pos + len(_TILDE.match(text, pos, limit)[0])  # type: ignore[index]
                    if end == limit or text[end] in "/ \t\r\n:;|&)=\\":
                        parts.append(Part(kind="tilde", start=pos, end=end, text=text[pos:end], seg=seg))
                        pos = end
                        continue
                parts.append(Part(kind="text", start=pos, end=match.end(), text=match[0], seg=seg))
                pos = match.end()
            elif char == "\\":
                newline = _EOL.match(text, pos + 1, limit)
                if newline:
                    pos = newline.end()
                    if operand:
                        break
                    continue
                end = min(pos + 2, limit)
                escaped = text[pos + 1 : end] or "\\"
                parts.append(Part(kind="text", start=pos, end=end, text=escaped, plain=False, seg=seg))
                pos = end
            elif char == "'":
                end = self._find("'", pos + 1, "'", pos)
                parts.append(
                    Part(kind="text", start=pos + 1, end=end, text=text[pos + 1 : end], quote="single", seg=pos)
                )
                pos = seg = end + 1
            elif char == '"':
                pos = seg = self.double(pos + 1, parts, seg=pos)
            elif char == "$" and text[pos + 1 : pos + 2] == "'":
                pos = seg = self.ansi(pos, parts)
            elif char == "$" and text[pos + 1 : pos + 2] == '"':
                pos = seg = self.double(pos + 2, parts, seg=pos + 1)
            elif char == "$":
                pos = self.dollar(pos, parts, "bare", seg)
            elif char == "`":
                end = self.skip_backtick(pos)
                parts.append(Part(kind="command", start=pos, end=end, text=text[pos + 1 : end - 1], seg=seg))
                pos = end
            elif char in "<>" and text[pos + 1 : pos + 2] == "(":
                end = self.skip_to(")", pos + 2, pos, 0)
                parts.append(Part(kind="command", start=pos, end=end, text=text[pos + 2 : end - 1], seg=seg))
                pos = end
            elif char == "(" and pos > start and _ASSIGN_ARRAY.match(text[start:pos]):
                pos = self.array(pos, parts)
            elif char == "\r" and text[pos + 1 : pos + 2] != "\n":
                parts.append(Part(kind="text", start=pos, end=pos + 1, text=char, seg=seg))
                pos += 1
            else:
                break
        return Word(start, pos, tuple(parts)) if pos > start and parts else None

    def double(self, pos: int, parts: list[Part], *, seg: int, closer: str = '"', heredoc: bool = False) -> int:
        """Read double-quoted text from `pos` and return the position behind it; in a `heredoc` quotes are no quotes."""
        text, limit, first = self.text, self.limit, pos
        run = _DOUBLE_RUN
        while pos < limit:
            char = text[pos]
            match = run.match(text, pos, limit)
            if match:
                parts.append(Part(kind="text", start=pos, end=match.end(), text=match[0], quote="double", seg=seg))
                pos = match.end()
            elif char == closer:
                if pos == first:
                    parts.append(Part(kind="text", start=pos, end=pos, quote="double", seg=seg))
                return pos + 1
            elif char == "\\":
                newline = _EOL.match(text, pos + 1, limit)
                if newline:
                    pos = newline.end()
                    continue
                escapable = text[pos + 1 : pos + 2] in (("$", "`", "\\") if heredoc else ("$", "`", '"', "\\"))
                shown = text[pos + 1] if escapable else "\\"
                end = pos + 2 if escapable else pos + 1
                parts.append(Part(kind="text", start=pos, end=end, text=shown, plain=False, quote="double", seg=seg))
                pos = end
            elif char == "$":
                pos = self.dollar(pos, parts, "double", seg)
            elif char == "`":
                end = self.skip_backtick(pos)
                parts.append(
                    Part(kind="command", start=pos, end=end, text=text[pos + 1 : end - 1], quote="double", seg=seg)
                )
                pos = end
            else:
                parts.append(Part(kind="text", start=pos, end=pos + 1, text=char, quote="double", seg=seg))
                pos += 1
        if closer:
            raise self.fail('"', seg)
        return pos

    def ansi(self, pos: int, parts: list[Part]) -> int:
        """Read `$'…'` from `pos` and return the position behind it."""
        seg, pos = pos, pos + 2
        first = pos
        while pos < self.limit:
            if self.text[pos] == "'":
                if pos == first:
                    parts.append(Part(kind="text", start=pos, end=pos, quote="ansi", seg=seg))
                return pos + 1
            shown, end = decode_ansi(self.text, pos, self.limit)
            parts.append(Part(kind="text", start=pos, end=end, text=shown, plain=False, quote="ansi", seg=seg))
            pos = end
        raise self.fail("$'", seg)

    def dollar(self, pos: int, parts: list[Part], quote: Quote, seg: int) -> int:
        """Read what a `$` begins and return the position behind it."""
        text, limit = self.text, self.limit
        after = text[pos + 1 : pos + 2] if pos + 1 < limit else ""
        if after == "(":
            end = self.skip_dollar(pos, 0)
            inner = text[pos + 2 : end - 1]
            parts.append(Part(kind="command", start=pos, end=end, text=inner, quote=quote, seg=seg))
            return end
        if after == "{":
            end = self.skip_to("}", pos + 2, pos, 0, double=quote == "double")
            parts.append(self._braced(pos, end, quote, seg))
            return end
        name = _SIMPLE_NAME.match(text, pos + 1, limit)
        if name:
            full, end = name[0], name.end()
            while full[0].isidentifier() and (more := _NAME_GOES_ON.match(text, end, limit)):
                full, end = full + more[1], more.end()
            parts.append(Part(kind="param", start=pos, end=end, quote=quote, seg=seg, name=full))
            return end
        parts.append(Part(kind="text", start=pos, end=pos + 1, text="$", quote=quote, seg=seg))
        return pos + 1

    def _braced(self, pos: int, end: int, quote: Quote, seg: int) -> Part:
        text, last = self.text, end - 1
        name = _NAME.match(text, pos + 2, last)
        op, subscript, operand = "?", "", (last, last)
        if name:
            at = name.end()
            close = text.find("]", at, last) if text.startswith("[", at) else -1
            if close >= 0:
                subscript, at = text[at + 1 : close], close + 1
            found = _OP.match(text, at, last)
            if at == last:
                op = ""
            elif found:
                op, operand = found[0], (found.end(), last)
            else:
                op = "other"
        return Part(
            kind="param",
            start=pos,
            end=end,
            quote=quote,
            seg=seg,
            name=name[0] if name else text[pos + 2 : last],
            subscript=subscript,
            op=op if name else "other",
            operand=operand,
        )

    def array(self, pos: int, parts: list[Part]) -> int:
        """Read `(…)` behind an assignment and return the position behind it."""
        start, pos = pos, pos + 1
        elements: list[Word] = []
        while pos < self.limit:
            pos = GAP.match(self.text, pos, self.limit).end()  # type: ignore[union-attr]
            if pos >= self.limit:
                break
            char = self.text[pos]
            if char == ")":
                parts.append(Part(kind="array", start=start, end=pos + 1, seg=start, elements=tuple(elements)))
                return pos + 1
            if char == "#":
                pos = self.line_end(pos)
                continue
            word = self.word(pos)
            if word:
                elements.append(word)
            pos = word.end if word else pos + 1
        raise self.fail("(", start)


def read_words(text: str, start: int, end: int) -> tuple[Word, ...]:
    """Read the operand of a `${x:-…}` as words: only unquoted blanks part them."""
    reader, words, pos = WordReader(text, end), [], start
    while pos < end:
        word = reader.word(pos, operand=True)
        if word:
            words.append(word)
        pos = word.end if word else pos + 1
    return tuple(words)


def read_double(text: str, start: int, end: int, seg: int, *, heredoc: bool = False) -> tuple[Part, ...]:
    """Read text in which only `$`, `` ` `` and the backslash are special, such as an unquoted here-document."""
    parts: list[Part] = []
    WordReader(text, end).double(start, parts, seg=seg, closer="", heredoc=heredoc)
    return tuple(parts)
