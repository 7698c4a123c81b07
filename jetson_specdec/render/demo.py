# SPDX-License-Identifier: Apache-2.0
"""The demonstration, for a person: plan, numbers, verdict, and how to do the same with an own server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Step
from jetson_specdec.messages import render
from jetson_specdec.render import terminal
from jetson_specdec.render.bench import print_arms
from jetson_specdec.render.device import device_line
from jetson_specdec.render.gate import print_verdict
from jetson_specdec.render.plan import headline

if TYPE_CHECKING:
    from jetson_specdec.testing.demo import Demo

__all__ = ["print_demo"]


def print_demo(demo: Demo) -> None:
    """Print a demonstration to the terminal."""
    terminal.line(render("JSD697"), "bold yellow")
    terminal.section(render("label-demo-plan"))
    plan = demo.plan
    terminal.headline(headline(plan), "bold green")
    if plan.device is not None:
        terminal.line(f"  on {device_line(plan.device)}", "dim")
    for change in plan.changes:
        terminal.diff(change.diff)
    terminal.findings(finding for finding in plan.findings if finding.severity == "warning")
    terminal.section(render("label-demo-numbers"))
    arms = zip(demo.before, demo.after, strict=True)
    print_arms(
        (f"{name} {number}", report)
        for number, pair in enumerate(arms, 1)
        for name, report in zip(("before", "after"), pair, strict=True)
    )
    for figure, source in demo.sources.items():
        terminal.line(f"  {figure}: {source}", "dim")
    terminal.section(render("label-demo-verdict"))
    print_verdict(demo.verdict)
    terminal.section("Now with your own server")
    terminal.steps(
        [
            Step.of("demo-own-plan", command="jetson-specdec plan serve.sh"),
            Step.of("demo-own-bench", command="jetson-specdec bench --out before.json"),
            Step.of("demo-own-gate", command="jetson-specdec gate before.json after.json"),
        ]
    )
