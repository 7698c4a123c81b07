# SPDX-License-Identifier: Apache-2.0
"""Secrets of a whole recipe by where they stand in it: what its form says is one, whatever the value looks like.

`secret_forms` knows secrets from the text around them on one line. Here a YAML or JSON tree is walked once: a Secret of
Kubernetes, `name: HF_TOKEN` with its `value`, another service's environment, flags of other programs.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jetson_specdec.recipe.secret_forms import is_secret_name

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe

__all__ = ["in_json", "names_a_secret", "secrets_in"]

MAX_DEPTH = 50
MAX_NODES = 100_000
_WORD = re.compile(r"[A-Za-z]{1,12}|\d{1,7}")
"""Values that might as well be ordinary words."""
_CAMEL = re.compile(
    r"(?:[a-z](?:Token|Password|Passphrase)|(?:client|app|shared)Secret|(?:api|access|secret|auth|private)Key)\Z"
)
_SETTING = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)=(\S[^\n]*)", re.MULTILINE)
_HEADERS = ("authorization", "proxy-authorization", "x-api-key", "api-key", "x-auth-token", "cookie")
_DEFAULT = re.compile(r"\$\{\w+:?[-=+]([^{}$]+)\}\Z")
_FLAG = re.compile(r"--?([\w.-]+)\Z")
_PAIR = re.compile(r"(?:--?)?([\w./-]+)\s*[=:]\s*[\"']?(?:(?i:bearer|basic|token)\s+)?([^\s\"',;]+)")


def secrets_in(recipe: Recipe) -> tuple[str, ...]:
    """Return the secret values that stand literally in a recipe, in its commands and around them.

    A value that is an ordinary word is among them only where the text says it nowhere else; `redact` still masks it
    where it stands as a value.
    """
    from jetson_specdec.recipe.masking import secrets_of

    certain = {value for command in recipe.commands for value in secrets_of(command)}
    for name, text in recipe.beside.items():
        found_there = _of_yaml(text) if name.endswith((".yml", ".yaml")) else _of_settings(text)
        certain.update(value for value in found_there if _WORD.fullmatch(value) is None)
    found: list[str] = []
    if recipe.form in ("compose", "manifest", "config_file"):
        found = list(_of_yaml(recipe.text))
    counts = {value: found.count(value) for value in found}
    for value, count in counts.items():
        if _WORD.fullmatch(value) is None or recipe.text.count(value) <= count:
            certain.add(value)
    return tuple(sorted(value for value in certain if value))


def names_a_secret(name: str) -> bool:
    """Whether a key of a mapping names a secret: `HF_TOKEN`, `auth.token`, `vault.example/secret`, `apiKey`.

    `key` alone says which one of several, as in `secretKeyRef`, and names none.
    """
    last = re.split(r"[./]", name)[-1]
    if last.lower() == "key":
        return False
    return is_secret_name(last) or last.lower() in _HEADERS or _CAMEL.search(last) is not None


def in_json(data: Any, depth: int = 0, seen: set[int] | None = None) -> Iterator[str]:
    """Yield the secret values of plain data (mappings, lists, texts), in reading order; what is shared once."""
    seen = set() if seen is None else seen
    if depth > MAX_DEPTH or id(data) in seen:
        return
    if isinstance(data, (dict, list)):
        seen.add(id(data))
    if isinstance(data, dict):
        name, value = data.get("name"), data.get("value")
        if isinstance(name, str) and isinstance(value, str) and names_a_secret(name):
            yield from _shown(value)
        secret = data.get("kind") == "Secret"
        for key, one in data.items():
            if secret and key in ("data", "stringData") and isinstance(one, dict):
                for each in one.values():
                    yield from _kept(each)
            elif key == "secrets" and isinstance(one, dict):
                for each in one.values():
                    yield from _shown(each.get("content") if isinstance(each, dict) else None)
            elif isinstance(key, str) and names_a_secret(key):
                for each in one if isinstance(one, list) else [one]:
                    yield from _shown(each)
            yield from in_json(one, depth + 1, seen)
    elif isinstance(data, list):
        yield from _of_words(data)
        for one in data:
            yield from in_json(one, depth + 1, seen)
    elif isinstance(data, str):
        yield from _of_text(data, depth)


def _of_text(text: str, depth: int) -> Iterator[str]:
    """Yield what a text of several words, lines or JSON holds."""
    stripped = text.strip()
    if stripped[:1] in ("{", "[") and len(stripped) > 4:
        try:
            data = json.loads(stripped)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, (dict, list)):
            yield from in_json(data, depth + 1)
            return
    if not re.search(r"\s", stripped):
        name, equals, value = stripped.partition("=")
        if equals and names_a_secret(name.lstrip("-")):
            yield from _shown(value)
        return
    yield from _of_words(stripped.split())
    for match in _PAIR.finditer(stripped):
        if names_a_secret(match[1]):
            yield from _shown(match[2])


def _of_words(words: Sequence[Any]) -> Iterator[str]:
    """Yield what stands behind a flag that takes a secret."""
    for flag, value in itertools.pairwise(words):
        if not isinstance(flag, str) or not isinstance(value, str) or value.startswith("-"):
            continue
        named = _FLAG.match(flag)
        # `--secret NAME` of a container engine names one
        if named and named[1] != "secret" and names_a_secret(named[1]):
            yield from _shown(value.strip("\"'"))


def _shown(value: Any) -> Iterator[str]:
    """Yield a secret as the text may hold it: each line of its own; of a reference its default only."""
    if not isinstance(value, str):
        return
    default = _DEFAULT.match(value.strip())
    if default:
        yield default[1]
    if value.lstrip().startswith("$"):
        return
    for line in value.splitlines():
        if line.strip():
            yield line.strip()


def _kept(value: Any) -> Iterator[str]:
    """Yield a value of a Secret, and what it decodes to."""
    yield from _shown(value)
    if isinstance(value, str):
        import base64

        try:
            plain = base64.b64decode("".join(value.split()), validate=True).decode()
        except ValueError:
            return
        yield from _shown(plain)


def _of_settings(text: str) -> Iterator[str]:
    """Yield the secrets of a file that was read with a recipe: `NAME=value` as written, and without its quotes."""
    from jetson_specdec.recipe.dotenv import read_env

    found = [value for name, value in read_env(text, "unit").items() if value and names_a_secret(name)]
    for match in _SETTING.finditer(text):
        if names_a_secret(match[1]):
            found += [match[2].strip(), match[2].strip().strip("\"'")]
    yield from (value for value in found if value)


# --- from text -------------------------------------------------------------------------------------------------------


def _of_yaml(text: str) -> Iterator[str]:
    from jetson_specdec.errors import RecipeError
    from jetson_specdec.recipe.yaml_tree import documents, is_scalar, walk

    try:
        roots = documents(text, "the recipe")
        plain = [_plain(root, {}) for root in roots]
    except (RecipeError, RecursionError):
        return
    for root, data in zip(roots, plain, strict=True):
        found = list(in_json(data))
        yield from found
        # Escapes and folded lines: as written, where that differs.
        values = set(found)
        for node in walk(root):
            if is_scalar(node) and node.value.strip() in values:
                written = text[node.start_mark.index : node.end_mark.index].strip("\"'| >-\r\n\t")
                yield from _written(written, node.value)


def _written(written: str, value: str) -> Iterable[str]:
    if written == value or "\n" in value.strip():
        return ()
    return [line.strip() for line in written.splitlines() if len(line.strip()) > 3]


def _plain(node: Any, made: dict[int, Any]) -> Any:
    """Return a YAML tree as plain data, every scalar as its text; what an anchor shares stays shared."""
    from jetson_specdec.recipe.yaml_tree import entries, is_list, is_map, is_scalar, items, value_of

    if id(node) in made or len(made) > MAX_NODES:
        return made.get(id(node))
    if is_map(node):
        data: dict[str, Any] = {}
        made[id(node)] = data
        data.update((key, _plain(value, made)) for key, value in entries(node).items())
        return data
    if is_list(node):
        things: list[Any] = []
        made[id(node)] = things
        things += [_plain(one, made) for one in items(node)]
        return things
    return value_of(node) if is_scalar(node) else None
