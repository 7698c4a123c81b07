# SPDX-License-Identifier: Apache-2.0
"""Changing arguments of a shell recipe in place.

Changes are worked out where the argument is written, carried outwards through every layer of quoting, and proved: the
new text is parsed again and must give exactly the arguments asked for, with every other command as it was.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from jetson_specdec.errors import CommandChoiceError, RecipeError, UneditableError
from jetson_specdec.recipe.core import (
    AppendArgs,
    Arg,
    ArgEdit,
    Recipe,
    RemoveArgs,
    ReplaceArg,
    ServeCommand,
    reader_of,
)
from jetson_specdec.recipe.shell import parse_shell, read_shell
from jetson_specdec.recipe.shell_find import Found
from jetson_specdec.recipe.shell_quote import by_hand, like, spell
from jetson_specdec.recipe.shell_script import Context, Edit, Field, Script, lift

__all__ = ["by_hand_of", "context_of", "edited", "shape_of", "wanted_args"]

_CONTINUATION = re.compile(r"\\(\r?\n)")
_INDENT = re.compile(r"[ \t]*")
_GAP_BEFORE = re.compile(r"(?:[ \t]|\\\r?\n)*\Z")
_BLANKS_BEFORE = re.compile(r"[ \t]*\Z")
_BLANKS = re.compile(r"[ \t]*")
_NUMBER = re.compile(r"-\d")


def edited(recipe: Recipe, index: int, edits: Sequence[ArgEdit], environ: Mapping[str, str] | None = None) -> str:
    """Carry out `edit_shell`."""
    if not 0 <= index < len(recipe.commands):
        raise CommandChoiceError("JSE219", index=index, count=len(recipe.commands))
    command = recipe.commands[index]
    wanted_args(command, edits)  # raises for what cannot be asked for
    if not edits:
        return recipe.text
    typed = by_hand_of(command, edits)
    if command.blocked is not None:
        raise UneditableError("JSE210", line=command.line, reason=command.blocked.message, type=typed)
    finder = read_shell(recipe.text, path=recipe.path, environ=environ, read=reader_of(recipe))
    if len(finder.found) != len(recipe.commands) or len(finder.found[index].outcome.args) != len(command.args):
        raise UneditableError("JSE216", line=command.line, type=typed)
    edits = [_placed(edit, finder.found[index].outcome.args) for edit in edits]
    wanted = wanted_args(command, edits)
    changes = _changes(finder.found[index], command, edits, recipe.text, typed)
    text = _apply(recipe.text, changes, command, typed)
    _prove(recipe, text, index, wanted, command, typed, environ)
    return text


def _placed(edit: ArgEdit, fields: Sequence[Field]) -> ArgEdit:
    """Return an edit whose new words stand between words as written, not inside one that becomes several."""
    if not isinstance(edit, AppendArgs) or edit.before is None:
        return edit
    at = edit.before
    while 0 < at < len(fields) and fields[at - 1].word == fields[at].word:
        at -= 1
    return AppendArgs(values=edit.values, before=at)


def by_hand_of(command: ServeCommand, edits: Sequence[ArgEdit]) -> str:
    """Return what a person would type to get the same: new words, each changed value behind its flag."""
    words: list[str] = []
    for edit in edits:
        if isinstance(edit, ReplaceArg):
            flag = command.args[edit.index - 1].value if edit.index else None
            if flag and flag.startswith("--") and "=" not in flag and not edit.value.startswith("--"):
                words.append(flag)
            words.append(edit.value)
        elif isinstance(edit, AppendArgs):
            words += edit.values
    return by_hand(words)


Wanted = tuple[str | None, str | None, bool]
"""An argument as it must come out: its value, or how it is written where that is not known; whether it is optional."""


def wanted_args(command: ServeCommand, edits: Sequence[ArgEdit]) -> list[Wanted]:
    """Return the arguments as they must come out.

    Raises:
        UneditableError: there is no such argument (JSE215), or a NUL byte in a new one (JSE214).
    """
    result: list[Wanted | None] = [shape_of(arg) for arg in command.args]
    added: dict[int, list[Wanted]] = {}
    for edit in edits:
        touched: tuple[int, ...] = ()
        if isinstance(edit, ReplaceArg):
            touched = (edit.index,)
        elif isinstance(edit, RemoveArgs):
            touched = (edit.first, edit.last)
        elif edit.before is not None:
            touched = (edit.before,)
        for at in touched:
            if not 0 <= at < len(command.args):
                raise UneditableError("JSE215", line=command.line, argument=at, count=len(command.args), type="")
        values = edit.values if isinstance(edit, AppendArgs) else (edit.value,) if isinstance(edit, ReplaceArg) else ()
        if any("\0" in value for value in values):
            raise UneditableError("JSE214", line=command.line, type="")
        if isinstance(edit, ReplaceArg):
            result[edit.index] = (edit.value, None, command.args[edit.index].optional)
        elif isinstance(edit, RemoveArgs):
            for at in range(edit.first, edit.last + 1):
                result[at] = None
        else:
            place = len(result) if edit.before is None else edit.before
            added.setdefault(place, []).extend((value, None, False) for value in edit.values)
    slots: list[Sequence[Wanted | None]] = [[*added.get(at, ()), one] for at, one in enumerate(result)]
    return [one for slot in (*slots, added.get(len(result), ())) for one in slot if one is not None]


def shape_of(arg: Arg) -> Wanted:
    """Return what must stay the same of an argument that is not touched."""
    return (arg.value, None, arg.optional) if arg.value is not None else (None, arg.raw, arg.optional)


# --- working out the changes -----------------------------------------------------------------------------------------


def _changes(found: Found, command: ServeCommand, edits: Sequence[ArgEdit], text: str, typed: str) -> list[Edit]:
    script, fields = found.script, found.outcome.args
    outer = _outer(script, found.command.end)
    changes: list[Edit] = []
    removed: set[int] = set()
    for edit in edits:
        if isinstance(edit, ReplaceArg):
            field = fields[edit.index]
            _refuse_unsafe(field, command, edit.index, typed)
            raw = script.text[field.start : field.end]
            new = edit.value if field.split else like(raw, edit.value, outer)
            changes.append(Edit(field.start, field.end, ((new, False),)))
        elif isinstance(edit, RemoveArgs):
            removed.update(range(edit.first, edit.last + 1))
        elif edit.values:
            changes.append(_append(found, edit, text, outer))
    changes += _removals(script, fields, removed, command, typed)
    return lift(script, changes, command.line)


def _outer(script: Script, at: int) -> list[Context]:
    contexts: list[Context] = []
    while script.parent is not None and script.origins:
        origin = script.origins[min(max(at - 1, 0), len(script.origins) - 1)]
        contexts.append(origin.context)
        at, script = origin.end, script.parent
    return contexts


def _refuse_unsafe(field: Field, command: ServeCommand, index: int, typed: str) -> None:
    whole = (field.start, field.end) == field.word
    if field.splices or field.shared or (field.optional and whole):
        raise UneditableError("JSE211", line=command.line, raw=command.args[index].raw, type=typed)


def _append(found: Found, edit: AppendArgs, text: str, outer: Sequence[Context]) -> Edit:
    at = found.command.words[-1].end
    if edit.before is not None:
        last = found.outcome.args[edit.before - 1] if edit.before else found.outcome.serve_words[-1]
        at = last.word[1]
    newline, indent = _layout(found, text)
    pieces: list[tuple[str, bool]] = []
    for group in _groups(edit.values):
        if newline is None:
            pieces.append((" ", False))
        else:
            pieces += [(" \\" + newline + indent, True)]
        pieces.append((" ".join(spell(value, outer) for value in group), False))
    return Edit(at, at, tuple(pieces))


def _layout(found: Found, text: str) -> tuple[str | None, str]:
    """Return the newline and indentation of a command spread over continued lines, or None for one on one line."""
    script, words = found.script, found.command.words
    places = [script.to_root(word.start, word.end) for word in words]
    newline: str | None = None
    for (_, left), (right, _) in itertools.pairwise(places):
        match = _CONTINUATION.search(text, left, right) if left <= right else None
        newline = match[1] if match else newline
    if newline is None:
        return None, ""
    line = text.rfind("\n", 0, places[-1][0]) + 1
    return newline, _INDENT.match(text, line)[0]  # type: ignore[index]


def _groups(values: Sequence[str]) -> list[list[str]]:
    """Put each flag together with its values."""
    groups: list[list[str]] = []
    for value in values:
        if not groups or (value.startswith("-") and not _NUMBER.match(value)):
            groups.append([])
        groups[-1].append(value)
    return groups


def _removals(
    script: Script, fields: Sequence[Field], removed: set[int], command: ServeCommand, typed: str
) -> list[Edit]:
    ranges: list[tuple[int, int]] = []
    for index in sorted(removed):
        field = fields[index]
        if field.shared or (field.splices and field.value is not None):
            raise UneditableError("JSE211", line=command.line, raw=command.args[index].raw, type=typed)
        whole = {at for at, one in enumerate(fields) if one.word == field.word}
        inside = (field.start, field.end) != field.word
        braces = script.text[field.word[0] : field.word[0] + 2] == "${"
        in_place = field.word[0] <= field.start and field.end <= field.word[1]
        place = field.word if inside and in_place and braces and whole <= removed else (field.start, field.end)
        ranges.append(_with_gap(script.text, *place))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(set(ranges)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return [Edit(*_whole_line(script.text, start, end), ()) for start, end in merged]


def _with_gap(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a word by the blanks and the continuation before it."""
    gap = _GAP_BEFORE.search(text[max(0, start - 4096) : start])
    before = start - len(gap[0]) if gap else start
    if before > 0 and text[before - 1] == "\n":
        # a line of its own inside an array: a comment above it must stay
        before = start - len(_BLANKS_BEFORE.search(text, before, start)[0])  # type: ignore[index]
    return before, end


def _whole_line(text: str, start: int, end: int) -> tuple[int, int]:
    """Take along the line break where an array's line is emptied, and the blanks where its first words go."""
    stop = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    if start > 0 and text[start - 1] == "(":
        return start, stop
    if start > 0 and text[start - 1] == "\n" and text[stop : stop + 1] in ("\n", "\r"):
        return start - (2 if text[start - 2 : start - 1] == "\r" else 1), stop
    return start, end


# --- applying and proving --------------------------------------------------------------------------------------------


def _apply(text: str, changes: Sequence[Edit], command: ServeCommand, typed: str) -> str:
    parts: list[str] = []
    at = 0
    for change in sorted(changes, key=lambda one: (one.start, one.end)):
        if change.start < at:
            raise UneditableError("JSE213", line=command.line, type=typed)
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])


def _prove(
    recipe: Recipe,
    text: str,
    index: int,
    wanted: Sequence[Wanted],
    command: ServeCommand,
    typed: str,
    environ: Mapping[str, str] | None,
) -> None:
    try:
        again = parse_shell(text, path=recipe.path, environ=environ, read=reader_of(recipe))
        before = parse_shell(recipe.text, path=recipe.path, environ=environ, read=reader_of(recipe))
    except RecipeError as error:
        raise UneditableError("JSE213", line=command.line, type=typed) from error
    right = len(again.commands) == len(before.commands) and all(
        context_of(old) == context_of(new)
        and [shape_of(arg) for arg in new.args]
        == (list(wanted) if number == index else [shape_of(arg) for arg in old.args])
        for number, (old, new) in enumerate(zip(before.commands, again.commands, strict=True))
    )
    if not right:
        raise UneditableError("JSE213", line=command.line, type=typed)


def context_of(command: ServeCommand) -> tuple[object, ...]:
    """Return what must stay the same of a command beside its arguments."""
    return (
        command.serve_form,
        command.engine,
        command.launcher,
        command.image,
        command.image_raw,
        command.entrypoint,
        command.serve_words,
        command.env,
        command.mounts,
        command.ports,
        command.workdir,
        command.wrapped_in,
        command.blocked.code if command.blocked else None,  # its lines may move
    )
