# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for `systemctl` and `journalctl`, on `fake_daemon`: units with drop-ins, `Restart=`, and their output.

Units lie in `DIR/units`, drop-ins in `DIR/run/NAME.service.d` (where the real ones lie below `/run/systemd/system`).
Known settings: `ExecStart`, `Environment`, `WorkingDirectory`, `Restart`. The description of the fake server
(`JETSON_SPECDEC_FAKE`) reaches the unit.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jetson_specdec.testing.fake_daemon import ENVIRONMENT, ask, follow

__all__ = ["journalctl", "main", "systemctl"]

FAKE = "JETSON_SPECDEC_FAKE"
_RESTART = {"always": "always", "on-failure": "on-failure", "on-abnormal": "on-failure"}


def _folder() -> Path:
    return Path(os.environ[ENVIRONMENT])


def _settings(name: str) -> dict[str, list[str]] | None:
    """Read a unit with its drop-ins; an empty assignment takes back what was set before (systemd.unit(5))."""
    unit = _folder() / "units" / name
    if not unit.is_file():
        return None
    found: dict[str, list[str]] = {}
    drop_ins = sorted((_folder() / "run" / f"{name}.d").glob("*.conf"))
    for file in (unit, *drop_ins):
        for line in file.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and not value:
                found[key.strip()] = []
            elif equals and not key.startswith(("#", ";", "[")):
                found.setdefault(key.strip(), []).append(value.strip())
    return found


def _fail(text: str, code: int) -> int:
    sys.stderr.write(text + "\n")
    return code


def systemctl(words: Sequence[str]) -> int:
    """Stand in for `systemctl`."""
    plain = [word for word in words if not word.startswith("-")]
    if not plain:
        return 0
    verb, names = plain[0], [word for word in plain[1:] if word.endswith(".service")]
    if verb in ("daemon-reload", "reset-failed"):
        return 0
    for name in names:
        if verb == "show":
            _show(name, value="--value" in words)
        elif verb == "start":
            code = _start(name)
            if code:
                return code
        elif verb == "stop":
            ask(do="stop", name=name, seconds=10)
        elif verb == "kill":
            ask(do="kill", name=name, number=int(signal.SIGKILL))
    return 0


def _start(name: str) -> int:
    settings = _settings(name)
    if settings is None:
        return _fail(f"Failed to start {name}: Unit {name} not found.", 5)
    if ask(do="show", name=name).get("running"):
        return 0
    ask(do="rm", name=name, force=True)
    env = {FAKE: os.environ[FAKE]} if FAKE in os.environ else {}
    for line in settings.get("Environment", []):
        env.update(dict(word.partition("=")[::2] for word in shlex.split(line)))
    ask(
        do="run",
        name=name,
        argv=shlex.split(settings["ExecStart"][-1]),
        env=env,
        cwd=next(iter(settings.get("WorkingDirectory", [])[-1:]), None),
        restart=_RESTART.get((settings.get("Restart") or ["no"])[-1], "no"),
    )
    return 0


def _show(name: str, *, value: bool) -> None:
    one: dict[str, Any] = ask(do="show", name=name)
    if value:
        sys.stdout.write(one.get("id", "") + "\n")
        return
    if one.get("running"):
        state = "active"
    elif one.get("exit_code") and not one.get("stopped"):
        state = "failed"
    else:
        state = "inactive"
    sys.stdout.write(f"ActiveState={state}\nMainPID={one.get('pid', 0)}\nExecMainStatus={one.get('exit_code') or 0}\n")


def journalctl(words: Sequence[str]) -> int:
    """Stand in for `journalctl -f _SYSTEMD_INVOCATION_ID=…`: what one start of a unit prints, until it is ended."""
    name = next(word.partition("=")[2] for word in words if word.startswith("_SYSTEMD_INVOCATION_ID="))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    shown = ask(do="show", name=name)
    if "error" not in shown:
        follow(shown)
    signal.pause()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Stand in for `systemctl …` or `journalctl …`, by the first word."""
    words = list(sys.argv[1:] if argv is None else argv)
    return {"systemctl": systemctl, "journalctl": journalctl}[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main())
