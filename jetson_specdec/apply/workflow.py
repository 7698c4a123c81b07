# SPDX-License-Identifier: Apache-2.0
"""From a plan to changed files: pin, look around, disclose; then, after a yes, write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.deployment import Deployment, read_deployment
from jetson_specdec.apply.disclosure import Disclosure, disclose
from jetson_specdec.apply.look import look_around
from jetson_specdec.apply.pinning import Pin, PinScope, pin_plan, resolve_pins
from jetson_specdec.errors import ApplyError, OptionError
from jetson_specdec.findings import Finding, Step
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.manifest import Manifest
    from jetson_specdec.apply.online import Online
    from jetson_specdec.host import Host
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.recipe.core import ServeCommand

__all__ = [
    "Prepared",
    "carry_out",
    "check_baseline",
    "check_place",
    "enables",
    "prepare",
    "release_in_image",
    "restart_step",
]

UNCHANGED = ("none", "already", "refuse")


@frozen(kw_only=True)
class Prepared:
    """A plan ready to be shown and applied.

    Attributes:
        plan: with its names pinned as far as that went.
        deployment: the plan, read again.
        disclosure: what a person should know before saying yes.
        pins: what moving names stand for.
    """

    plan: Plan
    deployment: Deployment
    disclosure: Disclosure
    pins: tuple[Pin, ...] = ()


def enables(plan: Plan) -> bool:
    """Whether applying a plan switches speculation on."""
    return plan.outcome not in UNCHANGED and bool(plan.changes)


def prepare(
    plan: Plan,
    host: Host,
    *,
    scope: PinScope = "drafter",
    online: Online | None = None,
    catalog: Catalog | None = None,
) -> Prepared:
    """Pin what can be pinned and gather what has to be disclosed. Writes nothing.

    Args:
        plan: what was decided.
        host: the machine.
        scope: what to pin: `none`, `drafter` (what the plan adds) or `all` (target and image too).
        online: asks hub and registry; None asks nobody.
        catalog: knows which targets are gated.
    """
    deployment = read_deployment(plan, host)
    pins = resolve_pins(deployment, host, scope=scope, online=online) if plan.outcome != "refuse" else ()
    if pins:
        plan = pin_plan(deployment, pins)
        deployment = read_deployment(plan, host)
    around = look_around(deployment, host, online=online, catalog=catalog)
    return Prepared(plan=plan, deployment=deployment, disclosure=disclose(deployment, around), pins=pins)


def check_baseline(plan: Plan, baseline: BenchReport | None, *, waived: bool) -> tuple[Finding, ...]:
    """Return what to say about the baseline of a plan.

    Raises:
        OptionError: the plan switches speculation on, and there is neither a baseline nor an explicit waiver, or the
            baseline is a fake server's.
    """
    if not enables(plan):
        return ()
    if baseline is None:
        if not waived:
            raise OptionError("JSE801")
        return (Finding.of("JSD811"),)
    if baseline.simulated:
        raise OptionError("JSE525")
    findings = []
    if baseline.acceptance is not None and baseline.acceptance.state == "active":
        findings.append(Finding.of("JSD812", rate=baseline.acceptance.rate))
    missing = [concurrency for concurrency in (1, 8) if baseline.run_at(concurrency) is None]
    if missing:
        findings.append(Finding.of("JSD813", missing=missing))
    return tuple(findings)


def check_place(plan: Plan) -> None:
    """See that every change has a file to go to.

    Raises:
        ApplyError: one has not: the recipe came from standard input or was made up from a recommendation.
    """
    if plan.recipe.path is None or any(change.path is None for change in plan.changes):
        raise ApplyError("JSE800")


def carry_out(prepared: Prepared, *, now: float, baseline: str | Path | None = None) -> Manifest:
    """Write a prepared plan in place, with backups.

    Args:
        prepared: what was shown.
        now: seconds since the epoch.
        baseline: the report's file, kept beside the backup.

    Raises:
        ApplyError: a file is not what the plan was made for, and others as `apply_changes`.
        OutputError: a file could not be written; nothing is changed.
    """
    from jetson_specdec.apply.transaction import apply_changes

    plan = prepared.plan
    check_place(plan)
    assert plan.recipe.path is not None
    return apply_changes(plan.recipe.path, plan.changes, now=now, outcome=plan.outcome, baseline=baseline)


def shared_files(plan: Plan) -> tuple[Finding, ...]:
    """Return a remark for each file that has a second name: replacing it leaves the other name with the old text."""
    findings = []
    for change in plan.changes:
        if change.path is None:
            continue
        try:
            links = os.stat(change.path).st_nlink  # noqa: PTH116
        except OSError:
            continue
        if links > 1:
            findings.append(Finding.of("JSD814", path=change.path, links=links))
    return tuple(findings)


def release_in_image(host: Host, command: ServeCommand, *, ask: bool = False) -> tuple[str | None, tuple[Finding, ...]]:
    """Read the vLLM release of an image that its reference does not tell, from the local engine.

    Args:
        host: the machine.
        command: as parsed.
        ask: whether a container may be started to ask, where labels do not tell.

    Returns:
        The version or None, and what to say about it; nothing at all where the reference tells the release.
    """
    from jetson_specdec.apply.engine_image import ask_version, inspect_image
    from jetson_specdec.engine.release import release_from_image

    image = command.image
    if image is None or command.engine != "vllm" or release_from_image(image).version is not None:
        return None, ()
    facts = inspect_image(host, image, launcher=command.launcher)
    if facts is None or not facts.present:
        return None, ()
    if facts.version is not None:
        found = Finding.of("JSD828", image=image, version=facts.version, where=facts.version_from)
        return facts.version, (found,)
    if not ask:
        return None, (Finding.of("JSD830", image=image),)
    version = ask_version(host, image, launcher=command.launcher)
    if version is None:
        return None, (Finding.of("JSD831", image=image),)
    return version, (Finding.of("JSD829", image=image, version=version),)


def _unit_of(path: Path) -> str:
    """Return the unit that a file belongs to: drop-ins stand in `UNIT.d`, `NAME.container` makes `NAME.service`."""
    name = path.parent.name.removesuffix(".d") if path.suffix == ".conf" and path.parent.suffix == ".d" else path.name
    return name.removesuffix(".container") + ".service" if name.endswith(".container") else name


def restart_step(prepared: Prepared, path: str) -> Step:
    """Return how the changed deployment comes into force."""
    import shlex

    launcher, form = prepared.deployment.command.launcher, prepared.deployment.recipe.form
    file = shlex.quote(path)
    if form == "compose":
        return Step.of("apply-restart", command=f"docker compose -f {file} up -d")
    if form == "unit" or launcher == "systemd":
        unit = shlex.quote(_unit_of(Path(path)))
        return Step.of("apply-restart", command=f"sudo systemctl daemon-reload && sudo systemctl restart {unit}")
    if form == "manifest":
        return Step.of("apply-restart", command=f"kubectl apply -f {file}")
    return Step.of("apply-restart")


def to_json(
    prepared: Prepared,
    *,
    manifest: Manifest | None,
    findings: tuple[Finding, ...] = (),
    next_steps: tuple[Step, ...] = (),
) -> dict[str, Any]:
    """Return the JSON form of `apply --json`."""
    plan = prepared.plan
    records = (
        {} if manifest is None else {os.path.normpath(manifest.folder / each.path): each for each in manifest.files}
    )
    files = []
    for change in plan.changes:
        real = os.path.realpath(change.path) if change.path is not None else None
        record = records.get(real) if real is not None else None
        backup = None if record is None or real is None else str(Path(real).with_name(record.backup))
        files.append({"path": change.path, "diff": change.diff, "backup": backup})
    kept = None if manifest is None or manifest.baseline is None else str(manifest.folder / manifest.baseline)
    return {
        "schema_version": 1,
        "action": "apply",
        "applied": manifest is not None,
        "outcome": plan.outcome,
        "files": files,
        "manifest": None if manifest is None else str(manifest.path),
        "baseline": kept,
        "disclosure": prepared.disclosure.to_json(),
        "pins": [pin.to_json() for pin in prepared.pins],
        "findings": [finding.to_json() for finding in (*plan.findings, *findings)],
        "next_steps": [step.to_json() for step in next_steps],
    }
