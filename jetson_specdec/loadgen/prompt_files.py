# SPDX-License-Identifier: Apache-2.0
"""The forms in which prompt files come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from jetson_specdec.errors import OptionError
from jetson_specdec.loadgen.prompts import Prompt, PromptSet

__all__ = ["parse_prompts", "read_prompt_file"]

_SPEED_BENCH = ("qualitative.jsonl",)
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def read_prompt_file(path: Path) -> PromptSet:
    """Read a file, or a folder with SPEED-Bench.

    Raises:
        OptionError: it cannot be read, or has no prompts in a known form.
    """
    file = path
    if path.is_dir():
        file = next((path / name for name in _SPEED_BENCH if (path / name).is_file()), path)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError("JSE672", path=str(file), reason=str(error)) from error
    return PromptSet(name=file.name, prompts=parse_prompts(text, where=str(file)))


def parse_prompts(text: str, *, where: str) -> tuple[Prompt, ...]:
    """Return the prompts in a JSON or JSON Lines text; entries without one are left out.

    Raises:
        OptionError: it is neither, or no entry holds a prompt.
    """
    prompts: list[Prompt] = []
    seen: set[str] = set()
    for number, entry in _entries(text, where):
        prompt = _prompt(entry, number)
        if prompt is None or prompt.id in seen:
            continue
        seen.add(prompt.id)
        prompts.append(prompt)
    if not prompts:
        raise OptionError("JSE674", path=where)
    return tuple(prompts)


def _entries(text: str, where: str) -> Iterator[tuple[int, Any]]:
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise OptionError("JSE673", path=where, line=1, reason=str(error)) from error
        yield from enumerate(data, 1)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            raise OptionError("JSE673", path=where, line=number, reason=str(error)) from error


def _prompt(entry: Any, number: int) -> Prompt | None:
    if isinstance(entry, str):
        return _make(entry, {}, number)
    if not isinstance(entry, Mapping):
        return None
    conversation = entry.get("messages") or entry.get("conversations")
    if isinstance(conversation, list):
        return _of_conversation(conversation, entry, number)
    turns = entry.get("turns")
    if isinstance(turns, list) and turns and isinstance(turns[0], str):
        return _make(turns[0], entry, number)  # the later turns answer to answers that do not exist yet
    for key in ("prompt", "text", "question", "instruction"):
        value = entry.get(key)
        if isinstance(value, str) and value.strip():
            return _make(value, entry, number)
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return _of_conversation(value, entry, number)
    return None


def _of_conversation(messages: list[Any], entry: Mapping[str, Any], number: int) -> Prompt | None:
    turns: list[dict[str, str]] = []
    for message in messages:
        if not isinstance(message, Mapping):
            return None
        role = _ROLES.get(str(message.get("role") or message.get("from")))
        content = message.get("content", message.get("value"))
        if role is None or not isinstance(content, str):
            return None
        if role == "user":
            return _make(content, entry, number, turns=tuple(turns))
        if role == "system":
            turns.append({"role": role, "content": content})
        else:
            return None  # a conversation that begins with an answer
    return None


def _make(text: str, entry: Mapping[str, Any], number: int, *, turns: tuple[dict[str, str], ...] = ()) -> Prompt | None:
    if not text.strip():
        return None
    given = next((entry[key] for key in ("id", "question_id", "prompt_id") if entry.get(key) is not None), None)
    category, language, length = entry.get("category"), entry.get("language"), entry.get("approx_tokens")
    return Prompt(
        id=str(given) if given is not None else f"{number}-{sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}",
        text=text,
        category=str(category) if category is not None else None,
        language=str(language) if language is not None else None,
        approx_tokens=length if isinstance(length, int) else None,
        turns=turns,
    )
