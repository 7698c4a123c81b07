# SPDX-License-Identifier: Apache-2.0
"""How a model is served today: recipes, what their arguments mean, and changing them without touching anything else.

Names are loaded on first use; importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.recipe.config_edit import edit_config
    from jetson_specdec.recipe.config_file import ConfigEntry, ConfigFile, find_config, parse_config
    from jetson_specdec.recipe.core import (
        AppendArgs,
        Arg,
        ArgEdit,
        Form,
        Mount,
        Recipe,
        RemoveArgs,
        ReplaceArg,
        ServeCommand,
        ServeForm,
    )
    from jetson_specdec.recipe.edits import EditPlan, FileEdit, plan_edit
    from jetson_specdec.recipe.flags import Reading, ServeFlags
    from jetson_specdec.recipe.forms import recognise
    from jetson_specdec.recipe.handover import MemTune, read_mem_tune
    from jetson_specdec.recipe.load import load_recipe, parse_recipe
    from jetson_specdec.recipe.masking import redact, secrets_of
    from jetson_specdec.recipe.occurrences import Occurrence
    from jetson_specdec.recipe.shell import edit_shell, parse_shell
    from jetson_specdec.recipe.speculation import Speculation, read_speculation

_HOMES = {
    "config_edit": ("edit_config",),
    "config_file": ("ConfigEntry", "ConfigFile", "find_config", "parse_config"),
    "core": (
        "AppendArgs",
        "Arg",
        "ArgEdit",
        "Form",
        "Mount",
        "Recipe",
        "RemoveArgs",
        "ReplaceArg",
        "ServeCommand",
        "ServeForm",
    ),
    "edits": ("EditPlan", "FileEdit", "plan_edit"),
    "flags": ("Reading", "ServeFlags"),
    "forms": ("recognise",),
    "handover": ("MemTune", "read_mem_tune"),
    "load": ("load_recipe", "parse_recipe"),
    "masking": ("redact", "secrets_of"),
    "occurrences": ("Occurrence",),
    "shell": ("edit_shell", "parse_shell"),
    "speculation": ("Speculation", "read_speculation"),
}

__all__ = [
    "AppendArgs",
    "Arg",
    "ArgEdit",
    "ConfigEntry",
    "ConfigFile",
    "EditPlan",
    "FileEdit",
    "Form",
    "MemTune",
    "Mount",
    "Occurrence",
    "Reading",
    "Recipe",
    "RemoveArgs",
    "ReplaceArg",
    "ServeCommand",
    "ServeFlags",
    "ServeForm",
    "Speculation",
    "edit_config",
    "edit_shell",
    "find_config",
    "load_recipe",
    "parse_config",
    "parse_recipe",
    "parse_shell",
    "plan_edit",
    "read_mem_tune",
    "read_speculation",
    "recognise",
    "redact",
    "secrets_of",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
