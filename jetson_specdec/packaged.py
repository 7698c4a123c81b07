# SPDX-License-Identifier: Apache-2.0
"""Files that ship with this package: tables of facts, message catalogues, schemas, samples.

They are read beside the modules: importing `importlib.resources` costs more than reading all of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

__all__ = ["packaged_json", "packaged_text"]

_ROOT = Path(__file__).parent


def packaged_text(*parts: str) -> str:
    """Return the text of a file, named by its folders and its name below the package.

    Raises:
        FileNotFoundError: the package holds no such file.
    """
    return _ROOT.joinpath(*parts).read_text(encoding="utf-8")


def packaged_json(*parts: str) -> Any:
    """Return a parsed JSON file, named as for `packaged_text`."""
    return json.loads(packaged_text(*parts))
