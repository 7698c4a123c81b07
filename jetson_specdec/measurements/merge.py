# SPDX-License-Identifier: Apache-2.0
"""Several files of one arm, such as one for each concurrency, as one report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, fields

from jetson_specdec.errors import ReportError
from jetson_specdec.measurements.core import BenchConfig, BenchReport, Conditions

__all__ = ["merge_reports"]

_IDENTITY: Final = (
    "runtime",
    "model",
    "sku",
    "generation",
    "product_line",
    "variant",
    "l4t",
    "benchmark_mode",
    "container",
)
_TRUE_ONCE: Final = ("throttled", "foreign_requests", "synthetic_acceptance", "speculation")
_HIGHEST: Final = ("temperature_c_max", "swap_growth_bytes", "gpu_mhz_max")
_LOWEST: Final = ("memory_available_min_bytes", "gpu_mhz_min")


def merge_reports(reports: Sequence[BenchReport]) -> BenchReport:
    """Join reports of one arm that each hold other concurrencies, as `vllm bench serve` writes one file for each.

    What the arms of one comparison must share (settings) is kept where all agree; a condition that held in any of them
    (throttling, swap, foreign requests) holds for the whole.

    Args:
        reports: at least one.

    Raises:
        ReportError: no report, two with the same concurrency, or reports of different models.
    """
    if not reports:
        raise ReportError("JSE611")
    if len(reports) == 1:
        return reports[0]
    first = reports[0]
    seen: set[int] = set()
    for report in reports:
        if None not in (report.model, first.model) and report.model != first.model:
            raise ReportError("JSE612", first=first.model, second=report.model)
        for run in report.runs:
            if run.concurrency in seen:
                raise ReportError("JSE606", where="reports", concurrency=run.concurrency)
            seen.add(run.concurrency)
    identity: dict[str, Any] = {name: next(iter(_known(reports, name)), None) for name in _IDENTITY}
    return evolve(
        first,
        **identity,
        # Acceptance at one concurrency is not that of the whole; the runs keep theirs.
        acceptance=None,
        config=_settings([report.config for report in reports]),
        conditions=_conditions([report.conditions for report in reports]),
        runs=tuple(run for report in reports for run in _own_acceptance(report)),
        warnings=tuple(dict.fromkeys(warning for report in reports for warning in report.warnings)),
        requests=tuple(record for report in reports for record in report.requests),
        findings=tuple(finding for report in reports for finding in report.findings),
    )


def _own_acceptance(report: BenchReport) -> Sequence[Any]:
    """Return the runs; that of a report with a single one takes the acceptance of the whole where it has none."""
    if len(report.runs) != 1 or report.acceptance is None or report.runs[0].acceptance is not None:
        return report.runs
    return [evolve(report.runs[0], acceptance=report.acceptance)]


def _known(parts: Sequence[Any], name: str) -> list[Any]:
    return [value for part in parts if (value := getattr(part, name)) is not None]


def _settings(parts: Sequence[BenchConfig]) -> BenchConfig:
    agreed = {}
    for attribute in fields(BenchConfig):
        values = _known(parts, attribute.name)
        agreed[attribute.name] = values[0] if values and all(value == values[0] for value in values) else None
    return BenchConfig(**agreed)


def _conditions(parts: Sequence[Conditions]) -> Conditions:
    joined: dict[str, Any] = {}
    for attribute in fields(Conditions):
        values = _known(parts, attribute.name)
        name = attribute.name
        if not values:
            continue
        if name in _TRUE_ONCE:
            joined[name] = any(values)
        elif name in _HIGHEST:
            joined[name] = max(values)
        elif name in _LOWEST:
            joined[name] = min(values)
        else:
            joined[name] = next((value for value in values if value != {}), values[0])
    return Conditions(**joined)
