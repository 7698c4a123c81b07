# SPDX-License-Identifier: Apache-2.0
"""What a reader of a fresh report should know before believing it."""

from __future__ import annotations

from jetson_specdec.findings import Finding
from jetson_specdec.measurements import BenchReport

__all__ = ["findings_of"]

PREFIX_HIT_RATE = 0.05
"""Share of prompt tokens from the prefix cache above which TTFT is no longer that of new prompts (judgement; chat
templates alone give a per cent or two)."""

SWAP_BYTES = 64 * 2**20
"""Growth of swap above which something was pushed out (judgement)."""


def findings_of(
    report: BenchReport, *, reused: bool, counted_by_server: bool, metrics: bool, output_len: int
) -> list[Finding]:
    """Return the findings of a measurement.

    Args:
        report: as measured.
        reused: prompts were used more than once.
        counted_by_server: every answer came with its token count.
        metrics: the server has a `/metrics` page.
        output_len: most tokens of an answer.
    """
    found: list[Finding] = []
    if report.config.dataset == "random":
        found.append(Finding.of("JSD689"))
    if reused:
        found.append(Finding.of("JSD670"))
    if not counted_by_server:
        unknown = sum(record.ok and record.output_tokens is None for record in report.requests)
        found.append(Finding.of("JSD688", count=unknown) if unknown else Finding.of("JSD687"))
    for run in report.runs:
        if run.failed:
            sent = run.failed + (run.completed or 0)
            error = next((r.error for r in report.requests_at(run.concurrency) if not r.ok), None)
            found.append(Finding.of("JSD690", failed=run.failed, sent=sent, concurrency=run.concurrency, error=error))
        rate = run.prefix_hit_rate
        if rate is not None and rate > PREFIX_HIT_RATE:
            found.append(Finding.of("JSD692", rate=rate, concurrency=run.concurrency))
    done = [record for record in report.requests if record.ok]
    early = [record for record in done if record.finish_reason == "stop"]
    if early and len(early) == len(done):
        lengths = [record.output_tokens for record in early if record.output_tokens is not None]
        mean = sum(lengths) / len(lengths) if lengths else None
        found.append(Finding.of("JSD691", mean=mean, asked=output_len))
    return found + _of_conditions(report, metrics=metrics)


def _of_conditions(report: BenchReport, *, metrics: bool) -> list[Finding]:
    conditions = report.conditions
    found: list[Finding] = []
    if not metrics:
        found.append(Finding.of("JSD672"))
    if conditions.foreign_requests:
        found.append(Finding.of("JSD693"))
    if conditions.throttled:
        found.append(Finding.of("JSD694", temperature=conditions.temperature_c_max))
    if conditions.power_mode is not None and conditions.power_mode_is_max is False:
        found.append(Finding.of("JSD695", mode=conditions.power_mode))
    if conditions.gpu_processes:
        found.append(Finding.of("JSD696", names=list(conditions.gpu_processes)))
    if conditions.swap_growth_bytes is not None and conditions.swap_growth_bytes > SWAP_BYTES:
        found.append(Finding.of("JSD671", grown=conditions.swap_growth_bytes))
    if report.config.temperature:
        found.append(Finding.of("JSD673", temperature=report.config.temperature))
    return found
