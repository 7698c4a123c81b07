# SPDX-License-Identifier: Apache-2.0
"""What is wrong or odd about a command's flags, as findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.occurrences import Occurrence, shown

if TYPE_CHECKING:
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["check"]

# Flags that only one place may set for the text to say what it does; others are too common to mention.
_WORTH_SAYING_TWICE = (
    "gpu-memory-utilization",
    "max-model-len",
    "max-num-seqs",
    "model",
    "speculative-config",
)


def check(flags: ServeFlags) -> tuple[Finding, ...]:
    """Return the findings about the flags, in reading order, each once."""
    if flags.command.engine != "vllm":
        return ()
    found = [
        *_spelling(flags),
        *_values(flags),
        *_duplicates(flags),
        *_extras(flags),
        *_words(flags),
        *_config(flags),
    ]
    unique: dict[tuple[str, str], Finding] = {}
    for finding in found:
        unique.setdefault((finding.code, repr(sorted(finding.values.items(), key=repr))), finding)
    return tuple(unique.values())


def _where(found: Occurrence) -> str:
    return f" (line {found.line} of the config file)" if found.line is not None else ""


def _spelling(flags: ServeFlags) -> Iterator[Finding]:
    others = _flags_of_runner(flags.command.runner)
    for found in flags.occurrences:
        if found.spelled.lstrip("-").replace("-", "_") in others:
            continue
        flag = found.spelled if found.origin == "cli" else f"{found.spelled}:"
        if found.match == "typography":
            sign = next((sign for sign in flag if not sign.isascii()), flag[:1])
            yield Finding.of("JSD244", flag=flag, sign=sign, suggestion=_bare(found.suggestion))
        elif found.match == "ambiguous":
            yield Finding.of("JSD245", flag=flag, candidates=list(found.candidates), where=_where(found))
        elif found.match == "unknown" and found.suggestion:
            yield Finding.of("JSD240", flag=flag, suggestion=_bare(found.suggestion), where=_where(found))
        elif found.match == "unknown":
            yield Finding.of("JSD241", flag=flag, where=_where(found))
        elif found.match == "retired" and found.accepted is False and flags.release and flags.release.version:
            code = "JSD286" if found.replacement else "JSD287"
            release, new = flags.release.version, found.replacement
            yield Finding.of(
                code, flag=flag, since=found.gone_since, release=release, replacement=new, where=_where(found)
            )
        elif found.match == "retired" and found.replacement:
            yield Finding.of(
                "JSD242", flag=flag, since=found.gone_since, replacement=found.replacement, where=_where(found)
            )
        elif found.match == "retired":
            yield Finding.of("JSD243", flag=flag, since=found.gone_since, where=_where(found))
        elif found.known and found.accepted is False and flags.release is not None and flags.release.version:
            yield Finding.of("JSD259", flag=flag, since=found.since, release=flags.release.version, where=_where(found))


def _flags_of_runner(runner: str | None) -> frozenset[str]:
    """Return the flags, without dashes, of the program that starts the engine."""
    if runner is None:
        return frozenset()
    from jetson_specdec.recipe.shell_options import launchers

    return frozenset(flag.lstrip("-") for flag in launchers()["runners"][runner]["values"])


def _bare(suggestion: str | None) -> str | None:
    return suggestion.partition("=")[0] if suggestion else suggestion


def _values(flags: ServeFlags) -> Iterator[Finding]:
    from jetson_specdec.recipe.flags import INTEGERS, whole_number

    for found in flags.occurrences:
        if found.missing and found.known:
            yield Finding.of("JSD246", flag=found.spelled)
        elif found.known and found.arity == "none" and (found.inline or (found.origin == "config" and found.values)):
            yield Finding.of("JSD247", flag=found.spelled, value=found.text, wanted="no value")
    if flags.utilization.state == "invalid" and flags.utilization.text:
        yield Finding.of(
            "JSD247", flag="--gpu-memory-utilization", value=flags.utilization.text, wanted="a number above 0, up to 1"
        )
    # vLLM converts every occurrence, also one that a later one replaces.
    for name in INTEGERS:
        for found in flags.all(name):
            if found.value is not None and whole_number(name, found.value) is None:
                yield Finding.of("JSD247", flag=f"--{name}", value=found.value, wanted="a whole number")


def _duplicates(flags: ServeFlags) -> Iterator[Finding]:
    for name in _WORTH_SAYING_TWICE:
        cli = [found for found in flags.all(name) if found.origin == "cli" and found.key is None]
        texts = list(dict.fromkeys(found.text for found in cli))
        if name == "speculative-config" and not all(text.startswith("{") for text in texts):
            continue  # what the shell made of one JSON text, not several
        if len(texts) > 1:
            yield Finding.of("JSD248", flag=f"--{name}", every=texts, value=texts[-1])
        filed = [found for found in flags.all(name) if found.origin == "config" and found.key is None]
        if cli and filed and filed[-1].text != cli[-1].text and name != "speculative-config":
            yield Finding.of("JSD257", flag=f"--{name}", value=cli[-1].text, other=filed[-1].text)


def _extras(flags: ServeFlags) -> Iterator[Finding]:
    from jetson_specdec.recipe.spec_sources import remnants

    known = remnants(flags)
    for index in flags.extras:
        if index not in known:
            yield Finding.of("JSD250", word=shown(flags.command.args[index]))


def _words(flags: ServeFlags) -> Iterator[Finding]:
    for index in flags.opaque:
        yield Finding.of("JSD280", word=shown(flags.command.args[index]))


def _config(flags: ServeFlags) -> Iterator[Finding]:
    for found in flags.occurrences:
        if found.name == "config" and found.origin == "cli" and (found.inline or found.spelled != "--config"):
            yield Finding.of("JSD251", word=found.spelled, path=found.text)
    config = flags.config
    named = flags.config_path
    if [arg.value for arg in flags.command.args].count("--config") > 1:
        yield Finding.of("JSD282")
    if named is not None and not named.lower().endswith((".yaml", ".yml")) and not any(sign in named for sign in "$`"):
        yield Finding.of("JSD255", path=named)
    if config is None:
        if named is not None:
            yield Finding.of("JSD254", path=named, looked_in=[])
        return
    if not config.found:
        yield Finding.of("JSD254", path=config.named, looked_in=list(config.looked_in))
    for entry in config.entries:
        if entry.value is False:
            yield Finding.of("JSD252", key=entry.key, line=entry.line, path=config.path or config.named)
