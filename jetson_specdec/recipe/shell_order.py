# SPDX-License-Identifier: Apache-2.0
"""Which commands of a shell text have run when another one runs: conditions, loops, functions, groups and lists.

What surrounds a command is read from tree-sitter's syntax tree.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from jetson_specdec.recipe.shell_parse import Command

__all__ = ["REPEATS", "RESERVED", "Order", "Structure"]

_BLOCKS = frozenset(
    {
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_item",
        "function_definition",
        "subshell",
        "command_substitution",
        "ERROR",
    }
)
_SUBSHELLS = frozenset({"subshell", "command_substitution"})
REPEATS = frozenset({"while_statement", "for_statement", "c_style_for_statement", "function_definition"})
RESERVED = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done", "esac"})
_CONDITIONAL = ("&&", "||")
_PIPES = ("|", "|&")

Block = tuple[str, int]
Status = Callable[[int], "bool | None"]


class Structure:
    """What surrounds a place in `text[start:end]`, by tree-sitter; the tree is built on first use."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text = text
        self._range = start, end
        self._tree: Any = None
        self._offsets: list[int] = []
        self._blocks: dict[int, tuple[Block, ...]] = {}

    def _root(self) -> Any:
        if self._tree is None:
            start, end = self._range
            # what is not shell (the prose of a note) is blanked, so that places stay the same
            text = re.sub(r"[^\n]", " ", self._text[:start]) + self._text[start:end]
            self._tree = _parser().parse(text.encode("utf-8", "surrogatepass"))
            if not text.isascii():
                sizes = (len(char.encode("utf-8", "surrogatepass")) for char in text)
                self._offsets = list(itertools.accumulate(sizes, initial=0))
        return self._tree.root_node

    def byte(self, pos: int) -> int:
        """Return where a place stands in the encoded text, as blocks count."""
        self._root()
        return self._offsets[min(pos, len(self._offsets) - 1)] if self._offsets else pos

    def blocks(self, pos: int) -> tuple[Block, ...]:
        """Return the conditions, loops, functions and subshells around a place, innermost first."""
        if pos not in self._blocks:
            self._blocks[pos] = self._around(pos)
        return self._blocks[pos]

    def _around(self, pos: int) -> tuple[Block, ...]:
        root = self._root()
        byte = self.byte(pos)
        node = root.descendant_for_byte_range(byte, byte + 1)
        found: list[Block] = []
        branch = False
        while node is not None:
            kind = node.type
            if kind in _BLOCKS:
                # a place in the `else` of an `if` has not passed its `then`
                found.append(("other" if kind == "if_statement" and branch else kind, node.start_byte))
                branch = kind in ("elif_clause", "else_clause")
            node = node.parent
        return tuple(found)


@lru_cache(maxsize=1)
def _parser() -> Any:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class Order:
    """Answers for the commands of one text.

    Args:
        commands: the commands.
        structure: what surrounds them.
    """

    def __init__(self, commands: Sequence[Command], structure: Structure) -> None:
        self._commands = commands
        self._structure = structure
        self._starts = [command.start for command in commands]

    def blocks(self, pos: int) -> tuple[Block, ...]:
        """Return what is around a place, innermost first."""
        return self._structure.blocks(pos)

    def loops_back(self, at: int) -> bool:
        """Whether what stands behind a place may run before it."""
        return any(
            kind in ("while_statement", "for_statement", "function_definition")
            for kind, _ in self._structure.blocks(at)
        )

    def certain(self, start: int, number: int, at: int) -> bool:
        """Whether every run that reaches `at` has passed `start`, which is in command `number`."""
        if start > at:
            return False
        if not self._listed(number, at):
            return False
        around = set(self._structure.blocks(at))
        return all(block in around for block in self._structure.blocks(start))

    def passed(self, start: int, number: int, at: int, status: Status, *, pipe: bool = False) -> bool | None:
        """Say whether a run that reaches `at` has passed `start`; None where it depends on what is not known.

        Args:
            start: the place.
            number: the command it is in.
            at: the later place.
            status: whether a command (by number) succeeds; None where that is not known.
            pipe: whether it counts as well in front of a pipe: a file is written there, a variable is not set.
        """
        around = set(self._structure.blocks(at))
        states = [self._entered(block, start, status) for block in self._structure.blocks(start) if block not in around]
        inside = self._groups[self._user(at)] if self._user(at) >= 0 else ()
        for one in (number, *(group for group in self._groups[number] if group not in inside)):
            runs = self._chain(one, status, pipe=pipe)[0]
            states.append(True if runs is None and one == number and self._listed(number, at) else runs)
        if False in states:
            return False
        return None if None in states else True

    # --- lists: && and ||, groups ------------------------------------------------------------------------------------

    def _user(self, at: int) -> int:
        number = bisect_right(self._starts, at) - 1
        return number if number >= 0 and at <= self._commands[number].end else -1

    def _listed(self, number: int, at: int) -> bool:
        """Whether the list and the groups that a command is in run it before `at` in any case."""
        user = self._user(at)
        inside = self._groups[user] if user >= 0 else ()
        around = [self._commands[group] for group in self._groups[number] if group not in inside]
        if any(group.before in (*_CONDITIONAL, *_PIPES) for group in around):
            return False
        command = self._commands[number]
        if command.before in (*_CONDITIONAL, *_PIPES) or command.after in (*_PIPES, "&"):
            links = {one.before for one in self._commands[number + 1 : user + 1]}
            if command.before in ("||", *_PIPES) or command.after in (*_PIPES, "&") or links - {"&&"}:
                return False
        return True

    @cached_property
    def _groups(self) -> list[tuple[int, ...]]:
        """Of each command the commands that opened the `{ … }` around it, but for one that it opens itself."""
        found: list[tuple[int, ...]] = []
        opened: list[int] = []
        for number, command in enumerate(self._commands):
            marks: list[str] = []
            for word in command.words:
                if word.literal not in RESERVED:
                    break
                marks.append(word.literal)
            for _ in range(marks.count("}")):
                if opened:
                    opened.pop()
            found.append(tuple(opened))
            opened += [number] * marks.count("{")
        return found

    def _chain(self, number: int, status: Status, *, pipe: bool = False) -> tuple[bool | None, bool | None]:
        """Return whether a command of a list runs once the list does, and how the list stands behind it."""
        first = number
        while first and self._commands[first].before in _CONDITIONAL:
            first -= 1
        runs: bool | None = True
        state: bool | None = None
        for one in range(first, number + 1):
            command = self._commands[one]
            into_pipe = command.after in _PIPES and not (pipe and one == number)
            if command.before in _PIPES or into_pipe or command.after == "&":
                return None, None
            if one > first:
                if state is None:
                    return None, None
                runs = state if command.before == "&&" else not state
            state = status(one) if runs else state
        return runs, state

    # --- conditions --------------------------------------------------------------------------------------------------

    def _entered(self, block: Block, start: int, status: Status) -> bool | None:
        """Say whether a block that `start` is in was entered and left its mark outside."""
        kind, opened = block
        if kind in _SUBSHELLS:
            return False
        if kind == "else_clause":
            return True  # its `if` is asked for itself
        if kind not in ("if_statement", "other"):
            return None
        condition = self._condition(opened, start)
        found = self._chain(condition, status)[1] if condition is not None else None
        return found if found is None or kind == "if_statement" else not found

    def _condition(self, opened: int, start: int) -> int | None:
        """Return the last command of the condition of an `if`, or None where it is not that simple."""
        first: int | None = None
        for number, command in enumerate(self._commands):
            heads = list(itertools.takewhile(lambda word: word.literal in RESERVED, command.words))
            if first is None:
                if any(word.literal == "if" and self._structure.byte(word.start) == opened for word in heads):
                    first = number
                continue
            if command.start > start:
                return None
            literals = [word.literal for word in heads]
            if "elif" in literals or "if" in literals[:1]:
                return None
            if "then" in literals[:1]:
                later = self._commands[number : self._user(start) + 1]
                return number - 1 if not any(_opens(one, "elif") for one in later) else None
        return None


def _opens(command: Command, word: str) -> bool:
    return bool(command.words) and command.words[0].literal == word
