# SPDX-License-Identifier: Apache-2.0
"""A plan, for a person: the decision first, then the diff, then memory, then reasons, then what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.messages import render
from jetson_specdec.render import terminal
from jetson_specdec.render.device import device_line

if TYPE_CHECKING:
    from jetson_specdec.estimate.memory import MemoryLedger
    from jetson_specdec.estimate.speed_outlook import SpeedOutlook
    from jetson_specdec.estimate.speed_span import Span
    from jetson_specdec.planner import Plan

__all__ = ["headline", "print_plan"]

STYLES = {"none": "bold yellow", "refuse": "bold red", "already": "bold yellow"}


def headline(plan: Plan) -> str:
    """Return the decision in one line."""
    config = plan.speculative_config or {}
    values = {
        "outcome": plan.outcome,
        "target": plan.target or "this model",
        "method": config.get("method") or plan.existing_method,
        "model": config.get("model"),
        "k": config.get("num_speculative_tokens"),
    }
    key = plan.outcome if plan.outcome in ("none", "refuse", "already") else "speculate"
    if key == "none" and plan.target is None:
        key = "none-unknown"
    elif key in ("speculate", "already") and values["model"] is None:
        key = f"{key}-plain"
    return render(f"headline-{key}", values)


def print_plan(plan: Plan) -> None:
    """Print a plan to the terminal."""
    terminal.headline(headline(plan), STYLES.get(plan.outcome, "bold green"))
    if plan.device is not None:
        terminal.line(f"  on {device_line(plan.device)}; {_engine(plan)}", "dim")
    if plan.changes:
        terminal.section("Change")
        for change in plan.changes:
            terminal.diff(change.diff)
    if plan.memory is not None:
        _memory(plan.memory)
    if plan.speed is not None and plan.speed.known:
        _speed(plan.speed)
    if plan.downloads:
        terminal.section("Will be downloaded")
        terminal.table(
            ["repository", "size", "licence", "gated", "in cache"],
            [
                [
                    each.repo,
                    terminal.bytes_text(each.bytes),
                    each.licence,
                    terminal.yes_no(each.gated),
                    terminal.yes_no(each.cached),
                ]
                for each in plan.downloads
            ],
        )
    terminal.section("Reasons")
    terminal.findings(plan.findings, secrets=plan.recipe.secrets)
    told = {finding.code for finding in plan.findings}
    others = {name: reason for name, reason in plan.rejected.items() if reason.code not in told}
    for name, reason in others.items():
        terminal.line(f"  {name}: {reason.message}")
    if plan.next_steps:
        terminal.section("Next")
        terminal.steps(plan.next_steps)


def _engine(plan: Plan) -> str:
    release = plan.release
    if release is None or (release.version is None and not release.candidates):
        return render("label-release-unknown")
    if release.version is not None:
        return render("label-release", {"version": release.version})
    if not release.image:
        return render("label-release-unknown")
    return render("label-release-by-image", {"version": release.candidates[-1]})


def _memory(ledger: MemoryLedger) -> None:
    arms = [arm for arm in (ledger.off, ledger.on) if arm is not None]
    names = list(dict.fromkeys(line.name for arm in arms for line in arm.lines))
    rows: list[list[str | None]] = []
    for name in names:
        cells = []
        for arm in arms:
            value = next((line.bytes for line in arm.lines if line.name == name), None)
            cells.append(terminal.bytes_text(value))
        if any(cell is not None for cell in cells):
            rows.append([f"  {name.replace('_', ' ')}", *cells])
    tokens = [None if arm.kv_tokens is None else f"{arm.kv_tokens:,}" for arm in arms]
    if not rows and all(each is None for each in tokens):
        return
    terminal.section("Memory")
    rows.append(["  tokens of context", *tokens])
    header = ["", "now"] if len(arms) == 1 else ["", "now", "planned"]
    terminal.table(header, rows, right=range(1, len(header)))


def _speed(outlook: SpeedOutlook) -> None:
    terminal.section(render("label-speed"))
    rows = []
    for row in outlook.break_even.rows:
        mark = " ←" if row.k == outlook.k else ""
        rows.append([f"  k = {row.k}{mark}", _range(row.cost), _range(row.needed), f"{row.k + 1}"])
    terminal.table(["", "to lose nothing", "for the gate", "at most"], rows, right=(1, 2, 3))
    terminal.findings(outlook.findings)


def _range(span: Span | None) -> str | None:
    return None if span is None else f"{span.low:.2f}-{span.high:.2f}"
