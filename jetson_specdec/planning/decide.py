# SPDX-License-Identifier: Apache-2.0
"""The decision: one pure function from a situation to a plan.

Precedence: broken text → refuse; speculative already → `already`; board, runtime, ceiling → refuse; workload that
cannot gain → `none`; then the strategies by priority, a refusal passing to the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import UneditableError
from jetson_specdec.findings import Finding, Severity, blocking, most_severe_first
from jetson_specdec.planning import checks, notes, steps
from jetson_specdec.planning.memory_step import MemoryStep, choose
from jetson_specdec.planning.pairing import pair_findings
from jetson_specdec.planning.plan import CommandSummary, FileChange, Plan, UtilizationChange
from jetson_specdec.strategies import Proposal, Refusal, Situation, Strategy, default_strategies, ordered
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.edits import EditPlan

__all__ = ["decide"]


def decide(situation: Situation, *, strategies: Sequence[Strategy] | None = None) -> Plan:
    """Decide whether and how to add speculation.

    Pure: the same situation gives the same plan, today and years later.

    Args:
        situation: everything the decision rests on.
        strategies: what may be proposed; the built-in ones by default.

    Returns:
        The plan. Where nothing is to be changed its recipe is the one that was handed in, byte for byte.
    """
    asked = ordered(default_strategies() if strategies is None else strategies)
    draft = _Draft(situation)
    broken = checks.broken(situation)
    if situation.command.serve_form == "other" and situation.recipe.form != "python":
        return draft.unchanged("refuse", (*broken, *situation.device.findings), _reject_all(asked, broken))
    found = [*situation.device.findings, *checks.doubled_entrypoint(situation)]
    found += [*notes.about_target(situation), *notes.about_utilization(situation), *notes.about_flags(situation)]
    if blocking(broken):
        return draft.unchanged("refuse", (*broken, *_without_blocking(found)), _reject_all(asked, broken))
    found += broken
    if situation.command.blocked is not None:
        found += _without_blocking((situation.command.blocked,))
    board, runtime, ceiling = checks.board(situation), checks.runtime(situation), checks.ceiling(situation)
    workload = checks.workload(situation)
    if situation.speculation.active:
        warned = checks.as_warning((*board, *runtime, *ceiling, *workload))
        found += [*notes.about_existing(situation), *warned]
        if blocking(board):
            found.append(Finding.of("JSD501", method=situation.speculation.method))
        return draft.unchanged("already", _without_blocking(found), {})
    standing = (*board, *runtime, *ceiling)
    if blocking(standing):
        return draft.unchanged("refuse", (*found, *standing, *workload), _reject_all(asked, standing))
    found += standing
    if blocking(workload):
        reasons = checks.as_warning(workload)
        return draft.unchanged("none", (*found, *reasons), _reject_all(asked, workload, keep="none"))
    found += workload
    return _ask(situation, asked, draft, found)


def _ask(situation: Situation, asked: Sequence[Strategy], draft: _Draft, found: list[Finding]) -> Plan:
    rejected: dict[str, Finding] = {}
    too_big: MemoryStep | None = None
    for strategy in asked:
        answer = strategy.propose(situation)
        if isinstance(answer, Refusal):
            rejected[strategy.name] = answer.reason
            found += [answer.reason, *answer.findings]
            continue
        if answer.config is None:
            if too_big is not None:
                found.append(Finding.of("JSD523", hand_off="jetson-inference-mem-tune"))
                return draft.unchanged("refuse", found, rejected, memory=too_big)
            memory = choose(situation, None)
            return draft.unchanged(answer.strategy, (*found, *answer.findings, *memory.findings), rejected, memory)
        unfit = _unfit(situation, answer)
        if unfit is not None:
            rejected[strategy.name] = unfit
            found.append(checks.as_warning((unfit,))[0])
            continue
        answer = answer.with_findings(*pair_findings(situation, answer))
        memory = choose(situation, answer)
        if memory.fits is False:
            rejected[strategy.name] = memory.findings[0]
            found += memory.findings
            too_big = too_big or memory
            continue
        return draft.changed(answer, memory, found, rejected)
    return draft.unchanged("none", found, rejected)


def _unfit(situation: Situation, proposal: Proposal) -> Finding | None:
    """Return why this engine would not take a proposal's config, whoever proposed it."""
    from jetson_specdec.engine.speculative import method_support, validate_config

    config = dict(proposal.config or {})
    method = config.get("method")
    if isinstance(method, str):
        support = method_support(method, situation.release, situation.model_type)
        if support.state == "unsupported":
            return support.finding or Finding.of("JSD548", method=method, since=support.since)
    parallel = situation.flags.tensor_parallel_size or 1
    found = [
        *validate_config(config, situation.release, target_tensor_parallel_size=parallel),
        *pair_findings(situation, proposal),
    ]
    return next((finding for finding in found if finding.severity is Severity.BLOCKING), None)


@frozen
class _Draft:
    """Puts plans together; the one place that knows how a situation becomes the fields of a plan."""

    situation: Situation

    def unchanged(
        self,
        outcome: str,
        findings: Sequence[Finding],
        rejected: Mapping[str, Finding],
        memory: MemoryStep | None = None,
    ) -> Plan:
        situation = self.situation
        value = situation.flags.gpu_memory_utilization
        speculation = situation.speculation
        plan = self._plan(
            outcome,
            findings,
            rejected,
            serve_args=tuple(situation.flags.serve_args()),
            speculative_config=speculation.config if speculation.active else None,
            utilization=UtilizationChange(before=value, after=value, default=self._default()),
            recipe=self._text(situation.recipe.text),
            memory=None if memory is None else memory.ledger,
        )
        return evolve(plan, next_steps=steps.for_plan(plan, situation))

    def changed(
        self, proposal: Proposal, memory: MemoryStep, found: Sequence[Finding], rejected: Mapping[str, Finding]
    ) -> Plan:
        from jetson_specdec.recipe.edits import plan_edit

        situation = self.situation
        config = dict(proposal.config or {})
        before = situation.flags.gpu_memory_utilization
        findings = [*found, *proposal.findings, *memory.findings]
        if situation.config is not None and not situation.config.found:
            # What stands in that file is not known, speculation may be among it: nothing is added blindly.
            blind = checks.unread_config(situation.config, Severity.BLOCKING)
            return self.unchanged("refuse", [*found, blind], {**rejected, proposal.strategy: blind}, memory)
        offline = [each for each in proposal.downloads if situation.offline and each.cached is not True]
        findings += [Finding.of("JSD576", repo=each.repo) for each in offline]
        set_flags = {} if memory.value is None else {"gpu-memory-utilization": memory.value}
        try:
            edit: EditPlan = plan_edit(
                situation.recipe,
                situation.command,
                situation.flags,
                speculation=situation.speculation,
                set_flags=set_flags,
                speculative_config=config,
            )
        except UneditableError as error:
            typed = steps.typed_by_hand(config, set_flags, form=situation.recipe.form)
            # Some reasons say themselves what to type.
            code = "JSD579" if situation.recipe.form != "python" and error.values.get("type") else "JSD573"
            findings.append(Finding.of(code, reason=str(error), type_instead=typed))
            plan = self.unchanged("refuse", findings, {**rejected, proposal.strategy: findings[-1]}, memory)
            return evolve(plan, editable=False)
        plan = self._plan(
            proposal.strategy,
            (*findings, *edit.findings),
            rejected,
            serve_args=edit.serve_args_after,
            added_args=edit.added_args,
            speculative_config=config,
            utilization=UtilizationChange(
                before=before,
                after=before if memory.value is None else float(Decimal(memory.value)),
                default=self._default(),
            ),
            recipe=self._text(edit.text_after),
            files=tuple(
                FileChange(path=each.path, before=each.before, after=each.after, secrets=self._secrets())
                for each in edit.files
            ),
            memory=memory.ledger,
            downloads=proposal.downloads,
            basis=(situation, proposal),
        )
        return evolve(plan, next_steps=steps.for_plan(plan, situation))

    def _plan(self, outcome: str, findings: Sequence[Finding], rejected: Mapping[str, Finding], **values: Any) -> Plan:
        situation = self.situation
        return Plan(
            outcome=outcome,
            target=_target(situation),
            findings=_sorted(findings),
            rejected=dict(rejected),
            commands=_commands(situation),
            command_index=situation.command.index,
            device=situation.device,
            release=situation.release,
            serve_form=situation.command.serve_form,
            editable=situation.command.editable and not blocking(checks.broken(situation)),
            already_speculative=situation.speculation.active,
            existing_method=situation.speculation.method if situation.speculation.active else None,
            **values,
        )

    def _default(self) -> float | None:
        if self.situation.flags.utilization.state != "absent":
            return None
        from jetson_specdec.engine.release import default_utilization

        return default_utilization(self.situation.release)

    def _secrets(self) -> tuple[str, ...]:
        from jetson_specdec.recipe.secret_places import secrets_in

        return secrets_in(self.situation.recipe)

    def _text(self, after: str) -> FileChange:
        recipe = self.situation.recipe
        return FileChange(path=recipe.path, before=recipe.text, after=after, secrets=self._secrets())


def _target(situation: Situation) -> str | None:
    identity = situation.identity
    if identity.how == "speculators":
        return identity.base
    return identity.id or identity.base


def _commands(situation: Situation) -> tuple[CommandSummary, ...]:
    return tuple(
        CommandSummary(
            index=command.index,
            line=command.line,
            engine=command.engine,
            serve_form=command.serve_form,
            image=command.image or command.image_raw,
            target=_target(situation) if command.index == situation.command.index else None,
        )
        for command in situation.recipe.commands
    )


def _without_blocking(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    return checks.as_warning(tuple(findings))


def _reject_all(asked: Sequence[Strategy], findings: Sequence[Finding], keep: str | None = None) -> dict[str, Finding]:
    reason = next((finding for finding in findings if finding.severity is Severity.BLOCKING), None)
    if reason is None:
        return {}
    return {strategy.name: reason for strategy in asked if strategy.name not in ("none", keep)}


def _sorted(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Most severe first, in the order they were found, each once."""
    unique: list[Finding] = []
    for finding in findings:
        if finding not in unique:
            unique.append(finding)
    return most_severe_first(unique)
