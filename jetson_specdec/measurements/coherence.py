# SPDX-License-Identifier: Apache-2.0
"""Do the figures of a report fit each other?

A time in seconds beside a speed in tokens a second, a sum that is not the sum of its records: such a report was
broken, edited or read in the wrong unit, and nothing can be decided on it. Only contradictions far beyond noise count:
medians stand beside means, answers differ in length and servers pause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from attrs import field

from jetson_specdec.measurements.core import BenchReport, RequestRecord, Run
from jetson_specdec.values import frozen

__all__ = ["Contradiction", "contradictions", "speed_contradicts_time"]

_FACTOR: Final = 1.5
"""Figures that should be equal may differ by this."""
_SLOWER: Final = 2.0
"""A single stream may be slower than its medians say by this: pauses, and a few slow requests."""
_SLOWER_SHARED: Final = 10.0
"""With several streams the last wave is seldom full, and the server may take fewer at once."""
_SUMMARY: Final = 2.0
"""A summary may leave out what the records hold, such as requests of a warm-up."""
_UNKNOWN_PREFILL: Final = 50.0
"""So much of the time may be prefill where nobody measured it."""
_MEDIAN_AGAINST_MEAN: Final = 10.0
"""Of answers of very different length."""


@frozen(kw_only=True)
class Contradiction:
    """Two figures that cannot both be true.

    Attributes:
        code: of the finding that says so.
        concurrency: of the run.
        values: what the finding shows.
    """

    code: str
    concurrency: int
    values: Mapping[str, Any] = field(factory=dict)


def contradictions(report: BenchReport) -> Iterator[Contradiction]:
    """Yield what cannot be true, run by run."""
    for run in report.runs:
        yield from _speed_and_time(report, run)
        yield from _tokens_and_duration(report, run)
        yield from _first_and_last_token(report, run)
        yield from _records(report, run)
    yield from _acceptances(report)


def speed_contradicts_time(report: BenchReport, concurrency: int = 1) -> Contradiction | None:
    """Return the first contradiction between the speed and the times of one run, or None."""
    run = report.run_at(concurrency)
    if run is None:
        return None
    checks = (_speed_and_time, _tokens_and_duration, _first_and_last_token)
    return next((found for check in checks for found in check(report, run)), None)


def _apart(one: float, two: float, factor: float = _FACTOR) -> bool:
    return one > factor * two or two > factor * one


def _length(report: BenchReport, run: Run) -> float | None:
    length = run.output_tokens_per_request or report.config.output_len
    return length if length is not None and length > 1 else None


def _speed_and_time(report: BenchReport, run: Run) -> Iterator[Contradiction]:
    """At concurrency c, c answers of n tokens take TTFT + (n − 1) · TPOT."""
    speed, tpot = run.throughput_tok_s, run.tpot_ms_p50
    if not speed or not tpot or speed < 0 or tpot < 0:
        return
    streams, length = run.concurrency, _length(report, run)
    # Tokens a second and stream, without and with the time to the first token.
    decoding = 1000 / tpot * (length / (length - 1) if length is not None else 2.0)
    whole = None
    if length is not None:
        whole = run.e2e_latency_ms_p50
        if run.ttft_ms_p50:
            whole = run.ttft_ms_p50 + (length - 1) * tpot
    if whole and length is not None:
        least = streams * 1000 * length / whole / (_SLOWER if streams == 1 else _SLOWER_SHARED)
    else:
        least = streams * 1000 / tpot / _UNKNOWN_PREFILL
    if run.failed:
        least = 0.0  # failures take time and leave no tokens; they are told on their own
    if speed > _FACTOR * streams * decoding or speed < least:
        expected = streams * 1000 * length / whole if whole and length is not None else streams * 1000 / tpot
        yield Contradiction(
            code="JSD604",
            concurrency=run.concurrency,
            values={"throughput": speed, "tpot": tpot, "expected": expected},
        )


def _tokens_and_duration(report: BenchReport, run: Run) -> Iterator[Contradiction]:
    # guidellm leaves warm-up and cool-down out of its rates, but not out of its duration.
    if report.source_format == "guidellm" or not run.throughput_tok_s or not run.total_output_tokens:
        return
    if not run.duration_s or run.duration_s < 0:
        return
    speed = run.total_output_tokens / run.duration_s
    if _apart(speed, run.throughput_tok_s):
        yield Contradiction(
            code="JSD605",
            concurrency=run.concurrency,
            values={
                "throughput": run.throughput_tok_s,
                "tokens": run.total_output_tokens,
                "seconds": run.duration_s,
                "expected": speed,
            },
        )


def _first_and_last_token(report: BenchReport, run: Run) -> Iterator[Contradiction]:
    first, last, tpot, length = run.ttft_ms_p50, run.e2e_latency_ms_p50, run.tpot_ms_p50, _length(report, run)
    if not first or not last:
        return
    # No answer ends before it begins, so neither do the medians.
    expected = first
    wrong = first > _FACTOR * last
    if not wrong and tpot and length is not None:
        expected = first + (length - 1) * tpot
        wrong = _apart(expected, last, _MEDIAN_AGAINST_MEAN)
    if wrong:
        yield Contradiction(
            code="JSD606",
            concurrency=run.concurrency,
            values={"e2e": last, "ttft": first, "tpot": tpot, "expected": expected},
        )


def _records(report: BenchReport, run: Run) -> Iterator[Contradiction]:
    """Hold the summary against the raw records it was made of."""
    records = [record for record in report.requests_at(run.concurrency) if record.ok]
    for name, unit in (("tpot_ms", "ms"), ("ttft_ms", "ms")):
        told = getattr(run, f"{name}_p50")
        values = [value for record in records if (value := getattr(record, name)) is not None]
        if told and values and _apart(median(values), told, _SUMMARY):
            yield _record_contradiction(run, f"{name}_p50", told, median(values), unit)
    if records and all(record.output_tokens for record in records) and run.completed == len(records):
        tokens = sum(record.output_tokens or 0 for record in records)
        if run.total_output_tokens and _apart(tokens, run.total_output_tokens, _SUMMARY):
            yield _record_contradiction(run, "total_output_tokens", run.total_output_tokens, tokens, "tokens")
        seconds = _seconds(records)
        if run.throughput_tok_s and seconds and _apart(tokens / seconds, run.throughput_tok_s, _SUMMARY):
            yield _record_contradiction(run, "throughput_tok_s", run.throughput_tok_s, tokens / seconds, "tok/s")


def _seconds(records: list[RequestRecord]) -> float | None:
    """Return the time from the first sending to the last token, where every record tells."""
    starts = [record.start_s for record in records if record.start_s is not None]
    ends = [
        record.start_s + record.e2e_ms / 1000
        for record in records
        if record.start_s is not None and record.e2e_ms is not None
    ]
    return max(ends) - min(starts) if len(ends) == len(records) else None


def _record_contradiction(run: Run, name: str, told: float, found: float, unit: str) -> Contradiction:
    values = {"name": name, "told": told, "found": found, "unit": unit}
    return Contradiction(code="JSD607", concurrency=run.concurrency, values=values)


def _acceptances(report: BenchReport) -> Iterator[Contradiction]:
    places = [(run.concurrency, run.acceptance) for run in report.runs]
    if report.acceptance is not None:
        places.append((report.runs[0].concurrency if report.runs else 1, report.acceptance))
    seen = set()
    for concurrency, acceptance in places:
        if acceptance is not None and (wrong := acceptance.impossible) is not None and concurrency not in seen:
            seen.add(concurrency)
            yield Contradiction(
                code="JSD608", concurrency=concurrency, values={"name": wrong, "figure": getattr(acceptance, wrong)}
            )
