# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec apply`: change a recipe in place, after a yes, with a way back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from jetson_specdec.cli.common import board, catalog_of, print_json, tell
from jetson_specdec.errors import ApplyError, DeclinedError, OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.apply.workflow import Prepared
    from jetson_specdec.findings import Finding, Step
    from jetson_specdec.host import Host
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.planner import Plan

REFUSED = 21


def apply(
    recipe: Annotated[Path, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    baseline: Path | None = None,
    no_baseline: Annotated[bool, Parameter(name="--no-baseline", negative="")] = False,
    pin: Literal["none", "drafter", "all"] = "drafter",
    online: bool = False,
    ask_image: bool = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative="")] = False,
    undo: bool = False,
    force: bool = False,
    device: str | None = None,
    l4t: str | None = None,
    command: int | None = None,
    target: str | None = None,
    head: str | None = None,
    draft: str | None = None,
    concurrency: int = 1,
    vllm_version: str | None = None,
    mem_tune: Path | None = None,
    audit: Path | None = None,
    policy: Path | None = None,
    catalog: list[Path] | None = None,
    recorded: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Change a recipe in place: shown first, asked for, with a backup, and undone with --undo.

    Parameters
    ----------
    recipe:
        File with the serve command.
    baseline:
        Benchmark of the recipe as it is; kept beside the backup.
    no_baseline:
        Switch speculation on without one.
    pin:
        What becomes a commit or digest: none, drafter (what is added), or all (target and image too).
    online:
        Ask hub and registry for commits, digests, sizes and licences that this machine does not know.
    ask_image:
        Start a container of the image, without network, to ask for its vLLM where its labels do not tell.
    yes:
        Do not ask.
    undo:
        Take the newest apply of this recipe back.
    force:
        Undo although a file was changed since; what stands there is kept in a copy.
    device:
        Plan for this module instead of this machine.
    l4t:
        L4T release of that module.
    command:
        Which serve command of the text, counted from 0, where it holds several.
    target:
        Model that is served (ORG/MODEL), where the recipe does not tell.
    head:
        EAGLE-3 head to use instead of the one that would be chosen.
    draft:
        Draft model to use.
    concurrency:
        How many requests at once you care about.
    vllm_version:
        vLLM release, where the recipe does not tell.
    mem_tune:
        JSON of jetson-inference-mem-tune.
    audit:
        JSON of jetson-memory-audit or jetson-diagnostic, as the board.
    policy:
        TOML file with other thresholds.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    recorded:
        Folder made by `detect --record`, read instead of this machine.
    json:
        Print as JSON; asks nothing, so nothing is written without --yes.
    """
    if undo:
        others = {"--baseline": baseline, "--no-baseline": no_baseline, "--head": head, "--draft": draft}
        given = next((name for name, value in others.items() if value), None)
        if given is not None:
            raise OptionError("JSE813", option=given)
        return _undo(recipe, force=force, yes=yes, json=json)
    if str(recipe) == "-":
        raise ApplyError("JSE800")
    if baseline is not None and no_baseline:
        raise OptionError("JSE802")
    from jetson_specdec.apply.transaction import check_standing
    from jetson_specdec.apply.workflow import check_baseline, enables, prepare, shared_files
    from jetson_specdec.extensions import load_policy
    from jetson_specdec.planner import Planner

    check_standing(recipe)
    host, found = board(device=device, l4t=l4t, audit=audit, recorded=recorded)
    entries = catalog_of(catalog)
    report = _report(baseline)
    version, said = _release(recipe, host, command, vllm_version, ask=ask_image)
    planner = Planner(policy=load_policy(policy), catalog=entries, host=host)
    plan = planner.plan(
        recipe,
        device=found,
        command=command,
        target=target,
        head=head,
        draft=draft,
        concurrency=concurrency,
        vllm_version=version,
        baseline=report,
        mem_tune=mem_tune,
    )
    if plan.outcome == "refuse":
        return _refused(plan, json=json)
    asked = None
    if online:
        from jetson_specdec.apply.online import HttpOnline

        asked = HttpOnline()
    prepared = prepare(plan, host, scope=pin, online=asked, catalog=entries)
    remarks = (*said, *check_baseline(prepared.plan, report, waived=no_baseline), *shared_files(prepared.plan))
    if not prepared.plan.changes:
        return _nothing(prepared, recipe, remarks, json=json)
    kept = baseline if enables(prepared.plan) else None
    return _go(prepared, recipe, host, remarks, baseline=kept, yes=yes, json=json)


def _go(
    prepared: Prepared,
    recipe: Path,
    host: Host,
    remarks: tuple[Finding, ...],
    *,
    baseline: Path | None,
    yes: bool,
    json: bool,
) -> int:
    from jetson_specdec.apply.workflow import carry_out, check_place, restart_step, to_json
    from jetson_specdec.findings import Step
    from jetson_specdec.messages import render

    check_place(prepared.plan)
    if not json:
        from jetson_specdec.render.apply import print_prepared

        print_prepared(prepared, remarks)
    if not yes:
        if json or not _can_ask():
            if json:
                print_json(to_json(prepared, manifest=None, findings=remarks, next_steps=prepared.plan.next_steps))
            raise DeclinedError("JSE810")
        if not _agreed(render("apply-question")):
            raise DeclinedError("JSE809")
    import time

    manifest = carry_out(prepared, now=host.now() if host.live else time.time(), baseline=baseline)
    steps: tuple[Step, ...] = (
        restart_step(prepared, str(recipe)),
        *_measuring(prepared.plan),
        Step.of("apply-undo", path=str(recipe)),
    )
    if json:
        print_json(to_json(prepared, manifest=manifest, findings=remarks, next_steps=steps))
        return 0
    from jetson_specdec.render import terminal

    terminal.section(render("apply-done", {"paths": [change.path for change in prepared.plan.changes]}))
    terminal.line(f"  {manifest.path}", "dim")
    terminal.section("Next")
    terminal.steps(steps)
    return 0


def _measuring(plan: Plan) -> list[Step]:
    return [step for step in plan.next_steps if step.kind in ("measure-after", "raise-k")]


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _agreed(question: str) -> bool:
    sys.stdout.write("\n" + question)
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _report(baseline: Path | None) -> BenchReport | None:
    if baseline is None:
        return None
    from jetson_specdec.measurements import read_report

    return read_report(baseline)


def _release(
    recipe: Path, host: Host, index: int | None, named: str | None, *, ask: bool
) -> tuple[str | None, tuple[Finding, ...]]:
    """What the image itself says of its vLLM goes before what its name lets guess; what the user says before both."""
    if named is not None:
        return named, ()
    from jetson_specdec.apply.workflow import release_in_image
    from jetson_specdec.planning.gather import choose_command
    from jetson_specdec.recipe.load import load_recipe

    return release_in_image(host, choose_command(load_recipe(recipe), index), ask=ask)


def _refused(plan: Plan, *, json: bool) -> int:
    if json:
        print_json(_unchanged(plan))
    else:
        from jetson_specdec.render.plan import print_plan

        print_plan(plan)
    return REFUSED


def _unchanged(plan: Plan) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "action": "apply",
        "applied": False,
        "outcome": plan.outcome,
        "files": [],
        "manifest": None,
        "baseline": None,
        "disclosure": None,
        "pins": [],
        "findings": [finding.to_json() for finding in plan.findings],
        "next_steps": [step.to_json() for step in plan.next_steps],
    }


def _nothing(prepared: Prepared, recipe: Path, remarks: tuple[Finding, ...], *, json: bool) -> int:
    from jetson_specdec.apply.workflow import to_json

    plan = prepared.plan
    if json:
        print_json(to_json(prepared, manifest=None, findings=remarks, next_steps=plan.next_steps))
        return 0
    from jetson_specdec.render.plan import print_plan

    print_plan(plan)
    tell("apply-nothing", path=str(recipe))
    return 0


def _undo(recipe: Path, *, force: bool, yes: bool, json: bool) -> int:
    import time

    from jetson_specdec.apply.manifest import find_manifests
    from jetson_specdec.apply.transaction import undo
    from jetson_specdec.messages import render

    if not yes and find_manifests(recipe):  # where there is nothing to undo, nothing is asked
        if json or not _can_ask():
            raise DeclinedError("JSE816")
        if not _agreed(render("undo-question", {"path": str(recipe)})):
            raise DeclinedError("JSE809")
    done = undo(recipe, now=time.time(), force=force)
    if json:
        print_json(
            {
                "schema_version": 1,
                "action": "undo",
                "applied": False,
                "outcome": done.manifest.outcome,
                "files": [{"path": str(path), "diff": None, "backup": None} for path in done.restored],
                "kept": [str(path) for path in done.kept],
                "manifest": str(done.manifest.path),
            }
        )
        return 0
    from jetson_specdec.render.apply import print_undone

    print_undone(done)
    return 0
