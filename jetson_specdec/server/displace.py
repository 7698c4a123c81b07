# SPDX-License-Identifier: Apache-2.0
"""Making room and giving it back: a server is ended so that it stays down, and later started again exactly once.

Nobody is touched unless told to. A server is ended by what supervises it (Docker for a container, systemd for a unit):
a signal alone would be answered by `--restart` or `Restart=`.

Whoever does this can be killed at any moment, so each half can be repeated: what will be done is written down before it
is done (`intended`), and before a server is started it is asked whether it runs already: a container by its id, a unit
and a service by their managers, a process by its mark and by its command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attrs import evolve

from jetson_specdec.errors import ServerError
from jetson_specdec.server.launch import BACK
from jetson_specdec.server.occupants import Occupant, inspect, on_port, port_is_free, unit_is_up
from jetson_specdec.server.processes import alive, carrying, same_command, start_ticks
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.server.commands import Runner

__all__ = ["BACK_LABEL", "Came", "come_back", "intended", "returned", "take_down"]

BACK_LABEL = "jetson-specdec.back"
"""Label of a container that was run again in place of one that its stop had removed."""

_STARTER = str(Path(__file__).with_name("starter.py"))
_STAYS_S = 0.5
_BEGINS_S = 0.5


@frozen
class Came:
    """How a server came back.

    Attributes:
        how: `started`; `running` where it ran already; `failed`.
        reason: why it failed.
    """

    how: Literal["started", "running", "failed"]
    reason: str | None = None


# --- making room ------------------------------------------------------------------------------------------------------


def intended(occupant: Occupant, *, run_id: str, number: int) -> Occupant:
    """Return a server with what is about to be done to it, to be written down first."""
    rename = None
    if occupant.kind == "container" and occupant.holds == "name" and not occupant.vanishes:
        rename = f"{occupant.name}-before-{run_id}"
    family = _family(occupant.pid) if occupant.kind == "process" and occupant.pid is not None else ()
    return evolve(occupant, rename=rename, family=family, ordered=True, mark=occupant.mark or f"{run_id}.{number}")


def _family(pid: int) -> tuple[tuple[int, int], ...]:
    import psutil

    below = []
    with contextlib.suppress(psutil.Error):
        below = [each.pid for each in psutil.Process(pid).children(recursive=True)]
    return tuple((each, ticks) for each in below if (ticks := start_ticks(each)) is not None)


def take_down(occupant: Occupant, runner: Runner, *, grace_s: float = 20.0) -> None:
    """End a server that is in the way.

    Args:
        occupant: with what was written down about it (`intended`).
        runner: runs `docker` and `systemctl`.
        grace_s: how long it may take to end politely.

    Raises:
        ServerError: it could not be ended (JSE920), or something brings it back (JSE921).
    """
    if occupant.kind == "process" and occupant.pid is not None:
        if not _end_process(occupant, grace_s):
            raise ServerError("JSE920", name=occupant.name, command="kill", said="it does not end")
    elif occupant.stop:
        if occupant.running:
            answer = runner.run(occupant.stop, timeout=grace_s + 60)
            if answer is None or not answer.ok:
                said = (answer.stderr or answer.stdout).strip()[-300:] if answer is not None else "no answer"
                raise ServerError("JSE920", name=occupant.name, command=" ".join(occupant.stop), said=said)
        if occupant.kind == "container" and occupant.vanishes:
            _wait_until_removed(occupant, runner, grace_s)
        elif occupant.rename is not None:
            program = occupant.stop[0]
            answer = runner.run([program, "rename", occupant.container or occupant.name, occupant.rename])
            if answer is None or not answer.ok:
                said = answer.stderr.strip()[-300:] if answer is not None else "no answer"
                raise ServerError("JSE920", name=occupant.name, command=f"{program} rename", said=said)
    else:
        raise ServerError("JSE920", name=occupant.name, command="kill", said=occupant.command)
    if occupant.port is not None:
        _wait_for_port(occupant, grace_s)


def _wait_until_removed(occupant: Occupant, runner: Runner, grace_s: float) -> None:
    until = time.monotonic() + grace_s
    while inspect(occupant.stop[0], occupant.container or occupant.name, runner) is not None:
        if time.monotonic() > until:
            raise ServerError("JSE920", name=occupant.name, command=" ".join(occupant.stop), said="it is still there")
        time.sleep(0.1)


def _wait_for_port(occupant: Occupant, grace_s: float) -> None:
    """Wait until the port is free and stays so for a moment: a supervisor that was not seen would come back."""
    port = occupant.port or 0
    until = time.monotonic() + grace_s
    free_since: float | None = None
    while time.monotonic() < until:
        if occupant.kind == "process" and _again(occupant):
            break  # it holds no port before it has loaded
        if not port_is_free(port):
            free_since = None
        elif free_since is None:
            free_since = time.monotonic()
        elif time.monotonic() - free_since > _STAYS_S:
            return
        time.sleep(0.05)
    raise ServerError("JSE921", name=occupant.name, port=port)


def _again(occupant: Occupant) -> list[int]:
    """Return the processes that were started with the command of one that was ended, and not by us."""
    family = [pid for pid, _ in occupant.family]
    return same_command(occupant.argv, but=[*family, *([occupant.pid] if occupant.pid is not None else [])])


def _end_process(occupant: Occupant, grace_s: float) -> bool:
    """End a process with everything below it; return whether it is gone."""
    own = [(occupant.pid, occupant.pid_started)] if occupant.pid and occupant.pid_started is not None else []
    members = [*own, *occupant.family]
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        # Politely only the first one: it ends what is below it by itself, in its own order.
        for pid, ticks in members if number == signal.SIGKILL else own:
            if alive(pid, ticks, None):
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        until = time.monotonic() + wait_s
        while any(alive(pid, ticks, None) for pid, ticks in members):
            if time.monotonic() >= until:
                break
            time.sleep(0.02)
        else:
            return True
    return False


def returned(occupant: Occupant, runner: Runner) -> bool:
    """Whether a server that was taken down runs again, started by somebody else."""
    if not occupant.running:
        return False
    if occupant.kind == "process":
        return bool(_again(occupant))
    if occupant.kind == "container" and not occupant.vanishes:
        data = inspect(occupant.stop[0], occupant.container or occupant.rename or occupant.name, runner)
        return bool(((data or {}).get("State") or {}).get("Running"))
    return False


# --- giving it back ---------------------------------------------------------------------------------------------------


def come_back(occupant: Occupant, runner: Runner, *, boot_same: bool = True, grace_s: float = 20.0) -> Came:
    """Bring back what was taken down, unless it runs already.

    Args:
        occupant: as it was written down.
        runner: runs `docker` and `systemctl`.
        boot_same: whether the machine was not restarted since.
        grace_s: how long a process whose end was ordered may take to end.
    """
    if occupant.kind == "process":
        return _process_back(occupant, boot_same, grace_s) if occupant.running else Came("running")
    if occupant.kind == "container":
        return _vanished_back(occupant, runner) if occupant.vanishes else _container_back(occupant, runner)
    if not occupant.running:
        return Came("running")
    if occupant.kind == "unit" and unit_is_up(occupant, runner):
        return Came("running")
    if occupant.kind == "service" and _service_is_up(occupant, runner):
        return Came("running")
    return _started(occupant.start, runner)


def _started(argv: Sequence[str], runner: Runner) -> Came:
    answer = runner.run(argv, timeout=300)
    if answer is None:
        return Came("failed", f"{' '.join(argv[:2])}: no answer")
    return Came("started") if answer.ok else Came("failed", (answer.stderr or answer.stdout).strip()[-300:])


def _service_is_up(occupant: Occupant, runner: Runner) -> bool:
    compose = occupant.stop[:-2]
    answer = runner.run([*compose, "ps", "-q", "--status", "running", occupant.name])
    return answer is not None and answer.ok and bool(answer.stdout.strip())


def _container_back(occupant: Occupant, runner: Runner) -> Came:
    program = occupant.stop[0]
    asked = [occupant.container] if occupant.container else [occupant.rename or occupant.name, occupant.name]
    data = next((found for name in asked if name and (found := inspect(program, name, runner)) is not None), None)
    if data is None:
        return Came("failed", f"{program} knows no such container any more, or does not answer")
    if str(data.get("Name") or "").lstrip("/") != occupant.name:
        answer = runner.run([program, "rename", str(data.get("Id") or occupant.rename), occupant.name])
        if answer is None or not answer.ok:
            said = answer.stderr.strip()[-300:] if answer is not None else "no answer"
            return Came("failed", f"it waits under the name {data.get('Name')}: {said}")
    state = data.get("State") or {}
    if not occupant.running or state.get("Running") or state.get("Restarting"):
        return Came("running")
    return _started((program, "start", occupant.name), runner)


def _vanished_back(occupant: Occupant, runner: Runner) -> Came:
    """Run a container again that was removed when it was stopped."""
    program = occupant.stop[0]
    if not occupant.running:
        return Came("running")
    label = ("--filter", f"label={BACK_LABEL}={occupant.mark}")
    ours = runner.run([program, "ps", "-aq", *label])
    if ours is None or not ours.ok:
        return Came("failed", f"{program} does not answer")
    for identity in ours.stdout.split():
        state = (inspect(program, identity, runner) or {}).get("State") or {}
        if state.get("Running"):
            return Came("running")
        runner.run([program, "rm", "-f", identity])
    data = inspect(program, occupant.container or occupant.name, runner)
    if data is None and occupant.holds == "name":
        data = inspect(program, occupant.name, runner)
    if data is not None and (data.get("State") or {}).get("Running"):
        return Came("running")  # its stop was never carried out, or its owner has run it again
    return _spawned(occupant, wait=True)


def _process_back(occupant: Occupant, boot_same: bool, grace_s: float) -> Came:
    if occupant.mark and _begun(occupant.mark):
        return Came("running")
    if boot_same and occupant.pid is not None and not _end_process(occupant, grace_s):
        return Came("failed", "the old process does not end")
    if same_command(occupant.argv):
        return Came("running")
    if occupant.port is not None:
        until = time.monotonic() + 5.0
        while not (free := port_is_free(occupant.port)) and time.monotonic() < until:
            time.sleep(0.1)
        if not free:
            return Came("failed", _taken(occupant.port, _NoRunner()))
    return _spawned(occupant)


def _begun(mark: str) -> bool:
    """Whether a server with this mark runs; one that is just being started is waited for."""
    until = time.monotonic() + 30.0
    while True:
        marked = carrying(BACK, mark)
        if not any(_is_starter(pid) for pid in marked) or time.monotonic() >= until:
            return bool(marked)
        time.sleep(0.02)


def _is_starter(pid: int) -> bool:
    try:
        return _STARTER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


class _NoRunner:
    """Asks nobody: only the process on a port is wanted."""

    def run(self, argv: Sequence[str], *, timeout: float = 30.0) -> None:
        return None

    def has(self, program: str) -> bool:
        return False


def _taken(port: int, runner: Runner) -> str:
    who = on_port(port, runner)
    return f"port {port} is taken by {who.name}" + (f" (pid {who.pid})" if who.pid is not None else "")


def _spawned(occupant: Occupant, *, wait: bool = False) -> Came:
    """Start the command of a server again, marked.

    Args:
        occupant: which server.
        wait: whether the command ends by itself once the server is started (`docker run -d`).
    """
    environ = {**occupant.environ, BACK: occupant.mark}
    if wait:
        return _run_to_end(occupant, environ)
    wanted = {"argv": list(occupant.argv), "cwd": occupant.cwd, "env": environ, "output": occupant.output}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", _STARTER],
            input=json.dumps(wanted).encode("utf-8", errors="surrogateescape"),
            capture_output=True,
            start_new_session=True,
            env={**os.environ, BACK: occupant.mark},
            check=False,
            timeout=60,
        )
        said = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        # The starter was killed, perhaps after it had started the server.
        return Came("started") if _begun(occupant.mark) else Came("failed", str(error))
    if "error" in said:
        return Came("failed", said["error"])
    until = time.monotonic() + _BEGINS_S
    while time.monotonic() < until:
        if not alive(said["pid"], None, None) and not carrying(BACK, occupant.mark):
            return Came("failed", "it ended at once")
        time.sleep(0.05)
    return Came("started")


def _run_to_end(occupant: Occupant, environ: dict[str, str]) -> Came:
    try:
        done = subprocess.run(
            occupant.argv,
            cwd=occupant.cwd,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            start_new_session=True,
            check=False,
            timeout=600,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Came("failed", str(error))
    if done.returncode == 0:
        return Came("started")
    return Came("failed", done.stderr.decode("utf-8", errors="replace").strip()[-300:])
