# SPDX-License-Identifier: Apache-2.0
"""A check-up, for a person: the verdict, one table, then what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import most_severe_first
from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Checkup

__all__ = ["print_checkup"]

MARKS = {"ok": "✓", "info": "·", "warning": "!", "blocking": "✗", "unknown": "?"}
STYLES = {"warning": "bold yellow", "blocking": "bold red"}


def print_checkup(checkup: Checkup) -> None:
    """Print a check-up to the terminal."""
    worst = checkup.worst
    state = "ok" if worst is None else worst.value
    found = [finding for check in checkup.checks for finding in check.findings]
    count = sum(finding.severity.value == state for finding in found)
    unknown = sum(not check.values for check in checkup.checks)
    terminal.headline(render(f"doctor-{state}", {"count": count, "unknown": unknown}), STYLES.get(state, "bold green"))
    terminal.section("Checks")
    terminal.table(["", "check", "found"], [[MARKS[check.state], check.name, check.text] for check in checkup.checks])
    if found:
        terminal.section("To do and to know")
        terminal.findings(most_severe_first(found))
