# SPDX-License-Identifier: Apache-2.0
"""How models are called: repository ids, folders named after them, and names that were meant differently."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

__all__ = [
    "close_ids",
    "folder_names",
    "id_in_cache_path",
    "is_gguf",
    "is_path",
    "is_repository_id",
    "is_uri",
    "says_mixture_of_experts",
]

# Words that people add to a name although the repository has none of them.
_HABITUAL: Final = frozenset({"instruct", "chat", "it", "hf"})
_CLOSE: Final = 0.8


@cache
def _pattern(name: str) -> re.Pattern[str]:
    patterns = {
        # The Hub's rule: letters, digits, `-`, `_` and `.`; neither part starts with `.` or `-`.
        "id": r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*",
        # huggingface_hub's cache: one folder a repository, `/` written as `--`.
        "cache": r"(?:^|/)models--([A-Za-z0-9_][A-Za-z0-9_.-]*?)--([A-Za-z0-9_][A-Za-z0-9_.-]*)(?=/|$)",
        "gguf": r"\.gguf$|[-_.]gguf(?:$|[:/])|:(?:I?Q\d\w*|F16|BF16|F32)$",
        "uri": r"^[a-z][a-z0-9+.-]*://",
        "word": r"[a-z]+",
        "moe": r"\d[bm]-a\d+(?:\.\d+)?[bm](?![a-z])|\d+x\d+(?:\.\d+)?b(?![a-z])|b-\d+e(?![a-z])"
        r"|(?<![a-z])o?l?moe(?![a-z])|-moe-|gpt-oss|mixtral|deepseek-(?:v[234]|r1(?!-distill))|kimi-k\d|minimax-m\d|glm-4\.[567]",
    }
    return re.compile(patterns[name], re.IGNORECASE if name in ("gguf", "moe") else 0)


def is_repository_id(text: str) -> bool:
    """Whether a text has the form `organisation/name`."""
    return _pattern("id").fullmatch(text) is not None and ".." not in text and "--" not in text


def is_path(text: str) -> bool:
    """Whether a text can only be a path: absolute, below a folder (`./`, `../`) or below a home folder (`~`)."""
    return text.startswith(("/", ".", "~"))


def is_gguf(text: str) -> bool:
    """Whether a text names a GGUF file or a repository of them."""
    return _pattern("gguf").search(text) is not None


def is_uri(text: str) -> bool:
    """Whether a text is an address such as `s3://bucket/model`."""
    return _pattern("uri").match(text) is not None


def id_in_cache_path(path: str) -> str | None:
    """Return the repository id of a folder in a Hugging Face cache, or None.

    >>> id_in_cache_path("/data/hub/models--Qwen--Qwen3-8B/snapshots/0f3a")
    'Qwen/Qwen3-8B'
    """
    found = list(_pattern("cache").finditer(path))
    return f"{found[-1][1]}/{found[-1][2]}" if found else None


def folder_names(path: str) -> tuple[str | None, str | None]:
    """Return what the end of a path would mean as `organisation/name` and as a bare name; None where it has no such.

    ModelScope writes a dot as three underscores.

    >>> folder_names("./store/Qwen/Qwen2___5-7B-Instruct/")
    ('Qwen/Qwen2.5-7B-Instruct', 'Qwen2.5-7B-Instruct')
    """
    parts = [
        part.replace("___", ".") for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..", "~")
    ]
    bare = parts[-1] if parts else None
    pair = "/".join(parts[-2:]) if len(parts) > 1 else None
    return (pair if pair is not None and is_repository_id(pair) else None), bare


def close_ids(id: str, known: Iterable[str], *, limit: int = 3) -> tuple[str, ...]:
    """Return the known ids that a misspelt one probably meant, closest first.

    A misspelling garbles or drops parts of a name. It does not change a number (sizes and versions tell models apart)
    and it adds no word of its own, so that `…-Coder-7B` is not taken for `…-7B`.
    """
    from difflib import SequenceMatcher

    lowered = id.lower()
    digits = _digits(lowered)
    scored = []
    for candidate in known:
        other = candidate.lower()
        if _digits(other) != digits:
            continue
        # A habitual word that the candidate lacks does not count against it.
        compared = "-".join(p for p in lowered.split("-") if p not in _HABITUAL or p in other.split("-"))
        matcher = SequenceMatcher(None, other, compared, autojunk=False)
        if matcher.real_quick_ratio() < _CLOSE or matcher.quick_ratio() < _CLOSE:
            continue
        score = matcher.ratio()
        if score >= _CLOSE and not _adds_a_word(compared, other):
            scored.append((-score, candidate))
    return tuple(candidate for _, candidate in sorted(scored)[:limit])


def _digits(text: str) -> str:
    return "".join(character for character in text if character.isdigit())


def _adds_a_word(text: str, other: str) -> bool:
    from difflib import SequenceMatcher

    words = [word for word in _pattern("word").findall(text) if len(word) > 1]
    theirs = _pattern("word").findall(other)
    return any(all(SequenceMatcher(None, word, their).ratio() < 0.7 for their in theirs) for word in words)


def says_mixture_of_experts(id: str) -> bool | None:
    """Whether a name says that the model is a mixture of experts; None where it says nothing either way.

    Publishers write the active parameters (`30B-A3B`), the experts (`8x7B`, `17B-16E`), or the word itself.

    >>> says_mixture_of_experts("Qwen/Qwen3-Next-80B-A3B-Instruct-FP8")
    True
    """
    name = id.partition("/")[2] or id
    return True if _pattern("moe").search(name) is not None else None
