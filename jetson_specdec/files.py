# SPDX-License-Identifier: Apache-2.0
"""Reading a user's files, and writing them so that a crash, a full disk or a second writer never leaves half of one."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from jetson_specdec.errors import InputError, OutputError

__all__ = ["parse_toml", "read_text", "reason_of", "write_atomic"]


def reason_of(error: Exception) -> str:
    """Return why a file could not be read or written, in the system's own words without the path where it has them."""
    return getattr(error, "strerror", None) or str(error)


def read_text(path: str | Path, error_class: type[InputError], *, errors: str = "strict") -> str:
    """Return the text of a user's file (UTF-8).

    Args:
        path: which file.
        error_class: what is raised where it cannot be read.
        errors: what becomes of bytes that are no UTF-8, as for `bytes.decode`.

    Raises:
        InputError: of that class, `JSE005`: it cannot be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8", errors=errors)
    except (OSError, UnicodeDecodeError) as error:
        raise error_class("JSE005", path=str(path), reason=reason_of(error)) from error


def parse_toml(text: str) -> dict[str, Any]:
    """Return a TOML document.

    Raises:
        ValueError: it is none.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def write_atomic(path: str | Path, text: str, *, mode: int | None = None, overwrite: bool = True) -> None:
    """Write text (UTF-8, undecodable bytes as they were read, newlines untouched) in one step.

    The text goes to a temporary file in the same directory, is flushed to disk, and replaces the target by a rename. An
    existing file keeps its permissions, and its owner and group where the process may set them. A file that may not be
    there before has no name until it is whole, so that a process that is killed leaves nothing beside it.

    Args:
        path: where to write; a symbolic link is followed, so that the link stays one.
        text: what to write.
        mode: permissions of a new file; those of the process's umask by default.
        overwrite: False refuses to replace an existing file.

    Raises:
        OutputError: nothing was written, and what stood there before is untouched.
    """
    import tempfile

    target = Path(os.path.realpath(path))
    temporary: str | None = None
    owner: tuple[int, int] | None = None
    try:
        if target.exists():
            if not overwrite:
                raise OutputError("JSE009", path=str(path))
            state = target.stat()
            mode, owner = state.st_mode & 0o7777, (state.st_uid, state.st_gid)
        if not overwrite and _write_nameless(target, text, mode):
            return
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        if owner is not None:
            _give_to(temporary, owner)  # before the permissions: changing the owner drops set-id bits
        Path(temporary).chmod(_new_file_mode() if mode is None else mode)
        if overwrite:
            Path(temporary).replace(target)
        else:
            os.link(temporary, target)  # fails where another writer was faster, unlike a rename
            Path(temporary).unlink()
        temporary = None
    except OSError as error:
        raise OutputError("JSE007", path=str(path), reason=reason_of(error)) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _write_nameless(target: Path, text: str, mode: int | None) -> bool:
    """Write a file without a name and give it one when it is whole; False where the file system cannot do that.

    Raises:
        OSError: it could not be written, or another writer was faster.
    """
    try:
        handle = os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (AttributeError, OSError):  # not Linux, or a file system without it; whatever else is wrong comes up again
        return False
    with os.fdopen(handle, "wb") as file:
        file.write(text.encode("utf-8", errors="surrogateescape"))
        file.flush()
        os.fchmod(handle, _new_file_mode() if mode is None else mode)
        os.fsync(handle)
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # A directory that is named makes this linkat(2), which follows the link below /proc to the open file.
            os.link(f"/proc/self/fd/{handle}", target.name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError:
            return False
        finally:
            os.close(folder)
    return True


def _give_to(path: str, owner: tuple[int, int]) -> None:
    """With sudo a file still belongs to whom it belonged; without rights to set it, the new file is the writer's."""
    state = os.stat(path)  # noqa: PTH116 - beside chown, which has no method of its own
    if (state.st_uid, state.st_gid) != owner:
        with contextlib.suppress(PermissionError):
            os.chown(path, *owner)


def _new_file_mode() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
