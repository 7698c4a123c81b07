# SPDX-License-Identifier: Apache-2.0
"""What was started and what was taken down for it, on disk, so that a program that was killed can be cleaned up after.

One JSON file a start, readable by its owner only. It is removed once everything is as it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from attrs import evolve, field, frozen

from jetson_specdec.server.launch import MARKER

if TYPE_CHECKING:
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.occupants import Occupant

__all__ = ["Restored", "RunState", "default_state_dir", "leftovers", "marked_processes", "restore"]

SCHEMA_VERSION = 1


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
        owner_pid, owner_started: the program that started it, and when that began (ticks since boot).
        keeper_pid: the keeper.
        log_path: its log.
        stop, after: commands that end it and tidy up; empty for a native process.
        remove: files written for it.
        taken_down: servers that were ended to make room, to be brought back.
    """

    run_id: str
    owner_pid: int
    owner_started: int | None = None
    keeper_pid: int | None = None
    log_path: str | None = None
    stop: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()
    remove: tuple[str, ...] = ()
    taken_down: tuple[Occupant, ...] = ()
    created: float = field(factory=time.time)

    def save(self, folder: Path) -> Path:
        """Write the file, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{self.run_id}.json"
        partial = folder / f".{self.run_id}.{os.getpid()}"
        data = {"schema_version": SCHEMA_VERSION, **attrs.asdict(self)}
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(data, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        return path

    @classmethod
    def load(cls, path: Path) -> RunState | None:
        """Read a file; None where it is none of ours."""
        from jetson_specdec.server.occupants import Occupant

        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
            if data.pop("schema_version") != SCHEMA_VERSION:
                return None
            for name in ("stop", "after"):
                data[name] = tuple(tuple(argv) for argv in data[name])
            data["remove"] = tuple(data["remove"])
            data["taken_down"] = tuple(Occupant.from_json(item) for item in data["taken_down"])
            return cls(**data)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def orphaned(self) -> bool:
        """Whether the program that started it is gone."""
        started = start_ticks(self.owner_pid)
        return started is None or (self.owner_started is not None and started != self.owner_started)


@frozen(kw_only=True)
class Restored:
    """What cleaning up after one start did.

    Attributes:
        run_id: which start.
        ended: processes that were still running and were ended.
        brought_back: names of the servers that were started again.
        failed: names of those that could not be, with the reason.
    """

    run_id: str
    ended: tuple[int, ...] = ()
    brought_back: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()


def start_ticks(pid: int) -> int | None:
    """Return when a process began (clock ticks since boot), or None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    rest = text.rpartition(b")")[2].split()
    return None if not rest or rest[0] == b"Z" else int(rest[19])


def marked_processes(run_id: str) -> list[int]:
    """Return the living processes that carry the mark of a start (those that may be looked at)."""
    mark = f"{MARKER}={run_id}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if mark in (place / "environ").read_bytes().split(b"\0") and start_ticks(int(place.name)) is not None:
                found.append(int(place.name))
    return found


def leftovers(state_dir: str | Path | None = None) -> tuple[RunState, ...]:
    """Return the starts whose program is gone, oldest first."""
    folder = Path(state_dir) if state_dir is not None else default_state_dir()
    states = [RunState.load(path) for path in sorted(folder.glob("*.json"))]
    found = [state for state in states if state is not None and state.orphaned]
    return tuple(sorted(found, key=lambda state: state.created))


def restore(
    state_dir: str | Path | None = None, *, runner: Runner | None = None, grace_s: float = 20.0
) -> tuple[Restored, ...]:
    """End what killed programs left behind, and bring back what they had taken down.

    Nothing is touched that this package did not start or take down itself.
    """
    from jetson_specdec.server.commands import Commands

    folder = Path(state_dir) if state_dir is not None else default_state_dir()
    runner = runner or Commands()
    done = []
    # All of them end first: the one that stands where an old server belongs may be a later start.
    states = [(state, end_marked(state, runner, grace_s=grace_s)) for state in leftovers(folder)]
    for state, ended in states:
        result = bring_back(state.taken_down, runner)
        done.append(evolve(result, run_id=state.run_id, ended=ended))
        if result.failed:
            missing = {name for name, _ in result.failed}
            evolve(state, taken_down=tuple(one for one in state.taken_down if one.name in missing)).save(folder)
        else:
            (folder / f"{state.run_id}.json").unlink(missing_ok=True)
    return tuple(done)


def end_marked(state: RunState, runner: Runner, *, grace_s: float) -> tuple[int, ...]:
    """End the processes and the container or unit of a start; return the processes that had to be ended."""
    until = time.monotonic() + grace_s
    # The keeper may be at it already: its input ended with its owner.
    while state.keeper_pid is not None and time.monotonic() < until and _is_keeper(state.keeper_pid):
        time.sleep(0.05)
    for argv in state.stop:
        runner.run(argv, timeout=grace_s + 60)
    ended: list[int] = []
    for number, wait_s in ((15, grace_s), (9, 5.0)):
        alive = marked_processes(state.run_id)
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        ended += [pid for pid in alive if pid not in ended]
        until = time.monotonic() + wait_s
        while marked_processes(state.run_id) and time.monotonic() < until:
            time.sleep(0.05)
    for argv in state.after:
        runner.run(argv, timeout=60)
    for path in state.remove:
        Path(path).unlink(missing_ok=True)
    return tuple(ended)


def _is_keeper(pid: int) -> bool:
    try:
        return b"keeper.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def bring_back(taken_down: Sequence[Occupant], runner: Runner) -> Restored:
    """Start again what was taken down, last one first."""
    from jetson_specdec.server.occupants import start_again

    back: list[str] = []
    failed: list[tuple[str, str]] = []
    for occupant in reversed(taken_down):
        reason = start_again(occupant, runner)
        if reason is None:
            back.append(occupant.name)
        else:
            failed.append((occupant.name, reason))
    return Restored(run_id="", brought_back=tuple(back), failed=tuple(failed))
