# SPDX-License-Identifier: Apache-2.0
"""Files that ship with the package are found by their folders and names, and all of its JSON can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

import jetson_specdec
from jetson_specdec.packaged import packaged_json, packaged_text

ROOT = Path(jetson_specdec.__file__).parent
DATA = sorted(path.relative_to(ROOT).parts for path in ROOT.rglob("*.json"))


def test_a_text_is_read_as_it_is_stored():
    parts = ("testing", "data", "demo-recipe.sh")
    assert packaged_text(*parts) == ROOT.joinpath(*parts).read_text(encoding="utf-8")
    assert "--gpu-memory-utilization" in packaged_text(*parts)


@pytest.mark.parametrize("parts", DATA, ids="/".join)
def test_every_packaged_document_is_an_object(parts):
    assert isinstance(packaged_json(*parts), dict)


def test_what_is_not_there_is_said():
    with pytest.raises(FileNotFoundError):
        packaged_text("engine", "data", "nothing.json")
