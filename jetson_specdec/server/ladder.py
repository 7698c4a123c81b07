# SPDX-License-Identifier: Apache-2.0
"""After a start that failed: what to try next. Pure: the same history gives the same rung.

The direction comes from the diagnosis, and some causes ask for *more* utilisation. What has failed stays known: a value
is only tried between the highest that was too little and the lowest that was too much. Where nothing is left between
them the drafter becomes smaller, then it goes; the recipe without speculation is the last rung. Nothing is changed that
the diagnosis does not ask for, and nothing is repeated but what can pass by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.findings import Finding, Step
from jetson_specdec.planning.steps import hand_off
from jetson_specdec.server.rungs import (
    BY_HAND,
    MEMORY,
    TOO_HIGH,
    TOO_LOW,
    Rung,
    Setting,
    Tried,
    Window,
    about_memory,
    lows,
    window_of,
)

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.strategies.core import Situation

__all__ = ["MEMORY", "TOO_HIGH", "TOO_LOW", "Rung", "Setting", "Tried", "Window", "next_rung", "window_of"]

_HELD_BY_OTHERS = ("free_memory", "drop_caches")
"""Remedies outside the recipe that stay worth doing whatever the ladder does instead."""
_UTILIZATION = "gpu-memory-utilization"
SHORTEST_CONTEXT = 1024
"""A shorter context than this is not tried; nobody serves with less. A choice of ours."""
FEW_SEQS = 16
"""As many as a Jetson serves at once; fewer do not free much memory. A choice of ours."""
_DEFAULT_SEQS = 256
"""vLLM's default where nothing else is said (0.32 `config/scheduler.py`; large-memory GPUs start higher)."""


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
        tries, remedy = self.situation.policy.ladder_tries, self.found.remedy
        if len(self.history) >= tries:
            return self.stop(Finding.of("JSD928", tries=len(self.history)))
        if remedy == "retry":
            return self.again()
        if remedy in BY_HAND:
            return self.by_hand()
        if about_memory(self.found):
            return self.memory()
        if remedy == "reduce_k":
            return self.less_k() or self.without()
        if remedy in ("smaller_draft", "other_draft"):
            return self.smaller()
        if self.setting.speculates and self.found.speculation_involved is False:
            return self.stop(Finding.of("JSD933", cause=self.found.cause, remedy=remedy))
        return self.without() if self.setting.speculates else self.stop(Finding.of("JSD929", cause=self.found.cause))

    def again(self) -> Rung:
        """Repeat a start once for what can pass by itself."""
        same = [one for one in self.history if one.setting == self.setting and one.diagnosis.remedy == "retry"]
        if len(same) > 1:
            return self.stop(Finding.of("JSD934", cause=self.found.cause))
        return Rung(action="retry", findings=(Finding.of("JSD932", cause=self.found.cause),))

    def by_hand(self) -> Rung:
        """End the ladder: what is to be done is for a person."""
        return self.stop(Finding.of("JSD927", cause=self.found.cause, remedy=self.found.remedy))

    def memory(self) -> Rung:
        """Go in the direction that a lack of memory asks for."""
        remedy, cause = self.found.remedy, self.found.cause
        if remedy == "lower_utilization" or (remedy == "drop_caches" and self._feasible() is not None):
            return self.lower()
        if remedy == "raise_utilization":
            return self.higher()
        if remedy == "reduce_max_model_len":
            return self.give_back() or self.shorter() or self.higher()
        if remedy == "reduce_max_num_seqs":
            return self.fewer() or self.lower()
        if remedy == "reduce_k":
            return self.less_k() or self.smaller()
        if remedy in ("smaller_draft", "other_draft", "drop_speculation"):
            return self.smaller()
        if remedy in _HELD_BY_OTHERS and (cause == "memory_precheck" or self.found.speculation_involved is False):
            # What others hold does not become free by serving less.
            return self.by_hand()
        return self.smaller()

    # --- utilisation --------------------------------------------------------------------------------------------------

    def lower(self) -> Rung:
        """Take less of the memory."""
        now = self.setting.utilization
        if now is None:
            return self.smaller()
        feasible = self._feasible()
        return self.to(now - self.situation.policy.utilization_step if feasible is None else feasible)

    def _feasible(self) -> float | None:
        """Return the utilisation for which the memory was free, where the engine said so."""
        now, feasible = self.setting.utilization, self.values.get("feasible_utilization")
        if now is None or not isinstance(feasible, (int, float)) or not 0 < feasible < now:
            return None
        return float(feasible)

    def higher(self) -> Rung:
        """Take more of the memory, as much as the message says is missing."""
        now = self.setting.utilization
        if now is None:
            return self.smaller()
        return self.to(now + (self._missing() or self._over() + self.situation.policy.utilization_step))

    def _over(self) -> float:
        """Return by how much weights and activations alone exceed the budget, in hundredths; 0 where nobody says so."""
        left, total = _number(self.values.get("kv_available_gib")), self._total()
        if left is None or left >= 0 or not total:
            return 0.0
        return math.ceil(-left / total * 100 - 1e-9) / 100

    def give_back(self) -> Rung | None:
        """Take back our own memory step before a context becomes shorter, and then make it no shorter than needed."""
        now, own = self.setting.utilization, _written(self.situation)
        needed, available = _number(self.values.get("kv_needed_gib")), _number(self.values.get("kv_available_gib"))
        total, step = self._total(), self._missing()
        if now is None or own is None or not needed or available is None or step is None or not total:
            return None
        own = min(math.floor(own * 100 + 1e-9) / 100, self.ceiling())
        if own <= now or self.window.between(own, ceiling=self.ceiling()) != own:
            return None
        if needed - available <= (own - now) * total:
            return self.to(min(round(now + step, 2), own))
        before = self.setting.max_model_len or _whole(self.values.get("max_model_len"))
        share = (available + (own - now) * total) / needed
        # Two hundredths less: sizes in messages are rounded, and a cache is made of whole blocks.
        rung = self._length(before, int(share * 0.98 * before) if before is not None else None)
        return None if rung is None else self._at(own, rung)

    def _missing(self) -> float | None:
        """Return how much utilisation is missing for the cache, in hundredths; one more, as messages round."""
        needed, available = _number(self.values.get("kv_needed_gib")), _number(self.values.get("kv_available_gib"))
        total = self._total()
        if needed is None or available is None or not total:
            return None
        return math.ceil(max(needed - available, 0.0) / total * 100 - 1e-9) / 100 + 0.01

    def _total(self) -> float | None:
        """Return the memory that utilisations are fractions of, in GiB."""
        told, board = _number(self.values.get("total_gib")), self.situation.device.memory_total_bytes
        return told or (board / 2**30 if board else None)

    def to(self, wanted: float) -> Rung:
        """Go to the value nearest to the one wanted that is left; where none is, say so and make something smaller."""
        before = self.setting.utilization or 0.0
        value = self.window.between(wanted, ceiling=self.ceiling())
        low, high = self.window.low, self.window.high
        if value is None:
            ceiling = self.ceiling()
            above = high is None or high > ceiling
            empty = Finding.of("JSD938" if above else "JSD926", low=low, high=ceiling if above else high)
            nothing = Finding.of("JSD929", cause="does_not_fit")
            rung = self.shorter_at_best() or (self.smaller() if self.setting.speculates else self.stop(nothing))
            return evolve(rung, cause="does_not_fit", findings=(empty, *rung.findings))
        code = "JSD936" if low is None else "JSD937" if high is None else "JSD920"
        return Rung(
            action="utilization",
            set_flags={_UTILIZATION: f"{value:.2f}"},
            findings=(Finding.of(code, cause=self.found.cause, before=before, after=value, low=low, high=high),),
        )

    def ceiling(self) -> float:
        """Return the highest value the policy allows on this board."""
        policy, total = self.situation.policy, self.situation.device.memory_total_bytes
        free = 1.0 if not total else math.floor((1 - policy.min_free_bytes / total) * 100 + 1e-9) / 100
        return min(policy.ceiling_utilization, free)

    # --- limits -------------------------------------------------------------------------------------------------------

    def shorter(self) -> Rung | None:
        """Serve a shorter context: what the message says would fit, else half."""
        before = self.setting.max_model_len or _whole(self.values.get("max_model_len"))
        fits = _whole(self.values.get("feasible_max_model_len"))
        return self._length(before, fits if fits is not None else (before // 2 if before is not None else None))

    def _at(self, value: float, rung: Rung) -> Rung:
        """Return a rung with a utilisation that goes with it."""
        now = self.setting.utilization or 0.0
        code = "JSD937" if value > now else "JSD936"
        said = Finding.of(code, cause=self.found.cause, before=now, after=value, low=now, high=now)
        flags = {_UTILIZATION: f"{value:.2f}", **rung.set_flags}
        return evolve(rung, set_flags=flags, findings=(said, *rung.findings))

    def _length(self, before: int | None, after: int | None) -> Rung | None:
        if after is None or after < SHORTEST_CONTEXT or (before is not None and after >= before):
            return None
        return Rung(
            action="max_model_len",
            set_flags={"max-model-len": str(after)},
            findings=(Finding.of("JSD921", cause=self.found.cause, before=before, after=after),),
        )

    def shorter_at_best(self) -> Rung | None:
        """Serve the context that fits at the highest value that was not too much, where the context was too long."""
        known = lows(self.history, self.setting)
        best = max(known, key=lambda one: one.setting.utilization or 0.0, default=None)
        if best is None or best.diagnosis.cause != "kv_cache_too_small":
            return None
        there = _Climber(self.situation, (best,)).shorter()
        if there is None or best.setting.utilization == self.setting.utilization:
            return there
        return self._at(best.setting.utilization or 0.0, there)

    def fewer(self) -> Rung | None:
        """Serve fewer sequences at once: what a board serves where many were asked for, else half as many.

        Few of them are not what is too much: where one step did not help, None.
        """
        before = self.setting.max_num_seqs or _whole(self.values.get("num_seqs")) or _DEFAULT_SEQS
        stepped = any(one.setting.max_num_seqs != self.setting.max_num_seqs for one in self.history)
        if before < 2 or (before <= FEW_SEQS and stepped):
            return None
        after = 2 * FEW_SEQS if before > 4 * FEW_SEQS else before // 2
        return Rung(
            action="max_num_seqs",
            set_flags={"max-num-seqs": str(after)},
            findings=(Finding.of("JSD922", cause=self.found.cause, before=before, after=after),),
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
        memory, cause = about_memory(self.found), self.found.cause
        if memory:
            steps = _once((hand_off(self.situation), *self._beside()))
            why = Finding.of("JSD924", cause=cause)
        else:
            steps, why = self.found.next_steps, Finding.of("JSD930", cause=cause, remedy=self.found.remedy)
        return Rung(action="drop_speculation", findings=(why,), next_steps=steps)

    def stop(self, why: Finding) -> Rung:
        """End the ladder."""
        steps = [*self.found.next_steps]
        if about_memory(self.found) and self.found.remedy != "retry":
            steps += [hand_off(self.situation), *self._beside()]
        return Rung(action="stop", findings=(why,), next_steps=_once(steps))

    def _beside(self) -> tuple[Step, ...]:
        """Return what earlier starts said is to be done outside the recipe; it stays true."""
        told = [one.diagnosis for one in self.history if one.diagnosis.remedy in _HELD_BY_OTHERS]
        return _once(step for found in told for step in found.next_steps[:1])


def _once(steps: Iterable[Step]) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        if step not in found:
            found.append(step)
    return tuple(found)


def _written(situation: Situation) -> float | None:
    """Return the utilisation that the recipe itself serves with, its release's default included."""
    from jetson_specdec.planning.memory_step import default_of

    reading = situation.flags.utilization
    if reading.state == "absent":
        return default_of(situation)[0]
    return None if reading.value is None else float(reading.value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
