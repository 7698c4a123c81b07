# SPDX-License-Identifier: Apache-2.0
"""Changing files so that all of them change or none, and so that it can be taken back.

In this order, under a lock: look whether every file is still what the plan was made for; write the backups; write the
manifest (state `pending`); replace the files one by one; mark the manifest `applied`. A failure in between puts back
what was replaced. A crash leaves a pending manifest from which `undo` restores.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.apply.locking import locked
from jetson_specdec.apply.manifest import (
    FileRecord,
    Manifest,
    find_manifests,
    free_stamp,
    sibling,
    write_manifest,
)
from jetson_specdec.errors import ApplyError, OutputError
from jetson_specdec.files import reason_of, write_atomic
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.planning.plan import FileChange

__all__ = ["Undone", "apply_changes", "check_standing", "digest_of", "undo"]

PRIVATE = 0o600


@frozen(kw_only=True)
class Undone:
    """What `undo` did.

    Attributes:
        manifest: the one that was undone, now in state `undone`.
        restored: files that are again what they were.
        kept: copies of files that had been changed since, made because the undo was forced.
    """

    manifest: Manifest
    restored: tuple[Path, ...] = ()
    kept: tuple[Path, ...] = ()


@frozen(kw_only=True)
class _Target:
    """One file to be changed: real path, texts, permissions."""

    path: Path
    before: bytes
    after: str
    mode: int
    private: bool


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of some bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


def apply_changes(
    recipe: str | Path,
    changes: Sequence[FileChange],
    *,
    now: float,
    outcome: str,
    baseline: str | Path | None = None,
) -> Manifest:
    """Write changed texts in place, with a backup of each.

    Args:
        recipe: the recipe's file; backups, manifest and baseline lie beside it (backups of other files beside those).
        changes: the texts; each with a path, and `before` as it was read.
        now: seconds since the epoch, for the time in the names.
        outcome: of the plan, for the manifest.
        baseline: a report to keep beside the backup.

    Returns:
        The manifest, in state `applied`.

    Raises:
        ApplyError: a file is not what the plan was made for, is locked, is not writable, or an earlier apply was
            interrupted. Nothing was changed.
        OutputError: a file could not be written; what had been replaced was put back.
    """
    anchor = Path(os.path.realpath(recipe))
    paths = [Path(os.path.realpath(change.path or recipe)) for change in changes]
    with locked([anchor, *paths]):
        _no_interrupted(anchor)
        targets = [_check(path, change) for path, change in zip(paths, changes, strict=True)]
        kept = _read_baseline(baseline)
        stamp = free_stamp([anchor, *paths], now)
        records = [
            FileRecord(
                path=os.path.relpath(target.path, anchor.parent),
                backup=sibling(target.path, stamp, "bak").name,
                before_sha256=digest_of(target.before),
                after_sha256=digest_of(_bytes(target.after)),
                mode=target.mode,
            )
            for target in targets
        ]
        manifest = Manifest(
            state="pending",
            stamp=stamp,
            recipe=anchor.name,
            outcome=outcome,
            files=tuple(records),
            baseline=sibling(anchor, stamp, "baseline").name if kept is not None else None,
            folder=anchor.parent,
        )
        return _carry_out(manifest, targets, kept)


def _carry_out(manifest: Manifest, targets: Sequence[_Target], baseline: str | None) -> Manifest:
    made: list[Path] = []
    replaced: list[_Target] = []
    try:
        for target in targets:
            backup = sibling(target.path, manifest.stamp, "bak")
            write_atomic(backup, _text(target.before), mode=PRIVATE if target.private else target.mode, overwrite=False)
            made.append(backup)
            _same_owner(backup, target.path)
        if baseline is not None and manifest.baseline is not None:
            place = manifest.folder / manifest.baseline
            write_atomic(place, baseline, overwrite=False)
            made.append(place)
            _same_owner(place, targets[0].path)
        made.append(write_manifest(manifest))
        _same_owner(made[-1], targets[0].path)
        _sync({path.parent for path in made})
        for target in targets:
            write_atomic(target.path, target.after)
            replaced.append(target)
        _sync({target.path.parent for target in targets})
        done = evolve(manifest, state="applied")
        write_manifest(done)
    except BaseException:
        _put_back(replaced)
        for path in reversed(made):
            path.unlink(missing_ok=True)
        raise
    return done


def _put_back(replaced: Sequence[_Target]) -> None:
    """Restore what was replaced; one that cannot be restored keeps the backups and is named."""
    for target in reversed(replaced):
        try:
            write_atomic(target.path, _text(target.before))
        except OutputError as error:
            raise ApplyError("JSE814", path=str(target.path), reason=str(error)) from error


def check_standing(recipe: str | Path) -> None:
    """See that no apply of a recipe was interrupted.

    Raises:
        ApplyError: one was, or a manifest cannot be read.
    """
    _no_interrupted(Path(os.path.realpath(recipe)))


def _no_interrupted(anchor: Path) -> None:
    for manifest in find_manifests(anchor):
        if manifest.state == "pending":
            raise ApplyError("JSE805", path=str(anchor), manifest=str(manifest.path))


def _check(path: Path, change: FileChange) -> _Target:
    from jetson_specdec.recipe.masking import redact

    try:
        data = path.read_bytes()
        mode = path.stat().st_mode & 0o7777
    except OSError as error:
        raise ApplyError("JSE803", path=str(path)) from error
    if data != _bytes(change.before):
        raise ApplyError("JSE803", path=str(path))
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise ApplyError("JSE811", path=str(path))
    private = bool(change.secrets) or redact(change.before)[1] or redact(change.after)[1]
    return _Target(path=path, before=data, after=change.after, mode=mode, private=private)


def _read_baseline(baseline: str | Path | None) -> str | None:
    if baseline is None:
        return None
    try:
        return _text(Path(baseline).read_bytes())
    except OSError as error:
        raise ApplyError("JSE005", path=str(baseline), reason=reason_of(error)) from error


def _same_owner(path: Path, like: Path) -> None:
    """With sudo the new files still belong to the owner of the recipe, who may want to undo without it."""
    if os.geteuid() != 0:
        return
    state = like.stat()
    os.chown(path, state.st_uid, state.st_gid)


def _sync(folders: set[Path]) -> None:
    """Make renames last through a power cut, where the file system can."""
    for folder in folders:
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            os.fsync(handle)
        except OSError:
            pass
        finally:
            os.close(handle)


# --------------------------------------------------------------------------------------------------------------- undo


def undo(recipe: str | Path, *, now: float, force: bool = False) -> Undone:
    """Take the newest apply of a recipe back, or finish taking back an interrupted one.

    Files are restored where they are still what apply wrote; one that is already what it was before is left alone.

    Args:
        recipe: the recipe's file (a symbolic link to it will do).
        now: seconds since the epoch, for the names of copies.
        force: restore files that were changed since, too; what stood in them is kept in a copy.

    Raises:
        ApplyError: there is nothing to undo, a file was changed since, or a backup is missing or damaged. Nothing was
            changed.
        OutputError: a file could not be written; what had been restored was put back.
    """
    anchor = Path(os.path.realpath(recipe))
    newest = _newest(anchor)
    paths = [Path(os.path.realpath(newest.folder / record.path)) for record in newest.files]
    with locked([anchor, *paths]):
        newest = _newest(anchor)
        now_there = {path: path.read_bytes() if path.is_file() else None for path in paths}
        changed = []
        todo: list[tuple[Path, FileRecord]] = []
        for path, record in zip(paths, newest.files, strict=True):
            data = now_there[path]
            current = None if data is None else digest_of(data)
            if current == record.before_sha256:
                continue
            todo.append((path, record))
            if current != record.after_sha256:
                changed.append(path)
        if changed and not force:
            raise ApplyError("JSE807", paths=[str(path) for path in changed])
        backups = {path: _backup(path, record) for path, record in todo}
        kept = _keep(changed, now_there, now)
        _restore(todo, backups, now_there)
        done = evolve(newest, state="undone")
        write_manifest(done)
        _sync({path.parent for path in paths})
        return Undone(manifest=done, restored=tuple(path for path, _ in todo), kept=kept)


def _newest(anchor: Path) -> Manifest:
    standing = [manifest for manifest in find_manifests(anchor) if manifest.state != "undone"]
    if not standing:
        raise ApplyError("JSE806", path=str(anchor))
    return standing[-1]


def _backup(path: Path, record: FileRecord) -> bytes:
    place = path.with_name(record.backup)
    try:
        data = place.read_bytes()
    except OSError:
        data = None
    if data is None or digest_of(data) != record.before_sha256:
        raise ApplyError("JSE808", path=str(path), backup=str(place))
    return data


def _keep(changed: Sequence[Path], now_there: dict[Path, bytes | None], now: float) -> tuple[Path, ...]:
    kept = []
    for path in changed:
        data = now_there[path]
        if data is None:
            continue
        copy = sibling(path, free_stamp([path], now), "bak")
        write_atomic(copy, _text(data), mode=path.stat().st_mode & 0o7777, overwrite=False)
        _same_owner(copy, path)
        kept.append(copy)
    return tuple(kept)


def _restore(
    todo: Sequence[tuple[Path, FileRecord]], backups: dict[Path, bytes], now_there: dict[Path, bytes | None]
) -> None:
    restored: list[Path] = []
    try:
        for path, record in todo:
            write_atomic(path, _text(backups[path]), mode=record.mode)
            restored.append(path)
    except BaseException:
        for path in reversed(restored):
            data = now_there[path]
            if data is None:
                path.unlink(missing_ok=True)
            else:
                write_atomic(path, _text(data))
        raise
