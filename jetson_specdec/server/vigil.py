# SPDX-License-Identifier: Apache-2.0
"""Whether a start can still succeed: asked again and again while waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_specdec.server.failure import Failure

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.launch import Launch
    from jetson_specdec.server.running import Kept
    from jetson_specdec.server.watchdog import Watchdog

__all__ = ["Vigil"]

READ_EVERY_S = 1.0


class Vigil:
    """Watches a start: its process, its unit, the memory, and what its log says.

    Args:
        kept: the process.
        watchdog: of the memory.
        launch: what was started.
        runner: asks systemd about a unit.
        log_path: the log.
        diagnose: reads the log.
        settle_s: how long a start whose log shows a cause may go on, so that the log is complete.
    """

    def __init__(
        self,
        kept: Kept,
        watchdog: Watchdog,
        *,
        launch: Launch,
        runner: Runner,
        log_path: Path,
        diagnose: Callable[[], Diagnosis],
        settle_s: float,
    ) -> None:
        self._kept = kept
        self._watchdog = watchdog
        self._launch = launch
        self._runner = runner
        self._log_path = log_path
        self._diagnose = diagnose
        self._settle_s = settle_s
        self._size = 0
        self._read_at = 0.0
        self._suspected_at: float | None = None

    def check(self) -> None:
        """Return while the start can still succeed.

        Raises:
            Failure: it cannot any more.
        """
        kept = self._kept
        if self._watchdog.breach is not None:
            raise Failure("watchdog")
        if kept.failed is not None:
            command = " ".join(str(word) for word in kept.failed["argv"][:4])
            raise Failure("before", f"{command}: {kept.failed['output'].strip()}")
        if not kept.alive or (kept.exited.is_set() and kept.exit_code != 0):
            raise Failure("exited")
        if self._launch.kind == "unit" and kept.pid is not None and self._unit_ended():
            raise Failure("exited")
        self._read_on()

    def _read_on(self) -> None:
        """Look at the log: a cause in it that is still there after a while ends the waiting."""
        now = time.monotonic()
        if self._suspected_at is not None:
            if now - self._suspected_at > self._settle_s:
                self._suspected_at = None
                if self._shows_cause():
                    raise Failure("log")
            return
        size = self._log_path.stat().st_size if self._log_path.exists() else 0
        if size == self._size or now - self._read_at < READ_EVERY_S:
            return
        self._size, self._read_at = size, now
        if self._shows_cause():
            self._suspected_at = now

    def _shows_cause(self) -> bool:
        found = self._diagnose()
        return found.started_ok is False and found.cause not in ("none", "engine_failed")

    def _unit_ended(self) -> bool:
        control = ["systemctl", "--user"] if self._launch.user_unit else ["systemctl"]
        answer = self._runner.run([*control, "show", self._launch.unit or "", "-p", "ActiveState"])
        lines = answer.stdout.splitlines() if answer is not None else []
        state = next((line.partition("=")[2] for line in lines if line.startswith("ActiveState=")), "")
        return state in ("failed", "inactive")
