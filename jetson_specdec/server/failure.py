# SPDX-License-Identifier: Apache-2.0
"""Why a start failed: what the log says, and what only the one who watched it can say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve

from jetson_specdec.findings import Finding, Step

if TYPE_CHECKING:
    from pathlib import Path

    from jetson_specdec.host import Host
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.policy import Policy
    from jetson_specdec.server.watchdog import MemorySample

__all__ = ["Failure", "Why", "kernel_log", "note_failure", "refine", "uptime"]

Why = Literal["exited", "log", "watchdog", "before", "request", "timeout"]


_RUNTIME_CODES = (125, 126, 127)
"""`docker run` failed itself; its command cannot be invoked; it (or `docker`) was not found. docs.docker.com, run."""


class Failure(Exception):  # noqa: N818 - caught in this room
    """The start cannot succeed any more.

    Attributes:
        why: the process `exited`; the `log` shows a cause; the `watchdog` ended it; a command `before` it failed; the
            first `request` failed; or it took too long (`timeout`).
        detail: what was said.
    """

    def __init__(self, why: Why, detail: str | None = None) -> None:
        super().__init__(why)
        self.why: Why = why
        self.detail = detail


def refine(
    found: Diagnosis,
    failure: Failure,
    *,
    speculates: bool,
    contained: bool = False,
    exit_code: int | None = None,
    breach: MemorySample | None = None,
    policy: Policy | None = None,
    timeout_s: float | None = None,
) -> Diagnosis:
    """Say what the log alone cannot: that we stopped it, or that it answered `/health` and nothing else.

    Args:
        found: what the log says.
        failure: how the start ended.
        speculates: whether the recipe that was run speculates.
        contained: whether it was started by a container runtime.
        exit_code: how its first process ended by itself.
        breach: the sample that made the watchdog act.
        policy: its floor.
        timeout_s: how long it was given to become ready.
    """
    from jetson_specdec.logs.causes import causes

    values: dict[str, Any] = dict(found.values)
    cause, stage = found.cause, found.stage
    if failure.why == "watchdog" and breach is not None:
        values.update(
            available_bytes=breach.available_bytes,
            floor_bytes=policy.watchdog_floor_bytes if policy is not None else None,
            swap_used_bytes=breach.swap_used_bytes,
            pressure_full=breach.pressure_full,
        )
        cause = "watchdog_stopped"
    elif failure.why == "request" and (found.started_ok is not False or cause == "engine_failed"):
        values["reason"] = (failure.detail or "")[:300]
        cause, stage = "first_request_failed", "first_request"
    elif contained and cause == "engine_failed" and exit_code in _RUNTIME_CODES:
        cause, stage = "container_runtime", "container"
    elif found.started_ok is not False or cause == "none":
        cause = "start_timeout" if failure.why == "timeout" else "engine_failed"
    if failure.why == "timeout" and cause == "start_timeout":
        # Our own patience ended, not the engine's: that is what can be given more of.
        found = evolve(found, next_steps=(Step.of("start-longer", seconds=timeout_s),))
    if cause == found.cause:
        return evolve(found, started_ok=False, values=values)
    remedy = "drop_speculation" if cause == "first_request_failed" and speculates else causes()[cause]["remedy"]
    involved = found.speculation_involved
    if cause == "first_request_failed":
        involved = speculates
    return evolve(
        found,
        started_ok=False,
        stage=stage,
        cause=cause,
        remedy=remedy,
        speculation_involved=involved,
        values=values,
        findings=(Finding.of(causes()[cause]["code"], **{"cause": cause, **values}),),
        next_steps=found.next_steps if cause == "start_timeout" else (Step.of("remedy-" + remedy.replace("_", "-")),),
    )


def note_failure(log_path: Path, failure: Failure, timeout_s: float) -> None:
    """Write into the log what it would not say by itself."""
    from jetson_specdec.server.running import note

    if failure.why == "timeout":
        note(log_path, f"the server did not become ready in time ({timeout_s:.0f} s)")
    elif failure.why == "request":
        note(log_path, f"the first completion failed: {(failure.detail or '')[:300]}")
    elif failure.why == "before":
        note(log_path, failure.detail or "")


def kernel_log(host: Host, since_s: float) -> str | None:
    """Return what the kernel said since a time (seconds since boot), where it may be read."""
    answer = host.run(["dmesg"], timeout=5)
    if answer is None or not answer.ok:
        return None
    return "\n".join(line for line in answer.stdout.splitlines() if _stamp(line) >= since_s) or None


def uptime(host: Host) -> float:
    """Return seconds since boot, the clock of the kernel log."""
    words = (host.read_text("/proc/uptime") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return 0.0


def _stamp(line: str) -> float:
    """Return the time of a kernel log line (`[ 1234.567890] …`); infinity where it has none, so that it is kept."""
    head = line.partition("]")[0].lstrip("[").strip()
    try:
        return float(head)
    except ValueError:
        return float("inf")
