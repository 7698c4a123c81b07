# SPDX-License-Identifier: Apache-2.0
"""One service of a compose file: its words, image, environment, mounts and ports, variables replaced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.chars import ELSEWHERE, HOLE, Char, Layers, text_of, written
from jetson_specdec.recipe.compose_vars import InvalidTemplateError, interpolate
from jetson_specdec.recipe.compose_words import Split, split_words
from jetson_specdec.recipe.core import Mount
from jetson_specdec.recipe.dotenv import read_env
from jetson_specdec.recipe.embedded import Word, line_of
from jetson_specdec.recipe.shell_docker import mount_of
from jetson_specdec.recipe.yaml_scalar import decode, is_text, scalar_start, scalar_style
from jetson_specdec.recipe.yaml_tree import entries, is_list, is_map, is_scalar, items, value_of

__all__ = ["ServiceReader", "whole"]


def whole(text: str, node: Any) -> list[Char]:
    """Return a scalar's characters; where its spelling cannot be followed they all stand for the whole scalar."""
    chars = decode(text, node)
    if chars is not None:
        return chars
    start, end = scalar_start(text, node), node.end_mark.index
    return [Char(sign, start, end, ELSEWHERE) for sign in node.value]


class ServiceReader:
    """Reads the parts of services.

    Attributes:
        findings: what was noticed since the last `take`.
    """

    def __init__(self, text: str, known: Mapping[str, str | None], read: Callable[[str], str | None]) -> None:
        self.text = text
        self.known = known
        self._read = read
        self.findings: list[Finding] = []

    def take(self) -> tuple[Finding, ...]:
        """Return the findings and forget them."""
        found = tuple(self.findings)
        self.findings = []
        return found

    def chars(self, node: Any) -> list[Char]:
        """Return a scalar's characters with variables replaced."""
        chars = whole(self.text, node)
        try:
            return interpolate(chars, self.known)
        except InvalidTemplateError as error:
            self.findings.append(
                Finding.of("JSD294", line=line_of(self.text, node.start_mark.index), written=str(error))
            )
            return chars

    def shown(self, node: Any) -> tuple[str | None, str]:
        """Return a scalar's value (None where it is not known), and the same for showing."""
        if value_of(node) is None:
            return None, ""
        chars = self.chars(node)
        shown = written(chars, self.text)
        return (None if any(char.text == HOLE for char in chars) else shown), shown

    # --- words -------------------------------------------------------------------------------------------------------

    def words(self, node: Any) -> list[Word] | None:
        """Return the words of a `command` or `entrypoint`; None where it is not given."""
        if is_list(node):
            return [self._item(one, node) for one in items(node) if is_scalar(one)]
        if value_of(node) is None:
            return None
        return self._split(node)

    def _item(self, node: Any, parent: Any) -> Word:
        if not is_text(node):
            line = line_of(self.text, node.start_mark.index)
            self.findings.append(Finding.of("JSD296", line=line, written=str(node.value)))
        return Word(
            chars=tuple(self.chars(node)),
            start=scalar_start(self.text, node),
            end=node.end_mark.index,
            style=scalar_style(node),
            outer=("dollar",),
            node=node,
            parent=parent,
        )

    def _split(self, node: Any) -> list[Word]:
        chars = self.chars(node)
        split = split_words(chars)
        if split.problem:
            self._report(split, chars, node)
        outer: Layers = next((char.layers for char in chars if char.layers != ELSEWHERE), ELSEWHERE)
        places = [(chars[word.first].start, chars[word.last].end) for word in split.words]
        made: list[Word] = []
        for number, (word, (start, end)) in enumerate(zip(split.words, places, strict=True)):
            before = places[number - 1] if number else (0, 0)
            after = places[number + 1] if number + 1 < len(places) else (len(self.text) + 1, 0)
            raw = self.text[start:end]
            style = {"'": "single", '"': "double"}.get(raw[-1:], "bare") if word.quoted else "bare"
            made.append(
                Word(
                    chars=word.chars,
                    start=start,
                    end=end,
                    style=style,
                    outer=outer,
                    node=node,
                    splices=any(char.text == HOLE and not char.quoted for char in word.chars),
                    shared=start < before[1] or after[0] < end,
                )
            )
        return made

    def _report(self, split: Split, chars: Sequence[Char], node: Any) -> None:
        place = chars[split.at].start if chars else node.start_mark.index
        line = line_of(self.text, place)
        sign = text_of(chars[split.at : split.at + 1])
        code = {"stop": "JSD291", "parenthesis": "JSD298", "quote": "JSD297"}[split.problem]
        self.findings.append(Finding.of(code, line=line, sign=sign))

    # --- surroundings ------------------------------------------------------------------------------------------------

    def environment_of_files(self, service: Mapping[str, Any]) -> dict[str, str | None]:
        """Return what the `env_file`s of a service set."""
        env: dict[str, str | None] = {}
        for name in self.files(service.get("env_file")):
            content = self._read(name)
            env.update(read_env(content) if content is not None else {})
        return env

    def environment(self, service: Mapping[str, Any]) -> dict[str, str | None]:
        """Return what the `environment` of a service sets."""
        env: dict[str, str | None] = {}
        node = service.get("environment")
        if is_map(node):
            env.update({name: self.shown(value)[0] for name, value in entries(node).items()})
        for one in items(node):
            if not is_scalar(one):
                continue
            value, shown = self.shown(one)
            name, equals, rest = shown.partition("=")
            env[name] = rest if equals and value is not None else self.known.get(name) if not equals else None
        return env

    def files(self, node: Any) -> list[str]:
        """Return the names in an `env_file`."""
        found: list[str] = []
        for one in items(node) or [node]:
            given = entries(one).get("path") if is_map(one) else one
            value, _ = self.shown(given)
            if value:
                found.append(value)
        return found

    def mounts(self, node: Any) -> tuple[Mount, ...]:
        """Return the mounts of `volumes`."""
        found: list[Mount] = []
        for one in items(node):
            if is_scalar(one):
                mount = mount_of(self.shown(one)[1])
                found += [mount] if mount else []
                continue
            keys = {name: self.shown(value)[1] for name, value in entries(one).items() if is_scalar(value)}
            if keys.get("target"):
                host = keys.get("source") if keys.get("type", "volume") == "bind" else None
                read_only = keys.get("read_only", "").lower() == "true"
                found.append(Mount(host=host, container=keys["target"], read_only=read_only))
        return tuple(found)

    def ports(self, node: Any) -> tuple[str, ...]:
        """Return the published ports as they would be written in short form."""
        found: list[str] = []
        for one in items(node):
            if is_scalar(one):
                found.append(self.shown(one)[1])
                continue
            keys = {name: self.shown(value)[1] for name, value in entries(one).items() if is_scalar(value)}
            if keys.get("target"):
                found.append(f"{keys['published']}:{keys['target']}" if keys.get("published") else keys["target"])
        return tuple(found)
