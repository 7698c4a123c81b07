# SPDX-License-Identifier: Apache-2.0
"""What became of one start: the earliest line that proves a cause wins over what was said later about it.

Tiers of lines are explained in `data/signatures.json`. A server that came up and then died before it answered a
request has failed at its first request; the inner cause is named where the log shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve, field

from jetson_specdec.logs.attempt import Attempt, Hit
from jetson_specdec.logs.kernel import KernelLog
from jetson_specdec.values import frozen

__all__ = ["KILLED", "Verdict", "judge"]

KILLED: Final = (137, -9)
"""Exit codes of a process that was ended by SIGKILL: as a shell says it, and as Python says it."""

# After a start only these end the server; other errors belong to single requests.
_DEADLY = (
    "engine-dead",
    "killed",
    "killed-core",
    "killed-137",
    "kernel-oom",
    "watchdog",
    "port",
    "native-crash",
    "exit-code",
)
_NEAR = 40
"""Lines of interest between what killed the engine and the first line that says so."""
_BY_OTHERS = ("host_oom_killed", "watchdog_stopped", "port_in_use")
_OOM = ("oom-sampler", "oom-load-hint", "oom", "oom-host")
_DRAFT_FILES = (
    r'File "[^"\n]*(?:spec_decode|eagle|medusa|dflash|dspark|draft|_mtp)[^"\n]*"(?!, line \d+, in <module>)'
    r"|\bin load_draft"
)
"""Files of speculative decoding in a traceback; importing them on the way to something else does not count."""
_LOAD_FRAMES = r"\bin (?:load_model|load_weights|initialize_model|get_model|create_weights)\b"
_WARM_FRAMES = (
    r"\bin (?:capture_model|_dummy_\w+|profile_run|profile_\w+|compile_or_warm_up_model|determine_available_memory|"
    r"warm_?up\w*|initialize_kv_cache\w*|_allocate_kv_cache\w*)\b"
)
_DEVICE_WORDS = r"CUDA|cuda|CUBLAS|NVML|NvMap|memory|alloc|Accelerator|PTXAS|kernel"


@frozen(kw_only=True)
class Verdict:
    """What became of a start.

    Attributes:
        started_ok: True, False, or None where the log cannot tell.
        cause: as in the table of causes; `none` for a start, `engine_failed` where nothing better is known.
        stage: the stage where the cause has none of its own; None: the usual one of the cause.
        hits: the lines that prove it, the defining one first.
        kernel: whether the kernel log proves it.
        values: numbers and names from these lines.
        inner: the cause inside `first_request_failed`.
        context: what stood before the defining line.
        drafter: whether the draft was being loaded then.
    """

    started_ok: bool | None
    cause: str
    stage: str | None = None
    hits: tuple[Hit, ...] = ()
    kernel: bool = False
    values: Mapping[str, Any] = field(factory=dict)
    inner: str | None = None
    drafter: bool = False

    @property
    def hit(self) -> Hit | None:
        """The defining line."""
        return self.hits[0] if self.hits else None

    @property
    def specific(self) -> bool:
        """Whether it says more than that something failed."""
        return self.cause != "engine_failed"

    @property
    def about_draft(self) -> bool:
        """Whether the traceback goes through the files of speculative decoding."""
        return self.drafter or any(re.search(_DRAFT_FILES, hit.before) is not None for hit in self.hits[:1])


def judge(attempt: Attempt, *, kernel: KernelLog, exit_code: int | None = None) -> Verdict:
    """Say what became of a start.

    Args:
        attempt: the start.
        kernel: what the kernel log says about memory.
        exit_code: how the process ended, where known.
    """
    if attempt.started:
        return _after_start(attempt, exit_code)
    hit = _choose(attempt.hits)
    if hit is None or (hit.tier == 4 and hit.signature.id == "engine-dead"):
        return _silent(attempt, kernel, exit_code, hit)
    verdict = _of(attempt, hit, attempt.hits)
    if hit.tier == 3:
        return _from_noise(attempt, verdict, kernel, exit_code)
    if hit.signature.id == "exception" and kernel.driver and re.search(_DEVICE_WORDS, hit.proof.text):
        return evolve(verdict, cause="driver_oom", kernel=True)
    return evolve(verdict, kernel=verdict.cause == "host_oom_killed" and bool(kernel.killed))


def _after_start(attempt: Attempt, exit_code: int | None) -> Verdict:
    after = [hit for hit in attempt.hits if hit.started or attempt.implied]
    deadly = [hit for hit in after if hit.signature.id in _DEADLY]
    if not deadly:
        if exit_code in KILLED and not attempt.stopped:
            return Verdict(started_ok=False, cause="host_oom_killed", stage=_serving_stage(attempt))
        return Verdict(started_ok=True, cause="none", stage="serving")
    near = [hit for hit in after if _belongs(hit, deadly[0])]
    hit = _choose(near) or deadly[0]
    verdict = evolve(_of(attempt, hit, near), stage=_serving_stage(attempt))
    if verdict.cause == "port_in_use":
        return evolve(verdict, stage=None)
    if verdict.cause in _BY_OTHERS or attempt.served or attempt.implied:
        return verdict
    inner = None if verdict.cause in ("engine_failed", "first_request_failed") else verdict.cause
    return evolve(verdict, cause="first_request_failed", inner=inner, stage="first_request")


def _belongs(hit: Hit, end: Hit) -> bool:
    """Whether a line can be about the end of a server that was up: requests fail for reasons of their own before."""
    if hit.order >= end.order:
        return True
    from_engine = hit.process is not None and "API" not in hit.process
    return hit.order >= end.order - _NEAR and (from_engine or hit.signature.id != "exception")


def _serving_stage(attempt: Attempt) -> str:
    return "serving" if attempt.served or attempt.implied else "first_request"


def _choose(hits: Sequence[Hit]) -> Hit | None:
    """Return the line that proves the cause: the earliest of the best tier."""
    for tier in (1, 2):
        first = next((hit for hit in hits if hit.tier == tier), None)
        if first is not None:
            return _driver_first(first, hits)
    noise = [hit for hit in hits if hit.tier == 3 and hit.signature.id != "native-crash"]
    unknown = next((hit for hit in hits if hit.signature.id == "exception"), None)
    crash = next((hit for hit in hits if hit.signature.id == "native-crash"), None)
    if noise and (unknown is None or re.search(_DEVICE_WORDS, unknown.proof.text) is not None):
        return noise[0]
    return unknown or crash or next((hit for hit in hits if hit.tier == 4), None)


def _driver_first(first: Hit, hits: Sequence[Hit]) -> Hit:
    """The driver's own complaint comes before what torch makes of it."""
    if first.signature.id not in _OOM:
        return first
    return next((hit for hit in hits if hit.signature.id == "nvmap" and hit.order < first.order), first)


def _of(attempt: Attempt, hit: Hit, hits: Sequence[Hit]) -> Verdict:
    cause, values = hit.signature.cause, dict(hit.values)
    proving = [hit]
    for other in hits:
        same = other is not hit and other.signature.cause == cause and other.signature.id != hit.signature.id
        if same or (
            other.signature.id in _OOM
            and hit.signature.cause in ("oom_load", "oom_warmup", "driver_oom")
            and other is not hit
        ):
            proving.append(other)
            values = {**other.values, **values}
    stage = hit.signature.stage
    if hit.signature.id in _OOM:
        named = [other for identity in _OOM for other in hits if other.signature.id == identity]
        proving = [named[0], *(other for other in proving if other is not named[0])]
        values = {**values, **named[0].values}
        cause = "oom_load" if _loading(attempt, hit, named[0]) else "oom_warmup"
        stage = "load" if cause == "oom_load" else "warmup"
    verdict = Verdict(
        started_ok=False,
        cause=cause,
        stage=stage,
        hits=tuple(_distinct(proving)),
        values=values,
        drafter=hit.drafter,
    )
    return evolve(verdict, cause=_load_cause(attempt, verdict, hit))


def _loading(attempt: Attempt, hit: Hit, named: Hit) -> bool:
    """Whether memory ran out while weights were loaded, and not at warm-up."""
    if named.signature.stage is not None:
        return named.signature.stage == "load"
    places = [(match.start(), True) for match in re.finditer(_LOAD_FRAMES, hit.before)]
    places += [(match.start(), False) for match in re.finditer(_WARM_FRAMES, hit.before)]
    if places:
        return max(places)[1]
    return hit.progress not in ("kv_cache", "warmup", "serving") and not attempt.loaded and not attempt.implied


def _load_cause(attempt: Attempt, verdict: Verdict, hit: Hit) -> str:
    """Tell the draft's files from the target's, and failures of loading from other exceptions."""
    cause = verdict.cause
    named = str(hit.values.get("class", ""))
    if cause == "target_load_failed":
        reports = re.findall(r"validation errors? for (\w+)", hit.before)
        draft = (
            verdict.about_draft
            or re.search(r"Eagle|Medusa|MTP|DFlash|DSpark|Draft|Speculator", named) is not None
            or re.match(
                r"(?:mtp|eagle|draft|medusa)\w*\.|(?:\w+\.)*(?:d2t|t2d|midlayer)\b",
                str(hit.values.get("missing_key", "")),
            )
            is not None
            or reports[-1:] == ["SpeculativeConfig"]
        )
        return "draft_load_failed" if draft else cause
    if cause == "engine_failed" and hit.signature.id == "exception" and not hit.started:
        if verdict.drafter and hit.progress in ("load", "config"):
            return "draft_load_failed"
        if not attempt.loaded and re.search(r"\bin load_weights\b", hit.before) is not None:
            return "draft_load_failed" if verdict.about_draft else "target_load_failed"
    return cause


def _distinct(hits: Sequence[Hit]) -> list[Hit]:
    seen: set[str] = set()
    kept = []
    for hit in hits:
        if hit.proof.text not in seen:
            seen.add(hit.proof.text)
            kept.append(hit)
    return kept[:4]


def _silent(attempt: Attempt, kernel: KernelLog, exit_code: int | None, hit: Hit | None) -> Verdict:
    """Nothing in the log says why: the kernel and the exit code may."""
    hits = (hit,) if hit is not None else ()
    if attempt.stopped and hit is None:
        return Verdict(started_ok=None, cause="engine_failed", stage=None)
    if kernel.killed or exit_code in KILLED:
        return Verdict(started_ok=False, cause="host_oom_killed", hits=hits, kernel=bool(kernel.killed))
    if kernel.driver:
        return Verdict(started_ok=False, cause="driver_oom", hits=hits, kernel=True)
    if hit is not None or exit_code not in (None, 0):
        return Verdict(started_ok=False, cause="engine_failed", hits=hits)
    return Verdict(started_ok=None, cause="engine_failed")


def _from_noise(attempt: Attempt, verdict: Verdict, kernel: KernelLog, exit_code: int | None) -> Verdict:
    """Lines that healthy starts can show too: they count where the start failed, or the driver had the last word."""
    identity = verdict.hits[0].signature.id
    if kernel.killed or exit_code in KILLED:
        return Verdict(started_ok=False, cause="host_oom_killed", kernel=bool(kernel.killed))
    failed = exit_code not in (None, 0) or any(
        hit.tier == 4 or hit.signature.id == "native-crash" for hit in attempt.hits
    )
    if identity == "platform" and attempt.past("config"):
        return _silent(attempt, kernel, exit_code, next((hit for hit in attempt.hits if hit.tier == 4), None))
    last = max(hit.order for hit in attempt.hits if hit.signature.id == identity)
    if failed or (identity in ("nvmap", "platform") and last > attempt.moved):
        return verdict
    return evolve(verdict, started_ok=None)
