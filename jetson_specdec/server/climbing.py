# SPDX-License-Identifier: Apache-2.0
"""Climbing down the ladder: start, and after each failure make and try the plan of the next rung."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, field

from jetson_specdec.errors import StartFailed, UneditableError
from jetson_specdec.findings import Finding, Step
from jetson_specdec.planning.decide import decide
from jetson_specdec.planning.plan import FileChange, Plan, UtilizationChange
from jetson_specdec.planning.steps import hand_off
from jetson_specdec.server.ladder import next_rung
from jetson_specdec.server.rungs import Rung, Setting, Tried, about_memory, window_of
from jetson_specdec.strategies import Attempt, NoSpec, Strategy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.server.core import Started
    from jetson_specdec.strategies import Situation

__all__ = ["LadderResult", "Try", "climb", "plan_for", "setting_of"]

LadderOutcome = Literal["started", "started_without", "stopped"]


@frozen(kw_only=True)
class Try:
    """One start of the ladder.

    Attributes:
        number: counted from 1.
        plan: what was tried.
        setting: the values that matter for memory.
        rung: the step that led here; None for the first one.
        started: when it came up.
        diagnosis: when it did not.
        log_path: its log, where known.
    """

    number: int
    plan: Plan
    setting: Setting
    rung: Rung | None = None
    started: Started | None = None
    diagnosis: Diagnosis | None = None
    log_path: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; the plan's secrets masked."""
        import attrs

        return {
            "number": self.number,
            "action": self.rung.action if self.rung is not None else "first",
            "reasons": [finding.to_json() for finding in self.rung.findings] if self.rung is not None else [],
            "setting": attrs.asdict(self.setting),
            "started": self.started is not None,
            "diagnosis": self.diagnosis.to_json() if self.diagnosis is not None else None,
            "log_path": self.log_path,
            "plan": self.plan.to_json(),
        }


@frozen(kw_only=True)
class LadderResult:
    """Where the ladder ended.

    Attributes:
        outcome: `started` with speculation, `started_without`, or `stopped`.
        plan: the plan that runs, or would without speculation; None where it stopped.
        started: the server that runs; None where it stopped, or was known to start without speculation.
        tries: every start, in order.
        cause: why speculation does not start: `does_not_fit` where no utilisation was left, else as the last start that
            failed; None where it started.
        findings: why each rung was taken, and why it ended.
        next_steps: what a person has to do.
    """

    outcome: LadderOutcome
    plan: Plan | None = None
    started: Started | None = None
    tries: tuple[Try, ...] = ()
    cause: str | None = None
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = field(factory=tuple)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "outcome": self.outcome,
            "cause": self.cause,
            "tries": [one.to_json() for one in self.tries],
            "findings": [finding.to_json() for finding in self.findings],
            "next_steps": [step.to_json() for step in self.next_steps],
        }


def climb(
    situation: Situation,
    start: Callable[[Plan], Started],
    *,
    plan: Plan | None = None,
    strategies: Sequence[Strategy] | None = None,
    record: Callable[[Try], None] | None = None,
    starts_without: bool = False,
) -> LadderResult:
    """Start a plan; after each failure try the next rung, until one runs or nothing is left.

    No plan is started twice, but once more for what can pass by itself.

    Args:
        situation: what is planned for; its policy bounds the tries (`ladder_tries`).
        start: starts a plan; raises `StartFailed` with a diagnosis where it does not come up.
        plan: the first one; decided from the situation by default.
        strategies: what may be proposed.
        record: gets each try as soon as it is over, so that it can be saved.
        starts_without: whether the recipe without speculation is known to start; then it is not started once more.

    Raises:
        Whatever `start` raises but `StartFailed`.
    """
    plan = plan if plan is not None else decide(situation, strategies=strategies)
    tries: list[Try] = []
    history: list[Tried] = []
    findings: list[Finding] = []
    rung: Rung | None = None
    steps: tuple[Step, ...] = ()
    cause: str | None = None
    while True:
        setting = setting_of(plan, situation)
        one = Try(number=len(tries) + 1, plan=plan, setting=setting, rung=rung)
        try:
            started = start(plan)
        except StartFailed as error:
            one = evolve(one, diagnosis=error.diagnosis, log_path=error.log_path)
        else:
            one = evolve(one, started=started, log_path=started.log_path)
        tries.append(one)
        if record is not None:
            record(one)
        if one.started is not None:
            outcome: LadderOutcome = "started" if setting.speculates else "started_without"
            return LadderResult(
                outcome=outcome,
                plan=plan,
                started=one.started,
                tries=tuple(tries),
                cause=None if outcome == "started" else cause,
                findings=tuple(findings),
                next_steps=steps,
            )
        assert one.diagnosis is not None
        history.append(Tried(setting=_with_logged(setting, one.diagnosis), diagnosis=one.diagnosis))
        rung = next_rung(situation, history)
        plan, rung = plan_for(rung, situation, plan, history, strategies)
        if setting.speculates:
            cause = rung.cause or one.diagnosis.cause
        findings += rung.findings
        steps = rung.next_steps
        known = starts_without and rung.action == "drop_speculation"
        if rung.action == "stop" or known:
            return LadderResult(
                outcome="started_without" if known else "stopped",
                plan=plan if known else None,
                tries=tuple(tries),
                cause=cause if setting.speculates else rung.cause or one.diagnosis.cause,
                findings=tuple(findings),
                next_steps=steps,
            )


def _with_logged(setting: Setting, diagnosis: Diagnosis) -> Setting:
    """Fill in what the recipe does not tell from what the engine said was in force."""
    asked = diagnosis.values.get("requested_utilization")
    length = diagnosis.values.get("max_model_len")
    if setting.utilization is None and isinstance(asked, float):
        setting = evolve(setting, utilization=asked)
    if setting.max_model_len is None and isinstance(length, int):
        setting = evolve(setting, max_model_len=length)
    return setting


def setting_of(plan: Plan, situation: Situation) -> Setting:
    """Return what a plan starts with."""
    flags = _flags(plan, situation)[2]
    config = plan.speculative_config or {}
    value = plan.utilization.after if plan.utilization.after is not None else plan.utilization.default
    outcome = plan.outcome if config else "none"
    k = config.get("num_speculative_tokens")
    model = config.get("model")
    return Setting(
        strategy=outcome,
        model=model if isinstance(model, str) else None,
        k=k if isinstance(k, int) else None,
        utilization=value,
        max_model_len=flags.max_model_len,
        max_num_seqs=flags.max_num_seqs,
    )


def plan_for(
    rung: Rung,
    situation: Situation,
    plan: Plan,
    history: Sequence[Tried],
    strategies: Sequence[Strategy] | None = None,
) -> tuple[Plan, Rung]:
    """Return the plan of a rung, and the rung as it turned out (no other draft: without; not editable: stop)."""
    if rung.action in ("stop", "retry"):
        return plan, rung
    try:
        if rung.action == "other_draft":
            return _other_draft(rung, situation, plan, history, strategies)
        if rung.action == "drop_speculation":
            return _without(situation, plan), rung
        return _adjusted(rung, situation, plan), rung
    except UneditableError as error:
        reason = Finding.of("JSD931", reason=str(error))
        return plan, Rung(action="stop", findings=(*rung.findings, reason), next_steps=rung.next_steps)


def _other_draft(
    rung: Rung, situation: Situation, plan: Plan, history: Sequence[Tried], strategies: Sequence[Strategy] | None
) -> tuple[Plan, Rung]:
    failed = history[-1]
    memory = about_memory(failed.diagnosis)
    attempts = tuple(
        Attempt(
            strategy=one.setting.strategy,
            model=one.setting.model,
            cause=one.diagnosis.cause,
            utilization=one.setting.utilization,
        )
        for one in history
        if one.setting.speculates
    )
    narrowed = evolve(situation, attempts=(*situation.attempts, *attempts))
    if memory:
        limit = _bytes_of(situation, failed.setting.model)
        narrowed = evolve(
            narrowed,
            heads=tuple(head for head in situation.heads if _below(head.resident_bytes or head.download_bytes, limit)),
            pairs=tuple(pair for pair in situation.pairs if _below(pair.download_bytes, limit)),
        )
    other = decide(narrowed, strategies=strategies)
    cause = failed.diagnosis.cause
    model = (other.speculative_config or {}).get("model")
    fitting = _within(other, situation, history) if other.speculative_config is not None else None
    if fitting is None or model in {one.setting.model for one in history}:
        code = "JSD924" if memory else "JSD930"
        reason = Finding.of(code, cause=cause, remedy=failed.diagnosis.remedy)
        steps = (hand_off(situation),) if memory else failed.diagnosis.next_steps
        dropped = evolve(rung, action="drop_speculation", findings=(*rung.findings, reason), next_steps=steps)
        return _without(situation, plan), dropped
    said = Finding.of("JSD925", cause=cause, before=failed.setting.model, after=model)
    return fitting, evolve(rung, findings=(*rung.findings, said))


def _within(plan: Plan, situation: Situation, history: Sequence[Tried]) -> Plan | None:
    """Return a plan with a utilisation for which the memory was free at the earlier starts; None where none is left."""
    setting = setting_of(plan, situation)
    window, now = window_of(history, setting), setting.utilization
    if now is None or window.high is None or now < window.high - 1e-9:
        return plan
    value = window.between(now, ceiling=now)
    if value is None:
        return None
    flags = {"gpu-memory-utilization": f"{value:.2f}"}
    return _adjusted(Rung(action="utilization", set_flags=flags), situation, plan)


def _bytes_of(situation: Situation, model: str | None) -> int | None:
    for head in situation.heads:
        if head.id == model:
            return head.resident_bytes or head.download_bytes
    return next((pair.download_bytes for pair in situation.pairs if pair.draft == model), None)


def _below(size: int | None, limit: int | None) -> bool:
    """Whether a drafter is known to be smaller; one of unknown size is not."""
    return size is not None and limit is not None and size < limit


def _flags(plan: Plan, situation: Situation) -> tuple[Any, Any, ServeFlags]:
    """Read a plan's text: the recipe, the command, its flags."""
    from jetson_specdec.recipe.config_file import read_again
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.load import load_recipe

    recipe = load_recipe(plan.recipe.path or "-", text=plan.recipe.after)
    command = recipe.commands[plan.command_index]
    config = situation.flags.config
    if config is not None:
        config = read_again(config, command, {file.path: file.after for file in plan.files if file.path is not None})
    return recipe, command, ServeFlags.read(command, situation.release, config)


def _adjusted(rung: Rung, situation: Situation, plan: Plan) -> Plan:
    """Change flags or k in a plan's own text.

    Raises:
        UneditableError: the text does not allow it.
    """
    from jetson_specdec.recipe.edits import plan_edit

    recipe, command, flags = _flags(plan, situation)
    config = dict(plan.speculative_config) if plan.speculative_config is not None else None
    if config is not None and rung.k is not None:
        config["num_speculative_tokens"] = rung.k
    edit = plan_edit(
        recipe,
        command,
        flags,
        set_flags=rung.set_flags,
        speculative_config=config if rung.k is not None else None,
    )
    value = rung.set_flags.get("gpu-memory-utilization")
    utilization = plan.utilization if value is None else evolve(plan.utilization, after=float(value))
    files = plan.files
    for change in edit.files:
        earlier = next((one.before for one in files if one.path == change.path), change.before)
        secrets = plan.recipe.secrets
        files = (
            *(one for one in files if one.path != change.path),
            FileChange(path=change.path, before=earlier, after=change.after, secrets=secrets),
        )
    return evolve(
        plan,
        recipe=evolve(plan.recipe, after=edit.text_after),
        files=files,
        serve_args=edit.serve_args_after,
        added_args=(*plan.added_args, *edit.added_args),
        speculative_config=config,
        utilization=utilization,
        memory=None,  # the ledger was made for other values
        findings=(*plan.findings, *rung.findings),
    )


def _without(situation: Situation, plan: Plan) -> Plan:
    """Return the recipe without speculation, whether it was added by a plan or stood there before.

    Raises:
        UneditableError: what stands there cannot be taken out safely.
    """
    if not situation.speculation.active:
        return decide(situation, strategies=[NoSpec()])
    from jetson_specdec.recipe.edits import plan_edit

    edit = plan_edit(
        situation.recipe,
        situation.command,
        situation.flags,
        speculation=situation.speculation,
        remove_speculation=True,
    )
    value = situation.flags.gpu_memory_utilization
    return evolve(
        plan,
        outcome="none",
        recipe=evolve(plan.recipe, before=situation.recipe.text, after=edit.text_after),
        files=tuple(FileChange(path=one.path, before=one.before, after=one.after) for one in edit.files),
        serve_args=edit.serve_args_after,
        added_args=(),
        speculative_config=None,
        utilization=UtilizationChange(before=value, after=value, default=plan.utilization.default),
        memory=None,
        downloads=(),
    )
