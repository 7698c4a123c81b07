# SPDX-License-Identifier: Apache-2.0
"""What starting and stopping give back."""

from __future__ import annotations

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["Started", "Stopped"]


@frozen(kw_only=True)
class Started:
    """A server that has generated its first tokens.

    Attributes:
        base_url: what an OpenAI client takes; `root_url` is where `/health` and `/metrics` are.
        model: the name it serves the model under.
        run_id: name of this start.
        log_path: its log.
        pid: its first process, or None.
        container, unit, service: by which name its manager knows it, or None.
        ready_s: seconds from the start until `/health` and `/v1/models` answered.
        first_completion_s: seconds the first completion took.
        first_completion_tokens: tokens in it.
        available_before_bytes, available_after_bytes: MemAvailable before the start and after the first completion.
        lowest_available_bytes: the least MemAvailable seen meanwhile.
        findings: what was done differently from the recipe's text, and what else runs.
    """

    base_url: str
    root_url: str
    model: str
    run_id: str
    log_path: str
    pid: int | None = None
    container: str | None = None
    unit: str | None = None
    service: str | None = None
    ready_s: float
    first_completion_s: float
    first_completion_tokens: int
    available_before_bytes: int | None = None
    available_after_bytes: int | None = None
    lowest_available_bytes: int | None = None
    findings: tuple[Finding, ...] = ()


@frozen(kw_only=True)
class Stopped:
    """A server that is gone.

    Attributes:
        port_free: whether its port could be used again in time.
        memory_back: whether MemAvailable came back to where it was before the start, within the policy's band; None
            where it cannot be told.
        available_bytes: MemAvailable now.
        seconds: from the order until port and memory were back, or the waiting ended.
        findings: what is not back.
    """

    port_free: bool
    memory_back: bool | None
    available_bytes: int | None
    seconds: float
    findings: tuple[Finding, ...] = ()
