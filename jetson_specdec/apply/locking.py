# SPDX-License-Identifier: Apache-2.0
"""One apply or undo at a time: a lock on the folders of the files, which leaves nothing behind and ends with us."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jetson_specdec.errors import ApplyError
from jetson_specdec.files import reason_of

__all__ = ["locked"]

_BUSY = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)


@contextmanager
def locked(paths: Iterable[Path]) -> Iterator[None]:
    """Hold the folders of some files against another apply; never waits.

    The kernel drops the lock when the process ends, however it ends, so that none is ever left over. A file system
    without locks on folders (some network ones) is refused rather than trusted.

    Raises:
        ApplyError: another apply holds one of them, or it cannot be locked.
    """
    import fcntl

    handles: list[int] = []
    try:
        for folder in sorted({path.parent for path in paths}):
            try:
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError as error:
                raise ApplyError("JSE815", path=str(folder), reason=reason_of(error)) from error
            handles.append(handle)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                code = "JSE804" if error.errno in _BUSY else "JSE815"
                raise ApplyError(code, path=str(folder), reason=reason_of(error)) from error
        yield
    finally:
        for handle in reversed(handles):
            os.close(handle)
