# SPDX-License-Identifier: Apache-2.0
"""systemd units: service units, drop-ins that set `ExecStart=` anew, and Podman's `.container` files.

Rules: systemd.syntax(7), systemd.service(5), systemd.exec(5), podman-systemd.unit(5). Pure; environment files are read
by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.chars import HOLE, Char, text_of, written
from jetson_specdec.recipe.core import Recipe
from jetson_specdec.recipe.dotenv import read_env
from jetson_specdec.recipe.embedded import Located, Place, Word, line_of, locate, moved, recipe_of
from jetson_specdec.recipe.embedded_notes import commented_alternatives
from jetson_specdec.recipe.masking import redact
from jetson_specdec.recipe.shell_docker import mount_of
from jetson_specdec.recipe.shell_launch import Launch
from jetson_specdec.recipe.shell_script import Field
from jetson_specdec.recipe.unit_files import UnitFile, unit_files
from jetson_specdec.recipe.unit_words import split_unit, unit_words

__all__ = ["parse_unit", "unit_recipe"]

MAX_CHARACTERS = 256 * 1024
_SECTION = re.compile(r"\[([^\]]*)\]")
_PREFIXES = "@-:+!|"
_SHELL_WORD = re.compile(r"(?:\|\|?|&&?|;|\d*[<>]+&?\d*)\Z|.*(?:\$\(|`)")


def parse_unit(text: str, *, path: str | None = None, read: Callable[[str], str | None] | None = None) -> Recipe:
    """Find the serve commands of a unit.

    Args:
        text: the file.
        path: where it was read from.
        read: returns the text of an `EnvironmentFile=` or of another file of the unit, or None; see `unit_files`.

    Raises:
        RecipeSyntaxError: it is too long (JSE201), or nothing in it starts an engine (JSE240).
    """
    return unit_recipe(text, path=path, read=read or (lambda name: None))[0]


def unit_recipe(text: str, *, path: str | None, read: Callable[[str], str | None]) -> tuple[Recipe, list[Located]]:
    """Return the recipe, and where the words of its commands are written."""
    where = path or "the recipe"
    if len(text) > MAX_CHARACTERS:
        raise RecipeSyntaxError("JSE201", characters=len(text), limit=MAX_CHARACTERS)
    located, others = _read(unit_files(text, path, read), read=read)
    if not located:
        raise RecipeSyntaxError("JSE240", where=where, form="a systemd unit", found=others[:8])
    return recipe_of(text, "unit", path, located), located


class _Setting(NamedTuple):
    section: str
    key: str
    chars: tuple[Char, ...]
    start: int
    end: int
    blanks: int
    """Where blanks stand behind a backslash at the end of a line, or -1."""
    file: UnitFile


def _settings(file: UnitFile) -> Iterator[_Setting]:
    """Yield the assignments of a unit, continuation lines joined and comment lines between them left out."""
    section, at, text = "", 0, file.text
    while at < len(text):
        end = _line_end(text, at)
        line = text[at:end]
        stripped = line.strip()
        if not stripped or stripped[0] in "#;":
            at = end + 1
            continue
        head = _SECTION.match(stripped)
        if head:
            section, at = head[1], end + 1
            continue
        chars: list[Char] = []
        blanks = -1
        while True:
            first = at + len(text[at:end]) - len(text[at:end].lstrip(" \t"))
            last = end - 1 if text[end - 1 : end] == "\r" and end > first else end
            more = _continues(text[first:last])
            stop = last - 1 if more else last
            chars += [Char(text[place], place, place + 1, ()) for place in range(first, stop)]
            body = text[first:last].rstrip(" \t")
            if body.endswith("\\") and len(body) < last - first:
                blanks = first + len(body)
            following = _next_line(text, end + 1) if more else None
            if following is None:
                break
            chars.append(Char(" ", stop, end + 1, ()))
            at, end = following, _line_end(text, following)
        key, equals, _ = text_of(chars).partition("=")
        if equals:
            value = chars[len(key) + 1 :]
            while value and value[0].text in " \t":
                value.pop(0)
            while value and value[-1].text in " \t\r":
                value.pop()
            begin = chars[0].start
            stop = value[-1].end if value else min(end, len(text))
            yield _Setting(section, key.strip(), tuple(value), begin, stop, blanks, file)
        at = end + 1


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _continues(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _next_line(text: str, at: int) -> int | None:
    """Return where the line that goes on begins: comment lines are skipped."""
    while at < len(text):
        end = _line_end(text, at)
        if text[at:end].lstrip(" \t")[:1] not in ("#", ";"):
            return at
        at = end + 1
    return None


class _Unit:
    """What the settings of a unit amount to."""

    def __init__(self, files: Sequence[UnitFile], read: Callable[[str], str | None]) -> None:
        self.env: dict[str, str | None] = {}
        self.commands: list[_Setting] = []
        self.unread: list[str] = []
        self.options: dict[str, list[str]] = {}
        from_files: dict[str, str | None] = {}
        self.own: _Setting | None = None
        for setting in (setting for file in files for setting in _settings(file)):
            if setting.file.name is None and (self.own is None or setting.key in ("ExecStart", "Exec")):
                self.own = setting
            if setting.section not in ("Service", "Container"):
                continue
            if setting.key in ("ExecStart", "Exec"):
                self.commands = [*self.commands, setting] if setting.chars else []
            elif setting.key == "Environment":
                self.env = {**self.env, **self._pairs(setting)} if setting.chars else {}
            elif setting.key == "EnvironmentFile":
                name = text_of(setting.chars).lstrip("-")
                content = read(name) if name else None
                if content is None and "/" in name:
                    # a unit kept in a repository, with its files beside it
                    content = read(name.rpartition("/")[2])
                if content is None:
                    self.unread += [name] if name else []
                else:
                    from_files.update(read_env(content, "unit"))
            else:
                self.options.setdefault(setting.key, []).append(text_of(setting.chars))
        self.env = {**self.env, **from_files}
        self._read = read

    def read(self, name: str) -> str | None:
        """Return the text of a file that a command of the unit names, or None."""
        if not name.startswith("/"):
            folder = self.last("WorkingDirectory") or "/"
            name = f"{folder.rstrip('/')}/{name.removeprefix('./')}"
        # as above, for a unit kept in a repository
        content = self._read(name)
        return content if content is not None else self._read(name.rpartition("/")[2])

    def opens(self, one: Field) -> tuple[str, str | None] | None:
        """Return name and text of the file that a word names; None where that is not certain."""
        return None if one.value is None else (one.value, self.read(one.value))

    def _pairs(self, setting: _Setting) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for word in unit_words(setting.file.text, split_unit(setting.chars), {}, expand=False):
            shown = written(word.chars, setting.file.text)
            name, equals, value = shown.partition("=")
            if equals:
                found[name] = value if word.value is not None else None
        return found

    def last(self, key: str) -> str | None:
        """Return the last value of an option, or None."""
        return next((value for value in reversed(self.options.get(key, [])) if value), None)


def _read(files: Sequence[UnitFile], *, read: Callable[[str], str | None]) -> tuple[list[Located], list[str]]:
    """Return the serve commands with their places, and what else the unit starts."""
    unit = _Unit(files, read)
    own = next(file.text for file in files if file.name is None)
    others_read = [file.name for file in files if file.name is not None]
    together = (Finding.of("JSD224", files=others_read),) if others_read else ()
    located: list[Located] = []
    others: list[str] = []
    for setting in unit.commands:
        text = setting.file.text
        found = _command(text, setting, unit, others)
        comments = commented_alternatives(text, 0, len(text), ()) if found and setting.file.name is None else ()
        for one in found:
            if setting.file.name is not None:
                one = _of_other_file(one, setting, unit.own, own)
            findings = (*one.command.findings, *comments, *together)
            located.append(attrs.evolve(one, command=attrs.evolve(one.command, findings=findings)))
    if not unit.commands and unit.last("Image"):
        others.append(f"container of {unit.last('Image')}")
    return located, others


def _of_other_file(one: Located, setting: _Setting, own: _Setting | None, text: str) -> Located:
    """Return a command that stands in another file of the unit as one that is read here and changed there."""
    start, end = (own.start, own.end) if own is not None else (0, 0)
    line = line_of(text, start)
    at = line_of(setting.file.text, setting.start)
    blocked = Finding.of("JSD225", line=line, file=setting.file.name, at=at)
    args = tuple(attrs.evolve(arg, start=start, end=end) for arg in one.command.args)
    findings = [moved(finding, lambda _: line) for finding in one.command.findings]
    command = attrs.evolve(
        one.command, args=args, start=start, end=end, line=line, blocked=blocked, findings=(*findings, blocked)
    )
    return Located(command=command)


def _command(text: str, setting: _Setting, unit: _Unit, others: list[str]) -> list[Located]:
    line = line_of(text, setting.start)
    chars = setting.chars
    prefix = 0
    quadlet = setting.section == "Container"
    while not quadlet and prefix < len(chars) and chars[prefix].text in _PREFIXES:
        prefix += 1
    marks = text_of(chars[:prefix])
    split = split_unit(chars[prefix:])
    findings: list[Finding] = []
    if split.unclosed >= 0:
        findings.append(Finding.of("JSD230", line=line_of(text, split.unclosed)))
    if setting.blanks >= 0:
        findings.append(Finding.of("JSD204", line=line_of(text, setting.blanks)))
    words = unit_words(text, split, unit.env, expand=":" not in marks)
    if "@" in marks and len(words) > 1:
        words = [words[0], *words[2:]]  # the second word is what the program is told its own name is
    image = unit.last("Image") if quadlet else None
    launch = Launch(
        launcher="podman" if quadlet else "systemd",
        image=image,
        env=unit.env,
        workdir=None if quadlet else unit.last("WorkingDirectory"),
        read=None if quadlet else unit.read,
        opens=None if quadlet else unit.opens,
    )
    if quadlet:
        mounts = tuple(mount for one in unit.options.get("Volume", ()) if (mount := mount_of(one)))
        launch = attrs.evolve(launch, mounts=mounts, ports=tuple(unit.options.get("PublishPort", ())))
    found: list[Located] = []
    for part in _parts(words):
        place = Place(
            launch=launch,
            start=setting.start,
            end=setting.end,
            container=quadlet,
            findings=(*findings, *_noticed(text, part, unit, line)),
        )
        starts = locate(text, None, part, place)
        found += starts
        if not starts and part:
            others.append(redact(" ".join(written(word.chars, text) for word in part[:2])[:80])[0])
    return found


def _parts(words: Sequence[Word]) -> list[list[Word]]:
    """Split at a `;` of its own, which begins another command."""
    parts: list[list[Word]] = [[]]
    for word in words:
        if word.value == ";" and word.end - word.start == 1:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _noticed(text: str, words: Sequence[Word], unit: _Unit, line: int) -> list[Finding]:
    findings: list[Finding] = []
    for word in words[1:]:
        value = word.value or ""
        if word.style == "bare" and _SHELL_WORD.match(value):
            findings.append(Finding.of("JSD231", line=line_of(text, word.start), word=value[:40]))
    unknown = any(char.text == HOLE for word in words for char in word.chars)
    if unknown and unit.unread:
        findings.append(Finding.of("JSD237", line=line, files=unit.unread))
    return findings
