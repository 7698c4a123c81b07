# SPDX-License-Identifier: Apache-2.0
"""What a yes or no rests on, and what was done, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import most_severe_first
from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.apply.disclosure import Disclosure, Listener
    from jetson_specdec.apply.transaction import Undone
    from jetson_specdec.apply.workflow import Prepared
    from jetson_specdec.findings import Finding

__all__ = ["print_disclosure", "print_prepared", "print_undone"]


def print_prepared(prepared: Prepared, findings: tuple[Finding, ...] = ()) -> None:
    """Print decision, change and disclosure of a plan that is about to be applied."""
    from jetson_specdec.render.device import device_line
    from jetson_specdec.render.plan import STYLES, headline

    plan = prepared.plan
    terminal.headline(headline(plan), STYLES.get(plan.outcome, "bold green"))
    if plan.device is not None:
        terminal.line(f"  on {device_line(plan.device)}", "dim")
    if plan.changes:
        terminal.section("Change")
        for change in plan.changes:
            terminal.diff(change.diff)
    print_disclosure(prepared.disclosure)
    told = [*plan.findings, *prepared.disclosure.findings, *findings]
    if told:
        terminal.section("To know")
        terminal.findings(most_severe_first(told))


def print_disclosure(disclosure: Disclosure) -> None:
    """Print downloads, code, ports and telemetry."""
    if disclosure.fetches:
        terminal.section("Downloaded unless it is here already")
        terminal.table(
            ["what", "name", "revision", "size", "licence", "gated", "here", "from"],
            [
                [
                    each.kind,
                    each.name,
                    each.revision or "not pinned",
                    terminal.bytes_text(each.bytes),
                    each.licence,
                    terminal.yes_no(each.gated),
                    terminal.yes_no(each.cached),
                    each.host,
                ]
                for each in disclosure.fetches
            ],
        )
    terminal.section("Code, ports, telemetry")
    terminal.line("  " + render("apply-code-yes" if disclosure.remote_code else "apply-code-no"))
    for listener in disclosure.listeners:
        terminal.line("  " + _listens(listener))
    for item in disclosure.telemetry:
        key = "apply-telemetry-off" if item.state == "off" else "apply-telemetry"
        values = {"name": item.name, "destination": item.destination, "state": item.state}
        terminal.line("  " + render(key, {**values, "switch": item.switch, "by": item.switched_by}))


def _listens(listener: Listener) -> str:
    address = "every interface" if listener.address == "*" else listener.address
    values = {"port": listener.port, "address": address, "reach": listener.reach, "key": terminal.yes_no(listener.key)}
    return render("apply-listens", values)


def print_undone(undone: Undone) -> None:
    """Print what was taken back."""
    paths = [str(path) for path in undone.restored]
    terminal.headline(render("apply-undone" if paths else "apply-undone-nothing", {"paths": paths}), "bold green")
    for path in undone.kept:
        terminal.line("  " + render("apply-kept", {"path": str(path)}))
