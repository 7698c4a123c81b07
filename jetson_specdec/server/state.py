# SPDX-License-Identifier: Apache-2.0
"""What was started and what was taken down for it, on disk, so that a program that was killed can be cleaned up after.

One JSON file a start, readable by its owner only. It is removed once everything is as it was. A program that starts
several servers one after another also leaves a claim, so that nobody cleans up in the middle of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field

from jetson_specdec.errors import OutputError
from jetson_specdec.files import reason_of
from jetson_specdec.server.launch import MARKER
from jetson_specdec.server.processes import alive, boot_id, carrying, start_ticks
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.server.occupants import Occupant

__all__ = [
    "Claim",
    "RunState",
    "Unreadable",
    "claims",
    "default_state_dir",
    "leftovers",
    "marked_processes",
    "read_states",
    "start_ticks",
]

SCHEMA_VERSION = 1
CLAIM = "claim-"
"""How the name of a claim's file begins; those of starts begin with their run id (hexadecimal digits)."""


def default_state_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return where state files lie: `$XDG_STATE_HOME/jetson-specdec/servers` (XDG Base Directory Specification)."""
    environ = os.environ if environ is None else environ
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/root")) / ".local" / "state")
    return Path(base) / "jetson-specdec" / "servers"


@frozen(kw_only=True)
class RunState:
    """One start.

    Attributes:
        run_id: its name, also the value of the mark in the environment of its processes.
        owner_pid, owner_started, boot: the program that started it, when that began (ticks since boot), and in which
            boot of the machine; 0 where it has given up, and anybody may go on.
        keeper_pid: the keeper.
        log_path: its log.
        stop, after: commands that end it and tidy up; empty for a native process.
        remove: files written for it.
        taken_down: servers that were ended to make room, to be brought back.
        otherwise: what to bring back instead where `taken_down` is something new that does not start.
        ended: whether everything that was started is gone, so that only `taken_down` is left to do.
    """

    run_id: str
    owner_pid: int
    owner_started: int | None = None
    boot: str | None = None
    keeper_pid: int | None = None
    log_path: str | None = None
    stop: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()
    remove: tuple[str, ...] = ()
    taken_down: tuple[Occupant, ...] = ()
    otherwise: tuple[Occupant, ...] = ()
    ended: bool = False
    created: float = field(factory=time.time)

    def save(self, folder: Path) -> Path:
        """Write the file, whole or not at all.

        Raises:
            OutputError: it could not be written; what stood there is untouched.
        """
        return _write(folder, self.run_id, attrs.asdict(self))

    @classmethod
    def load(cls, path: Path) -> RunState | None:
        """Read a file; None where it is none of ours."""
        state = _read(path)
        return state if isinstance(state, RunState) else None

    @property
    def orphaned(self) -> bool:
        """Whether the program that started it is gone."""
        return not alive(self.owner_pid, self.owner_started, self.boot)


@frozen(kw_only=True)
class Claim:
    """A program at work that starts servers, and must not be disturbed between two of them.

    Attributes:
        name: of its file.
        owner_pid, owner_started, boot: as in `RunState`.
        about: what it is doing; JSON values.
    """

    name: str
    owner_pid: int
    owner_started: int | None = None
    boot: str | None = None
    about: Mapping[str, Any] = field(factory=dict)

    @classmethod
    def make(cls, folder: Path, **about: Any) -> Claim:
        """Write a claim of this program.

        Raises:
            OutputError: it could not be written.
        """
        own = os.getpid()
        name = f"{CLAIM}{own}-{os.urandom(3).hex()}"
        made = cls(name=name, owner_pid=own, owner_started=start_ticks(own), boot=boot_id(), about=about)
        _write(folder, name, attrs.asdict(made))
        return made

    @property
    def living(self) -> bool:
        """Whether its program still runs."""
        return alive(self.owner_pid, self.owner_started, self.boot)

    def drop(self, folder: Path) -> None:
        """Remove it."""
        with contextlib.suppress(OSError):
            (folder / f"{self.name}.json").unlink(missing_ok=True)


@frozen
class Unreadable:
    """A state file that cannot be used.

    Attributes:
        path: which.
        reason: why.
    """

    path: str
    reason: str


def _write(folder: Path, name: str, values: Mapping[str, Any]) -> Path:
    path = folder / f"{name}.json"
    partial = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
                json.dump({"schema_version": SCHEMA_VERSION, **values}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync(folder)
    except OSError as error:
        raise OutputError("JSE007", path=str(path), reason=reason_of(error)) from error
    return path


def _sync(folder: Path) -> None:
    """Let the name of a new file survive a loss of power as well."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read(path: Path) -> RunState | Claim | Unreadable:
    from jetson_specdec.server.occupants import Occupant

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            return Unreadable(str(path), "it is no state file")
        version = data.pop("schema_version")
        if version != SCHEMA_VERSION:
            return Unreadable(str(path), f"schema_version {version}, this release knows {SCHEMA_VERSION}")
        if path.name.startswith(CLAIM):
            return Claim(**data)
        for name in ("stop", "after"):
            data[name] = tuple(tuple(argv) for argv in data[name])
        data["remove"] = tuple(data["remove"])
        for name in ("taken_down", "otherwise"):
            data[name] = tuple(Occupant.from_json(item) for item in data[name])
        return RunState(**data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Unreadable(str(path), reason_of(error) or type(error).__name__)


def read_states(folder: Path) -> tuple[tuple[RunState, ...], tuple[Claim, ...], tuple[Unreadable, ...]]:
    """Return the starts (oldest first), the claims and what cannot be read."""
    found = [_read(path) for path in sorted(folder.glob("*.json"))]
    states = sorted((each for each in found if isinstance(each, RunState)), key=lambda state: state.created)
    return (
        tuple(states),
        tuple(each for each in found if isinstance(each, Claim)),
        tuple(each for each in found if isinstance(each, Unreadable)),
    )


def claims(folder: Path) -> tuple[Claim, ...]:
    """Return the claims of living programs."""
    return tuple(each for each in read_states(folder)[1] if each.living)


def leftovers(state_dir: str | Path | None = None) -> tuple[RunState, ...]:
    """Return the starts whose program is gone, oldest first."""
    folder = Path(state_dir) if state_dir is not None else default_state_dir()
    return tuple(state for state in read_states(folder)[0] if state.orphaned)


def marked_processes(run_id: str) -> list[int]:
    """Return the living processes that carry the mark of a start (those that may be looked at)."""
    return carrying(MARKER, run_id)


def sweep(folder: Path) -> None:
    """Remove what was being written when its writer was killed."""
    for path in folder.glob(".*"):
        _, dot, pid = path.name.rpartition(".")
        if dot and pid.isdigit() and not alive(int(pid), None, None):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
