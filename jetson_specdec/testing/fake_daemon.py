# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the daemons behind `docker` and `systemctl`, for machines (and tests) that have neither.

What it keeps of the real ones, because starting and stopping a server depends on it:

- processes are the daemon's children, not the client's: ending the client with SIGKILL ends no container;
- a restart policy brings back what ended by itself, and not what was stopped through the daemon;
- names are unique, and a stopped container without `--rm` keeps its name;
- `stop` sends SIGTERM, waits, then SIGKILL; a unit's drop-ins count after `daemon-reload`.

What it leaves out: images (`vllm …` runs `fake_vllm`), namespaces (a published port is handed to the server as its
`--port`), volumes, cgroups.

```console
$ python -m jetson_specdec.testing.fake_daemon DIR    # then: docker, systemctl, journalctl of this package
```
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

__all__ = ["ENVIRONMENT", "Daemon", "ask", "main"]

ENVIRONMENT = "JETSON_SPECDEC_FAKE_DAEMON"
"""Variable with the daemon's folder: its socket, its logs, and `units/` with unit files."""

RESTART_DELAY_S = 0.1


class Kept:
    """A container or a unit: what it runs, and how it is now. A plain class: clients have to start quickly."""

    def __init__(
        self,
        *,
        id: str,
        name: str,
        argv: list[str],
        env: dict[str, str],
        log: str,
        cwd: str | None = None,
        image: str = "",
        labels: dict[str, str] | None = None,
        ports: list[str] | None = None,
        restart: str = "no",
        remove: bool = False,
    ) -> None:
        self.id, self.name, self.argv, self.env, self.log, self.cwd = id, name, argv, env, log, cwd
        self.image, self.labels, self.ports = image, labels or {}, ports or []
        self.restart, self.remove = restart, remove
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False
        self.exit_code: int | None = None
        self.restarts = 0
        self.over = threading.Event()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def show(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "image": self.image,
            "labels": self.labels,
            "ports": self.ports,
            "running": self.running,
            "exit_code": self.exit_code,
            "pid": self.process.pid if self.process is not None and self.running else 0,
            "restart": self.restart,
            "remove": self.remove,
            "restarts": self.restarts,
            "stopped": self.stopped,
            "argv": self.argv,
            "log": self.log,
        }


class Daemon:
    """Keeps containers and units; answers one JSON request a connection on `DIR/socket`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.kept: dict[str, Kept] = {}
        self.lock = threading.RLock()
        self.ended = threading.Event()

    def serve(self) -> None:
        """Answer until `shutdown` is asked for; then end everything."""
        path = str(self.folder / "socket")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path + ".new")
            server.listen(16)
            Path(path + ".new").rename(path)  # whoever sees it can connect
            server.settimeout(0.1)
            while not self.ended.is_set():
                try:
                    client, _ = server.accept()
                except TimeoutError:
                    continue
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()
        for one in list(self.kept.values()):
            self._stop(one, 5)
        Path(path).unlink(missing_ok=True)

    def _answer(self, client: socket.socket) -> None:
        with client, client.makefile("rw", encoding="utf-8") as stream:
            request = json.loads(stream.readline())
            try:
                reply = getattr(self, "do_" + request.pop("do"))(**request)
            except LookupError as error:
                reply = {"error": str(error.args[0])}
            with contextlib.suppress(OSError):
                stream.write(json.dumps(reply) + "\n")
                stream.flush()

    # --- processes ----------------------------------------------------------------------------------------------------

    def _launch(self, one: Kept) -> None:
        one.over.clear()
        one.exit_code = None
        with open(one.log, "ab") as log:  # noqa: PTH123
            try:
                one.process = subprocess.Popen(
                    one.argv,
                    env=one.env,
                    cwd=one.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"exec: {one.argv[0]!r}: {error.strerror}\n".encode())
                one.exit_code = 127
                one.over.set()
                return
        threading.Thread(target=self._watch, args=(one, one.process), daemon=True).start()

    def _watch(self, one: Kept, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        one.exit_code = 128 - code if code < 0 else code
        again = one.restart in ("always", "unless-stopped") or (
            one.restart.startswith("on-failure") and one.exit_code != 0
        )
        if again and not one.stopped:
            time.sleep(RESTART_DELAY_S)
            with self.lock:
                if not one.stopped and not self.ended.is_set():
                    one.restarts += 1
                    self._launch(one)
                    return
        with self.lock:
            if one.remove:
                self.kept.pop(one.id, None)
        one.over.set()

    def _stop(self, one: Kept, seconds: float) -> None:
        one.stopped = True
        process = one.process
        if process is None:
            return
        for number, wait_s in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(OSError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(wait_s)
                break
        one.over.wait(5)

    def find(self, name: str) -> Kept:
        """Return what has this name or the beginning of this id."""
        for one in self.kept.values():
            if name in (one.name, one.id) or (len(name) >= 6 and one.id.startswith(name)):
                return one
        raise LookupError(f"No such container: {name}")

    def _taken(self, name: str) -> str | None:
        """Return what is said where a name is in use."""
        taken = next((one for one in self.kept.values() if one.name == name), None)
        if taken is None:
            return None
        return (
            f'Conflict. The container name "/{name}" is already in use by container "{taken.id}". '
            "You have to remove (or rename) that container to be able to reuse that name."
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def do_run(self, *, name: str | None, argv: list[str], env: dict[str, str], **rest: Any) -> dict[str, Any]:
        """Create and start something."""
        with self.lock:
            identity = uuid.uuid4().hex * 2
            name = name or f"quiet_{identity[:8]}"
            taken = self._taken(name)
            if taken is not None:
                return {"error": taken}
            log = str(self.folder / f"{identity[:12]}.log")
            one = Kept(id=identity, name=name, argv=argv, env={**os.environ, **env}, log=log, **rest)
            self.kept[identity] = one
            self._launch(one)
            return one.show()

    def do_start(self, *, name: str) -> dict[str, Any]:
        """Start what has ended."""
        with self.lock:
            one = self.find(name)
            if not one.running:
                one.stopped = False
                self._launch(one)
            return one.show()

    def do_stop(self, *, name: str, seconds: float = 10) -> dict[str, Any]:
        """End it for good: SIGTERM, then SIGKILL."""
        one = self.find(name)
        self._stop(one, seconds)
        return one.show()

    def do_kill(self, *, name: str, number: int = 9) -> dict[str, Any]:
        """Send a signal."""
        one = self.find(name)
        if not one.running or one.process is None:
            raise LookupError(f"container {one.id} is not running")
        one.stopped = one.stopped or number == signal.SIGKILL
        os.killpg(one.process.pid, number)
        return one.show()

    def do_rm(self, *, name: str, force: bool = False) -> dict[str, Any]:
        """Forget something that has ended."""
        one = self.find(name)
        if one.running and not force:
            raise LookupError(f'cannot remove container "/{one.name}": container is running')
        self._stop(one, 0.1)
        with self.lock:
            self.kept.pop(one.id, None)
        return one.show()

    def do_rename(self, *, name: str, to: str) -> dict[str, Any]:
        """Give it another name."""
        with self.lock:
            one = self.find(name)
            taken = self._taken(to)
            if taken is not None:
                return {"error": f"Error when allocating new name: {taken}"}
            one.name = to
            return one.show()

    def do_update(self, *, name: str, restart: str) -> dict[str, Any]:
        """Give it another restart policy."""
        one = self.find(name)
        one.restart = restart
        return one.show()

    def do_list(self) -> dict[str, Any]:
        """Tell of everything."""
        return {"containers": [one.show() for one in self.kept.values()]}

    def do_show(self, *, name: str) -> dict[str, Any]:
        """Tell of one."""
        return self.find(name).show()

    def do_wait(self, *, name: str) -> dict[str, Any]:
        """Answer when it has ended for good."""
        one = self.find(name)
        one.over.wait()
        return one.show()

    def do_shutdown(self) -> dict[str, Any]:
        """End the daemon."""
        self.ended.set()
        return {}


def ask(**request: Any) -> dict[str, Any]:
    """Ask the daemon that the environment names.

    Raises:
        OSError: it does not run.
    """
    folder = os.environ.get(ENVIRONMENT, "")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(Path(folder) / "socket"))
        with client.makefile("rw", encoding="utf-8") as stream:
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            reply: dict[str, Any] = json.loads(stream.readline())
            return reply


def follow(shown: dict[str, Any], *, past: bool = True) -> int | None:
    """Copy a log to standard output until its container has ended; return the exit code, None where it is gone."""
    over = threading.Event()
    final: dict[str, Any] = {}

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            final.update(ask(do="wait", name=shown["id"]))
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    with open(shown["log"], "rb") as log:  # noqa: PTH123
        if not past:
            log.seek(0, os.SEEK_END)
        while True:
            ended = over.is_set()
            piece = log.read()
            if piece:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            elif ended:
                return final.get("exit_code")
            else:
                over.wait(0.03)


def main() -> int:
    """Run the daemon until it is asked to end."""
    Daemon(sys.argv[1]).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
