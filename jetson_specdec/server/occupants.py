# SPDX-License-Identifier: Apache-2.0
"""Who stands where a server is to start: on its port, under its container's name, as the same unit or service."""

from __future__ import annotations

import contextlib
import errno
import json
import re
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import evolve, field

from jetson_specdec.values import frozen

if TYPE_CHECKING:
    import psutil

    from jetson_specdec.server.address import Address
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.launch import Launch

__all__ = ["Occupant", "find_occupants", "inspect", "obstacle", "port_is_free", "unit_is_up"]

OccupantKind = Literal["process", "container", "service", "unit", "unknown"]
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|bash|sh|dash")
_CONTAINER_ID = re.compile(r"(?:docker|libpod|nerdctl|cri-containerd)[-/]([0-9a-f]{12,64})|/docker/([0-9a-f]{12,64})")
_UP = ("active", "activating", "reloading")
_NO_ENGINE = ("sudo", "bash", "sh", "dash", "docker", "podman", "nerdctl")


@frozen(kw_only=True)
class Occupant:
    """A server that was not started here.

    Attributes:
        kind: how it runs.
        name: container, service, unit or program.
        holds: what is needed: `port`, `name`, `unit` or `service`.
        port: which port, where that is it.
        pid: its process, where known; `pid_started` is when that began (ticks since boot).
        command: its command line, secrets masked, where known; of a container its image.
        running: False for a container that only has the name.
        stop: the command that ends it for good.
        start: the command that brings it back.
        container: id of a container, which stays when its name changes.
        vanishes: whether its container is removed when it is stopped (`--rm`); `argv` then runs it again.
        rename: name of a container under which it waits meanwhile.
        argv, cwd, environ, output: of a native process, to start it again.
        family: of a native process: the processes below it and when they began.
        ordered: whether its end was ordered: from then on it has to be brought back.
        mark: names this bringing back, so that it happens once.
    """

    kind: OccupantKind
    name: str
    holds: str
    port: int | None = None
    pid: int | None = None
    pid_started: int | None = None
    command: str | None = None
    running: bool = True
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    container: str | None = None
    vanishes: bool = False
    rename: str | None = None
    argv: tuple[str, ...] = field(default=(), repr=False)
    cwd: str | None = None
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    output: str | None = None
    family: tuple[tuple[int, int], ...] = ()
    ordered: bool = False
    mark: str = ""

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
        values["family"] = tuple((int(pid), int(began)) for pid, began in values.get("family", ()))
        return cls(**values)


def obstacle(occupant: Occupant) -> str | None:
    """Return why a server could not be brought back once it is ended, so that it is better left alone; else None."""
    if occupant.kind == "unknown":
        return occupant.command or "its owner is another user"
    if occupant.kind == "process" and _program(occupant) is None:
        return "its command line names no program that could be run again"
    if occupant.kind == "container" and occupant.vanishes and occupant.running and not occupant.argv:
        return "it was started with --rm, so stopping removes it, and this recipe does not start it"
    return None


def _program(occupant: Occupant) -> str | None:
    program = occupant.argv[0] if occupant.argv else ""
    if "/" in program:
        place = Path(occupant.cwd or "/") / program
        return str(place) if place.is_file() else None
    return shutil.which(program, path=occupant.environ.get("PATH")) if program else None


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
        found.append(on_port(address.port, runner, program=launch.program))
    return tuple(found)


def inspect(program: str, name: str, runner: Runner) -> dict[str, Any] | None:
    """Return what the runtime tells of a container by its name or id; None where it knows none."""
    answer = runner.run([program, "inspect", "--type", "container", name])
    if answer is None or not answer.ok:
        return None
    try:
        data: Any = json.loads(answer.stdout)[0]
    except (ValueError, LookupError, TypeError):
        return None
    return data if isinstance(data, dict) else None


def _container(program: str, name: str, holds: str, runner: Runner) -> Occupant | None:
    data = inspect(program, name, runner)
    if data is None:
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
        container=data.get("Id"),
        vanishes=bool((data.get("HostConfig") or {}).get("AutoRemove")),
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
        running=values.get("ActiveState") in (*_UP, "deactivating"),
        stop=(*control, "stop", name),
        start=(*control, "start", name),
    )


def unit_is_up(occupant: Occupant, runner: Runner) -> bool:
    """Whether a unit runs or is about to."""
    answer = runner.run([*occupant.start[:-2], "show", occupant.name, "-p", "ActiveState"])
    return answer is not None and answer.stdout.strip().partition("=")[2] in _UP


def _service(launch: Launch, runner: Runner) -> Occupant | None:
    path, service = launch.project_file or "", launch.service or ""
    compose: tuple[str, ...] = ("docker", "compose", "--project-directory", str(Path(path).parent), "-f", path)
    answer = runner.run([*compose, "ps", "-q", "--status", "running", service])
    if answer is None or not answer.ok or not answer.stdout.strip():
        return None
    compose = _as_it_was_started(answer.stdout.split()[0], runner) or compose
    return Occupant(
        kind="service",
        name=service,
        holds="service",
        stop=(*compose, "stop", service),
        start=(*compose, "up", "-d", "--no-deps", service),
    )


def _as_it_was_started(container: str, runner: Runner) -> tuple[str, ...] | None:
    """Return the compose command with the files a service was started from: an override file belongs to it as well."""
    data = inspect("docker", container, runner)
    labels = ((data or {}).get("Config") or {}).get("Labels") or {}
    front = "com.docker.compose.project"
    files = [file for file in str(labels.get(f"{front}.config_files") or "").split(",") if file]
    folder, project = labels.get(f"{front}.working_dir"), labels.get(front)
    if not files or not folder or not project or not all(Path(file).is_file() for file in files):
        return None
    words = ["docker", "compose", "-p", project, "--project-directory", folder]
    environment = labels.get(f"{front}.environment_file")
    for file in str(environment or "").split(","):
        words += ["--env-file", file] if file else []
    for file in files:
        words += ["-f", file]
    return tuple(words)


def on_port(port: int, runner: Runner, *, program: str = "docker") -> Occupant:
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
    if match:
        identity = match[1] or match[2]
        held = _container(program, identity, "port", runner) if runner.has(program) else None
        if held is not None:
            return evolve(held, port=port)
        said = f"it runs in a container that {program} does not know"
        return Occupant(kind="unknown", name=f"container {identity[:12]}", holds="port", port=port, command=said)
    unit = _unit_of(cgroup)
    if unit is not None and runner.has("systemctl"):
        held = _unit(unit[0], unit[1], "port", runner)
        if held.running:
            return evolve(held, port=port, pid=pid)
    if _elsewhere(pid):
        said = "it runs in a container or chroot of its own"
        return Occupant(kind="unknown", name=f"process {pid}", holds="port", port=port, pid=pid, command=said)
    return evolve(_process(pid), port=port)


def _elsewhere(pid: int) -> bool:
    """Whether a process sees other files than we do: its command line would start something else here."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


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
    from jetson_specdec.server.launch import BACK
    from jetson_specdec.server.processes import start_ticks

    try:
        process = _server_of(psutil.Process(pid))
        pid, argv, name = process.pid, process.cmdline(), process.name()
    except psutil.Error:
        return Occupant(kind="unknown", name=f"process {pid}", holds="port", pid=pid)
    environ: dict[str, str] = {}
    cwd = output = None
    with contextlib.suppress(psutil.Error):
        cwd = process.cwd()
        environ = process.environ()
        environ.pop(BACK, None)
    with contextlib.suppress(OSError):
        target = Path(f"/proc/{pid}/fd/1").readlink()
        output = str(target) if target.is_file() else None
    return Occupant(
        kind="process",
        name=_program_of(argv) or name,
        holds="port",
        pid=pid,
        pid_started=start_ticks(pid),
        command=redact(" ".join(argv))[0],
        argv=tuple(argv),
        cwd=cwd,
        environ=environ,
        output=output,
    )


def _server_of(process: psutil.Process) -> psutil.Process:
    """Return the process that was started: with several API servers those below it hold the port as well."""
    import psutil

    from jetson_specdec.server.others import is_engine

    with contextlib.suppress(psutil.Error):
        for above in process.parents():
            argv = above.cmdline()
            if not is_engine(argv) or Path(argv[0]).name in _NO_ENGINE:
                break
            process = above
    return process


def _program_of(argv: Sequence[str]) -> str | None:
    """Return the name a person knows a process by: `vllm` for `python3 /usr/bin/vllm serve …`, the module of `-m`."""
    names = [word.rpartition("/")[2] for word in argv]
    if not names or not _INTERPRETER.fullmatch(names[0]):
        return names[0] if names else None
    for at, word in enumerate(argv[1:], 1):
        if word in ("-m", "-c"):
            return argv[at + 1] if word == "-m" and at + 1 < len(argv) else None
        if not word.startswith("-"):
            return names[at]
    return None
