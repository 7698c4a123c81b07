# SPDX-License-Identifier: Apache-2.0
"""What several commands share: the board that options name, and JSON on stdout."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from jetson_specdec.device import Device
    from jetson_specdec.host import Host
    from jetson_specdec.models.catalog import Catalog

__all__ = ["board", "catalog_of", "note", "open_host", "print_json", "quieten", "read_audit", "read_stdin", "tell"]


def print_json(value: Any) -> None:
    """Print a document as JSON; text that is not valid Unicode is escaped rather than lost."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode("utf-8")
        sys.stdout.write(text + "\n")
    except UnicodeEncodeError:
        sys.stdout.write(json.dumps(value, indent=2) + "\n")


def note(text: str) -> None:
    """Print a remark on stderr, where answers never go; nobody there to read it is no failure."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, ValueError):
        quieten(sys.stderr)


def quieten(stream: TextIO) -> None:
    """Send what still goes to a stream nowhere: its reader has gone, and flushing it at exit would fail as well."""
    with contextlib.suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


def tell(label: str, **values: Any) -> None:
    """Print a remark of the message catalogue on stderr, with the program's name."""
    from jetson_specdec.messages import render

    note("jetson-specdec: " + render(label, values))


def open_host(recorded: Path | None) -> Host:
    """Return the recorded board, or this machine.

    Raises:
        DeviceError: the recording cannot be read.
    """
    from jetson_specdec.host import LocalHost, RecordedHost

    return LocalHost() if recorded is None else RecordedHost(recorded)


def read_audit(path: Path) -> dict[str, Any]:
    """Read the JSON of `jetson-memory-audit` or `jetson-diagnostic`; `-` is stdin.

    Raises:
        OptionError: it cannot be read, or is no JSON object.
    """
    from jetson_specdec.files import read_text

    text = read_stdin() if str(path) == "-" else read_text(path, OptionError, errors="replace")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise OptionError("JSE006", path=str(path), format="JSON", reason=str(error)) from error
    if not isinstance(data, dict):
        raise OptionError("JSE519", path=str(path))
    return data


def read_stdin() -> str:
    """Return all of stdin; bytes that are not UTF-8 survive."""
    return sys.stdin.buffer.read().decode("utf-8", errors="surrogateescape")


def board(*, device: str | None, l4t: str | None, audit: Path | None, recorded: Path | None) -> tuple[Host, Device]:
    """Return the host to read and the board that the options describe.

    Raises:
        OptionError: options contradict each other.
        DeviceError: an unknown module or release, or a recording that cannot be read.
    """
    from jetson_specdec.device import detect

    named = [name for name, value in (("--device", device), ("--audit", audit), ("--recorded", recorded)) if value]
    if len(named) > 1:
        raise OptionError("JSE518", option=named[0], other=named[1])
    host = open_host(recorded)
    return host, detect(host, named=device, l4t=l4t, audit=read_audit(audit) if audit else None)


def catalog_of(files: list[Path] | None) -> Catalog:
    """Return the catalogue with the user's own entries.

    Raises:
        CatalogueError: a file cannot be read or has a malformed entry.
    """
    from jetson_specdec.models.catalog import Catalog

    return Catalog.load(files) if files else Catalog.default()
