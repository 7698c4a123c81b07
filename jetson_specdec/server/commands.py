# SPDX-License-Identifier: Apache-2.0
"""The commands a server is managed with (`docker`, `systemctl`): run without a shell, in a given environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from jetson_specdec.host import CommandResult

__all__ = ["Commands", "Runner"]


class Runner(Protocol):
    """Runs a command to its end."""

    def run(self, argv: Sequence[str], *, timeout: float = 30.0) -> CommandResult | None:
        """Return what it printed and how it ended; None when it is not there or does not end in time."""

    def has(self, program: str) -> bool:
        """Whether a program is at hand."""


class Commands:
    """Commands of this machine.

    Args:
        environ: their environment, `PATH` included; that of this process by default.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = dict(os.environ if environ is None else environ)

    def run(self, argv: Sequence[str], *, timeout: float = 30.0) -> CommandResult | None:
        """Return what it printed and how it ended; None when it is not there or does not end in time."""
        program = shutil.which(argv[0], path=self.environ.get("PATH"))
        if program is None:
            return None
        try:
            done = subprocess.run(
                [program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
                env=self.environ,
            )
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
        return CommandResult(
            argv=tuple(argv),
            stdout=done.stdout.decode("utf-8", errors="replace"),
            stderr=done.stderr.decode("utf-8", errors="replace"),
            exit_code=done.returncode,
        )

    def has(self, program: str) -> bool:
        """Whether a program is on the `PATH`."""
        return shutil.which(program, path=self.environ.get("PATH")) is not None
