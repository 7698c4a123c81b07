# SPDX-License-Identifier: Apache-2.0
"""What the ladder knows: what was tried with which result, and which utilisations that leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from attrs import field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis

__all__ = [
    "BY_HAND",
    "MEMORY",
    "TOO_HIGH",
    "TOO_LOW",
    "Rung",
    "Setting",
    "Tried",
    "Window",
    "about_memory",
    "lows",
    "window_of",
]

Action = Literal[
    "utilization", "max_model_len", "max_num_seqs", "k", "other_draft", "drop_speculation", "retry", "stop"
]

TOO_HIGH = ("memory_precheck", "oom_load", "oom_warmup", "driver_oom", "host_oom_killed", "watchdog_stopped")
"""Causes that ask for less utilisation."""
TOO_LOW = ("kv_cache_none", "kv_cache_too_small")
"""Causes that ask for more, or for less to hold."""
MEMORY = (*TOO_HIGH, *TOO_LOW, "does_not_fit", "memory_profiling_race")


BY_HAND = ("upgrade_runtime", "change_image", "predownload", "accept_licence", "free_disk", "free_port")
"""Remedies for a person: nothing that can be tried here makes such a start succeed."""


@frozen(kw_only=True)
class Setting:
    """What a start was tried with; None where it is not known or not set.

    Attributes:
        strategy: the plan's outcome (`none` without speculation).
        model: the drafter.
        k: drafted tokens.
        utilization: `--gpu-memory-utilization` in force.
        max_model_len, max_num_seqs: the limits in force.
    """

    strategy: str
    model: str | None = None
    k: int | None = None
    utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None

    @property
    def speculates(self) -> bool:
        """Whether anything drafts."""
        return self.strategy not in ("none", "refuse")

    def same_load(self, other: Setting) -> bool:
        """Whether both need the same memory, whatever they may take."""
        return (self.model, self.k, self.max_model_len, self.max_num_seqs) == (
            other.model,
            other.k,
            other.max_model_len,
            other.max_num_seqs,
        )


@frozen(kw_only=True)
class Tried:
    """A start that failed: with what, and why."""

    setting: Setting
    diagnosis: Diagnosis


@frozen(kw_only=True)
class Window:
    """The utilisations that are left to try, both ends excluded; None where an end is not known."""

    low: float | None = None
    high: float | None = None

    def between(self, wanted: float, *, ceiling: float) -> float | None:
        """Return the value in hundredths to try next, or None where none is left.

        That is the one wanted, or the ceiling below it; where that has failed already, the middle of what is left.
        """
        top = hundredths(ceiling)
        low = 0 if self.low is None else hundredths(self.low)
        high = top + 1 if self.high is None else min(hundredths(self.high), top + 1)
        if high - low < 2:
            return None
        at = min(hundredths(wanted), top)
        return (at if low < at < high else (low + high) // 2) / 100


@frozen(kw_only=True)
class Rung:
    """What to try next.

    Attributes:
        action: which kind of change; `stop` ends the ladder.
        set_flags: flag (dashes) → its new value.
        k: the new number of drafted tokens.
        cause: what the failed starts amount to, where that is more than the last one's cause (`does_not_fit`).
        findings: why; the first one says what is changed.
        next_steps: what a person has to do, where the ladder ends or speculation goes.
    """

    action: Action
    set_flags: Mapping[str, str] = field(factory=dict)
    k: int | None = None
    cause: str | None = None
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()


_LESS = ("lower_utilization", "drop_caches", "reduce_max_num_seqs")
_MORE = ("raise_utilization", "reduce_max_model_len")


def took_too_much(diagnosis: Diagnosis) -> bool:
    """Whether a start took too much of the memory: by the direction its remedy has, else by its cause."""
    return diagnosis.remedy in _LESS or (diagnosis.cause in TOO_HIGH and diagnosis.remedy not in _MORE)


def took_too_little(diagnosis: Diagnosis) -> bool:
    """Whether a start took too little of the memory, in the same way."""
    return diagnosis.remedy in _MORE or (diagnosis.cause in TOO_LOW and diagnosis.remedy not in _LESS)


def about_memory(diagnosis: Diagnosis) -> bool:
    """Whether a start failed for lack of memory; at its first request the inner cause says so."""
    return diagnosis.cause in MEMORY or diagnosis.values.get("inner_cause") in MEMORY


def window_of(history: Sequence[Tried], setting: Setting) -> Window:
    """Return which utilisations are left for a setting after the starts that failed.

    A start that found too little free memory bounds every later one, by what was free where it says so; other failures
    only those with the same load.
    """
    too_little = [one.setting.utilization for one in lows(history, setting)]
    too_much = [
        _first_too_much(one)
        for one in history
        if took_too_much(one.diagnosis)
        and one.setting.utilization is not None
        and (one.diagnosis.cause == "memory_precheck" or one.setting.same_load(setting))
    ]
    return Window(
        low=max((value for value in too_little if value is not None), default=None),
        high=min((value for value in too_much if value is not None), default=None),
    )


def lows(history: Sequence[Tried], setting: Setting) -> list[Tried]:
    """Return the starts with the same load that took too little of the memory."""
    return [
        one
        for one in history
        if took_too_little(one.diagnosis) and one.setting.utilization is not None and one.setting.same_load(setting)
    ]


def _first_too_much(one: Tried) -> float | None:
    """Return the lowest utilisation that is known to be too much after a start that took too much."""
    now, feasible = one.setting.utilization, one.diagnosis.values.get("feasible_utilization")
    if one.diagnosis.cause == "memory_precheck" and now is not None and isinstance(feasible, (int, float)):
        return min(now, round(feasible + 0.01, 2)) if feasible > 0 else now
    return now


def hundredths(value: float) -> int:
    """Return a utilisation in hundredths, the steps in which values are tried."""
    return round(value * 100)
