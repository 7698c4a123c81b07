# SPDX-License-Identifier: Apache-2.0
"""A diagnosis, for a person: the cause first, then the lines that prove it, the numbers, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.logs.diagnosis import Diagnosis

__all__ = ["headline", "print_diagnosis"]

STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
KINDS = {True: "started", False: "failed", None: "unknown"}
WIDTH = 220
"""A line of a log is shown up to this many characters."""


def headline(found: Diagnosis) -> str:
    """Return the answer in one line."""
    values = {"stage": found.stage, "cause": found.cause, "remedy": found.remedy}
    return render(f"headline-diagnosis-{KINDS[found.started_ok]}", values)


def print_diagnosis(found: Diagnosis) -> None:
    """Print a diagnosis to the terminal."""
    terminal.headline(headline(found), STYLES[found.started_ok])
    terminal.findings(found.findings)
    if found.started_ok is False:
        terminal.line("  " + render(f"diagnosis-speculation-{str(found.speculation_involved).lower()}"), "dim")
    if found.evidence:
        terminal.section("Evidence")
        for proof in found.evidence:
            text = proof.text if len(proof.text) <= WIDTH else proof.text[:WIDTH] + " …"
            shown = "".join(sign if sign.isprintable() else " " for sign in text)
            terminal.line(f"  {proof.input}:{proof.line}: {shown.strip()}")
    if found.values:
        terminal.section("Values")
        terminal.table(["", ""], [[f"  {name}", str(value)] for name, value in found.values.items()])
    if found.next_steps:
        terminal.section("Next")
        terminal.steps(found.next_steps)
