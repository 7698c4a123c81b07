# SPDX-License-Identifier: Apache-2.0
"""Starting a shell recipe: the text up to its serve command, run by bash, with as little changed as possible.

What stands behind the command (`&`, `| tee log`, a `curl` that waits for it) is left out, so that the server stays in
the foreground and its output comes to us. What stands before it (variables, `cd`, `source venv/bin/activate`) is run as
it is; other serve commands in it are not. Of `docker run`, `-t` and `-d` are left out (there is no terminal, and the
output is wanted) and so is `--restart`, which would hide a failing start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jetson_specdec.errors import LaunchError
from jetson_specdec.findings import Finding
from jetson_specdec.server.container_options import LABEL, ContainerRun, read_container_run
from jetson_specdec.server.launch import CONTAINER_PROGRAMS, Launch

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.shell_find import Found

__all__ = ["detached_launch", "ours", "shell_launch"]

_TO_FILE = (">", ">>", ">|", "&>", "&>>", ">&")
Cut = tuple[int, int, str]


def shell_launch(
    recipe: Recipe,
    command: ServeCommand,
    flags: ServeFlags,
    *,
    run_id: str,
    environ: Mapping[str, str],
    replaced_files: Mapping[str, str],
    grace_s: float,
    allow_sudo: bool,
) -> Launch:
    """Return how to start a command of a shell recipe.

    Raises:
        LaunchError: it is only a definition (JSE907), is typed into a container by hand (JSE908), runs in a container
            that the recipe does not start (JSE909), or uses `sudo` (JSE902).
    """
    found = _find(recipe, command, environ)
    if "alias" in command.wrapped_in or "heredoc" in command.wrapped_in:
        return _resolved(command, recipe, environ)
    cuts: list[Cut] = [*_prompt(recipe.text, command), *_redirections(recipe.text, found)]
    findings: list[Finding] = []
    if any(cut[2] == "" and recipe.text[cut[0] : cut[1]].lstrip().startswith((">", "1>", "2>", "&>")) for cut in cuts):
        findings.append(Finding.of("JSD900", line=command.line))
    container: ContainerRun | None = None
    if command.launcher in CONTAINER_PROGRAMS:
        container = read_container_run(recipe.text, found, command)
        if container is None:
            raise LaunchError("JSE908", line=command.line)
        if container.name_unresolved:
            raise LaunchError("JSE903", line=command.line, value=container.name)
        if container.verb == "exec" and not _starts(recipe.text[: command.start], container.name):
            raise LaunchError("JSE909", line=command.line, container=container.name)
        cuts += container.cuts(f"jetson-specdec-{run_id}", allow_sudo=allow_sudo)
        findings += container.findings()
    elif command.launcher not in ("native", "compose"):
        raise LaunchError("JSE910", launcher=command.launcher, line=command.line)
    cuts += _replaced(recipe, command, replaced_files)
    begin, end = _region(recipe.text, command)
    skipped = [other for other in recipe.commands if other.index != command.index and begin <= other.start < end]
    cuts += [(other.start, other.end, ":") for other in skipped]
    if skipped:
        findings.append(Finding.of("JSD901", lines=[other.line for other in skipped]))
    short = _cut(recipe.text, cuts, begin, command.end)
    whole = _cut(recipe.text, cuts, begin, end)
    if not allow_sudo and (line := _sudo(short)) is not None:
        raise LaunchError("JSE902", line=line)
    zero = recipe.path or "recipe"
    launch = Launch(
        kind="process",
        argv=("bash", "-c", short, zero),
        fallback_argv=("bash", "-c", whole, zero),
        cwd=_folder(recipe),
        findings=tuple(findings),
    )
    if container is None:
        return launch
    return _contained(launch, container, f"jetson-specdec-{run_id}", grace_s, allow_sudo)


def detached_launch(
    recipe: Recipe, command: ServeCommand, *, label: str, environ: Mapping[str, str], allow_sudo: bool
) -> Launch | None:
    """Return how to run the container of a recipe in the background, as its owner would; None where it runs none.

    Everything in the text stays (`--restart`, `--rm`, the name); `-d` and a label are added, and `sudo` in front of the
    runtime is left out as for any other start.

    Args:
        recipe: the recipe.
        command: which of its commands.
        label: by which the container is found again.
        environ: environment it is started in.
        allow_sudo: whether `sudo` may run.
    """
    if command.launcher not in CONTAINER_PROGRAMS:
        return None
    container = read_container_run(recipe.text, _find(recipe, command, environ), command)
    if container is None or container.verb != "run" or container.name_unresolved:
        return None
    cuts: list[Cut] = _prompt(recipe.text, command)
    cuts.append((container.verb_end, container.verb_end, f" -d --label {label}"))
    if container.sudo is not None and not allow_sudo:
        cuts.append((*container.sudo, ""))
    begin, _ = _region(recipe.text, command)
    others = [each for each in recipe.commands if each.index != command.index and begin <= each.start < command.end]
    cuts += [(each.start, each.end, ":") for each in others]
    text = _cut(recipe.text, cuts, begin, command.end)
    if not allow_sudo and _sudo(text) is not None:
        return None
    program = "docker" if container.program == "jetson-containers" else container.program
    argv = ("bash", "-c", text, recipe.path or "recipe")
    return Launch(kind="container", argv=argv, cwd=_folder(recipe), program=program, container=container.name)


def _contained(launch: Launch, container: ContainerRun, own: str, grace_s: float, allow_sudo: bool) -> Launch:
    from attrs import evolve

    name = container.name or own
    program = "docker" if container.program == "jetson-containers" else container.program
    front = ("sudo", "-n", program) if container.sudo and allow_sudo else (program,)
    grace = str(int(grace_s))
    if container.verb == "exec":
        stop, kill, after = (*front, "stop", "-t", grace, name), (*front, "kill", name), (*front, "rm", "-f", name)
    else:
        # By our own label: should the name belong to somebody else's container after all, that one is not touched.
        stop = ours(front, own, "stop", "-t", grace)
        kill, after = ours(front, own, "kill"), ours(front, own, "rm", "-f")
    return evolve(
        launch,
        kind="container",
        program=program,
        container=name,
        host_network=container.host_network,
        stop=(stop,),
        kill=(kill,),
        after=(after,),
    )


def ours(front: tuple[str, ...], own: str, *verb: str) -> tuple[str, ...]:
    """Return a command for the containers of a start: by their label, so that nobody else's is ever meant.

    It succeeds where there is none (any more), and fails where the runtime does not answer.
    """
    import shlex

    asked = shlex.join([*front, "ps", "-aq", "--filter", f"label={LABEL}={own}"])
    return ("sh", "-c", f'ids=$({asked}) || exit 1; [ -z "$ids" ] || {shlex.join([*front, *verb])} $ids')


def _find(recipe: Recipe, command: ServeCommand, environ: Mapping[str, str]) -> Found:
    from jetson_specdec.recipe.core import reader_of
    from jetson_specdec.recipe.shell import read_shell

    finder = read_shell(recipe.text, path=recipe.path, environ=environ, read=reader_of(recipe))
    return finder.found[command.index]


def _resolved(command: ServeCommand, recipe: Recipe, environ: Mapping[str, str]) -> Launch:
    """A command that the text only defines (an alias, a script it writes) is started by its words."""
    words = [arg.value for arg in command.args]
    if command.launcher != "native" or any(word is None for word in words):
        raise LaunchError("JSE907", line=command.line, wrapped=list(command.wrapped_in))
    environment = {name: value for name, value in command.env.items() if value is not None}
    return Launch(
        kind="process",
        argv=(*command.serve_words, *(word for word in words if word is not None)),
        environ=environment,
        cwd=_folder(recipe),
        findings=(Finding.of("JSD902", wrapped=list(command.wrapped_in)),),
    )


def _folder(recipe: Recipe) -> str | None:
    from pathlib import Path

    return str(Path(recipe.path).absolute().parent) if recipe.path is not None else None


def _prompt(text: str, command: ServeCommand) -> list[Cut]:
    """`$ vllm serve …` in a note: the prompt is no word."""
    match = re.match(r"[$#%>]\s+", text[command.start : command.end])
    return [(command.start, command.start + match.end(), "")] if match else []


def _redirections(text: str, found: Found) -> list[Cut]:
    if found.script.parent is not None:
        return []
    return [(one.start, one.end, "") for one in found.command.redirects if one.op in _TO_FILE]


def _replaced(recipe: Recipe, command: ServeCommand, replaced: Mapping[str, str]) -> list[Cut]:
    """Point `--config` at a file that holds the planned text."""
    from jetson_specdec.recipe.config_file import config_reference

    named = config_reference(command)
    if not replaced or named is None:
        return []
    if command.launcher != "native":
        raise LaunchError("JSE911", path=named)
    import shlex

    target = shlex.quote(next(iter(replaced.values())))
    if target.startswith("'") and command.wrapped_in:
        raise LaunchError("JSE911", path=named)
    for index, arg in enumerate(command.args):
        if arg.value == "--config" and index + 1 < len(command.args):
            value = command.args[index + 1]
            return [(value.start, value.end, target)]
        if arg.value is not None and arg.value.startswith("--config="):
            return [(arg.start, arg.end, f"--config={target}")]
    raise LaunchError("JSE911", path=named)


def _region(text: str, command: ServeCommand) -> tuple[int, int]:
    """Return where the script begins and ends: the fenced block of a note, else the whole text."""
    fence = re.compile(r"^ {0,3}(?:`{3,}|~{3,})[^\n]*\n?", re.MULTILINE)
    fences = list(fence.finditer(text))
    before = [one for one in fences if one.end() <= command.start]
    if not before or text.startswith("#!"):
        return (1 if text.startswith("\ufeff") else 0), len(text)
    after = next((one.start() for one in fences if one.start() >= command.end), len(text))
    return before[-1].end(), after


def _cut(text: str, cuts: list[Cut], begin: int, end: int) -> str:
    pieces, at = [], begin
    for start, stop, instead in sorted(cut for cut in cuts if begin <= cut[0] and cut[1] <= end):
        if start < at:
            continue
        pieces += [text[at:start], instead]
        at = stop
    return "".join([*pieces, text[at:end]]).replace("\r\n", "\n")


def _sudo(text: str) -> int | None:
    """Return the line of the first `sudo` that would run, or None."""
    from jetson_specdec.recipe.shell_parse import read_commands

    _, comments = read_commands(text)
    spans = [(comment.start, comment.end) for comment in comments]
    for match in re.finditer(r"(?<![\w./-])sudo(?=\s)", text):
        if not any(start <= match.start() < end for start, end in spans):
            return text.count("\n", 0, match.start()) + 1
    return None


def _starts(before: str, name: str | None) -> bool:
    """Whether the text before an `exec` starts its container."""
    return name is not None and re.search(rf"\brun\b[^\n]*--name[= ]+[\"']?{re.escape(name)}\b", before) is not None
