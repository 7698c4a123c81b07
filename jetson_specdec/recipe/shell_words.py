# SPDX-License-Identifier: Apache-2.0
"""What a word becomes: brace, parameter and array expansion and word splitting, as far as the recipe itself decides it.

Nothing is taken from the environment of this process, and no command is run: what only they could tell is unresolved.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from jetson_specdec.recipe.shell_assign import MAX_WORDS, Binding, Variables
from jetson_specdec.recipe.shell_braces import expand_braces
from jetson_specdec.recipe.shell_fields import Piece, assemble
from jetson_specdec.recipe.shell_lexer import MAX_DEPTH, Part, Word, read_double, read_words
from jetson_specdec.recipe.shell_script import Field, Run, Script

__all__ = ["MAX_TEXT", "Expander"]

_BLANKS = re.compile(r"[ \t\n]+")
_QUOTING = re.compile(r"[\\'\"]")
_QUOTES = re.compile('"')
_OPENS_QUOTES = re.compile(r'(?<!\\)"')
MAX_TEXT = 2**16
"""No value that matters to a launch command is longer."""
_PLAIN = re.compile(r"[\w./:=@%+,\-]+\Z")


class Expander:
    """Expands words of one script.

    Args:
        script: whose text the words stand in.
        scope: its variables.
    """

    def __init__(self, script: Script, scope: Variables) -> None:
        self._script = script
        self._scope = scope
        self._active: list[str] = []
        self._ahead = False
        self._known: dict[tuple[object, ...], list[Run]] = {}
        self._arrays: dict[tuple[object, ...], list[tuple[Field, bool]] | None] = {}
        self._unsplit: set[int] = set()

    def fields(self, words: Sequence[Word]) -> list[Field]:
        """Return the arguments that words become."""
        return [field for word in words for field in self.word(word)]

    def word(self, word: Word) -> list[Field]:
        """Return the arguments that one word becomes."""
        variants = expand_braces(word.parts)
        made = [
            field
            for parts in variants
            for field in assemble([piece for part in parts for piece in self._part(part)], word)
        ]
        if len(variants) > 1:
            return [Field(runs=one.runs, start=word.start, end=word.end, word=one.word, shared=True) for one in made]
        return made

    def scalar(self, word: Word) -> list[Run]:
        """Return what a word becomes where it is neither split nor brace-expanded, such as an assigned value."""
        self._unsplit.update(part.start for part in word.parts if part.kind == "param" and part.quote == "bare")
        return self.runs([part._replace(quote="double") if part.kind != "text" else part for part in word.parts])

    def runs(self, parts: Sequence[Part]) -> list[Run]:
        """Return what quoted text becomes, such as the body of a here-document."""
        return [piece for part in parts for piece in self._part(part) if piece is not None]

    # --- parts ---------------------------------------------------------------------------------------------------

    def _part(self, part: Part) -> Iterator[Piece]:
        if part.kind == "text":
            yield from self._text(part)
        elif part.kind == "tilde":
            yield self._unknown(part, ("HOME",), splices=False)
        elif part.kind == "param":
            yield from self._param(part)
        else:
            yield self._unknown(part, (part.text.strip(),))

    def _text(self, part: Part) -> Iterator[Run]:
        quoted = part.quote != "bare" or not part.plain
        run = Run(part.text, part.start, part.end, part.plain, part.quote, part.seg, quoted)
        holes = [at for at in range(part.start, part.end) if at in self._script.holes] if self._script.holes else []
        if not holes or not part.plain:
            yield run
            return
        at = part.start
        for hole in holes:
            if hole > at:
                yield run._replace(text=part.text[at - part.start : hole - part.start], start=at, end=hole)
            missing = self._script.holes[hole]
            yield Run(
                None,
                hole,
                hole + 1,
                False,
                part.quote,
                part.seg,
                quoted,
                unresolved=missing.unresolved,
                splices=not quoted,
            )
            at = hole + 1
        if at < part.end:
            yield run._replace(text=part.text[at - part.start :], start=at)

    def _unknown(self, part: Part, names: tuple[str, ...], *, splices: bool | None = None) -> Run:
        quoted = part.quote != "bare"
        return Run(
            None,
            part.start,
            part.end,
            False,
            part.quote,
            part.seg,
            quoted,
            unresolved=names,
            splices=not quoted if splices is None else splices,
        )

    def _param(self, part: Part) -> Iterator[Piece]:
        if part.name in ("@", "*"):
            yield self._unknown(part, (part.name,), splices=True)
            return
        if part.subscript in ("@", "*"):
            yield from self._array(part)
            return
        if part.subscript or part.op == "other":
            yield self._unknown(part, (part.name,))
            return
        binding = self._lookup(part)
        if part.op in (":+", "+"):
            yield from self._alternative(part, binding)
            return
        value = self._value(part, binding)
        given = self._scope.defaults.get(part.name)
        if given is not None and given.end <= part.start and _lacking(given, binding, value):
            # `: ${X:=value}` came first; a default of its own does not count then
            yield from self._given(part, given)
            return
        if part.op in (":-", "-", ":=", "="):
            if value is None and binding.kind == "unset":
                yield from self._operand(part, defaulted=(part.name,))
                return
            if value is not None and part.op[0] == ":" and not any(run.text is None or run.text for run in value):
                yield from self._operand(part, resolved=(part.name,))
                return
        if value is None:
            yield self._unknown(part, (part.name,))
        else:
            yield from self._spread(part, value)

    def _lookup(self, part: Part) -> Binding:
        if part.name in self._active and not self._scope.from_file(part.name):
            self._ahead = True
            return Binding("unset")
        if len(self._active) >= MAX_DEPTH:
            self._ahead = True
            return Binding("unknown")
        binding = self._scope.lookup(part.name, part.start)
        inherited = self._scope.environment.get(part.name, "") is None
        return Binding("unknown") if binding.kind == "unset" and inherited else binding

    def _value(self, part: Part, binding: Binding) -> list[Run] | None:
        """Return the characters of a scalar, or None where they are not known."""
        if binding.kind == "value":
            return self._elsewhere(part, binding.text, resolved=(part.name,), defaulted=binding.defaulted)
        if binding.kind == "word" and binding.word is not None:
            runs = self._runs_of(part.name, binding, binding.word)
            if any(run.text is None for run in runs) or not _whole_words(runs, part):
                return None
            resolved = tuple(dict.fromkeys((part.name, *(name for run in runs for name in run.resolved))))
            defaulted = tuple(dict.fromkeys(name for run in runs for name in run.defaulted))
            text = "".join(run.text or "" for run in runs)
            if _PLAIN.match(text) and not binding.perhaps:
                run = Run(text, part.start, part.end, False, part.quote, part.seg, part.quote != "bare")
                return [run._replace(resolved=resolved, defaulted=defaulted)]
            return [run._replace(resolved=resolved, defaulted=defaulted) for run in runs]
        if binding.kind == "unset":
            known = self._scope.environment.get(part.name)
            if known is not None:
                run = Run(known, part.start, part.end, False, "elsewhere", part.seg, part.quote != "bare")
                return [run._replace(resolved=(part.name,))]
        return None

    def _runs_of(self, name: str, binding: Binding, word: Word) -> list[Run]:
        """Return what a variable was assigned; a long chain of variables is followed once, and not without end."""
        key = (name, word.start, len(word.parts), binding.perhaps)
        if key in self._known:
            return self._known[key]
        ahead, self._ahead = self._ahead, False
        self._active.append(name)
        try:
            runs = self._assigned(binding)
        finally:
            self._active.pop()
        if sum(len(run.text or "") for run in runs) > MAX_TEXT or len(runs) > MAX_TEXT:
            runs = [Run(None, word.start, word.end, False, "elsewhere", word.start, True, unresolved=(name,))]
        if not self._ahead:  # what is found while another one is being followed may be less than there is
            self._known[key] = runs
        self._ahead = ahead or self._ahead
        return runs

    def _assigned(self, binding: Binding) -> list[Run]:
        """Return what a scalar was assigned, piece by piece; what only some runs add is optional."""
        assert binding.word is not None
        if not binding.perhaps:
            return self.scalar(binding.word)
        return [
            run._replace(optional=run.optional or at in binding.perhaps)
            for at, part in enumerate(binding.word.parts)
            for run in self.scalar(binding.word._replace(parts=(part,)))
        ]

    def _spread(self, part: Part, value: Sequence[Run]) -> Iterator[Piece]:
        """Split a value where it is not quoted."""
        if part.quote != "bare":
            yield from (run._replace(quoted=True) for run in value)
            return
        for run in value:
            text, at = run.text or "", 0
            for blank in (*_BLANKS.finditer(text), None):
                end = blank.start() if blank else len(text)
                if end > at:
                    start, stop = (run.start + at, run.start + end) if run.plain else (run.start, run.end)
                    place = (start, stop) if run.context != "elsewhere" else None
                    yield run._replace(
                        text=text[at:end], start=start, end=stop, quoted=False, site=place, came="variable"
                    )
                if blank:
                    yield None
                    at = blank.end()

    def _operand(
        self,
        part: Part,
        *,
        defaulted: tuple[str, ...] = (),
        resolved: tuple[str, ...] = (),
        optional: bool = False,
    ) -> Iterator[Piece]:
        def marked(run: Run) -> Run:
            # in a text inside this one it is a unit: nothing may be written into the braces
            return run._replace(
                start=part.start,
                end=part.end,
                plain=False,
                context=part.quote,
                seg=part.seg,
                defaulted=(*defaulted, *run.defaulted),
                resolved=(*resolved, *run.resolved),
                optional=optional or run.optional,
            )

        text, (start, end) = self._script.text, part.operand
        if part.quote != "bare":
            yield from (marked(run) for run in self._whole(part))
            return
        at_blank = start
        for word in read_words(text, start, end):
            if word.start > at_blank:
                yield None
            at_blank = word.end
            for at, field in enumerate(self.word(word)):
                if at:
                    yield None
                site = (field.start, field.end)
                yield from (marked(run)._replace(site=site, came="operand") for run in field.runs)
        if at_blank < end:
            yield None

    def _given(self, part: Part, given: Part) -> Iterator[Piece]:
        """Use what `: ${X:=value}` gave to a variable that had no value."""
        runs = self.scalar(Word(given.start, given.end, (given,)))
        if any(run.text is None for run in runs):
            yield self._unknown(part, (part.name,))
            return
        defaulted = tuple(dict.fromkeys((part.name, *(name for run in runs for name in run.defaulted))))
        text = "".join(run.text or "" for run in runs)
        yield from self._spread(part, self._elsewhere(part, text, defaulted=defaulted))

    def _elsewhere(
        self, part: Part, text: str, *, resolved: tuple[str, ...] = (), defaulted: tuple[str, ...] = ()
    ) -> list[Run]:
        """Return a value that is not written in this text; what is no plain word cannot be written where it is used."""
        context = part.quote if _PLAIN.match(text) else "elsewhere"
        run = Run(text, part.start, part.end, False, context, part.seg, part.quote != "bare")
        return [run._replace(resolved=resolved, defaulted=defaulted)]

    def _whole(self, part: Part) -> list[Run]:
        """Return what an operand becomes where it is not split: between quotes, or in an assigned value."""
        text, (start, end) = self._script.text, part.operand
        if part.start in self._unsplit and _QUOTING.search(text, start, end):
            words = read_words(text, start, end)
            if len(words) != 1 or (words[0].start, words[0].end) != (start, end):
                return [self._unknown(part, (part.name,))]
            return self.scalar(words[0])
        within = text.startswith('"', part.seg)
        if (_OPENS_QUOTES if within else _QUOTES).search(text, start, end):
            return [self._unknown(part, (part.name,))]  # quotes in quotes
        return self.runs(read_double(text, start, end, part.seg))

    def _alternative(self, part: Part, binding: Binding) -> Iterator[Piece]:
        if binding.kind == "array":
            yield from self._operand(part, optional=True)
            return
        value = self._value(part, binding) if binding.kind != "unset" else None
        if value is None:
            # certain only when the recipe itself sets it, even to something that cannot be known
            yield from self._operand(part, optional=True)
        elif part.op == "+" or any(run.text for run in value):
            yield from self._operand(part, resolved=(part.name,))

    def _elements(self, name: str, binding: Binding) -> list[tuple[Field, bool]] | None:
        """Return what the elements of an array become, and whether they are there in any case; None for too many."""
        key = (name, *((word.start, certain) for word, certain in binding.elements))
        if key in self._arrays:
            return self._arrays[key]
        ahead, self._ahead = self._ahead, False
        made: list[tuple[Field, bool]] = []
        self._active.append(name)
        try:
            for word, certain in binding.elements:
                made += [(field, certain) for field in self.word(word)] if len(made) <= MAX_WORDS else []
        finally:
            self._active.pop()
        found = made if len(made) <= MAX_WORDS else None
        if not self._ahead:
            self._arrays[key] = found
        self._ahead = ahead or self._ahead
        return found

    def _array(self, part: Part) -> Iterator[Piece]:
        binding = self._lookup(part)
        if binding.kind in ("word", "value"):
            value = self._value(part, binding)
            yield from self._spread(part, value) if value is not None else [self._unknown(part, (part.name,))]
            return
        if binding.kind != "array" or part.op not in ("", ":-", "-"):
            yield self._unknown(part, (part.name,), splices=True)
            return
        made = self._elements(part.name, binding)
        joined = part.subscript == "*" and part.quote != "bare"
        bare = part.quote == "bare" and not all(_PLAIN.match(field.value or "") for field, _ in made or ())
        if made is None or bare:
            yield self._unknown(part, (part.name,), splices=True)
            return
        for number, (field, certain) in enumerate(made):
            if number and joined:
                yield Run(" ", part.start, part.end, False, "elsewhere", part.seg, True)
            elif number:
                yield None
            for run in field.runs or (Run("", part.start, part.end, False, "elsewhere", part.seg, True),):
                yield run._replace(
                    start=part.start,
                    end=part.end,
                    plain=False,
                    context=part.quote,
                    seg=part.seg,
                    site=(field.start, field.end),
                    came="array",
                    quoted=True,
                    optional=run.optional or not certain,
                    resolved=(part.name, *run.resolved),
                )


def _lacking(given: Part, binding: Binding, value: Sequence[Run] | None) -> bool:
    """Whether a variable had no value where `: ${X:=value}` stands."""
    if binding.kind == "word" and binding.word is not None and value is not None:
        empty = all(run.text == "" for run in value)
        return given.op == ":=" and empty and binding.word.start < given.start
    return binding.kind == "unset" and value is None


def _whole_words(runs: Sequence[Run], part: Part) -> bool:
    """Whether what only some runs of a script add is whole words, so that the others are certain."""
    if not any(run.optional for run in runs):
        return True
    texts = [(run.text or "", run.optional) for run in runs if run.text]
    return part.quote == "bare" and all(
        left[1] == right[1] or left[0][-1].isspace() or right[0][0].isspace()
        for left, right in itertools.pairwise(texts)
    )
