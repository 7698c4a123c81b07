# SPDX-License-Identifier: Apache-2.0
"""Running a recipe for its owner and not for a measurement: as its text says, left alone afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.server.occupants import Occupant

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.server.address import Address
    from jetson_specdec.server.launch import Launch
    from jetson_specdec.server.opening import Opened

__all__ = ["left_running", "with_rerun"]


def with_rerun(
    occupant: Occupant, opened: Opened, *, mark: str, environ: Mapping[str, str], allow_sudo: bool
) -> Occupant:
    """Return a server with how it is run again where stopping it removes it (`docker run --rm`).

    Its owner's own text does that, detached; where the text starts another container than this one, nothing is known.
    """
    from jetson_specdec.recipe.load import parse_recipe
    from jetson_specdec.recipe.shell import parse_shell

    if not occupant.vanishes or not occupant.running or opened.recipe.form != "shell":
        return occupant
    recipe = opened.recipe
    if opened.original is not None:
        recipe = parse_recipe(opened.original, path=recipe.path)
        recipe = parse_shell(recipe.text, path=recipe.path, environ=environ)
    if opened.command.index >= len(recipe.commands):
        return occupant
    command = recipe.commands[opened.command.index]
    again = _detached(recipe, command, mark, environ, allow_sudo)
    if again is None or command.image != occupant.command or again.container not in (None, occupant.name):
        return occupant
    return evolve(occupant, argv=again.argv, cwd=again.cwd, environ=dict(environ), mark=mark)


def _detached(
    recipe: Recipe, command: ServeCommand, mark: str, environ: Mapping[str, str], allow_sudo: bool
) -> Launch | None:
    from jetson_specdec.server.displace import BACK_LABEL
    from jetson_specdec.server.shell_launch import detached_launch

    return detached_launch(recipe, command, label=f"{BACK_LABEL}={mark}", environ=environ, allow_sudo=allow_sudo)


def left_running(
    opened: Opened,
    launch: Launch,
    address: Address,
    *,
    path: str,
    mark: str,
    environ: Mapping[str, str],
    allow_sudo: bool = False,
    output: str | None = None,
) -> Occupant | None:
    """Return a recipe as a server that stays; None where that takes more than starting it.

    A systemd unit has to be installed, and a change that lies in another file than the recipe has to be written there.

    Args:
        opened: what is to run; its text stands in `path`.
        launch: how it was started when it was measured.
        address: where it answers.
        path: the recipe's file.
        mark: names this start.
        environ: environment to start it in.
        allow_sudo: whether `sudo` in the text may run.
        output: file for what a native process prints.
    """
    if opened.files:
        return None
    name = Path(path).name
    if launch.kind == "process":
        return Occupant(
            kind="process",
            name=name,
            holds="port",
            port=address.port,
            argv=("vllm", "serve", "--config", path) if opened.recipe.form == "config_file" else launch.argv,
            cwd=launch.cwd,
            environ={**environ, **launch.environ},
            output=output,
            mark=mark,
        )
    if launch.kind == "container":
        again = _detached(opened.recipe, opened.command, mark, environ, allow_sudo)
        if again is None:
            return None
        program = launch.program
        shown = again.container or name
        return Occupant(
            kind="container",
            name=shown,
            holds="name" if again.container is not None else "port",
            vanishes=True,
            argv=again.argv,
            cwd=again.cwd,
            environ=dict(environ),
            stop=(program, "stop", shown),
            start=(program, "start", shown),
            mark=mark,
        )
    if launch.kind == "compose":
        folder = str(Path(launch.project_file or path).parent)
        compose = ("docker", "compose", "--project-directory", folder, "-f", path)
        service = launch.service or ""
        return Occupant(
            kind="service",
            name=service,
            holds="service",
            stop=(*compose, "stop", service),
            start=(*compose, "up", "-d", "--no-deps", service),
            mark=mark,
        )
    return None
