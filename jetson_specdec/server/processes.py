# SPDX-License-Identifier: Apache-2.0
"""Telling processes apart so that nobody else's is ever meant: by when they began, by their mark, by their command."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from jetson_specdec.server.launch import KEEPER, MARKER

__all__ = ["alive", "boot_id", "carrying", "same_command", "start_ticks"]


def boot_id() -> str | None:
    """Return what names this boot of the machine (random(4)); process ids and start times count within one only."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def start_ticks(pid: int) -> int | None:
    """Return when a process began (clock ticks since boot), or None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    rest = text.rpartition(b")")[2].split()
    return None if not rest or rest[0] in (b"Z", b"X") else int(rest[19])


def alive(pid: int, started: int | None, boot: str | None) -> bool:
    """Whether the process that was noted down still runs: the same number, begun at the same time, in the same boot.

    Args:
        pid: its number.
        started: when it began; None where that was not known.
        boot: the boot it was seen in; None where that was not known.
    """
    now = boot_id()
    if boot is not None and now is not None and boot != now:
        return False
    ticks = start_ticks(pid)
    return ticks is not None and (started is None or ticks == started)


def _processes() -> Iterator[Path]:
    own = str(os.getpid())
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and place.name != own:
            yield place


def carrying(name: str, value: str) -> list[int]:
    """Return the living processes with a variable in their environment (those that may be looked at)."""
    mark = f"{name}={value}".encode()
    found = []
    for place in _processes():
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0") and start_ticks(int(place.name)) is not None:
                found.append(int(place.name))
    return found


def same_command(argv: Sequence[str], *, but: Sequence[int] = ()) -> list[int]:
    """Return the living processes with exactly this command line that were not started for a measurement.

    Args:
        argv: the command line.
        but: processes that do not count.
    """
    if not argv:
        return []
    wanted = b"\0".join(os.fsencode(word) for word in argv) + b"\0"
    ours = (f"{MARKER}=".encode(), f"{KEEPER}=".encode())
    found = []
    for place in _processes():
        pid = int(place.name)
        with contextlib.suppress(OSError):
            if pid in but or (place / "cmdline").read_bytes() != wanted or start_ticks(pid) is None:
                continue
            if not any(item.startswith(ours) for item in (place / "environ").read_bytes().split(b"\0")):
                found.append(pid)
    return found
