# SPDX-License-Identifier: Apache-2.0
"""A diagnosis, for a person: the cause and what to do first, then the lines that prove it and the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.logs.diagnosis import Diagnosis

__all__ = ["headline", "print_diagnosis"]

STYLES = {True: "bold green", False: "bold red", None: "bold yellow"}
KINDS = {True: "started", False: "failed", None: "unknown"}
DEFINING_WIDTH = 600
"""The line that proves it is shown up to this many characters: its numbers stand at its end."""
WIDTH = 220
"""The others are shown up to this many."""


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
    if found.next_steps:
        terminal.section("Next")
        terminal.steps(found.next_steps)
    if found.evidence:
        terminal.section("Evidence")
        for number, proof in enumerate(found.evidence):
            terminal.line(f"  {proof.input}:{proof.line}: {_shown(proof.text, WIDTH if number else DEFINING_WIDTH)}")
    if found.values:
        terminal.section("Values")
        terminal.table(["", ""], [[f"  {name}", str(value)] for name, value in found.values.items()])


def _shown(text: str, width: int) -> str:
    cut = text if len(text) <= width else text[:width] + " …"
    return "".join(sign if sign.isprintable() else " " for sign in cut).strip()
