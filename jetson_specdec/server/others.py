# SPDX-License-Identifier: Apache-2.0
"""Other engines on this machine: not in the way of a port, but of the memory that a board has only once."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.server.launch import MARKER

if TYPE_CHECKING:
    import psutil

__all__ = ["has_title", "is_engine", "other_servers"]

TITLE = "VLLM::"
"""What vLLM's own processes are called (0.32 `utils/system_utils.py`, `set_process_title`)."""


def has_title(argv: Sequence[str]) -> bool:
    """Whether a process is one of vLLM's own below a server: a title stands where its command line was."""
    return bool(argv) and argv[0].startswith(TITLE)


def is_engine(argv: Sequence[str]) -> bool:
    """Whether a command line is a vLLM server (`vllm serve`, its api_server module) or a process of one."""
    if has_title(argv):
        return True
    for at, word in enumerate(argv):
        name = word.rsplit("/", 1)[-1]
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if (name == "vllm" or word.endswith(".fake_vllm")) and following == "serve":
            return True
        if word.startswith("vllm.entrypoints.") and argv[at - 1 : at] == ["-m"]:
            return True
    return False


def other_servers(run_id: str) -> tuple[Finding, ...]:
    """Return a finding for each engine that runs here and is not part of a start; those of other users included.

    An engine process whose server was killed lives on with the memory, so it counts as one by itself.
    """
    import psutil

    engines: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            argv = process.cmdline()
            if is_engine(argv) and argv[:1] not in (["bash"], ["sh"], ["docker"], ["sudo"]):
                engines[process.pid] = process
        except psutil.Error:
            continue
    found = []
    for process in engines.values():
        try:
            if process.ppid() in engines or process.environ().get(MARKER) == run_id:
                continue
            resident = _resident(process)
        except psutil.AccessDenied:
            resident = None
        except psutil.Error:
            continue
        found.append(Finding.of("JSD912", pid=process.pid, bytes=resident))
    return tuple(found)


def _resident(server: psutil.Process) -> int:
    """Return the bytes that a server and everything below it hold; pages they share count more than once."""
    import psutil

    total = int(server.memory_info().rss)
    for child in server.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += int(child.memory_info().rss)
    return total
