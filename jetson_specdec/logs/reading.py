# SPDX-License-Identifier: Apache-2.0
"""Reading log files: bounded in memory, whatever is in them."""

from __future__ import annotations

import os
from pathlib import Path

from jetson_specdec.errors import InputError
from jetson_specdec.files import reason_of

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "decode", "read_log"]

HEAD_BYTES = 16 * 2**20
TAIL_BYTES = 48 * 2**20
"""Of a larger file the beginning (arguments, first start) and the end (last start) are read."""


def read_log(path: Path) -> tuple[str, bool]:
    """Return a log's text, and whether its middle was left out.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEAD_BYTES + TAIL_BYTES)
            rest = file.read(1) if len(head) == HEAD_BYTES + TAIL_BYTES else b""
            if not rest:
                return decode(head), False
            file.seek(max(size - TAIL_BYTES, HEAD_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError as error:
        raise InputError("JSE702", path=str(path), reason=reason_of(error)) from error
    # Cut at line ends, so that no half of a line is read as a line.
    begin, _, _ = head[:HEAD_BYTES].rpartition(b"\n")
    _, _, end = tail.partition(b"\n")
    return decode(begin + b"\n" + end), True


def decode(data: bytes) -> str:
    """Decode a log: UTF-8, or UTF-16 where it begins with its mark; other bytes are replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")
