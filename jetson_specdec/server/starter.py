# SPDX-License-Identifier: Apache-2.0
"""Starts a program that outlives whoever asked for it: nobody's child, no terminal, signals as by default.

Run as a script with the standard library only. On standard input it gets one JSON document (`argv`, `cwd`, `env`,
`output`); on standard output it prints another: `{"pid": 1}`, or `{"error": "…"}` where the program cannot be run. The
pipe between the two processes closes when the program has really begun, so its mark can be seen by then.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any


def _begin(wanted: dict[str, Any], tell: int) -> None:
    """Become the program; only returns by raising."""
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    if wanted.get("cwd"):
        os.chdir(wanted["cwd"])
    nothing = os.open(os.devnull, os.O_RDWR)
    output = nothing
    if wanted.get("output"):
        with contextlib.suppress(OSError):
            output = os.open(wanted["output"], os.O_WRONLY | os.O_APPEND)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, tell)
    os.closerange(tell + 1, 256)
    os.execvpe(wanted["argv"][0], wanted["argv"], wanted["env"])


def main() -> int:
    """Start what standard input says."""
    wanted = json.load(sys.stdin)
    # The program is looked for where its own PATH says, as the shell that started it first did.
    os.environ["PATH"] = wanted["env"].get("PATH", os.defpath)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _begin(wanted, write)
        except OSError as error:
            os.write(write, f"{error.strerror}: {error.filename or wanted['argv'][0]}".encode())
        finally:
            os._exit(127)
    os.close(write)
    said = b""
    while piece := os.read(read, 4096):
        said += piece
    sys.stdout.write(json.dumps({"error": said.decode("utf-8", "replace")} if said else {"pid": pid}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
