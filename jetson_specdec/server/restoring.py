# SPDX-License-Identifier: Apache-2.0
"""Cleaning up after a program that was killed: what it started is ended, what it took down is brought back.

Can itself be killed at any moment and repeated, and run twice at once: one waits for the other and finds nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.errors import OutputError, ServerError
from jetson_specdec.server.launch import KEEPER
from jetson_specdec.server.lock import locked
from jetson_specdec.server.processes import boot_id, carrying
from jetson_specdec.server.state import RunState, default_state_dir, marked_processes, read_states, sweep
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.occupants import Occupant

__all__ = ["Restored", "bring_back", "end_marked", "restore"]


@frozen(kw_only=True)
class Restored:
    """What cleaning up after one start did.

    Attributes:
        run_id: which start; of a state file that cannot be read its name.
        ended: processes that were still running and were ended.
        brought_back: names of the servers that were started again.
        running: names of those that ran already, so that nothing was done.
        failed: names of those that could not be, with the reason.
        path: the state file, where it is kept.
        unreadable: why the state file cannot be used; then nothing it names was touched.
    """

    run_id: str
    ended: tuple[int, ...] = ()
    brought_back: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    path: str | None = None
    unreadable: str | None = None


def restore(
    state_dir: str | Path | None = None, *, runner: Runner | None = None, grace_s: float = 20.0
) -> tuple[Restored, ...]:
    """End what killed programs left behind, and bring back what they had taken down.

    Nothing is touched that this package did not start or take down itself.

    Args:
        state_dir: where started servers are written down; None: the usual place.
        runner: runs `docker` and `systemctl`.
        grace_s: how long what is ended may take.

    Raises:
        ServerError: a program that starts servers is at work here (JSE935); nothing was touched.
    """
    from jetson_specdec.server.commands import Commands

    folder = Path(state_dir) if state_dir is not None else default_state_dir()
    runner = runner or Commands()
    with locked(folder):
        _, claimed, _ = read_states(folder)
        for claim in claimed:
            if claim.living and claim.owner_pid != os.getpid():
                raise ServerError("JSE935", pid=claim.owner_pid, path=str(folder))
        return _restore(folder, runner, grace_s)


def _restore(folder: Path, runner: Runner, grace_s: float) -> tuple[Restored, ...]:
    sweep(folder)
    states, claimed, broken = read_states(folder)
    done: list[Restored] = []
    # All of them end first: the one that stands where an old server belongs may be a later start.
    ended = []
    for state in states:
        if not state.orphaned:
            continue
        pids, left = ((), ()) if state.ended else end_marked(state, runner, grace_s=grace_s)
        now = evolve(state, ended=not left)
        if now.ended and not state.ended and now.taken_down:
            _save(now, folder)
        ended.append((now, pids, left))
    for state, pids, left in ended:
        result, rest = bring_back(state, runner, save=lambda now: _save(now, folder), grace_s=grace_s)
        path = folder / f"{state.run_id}.json"
        kept = bool(rest.taken_down or left)
        if kept:
            _save(rest, folder)
        else:
            path.unlink(missing_ok=True)
        failed = (*left, *result.failed)
        done.append(evolve(result, ended=pids, failed=failed, path=str(path) if kept else None))
    for claim in claimed:
        if not claim.living:
            claim.drop(folder)
    done += [Restored(run_id=Path(each.path).stem, path=each.path, unreadable=each.reason) for each in broken]
    return tuple(done)


def _save(state: RunState, folder: Path) -> None:
    """Write down how far it is; a full disk must not keep a server from coming back."""
    with contextlib.suppress(OutputError):
        state.save(folder)


def end_marked(
    state: RunState, runner: Runner, *, grace_s: float
) -> tuple[tuple[int, ...], tuple[tuple[str, str], ...]]:
    """End the processes and the container or unit of a start.

    Returns:
        The processes that had to be ended, and what could not be ended, with the reason.
    """
    _end_keepers(state.run_id, grace_s)
    left: list[tuple[str, str]] = []
    for argv in state.stop:
        answer = runner.run(argv, timeout=grace_s + 60)
        if answer is None or not answer.ok:
            said = (answer.stderr or answer.stdout).strip()[-300:] if answer is not None else "no answer"
            left.append((state.run_id, said or f"exit code {answer.exit_code if answer is not None else None}"))
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
    left += [(f"process {pid}", "it does not end") for pid in marked_processes(state.run_id)]
    for argv in state.after:
        runner.run(argv, timeout=60)
    for path in state.remove:
        with contextlib.suppress(OSError):
            Path(path).unlink(missing_ok=True)
    for folder in {Path(path).parent for path in state.remove if Path(path).parent.name == f"{state.run_id}.files"}:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return tuple(ended), tuple(left)


def _end_keepers(run_id: str, grace_s: float) -> None:
    """Wait until the keeper is done, as its input ended with its owner; one that goes on for ever is ended.

    A keeper that is only late would end the server that was brought back in place of its own.
    """
    until = time.monotonic() + 2 * grace_s + 60
    while keepers := carrying(KEEPER, run_id):
        if time.monotonic() > until:
            for pid in keepers:
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
            until += 5
        time.sleep(0.05)


def bring_back(
    state: RunState,
    runner: Runner,
    *,
    save: Callable[[RunState], None],
    grace_s: float = 20.0,
) -> tuple[Restored, RunState]:
    """Start again what was taken down, last one first; what is back is struck off the list at once.

    Args:
        state: of the start it was taken down for.
        runner: runs `docker` and `systemctl`.
        save: writes the state down again.
        grace_s: how long a server whose end was ordered may take to end.

    Returns:
        What was done, and the state with what is left to do.
    """
    from jetson_specdec.server.displace import come_back

    same = state.boot is None or state.boot == boot_id()
    back: list[str] = []
    running: list[str] = []
    failed: list[tuple[str, str]] = []
    left: list[Occupant] = []
    waiting = list(state.taken_down)
    while waiting:
        occupant = waiting.pop()
        if not occupant.ordered:
            running.append(occupant.name)  # written down, and never touched
        else:
            came = come_back(occupant, runner, boot_same=same, grace_s=grace_s)
            if came.how == "failed":
                left.insert(0, occupant)
                failed.append((occupant.name, came.reason or ""))
                continue
            (back if came.how == "started" else running).append(occupant.name)
        state = evolve(state, taken_down=(*waiting, *left))
        if state.taken_down:
            save(state)
    if failed and state.otherwise:
        # What was to run instead does not start: then what ran before does.
        state = evolve(state, taken_down=state.otherwise, otherwise=())
        save(state)
        again, state = bring_back(state, runner, save=save, grace_s=grace_s)
        return evolve(again, failed=(*failed, *again.failed)), state
    done = Restored(run_id=state.run_id, brought_back=tuple(back), running=tuple(running), failed=tuple(failed))
    return done, state
