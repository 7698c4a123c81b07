# SPDX-License-Identifier: Apache-2.0
"""What a word of a serve command means to vLLM's argument parser.

The table was read from the parsers of the releases themselves. The rules are those of `argparse` and of vLLM's wrapper
around it: underscores count as dashes up to the first dot, `--flag.key` sets one key of a JSON flag, a unique beginning
of a long flag is the flag, `-O3` is `--optimization-level 3`.

What the parser does with several words (not this module's question, but its reader's): the last of two equal flags
wins; the dotted form of a flag replaces its JSON form entirely; `--served-model-name a b MODEL` takes MODEL too;
`--config=FILE` is accepted and ignored, only `--config FILE` is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import attrs
from attrs import field

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.release import possible_versions
from jetson_specdec.values import frozen

__all__ = ["Arity", "Flag", "FlagMatch", "FlagTable", "MatchKind", "flag_table"]

Arity = Literal["none", "one", "many", "optional"]
MatchKind = Literal[
    "exact", "alias", "prefix", "ambiguous", "unknown", "retired", "typography", "positional", "separator"
]

_DASHES = "‐‑‒–—―−﹘﹣－"
"""Characters that word processors and web pages put where `-` was typed."""


@frozen(kw_only=True)
class Flag:
    """One flag in the releases that were read.

    Attributes:
        name: canonical spelling, `--gpu-memory-utilization`.
        aliases: other option strings for the same.
        negations: option strings that switch it off (`--no-…`; since 0.33 also `--disable-…` for `--enable-…`).
        arity: words it takes: `none`, `one`, `many` (one or more, greedily), `optional` (none or one).
        json: whether its value may be a JSON object, so that `--flag.key value` works.
        first: oldest listed release that has it.
        last: newest listed release that has it; None while the newest one does.
        replacement: what took its place where it is gone, and is still known for.
        spans: option string → (first, last) listed release, for those that differ from the flag's own.
        earlier_arity: (first release with the new arity, the arity before), or None.
    """

    name: str
    aliases: tuple[str, ...] = ()
    negations: tuple[str, ...] = ()
    arity: Arity = "one"
    json: bool = False
    first: str = tables.OLDEST_KNOWN
    last: str | None = None
    replacement: str | None = None
    spans: Mapping[str, tuple[str, str | None]] = field(factory=dict)
    earlier_arity: tuple[str, Arity] | None = None

    @property
    def boolean(self) -> bool:
        """Whether it can be switched off."""
        return bool(self.negations)

    @property
    def options(self) -> tuple[str, ...]:
        """Every option string."""
        return (self.name, *self.aliases, *self.negations)

    def span(self, option: str) -> tuple[str, str | None]:
        """Return the first and last listed release of one of its option strings."""
        return self.spans.get(option, (self.first, self.last))

    def arity_in(self, row: str) -> Arity:
        """Return the words it takes in one listed release."""
        if self.earlier_arity and tables.release_key(row) < tables.release_key(self.earlier_arity[0]):
            return self.earlier_arity[1]
        return self.arity


@frozen(kw_only=True)
class FlagMatch:
    """What one word is.

    Attributes:
        word: the word as given.
        kind: `exact`, `alias`, `prefix` (a unique beginning), `ambiguous` (the beginning of several), `retired` (no
            possible release has it any more), `typography` (a dash that is none), `positional` (no flag), `separator`
            (`--` alone) or `unknown`.
        name: the flag's canonical spelling, also when retired or negated; None where it is not one flag.
        option: the option string it stands for (the alias, the `--no-…` form, the whole of a beginning), or None.
        value: the text after `=`, or None.
        key: the path behind the first dot (`num_speculative_tokens`), or None.
        negated: written as `--no-…`.
        arity: what the flag takes, None where the word is no known flag.
        boolean, json: as in `Flag`.
        accepted: whether the release accepts it: True or False for every possible release, None where it depends.
        since: first listed release that knows this spelling.
        candidates: the flags an ambiguous word could be.
        suggestion: the word corrected, value included, or None.
        replacement: what to write instead of a retired flag, or None.
        gone_since: first listed release without a retired flag.
    """

    word: str
    kind: MatchKind
    name: str | None = None
    option: str | None = None
    value: str | None = None
    key: str | None = None
    negated: bool = False
    arity: Arity | None = None
    boolean: bool = False
    json: bool = False
    accepted: bool | None = None
    since: str | None = None
    candidates: tuple[str, ...] = ()
    suggestion: str | None = None
    replacement: str | None = None
    gone_since: str | None = None

    @property
    def known(self) -> bool:
        """Whether the word is one flag of some release."""
        return self.name is not None

    @property
    def takes_value(self) -> bool:
        """Whether the next word must be its value: it takes one and none was written behind `=`."""
        if not self.known or self.value is not None:
            return False
        return self.key is not None or self.arity in ("one", "many")


@lru_cache(maxsize=1)
def flag_table() -> FlagTable:
    """Return the table of all known flags."""
    return FlagTable()


class FlagTable:
    """Every flag of `vllm serve` in the releases that were read."""

    def __init__(self) -> None:
        self._flags = {name: _flag(name, entry) for name, entry in tables.load("flags")["flags"].items()}
        self._owners: dict[str, list[Flag]] = {}
        for flag in self._flags.values():
            for option in flag.options:
                self._owners.setdefault(option, []).append(flag)
        self._rows: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._flags)

    @property
    def names(self) -> tuple[str, ...]:
        """The canonical names."""
        return tuple(self._flags)

    def flag(self, name: str) -> Flag | None:
        """Return a flag by any of its option strings, underscores allowed; None where there is none."""
        name = _dashed(name)
        owners = self._owners.get(name)
        return self._flags.get(name) or (owners[-1] if owners else None)

    def options(self, row: str) -> tuple[str, ...]:
        """Return the option strings of a listed release."""
        if row not in self._rows:
            self._rows[row] = tuple(option for option in self._owners if self._has(option, row))
        return self._rows[row]

    def _has(self, option: str, row: str) -> bool:
        return any(tables.in_ranges(row, (flag.span(option),)) for flag in self._owners.get(option, ()))

    def _owner(self, option: str, rows: tuple[str, ...]) -> Flag:
        """Return whose option string this is in these releases; an option string can pass from one flag to another."""
        owners = sorted(self._owners[option], key=lambda flag: tables.release_key(flag.span(option)[0]))
        for row in reversed(rows):
            for flag in owners:
                if tables.in_ranges(row, [flag.span(option)]):
                    return flag
        older = [f for f in owners if tables.release_key(f.span(option)[0]) <= tables.release_key(rows[-1])]
        return older[-1] if older else owners[0]

    def accepts(self, name: str, release: EngineRelease) -> bool | None:
        """Say whether a release has an option string; None where it depends on which release it is."""
        return self._accepted(_dashed(name), _all_rows(release))

    def first_release(self, word: str) -> str | None:
        """Return the first listed release that knows the spelling of a word, or None for a word that is no flag."""
        return self.resolve(word).since

    def resolve(self, word: str, release: EngineRelease | None = None) -> FlagMatch:
        """Say what a word is; never fails.

        Args:
            word: one argument as the engine receives it.
            release: which release reads it; None or an unknown one counts as the newest known.
        """
        if word == "--":
            return FlagMatch(word=word, kind="separator")
        if not word or word == "-" or _is_number(word):
            return FlagMatch(word=word, kind="positional")
        rows = _rows(release or EngineRelease())
        if word[0] in _DASHES or (word[0] == "-" and word[1] in _DASHES):
            return self._typography(word, rows)
        if word[0] != "-":
            return FlagMatch(word=word, kind="positional")
        head, key, value = _split(word)
        match = self._match(word, head, rows)
        if match is None:
            if " " in word and "=" not in word:
                return FlagMatch(word=word, kind="positional")
            return self._unknown(word, head, rows)
        if match.name is None:
            return attrs.evolve(match, value=value, key=key)
        accepted = self._accepted(match.option or head, _all_rows(release))
        return attrs.evolve(match, value=match.value if value is None else value, key=key, accepted=accepted)

    # ------------------------------------------------------------------------------------------------ one option string

    def _accepted(self, option: str, rows: tuple[str, ...]) -> bool | None:
        if any(row not in tables.table()["releases"] for row in rows):
            return None  # older than anything that was read
        answers = {self._has(option, row) for row in rows}
        return answers.pop() if len(answers) == 1 else None

    def _match(self, word: str, head: str, rows: tuple[str, ...]) -> FlagMatch | None:
        """Match an option string as argparse would: whole, then as a beginning, then in other releases."""
        if any(self._has(head, row) for row in rows):
            return self._whole(word, head, rows)
        if head.startswith("-O") and head[2:].isalnum():
            option = "--optimization-level" if self._has("--optimization-level", rows[-1]) else "-O"
            return attrs.evolve(self._whole(word, option, rows), kind="alias", value=head[2:])
        for row in reversed(rows):
            found = self._beginnings(head, self.options(row))
            if len(found) > 1:
                names = tuple(dict.fromkeys(self._owner(option, rows).name for option, _ in found))
                return FlagMatch(word=word, kind="ambiguous", candidates=names)
            if found:
                option, inline = found[0]
                match = self._whole(word, option, rows)
                return attrs.evolve(match, kind="alias" if inline else "prefix", value=inline)
        if head in self._owners:
            return self._whole(word, head, rows)
        # An abbreviation of a flag that is gone: `--max-seq-len` was one of `--max-seq-len-to-capture`.
        found = self._beginnings(head, tuple(self._owners)) if len(head) > len("--") + 3 else []
        gone = [option for option, _ in found if self._gone(option, rows)]
        return self._whole(word, gone[0], rows) if len(gone) == 1 else None

    @staticmethod
    def _beginnings(head: str, options: tuple[str, ...]) -> list[tuple[str, str | None]]:
        """Return the option strings a word can abbreviate, each with the value glued to a short one (`-qawq`)."""
        if head.startswith("--"):
            return [(option, None) for option in options if option.startswith(head)]
        return [
            (option, head[2:] or None if option == head[:2] else None)
            for option in options
            if not option.startswith("--") and (option == head[:2] or option.startswith(head))
        ]

    def _gone(self, option: str, rows: tuple[str, ...]) -> bool:
        last = self._owner(option, rows).span(option)[1]
        return last is not None and tables.release_key(last) < tables.release_key(rows[0])

    def _whole(self, word: str, option: str, rows: tuple[str, ...]) -> FlagMatch:
        flag = self._owner(option, rows)
        since, last = flag.span(option)
        negated = option in flag.negations
        listed = tables.table()["releases"]
        gone = self._gone(option, rows)
        return FlagMatch(
            word=word,
            kind="retired" if gone else "alias" if option in flag.aliases else "exact",
            name=flag.name,
            option=option,
            negated=negated,
            arity="none" if negated else flag.arity_in(rows[-1]),
            boolean=flag.boolean,
            json=flag.json,
            since=since if since in listed else None,
            replacement=flag.replacement if gone else None,
            gone_since=next(
                (row for row in listed if last and tables.release_key(row) > tables.release_key(last)), None
            ),
        )

    # ------------------------------------------------------------------------------------------------- words gone wrong

    def _typography(self, word: str, rows: tuple[str, ...]) -> FlagMatch:
        """A word whose first dash is a typographic one: say which flag was meant."""
        rest = word.lstrip("-" + _DASHES)
        if not rest:
            return FlagMatch(word=word, kind="positional")
        for dashes in ("--", "-"):
            plain = dashes + _plain(rest)
            match = self._match(plain, _split(plain)[0], rows)
            if match is not None and match.name is not None:
                return FlagMatch(word=word, kind="typography", suggestion=plain)
        return FlagMatch(word=word, kind="typography", suggestion="--" + _plain(rest))

    def _unknown(self, word: str, head: str, rows: tuple[str, ...]) -> FlagMatch:
        """A word that is no flag: offer the one that was probably meant."""
        tail = word[len(head) :] if word.startswith(head) else word[len(_raw_head(word)) :]
        plain = _plain(head)
        if plain != head and (match := self._match(plain, plain, rows)) and match.name:
            return FlagMatch(word=word, kind="typography", suggestion=plain + tail)
        doubled = "-" + head
        if not head.startswith("--") and len(head) > len("-x") and doubled in self._owners:
            return FlagMatch(word=word, kind="unknown", suggestion=doubled + tail)
        from difflib import get_close_matches

        options = [o for o in self.options(rows[-1]) if o.startswith("--") and abs(len(o) - len(head)) <= 3]
        near = get_close_matches(head, options, n=1, cutoff=0.85) if head.startswith("--") else []
        return FlagMatch(word=word, kind="unknown", suggestion=near[0] + tail if near else None)


# ---------------------------------------------------------------------------------------------------------------- words


def _dashed(text: str) -> str:
    return "--" + text[2:].replace("_", "-") if text.startswith("--") else text


def _plain(text: str) -> str:
    """Replace typographic dashes in the name part of a word."""
    head, equals, value = text.partition("=")
    return "".join("-" if character in _DASHES else character for character in head) + equals + value


def _raw_head(word: str) -> str:
    return word.partition("=")[0].partition(".")[0]


def _split(word: str) -> tuple[str, str | None, str | None]:
    """Split a word into option string (dashes for underscores), dotted key and inline value."""
    left, equals, value = word.partition("=")
    head, dot, key = left.partition(".")
    # `--key+ a,b` appends to a list.
    return _dashed(head), (key.removesuffix("+") or None) if dot else None, value if equals else None


def _is_number(word: str) -> bool:
    digits = word[1:].replace(".", "", 1)
    return word[0] == "-" and digits.isascii() and digits.isdigit()


def _rows(release: EngineRelease) -> tuple[str, ...]:
    """Return the listed releases a word is read by: the newest for an unknown release, the oldest for an older one."""
    listed = tables.table()["releases"]
    possible = possible_versions(release)
    if not possible:
        return (listed[-1],)
    return tuple(row for row in possible if row in listed) or (listed[0],)


def _all_rows(release: EngineRelease | None) -> tuple[str, ...]:
    possible = possible_versions(release) if release else ()
    listed: tuple[str, ...] = tuple(tables.table()["releases"])
    return possible or listed


def _flag(name: str, entry: Mapping[str, Any]) -> Flag:
    arity = entry.get("arity", "one")
    steps = arity if isinstance(arity, list) else None
    return Flag(
        name=name,
        aliases=tuple(entry.get("alias", ())),
        negations=tuple(entry.get("no", ())),
        arity=steps[-1][1] if steps else arity,
        json=bool(entry.get("json")),
        first=entry.get("first", tables.OLDEST_KNOWN),
        last=entry.get("last"),
        replacement=entry.get("replacement"),
        spans={option: (first, last) for option, (first, last) in entry.get("spans", {}).items()},
        earlier_arity=(steps[-1][0], steps[-2][1]) if steps else None,
    )
