# SPDX-License-Identifier: Apache-2.0
"""A start in progress: the keeper's events, its orders, and what the log says so far."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_specdec.server.launch import KEEPER, MARKER

if TYPE_CHECKING:
    from jetson_specdec.server.launch import Launch

__all__ = ["MAX_LOG_BYTES", "Kept", "read_log"]

MAX_LOG_BYTES = 4 * 2**20


class Kept:
    """A server held by a keeper process of its own.

    Args:
        launch: what to start.
        argv: which of its two command lines.
        environ: the environment, marks included.
        log_path: where its output goes.
        grace_s: seconds to end politely.
        secrets: values masked in the log.

    Attributes:
        clean: whether the keeper itself said that everything it held is gone; it cannot when it was killed.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        argv: Sequence[str],
        environ: Mapping[str, str],
        log_path: Path,
        grace_s: float,
        secrets: Sequence[str] = (),
    ) -> None:
        self.failed: dict[str, Any] | None = None
        self.exit_code: int | None = None
        self.pid: int | None = None
        self.clean = False
        self.exited = threading.Event()
        self.gone = threading.Event()
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            # Not in the environment of the server: a keeper is waited for, and never taken for what it keeps.
            env={**os.environ, KEEPER: environ.get(MARKER, "")},
        )
        start = {
            "argv": list(argv),
            "cwd": launch.cwd,
            "env": dict(environ),
            "log": str(log_path),
            "before": launch.before,
            "stop": launch.stop,
            "kill": launch.kill,
            "after": launch.after,
            "remove": list(launch.files),
            "grace_s": grace_s,
            "mark": f"{MARKER}={environ[MARKER]}" if MARKER in environ else "",
            "secrets": list(secrets),
        }
        self._send(json.dumps(start).encode() + b"\n")
        self._reader = threading.Thread(target=self._read, name="keeper-events", daemon=True)
        self._reader.start()

    @property
    def keeper_pid(self) -> int:
        """The keeper's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether anything of it still runs."""
        return not self.gone.is_set()

    def stop(self, *, firm: bool = False) -> None:
        """End it and wait until everything it started is gone."""
        self._send(b"kill\n" if firm else b"stop\n")
        if not self.gone.wait(self._grace_s * 2 + 60):
            # The keeper does not answer: end it, and what it held.
            from jetson_specdec.server.keeper import descendants

            below = descendants(self._process.pid)
            for pid in [self._process.pid, *below]:
                with contextlib.suppress(OSError):
                    os.kill(pid, 9)
        self._reader.join(10)
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.wait(10)

    def _send(self, data: bytes) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                event = json.loads(line)
                kind = event.pop("event")
                if kind == "started":
                    self.pid = event["pid"]
                elif kind == "exit":
                    self.exit_code = event["code"]
                    self.exited.set()
                elif kind == "failed":
                    self.failed = event
                    self.clean = True
                elif kind == "gone":
                    self.clean = True
        self.exited.set()
        self.gone.set()

    def wait_exit(self, seconds: float) -> bool:
        """Wait for the first process to end, at most so long."""
        return self.exited.wait(seconds)


def read_log(path: Path, *, limit: int = MAX_LOG_BYTES) -> str:
    """Return the text of a log (its last part where it is large); empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""


def note(path: Path, line: str) -> None:
    """Append a line of our own to a log."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{stamp} jetson-specdec: {line}\n")
