# SPDX-License-Identifier: Apache-2.0
"""The only door to the board: files below a root, commands, environment, time.

Everything that looks at a machine takes a `Host`, so that a recorded board (`RecordedHost`) answers like a live one.
No method raises for what a board happens to lack: absent, unreadable, a directory where a file should be, a program
that is not installed or does not answer in time are all ordinary answers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, runtime_checkable

from attrs import field

from jetson_specdec.errors import DeviceError
from jetson_specdec.values import frozen

__all__ = ["CommandResult", "Host", "LocalHost", "OverlayHost", "PathKind", "RecordedHost"]

PathKind = Literal["file", "directory", "absent", "unreadable"]
MAX_FILE_BYTES = 16 * 2**20


@frozen(kw_only=True)
class CommandResult:
    """What a program printed and how it ended."""

    argv: tuple[str, ...]
    stdout: str
    stderr: str = ""
    exit_code: int = 0

    @property
    def ok(self) -> bool:
        """Whether the program ended with 0."""
        return self.exit_code == 0


@runtime_checkable
class Host(Protocol):
    """What the rest of the package may ask of a machine."""

    def kind(self, path: str) -> PathKind:
        """Say what is at an absolute path."""

    def read_bytes(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes | None:
        """Return up to `limit` bytes of a file, or None where there is no readable file."""

    def read_text(self, path: str, *, limit: int = MAX_FILE_BYTES) -> str | None:
        """Return a file's text (UTF-8, undecodable bytes replaced), or None where there is no readable file."""

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory; empty where there is none."""

    def run(self, argv: Sequence[str], *, timeout: float = 10.0) -> CommandResult | None:
        """Run a program without a shell; None when it is not there or does not end within `timeout` seconds."""

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment."""

    @property
    def live(self) -> bool:
        """Whether this is the machine the program runs on."""

    def now(self) -> float:
        """Seconds since the epoch."""


def _below(root: Path, path: str) -> Path:
    return root / PurePosixPath(path).as_posix().lstrip("/")


class _FileHost:
    """The file half of both hosts."""

    _root: Path

    def kind(self, path: str) -> PathKind:
        target = _below(self._root, path)
        try:
            if target.is_dir():
                return "directory"
            if target.is_file():
                return "file" if os.access(target, os.R_OK) else "unreadable"
            return "unreadable" if target.exists() else "absent"
        except OSError:
            return "unreadable"

    def read_bytes(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes | None:
        try:
            with _below(self._root, path).open("rb") as file:
                return file.read(limit)
        except (OSError, ValueError):
            return None

    def read_text(self, path: str, *, limit: int = MAX_FILE_BYTES) -> str | None:
        data = self.read_bytes(path, limit=limit)
        return None if data is None else data.decode("utf-8", errors="replace")

    def file_size(self, path: str) -> int | None:
        """Return a file's size in bytes, or None; not part of `Host`: not every host can tell without reading."""
        try:
            return _below(self._root, path).stat().st_size
        except (OSError, ValueError):
            return None

    def list_dir(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(entry.name for entry in _below(self._root, path).iterdir()))
        except OSError:
            return ()


class LocalHost(_FileHost):
    """The machine this runs on.

    Args:
        root: where `/` is; another value reads a mounted image of a board.
    """

    def __init__(self, root: str | Path = "/") -> None:
        self._root = Path(root)

    @property
    def live(self) -> bool:
        """True: commands and time are those of this machine."""
        return True

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of this process."""
        return os.environ

    def run(self, argv: Sequence[str], *, timeout: float = 10.0) -> CommandResult | None:
        """Run a program with no input and the C locale; output beyond decoding is replaced, never raised."""
        import subprocess

        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return CommandResult(
            argv=tuple(argv),
            stdout=done.stdout.decode("utf-8", errors="replace"),
            stderr=done.stderr.decode("utf-8", errors="replace"),
            exit_code=done.returncode,
        )

    def now(self) -> float:
        """Return the wall clock."""
        return time.time()


class OverlayHost:
    """A recorded board with one folder of this machine laid over it: where a recipe lies while the board is elsewhere.

    Args:
        base: answers everything else.
        folder: absolute path; what is below it is read from this machine.
    """

    def __init__(self, base: Host, folder: str) -> None:
        self._base = base
        self._local = LocalHost()
        self._folder = PurePosixPath(folder)

    def _for(self, path: str) -> Host:
        return self._local if PurePosixPath(path).is_relative_to(self._folder) else self._base

    def kind(self, path: str) -> PathKind:
        """Say what is at an absolute path."""
        return self._for(path).kind(path)

    def read_bytes(self, path: str, *, limit: int = MAX_FILE_BYTES) -> bytes | None:
        """Return up to `limit` bytes of a file, or None."""
        return self._for(path).read_bytes(path, limit=limit)

    def read_text(self, path: str, *, limit: int = MAX_FILE_BYTES) -> str | None:
        """Return a file's text, or None."""
        return self._for(path).read_text(path, limit=limit)

    def list_dir(self, path: str) -> tuple[str, ...]:
        """Return the sorted names in a directory."""
        return self._for(path).list_dir(path)

    def run(self, argv: Sequence[str], *, timeout: float = 10.0) -> CommandResult | None:
        """Return what the base answers."""
        return self._base.run(argv, timeout=timeout)

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the base."""
        return self._base.environ

    @property
    def live(self) -> bool:
        """Whether the base is this machine."""
        return self._base.live

    def now(self) -> float:
        """Return the time of the base."""
        return self._base.now()


@frozen
class _Recorded:
    commands: tuple[CommandResult, ...] = field(factory=tuple)
    environ: Mapping[str, str] = field(factory=dict)


class RecordedHost(_FileHost):
    """A board saved by `jetson-specdec detect --record DIR`.

    `DIR/root/…` holds its files, `DIR/commands.json` a list of `{argv, stdout, exit_code}` (`stderr` is optional),
    `DIR/env.json` its environment. Each part may be missing. A command matches by program name and arguments; a
    recorded `tegrastats` answers for any arguments, and a recorded `nvidia-smi --query-gpu=…` for any such query.

    Raises:
        DeviceError: the folder does not exist, or one of its two JSON files is malformed.
    """

    def __init__(self, folder: str | Path) -> None:
        base = Path(folder)
        if not base.is_dir():
            raise DeviceError("JSE110", path=str(folder))
        self._root = base / "root"
        self._recorded = _Recorded(_load_commands(base / "commands.json"), _load_environ(base / "env.json"))
        self._time = base.stat().st_mtime

    @property
    def live(self) -> bool:
        """False: this is a recording."""
        return False

    @property
    def environ(self) -> Mapping[str, str]:
        """The recorded environment."""
        return self._recorded.environ

    def run(self, argv: Sequence[str], *, timeout: float = 10.0) -> CommandResult | None:
        """Return the recorded answer to a command, or None where it was not recorded.

        The answer's `argv` is what was run when recording; for `nvidia-smi --query-gpu=…` it names the columns.
        """
        program, arguments = PurePosixPath(argv[0]).name, tuple(argv[1:])
        named = [item for item in self._recorded.commands if PurePosixPath(item.argv[0]).name == program]
        for recorded in named:
            if recorded.argv[1:] == arguments or program == "tegrastats":
                return recorded
        if program == "nvidia-smi" and _queries_gpu(arguments):
            return next((item for item in named if _queries_gpu(item.argv[1:])), None)
        return None

    def now(self) -> float:
        """Return when the recording was made, as far as the folder's date tells."""
        return self._time


def _queries_gpu(arguments: Sequence[str]) -> bool:
    return any(argument.startswith("--query-gpu") for argument in arguments)


def _load_json(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise DeviceError("JSE111", path=str(path), reason=str(error)) from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise DeviceError("JSE111", path=str(path), reason=str(error)) from error


def _words(argv: Any) -> tuple[str, ...]:
    """A command as a list of words, or (in recordings made by hand) as one line."""
    if isinstance(argv, str):
        import shlex

        return tuple(shlex.split(argv))
    return tuple(str(word) for word in argv)


def _load_commands(path: Path) -> tuple[CommandResult, ...]:
    data = _load_json(path)
    if data is None:
        return ()
    try:
        return tuple(
            CommandResult(
                argv=_words(item["argv"]),
                stdout=str(item.get("stdout", "")),
                stderr=str(item.get("stderr", "")),
                exit_code=int(item.get("exit_code", 0)),
            )
            for item in data
            if item["argv"]
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise DeviceError("JSE118", path=str(path)) from error


def _load_environ(path: Path) -> Mapping[str, str]:
    data = _load_json(path)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise DeviceError("JSE119", path=str(path))
    return {str(name): str(value) for name, value in data.items()}
