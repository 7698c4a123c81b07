# SPDX-License-Identifier: Apache-2.0
"""The record of one apply, and the names of the files that lie beside a recipe because of it.

`NAME.specdec-20260131T120000Z.bak` (what was there), `….manifest` (this record, JSON) and `….baseline` (the report).
No name ends in `.json`, `.yaml` or `.service`: tools that read a whole folder of those must not pick them up.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Any, Literal, get_args

from attrs import field

from jetson_specdec.errors import ApplyError
from jetson_specdec.files import write_atomic
from jetson_specdec.values import frozen

__all__ = ["FileRecord", "Manifest", "find_manifests", "free_stamp", "sibling", "write_manifest"]

SCHEMA_VERSION = 1
State = Literal["pending", "applied", "undone"]
_STAMP = r"\d{8}T\d{6}Z(?:-\d{1,4})?"
_KINDS = ("bak", "manifest", "baseline")


@frozen(kw_only=True)
class FileRecord:
    """One file of an apply.

    Attributes:
        path: relative to the manifest's folder, symbolic links followed.
        backup: name of its backup, beside it.
        before_sha256, after_sha256: of the bytes that were there and of those that were written.
        mode: its permissions.
    """

    path: str
    backup: str
    before_sha256: str
    after_sha256: str
    mode: int


@frozen(kw_only=True)
class Manifest:
    """One apply.

    Attributes:
        state: `pending` until every file is replaced, then `applied`, later perhaps `undone`.
        stamp: UTC time as it stands in the names.
        recipe: name of the recipe's file.
        outcome: of the plan.
        files: what was changed.
        baseline: name of the kept report, or None.
        folder: where the manifest lies; not part of the file.
    """

    state: State
    stamp: str
    recipe: str
    outcome: str
    files: tuple[FileRecord, ...]
    baseline: str | None = None
    folder: Path = field(factory=Path, eq=False)

    @property
    def path(self) -> Path:
        """The manifest's own file."""
        return sibling(self.folder / self.recipe, self.stamp, "manifest")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as it is written."""
        return {
            "schema_version": SCHEMA_VERSION,
            "state": self.state,
            "stamp": self.stamp,
            "recipe": self.recipe,
            "outcome": self.outcome,
            "files": [
                {
                    "path": each.path,
                    "backup": each.backup,
                    "before_sha256": each.before_sha256,
                    "after_sha256": each.after_sha256,
                    "mode": f"{each.mode:04o}",
                }
                for each in self.files
            ],
            "baseline": self.baseline,
        }


def sibling(path: Path, stamp: str, kind: str) -> Path:
    """Return the name beside a file for a stamp and a kind (`bak`, `manifest`, `baseline`)."""
    return path.with_name(f"{path.name}.specdec-{stamp}.{kind}")


def free_stamp(paths: Iterable[Path], now: float) -> str:
    """Return the time as it goes into names, with a number where that second is taken."""
    paths = list(paths)
    base = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    number = 1
    while True:
        stamp = base if number == 1 else f"{base}-{number}"
        if not any(sibling(path, stamp, kind).exists() for path in paths for kind in _KINDS):
            return stamp
        number += 1


def write_manifest(manifest: Manifest) -> Path:
    """Write a manifest in one step and return its path.

    Raises:
        OutputError: it could not be written.
    """
    write_atomic(manifest.path, json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n")
    return manifest.path


def find_manifests(recipe: Path) -> list[Manifest]:
    """Return the manifests of a recipe, oldest first.

    Raises:
        ApplyError: one of them cannot be read; what it stands for is then unknown.
    """
    pattern = re.compile(re.escape(recipe.name) + rf"\.specdec-({_STAMP})\.manifest")
    try:
        names = [entry.name for entry in recipe.parent.iterdir()]
    except OSError:
        return []
    stamps = sorted((match[1] for name in names if (match := pattern.fullmatch(name))), key=_order)
    return [_read(sibling(recipe, stamp, "manifest"), stamp) for stamp in stamps]


def _order(stamp: str) -> tuple[str, int]:
    base, _, number = stamp.partition("-")
    return base, int(number or 1)


def _read(path: Path, stamp: str) -> Manifest:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["state"] not in get_args(State) or data["schema_version"] != SCHEMA_VERSION:
            raise ValueError(data["state"])
        records = tuple(
            FileRecord(
                path=str(each["path"]),
                backup=PurePath(str(each["backup"])).name,
                before_sha256=str(each["before_sha256"]),
                after_sha256=str(each["after_sha256"]),
                mode=int(str(each["mode"]), 8),
            )
            for each in data["files"]
        )
        return Manifest(
            state=data["state"],
            stamp=stamp,
            recipe=path.name.rpartition(".specdec-")[0],
            outcome=str(data["outcome"]),
            files=records,
            baseline=data["baseline"],
            folder=path.parent,
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ApplyError("JSE812", path=str(path), reason=type(error).__name__) from error
