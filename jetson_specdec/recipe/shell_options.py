# SPDX-License-Identifier: Apache-2.0
"""How programs that start other programs take their options: which of them have a value, and where the rest begins."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from jetson_specdec.packaged import packaged_json
from jetson_specdec.recipe.shell_script import Field, Run

__all__ = ["Option", "cut", "launchers", "made_up", "split_options"]


class Option(NamedTuple):
    """An option with its value: as text (what is not known stays as written), and None where it is not known."""

    name: str
    shown: str = ""
    value: str | None = None
    field: Field | None = None


@lru_cache(maxsize=1)
def launchers() -> dict[str, Any]:
    """Return the table of programs, options and engines (`data/launchers.json`)."""
    data: dict[str, Any] = packaged_json("recipe", "data", "launchers.json")
    return data


def cut(field: Field, count: int) -> Field:
    """Return a field without its first characters, all of them known."""
    runs: list[Run] = []
    for run in field.runs:
        text = run.text
        if count and text is not None:
            drop = min(count, len(text))
            count -= drop
            if drop == len(text):
                continue
            run = run._replace(text=text[drop:], start=run.start + drop if run.plain else run.start)
        runs.append(run)
    start = runs[0].start if runs else field.end
    return Field(runs=tuple(runs), start=start, end=field.end, word=field.word, splices=field.splices)


def made_up(text: str, field: Field) -> Field:
    """Return a field for a word that stands inside another one, such as the value of `--entrypoint=bash`."""
    run = Run(text, field.start, field.end, False, "elsewhere", field.start, True)
    return Field(runs=(run,), start=field.start, end=field.end, word=field.word, shared=True)


def split_options(fields: Sequence[Field], at: int, with_value: Container[str], text: str) -> tuple[list[Option], int]:
    """Read options from `at` on; return them and where the first word that is none stands."""
    options: list[Option] = []
    while at < len(fields):
        field = fields[at]
        word = field.shown(text)
        if word == "--":
            return options, at + 1
        if not word.startswith("-") or word == "-":
            break
        follower = fields[at + 1] if at + 1 < len(fields) else None
        if word.startswith("--"):
            name, equals, shown = word.partition("=")
            if equals:
                rest = cut(field, len(name) + 1)
                options.append(Option(name, shown, rest.value, rest))
            elif name in with_value and follower is not None:
                options.append(Option(name, follower.shown(text), follower.value, follower))
                at += 1
            else:
                options.append(Option(name))
        elif word in with_value and follower is not None:  # also a single-dash long option, such as ssh -o
            options.append(Option(word, follower.shown(text), follower.value, follower))
            at += 1
        else:
            at += _cluster(field, word, with_value, follower, text, options)
        at += 1
    return options, at


def _cluster(
    field: Field, word: str, with_value: Container[str], follower: Field | None, text: str, options: list[Option]
) -> int:
    """Read `-it` or `-p8000:8000`; return how many further words it took."""
    for index in range(1, len(word)):
        name = "-" + word[index]
        if name not in with_value:
            options.append(Option(name))
        elif index + 1 < len(word):
            skip = index + 1 + (word[index + 1] == "=")
            rest = cut(field, skip)
            options.append(Option(name, word[skip:], rest.value, rest))
            return 0
        elif follower is not None:
            options.append(Option(name, follower.shown(text), follower.value, follower))
            return 1
    return 0
