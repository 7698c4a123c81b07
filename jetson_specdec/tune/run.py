# SPDX-License-Identifier: Apache-2.0
"""`tune`: prove it on this board, in one go, and leave the board as it was."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import DeclinedError, InTheWayError, OptionError, ReportError, ServerError
from jetson_specdec.findings import Finding
from jetson_specdec.planner import Planner
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.arms import Arms, belongs, draft_visible, flags_of, result_path
from jetson_specdec.tune.blocks import Tools
from jetson_specdec.tune.core import Offer, TuneResult, TuneSettings
from jetson_specdec.tune.downtime import downtime
from jetson_specdec.tune.drafters import agreed_drafters
from jetson_specdec.tune.evidence import Evidence
from jetson_specdec.tune.session import Session

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.estimate.speed_span import Span
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Occupant, Server
    from jetson_specdec.strategies import Situation

__all__ = ["Tools", "tune"]

_LOADS_S = 30.0
"""Within this many seconds a server that was started again is at least a process to be seen."""
Tell = Callable[[str, Mapping[str, Any]], None]


def tune(
    recipe: str | Path,
    *,
    settings: TuneSettings | None = None,
    policy: Policy = DEFAULT_POLICY,
    device: Device | str | None = None,
    l4t: str | None = None,
    command: int | None = None,
    target: str | None = None,
    head: str | None = None,
    draft: str | None = None,
    vllm_version: str | None = None,
    catalog: Catalog | None = None,
    evidence: str | Path | None = None,
    resume: str | Path | None = None,
    agree: Callable[[Offer], bool] | None = None,
    tell: Tell | None = None,
    tools: Tools | None = None,
) -> TuneResult:
    """Prove whether speculation helps a recipe on this board, and find its k.

    The recipe's file is never written. What was running before runs again afterwards, whatever happens; after a kill -9
    `restore` does it.

    Args:
        recipe: path of the recipe.
        settings: what to measure and how; of a resumed tune its own, but for the time limit.
        policy: thresholds.
        device: as in `Planner.plan`, like the next six.
        l4t: release of a named module.
        command: which serve command.
        target: model that is served.
        head: EAGLE-3 head to use.
        draft: draft model to use.
        vllm_version: release, where the recipe does not tell.
        catalog: heads and drafts.
        evidence: folder of the evidence; one beside the recipe by default.
        resume: folder of a tune that did not end; goes on from there.
        agree: asked before anything is touched; None agrees.
        tell: gets the events as they happen: a step kind and its values.
        tools: what it acts through.

    Raises:
        InputError: recipe, options or evidence cannot be used.
        ServerError: another tune is at work (JSE935), or what an earlier one took down cannot be brought back (JSE922).
        DeclinedError: not agreed to.
        InTheWayError: a server that is not this recipe's is in the way.
        OutputError: the evidence could not be written; the old server is back.
    """
    tools = tools or Tools()
    path = Path(recipe)
    if str(recipe) == "-" or not path.is_file():
        raise (
            OptionError("JSE954")
            if str(recipe) == "-"
            else OptionError("JSE005", path=str(recipe), reason="no such file")
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    saved = _resumed(resume, digest, path)
    settings = _settings(settings, saved)
    wishes: dict[str, Any] = {
        "command": command,
        "target": target,
        "head": head,
        "draft": draft,
        "vllm_version": vllm_version,
        "l4t": l4t,
    }
    if saved is not None:
        wishes = {**saved[1]["wishes"], **{name: value for name, value in wishes.items() if value is not None}}
    planner = Planner(policy=policy, catalog=catalog, host=tools.host)
    situation = planner.situation(path, device=device, **wishes)
    plan = planner.decide(situation)
    if plan.outcome in ("refuse", "none"):
        return _nothing(plan, path)
    from jetson_specdec.apply.workflow import prepare

    prepared = prepare(plan, tools.host, catalog=planner.catalog)
    plan = prepared.plan
    settings = _within(settings, situation)
    narrowed, fallbacks = agreed_drafters(evolve(situation, policy=policy), plan)
    arms = evolve(_arms(situation, plan, policy), situation=narrowed)
    unseen = draft_visible(prepared, situation, tools.host)
    if any(finding.severity == "blocking" for finding in unseen):
        return _nothing(plan, path, outcome="not_started", more=unseen)
    folder = Path(resume) if resume is not None else Path(evidence) if evidence is not None else _folder(path)
    if settings.leave == "result":
        _can_stay(tools, settings, arms, plan.command_index, path)
    from jetson_specdec.server.claim import claimed
    from jetson_specdec.server.state import default_state_dir

    states = Path(tools.state_dir) if tools.state_dir is not None else default_state_dir(tools.environ)
    with claimed(states, recipe=str(path.absolute()), evidence=str(folder.absolute())):
        notes = [*unseen, *fallbacks, *_tidied(tools, settings, arms, plan.command_index)]
        occupants = _in_the_way(tools, settings, arms, plan.command_index, situation)
        offer = Offer(
            plan=plan,
            disclosure=prepared.disclosure,
            downtime=downtime(settings, tpot=_tpot(plan), policy=policy),
            occupants=occupants,
            evidence=str(folder),
            findings=(*notes, *(Finding.of("JSD963", who=each.shown) for each in occupants)),
        )
        if agree is not None and not agree(offer):
            raise DeclinedError("JSE957")
        session = Session(
            evidence=saved[0] if saved is not None else Evidence.create(folder),
            recipe=path,
            digest=digest,
            arms=arms,
            settings=settings,
            policy=policy,
            wishes=wishes,
            tools=tools,
            tell=tell or (lambda kind, values: None),
            occupants=occupants,
        )
        if saved is not None:
            session.load(saved[1])
        return session.run()


def _tidied(tools: Tools, settings: TuneSettings, arms: Arms, index: int) -> list[Finding]:
    """Put right what a killed tune left behind; what it took down is taken down again by this one.

    Raises:
        ServerError: something could not be brought back (JSE922).
    """
    from jetson_specdec.server import restore
    from jetson_specdec.server.commands import Commands
    from jetson_specdec.tune.putback import findings_of

    done = restore(tools.state_dir, runner=Commands(tools.environ))
    for each in done:
        for name, reason in each.failed:
            raise ServerError("JSE922", name=name, said=reason)
    if any(each.brought_back for each in done):
        _await(tools, settings, arms, index)
    return list(findings_of(done))


def _can_stay(tools: Tools, settings: TuneSettings, arms: Arms, index: int, path: Path) -> None:
    """Find out whether the new recipe could be left running, before anything is touched.

    Raises:
        OptionError: it takes more than starting it (JSE962, JSE963).
    """
    plan = arms.on(None)
    for change in plan.files:
        if change.changed:
            raise OptionError("JSE963", path=change.path or str(path))
    server = _probe(tools, settings, plan, index)
    if server.left_running(str(result_path(path, plan.recipe.after))) is None:
        raise OptionError("JSE962", path=str(path))


def _resumed(folder: str | Path | None, digest: str, recipe: Path) -> tuple[Evidence, dict[str, Any]] | None:
    if folder is None:
        return None
    evidence = Evidence(folder)
    if evidence.blank:
        return None  # killed before anything was measured: it starts over in the same folder
    state = evidence.state()
    if state["recipe_sha256"] != digest:
        raise OptionError("JSE951", path=str(recipe))
    if state["status"] == "done":
        raise ReportError("JSE950", path=str(folder), reason="it is over; start a new one")
    if state["status"] == "running" and _alive(state):
        raise ReportError("JSE960", path=str(folder), pid=state["pid"])
    evidence.sweep()
    damaged = evidence.damaged()
    if damaged:
        raise ReportError("JSE952", path=str(evidence.folder / damaged[0]))
    return evidence, state


def _alive(state: Mapping[str, Any]) -> bool:
    from jetson_specdec.server.state import start_ticks

    ticks = start_ticks(state["pid"])
    return ticks is not None and ticks == state["pid_started"] and state["pid"] != os.getpid()


def _settings(asked: TuneSettings | None, saved: tuple[Evidence, dict[str, Any]] | None) -> TuneSettings:
    if saved is None:
        return asked or TuneSettings()
    settings = TuneSettings.from_json(saved[1]["settings"])
    return settings if asked is None else evolve(settings, max_time_s=asked.max_time_s)


def _within(settings: TuneSettings, situation: Situation) -> TuneSettings:
    """Leave out what the server does not take at once."""
    capacity = situation.flags.max_num_seqs
    if capacity is None:
        return settings
    return evolve(settings, concurrency=tuple(each for each in settings.concurrency if each <= capacity))


def _arms(situation: Situation, plan: Plan, policy: Policy) -> Arms:
    config = dict(plan.speculative_config or situation.speculation.config or {})
    if not isinstance(config.get("num_speculative_tokens"), int):
        thor = situation.device.family == "thor"
        config["num_speculative_tokens"] = policy.start_k_thor if thor else policy.start_k_agx_orin
    # With the owner's own schedule k would not be what is asked for; where one is needed, it is made from measurements.
    config.pop("num_speculative_tokens_per_batch_size", None)
    return Arms(situation=situation, plan=plan, config=config, flags=flags_of(plan))


def _in_the_way(
    tools: Tools, settings: TuneSettings, arms: Arms, index: int, situation: Situation
) -> tuple[Occupant, ...]:
    """Return who has to make room.

    Raises:
        InTheWayError: somebody who is not this recipe's server, and it was not said to replace them (JSE956); or who
            could not be brought back afterwards (JSE923).
    """
    from jetson_specdec.server.occupants import obstacle

    server = _probe(tools, settings, arms.off(), index)
    occupants = server.in_the_way()
    strangers = [each for each in occupants if not belongs(each, situation)]
    if strangers and not settings.replace:
        who = [each.shown for each in strangers]
        raise InTheWayError("JSE956", occupants=occupants, who=who, port=server.address.port)
    for each in occupants:
        if (reason := obstacle(each)) is not None:
            raise InTheWayError("JSE923", occupants=occupants, name=each.name, reason=reason)
    return occupants


def _probe(tools: Tools, settings: TuneSettings, plan: Plan, index: int) -> Server:
    """Return a server that is asked about its start and not started."""
    return tools.server(
        plan,
        index,
        host=tools.host,
        environ=tools.environ,
        state_dir=tools.state_dir,
        allow_sudo=settings.allow_sudo,
    )


def _await(tools: Tools, settings: TuneSettings, arms: Arms, index: int) -> None:
    """Wait until a server that was just brought back is there to be seen: while it loads it holds no port."""
    from jetson_specdec.server.others import other_servers

    server = _probe(tools, settings, arms.off(), index)
    began = tools.clock()
    while not any(each.running for each in server.in_the_way()):
        waited = tools.clock() - began
        if waited >= settings.start_timeout_s or (waited > _LOADS_S and not other_servers(server.run_id)):
            return  # it does not come: there is nothing to wait for
        tools.sleep(0.25)


def _tpot(plan: Plan) -> Span | None:
    speed = plan.speed
    return None if speed is None else speed.cost.plain


def _folder(recipe: Path) -> Path:
    stamp = time.strftime("%Y%m%dT%H%M%S")
    for number in range(100):
        folder = recipe.with_name(f"{recipe.name}.specdec-tune-{stamp}" + (f"-{number}" if number else ""))
        if not folder.exists():
            return folder
    return folder


def _nothing(plan: Plan, recipe: Path, *, outcome: str | None = None, more: tuple[Finding, ...] = ()) -> TuneResult:
    return TuneResult(
        outcome=outcome or plan.outcome,
        reason="plan",
        recipe=str(recipe),
        findings=(*more, *plan.findings),
        next_steps=plan.next_steps,
    )
