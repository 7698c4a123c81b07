# SPDX-License-Identifier: Apache-2.0
"""After a start that failed: what to try next. Pure: the same history gives the same rung.

The direction comes from the cause, and some causes ask for *more* utilisation. What has failed stays known: a value is
only tried between the highest that was too little and the lowest that was too much. Where nothing is left between them
the drafter becomes smaller, then it goes; the recipe without speculation is the last rung.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, field, frozen

from jetson_specdec.findings import Finding, Step
from jetson_specdec.planning.steps import hand_off

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.strategies.core import Situation

__all__ = ["TOO_HIGH", "TOO_LOW", "Rung", "Setting", "Tried", "Window", "next_rung", "window_of"]

Action = Literal[
    "utilization", "max_model_len", "max_num_seqs", "k", "other_draft", "drop_speculation", "retry", "stop"
]

TOO_HIGH = ("memory_precheck", "oom_load", "oom_warmup", "driver_oom", "host_oom_killed", "watchdog_stopped")
"""Causes that ask for less utilisation."""
TOO_LOW = ("kv_cache_none", "kv_cache_too_small")
"""Causes that ask for more, or for less to hold."""
MEMORY = (*TOO_HIGH, *TOO_LOW, "does_not_fit", "memory_profiling_race")

_BY_HAND = ("upgrade_runtime", "change_image", "predownload", "accept_licence", "free_disk", "free_port")
_REJECTED = ("fix_quoting", "fix_config", "set_environment", "drop_speculation")
SHORTEST_CONTEXT = 1024
"""A shorter context than this is not tried; nobody serves with less. A choice of ours."""
_DEFAULT_SEQS = 256
"""vLLM's default where nothing else is said (0.32 `config/scheduler.py`; large-memory GPUs start higher)."""


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
        """Return the value in hundredths nearest to the one wanted that is left, or None where none is."""
        low = 0 if self.low is None else _hundredths(self.low)
        high = _hundredths(ceiling) + 1 if self.high is None else min(_hundredths(self.high), _hundredths(ceiling) + 1)
        if high - low < 2:
            return None
        at = _hundredths(wanted)
        if not low < at < high:
            at = (low + high) // 2
        return min(max(at, low + 1), high - 1) / 100


@frozen(kw_only=True)
class Rung:
    """What to try next.

    Attributes:
        action: which kind of change; `stop` ends the ladder.
        set_flags: flag (dashes) → its new value.
        k: the new number of drafted tokens.
        findings: why; the first one says what is changed.
        next_steps: what a person has to do, where the ladder ends or speculation goes.
    """

    action: Action
    set_flags: Mapping[str, str] = field(factory=dict)
    k: int | None = None
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()


def window_of(history: Sequence[Tried], setting: Setting) -> Window:
    """Return which utilisations are left for a setting after the starts that failed.

    A start that found too little free memory bounds every later one; other failures only those with the same load.
    """
    lows = [
        one.setting.utilization
        for one in history
        if one.diagnosis.cause in TOO_LOW and one.setting.utilization is not None and one.setting.same_load(setting)
    ]
    highs = [
        one.setting.utilization
        for one in history
        if one.diagnosis.cause in TOO_HIGH
        and one.setting.utilization is not None
        and (one.diagnosis.cause == "memory_precheck" or one.setting.same_load(setting))
    ]
    return Window(low=max(lows, default=None), high=min(highs, default=None))


def next_rung(situation: Situation, history: Sequence[Tried], diagnosis: Diagnosis | None = None) -> Rung:
    """Return what to try after the last start of a history failed.

    Args:
        situation: what was planned for.
        history: every start that failed, the newest last.
        diagnosis: of the newest one, where it differs from the one in the history.
    """
    if diagnosis is not None:
        history = (*history[:-1], evolve(history[-1], diagnosis=diagnosis))
    return _Climber(situation, tuple(history)).next()


class _Climber:
    """One decision, with what it rests on at hand."""

    def __init__(self, situation: Situation, history: tuple[Tried, ...]) -> None:
        self.situation = situation
        self.history = history
        self.setting = history[-1].setting
        self.found = history[-1].diagnosis
        self.values: Mapping[str, Any] = self.found.values
        self.window = window_of(history, self.setting)

    def next(self) -> Rung:
        policy = self.situation.policy
        if len(self.history) >= policy.ladder_tries:
            return self.stop(Finding.of("JSD928", tries=len(self.history)))
        remedy, cause = self.found.remedy, self.found.cause
        if remedy in ("drop_caches", "retry", "none") and self._again():
            return Rung(action="retry", findings=())
        if cause == "memory_precheck" or remedy in ("lower_utilization", "free_memory", "drop_caches"):
            return self.lower()
        if remedy == "raise_utilization":
            return self.higher()
        if remedy == "reduce_max_model_len":
            return self.shorter() or self.smaller()
        if remedy == "reduce_max_num_seqs":
            return self.fewer() or self.lower()
        if remedy == "reduce_k":
            return self.less_k() or self.smaller()
        if remedy in ("smaller_draft", "other_draft"):
            return self.smaller()
        if cause in TOO_HIGH:
            return self.lower()
        if cause in TOO_LOW:
            return self.higher()
        if remedy in _BY_HAND:
            return self.stop(Finding.of("JSD927", cause=cause, remedy=remedy))
        if self.setting.speculates and (remedy in _REJECTED or self.found.speculation_involved is not False):
            return self.without()
        if not self.setting.speculates:
            return self.stop(Finding.of("JSD929", cause=cause))
        return self.stop(Finding.of("JSD927", cause=cause, remedy=remedy))

    def _again(self) -> bool:
        """Whether the same start may simply be repeated: once for what can pass by itself."""
        passing = self.found.remedy in ("drop_caches", "retry")
        before = [one for one in self.history[:-1] if one.setting == self.setting]
        return passing and not any(one.diagnosis.cause == self.found.cause for one in before)

    # --- utilisation --------------------------------------------------------------------------------------------------

    def lower(self) -> Rung:
        """Take less of the memory."""
        now = self.setting.utilization
        if now is None:
            return self.smaller()
        wanted = now - self.situation.policy.utilization_step
        feasible = self.values.get("feasible_utilization")
        if isinstance(feasible, (int, float)) and 0 < feasible < now:
            wanted = feasible
        return self.to(wanted)

    def higher(self) -> Rung:
        """Take more of the memory, as much as the message says is missing."""
        now = self.setting.utilization
        if now is None:
            return self.shorter() or self.smaller()
        missing = _difference(self.values.get("kv_needed_gib"), self.values.get("kv_available_gib"))
        total = self.values.get("total_gib") or self._total_gib()
        step = self.situation.policy.utilization_step
        if missing is not None and total:
            # One hundredth more than is missing: the message rounds its sizes.
            step = math.ceil(missing / total * 100 - 1e-9) / 100 + 0.01
        return self.to(now + step)

    def to(self, wanted: float) -> Rung:
        """Go to the value nearest to the one wanted that is left; where none is, say so and make something smaller."""
        before = self.setting.utilization or 0.0
        value = self.window.between(wanted, ceiling=self.ceiling())
        low, high = self.window.low, self.window.high
        if value is None:
            empty = Finding.of("JSD926", low=low, high=high if high is not None else self.ceiling())
            rung = self.shorter() or self.smaller()
            return evolve(rung, findings=(empty, *rung.findings))
        return Rung(
            action="utilization",
            set_flags={"gpu-memory-utilization": f"{value:.2f}"},
            findings=(Finding.of("JSD920", cause=self.found.cause, before=before, after=value, low=low, high=high),),
        )

    def ceiling(self) -> float:
        """Return the highest value the policy allows on this board."""
        policy, total = self.situation.policy, self.situation.device.memory_total_bytes
        free = 1.0 if not total else math.floor((1 - policy.min_free_bytes / total) * 100 + 1e-9) / 100
        return min(policy.ceiling_utilization, free)

    def _total_gib(self) -> float | None:
        total = self.situation.device.memory_total_bytes
        return total / 2**30 if total else None

    # --- limits -------------------------------------------------------------------------------------------------------

    def shorter(self) -> Rung | None:
        """Serve a shorter context: what the message says would fit, else half."""
        before = self.setting.max_model_len or _whole(self.values.get("max_model_len"))
        fits = _whole(self.values.get("feasible_max_model_len"))
        after = fits if fits is not None else (before // 2 if before is not None else None)
        if after is None or after < SHORTEST_CONTEXT or (before is not None and after >= before):
            return None
        return Rung(
            action="max_model_len",
            set_flags={"max-model-len": str(after)},
            findings=(Finding.of("JSD921", cause=self.found.cause, before=before, after=after),),
        )

    def fewer(self) -> Rung | None:
        """Serve fewer sequences at once: half as many."""
        before = self.setting.max_num_seqs or _whole(self.values.get("num_seqs")) or _DEFAULT_SEQS
        if before < 2:
            return None
        return Rung(
            action="max_num_seqs",
            set_flags={"max-num-seqs": str(before // 2)},
            findings=(Finding.of("JSD922", cause=self.found.cause, before=before, after=before // 2),),
        )

    def less_k(self) -> Rung | None:
        """Draft less: half as much."""
        before = self.setting.k
        if before is None or before < 2:
            return None
        usual = self.situation.policy.start_k_agx_orin
        after = usual if before > 2 * usual else before // 2
        return Rung(
            action="k", k=after, findings=(Finding.of("JSD923", cause=self.found.cause, before=before, after=after),)
        )

    # --- the drafter --------------------------------------------------------------------------------------------------

    def smaller(self) -> Rung:
        """Try another drafter where one can be better (the planner knows which), else none."""
        if not self.setting.speculates:
            return self.stop(Finding.of("JSD929", cause=self.found.cause))
        wished = self.situation.head_wanted or self.situation.draft_wanted
        if wished is None and self.setting.model is not None and not self.situation.speculation.active:
            return Rung(action="other_draft", findings=())
        return self.without()

    def without(self) -> Rung:
        """Serve without speculation."""
        steps = (hand_off(self.situation),) if self.found.cause in MEMORY else self.found.next_steps
        return Rung(
            action="drop_speculation",
            findings=(Finding.of("JSD924", cause=self.found.cause),)
            if self.found.cause in MEMORY
            else (Finding.of("JSD930", cause=self.found.cause, remedy=self.found.remedy),),
            next_steps=steps,
        )

    def stop(self, why: Finding) -> Rung:
        """End the ladder."""
        steps = list(self.found.next_steps)
        if self.found.cause in MEMORY:
            steps.append(hand_off(self.situation))
        return Rung(action="stop", findings=(why,), next_steps=tuple(steps))


def _hundredths(value: float) -> int:
    return round(value * 100)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _difference(one: Any, other: Any) -> float | None:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return max(float(one) - float(other), 0.0)
    return None
