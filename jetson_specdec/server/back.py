# SPDX-License-Identifier: Apache-2.0
"""After a stop: waiting until the port can be used again and the memory has come back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.policy import Policy
from jetson_specdec.server.core import Stopped
from jetson_specdec.server.occupants import port_is_free
from jetson_specdec.server.watchdog import MemorySample, read_memory

if TYPE_CHECKING:
    from jetson_specdec.host import Host

__all__ = ["memory_is_back", "wait_until_back"]


def memory_is_back(before: MemorySample, now: MemorySample, policy: Policy) -> bool | None:
    """Whether as much is available as before, within the policy's band; None where it cannot be told."""
    if before.available_bytes is None or now.available_bytes is None or now.total_bytes is None:
        return None
    return before.available_bytes - now.available_bytes <= policy.cooldown_memory_band * now.total_bytes


def wait_until_back(port: int, before: MemorySample, *, host: Host, policy: Policy, timeout_s: float) -> Stopped:
    """Wait until port and memory are back, at most so long; findings name what is not.

    Args:
        port: the server's.
        before: memory before it was started.
        host: whose memory.
        policy: the band in which memory counts as back.
        timeout_s: how long to wait.
    """
    began = time.monotonic()
    while True:
        sample = read_memory(host)
        free, back = port_is_free(port), memory_is_back(before, sample, policy)
        if (free and back is not False) or time.monotonic() - began >= timeout_s:
            break
        time.sleep(0.1)
    findings = []
    if not free:
        findings.append(Finding.of("JSD910", port=port))
    if back is False:
        findings.append(Finding.of("JSD911", before=before.available_bytes, now=sample.available_bytes))
    return Stopped(
        port_free=free,
        memory_back=back,
        available_bytes=sample.available_bytes,
        seconds=time.monotonic() - began,
        findings=tuple(findings),
    )
