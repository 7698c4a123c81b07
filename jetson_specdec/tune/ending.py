# SPDX-License-Identifier: Apache-2.0
"""How a tune ends: the result and its recipe, and the server as the owner wants it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_specdec.files import write_atomic
from jetson_specdec.findings import Finding, Step
from jetson_specdec.tune.arms import result_path
from jetson_specdec.tune.core import TuneResult
from jetson_specdec.tune.putback import resume_step
from jetson_specdec.tune.schedule import Finish, settled, usable_pairs

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Occupant, Server
    from jetson_specdec.tune.following import NothingToProve
    from jetson_specdec.tune.session import Session
    from jetson_specdec.tune.starting import NotStarted

__all__ = ["finish", "interrupted", "not_started", "nothing", "put_back"]

SPECULATES = ("enable", "enable_limited")
ACTS = (*SPECULATES, "marginal", "disable")


def finish(session: Session, end: Finish) -> TuneResult:
    """Return the result of a tune that came to its end; writes verdict and recipe.

    Raises:
        OutputError: they could not be written.
    """
    verdict = _reported(session, end)
    pairs = len(usable_pairs(session.reported))
    outcome = "incomplete" if verdict is None else verdict.outcome
    if end.reason == "spoilt" and session.reported.variant == session.progress.variant:
        outcome = "invalid"
    few = (
        verdict is not None
        and outcome in ACTS
        and not settled(verdict, pairs, session.policy, variant=session.reported.variant)
    )
    if few:
        # The figures may look well already; too few pairs are nothing to act on.
        outcome = "inconclusive"
    step = session.progress.step(session.policy)
    k = step.k if step is not None and session.progress.blocks and step.action == "done" else None
    found = [*session.findings]
    if step is not None and step.action == "done":
        launches = _searches(session)
        found += [
            Finding.of("JSD961", k=k, speedup=step.speedup, regret=step.regret, launches=launches),
            *step.findings,
        ]
        found += [Finding.of("JSD973")] if step.loses else []
    if end.reason == "time":
        limit = session.settings.max_time_s or 0.0
        values: dict[str, Any] = {
            "elapsed": session.elapsed / 60,
            "limit": limit / 60,
            "needed": (end.needed_s or 0.0) / 60,
        }
        found.append(Finding.of("JSD964", **values))
    elif end.reason in ("pairs", "hopeless"):
        found.append(Finding.of("JSD971", pairs=pairs))
    elif end.reason == "spoilt":
        found.append(Finding.of("JSD972", pairs=len(session.progress.spoilt.get(session.progress.variant, ()))))
    if few:
        found.append(Finding.of("JSD990", pairs=pairs, needed=session.policy.min_pairs))
    if verdict is not None:
        session.evidence.write("verdict.json", verdict.to_json())
        found += verdict.findings
    plan = _chosen(session, outcome, k)
    written = _write(session, plan)
    config = plan.speculative_config
    return TuneResult(
        outcome=outcome,
        reason=end.reason,
        verdict=verdict,
        k=k,
        recipe=written or str(session.recipe),
        written=written,
        evidence=str(session.evidence.folder),
        speculative_config=config,
        search_launches=_searches(session),
        pairs=pairs,
        findings=tuple(found),
        next_steps=_steps(session, outcome, end, written),
    )


def _reported(session: Session, end: Finish) -> Verdict | None:
    """Return the verdict that counts: a batch schedule that could not be settled leaves the one without it."""
    verdict = session.verdict()
    if not session.progress.variant:
        return verdict
    tried = len(usable_pairs(session.progress))
    without = session.verdict(0)
    if verdict is not None and end.reason != "spoilt" and settled(verdict, tried, session.policy, variant=1):
        if verdict.outcome != "enable":
            session.findings.append(Finding.of("JSD958", outcome=verdict.outcome))
        return verdict
    session.findings.append(Finding.of("JSD957", pairs=tried))
    session.judged_variant = 0
    if end.reason != "time":  # else it can be resumed
        session.forget_schedule()
    return without


def _searches(session: Session) -> int:
    return sum(1 for block in session.progress.blocks if block.role == "search")


def _chosen(session: Session, outcome: str, k: int | None) -> Plan:
    """Return the plan of what should serve from now on."""
    if outcome in SPECULATES:
        if session.reported.variant:
            return session.arms.on(None, session.schedule, pinned=False)
        return session.arms.on(k, pinned=False)
    if outcome in ("disable", "marginal"):
        return session.arms.result_off()
    plan = session.arms.plan
    from attrs import evolve

    unchanged = evolve(plan.recipe, before=session.arms.situation.recipe.text, after=session.arms.situation.recipe.text)
    config = plan.speculative_config if plan.outcome == "already" else None
    return evolve(plan, recipe=unchanged, files=(), speculative_config=config)


def _write(session: Session, plan: Plan) -> str | None:
    """Write the recipe beside the old one (other files it needs into the evidence), or nothing where none changes."""
    for number, change in enumerate(plan.files):
        if change.changed:
            session.evidence.write(f"plans/result-file-{number}{Path(change.path or '').suffix}", change.after)
    if not plan.recipe.changed:
        return None
    path = result_path(session.recipe, plan.recipe.after)
    if not path.exists():
        try:
            mode: int | None = session.recipe.stat().st_mode & 0o777
        except OSError:
            mode = None  # its owner removed it meanwhile; what was measured is still handed over
        write_atomic(path, plan.recipe.after, mode=mode, overwrite=False)
    return str(path)


def _steps(session: Session, outcome: str, end: Finish, written: str | None) -> tuple[Step, ...]:
    folder, recipe = str(session.evidence.folder), str(session.recipe)
    steps = []
    if written is not None:
        kind = "tune-use" if outcome in SPECULATES else "tune-remove"
        steps.append(Step.of(kind, path=written))
    elif outcome not in SPECULATES:
        steps.append(Step.of("tune-stay", path=recipe))
    if outcome in SPECULATES:
        url = session.last_url or "http://127.0.0.1:8000"
        command = f"jetson-specdec watch {url} --reference {shlex.quote(folder)}"
        steps.append(Step.of("tune-watch", command=command))
    if end.reason == "time":
        steps.append(resume_step(recipe, folder))
    return tuple(steps)


def not_started(session: Session, error: NotStarted) -> TuneResult:
    """Return the result of a tune whose server could not be started."""
    return TuneResult(
        outcome="not_started",
        reason="start",
        recipe=str(session.recipe),
        evidence=str(session.evidence.folder),
        search_launches=_searches(session),
        findings=(*session.findings, *error.findings),
        next_steps=(*error.steps, *_afterwards(session, error)),
    )


def _afterwards(session: Session, error: NotStarted) -> tuple[Step, ...]:
    """Return what to do once the cause is out of the way, or that everything stays as it was."""
    recipe = str(session.recipe)
    if error.resumable:
        return (resume_step(recipe, str(session.evidence.folder)), Step.of("tune-stay", path=recipe))
    return (Step.of("tune-stay", path=recipe),)


def nothing(session: Session, error: NothingToProve) -> TuneResult:
    """Return the result of a tune whose baseline shows that speculation is not the answer."""
    return TuneResult(
        outcome="none",
        reason="plan",
        recipe=str(session.recipe),
        evidence=str(session.evidence.folder),
        findings=(*session.findings, *error.plan.findings),
        next_steps=error.plan.next_steps,
    )


def interrupted(session: Session) -> TuneResult:
    """Return the result of a tune that somebody ended; it can go on from where it stood."""
    recipe, folder = str(session.recipe), str(session.evidence.folder)
    return TuneResult(
        outcome="interrupted",
        reason="interrupted",
        recipe=recipe,
        evidence=folder,
        search_launches=_searches(session),
        pairs=len(usable_pairs(session.progress)),
        findings=tuple(session.findings),
        next_steps=(resume_step(recipe, folder),),
    )


def put_back(session: Session, result: TuneResult | None) -> tuple[Finding, ...]:
    """Leave the server as the owner wants it; never raises, whatever does not come back."""
    found: list[Finding] = []
    try:
        session.end_server()
    except Exception as error:  # nothing that goes wrong here may keep the old server down
        found.append(Finding.of("JSD975", name="the server under test", reason=str(error)))
    first = session.first
    if first is not None:
        session.say("tune-event-put-back", {})
        try:
            found += _leave(session, first, result)
        except Exception as error:
            values = getattr(error, "values", {})
            name = values.get("name") or next((each.name for each in session.occupants), "the old server")
            found.append(Finding.of("JSD975", name=name, reason=values.get("said") or str(error)))
    if result is None:
        # An error is on its way to whoever asked, and nothing else will be shown.
        for each in found:
            session.say(each.code, each.values)
    return tuple(found)


def _leave(session: Session, first: Server, result: TuneResult | None) -> list[Finding]:
    leave = session.settings.leave if result is not None and result.exit_code != 130 else "original"
    serving = _serving(session, first, result) if leave == "result" else None
    if leave == "result" and serving is None:
        leave = "original"
    waiting = [each for each in first.taken_down if each.kind == "container" and not each.vanishes]
    if leave == "stopped":
        first.leave(())
        return []
    names = first.put_back() if serving is None else first.leave((serving,))
    if not names:
        return []
    found = [Finding.of("JSD974", names=list(names))]
    if serving is not None:
        found += [
            Finding.of("JSD995", name=each.name, aside=each.rename or each.name, command=_off(session, each))
            for each in waiting
        ]
    return [*found, *_answers(session)]


def _serving(session: Session, first: Server, result: TuneResult | None) -> Occupant | None:
    """Return the new recipe as a server that stays; None where there is none or it is no faster."""
    if result is None or result.written is None or result.outcome not in SPECULATES:
        return None
    plan = _chosen(session, result.outcome, result.k)
    server = session.tools.server(
        plan,
        plan.command_index,
        host=session.tools.host,
        environ=session.tools.environ,
        state_dir=session.tools.state_dir,
        allow_sudo=session.settings.allow_sudo,
    )
    old = next((each for each in first.taken_down if each.kind == "process"), None)
    return server.left_running(
        result.written,
        environ=old.environ if old is not None else None,
        output=old.output if old is not None else None,
    )


def _off(session: Session, waiting: Occupant) -> str:
    """Let a container that waits aside not start by itself with the machine; return what removes it."""
    from jetson_specdec.server.commands import Commands

    program, name = waiting.stop[0], waiting.rename or waiting.name
    Commands(session.tools.environ).run([program, "update", "--restart=no", name])
    return f"{program} rm {name}"


def _answers(session: Session) -> list[Finding]:
    """Say whether what was started again answers already; models take minutes to load."""
    from jetson_specdec.server.interrupts import waiting
    from jetson_specdec.server.ready import NotReady, probe

    first = session.first
    assert first is not None
    tools = session.tools
    until = tools.clock() + tools.back_wait_s
    while True:
        try:
            probe(first.address, timeout=2.0)
            return [Finding.of("JSD976", base_url=first.base_url)]
        except NotReady as error:
            if error.status in (401, 403):
                return [Finding.of("JSD976", base_url=first.base_url)]
        if tools.clock() >= until or waiting():  # it is started; only the looking can be cut short
            return [Finding.of("JSD977", base_url=first.base_url)]
        tools.sleep(0.25)
