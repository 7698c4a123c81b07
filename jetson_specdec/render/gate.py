# SPDX-License-Identifier: Apache-2.0
"""A verdict, for a person: the answer, then each figure in one line as benchstat shows it, then why and what next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.findings import Finding
    from jetson_specdec.gate import CategoryVerdict, Criterion, Verdict

__all__ = ["change_text", "criterion_cells", "print_lines", "print_verdict"]

STYLES = {
    "enable": "bold green",
    "enable_limited": "bold green",
    "disable": "bold red",
    "invalid": "bold red",
}
STATES = {"met": "met", "failed": "not met", "undecided": "not proved", "not_measured": "not measured"}
STATE_STYLES = {"met": "green", "failed": "red", "undecided": "yellow", "not_measured": "dim"}
QUANTITIES = {"throughput": "throughput", "tpot": "TPOT p50", "ttft": "TTFT p50"}


def print_verdict(verdict: Verdict) -> None:
    """Print a verdict to the terminal."""
    shown = [finding for finding in verdict.findings if finding.topic != "simulated"]
    if len(shown) < len(verdict.findings):
        terminal.line(render("JSD697"), "bold yellow")
    terminal.headline(render(f"gate-headline-{verdict.outcome}"), STYLES.get(verdict.outcome, "bold yellow"))
    terminal.line("  " + render("gate-literal", {"contract": verdict.contract_outcome}), "dim")
    terminal.section("Figures")
    rows = [criterion for criterion in verdict.criteria if _told(criterion, verdict)]
    print_lines([criterion_cells(row) for row in rows], [STATE_STYLES[row.state] for row in rows])
    if verdict.categories:
        terminal.section("By kind of text, at concurrency 1")
        print_lines([_category_cells(each) for each in verdict.categories])
    terminal.section("Reasons")
    terminal.findings(_first_of_each(shown))
    if verdict.next_steps:
        terminal.section("Next")
        terminal.steps(verdict.next_steps)


def criterion_cells(criterion: Criterion) -> list[str]:
    """Return one line of figures: name, before → after, change, interval, pairs, what is needed and whether it is."""
    quantity, _, rest = criterion.name.partition("_c")
    concurrency, _, floor = rest.partition("_")
    name = f"{QUANTITIES.get(quantity, quantity)} c={concurrency}" + (" (floor)" if floor else "")
    values = f"{_figure(criterion.before)} → {_figure(criterion.after)} {criterion.unit}"
    if criterion.before is None and criterion.after is None:
        values = "—"
    pairs = "" if not criterion.pairs else f"{criterion.pairs} pair" + ("s" if criterion.pairs > 1 else "")
    return [name, values, change_text(criterion), _interval(criterion), pairs, _need(criterion)]


def change_text(criterion: Criterion) -> str:
    """Return a change in per cent, with ~ where its interval holds no change at all."""
    if criterion.change is None:
        return ""
    noise = criterion.interval is not None and criterion.interval[0] <= 0 <= criterion.interval[1]
    return f"{'~ ' if noise else ''}{criterion.change * 100:+.1f} %"


def print_lines(rows: Sequence[Sequence[str]], styles: Sequence[str] = ()) -> None:
    """Print rows with their columns below each other, unwrapped, the last cell in its style."""
    from rich.text import Text

    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        made = Text("  " + "   ".join(cells[:-1]) + "   ")
        made.append(row[-1], styles[index] if styles else None)
        terminal.console().print(made, soft_wrap=True)


def _told(criterion: Criterion, verdict: Verdict) -> bool:
    """The floor repeats the figures of concurrency 1: only tell it where that criterion is not met already."""
    if criterion.name == "throughput_c1_floor":
        first = verdict.criterion("throughput_c1")
        return first is not None and first.state in ("failed", "undecided")
    return criterion.name != "ttft_c1" or criterion.change is not None


def _figure(value: float | None) -> str:
    if value is None:
        return "—"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _interval(criterion: Criterion) -> str:
    if criterion.interval is None:
        return ""
    low, high = criterion.interval
    return f"[{low * 100:+.1f}, {high * 100:+.1f}]"


def _need(criterion: Criterion) -> str:
    if criterion.threshold is None:
        return STATES[criterion.state]
    sign = "≥" if criterion.name.startswith("throughput") else "≤"
    percent = criterion.threshold * 100
    bound = f"{percent:+.3g}" if percent else "0"
    return f"needs {sign} {bound} %: {STATES[criterion.state]}"


def _category_cells(category: CategoryVerdict) -> list[str]:
    changes = []
    for name in ("throughput_c1", "tpot_c1"):
        found = next((each for each in category.criteria if each.name == name), None)
        label = QUANTITIES[name.partition("_")[0]]
        changes.append("" if found is None else f"{label} {change_text(found)}  {_interval(found)}")
    return [category.category, *changes, f"{category.requests} requests", category.outcome]


def _first_of_each(found: Iterable[Finding]) -> list[Finding]:
    """Pairs often say the same with slightly other figures: tell the first of each code, blocking ones all."""
    kept: dict[str, Finding] = {}
    for number, finding in enumerate(found):
        kept.setdefault(finding.code if finding.severity != "blocking" else str(number), finding)
    return list(kept.values())
