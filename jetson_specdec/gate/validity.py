# SPDX-License-Identifier: Apache-2.0
"""Can these two arms be compared at all?

Every finding here with severity `blocking` makes the verdict `invalid`. What a report does not tell is unknown and
never held against it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

from attrs import evolve

from jetson_specdec.findings import Finding, Severity
from jetson_specdec.gate.evidence import Pair
from jetson_specdec.gate.identity import precision_of, same_but_precision
from jetson_specdec.measurements.coherence import contradictions
from jetson_specdec.measurements.core import BenchReport, Run
from jetson_specdec.policy import Policy

__all__ = ["validity"]

_NAME_RATES = frozenset({"vllm_bench_json", "vllm_bench_stdout", "aiperf"})


def validity(pairs: Sequence[Pair], policy: Policy) -> tuple[Finding, ...]:
    """Return what speaks against comparing the arms, and what to be careful about."""
    found: list[Finding] = []
    for number, (before, after) in enumerate(pairs, 1):
        pair = number if len(pairs) > 1 else None
        for arm, report in (("before", before), ("after", after)):
            found += _arm(report, arm, pair, policy)
        found += _comparable(before, after, pair, policy)
        found += _speculation(before, after, pair)
    found += _copies(pairs)
    first = pairs[0]
    for number, (before, _) in enumerate(pairs[1:], 2):
        # Pairs of different settings cannot be pooled.
        found += [finding for finding in _identity(first[0], before, number) if finding.severity == "blocking"]
    return tuple(_distinct(found))


def _distinct(findings: Iterable[Finding]) -> Iterator[Finding]:
    seen: list[Finding] = []
    for finding in findings:
        if finding not in seen:
            seen.append(finding)
            yield finding


def _copies(pairs: Sequence[Pair]) -> Iterator[Finding]:
    """Name reports that were handed over more than once: a copy is no further evidence."""
    for place, arm in enumerate(("before", "after")):
        reports = [evolve(pair[place], findings=()) for pair in pairs]
        for number, report in enumerate(reports):
            same = [other for other in range(number) if report.runs and reports[other] == report]
            if same:
                yield Finding.of("JSD609", arm=arm, other=same[0] + 1, pair=number + 1)


# --- one arm ---------------------------------------------------------------------------------------------------------


def _arm(report: BenchReport, arm: str, pair: int | None, policy: Policy) -> Iterator[Finding]:
    if not any(run.measured for run in report.runs):
        yield Finding.of("JSD625", arm=arm, pair=pair)
    for run in report.runs:
        yield from _failures(report, run, arm, pair)
    for wrong in contradictions(report):
        yield Finding.of(wrong.code, arm=arm, pair=pair, concurrency=wrong.concurrency, **wrong.values)
    conditions = report.conditions
    if conditions.throttled:
        yield Finding.of("JSD618", arm=arm, pair=pair, temperature=conditions.temperature_c_max)
    if conditions.swap_growth_bytes is not None and conditions.swap_growth_bytes > policy.swap_growth_bytes:
        yield Finding.of("JSD619", arm=arm, pair=pair, bytes=conditions.swap_growth_bytes)
    if conditions.synthetic_acceptance or _synthetic(conditions.speculative_config):
        yield Finding.of("JSD622", arm=arm, pair=pair)
    if conditions.foreign_requests:
        yield Finding.of("JSD628", arm=arm, pair=pair)
    resets = [run.concurrency for run in report.runs if run.acceptance is not None and run.acceptance.state == "reset"]
    if resets or (report.acceptance is not None and report.acceptance.state == "reset"):
        yield Finding.of("JSD627", arm=arm, pair=pair, concurrencies=resets)
    yield from _cold_start(report, arm, pair, policy)


def _failures(report: BenchReport, run: Run, arm: str, pair: int | None) -> Iterator[Finding]:
    broken = sum(not record.ok for record in report.requests_at(run.concurrency))
    failed = max(run.failed or 0, broken)
    completed = run.completed
    asked = report.config.num_prompts
    if failed:
        total = failed + completed if completed is not None else None
        share = failed / total if total else None
        yield Finding.of(
            "JSD610", arm=arm, pair=pair, concurrency=run.concurrency, failed=failed, total=total, share=share
        )
    elif completed is not None and asked is not None and completed < asked:
        yield Finding.of("JSD611", arm=arm, pair=pair, concurrency=run.concurrency, completed=completed, asked=asked)


def _synthetic(config: Any) -> bool:
    return bool(config) and (
        config.get("rejection_sample_method") == "synthetic"
        or any(str(key).startswith("synthetic_acceptance") and value for key, value in config.items())
    )


def _cold_start(report: BenchReport, arm: str, pair: int | None, policy: Policy) -> Iterator[Finding]:
    """Look at the first request alone, at concurrency 1: it is slowest of all, and by far."""
    records = [record for record in report.requests_at(1) if record.ok and record.ttft_ms]
    if len(records) < 4:
        run = report.run_at(1)
        first, usual = (None, None) if run is None else (run.ttft_ms_p99, run.ttft_ms_p50)
        if not report.requests_at(1) and first and usual and first > policy.cold_start_ratio * usual:
            yield Finding.of("JSD629", arm=arm, pair=pair, p99=first, p50=usual)
        return
    first, *rest = (record.ttft_ms or 0.0 for record in records)
    if first > max(rest) and first > policy.cold_start_ratio * median(rest):
        yield Finding.of("JSD620", arm=arm, pair=pair, first=first, median=median(rest))


# --- both arms -------------------------------------------------------------------------------------------------------


def _comparable(before: BenchReport, after: BenchReport, pair: int | None, policy: Policy) -> Iterator[Finding]:
    yield from _identity(before, after, pair)
    differing = _prompts(before, after, policy)
    if differing:
        yield Finding.of("JSD612", pair=pair, differences=differing)
    for concurrency in sorted({run.concurrency for run in before.runs} & {run.concurrency for run in after.runs}):
        runs = before.run_at(concurrency), after.run_at(concurrency)
        rates = [None if run is None else run.prefix_hit_rate for run in runs]
        if rates[0] is not None and rates[1] is not None and abs(rates[1] - rates[0]) > policy.prefix_hit_difference:
            yield Finding.of("JSD621", pair=pair, concurrency=concurrency, before=rates[0], after=rates[1])


def _identity(before: BenchReport, after: BenchReport, pair: int | None) -> Iterator[Finding]:
    """Compare model, engine, board and power mode."""
    if _differ(before.model, after.model):
        code = "JSD614" if same_but_precision(before.model, after.model) else "JSD613"
        yield Finding.of(
            code,
            pair=pair,
            before=before.model,
            after=after.model,
            before_precision=precision_of(before.model),
            after_precision=precision_of(after.model),
        )
    one, two = before.conditions, after.conditions
    engine = [("engine", before.runtime, after.runtime), ("model runner", one.model_runner, two.model_runner)]
    if one.vllm_version is not None and two.vllm_version is not None:
        engine.append(("vLLM", one.vllm_version, two.vllm_version))
    else:
        engine.append(("image", before.container, after.container))
    for what, old, new in engine:
        if _differ(old, new):
            yield Finding.of("JSD615", pair=pair, what=what, before=old, after=new)
    for what, old, new in (("module", before.variant, after.variant), ("L4T", before.l4t, after.l4t)):
        if _differ(old, new):
            yield Finding.of("JSD616", pair=pair, what=what, before=old, after=new)
    if _differ(one.power_mode, two.power_mode):
        yield Finding.of("JSD617", pair=pair, what="power mode", before=one.power_mode, after=two.power_mode)
    known = {arm: conditions for arm, conditions in (("before", one), ("after", two)) if conditions.power_mode}
    for arm, conditions in known.items():
        if len(known) == 1 and conditions.power_mode_is_max is False:
            # NVIDIA's tool warns of every mode that is not the highest, so its silence is an answer.
            both = {before.source_format, after.source_format} == {"jetson_llm_benchmark"}
            yield Finding.of(
                "JSD626", severity=None if both else Severity.WARNING, pair=pair, arm=arm, mode=conditions.power_mode
            )
    if _differ(one.clocks_locked, two.clocks_locked):
        yield Finding.of("JSD617", pair=pair, what="locked clocks", before=one.clocks_locked, after=two.clocks_locked)


def _differ(old: Any, new: Any) -> bool:
    return old is not None and new is not None and old != new


def _prompts(before: BenchReport, after: BenchReport, policy: Policy) -> list[str]:
    """Return how the prompts or what was asked about them differ."""
    differing = []
    names = [
        "input_len",
        "output_len",
        "num_prompts",
        "dataset",
        "prompts_sha256",
        "temperature",
        "ignore_eos",
        "endpoint",
    ]
    if "random" in (before.config.dataset, after.config.dataset):
        names.append("seed")
    for name in names:
        old, new = getattr(before.config, name), getattr(after.config, name)
        if _differ(old, new):
            differing.append(f"{name}: {_shown(old)} against {_shown(new)}")
    rates = before.config.request_rate, after.config.request_rate
    # Where a tool names the rate, a report without one was not limited.
    if rates[0] != rates[1] and (None not in rates or {before.source_format, after.source_format} <= _NAME_RATES):
        differing.append(f"request_rate: {_shown(rates[0] or 'unlimited')} against {_shown(rates[1] or 'unlimited')}")
    for run in before.runs:
        other = after.run_at(run.concurrency)
        if other is None:
            continue
        for what in ("input", "output"):
            old = getattr(run, f"{what}_tokens_per_request")
            new = getattr(other, f"{what}_tokens_per_request")
            if old and new and abs(new / old - 1) > policy.token_mismatch:
                differing.append(
                    f"{what} tokens a request at concurrency {run.concurrency}: {old:.1f} against {new:.1f}"
                )
    return differing


def _shown(value: Any) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 20 else str(value)


# --- what speculates -------------------------------------------------------------------------------------------------


def _speculation(before: BenchReport, after: BenchReport, pair: int | None) -> Iterator[Finding]:
    """Hold the arms to their names: one without speculation, one with it."""
    if before.conditions.speculation or "active" in _states(before):
        yield Finding.of("JSD624", pair=pair)
    states = _states(after)
    config = after.conditions.speculative_config or {}
    if "active" in states and config.get("num_speculative_tokens_per_batch_size"):
        states.discard("idle")  # a batch schedule may draft nothing where many requests share the server
    told = after.conditions.speculation
    if told is False or "idle" in states:
        yield Finding.of("JSD623", pair=pair, reason="idle" if "idle" in states else "off")
    elif "absent" in states and told is not True:
        yield Finding.of("JSD623", pair=pair, reason="absent")
    elif "absent" in states:
        yield Finding.of("JSD683")


def _states(report: BenchReport) -> set[str]:
    kept = [report.acceptance, *(run.acceptance for run in report.runs)]
    return {acceptance.state for acceptance in kept if acceptance is not None and acceptance.state is not None}
