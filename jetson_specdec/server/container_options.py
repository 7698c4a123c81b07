# SPDX-License-Identifier: Apache-2.0
"""The options of a `docker run` as they stand in the text, and which of them stand in the way of watching it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import ServeCommand
    from jetson_specdec.recipe.shell_find import Found

__all__ = ["LABEL", "ContainerRun", "read_container_run"]

LABEL = "jetson-specdec.run"
"""Label of the containers that were started here."""

_TERMINAL = ("-t", "--tty")
_DETACHED = ("-d", "--detach")


@frozen(kw_only=True)
class Place:
    """An option in the text: its name, its value as written, and where both stand.

    `cluster` are the letters of `-it`; `joined` says that an option with a value follows in the same word (`-itp …`).
    """

    name: str
    start: int
    end: int
    value: str | None = None
    cluster: str | None = None
    joined: bool = False


@frozen(kw_only=True)
class ContainerRun:
    """A `docker run` or `docker exec`.

    Attributes:
        program: `docker`, `podman`, `nerdctl` or `jetson-containers`.
        verb: `run` or `exec`; `verb_end` is where its word ends.
        name: the container's name, or None where it gets one.
        name_unresolved: whether the name depends on something the text does not tell.
        options: every option, in order.
        sudo: where a plain `sudo` in front stands, or None.
    """

    program: str
    verb: str
    verb_end: int
    options: tuple[Place, ...] = ()
    name: str | None = None
    name_unresolved: bool = False
    sudo: tuple[int, int] | None = None

    @property
    def host_network(self) -> bool:
        """Whether it uses the network of the machine."""
        return any(one.name in ("--network", "--net") and one.value == "host" for one in self.options) or (
            # jetson-containers adds `--network host` by itself (its run.sh).
            self.program == "jetson-containers"
        )

    def cuts(self, own_name: str, *, allow_sudo: bool) -> list[tuple[int, int, str]]:
        """Return what to change in the text: (start, end, replacement)."""
        found: list[tuple[int, int, str]] = []
        for one in self.options:
            if one.cluster is not None:
                left = "".join(letter for letter in one.cluster if letter not in "td")
                if left != one.cluster:
                    found.append((one.start, one.end, f"-{left}" if left or one.joined else ""))
            elif one.name in _TERMINAL or one.name in _DETACHED or (one.name == "--restart" and self.verb == "run"):
                found.append((one.start, one.end, ""))
        if self.verb == "run":
            named = f" --name {own_name}" if self.name is None else ""
            found.append((self.verb_end, self.verb_end, f"{named} --label {LABEL}={own_name}"))
        if self.sudo is not None and not allow_sudo:
            found.append((*self.sudo, ""))
        return found

    def findings(self) -> list[Finding]:
        """Return what is done differently, and why."""
        letters = "".join(one.cluster or "" for one in self.options)
        names = {one.name for one in self.options if one.cluster is None}
        left = [flag for flag in ("-t", "-d") if flag[1] in letters]
        left += [name for name in ("--tty", "--detach", "--restart") if name in names]
        found = [Finding.of("JSD903", options=left)] if left else []
        if self.sudo is not None:
            found.append(Finding.of("JSD904", program=self.program))
        return found


def read_container_run(text: str, found: Found, command: ServeCommand) -> ContainerRun | None:
    """Read the container command that a serve command stands in; None where it does not stand in one."""
    from jetson_specdec.recipe.shell_launch import basename
    from jetson_specdec.recipe.shell_options import launchers

    if found.script.parent is not None:
        return _outer(text, found, command)
    table = launchers()["containers"]
    words = [(word.start, word.end, word.literal) for word in found.command.words]
    programs = table["programs"]["values"]
    at = next((n for n, word in enumerate(words) if word[2] and basename(word[2]) in programs), None)
    if at is None:
        return None
    sudo = None
    if at and words[at - 1][2] == "sudo":
        sudo = (words[at - 1][0], words[at][0])
    program = programs[basename(words[at][2] or "")]
    verb = next((n for n in range(at + 1, len(words)) if words[n][2] in ("run", "exec")), None)
    if verb is None:
        return None
    kind = words[verb][2] or ""
    values = {*table["run_with_value"]["values"], *table["run_with_value_podman"]["values"]}
    if kind == "exec":
        values = set(table["exec_with_value"]["values"])
    options, position = _options(text, words, verb + 1, values)
    name = next((one for one in reversed(options) if one.name == "--name"), None)
    shown = name.value if name is not None else None
    if kind == "exec" and position < len(words):
        shown = words[position][2] or text[words[position][0] : words[position][1]]
    resolved = found.outcome.launch.container if name is not None else shown
    unresolved = resolved is not None and any(sign in resolved for sign in "$`")
    return ContainerRun(
        program=program,
        verb=kind,
        verb_end=words[verb][1],
        options=tuple(options),
        name=resolved or shown,
        name_unresolved=unresolved,
        sudo=sudo,
    )


def _outer(text: str, found: Found, command: ServeCommand) -> ContainerRun | None:
    """`docker run … bash -c '…'`: the engine's words stand in a nested text, the options in the outer one."""
    from jetson_specdec.recipe.shell_find import Found as FoundClass
    from jetson_specdec.recipe.shell_parse import read_commands

    root = found.script
    while root.parent is not None:
        root = root.parent
    start, end = found.outer
    commands, _ = read_commands(root.text, start, end)
    if not commands:
        return None
    outer = FoundClass(
        script=root,
        command=commands[0],
        outcome=found.outcome,
        outer=found.outer,
        comments=(),
        following=end,
        previous=start,
    )
    return read_container_run(text, outer, command)


def _options(
    text: str, words: list[tuple[int, int, str | None]], at: int, with_value: set[str]
) -> tuple[list[Place], int]:
    """Read the options from word `at` on, as they are written; return them and where the image stands."""
    options: list[Place] = []
    while at < len(words):
        start, end, literal = words[at]
        raw = text[start:end]
        word = literal if literal is not None else raw
        if not word.startswith("-") or word in ("-", "--"):
            break
        name, equals, value = word.partition("=")
        follower = words[at + 1] if at + 1 < len(words) else None
        if word.startswith("--") and equals:
            options.append(Place(name=name, value=value, start=start, end=end))
        elif word in with_value and follower is not None:
            shown = follower[2] if follower[2] is not None else text[follower[0] : follower[1]].strip("\"'")
            options.append(Place(name=word, value=shown, start=start, end=follower[1]))
            at += 1
        elif word.startswith("--"):
            options.append(Place(name=word, start=start, end=end))
        else:
            at += _cluster(word, start, end, with_value, options)
        at += 1
    return options, at


def _cluster(word: str, start: int, end: int, with_value: set[str], options: list[Place]) -> int:
    """Read `-it`, `-itp 80:80` or `-p8000:8000`; return how many further words belong to it."""
    letters = word[1:]
    for index, letter in enumerate(letters):
        if f"-{letter}" in with_value:
            if index:  # the letters before it are flags of their own, the option itself stays as it is
                options.append(
                    Place(name=word, start=start, end=start + 1 + index, cluster=letters[:index], joined=True)
                )
            return 0 if index + 1 < len(letters) else 1
    options.append(Place(name=word, start=start, end=end, cluster=letters))
    return 0
