# SPDX-License-Identifier: Apache-2.0
"""A measurement, for a person: the figures of each concurrency, acceptance, conditions, what to be careful about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jetson_specdec.findings import Step
from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.measurements import Acceptance, BenchReport, Conditions, Run

__all__ = ["acceptance_text", "print_arms", "print_report"]

RIGHT = range(10)


def print_report(report: BenchReport, *, saved: str | None = None) -> None:
    """Print a report to the terminal.

    Args:
        report: what was measured.
        saved: where it was saved, or None.
    """
    findings = [finding for finding in report.findings if finding.topic != "simulated"]
    if len(findings) < len(report.findings):
        terminal.line(render("JSD697"), "bold yellow")
    terminal.headline(_headline(report), "bold")
    if report.conditions.speculative_config is not None or report.conditions.speculation is not None:
        terminal.line("  " + _speculation(report.conditions), "dim")
    if report.runs:
        terminal.section("Figures")
        _runs(report)
    spoken = [(run.concurrency, run.acceptance) for run in report.runs if run.acceptance is not None]
    active = [(concurrency, acceptance) for concurrency, acceptance in spoken if acceptance.rate is not None]
    if active:
        terminal.section("Acceptance")
        for concurrency, acceptance in active:
            terminal.line(f"  concurrency {concurrency}: {acceptance_text(acceptance)}")
    conditions = _conditions(report.conditions)
    if conditions:
        terminal.section("Conditions")
        terminal.table(["", "", "from"], conditions)
    if findings:
        terminal.section("Findings")
        terminal.findings(findings)
    terminal.section("Next")
    steps = [] if saved else [Step.of("bench-save")]
    terminal.steps([*steps, Step.of("bench-judge", command="jetson-specdec gate before.json after.json")])


def print_arms(arms: Iterable[tuple[str, BenchReport]]) -> None:
    """Print several reports below each other, one line a run, each with its label."""
    rows = [
        [label, str(run.concurrency), *_figures(run), _acceptance_of(report, run)]
        for label, report in arms
        for run in report.runs
    ]
    terminal.table(
        ["", "concurrency", "tok/s", "TPOT p50 ms", "TTFT p50 ms", "accepted"],
        [[f"  {row[0]}", *row[1:]] for row in rows],
        right=range(1, 6),
    )


def acceptance_text(acceptance: Acceptance) -> str:
    """Return acceptance in one line."""
    parts = [render("label-acceptance-rate", {"rate": _percent(acceptance.rate)})]
    if acceptance.mean_length is not None:
        parts.append(render("label-acceptance-length", {"length": acceptance.mean_length}))
    if acceptance.per_position:
        rates = " ".join(f"{rate:.2f}" for rate in acceptance.per_position)
        parts.append(render("label-acceptance-positions", {"rates": rates}))
    return ", ".join(parts)


def _headline(report: BenchReport) -> str:
    model = report.model or "this server"
    run = next((run for run in report.runs if run.throughput_tok_s is not None and run.tpot_ms_p50 is not None), None)
    if run is None:
        return render("bench-headline-unmeasured", {"model": model})
    values = {"throughput": run.throughput_tok_s, "tpot": run.tpot_ms_p50, "concurrency": run.concurrency}
    return render("bench-headline", {"model": model, **values})


def _speculation(conditions: Conditions) -> str:
    config = conditions.speculative_config or {}
    if conditions.speculation is False:
        return render("label-without-speculation")
    parts = [str(config[key]) for key in ("method", "model") if config.get(key)]
    if config.get("num_speculative_tokens"):
        parts.append(f"k = {config['num_speculative_tokens']}")
    return render("label-with-speculation-of", {"parts": parts}) if parts else render("label-with-speculation")


def _runs(report: BenchReport) -> None:
    power = any(run.energy_j_per_token is not None for run in report.runs)
    header = ["concurrency", "tok/s", "TPOT p50", "p99", "TTFT p50", "p99", "E2E p50 ms", "requests", "failed"]
    rows: list[list[str | None]] = []
    for run in report.runs:
        row = [
            str(run.concurrency),
            _number(run.throughput_tok_s),
            *(_number(value) for value in (run.tpot_ms_p50, run.tpot_ms_p99, run.ttft_ms_p50, run.ttft_ms_p99)),
            _number(run.e2e_latency_ms_p50),
            _count(run.completed),
            _count(run.failed),
        ]
        rows.append([*row, _number(run.energy_j_per_token)] if power else row)
    terminal.table([*header, "J/token"] if power else header, rows, right=RIGHT)


def _figures(run: Run) -> list[str | None]:
    return [_number(run.throughput_tok_s), _number(run.tpot_ms_p50), _number(run.ttft_ms_p50)]


def _acceptance_of(report: BenchReport, run: Run) -> str | None:
    acceptance = report.acceptance_at(run.concurrency)
    return None if acceptance is None or acceptance.rate is None else _percent(acceptance.rate)


def _conditions(conditions: Conditions) -> list[list[str | None]]:
    shown = (
        ("vllm_version", "vLLM", conditions.vllm_version),
        ("power_mode", "power mode", conditions.power_mode),
        ("temperature_c_max", "hottest sensor", _with_unit(conditions.temperature_c_max, "°C")),
        ("throttled", "throttled", terminal.yes_no(conditions.throttled)),
        ("gpu_mhz_max", "GPU clock up to", _with_unit(conditions.gpu_mhz_max, "MHz")),
        (
            "memory_available_min_bytes",
            "least memory available",
            terminal.bytes_text(conditions.memory_available_min_bytes),
        ),
        ("swap_growth_bytes", "swap grew by", terminal.bytes_text(conditions.swap_growth_bytes)),
        ("max_num_seqs", "requests at once", _count(conditions.max_num_seqs)),
    )
    return [[f"  {name}", value, conditions.sources.get(field)] for field, name, value in shown if value is not None]


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f}"


def _count(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value * 100:.1f} %"


def _with_unit(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.0f} {unit}"
