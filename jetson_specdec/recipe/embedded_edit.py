# SPDX-License-Identifier: Apache-2.0
"""Changing the arguments of a serve command inside a compose file, a unit or a manifest.

Changes are worked out where the words are written and carried outwards through the layers of quoting. The new text is
read again and must give exactly the arguments asked for, with every other command as it was; else nothing is handed
out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from jetson_specdec.errors import CommandChoiceError, RecipeError, UneditableError
from jetson_specdec.recipe.chars import ELSEWHERE, Char, Layers, encode
from jetson_specdec.recipe.core import AppendArgs, Arg, ArgEdit, Recipe, RemoveArgs, ReplaceArg, ServeCommand
from jetson_specdec.recipe.embedded import Located, ScriptSite, Word
from jetson_specdec.recipe.shell_edit import by_hand_of, context_of, shape_of, wanted_args
from jetson_specdec.recipe.word_style import respelled, spelled
from jetson_specdec.recipe.yaml_list import append_items, remove_items, replace_item
from jetson_specdec.recipe.yaml_scalar import decode, in_style, scalar_start, scalar_style
from jetson_specdec.values import frozen

__all__ = ["Change", "edit_located"]


@frozen(kw_only=True)
class Change:
    """Put `lead` (as it is) and `text` (encoded for `layers`) in the place of a range of the recipe's text."""

    start: int
    end: int
    text: str
    layers: Layers = ()
    lead: str = ""
    node: Any = None


def edit_located(
    recipe: Recipe, index: int, edits: Sequence[ArgEdit], reread: Callable[[str], tuple[Recipe, list[Located]]]
) -> str:
    """Change the arguments of one command and nothing else.

    Args:
        recipe: the recipe.
        index: which of its commands.
        edits: what to do; indexes count the arguments as they were before any of the edits.
        reread: reads a text in the recipe's form, with the places of its words.

    Raises:
        CommandChoiceError: there is no such command (JSE219).
        UneditableError: it cannot be done safely (JSE210 to JSE216); the text says what to type by hand.
    """
    if not 0 <= index < len(recipe.commands):
        raise CommandChoiceError("JSE219", index=index, count=len(recipe.commands))
    command = recipe.commands[index]
    wanted_args(command, edits)  # raises for what cannot be asked for
    edits = [_placed(edit, command.args) for edit in edits]
    wanted = wanted_args(command, edits)
    if not edits:
        return recipe.text
    typed = by_hand_of(command, edits)
    if command.blocked is not None:
        raise UneditableError("JSE210", line=command.line, reason=command.blocked.message, type=typed)
    _, located = reread(recipe.text)
    if len(located) != len(recipe.commands) or len(located[index].command.args) != len(command.args):
        raise UneditableError("JSE216", line=command.line, type=typed)
    for text in _texts(recipe.text, located[index], edits, typed):
        if text is not None and _proved(located, text, index, wanted, reread):
            return text
    raise UneditableError("JSE213", line=command.line, type=typed)


def _placed(edit: ArgEdit, args: Sequence[Arg]) -> ArgEdit:
    """Return an edit whose new words stand between words as written, not inside one that becomes several."""
    if not isinstance(edit, AppendArgs) or edit.before is None:
        return edit
    at = edit.before
    while 0 < at < len(args) and (args[at - 1].start, args[at - 1].end) == (args[at].start, args[at].end):
        at -= 1
    return AppendArgs(values=edit.values, before=at)


def _proved(
    before: Sequence[Located],
    text: str,
    index: int,
    wanted: Sequence[Any],
    reread: Callable[[str], tuple[Recipe, list[Located]]],
) -> bool:
    try:
        _, again = reread(text)
    except RecipeError:
        return False
    return len(again) == len(before) and all(
        context_of(old.surroundings) == context_of(new.surroundings)
        and [shape_of(arg) for arg in new.command.args]
        == (list(wanted) if number == index else [shape_of(arg) for arg in old.command.args])
        for number, (old, new) in enumerate(zip(before, again, strict=True))
    )


def _texts(text: str, located: Located, edits: Sequence[ArgEdit], typed: str) -> Iterator[str | None]:
    """Yield the new text in one way of writing after the other, the most faithful first."""
    if located.script is not None:
        changes = _script_changes(located.script, edits, located.command, typed)
    else:
        changes = _word_changes(text, located, edits, typed)
    yield _applied(text, changes)
    yield _rewritten(text, changes)
    if located.script is not None:
        yield _applied(text, _whole_script(text, located.script, edits, typed))


# --- words -----------------------------------------------------------------------------------------------------------


def _word_changes(text: str, located: Located, edits: Sequence[ArgEdit], typed: str) -> list[Change]:
    command, words = located.command, located.words
    changes: list[Change] = []
    removed: set[int] = set()
    for edit in edits:
        if isinstance(edit, ReplaceArg):
            word = words[edit.index]
            _refuse_unsafe(word, command, edit.index, typed)
            changes.append(_replaced(text, word, edit.value, words))
        elif isinstance(edit, RemoveArgs):
            for at in range(edit.first, edit.last + 1):
                if words[at].shared or (words[at].splices and words[at].value is not None):
                    raise UneditableError("JSE211", line=command.line, raw=command.args[at].raw, type=typed)
                removed.add(at)
        elif edit.values:
            # in front of a word is behind the one before it
            tail = words[edit.before - 1] if edit.before else located.tail
            if tail is None or edit.before == 0:
                raise UneditableError("JSE213", line=command.line, type=typed)
            changes += _appended(text, tail, edit.values, words)
    changes += _removed(text, [words[at] for at in sorted(removed)])
    return changes


def _refuse_unsafe(word: Word, command: ServeCommand, index: int, typed: str) -> None:
    if word.splices or word.shared:
        raise UneditableError("JSE211", line=command.line, raw=command.args[index].raw, type=typed)


def _replaced(text: str, word: Word, value: str, words: Sequence[Word]) -> Change:
    if word.parent is not None:
        value = encode(value, _inner(word))
        return Change(start=word.start, end=word.end, text=replace_item(text, word, value, words))
    return Change(
        start=word.start,
        end=word.end,
        text=respelled(text[word.start : word.end], word, value),
        layers=word.outer,
        node=word.node,
    )


def _inner(word: Word) -> Layers:
    """Return the layers of a list item's value below YAML."""
    layers = next((char.layers for char in word.chars if char.layers != ELSEWHERE), ())
    if layers:
        return tuple(layer for layer in layers if not layer.startswith("yaml-"))
    return word.outer


def _removed(text: str, words: Sequence[Word]) -> list[Change]:
    items = [word for word in words if word.parent is not None]
    changes = [Change(start=start, end=end, text="") for start, end in remove_items(text, items)]
    spots = {(word.start, word.end): word for word in words if word.parent is None}
    for (start, end), word in spots.items():
        gap = _GAP.search(text, max(0, start - MAX_GAP), start) if start else None
        left = gap.start() if gap else start
        if left == start or (word.node is not None and left <= scalar_start(text, word.node)):
            # the first word: what stands behind it goes with it
            after = re.compile(r"[ \t]*").match(text, end)
            changes.append(Change(start=start, end=after.end() if after else end, text="", node=word.node))
        else:
            changes.append(Change(start=left, end=end, text="", node=word.node))
    return _merged(changes)


MAX_GAP = 4096
_GAP = re.compile(r"(?:[ \t]|\\?\r?\n)+\Z")


def _merged(changes: list[Change]) -> list[Change]:
    result: list[Change] = []
    for change in sorted(changes, key=lambda one: (one.start, one.end)):
        if result and change.start <= result[-1].end and not change.text and not result[-1].text:
            last = result.pop()
            change = Change(start=last.start, end=max(last.end, change.end), text="", node=last.node)
        result.append(change)
    return result


def _appended(text: str, tail: Word, values: Sequence[str], words: Sequence[Word]) -> list[Change]:
    if tail.parent is not None:
        inner = _inner(tail)
        at, added = append_items(text, tail, [encode(value, inner) for value in values], words)
        return [Change(start=at, end=at, text=added)]
    lead = _lead(text, tail, words)
    changes: list[Change] = []
    for group in _groups(values):
        words_text = " ".join(spelled(value, tail.outer) for value in group)
        changes.append(
            Change(start=tail.end, end=tail.end, text=words_text, layers=tail.outer, lead=lead, node=tail.node)
        )
    return changes


def _groups(values: Sequence[str]) -> list[list[str]]:
    """Put each flag together with its values."""
    groups: list[list[str]] = []
    for value in values:
        if not groups or (value.startswith("-") and not re.match(r"-\d", value)):
            groups.append([])
        groups[-1].append(value)
    return groups


def _lead(text: str, tail: Word, words: Sequence[Word]) -> str:
    """Return what parts a new flag from the last word: a blank, or a new line where flags have lines of their own."""
    ordered = [word for word in words if word.start <= tail.start] or [tail]
    for left, right in zip(reversed(ordered[:-1]), reversed(ordered), strict=False):
        gap = re.search(r"(\\?)(\r?\n)", text[left.end : right.start])
        if gap:
            line = text.rfind("\n", 0, right.start) + 1
            indent = re.match(r"[ \t]*", text[line:])
            return (" \\" if gap[1] else "") + gap[2] + (indent[0] if indent else "")
    return " "


# --- scripts ---------------------------------------------------------------------------------------------------------


def _new_script(site: ScriptSite, edits: Sequence[ArgEdit], line: int, typed: str) -> str:
    from jetson_specdec.recipe.shell import edit_shell, parse_shell

    inner = parse_shell(site.text, environ=site.environ, read=site.beside.get if site.beside else None)
    if site.index >= len(inner.commands):
        raise UneditableError("JSE216", line=line, type=typed)
    return edit_shell(inner, site.index, edits, environ=site.environ)


def _script_changes(site: ScriptSite, edits: Sequence[ArgEdit], command: ServeCommand, typed: str) -> list[Change]:
    new = _new_script(site, edits, command.line, typed)
    old_words, new_words = re.split(r"(\s)", site.text), re.split(r"(\s)", new)
    matcher = difflib.SequenceMatcher(None, old_words, new_words, autojunk=False)
    places = [0]
    for word in old_words:
        places.append(places[-1] + len(word))
    chars = site.chars
    changes: list[Change] = []
    for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if kind == "equal":
            continue
        start, end = places[old_from], places[old_to]
        put = "".join(new_words[new_from:new_to])
        while start == end and put[-1:] == "\n" == site.text[start - 1 : start]:
            # a new line goes in before the line break, so that the last line of a block text stays the last one
            start, end, put = start - 1, end - 1, put[-1] + put[:-1]
        near = chars[start:end] or chars[max(start - 1, 0) : start] or chars[:1]
        layers = _layers_near(chars, start, end)
        if not near or layers is None:
            raise UneditableError("JSE212", line=command.line, type=typed)
        left, right = (near[0].start, near[-1].end) if start < end else (near[-1].end, near[-1].end)
        changes.append(Change(start=left, end=right, text=put, layers=layers, node=site.word.node))
    return changes


def _layers_near(chars: Sequence[Char], start: int, end: int) -> Layers | None:
    """Return the quoting of a part of a script; None where it begins or ends inside a reference that was replaced."""

    def inside(at: int) -> bool:
        left, right = chars[at - 1 : at], chars[at : at + 1]
        return bool(
            left and right and left[0].layers == right[0].layers == ELSEWHERE and left[0].start == right[0].start
        )

    if (start > 0 and inside(start)) or (end > 0 and inside(end)):
        return None
    # A reference is written where it stands: in the quoting of what is beside it.
    places = sorted(range(len(chars)), key=lambda at: max(start - 1 - at, at - end + 1, 0))
    return next((chars[at].layers for at in places if chars[at].layers != ELSEWHERE), None)


def _whole_script(text: str, site: ScriptSite, edits: Sequence[ArgEdit], typed: str) -> list[Change]:
    """Write the word that is a script anew: for quotings in which a part cannot be replaced."""
    if any(char.layers == ELSEWHERE for char in site.chars) or site.word.style in ("literal", "folded"):
        return []
    return [_replaced(text, site.word, _new_script(site, edits, 1, typed), ())]


# --- applying --------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    start: int
    end: int
    text: str


def _pieces(changes: Sequence[Change], outermost: bool) -> list[_Piece] | None:
    pieces: list[_Piece] = []
    for change in changes:
        layers = change.layers if outermost or change.node is None else change.layers[:-1]
        try:
            put = encode(change.text, layers)
        except ValueError:
            return None
        lead = change.lead if outermost or change.node is None else " " if change.lead else ""
        pieces.append(_Piece(change.start, change.end, lead + put))
    return sorted(pieces, key=lambda piece: (piece.start, piece.end))


def _put(text: str, pieces: Sequence[_Piece]) -> str | None:
    parts: list[str] = []
    at = 0
    for piece in pieces:
        if piece.start < at:
            return None
        parts += [text[at : piece.start], piece.text]
        at = piece.end
    return "".join([*parts, text[at:]])


def _applied(text: str, changes: Sequence[Change]) -> str | None:
    pieces = _pieces(changes, outermost=True)
    return _put(text, pieces) if pieces is not None and changes else None


def _rewritten(text: str, changes: Sequence[Change]) -> str | None:
    """Write the YAML scalars that change in quotes, where their own style cannot hold what is put in."""
    nodes = {id(change.node): change.node for change in changes if change.node is not None}
    pieces = _pieces([change for change in changes if change.node is None], outermost=True) or []
    for node in nodes.values():
        inside = _pieces([change for change in changes if change.node is node], outermost=False)
        chars = decode(text, node)
        if inside is None or chars is None or scalar_style(node) in ("literal", "folded"):
            return None
        value: list[str] = []
        at = 0
        for piece in inside:
            while at < len(chars) and chars[at].end <= piece.start:
                value.append(chars[at].text)
                at += 1
            value.append(piece.text)
            while at < len(chars) and chars[at].end <= piece.end:
                at += 1
        value += [char.text for char in chars[at:]]
        style = scalar_style(node)
        joined = "".join(value)
        put = in_style(joined, "single" if style == "plain" else style) or in_style(joined, "double")
        pieces.append(_Piece(scalar_start(text, node), node.end_mark.index, put or ""))
    return _put(text, sorted(pieces)) if nodes else None
