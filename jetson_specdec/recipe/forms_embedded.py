# SPDX-License-Identifier: Apache-2.0
"""Compose files, units and manifests as recipes: reading them with the files they refer to, and changing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs

from jetson_specdec.recipe.core import ArgEdit, Form, Recipe

if TYPE_CHECKING:
    from jetson_specdec.recipe.embedded import Located

__all__ = ["EMBEDDED", "edit_embedded", "parse_embedded", "reparse"]

EMBEDDED: tuple[Form, ...] = ("compose", "unit", "manifest")


def parse_embedded(
    form: Form, text: str, *, path: str | None = None, read: Callable[[str], str | None] | None = None
) -> Recipe:
    """Read a compose file, a unit or a manifest.

    Args:
        form: which of them.
        text: the text.
        path: where it was read from.
        read: returns the text of a file that this one refers to, by the name used in it, or None.

    Raises:
        RecipeSyntaxError: it is not what its form requires, or starts no engine.
    """
    beside: dict[str, str] = {}

    def remembered(name: str) -> str | None:
        content = read(name) if read is not None else None
        if content is not None:
            beside[name] = content
        return content

    recipe, _ = _read(form, text, path, remembered)
    return attrs.evolve(recipe, beside=beside)


def _read(form: Form, text: str, path: str | None, read: Callable[[str], str | None]) -> tuple[Recipe, list[Located]]:
    if form == "compose":
        from jetson_specdec.recipe.compose import compose_recipe

        return compose_recipe(text, path=path, read=read)
    if form == "unit":
        from jetson_specdec.recipe.unit import unit_recipe

        return unit_recipe(text, path=path, read=read)
    from jetson_specdec.recipe.manifest import manifest_recipe

    return manifest_recipe(text, path=path)


def reparse(recipe: Recipe, text: str) -> Recipe:
    """Read another text as the recipe was read, with the files read then."""
    return attrs.evolve(_read(recipe.form, text, recipe.path, recipe.beside.get)[0], beside=recipe.beside)


def edit_embedded(recipe: Recipe, index: int, edits: Sequence[ArgEdit]) -> str:
    """Change the arguments of one command and nothing else.

    Args:
        recipe: from `parse_embedded`.
        index: which of its commands.
        edits: what to do; indexes count the arguments as they were before any of the edits.

    Returns:
        The new text. It was read again and gives exactly the arguments asked for.

    Raises:
        CommandChoiceError: there is no such command (JSE219).
        UneditableError: it cannot be done safely (JSE210 to JSE216); the text says what to type by hand.
    """
    from jetson_specdec.recipe.embedded_edit import edit_located

    return edit_located(recipe, index, edits, lambda text: _read(recipe.form, text, recipe.path, recipe.beside.get))
