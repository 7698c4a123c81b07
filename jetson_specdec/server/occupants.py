# SPDX-License-Identifier: Apache-2.0
"""Who stands where a server is to start: on its port, under its container's name, as the same unit or service.

Nobody is touched unless told to. When told to, a server is ended by what supervises it (Docker for a container, systemd
for a unit): a signal alone would be answered by `--restart` or `Restart=`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import evolve, field, frozen

from jetson_specdec.errors import ServerError

if TYPE_CHECKING:
    import psutil

    from jetson_specdec.server.address import Address
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.launch import Launch

__all__ = ["Occupant", "find_occupants", "port_is_free", "start_again", "take_down"]

OccupantKind = Literal["process", "container", "service", "unit", "unknown"]
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|bash|sh|dash")
_CONTAINER_ID = re.compile(r"(?:docker|libpod|nerdctl|cri-containerd)[-/]([0-9a-f]{12,64})|/docker/([0-9a-f]{12,64})")


@frozen(kw_only=True)
class Occupant:
    """A server that was not started here.

    Attributes:
        kind: how it runs.
        name: container, service, unit or program.
        holds: what is needed: `port`, `name`, `unit` or `service`.
        port: which port, where that is it.
        pid: its process, where known.
        command: its command line, secrets masked, where known.
        running: False for a container that only has the name.
        stop: the command that ends it for good.
        start: the command that brings it back.
        rename: new name of a container, under which it waits.
        argv, cwd, environ, output: of a native process, to start it again.
    """

    kind: OccupantKind
    name: str
    holds: str
    port: int | None = None
    pid: int | None = None
    command: str | None = None
    running: bool = True
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    rename: str | None = None
    argv: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = None
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    output: str | None = None

    @property
    def shown(self) -> str:
        """How a message names it: `process vllm (pid 4711)`."""
        return f"{self.kind} {self.name}" + (f" (pid {self.pid})" if self.pid else "")

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form without what may hold secrets."""
        data = attrs.asdict(self)
        return {name: data[name] for name in ("kind", "name", "holds", "port", "pid", "command", "running", "stop")}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Occupant:
        """Read what a state file holds."""
        values = dict(data)
        for name in ("stop", "start", "argv"):
            values[name] = tuple(values[name])
        return cls(**values)


def port_is_free(port: int) -> bool:
    """Whether a server could listen on a port of this machine now."""
    for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
    return True


def find_occupants(launch: Launch, address: Address, runner: Runner) -> tuple[Occupant, ...]:
    """Return who is in the way of a start; empty where nobody is."""
    found: list[Occupant] = []
    if launch.kind == "container" and launch.container is not None:
        held = _container(launch.program, launch.container, "name", runner)
        found += [held] if held is not None else []
    elif launch.kind == "unit" and launch.unit is not None:
        unit = _unit(launch.unit, launch.user_unit, "unit", runner)
        found += [unit] if unit.running else []
    elif launch.kind == "compose":
        service = _service(launch, runner)
        found += [service] if service is not None else []
    if not port_is_free(address.port) and not any(one.running for one in found):
        found.append(_on_port(address.port, launch.program, runner))
    return tuple(found)


def _container(program: str, name: str, holds: str, runner: Runner) -> Occupant | None:
    answer = runner.run([program, "inspect", "--type", "container", name])
    if answer is None or not answer.ok:
        return None
    try:
        data = json.loads(answer.stdout)[0]
    except (ValueError, LookupError, TypeError):
        return None
    shown = str(data.get("Name") or name).lstrip("/")
    state = data.get("State") or {}
    return Occupant(
        kind="container",
        name=shown,
        holds=holds,
        command=(data.get("Config") or {}).get("Image"),
        pid=state.get("Pid") or None,
        running=bool(state.get("Running") or state.get("Restarting")),
        stop=(program, "stop", shown),
        start=(program, "start", shown),
    )


def _unit(name: str, user: bool, holds: str, runner: Runner) -> Occupant:
    control = ("systemctl", "--user") if user else ("systemctl",)
    answer = runner.run([*control, "show", name, "-p", "ActiveState", "-p", "MainPID"])
    values = dict(line.partition("=")[::2] for line in (answer.stdout if answer is not None else "").splitlines())
    pid = values.get("MainPID", "0")
    return Occupant(
        kind="unit",
        name=name,
        holds=holds,
        pid=int(pid) if pid.isdigit() and pid != "0" else None,
        running=values.get("ActiveState") in ("active", "activating", "reloading", "deactivating"),
        stop=(*control, "stop", name),
        start=(*control, "start", name),
    )


def _service(launch: Launch, runner: Runner) -> Occupant | None:
    path, service = launch.project_file or "", launch.service or ""
    compose = ("docker", "compose", "--project-directory", str(Path(path).parent), "-f", path)
    answer = runner.run([*compose, "ps", "-q", "--status", "running", service])
    if answer is None or not answer.ok or not answer.stdout.strip():
        return None
    return Occupant(
        kind="service",
        name=service,
        holds="service",
        stop=(*compose, "stop", service),
        start=(*compose, "up", "-d", "--no-deps", service),
    )


def _on_port(port: int, program: str, runner: Runner) -> Occupant:
    """Say who listens on a port: a container that publishes it, else the process, and what supervises it."""
    if runner.has(program):
        answer = runner.run([program, "ps", "--filter", f"publish={port}", "--format", "{{.Names}}"])
        names = answer.stdout.split() if answer is not None and answer.ok else []
        if names and (held := _container(program, names[0], "port", runner)) is not None:
            return evolve(held, port=port)
    pid = _listener(port)
    if pid is None:
        return Occupant(kind="unknown", name="another user's process", holds="port", port=port)
    cgroup = _text(f"/proc/{pid}/cgroup")
    match = _CONTAINER_ID.search(cgroup)
    if match and runner.has(program):
        held = _container(program, match[1] or match[2], "port", runner)
        if held is not None:
            return evolve(held, port=port)
    unit = _unit_of(cgroup)
    if unit is not None and runner.has("systemctl"):
        held = _unit(unit[0], unit[1], "port", runner)
        if held.running:
            return evolve(held, port=port, pid=pid)
    return evolve(_process(pid), port=port)


def _listener(port: int) -> int | None:
    import psutil

    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):
        return None
    for one in connections:
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid:
            return int(one.pid)
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _unit_of(cgroup: str) -> tuple[str, bool] | None:
    """Return the systemd service of a process and whether the user's manager runs it (systemd.slice(5) paths)."""
    path = next((line.rpartition(":")[2] for line in cgroup.splitlines()), "")
    services = [part for part in path.split("/") if part.endswith(".service")]
    if not services or re.fullmatch(r"user@\d+\.service", services[-1]):
        return None
    return services[-1], len(services) > 1


def _process(pid: int) -> Occupant:
    import psutil

    from jetson_specdec.recipe.masking import redact

    try:
        process = _server_of(psutil.Process(pid))
        pid, argv = process.pid, process.cmdline()
        name = process.name()
    except psutil.Error:
        return Occupant(kind="unknown", name=f"process {pid}", holds="port", pid=pid)
    environ: dict[str, str] = {}
    cwd = output = None
    with contextlib.suppress(psutil.Error):
        cwd = process.cwd()
        environ = process.environ()
    with contextlib.suppress(OSError):
        target = Path(f"/proc/{pid}/fd/1").readlink()
        output = str(target) if target.is_file() else None
    return Occupant(
        kind="process",
        name=_program_of(argv) or name,
        holds="port",
        pid=pid,
        command=redact(" ".join(argv))[0],
        argv=tuple(argv),
        cwd=cwd,
        environ=environ,
        output=output,
    )


def _server_of(process: psutil.Process) -> psutil.Process:
    """Return the process that was started: with several API servers those below it hold the port as well."""
    from jetson_specdec.server.others import has_title, is_engine

    while has_title(process.cmdline()):
        parent = process.parent()
        if parent is None or not is_engine(parent.cmdline()):
            break
        process = parent
    return process


def _program_of(argv: Sequence[str]) -> str | None:
    """Return the name a person knows a process by: `vllm` for `python3 /usr/bin/vllm serve …`, the module of `-m`."""
    names = [word.rpartition("/")[2] for word in argv]
    if not names or not _INTERPRETER.fullmatch(names[0]):
        return names[0] if names else None
    for at, word in enumerate(argv[1:], 1):
        if word == "-m":
            return argv[at + 1] if at + 1 < len(argv) else None
        if not word.startswith("-"):
            return names[at]
    return None


def take_down(occupant: Occupant, runner: Runner, *, run_id: str, grace_s: float = 20.0) -> Occupant:
    """End a server that is in the way; return it with what is needed to bring it back.

    Raises:
        ServerError: it could not be ended (JSE920), or something brings it back (JSE921).
    """
    taken = occupant
    if occupant.kind == "process" and occupant.pid is not None:
        _end_process(occupant.pid, grace_s)
    elif occupant.stop:
        if occupant.running:
            answer = runner.run(occupant.stop, timeout=grace_s + 60)
            if answer is None or not answer.ok:
                said = (answer.stderr or answer.stdout).strip()[-300:] if answer is not None else None
                raise ServerError("JSE920", name=occupant.name, command=" ".join(occupant.stop), said=said)
        if occupant.kind == "container" and occupant.holds == "name":
            aside = f"{occupant.name}-before-{run_id}"
            program = occupant.stop[0]
            answer = runner.run([program, "rename", occupant.name, aside])
            if answer is None or not answer.ok:
                raise ServerError("JSE920", name=occupant.name, command=f"{program} rename", said=None)
            taken = evolve(occupant, rename=aside)
    else:
        raise ServerError("JSE920", name=occupant.name, command="kill", said="its owner is another user")
    if occupant.port is not None:
        _wait_for_port(occupant, grace_s)
    return taken


def _wait_for_port(occupant: Occupant, grace_s: float) -> None:
    """Wait until the port is free and stays so for a moment: a supervisor that was not seen would come back."""
    port = occupant.port or 0
    until = time.monotonic() + grace_s
    free_since: float | None = None
    while time.monotonic() < until:
        if not port_is_free(port):
            free_since = None
        elif free_since is None:
            free_since = time.monotonic()
        elif time.monotonic() - free_since > 0.5:
            return
        time.sleep(0.05)
    raise ServerError("JSE921", name=occupant.name, port=port)


def _end_process(pid: int, grace_s: float) -> None:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        process = psutil.Process(pid)
        below = process.children(recursive=True)
        process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs([process, *below], timeout=grace_s)
        for one in alive:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(alive, timeout=5)


def start_again(occupant: Occupant, runner: Runner) -> str | None:
    """Bring back what was taken down; return why it failed, or None."""
    if occupant.rename is not None:
        answer = runner.run([occupant.stop[0], "rename", occupant.rename, occupant.name])
        if answer is None or not answer.ok:
            return f"cannot rename {occupant.rename} back"
    if not occupant.running:
        return None
    if occupant.kind == "process":
        return _spawn(occupant)
    answer = runner.run(occupant.start, timeout=120)
    if answer is None:
        return "no answer"
    return None if answer.ok else (answer.stderr or answer.stdout).strip()[-300:]


def _spawn(occupant: Occupant) -> str | None:
    try:
        descriptor = os.open(occupant.output or os.devnull, os.O_WRONLY | os.O_APPEND)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    try:
        # A short shell in between hands the server to init, so that it is nobody's child and outlives us.
        done = subprocess.run(
            ["sh", "-c", 'nohup "$@" &', "sh", *occupant.argv],
            cwd=occupant.cwd,
            env=dict(occupant.environ) or None,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        os.close(descriptor)
    return None if done.returncode == 0 else f"exit code {done.returncode}"
