# SPDX-License-Identifier: Apache-2.0
"""The commands as cyclopts reads them: a command by its name, ready for its annotations to be looked up.

The commands' modules do not load cyclopts, which plain words do without; their annotations, which are strings, name its
`Parameter`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cyclopts import Parameter


def __getattr__(name: str) -> Any:
    from jetson_specdec.cli import COMMANDS

    if name not in COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"jetson_specdec.cli.{name}")
    vars(module)["Parameter"] = Parameter
    return getattr(module, name)
