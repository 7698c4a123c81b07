# SPDX-License-Identifier: Apache-2.0
"""Other engines on this machine: not in the way of a port, but of the memory that a board has only once."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_specdec.findings import Finding
from jetson_specdec.server.launch import MARKER

__all__ = ["is_engine", "other_servers"]


def is_engine(argv: Sequence[str]) -> bool:
    """Whether a command line is a vLLM server (`vllm serve`, its api_server module)."""
    for at, word in enumerate(argv):
        name = word.rsplit("/", 1)[-1]
        following = argv[at + 1] if at + 1 < len(argv) else ""
        if (name == "vllm" or word.endswith(".fake_vllm")) and following == "serve":
            return True
        if word.startswith("vllm.entrypoints.") and argv[at - 1 : at] == ["-m"]:
            return True
    return False


def other_servers(run_id: str) -> tuple[Finding, ...]:
    """Return a finding for each engine that runs here and is not part of a start; those of other users included."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            argv = process.cmdline()
            if not is_engine(argv) or argv[:1] in (["bash"], ["sh"], ["docker"], ["sudo"]):
                continue
            if process.environ().get(MARKER) == run_id:
                continue
            resident = process.memory_info().rss
        except psutil.AccessDenied:
            resident = None
        except psutil.Error:
            continue
        found.append(Finding.of("JSD912", pid=process.pid, bytes=resident))
    return tuple(found)
