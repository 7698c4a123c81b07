# SPDX-License-Identifier: Apache-2.0
"""A unit and its drop-ins: which files make it up, in the order in which systemd reads them (systemd.unit(5))."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

__all__ = ["UnitFile", "unit_files"]

MAX_DROP_INS = 50
OURS = "jetson-specdec"
"""In the name of a drop-in that a start from here makes for as long as it runs: it is no part of the recipe."""
_KINDS = (".service", ".container")
# Where the parts of an installed unit may stand, the first of a name counting.
_FOLDERS = ("/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


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
    installed = _FOLDERS if str(place).startswith(_FOLDERS) else ()
    unit = place.parent.name.removesuffix(".d")
    if place.suffix == ".conf" and place.parent.name.endswith(".d") and unit.endswith(_KINDS):
        base = next(_texts(read, (f"{folder}/{unit}" for folder in ("..", *installed))), None)
        folders = ("./", *(f"{folder}/{unit}.d/" for folder in installed))
        others = [one for one in _drop_ins(read, folders) if _last(one.name) != place.name]
        merged = sorted([*others, own], key=lambda one: _last(one.name) if one.name is not None else place.name)
        return [base, *merged] if base is not None else merged
    if place.suffix in _KINDS:
        return [own, *_drop_ins(read, (f"{place.name}.d/", *(f"{folder}/{place.name}.d/" for folder in installed)))]
    return [own]


def _drop_ins(read: Callable[[str], str | None], folders: Iterable[str]) -> list[UnitFile]:
    """Return the drop-ins of several folders in the order of their names."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in (read(folder) or "").splitlines():
            if name.endswith(".conf") and OURS not in name:
                found.setdefault(name, f"{folder.removeprefix('./')}{name}")
    return list(_texts(read, (found[name] for name in sorted(found)[:MAX_DROP_INS])))


def _texts(read: Callable[[str], str | None], names: Iterable[str]) -> Iterator[UnitFile]:
    for name in names:
        text = read(name)
        if text is not None:
            yield UnitFile(name, text)


def _last(name: str | None) -> str:
    return (name or "").rpartition("/")[2]
