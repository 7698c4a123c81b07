# SPDX-License-Identifier: Apache-2.0
"""What the kernel log says about memory: processes it killed, allocations the GPU driver could not serve."""

from __future__ import annotations

import re

from attrs import field

from jetson_specdec.logs.attempt import Proof
from jetson_specdec.logs.masked import masked
from jetson_specdec.values import frozen

__all__ = ["KernelLog", "read_kernel_log"]

# Linux cuts a process name at 15 characters.
_ENGINES = ("vllm", "python", "pt_main", "ray", "uvicorn", "enginecore", "worker")
_MARKS = ("Killed process", "Kill process", "NV_ERR_NO_MEMORY", "NvMap", "nvmap")
_MOST = 5


@frozen(kw_only=True)
class KernelLog:
    """Lines of the kernel log that matter.

    Attributes:
        killed: an engine's process was killed for lack of memory.
        driver: the GPU driver ran out of memory.
    """

    killed: tuple[Proof, ...] = field(default=())
    driver: tuple[Proof, ...] = field(default=())


def read_kernel_log(text: str | None) -> KernelLog:
    """Read `dmesg` or `journalctl -k`; None or an unrelated text says nothing."""
    if not text or not any(mark in text for mark in _MARKS):
        return KernelLog()
    killed: list[Proof] = []
    driver: list[Proof] = []
    victim = re.compile(r"Kill(?:ed)? process \d+ \(([^)]*)\)")
    shortage = re.compile(r"NV_ERR_NO_MEMORY|NvMapMem\w+.*error 12|nvmap\w*:?.*(?:fail|no memory|-12\b)", re.IGNORECASE)
    for number, line in enumerate(text.split("\n"), 1):
        if not any(mark in line for mark in _MARKS):
            continue
        found = victim.search(line)
        proof = Proof(input="dmesg", line=number, text=masked(line[:1000].strip()))
        if found is not None:
            if any(name in found[1].lower() for name in _ENGINES) and len(killed) < _MOST:
                killed.append(proof)
        elif shortage.search(line) is not None and len(driver) < _MOST:
            driver.append(proof)
    return KernelLog(killed=tuple(killed), driver=tuple(driver))
