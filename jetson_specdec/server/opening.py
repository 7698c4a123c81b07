# SPDX-License-Identifier: Apache-2.0
"""From what a caller hands over (a recipe, its text or path, a plan) to the text that is run and the files it needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import field

from jetson_specdec.errors import CommandChoiceError, ServerError
from jetson_specdec.files import reason_of
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["Opened", "open_recipe", "write_private"]


@frozen(kw_only=True)
class Opened:
    """What is run.

    Attributes:
        recipe, command: the text and which of its commands.
        flags: the command's flags, read with its `--config` file.
        original: the owner's text, where a plan's text is run instead.
        files: other files that a plan changes: path → planned text.
    """

    recipe: Recipe
    command: ServeCommand
    flags: ServeFlags = field(repr=False)
    original: str | None = field(default=None, repr=False)
    files: Mapping[str, str] = field(factory=dict, repr=False)

    @property
    def speculates(self) -> bool:
        """Whether what is run has a speculative configuration."""
        from jetson_specdec.recipe.speculation import read_speculation

        return read_speculation(self.flags).active


def open_recipe(recipe: Recipe | Plan | str | Path, index: int, environ: Mapping[str, str]) -> Opened:
    """Read what is to be run.

    Args:
        recipe: a recipe, its path, its text (a string with white space that names no file), or a plan.
        index: which serve command; of a plan its own.
        environ: values of the variables that the text does not set itself: it runs on this machine.

    Raises:
        RecipeError: it cannot be read, or has no such command.
    """
    from jetson_specdec.host import LocalHost
    from jetson_specdec.planning.gather import release_of
    from jetson_specdec.recipe.config_file import find_config
    from jetson_specdec.recipe.core import Recipe as RecipeValue
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.load import beside_reader, load_recipe
    from jetson_specdec.recipe.shell import parse_shell

    original: str | None = None
    files: dict[str, str] = {}
    if isinstance(recipe, (str, Path)):
        parsed = load_recipe("-", text=str(recipe)) if _is_text(recipe) else load_recipe(recipe)
    elif isinstance(recipe, RecipeValue):
        parsed = recipe
    else:
        original, index = recipe.recipe.before, recipe.command_index
        parsed = load_recipe(recipe.recipe.path or "-", text=recipe.recipe.after)
        files = {change.path: change.after for change in recipe.files if change.path is not None and change.changed}
    if parsed.form == "shell":
        parsed = parse_shell(parsed.text, path=parsed.path, environ=environ, read=beside_reader(parsed.path))
    if not 0 <= index < len(parsed.commands):
        raise CommandChoiceError("JSE501", index=index, count=len(parsed.commands))
    command = parsed.commands[index]
    config = find_config(parsed, command, host=LocalHost())
    flags = ServeFlags.read(command, release_of(command, None), config)
    return Opened(recipe=parsed, command=command, flags=flags, original=original, files=files)


def _is_text(recipe: str | Path) -> bool:
    """A string with white space that names no file is the recipe itself."""
    if not isinstance(recipe, str):
        return False
    return "\n" in recipe or (any(char.isspace() for char in recipe) and not Path(recipe).exists())


def write_private(path: Path, text: str) -> None:
    """Write a file that a start needs, readable by its owner only.

    Raises:
        ServerError: it cannot be written (JSE933).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
    except OSError as error:
        raise ServerError("JSE933", path=str(path), reason=reason_of(error)) from None
