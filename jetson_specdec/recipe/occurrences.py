# SPDX-License-Identifier: Apache-2.0
"""Which flags stand where: the words of a command, read as vLLM's argument parser reads them.

Nothing here knows what a flag is good for; the flag table says how many values it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from attrs import field

from jetson_specdec.recipe.core import Arg
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.engine.flags import FlagMatch
    from jetson_specdec.recipe.config_file import ConfigEntry, ConfigFile

__all__ = ["Occurrence", "Origin", "Walk", "config_occurrences", "config_words", "resolve", "shown", "walk"]

Origin = Literal["cli", "config"]


@frozen(kw_only=True)
class Occurrence:
    """One flag with its values, where it stands.

    Attributes:
        name: the canonical flag without dashes (`gpu-memory-utilization`); the word as written where it is unknown.
        spelled: the flag as written, `=value` and dotted key left out (`--gpu_mem`, `-sc`; the key in a YAML file).
        match: how the flag table understood it (`exact`, `alias`, `prefix`, `retired`, `ambiguous`, `unknown`,
            `typography`).
        key: the dotted part below the flag (`num_speculative_tokens` of `--speculative-config.num_…`), or None.
        values: what the engine receives, one a word; None where it cannot be known from the recipe.
        raws: the same as written.
        origin: `cli`, or `config` for a `--config` YAML file.
        first, last: indexes into the command's `args` (flag word to last value word); -1 in a YAML file.
        inline: written `--flag=value`.
        negated: written `--no-flag`, or `false` in a release that understands that.
        optional: whether it is there depends on the environment.
        splices: one of its words may become none or several.
        unresolved: variables that keep a value from being known.
        missing: the flag needs a value and has none.
        suggestion, replacement, gone_since, since, accepted, candidates, arity, boolean: as in `FlagMatch`.
        line: line in the YAML file, or None.
        entry: the YAML entry, or None.
    """

    name: str
    spelled: str
    match: str
    key: str | None = None
    values: tuple[str | None, ...] = ()
    raws: tuple[str, ...] = ()
    origin: Origin = "cli"
    first: int = -1
    last: int = -1
    inline: bool = False
    negated: bool = False
    optional: bool = False
    splices: bool = False
    unresolved: tuple[str, ...] = ()
    missing: bool = False
    suggestion: str | None = None
    replacement: str | None = None
    gone_since: str | None = None
    since: str | None = None
    accepted: bool | None = None
    candidates: tuple[str, ...] = ()
    arity: str | None = None
    boolean: bool = False
    line: int | None = None
    entry: ConfigEntry | None = field(default=None, repr=False)

    @property
    def known(self) -> bool:
        """Whether some vLLM release has this flag."""
        return self.match in ("exact", "alias", "prefix", "retired")

    @property
    def value(self) -> str | None:
        """The (last) value, or None where there is none or it cannot be known."""
        return self.values[-1] if self.values else None

    @property
    def text(self) -> str:
        """The (last) value for showing: resolved where possible, else as written."""
        if not self.values:
            return ""
        value = self.values[-1]
        return self.raws[-1] if value is None else value


@frozen(kw_only=True)
class Walk:
    """The result of reading all words: flags, and words that belong to no flag."""

    occurrences: tuple[Occurrence, ...]
    positionals: tuple[int, ...]
    opaque: tuple[int, ...]
    """Unresolved words that may be anything (an array, an unquoted variable), also behind a flag that takes words."""
    separator: int | None = None
    """Where a bare `--` stands."""


def shown(arg: Arg) -> str:
    """Return a word for showing: its value, or what was written without its outer quotes."""
    if arg.value is not None:
        return arg.value
    raw = arg.raw
    if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "\"'":
        return raw[1:-1]
    return raw


def _flag_text(arg: Arg) -> tuple[str, bool]:
    """Return the word to look up and whether its value is unknown: `--x=$Y` is looked up as `--x=`."""
    if arg.value is not None:
        return arg.value, False
    written = shown(arg).lstrip("\\\"'")
    if not written.startswith("-"):
        return "", True
    name, equals, _ = written.partition("=")
    if not equals or any(sign in name for sign in "$`("):
        return "", True
    return f"{name}=", True


def _holds_flags(arg: Arg) -> bool:
    """Whether an unknown word is written as one that holds several: `"$@"`, `"${X[@]}"`, `$EXTRA_ARGS`."""
    plural = ("ARGS", "OPTS", "OPTIONS", "FLAGS", "PARAMS", "EXTRA", "EXTRAS")
    return "@" in arg.raw or "*" in arg.raw or any(name.upper().endswith(plural) for name in arg.unresolved)


def _is_number(word: str) -> bool:
    digits = word[1:].replace(".", "", 1)
    return word[:1] == "-" and digits.isdecimal()


@lru_cache(maxsize=1024)
def _resolved(word: str, release: EngineRelease | None) -> FlagMatch:
    from jetson_specdec.engine.flags import flag_table

    return flag_table().resolve(word, release)


def resolve(word: str, release: EngineRelease | None = None) -> FlagMatch:
    """Look a word up in the flag table; bare flags are remembered, words with a value (perhaps a secret) are not."""
    return _resolved.__wrapped__(word, release) if "=" in word else _resolved(word, release)


class _Reader:
    """One pass over the words."""

    def __init__(self, args: Sequence[Arg], release: EngineRelease | None) -> None:
        self.args = args
        self.release = release
        self.found: list[Occurrence] = []
        self.positionals: list[int] = []
        self.opaque: list[int] = []
        self.separator: int | None = None

    def optionlike(self, index: int) -> bool:
        """Whether argparse would take the word for a flag (its `O` words)."""
        word, _ = _flag_text(self.args[index])
        if not word or word == "-" or _is_number(word):
            return False
        if not word.startswith("-"):
            # A typographic dash: argparse takes it for a positional, its writer meant a flag.
            return not word[0].isascii() and resolve(word, self.release).kind == "typography"
        return " " not in word or resolve(word, self.release).known

    def run(self) -> Walk:
        index = 0
        while index < len(self.args):
            arg = self.args[index]
            word, unknown_value = _flag_text(arg)
            if not word and arg.value is None:
                anything = arg.splices and (index > 0 or _holds_flags(arg))
                (self.opaque if anything else self.positionals).append(index)
                index += 1
            elif word == "--" and self.separator is None:
                self.separator = index
                self.positionals.extend(range(index + 1, len(self.args)))
                break
            elif self.optionlike(index):
                index = self.flag(index, word, unknown_value)
            else:
                self.positionals.append(index)
                index += 1
        return Walk(
            occurrences=tuple(self.found),
            positionals=tuple(self.positionals),
            opaque=tuple(self.opaque),
            separator=self.separator,
        )

    def flag(self, index: int, word: str, unknown_value: bool) -> int:
        """Take a flag and its values; return the index behind them."""
        match = resolve(word, self.release)
        head = word.partition("=")[0]
        spelled = head if match.key is None else head.partition(".")[0]
        # `--flag.key+ a,b` appends to a list; the sign is kept in the key.
        key = f"{match.key}+" if match.key is not None and head.endswith("+") else match.key
        taken = self.values_of(index, match)
        for number, at in enumerate(taken):
            value = self.args[at]
            # `--dtype $X` means one word; behind a flag with several values, or with none, the rest may be flags
            several = number > 0 or (match.key is None and match.arity not in ("one", "many"))
            if value.value is None and value.splices and (several or _holds_flags(value)):
                self.opaque.append(at)
        inline = match.value is not None
        values: tuple[str | None, ...]
        if inline:
            written = self.args[index].raw.partition("=")[2].rstrip("\"'")
            values = (None if unknown_value else match.value,)
            raws: tuple[str, ...] = (written,)
        else:
            values = tuple(self.args[at].value for at in taken)
            raws = tuple(shown(self.args[at]) for at in taken)
        words = [self.args[index], *(self.args[at] for at in taken)]
        wants = match.key is not None or match.arity in ("one", "many")
        self.found.append(
            Occurrence(
                name=(match.name or spelled).lstrip("-"),
                spelled=spelled,
                match=match.kind,
                key=key,
                values=values,
                raws=raws,
                first=index,
                last=taken[-1] if taken else index,
                inline=inline,
                negated=match.negated,
                optional=any(word.optional for word in words),
                splices=any(word.splices for word in words),
                unresolved=tuple(name for word in words for name in word.unresolved),
                missing=wants and not inline and not taken,
                suggestion=match.suggestion,
                replacement=match.replacement,
                gone_since=match.gone_since,
                since=match.since,
                accepted=match.accepted,
                candidates=tuple(match.candidates),
                arity=match.arity,
                boolean=bool(match.boolean),
            )
        )
        return (taken[-1] if taken else index) + 1

    def values_of(self, index: int, match: FlagMatch) -> list[int]:
        """Return the indexes of the words that are the flag's values."""
        following = index + 1
        if match.value is not None or following >= len(self.args):
            return []
        if match.key is not None:
            return [following]  # vLLM takes the next word for a dotted flag, whatever it is
        arity = match.arity
        if arity is None and match.kind != "positional":
            # An unknown flag: most take a value. `_give_back` undoes this where the value must be the model.
            hint = resolve(match.suggestion, self.release) if match.suggestion else None
            arity = hint.arity if hint is not None and hint.arity is not None else "optional"
        if arity == "none":
            return []
        taken: list[int] = []
        while following < len(self.args) and not self.optionlike(following):
            if _flag_text(self.args[following])[0] == "--":
                break
            taken.append(following)
            if arity != "many":
                break
            following += 1
        return taken


def _give_back(walk_: Walk, args: Sequence[Arg]) -> Walk:
    """Where no word is left for the model, an unknown flag that swallowed something like a model id gives it back."""
    if walk_.positionals or any(found.name == "model" for found in walk_.occurrences):
        return walk_
    from attrs import evolve

    for position, found in enumerate(walk_.occurrences):
        value = found.value
        if found.match == "unknown" and not found.inline and value and "/" in value and not value.startswith("{"):
            trimmed = evolve(found, values=(), raws=(), last=found.first)
            occurrences = (*walk_.occurrences[:position], trimmed, *walk_.occurrences[position + 1 :])
            return evolve(walk_, occurrences=occurrences, positionals=(found.last,))
    return walk_


def walk(args: Sequence[Arg], release: EngineRelease | None = None) -> Walk:
    """Read the words of a command.

    Args:
        args: the words after `serve`.
        release: which vLLM, as far as known.
    """
    return _give_back(_Reader(args, release).run(), args)


def config_words(value: Any) -> tuple[str, ...] | None:
    """Return the words vLLM makes of a YAML value; None where it drops the key.

    Source: vLLM 0.32 `utils/argparse_utils.py`, `load_config_file`: true → the bare flag, false and an empty list →
    nothing, a mapping → JSON, a list → several words, the rest as Python prints it.
    """
    if value is True:
        return ()
    if value is False or value == []:
        return None
    if isinstance(value, dict):
        import json

        return (json.dumps(value, default=str),)
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return (str(value),)


def config_occurrences(config: ConfigFile, release: EngineRelease | None = None) -> Iterator[Occurrence]:
    """Yield what a `--config` file adds to the command line; keys that vLLM drops (`flag: false`) are left out."""
    for entry in config.entries:
        words = config_words(entry.value)
        if words is None:
            continue
        match = resolve(f"--{entry.key}", release)
        yield Occurrence(
            name=(match.name or entry.key).lstrip("-"),
            spelled=entry.key,
            match=match.kind,
            key=match.key,
            values=words,
            raws=words,
            origin="config",
            negated=match.negated,
            missing=match.arity == "one" and not words,
            suggestion=match.suggestion,
            replacement=match.replacement,
            gone_since=match.gone_since,
            since=match.since,
            accepted=match.accepted,
            candidates=tuple(match.candidates),
            arity=match.arity,
            boolean=bool(match.boolean),
            line=entry.line,
            entry=entry,
        )
