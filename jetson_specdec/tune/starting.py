# SPDX-License-Identifier: Apache-2.0
"""Starting one arm: what may be taken down for it, what a failed start leads to, and who came in between."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import InTheWayError, StartFailed
from jetson_specdec.findings import Finding
from jetson_specdec.tune.arms import belongs
from jetson_specdec.tune.blocks import cool_down
from jetson_specdec.tune.failures import answers, may_pass
from jetson_specdec.tune.following import adopt

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Occupant, Started
    from jetson_specdec.server.climbing import Try
    from jetson_specdec.tune.schedule import Measure
    from jetson_specdec.tune.session import Session

__all__ = ["NotStarted", "note_log", "start", "up"]


class NotStarted(Exception):  # noqa: N818 - how a tune ends, not a mistake
    """An arm could not be started.

    Attributes:
        findings: why.
        steps: what to do.
        resumable: whether the tune can go on from there once that is done.
    """

    def __init__(self, findings: tuple[Finding, ...], steps: tuple[Any, ...] = (), *, resumable: bool = False) -> None:
        super().__init__()
        self.findings = findings
        self.steps = steps
        self.resumable = resumable


def start(session: Session, action: Measure) -> tuple[Started, Plan] | None:
    """Start an arm; None where a larger k, or a schedule, does not start, which is an answer too.

    Raises:
        NotStarted: it cannot be started.
    """
    schedule = session.schedule if action.variant else None
    plan = session.arms.off() if action.arm == "off" else session.arms.on(None if schedule else action.k, schedule)
    if action.arm == "on" and not session.proven:
        return _climb(session, plan)
    before = _started_before(session, action)
    for last in (False, True):
        try:
            return up(session, plan), plan
        except StartFailed as error:
            found = error.diagnosis
            tried = {"arm": action.arm, "k": action.k, "diagnosis": found.to_json(), "plan": plan.to_json()}
            keep_try(session, tried, error.log_path)
        if last or not may_pass(found, before=before):
            _given_up(session, action, found)
            return None
        # By then the memory of the start that failed has to be back.
        session.findings += cool_down(session.tools, session.policy, memory_before=session.memory)
    raise AssertionError("no try")


def _started_before(session: Session, action: Measure) -> bool:
    """Whether this, or more of it, has started in this tune."""
    return any(
        block.arm == action.arm and block.variant == action.variant and (block.k or 0) >= (action.k or 0)
        for block in session.progress.blocks
    )


def _given_up(session: Session, action: Measure, found: Diagnosis) -> None:
    """Take a start that failed for good for an answer, where it is one.

    Raises:
        NotStarted: it is none.
    """
    on, blocks = action.arm == "on", session.progress.blocks
    if on and answers(found) and not _started_before(session, action):
        if action.role == "search":
            ran = max(each.k for each in blocks if each.k)
            limit = largest_k(ran, action.k or ran, session.progress.max_k)
            session.progress = evolve(session.progress, max_k=limit)
            return
        if action.variant:
            # What was proved without a schedule stands.
            session.forget_schedule()
            session.findings.append(Finding.of("JSD939", cause=found.cause))
            return
    told = Finding.of("JSD970" if on else "JSD929", cause=found.cause)
    raise NotStarted((*found.findings, told), tuple(found.next_steps), resumable=bool(blocks))


def largest_k(ran: int, failed: int, before: int | None) -> int:
    """Return up to which k the search goes on once a k did not start: half-way at first, then not beyond what ran.

    Args:
        ran: largest k that ran.
        failed: the k that did not start.
        before: the limit so far, None before the first such start.
    """
    return max(math.isqrt(ran * failed), ran) if before is None else ran


def _climb(session: Session, plan: Plan) -> tuple[Started, Plan]:
    """Start speculation for the first time: each failure leads to the next rung of the ladder."""
    from jetson_specdec.server import climb
    from jetson_specdec.server.rungs import about_memory

    def record(tried: Try) -> None:
        if tried.started is None:
            keep_try(session, tried.to_json(), tried.log_path)

    situation = evolve(session.arms.situation, policy=session.policy)
    reached = climb(situation, lambda wanted: up(session, wanted), plan=plan, record=record, starts_without=True)
    if reached.outcome != "started" or reached.plan is None or reached.started is None:
        last = reached.tries[-1].diagnosis
        # What the engine does not take at all is over; what a person can do something about goes on from here.
        resumable = reached.outcome == "stopped" or (last is not None and about_memory(last))
        told = Finding.of("JSD970", cause=reached.cause)
        raise NotStarted((told, *reached.findings), reached.next_steps, resumable=resumable)
    if len(reached.tries) > 1:
        adopt(session, reached)
    session.proven = True
    return reached.started, reached.plan


def keep_try(session: Session, value: Mapping[str, Any], log_path: str | None) -> None:
    """Keep a failed start in the evidence."""
    session.evidence.write(f"plans/try-{session.launches:03d}.json", dict(value))
    note_log(session, log_path)


def note_log(session: Session, log_path: str | None) -> None:
    """Note the checksum of a log that nobody writes to any more."""
    if log_path is not None:
        session.evidence.note(f"logs/{Path(log_path).name}")


def up(session: Session, plan: Plan) -> Started:
    """Start a plan; the first start takes down who was agreed on, later ones nobody.

    Raises:
        StartFailed: it did not come up.
        NotStarted: somebody else came between two starts.
        InTheWayError: somebody else came before the first one.
    """
    tools, first = session.tools, session.first
    if first is not None and (again := first.returned()):
        # Ending it once more would be a fight with whatever starts it.
        raise NotStarted((Finding.of("JSD993", names=[each.name for each in again]),), resumable=True)
    session.launches += 1
    server = tools.server(
        plan,
        plan.command_index,
        host=tools.host,
        policy=session.policy,
        log_dir=session.evidence.folder / "logs",
        state_dir=tools.state_dir,
        environ=tools.environ,
        replace=(lambda occupant: _agreed(session, occupant)) if first is None else False,
        allow_sudo=session.settings.allow_sudo,
        start_timeout_s=session.settings.start_timeout_s,
        **tools.server_options,
    )
    session.serves(server)
    try:
        return server.start()
    except InTheWayError as error:
        if first is None:
            raise
        session.launches -= 1
        who = [each.shown for each in error.occupants]
        found = Finding.of("JSD992", who=who, port=server.address.port)
        raise NotStarted((found,), resumable=True) from None


def _agreed(session: Session, occupant: Occupant) -> bool:
    """Whether a server may be taken down: this recipe's own, one that was shown before, or anybody (`--replace`)."""
    if session.settings.replace or belongs(occupant, session.arms.situation):
        return True
    shown = [each for each in session.occupants if (each.kind, each.name) == (occupant.kind, occupant.name)]
    return any(occupant.kind != "process" or each.pid == occupant.pid for each in shown)
