# SPDX-License-Identifier: Apache-2.0
"""One at a time: a lock on the folder of the state files, which the kernel takes back from whoever is killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked"]

_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def locked(folder: Path, *, wait_s: float = 300.0) -> Iterator[bool]:
    """Hold the lock of a folder, so that two programs do not bring the same server back.

    The folder itself is locked, so no file is left behind. A process that was forked and has not yet begun its own
    program still holds the lock of its parent: whoever gets the lock sees every process that was started under it.

    Args:
        folder: an existing one; without it there is nothing to lock.
        wait_s: how long to wait for another holder.

    Yields:
        Whether it is held; False where the file system has no such locks, or after waiting for nothing.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield _take(handle, wait_s)
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)


def _take(handle: int, wait_s: float) -> bool:
    until = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in _BUSY or time.monotonic() >= until:
                return False
        time.sleep(0.05)
