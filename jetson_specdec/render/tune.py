# SPDX-License-Identifier: Apache-2.0
"""A tune for a person: what will happen, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.findings import Finding, Step
    from jetson_specdec.server import Restored
    from jetson_specdec.tune.core import Offer, TuneResult

__all__ = ["print_offer", "print_restored", "print_result"]


def print_offer(offer: Offer) -> None:
    """Print the plan, what it fetches and opens, and how long the server will be down."""
    from jetson_specdec.render.plan import print_plan

    # What to do next is asked below; the plan's own steps are for those who go without.
    print_plan(evolve(offer.plan, next_steps=()))
    terminal.section("What will happen")
    disclosed = offer.disclosure.findings if offer.disclosure is not None else ()
    terminal.findings((offer.downtime.finding, *offer.findings, *disclosed))
    if offer.disclosure is not None:
        rows = [
            (each.kind, each.name, terminal.bytes_text(each.bytes), each.licence, _yes(each.cached))
            for each in offer.disclosure.fetches
        ]
        if rows:
            terminal.table(("what", "name", "size", "licence", "here already"), rows)
    terminal.line("  " + render("tune-evidence", {"path": offer.evidence}), "dim")


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def print_result(result: TuneResult) -> None:
    """Print verdict, reasons, and what to do now."""
    from jetson_specdec.render.gate import print_verdict

    if result.verdict is None or result.outcome != result.verdict.outcome:
        terminal.headline(render(f"tune-headline-{result.outcome}"))
    if result.verdict is not None:
        print_verdict(result.verdict)
    own = [each for each in result.findings if result.verdict is None or each not in result.verdict.findings]
    if own:
        terminal.section("This tune")
        terminal.findings(own)
    if result.next_steps:
        terminal.section("Now")
        terminal.steps(result.next_steps)
    if result.evidence is not None:
        terminal.line("  " + render("tune-evidence", {"path": result.evidence}), "dim")


def print_restored(done: Sequence[Restored], found: Sequence[Finding], steps: Sequence[Step] = ()) -> None:
    """Print what was ended, what was brought back, and how a tune that was killed goes on."""
    ended = sum(len(each.ended) for each in done)
    terminal.headline(render("tune-restored", {"starts": len(done), "ended": ended}))
    if found:
        terminal.findings(found)
    if steps:
        terminal.section("Now")
        terminal.steps(steps)
