# SPDX-License-Identifier: Apache-2.0
"""What plain command lines mean, read without loading cyclopts.

Most calls are made of whole option names, values that are not in doubt, and no mistakes. Their meaning follows from the
signature of the command, and reading them here saves loading a parser, which takes longer than a plan. Whatever is
less than plain (`--help`, a mistake, an abbreviation, `--name=value`, a value that looks like an option) is left to
cyclopts, which also has the last word on what is right: this never refuses anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["read_plain"]

_INT, _FLAG = "int", "bool"
_PLAIN: dict[str, Callable[[str], Any] | None] = {
    "str": str,
    "str | None": str,
    "Path": Path,
    "Path | None": Path,
    "list[Path] | None": Path,
    _INT: int,
    "int | None": int,
    _FLAG: None,
}
"""Annotation → how one word becomes its value; None for a flag, which takes none."""

_VARIADIC = 0x04  # the flag of a code object that has `*args`
_LONGEST_INT = 9


def read_plain(function: Callable[..., Any], words: Sequence[str]) -> tuple[list[Any], dict[str, Any]] | None:
    """Return the positional and the named arguments that words give to a command, or None where that is in doubt.

    Args:
        function: the command. Its annotations are strings, and what stands before `/` or after `*` is all it takes.
        words: the words after the command's name.
    """
    code = function.__code__
    hints = function.__annotations__
    places = code.co_varnames[: code.co_posonlyargcount]
    options = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    more = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if code.co_flags & _VARIADIC else None
    if code.co_argcount != code.co_posonlyargcount:
        return None
    given: list[Any] = []
    named: dict[str, Any] = {}
    rest = iter(words)
    closed = False
    for word in rest:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            kind = _kind(hints[name], word) if name in options and "_" not in word else None
            if kind is None:
                return None
            many = kind.startswith("list")
            if name in named and not many:
                return None
            convert = _PLAIN[kind]
            if convert is None:
                named[name] = True
            else:
                value = next(rest, "")
                if not _is_plain(value, kind):
                    return None
                if many:
                    named.setdefault(name, []).append(convert(value))
                else:
                    named[name] = convert(value)
            closed = bool(given)
            continue
        name = places[len(given)] if len(given) < len(places) else more or ""
        kind = _kind(hints[name], "") if name else None
        # Words of one list that options part are a matter for the parser.
        convert = _PLAIN[kind] if kind else None
        if closed or kind is None or convert is None:
            return None
        if not (_is_plain(word, kind) or (word == "-" and "allow_leading_hyphen=True" in hints[name])):
            return None
        given.append(convert(word))
    needed = len(places) - len(function.__defaults__ or ())
    missing = set(options) - set(function.__kwdefaults__ or ()) - set(named)
    return None if len(given) < needed or missing else (given, named)


def _kind(hint: str, option: str) -> str | None:
    """Return the plain type of an annotation, or None where its `Parameter` says more than the signature does."""
    if hint.startswith("Annotated["):
        hint, _, said = hint[len("Annotated[") : -1].partition(", Parameter(")
        said = said.removeprefix(f"name='{option}'").removeprefix(", ")
        if said not in (")", "negative='')", "allow_leading_hyphen=True)"):
            return None
    return hint if hint in _PLAIN else None


def _is_plain(value: str, kind: str) -> bool:
    """Whether a word is surely a value of that type, and means itself."""
    if kind.startswith(_INT):
        return value.isascii() and value.isdigit() and len(value) <= _LONGEST_INT
    return value != "" and value[0] not in "-[{" and value.lower() not in ("none", "null")
