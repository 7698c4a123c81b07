# SPDX-License-Identifier: Apache-2.0
"""The keeper: a small process that holds a server, and ends it with everything it started when its owner goes away.

It is run as a script with the standard library only, so that it is up in a few milliseconds. On standard input it gets
one line of JSON (the start), then `stop` or `kill`; the end of its input means `stop`, so that a server never outlives
a program that was ended by SIGKILL. On standard output it reports one line of JSON for each event:

`{"event": "started", "pid": 1}` · `{"event": "exit", "code": 1}` (as Python counts: -9 for SIGKILL) ·
`{"event": "failed", "argv": […], "code": 1, "output": "…"}` (a command that prepares the start) · `{"event": "gone"}`.

The keeper adopts whatever its server leaves behind (Linux, PR_SET_CHILD_SUBREAPER), so `nohup` and `setsid` hide
nothing. When the keeper itself is killed, the kernel ends the server's first process (PR_SET_PDEATHSIG); the rest is
found by the mark in its environment (`jetson_specdec.server.state`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LONGEST_LINE = 65536


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _say(**event: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def descendants(root: int) -> list[int]:
    """Return the living processes below one, from `/proc`.

    `/proc` changes while it is read: a process whose parent ends meanwhile hangs in the air for a moment. So nothing
    counts as nothing only when it is seen twice.
    """
    return _scan(root) or _scan(root)


def _scan(root: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    dead = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - the plain call is what keeps this process small
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                rest = file.read().rpartition(b")")[2].split()
            # A zombie whose other threads still run is alive; a dead one may still be the parent of living processes.
            if rest[0] == b"Z" and len(os.listdir(f"/proc/{name}/task")) < 2:  # noqa: PTH208
                dead.add(int(name))
        except (OSError, IndexError):
            continue
        parents.setdefault(int(rest[1]), []).append(int(name))
    found: list[int] = []
    queue = [root]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return [pid for pid in found if pid not in dead]


class Keeper:
    """Holds one server.

    Args:
        start: what the first line of the input says: `argv`, `cwd`, `env`, `log`, `before`, `stop`, `kill`, `after`,
            `remove` (files), `grace_s`, `secrets` (masked in the log), `mark` (what its processes carry in their
            environment).
    """

    asked = False

    def __init__(self, start: dict[str, Any]) -> None:
        self.start = start
        self.environ = start["env"]
        self.log = os.open(start["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.secrets = sorted((item.encode() for item in start.get("secrets", ()) if len(item) >= 4), key=len)[::-1]
        self.main: int | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.pipe: int | None = None
        self.pending = b""
        self.touched = 0.0

    def run(self) -> int:
        """Start it, hold it, end it."""
        for argv in self.start.get("before", ()):
            code, output = self._command(argv, 120)
            if code != 0:
                _say(event="failed", argv=argv, code=code, output=output[-2000:])
                self._tidy()
                return 1
        if not self._spawn():
            self._tidy()
            return 1
        order = self._hold()
        if order is not None:
            self._end(firm=order == "kill")
        self._drain(1.0)
        self._tidy()
        _say(event="gone")
        return 0

    def _spawn(self) -> bool:
        read, write = os.pipe()
        try:
            child = subprocess.Popen(
                self.start["argv"],
                cwd=self.start.get("cwd"),
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                start_new_session=True,
                preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        except OSError as error:
            os.close(read)
            _say(event="failed", argv=self.start["argv"], code=127, output=f"{error.strerror}: {error.filename}")
            return False
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self.pipe, self.main = read, child.pid
        self.child = child  # kept: a Popen that is dropped waits for its process itself, and its exit code is lost
        _say(event="started", pid=child.pid)
        return True

    def _hold(self) -> str | None:
        """Wait for an order, or until nothing is left; return the order."""
        orders = b""
        while True:
            watched = [0] + ([self.pipe] if self.pipe is not None else [])
            ready, _, _ = select.select(watched, [], [], 0.1)
            if self.asked:
                return "stop"
            if self.pipe in ready:
                self._pump()
            elif self.pending and time.monotonic() - self.touched > 0.2:
                self._write(self.pending)
                self.pending = b""
            if 0 in ready:
                piece = os.read(0, 4096)
                orders += piece
                if not piece:
                    return "stop"
                if b"\n" in orders:
                    return orders.split(b"\n")[0].decode()
            self._reap()
            if self.main is None and not descendants(os.getpid()):
                return None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.main:
                self.main = None
                self._drain(0.2)
                _say(event="exit", code=os.waitstatus_to_exitcode(status))

    def _pump(self) -> None:
        if self.pipe is None:
            return
        try:
            piece = os.read(self.pipe, LONGEST_LINE)
        except BlockingIOError:
            return
        if not piece:
            os.close(self.pipe)
            self.pipe = None
        self.pending += piece
        self.touched = time.monotonic()
        whole, newline, rest = self.pending.rpartition(b"\n")
        if newline:
            self._write(whole + newline)
            self.pending = rest
        if len(self.pending) > LONGEST_LINE or not piece:
            self._write(self.pending)
            self.pending = b""

    def _drain(self, seconds: float) -> None:
        """Take what is in the pipe; a process that still holds it must not keep us."""
        until = time.monotonic() + seconds
        while self.pipe is not None and time.monotonic() < until:
            if not select.select([self.pipe], [], [], 0.02)[0]:
                break
            self._pump()
        self._write(self.pending)
        self.pending = b""

    def _write(self, data: bytes) -> None:
        for secret in self.secrets:
            data = data.replace(secret, b"***")
        with contextlib.suppress(OSError):
            os.write(self.log, data)

    def _command(self, argv: Sequence[str], timeout: float) -> tuple[int, str]:
        """Run a command to its end; the server's output is taken meanwhile, so that it never waits for us."""
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.Popen(
                    list(argv),
                    env=self.environ,
                    cwd=self.start.get("cwd"),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            except OSError as error:
                return 127, f"{error.strerror}: {argv[0]}"
            until = time.monotonic() + timeout
            while (code := self._poll(done)) is None and time.monotonic() < until:
                self._drain(0.05)
                time.sleep(0.02)
            if code is None:
                done.kill()
                done.wait()
            output.seek(0)
            shown = output.read().decode("utf-8", errors="replace")
        return (124, f"no answer within {timeout:.0f} s") if code is None else (code, shown)

    @staticmethod
    def _poll(process: subprocess.Popen[bytes]) -> int | None:
        return process.poll()

    def _end(self, *, firm: bool) -> None:
        grace = float(self.start.get("grace_s", 20))
        if firm:
            self._signal(signal.SIGKILL)
        for argv in self.start.get("kill" if firm else "stop", ()):
            self._command(argv, grace + 30)
            self._pump()
        if not firm:
            self._signal(signal.SIGTERM)
            if not self._gone(grace):
                for argv in self.start.get("kill", ()):
                    self._command(argv, 30)
        for _ in range(50):
            if self._gone(0.0):
                break
            self._signal(signal.SIGKILL)
            self._gone(0.2)

    def _marked(self) -> list[int]:
        """Return living processes that carry the mark of this start, wherever they hang."""
        mark = self.start.get("mark", "").encode()
        found = []
        for name in os.listdir("/proc") if mark else ():  # noqa: PTH208
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                    if mark in file.read().split(b"\0"):
                        found.append(int(name))
        return found

    def _signal(self, number: int) -> None:
        for pid in descendants(os.getpid()) or self._marked():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _gone(self, seconds: float) -> bool:
        """Wait until nothing is left, at most so long."""
        until = time.monotonic() + seconds
        while True:
            self._reap()
            if not descendants(os.getpid()) and not self._marked():
                return True
            if time.monotonic() >= until:
                return False
            if self.pipe is not None and select.select([self.pipe], [], [], 0.02)[0]:
                self._pump()
            else:
                time.sleep(0.02)

    def _tidy(self) -> None:
        for argv in self.start.get("after", ()):
            self._command(argv, 60)
        for path in self.start.get("remove", ()):
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108


def main() -> int:
    """Run the keeper."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: setattr(Keeper, "asked", True))
    line = b""
    while not line.endswith(b"\n"):  # byte by byte: what follows the line must stay in the pipe
        piece = os.read(0, 1)
        if not piece:
            return 1
        line += piece
    return Keeper(json.loads(line)).run()


if __name__ == "__main__":
    sys.exit(main())
