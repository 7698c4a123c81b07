# SPDX-License-Identifier: Apache-2.0
"""A unit and its drop-ins: which files make it up, in the order in which systemd reads them (systemd.unit(5))."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

__all__ = ["UnitFile", "unit_files"]

MAX_DROP_INS = 50
_KINDS = (".service", ".container")
# Where a unit may stand that has drop-ins in another folder.
_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/lib/systemd/system")


class UnitFile(NamedTuple):
    """One file of a unit; `name` is None for the recipe itself."""

    name: str | None
    text: str


def unit_files(text: str, path: str | None, read: Callable[[str], str | None]) -> list[UnitFile]:
    """Return the files that make a unit up: the recipe, and those beside it that can be read.

    Args:
        text: the recipe, a unit or a drop-in.
        path: where it was read from.
        read: returns the text of a file by its name from the recipe's folder, or the names in a folder (one a line)
            for a name that ends in a slash; None where there is none.
    """
    own = UnitFile(None, text)
    if path is None:
        return [own]
    place = PurePosixPath(path)
    unit = place.parent.name.removesuffix(".d")
    if place.suffix == ".conf" and place.parent.name.endswith(".d") and unit.endswith(_KINDS):
        folders = ("..", *_FOLDERS)
        base = next(_texts(read, (f"{folder}/{unit}" for folder in folders)), None)
        others = _drop_ins(read, "./", except_for=place.name)
        merged = sorted([*others, own], key=lambda one: place.name if one.name is None else _last(one.name))
        return [base, *merged] if base is not None else merged
    if place.suffix in _KINDS:
        return [own, *_drop_ins(read, f"{place.name}.d/")]
    return [own]


def _drop_ins(read: Callable[[str], str | None], folder: str, except_for: str = "") -> list[UnitFile]:
    names = (read(folder) or "").splitlines()
    wanted = sorted(name for name in names if name.endswith(".conf") and name != except_for)
    return list(_texts(read, (f"{folder.removeprefix('./')}{name}" for name in wanted[:MAX_DROP_INS])))


def _texts(read: Callable[[str], str | None], names: Iterator[str]) -> Iterator[UnitFile]:
    for name in names:
        text = read(name)
        if text is not None:
            yield UnitFile(name, text)


def _last(name: str) -> str:
    return name.rpartition("/")[2]
