# SPDX-License-Identifier: Apache-2.0
"""A plan as it would run: the planned text read again, so that what is disclosed is what will be written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_specdec.host import OverlayHost
from jetson_specdec.planning.gather import CONTAINER_LAUNCHERS
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.host import Host
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.recipe.config_file import ConfigFile
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["ContainerOptions", "Deployment", "container_options", "read_deployment"]


@frozen(kw_only=True)
class ContainerOptions:
    """What the container's options say beside mounts and ports; None is "not said or not certain"."""

    name: str | None = None
    network: str | None = None


@frozen(kw_only=True)
class Deployment:
    """A plan and how its planned text reads.

    Attributes:
        plan: what was decided.
        recipe: the planned text, parsed.
        command: the planned command in it.
        flags: what its arguments mean, with the `--config` file as it will be.
        container: name and network of its container.
    """

    plan: Plan
    recipe: Recipe
    command: ServeCommand
    flags: ServeFlags
    container: ContainerOptions = ContainerOptions()

    @property
    def in_container(self) -> bool:
        """Whether the engine runs in a container."""
        return self.command.launcher in CONTAINER_LAUNCHERS


def read_deployment(plan: Plan, host: Host) -> Deployment:
    """Parse what a plan would serve with.

    Raises:
        RecipeError: the planned text cannot be read (which a plan made here rules out).
    """
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.load import load_recipe

    if not host.live and plan.recipe.path is not None:
        # The recipe lies on this machine although the board is a recording: its neighbours are here.
        host = OverlayHost(host, str(Path(plan.recipe.path).absolute().parent))
    recipe = load_recipe(plan.recipe.path or "-", text=plan.recipe.after)
    command = recipe.commands[plan.command_index]
    flags = ServeFlags.read(command, plan.release, _config(plan, recipe, command, host))
    return Deployment(
        plan=plan,
        recipe=recipe,
        command=command,
        flags=flags,
        container=container_options(plan.recipe.after, command),
    )


def _config(plan: Plan, recipe: Recipe, command: ServeCommand, host: Host) -> ConfigFile | None:
    from jetson_specdec.recipe.config_file import find_config, parse_config

    config = find_config(recipe, command, host=host)
    if config is None:
        return None
    planned = next((change.after for change in plan.files if change.path == (config.path or config.named)), None)
    if planned is None:
        return config
    return parse_config(planned, path=config.path, named=config.named, looked_in=config.looked_in)


def container_options(text: str, command: ServeCommand) -> ContainerOptions:
    """Return name and network of a command's container as its text gives them."""
    if command.launcher not in CONTAINER_LAUNCHERS:
        return ContainerOptions()
    if command.launcher in ("compose", "kubernetes"):
        host_network = re.search(r"^\s*hostNetwork:\s*true\b", text, re.MULTILINE)
        return ContainerOptions(
            name=_beside(text, command.start, "container_name"),
            network=_beside(text, command.start, "network_mode") or ("host" if host_network else None),
        )
    if re.search(r"^\[Container\]", text, re.MULTILINE):  # a quadlet: podman as a unit
        named = dict(re.findall(r"^(ContainerName|Network)=([\w:.-]+)\s*$", text, re.MULTILINE))
        return ContainerOptions(name=named.get("ContainerName"), network=named.get("Network"))
    words = _words(text[command.start : command.end])
    network = _option(words, "--network", "--net")
    # `jetson-containers run` adds `--network host` by itself (its run.sh).
    default = "host" if command.launcher == "jetson-containers" else None
    return ContainerOptions(name=_option(words, "--name"), network=network or default)


def _beside(text: str, at: int, key: str) -> str | None:
    """Return the value of a YAML key in the mapping that the command at an offset belongs to.

    A key is in the same mapping, or in one around it, when no line between the two is indented less than the key.
    """
    for found in re.finditer(rf"^([ ]*(?:- )?){key}:[ ]*[\"']?([\w:.-]+)", text, re.MULTILINE):
        low, high = sorted((found.start(), at))
        between = [line for line in text[low:high].splitlines() if line.strip() and not line.lstrip().startswith("#")]
        if all(len(line) - len(line.lstrip(" ")) >= len(found[1]) for line in between[1:]):
            return found[2]
    return None


def _words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def _option(words: list[str], *names: str) -> str | None:
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name not in names:
            continue
        found = value if equals else words[index + 1] if index + 1 < len(words) else ""
        # A variable in it is not resolved here: not certain.
        return found if found and "$" not in found else None
    return None
