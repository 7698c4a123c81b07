# SPDX-License-Identifier: Apache-2.0
"""Python programs that start vLLM: `LLM(model=…, speculative_config=…)`. Read and explained, never changed."""

from __future__ import annotations

import ast
import json
import warnings
from collections.abc import Iterator
from typing import Any

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Arg, Recipe, ServeCommand

__all__ = ["parse_python"]

_CALLS = ("LLM", "AsyncLLM", "EngineArgs", "AsyncEngineArgs")
_HINT = 'speculative_config={"method": …, "model": …, "num_speculative_tokens": …}'
MAX_CALLS = 100


def parse_python(text: str, *, path: str | None = None) -> Recipe:
    """Find the calls that make an engine; each becomes a command whose words are its keyword arguments as flags.

    A value that is no literal is looked up where the program assigns the name once, at its top level; otherwise it is
    not known. No code is run.

    Raises:
        RecipeSyntaxError: no Python (JSE241), or no such call in it (JSE242).
    """
    where = path or "the recipe"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.lstrip("\ufeff").encode("utf-8", "replace").decode("utf-8"))
    except SyntaxError as error:
        raise RecipeSyntaxError("JSE241", where=where, line=error.lineno, reason=error.msg) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise RecipeSyntaxError("JSE241", where=where, line=None, reason=str(error)[:100]) from None
    places = _Places(text)
    constants = _constants(tree)
    calls = sorted(_calls(tree), key=lambda call: (call.lineno, call.col_offset))[:MAX_CALLS]
    if not calls:
        raise RecipeSyntaxError("JSE242", where=where)
    commands = tuple(_command(index, call, places, constants) for index, call in enumerate(calls))
    findings: tuple[Finding, ...] = ()
    if len(commands) > 1:
        findings = (Finding.of("JSD200", count=len(commands), lines=[command.line for command in commands]),)
    return Recipe(text=text, form="python", path=path, commands=commands, findings=findings)


class _Places:
    """From line and byte column, as `ast` counts, to a place in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._skip = len(text) - len(text.lstrip("\ufeff"))
        # as Python's own tokenizer does, and unlike str.splitlines: form feeds and the like end no line
        self._lines = text[self._skip :].replace("\r\n", "\r\0").replace("\r", "\n").split("\n")
        self._starts = [self._skip]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)

    def at(self, line: int | None, column: int | None) -> int:
        row = min(max((line or 1) - 1, 0), len(self._lines) - 1)
        body = self._lines[row]
        extra = 1 if body.startswith("\0") else 0
        before = body[extra:].encode("utf-8", "replace")[: column or 0]
        return min(self._starts[row] + extra + len(before.decode("utf-8", "replace")), len(self.text))

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)
        if name in _CALLS:
            yield node


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return names that are assigned exactly once, at the top level, to a literal."""
    stores: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stores[node.id] = stores.get(node.id, 0) + 1
    found: dict[str, Any] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and stores.get(target.id) == 1:
                try:
                    found[target.id] = ast.literal_eval(statement.value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
    return found


def _command(index: int, call: ast.Call, places: _Places, constants: dict[str, Any]) -> ServeCommand:
    args: list[Arg] = []
    if call.args:
        args += _words(None, call.args[0], places, constants)
    for keyword in call.keywords:
        args += _words(keyword, keyword.value, places, constants)
    start, end = places.span(call)
    line = call.lineno
    blocked = Finding.of("JSD292", line=line, type=_HINT)
    return ServeCommand(
        index=index,
        serve_form="other",
        args=tuple(args),
        serve_words=(places.text[start : places.at(call.func.end_lineno, call.func.end_col_offset)],),
        start=start,
        end=end,
        line=line,
        wrapped_in=("python",),
        blocked=blocked,
        findings=(blocked,),
    )


def _words(keyword: ast.keyword | None, value: ast.expr, places: _Places, constants: dict[str, Any]) -> list[Arg]:
    start, end = places.span(value)
    raw = places.text[start:end]
    if keyword is not None and keyword.arg is None:  # **options
        short = _named(value)
        return [Arg(value=None, raw=f"**{short}", start=start, end=end, unresolved=(short,), splices=True)]
    known, content, names = _literal(value, constants)
    flag: list[Arg] = []
    if keyword is not None and keyword.arg is not None:
        name = keyword.arg.replace("_", "-")
        where = places.at(keyword.lineno, keyword.col_offset)
        stop = where + len(keyword.arg)
        if known and content is None:
            return []
        off = known and content is False
        flag = [Arg(value=f"--no-{name}" if off else f"--{name}", raw=places.text[where:stop], start=where, end=stop)]
        if known and isinstance(content, bool):
            return flag
    if not known:
        # Not as written: half of an expression may look like the JSON that it is not, or hold a secret.
        short = _named(value)
        return [*flag, Arg(value=None, raw=f"<{short}>", start=start, end=end, unresolved=(short,))]
    shown = content if isinstance(content, str) else json.dumps(content, default=str)
    return [*flag, Arg(value=shown, raw=raw, start=start, end=end, resolved_from=names)]


def _named(value: ast.expr) -> str:
    if isinstance(value, ast.Name):
        return value.id
    if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
        return f"{value.value.id}.{value.attr}"
    return "an expression"


def _literal(value: ast.expr, constants: dict[str, Any]) -> tuple[bool, Any, tuple[str, ...]]:
    """Return whether a value is known, the value, and the names it went through."""
    if isinstance(value, ast.Name):
        return value.id in constants, constants.get(value.id), (value.id,)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict" and not value.args:
        pairs = {one.arg: _literal(one.value, constants) for one in value.keywords}
        good = all(name is not None and known for name, (known, _, _) in pairs.items())
        return good, {name: content for name, (_, content, _) in pairs.items()}, ()
    try:
        return True, ast.literal_eval(value), ()
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None, ()
