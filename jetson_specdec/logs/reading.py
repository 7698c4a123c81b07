# SPDX-License-Identifier: Apache-2.0
"""Reading log files: bounded in memory, whatever is in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from jetson_specdec.errors import InputError
from jetson_specdec.files import reason_of

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "decode", "read_log", "read_stream"]

HEAD_BYTES = 16 * 2**20
TAIL_BYTES = 48 * 2**20
"""Of a larger file the beginning (arguments, first start) and the end (last start) are read."""
_CHUNK_BYTES = 2**20
_GZIP = b"\x1f\x8b"


def read_log(path: Path) -> tuple[str, bool]:
    """Return a log's text, and whether its middle was left out. Rotated logs that were packed (gzip) are unpacked.

    Raises:
        InputError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return read_stream(file.read)
            magic = file.read(len(_GZIP))
            file.seek(0)
            if magic == _GZIP:
                return _unpacked(file)
            head = file.read(HEAD_BYTES + TAIL_BYTES)
            rest = file.read(1) if len(head) == HEAD_BYTES + TAIL_BYTES else b""
            if not rest:
                return decode(head), False
            file.seek(max(status.st_size - TAIL_BYTES, HEAD_BYTES))
            return _both_ends(head[:HEAD_BYTES], file.read(TAIL_BYTES)), True
    except (OSError, EOFError) as error:
        raise InputError("JSE702", path=str(path), reason=reason_of(error)) from error


def _unpacked(file: BinaryIO) -> tuple[str, bool]:
    import gzip
    import zlib

    try:
        with gzip.open(file) as unpacked:
            return read_stream(unpacked.read)
    except zlib.error as error:
        raise OSError(str(error)) from error


def read_stream(read: Callable[[int], bytes]) -> tuple[str, bool]:
    """Return the text of what cannot be searched in, such as standard input, and whether its middle was left out."""
    head = read(HEAD_BYTES)
    tail = bytearray()
    shortened = False
    while chunk := read(_CHUNK_BYTES):
        tail += chunk
        if len(tail) > TAIL_BYTES + 16 * _CHUNK_BYTES:
            del tail[:-TAIL_BYTES]
            shortened = True
    if not shortened:
        return decode(head + bytes(tail)), False
    return _both_ends(head, bytes(tail[-TAIL_BYTES:])), True


def _both_ends(head: bytes, tail: bytes) -> str:
    # Cut at line ends, so that no half of a line is read as a line.
    begin, _, _ = head.rpartition(b"\n")
    _, _, end = tail.partition(b"\n")
    return decode(begin + b"\n" + end)


def decode(data: bytes) -> str:
    """Decode a log: UTF-8, or UTF-16 where it begins with its mark; other bytes are replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")
