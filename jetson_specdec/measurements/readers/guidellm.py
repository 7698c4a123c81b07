# SPDX-License-Identifier: Apache-2.0
"""Reports of guidellm (its JSON output, 0.2 to 0.7).

Only the `successful` section of a metric counts. `inter_token_latency_ms` is (last − first token) ÷ (tokens − 1), so
it is what the others call TPOT; `time_per_output_token_ms` includes the first token and is not. `request_latency` is
in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import BenchConfig, BenchReport, RequestRecord, Run
from jetson_specdec.measurements.readers.base import count, dig, number, positive, text

__all__ = ["GuidellmReader"]


class GuidellmReader:
    """Reads guidellm's benchmark report."""

    name = "guidellm"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether it is an object with `benchmarks` that have `metrics`."""
        benchmarks = dig(data, "benchmarks")
        return isinstance(benchmarks, list) and any(isinstance(dig(item, "metrics"), Mapping) for item in benchmarks)

    def read(self, text_: str, data: Any, where: str) -> BenchReport:
        """Return the report of its synchronous and concurrent benchmarks; those at a request rate are left out.

        Raises:
            ReportError: no benchmark with a fixed concurrency, or two with the same.
        """
        runs: list[Run] = []
        records: list[RequestRecord] = []
        models: list[str] = []
        for benchmark in data["benchmarks"]:
            concurrency = _concurrency(benchmark)
            if concurrency is None:
                continue
            if any(run.concurrency == concurrency for run in runs):
                raise ReportError("JSE606", where=where, concurrency=concurrency)
            runs.append(_run(benchmark, concurrency))
            records += _requests(benchmark, concurrency)
            for path in (("config", "backend", "model"), ("worker", "backend_model"), ("args", "model")):
                named = text(dig(benchmark, *path))
                models += [named] if named else []
        if not runs:
            raise ReportError("JSE613", where=where)
        models += [named] if (named := text(dig(data, "args", "model"))) else []
        dead = [run.concurrency for run in runs if not run.measured]
        return BenchReport(
            skill=None,
            model=models[0] if models else None,
            config=BenchConfig(dataset="random" if _synthetic(data) else None),
            runs=tuple(runs),
            requests=tuple(records),
            findings=(Finding.of("JSD602", concurrencies=dead),) if dead else (),
            source_format=self.name,
        )


def _concurrency(benchmark: Any) -> int | None:
    for path in (("config", "strategy"), ("args", "strategy"), ("scheduler", "strategy")):
        strategy = dig(benchmark, *path)
        kind = dig(strategy, "type_")
        if kind == "synchronous":
            return 1
        if kind == "concurrent":
            return count(dig(strategy, "max_concurrency")) or count(dig(strategy, "streams")) or None
    return None


def _synthetic(data: Any) -> bool:
    """Say whether prompts were made up from token counts (`prompt_tokens=…,output_tokens=…`)."""
    sources = dig(data, "args", "data")
    listed = sources if isinstance(sources, list) else [sources]
    return any("prompt_tokens" in item for item in listed if isinstance(item, (str, Mapping)))


def _median(metrics: Any, name: str, percentile: str = "p50") -> float | None:
    section = dig(metrics, name, "successful")
    found = positive(dig(section, "percentiles", percentile))
    # The median is exact where the p50 of the percentile table is rounded to a sample.
    return (positive(dig(section, "median")) or found) if percentile == "p50" else found


def _total(metrics: Any, name: str, completed: int | None) -> int | None:
    section = dig(metrics, name, "successful")
    total = positive(dig(section, "total_sum"))
    if total is None and completed:
        mean = positive(dig(section, "mean"))
        total = None if mean is None else mean * completed
    return None if total is None else round(total)


def _run(benchmark: Any, concurrency: int) -> Run:
    metrics = dig(benchmark, "metrics")
    totals = dig(metrics, "request_totals")
    made = dig(benchmark, "run_stats", "requests_made")
    state = dig(benchmark, "scheduler_state")
    completed = next(
        (value for value in map(count, (dig(totals, "successful"), dig(made, "successful"))) if value is not None),
        count(dig(state, "successful_requests")),
    )
    failures = [count(dig(totals, "errored")), count(dig(made, "errored")), count(dig(state, "errored_requests"))]
    # Where two places disagree the higher count is the careful one.
    failed = max((value for value in failures if value is not None), default=None)
    latency = _median(metrics, "request_latency")
    latency_p99 = _median(metrics, "request_latency", "p99")
    return Run(
        concurrency=concurrency,
        ttft_ms_p50=_median(metrics, "time_to_first_token_ms"),
        ttft_ms_p99=_median(metrics, "time_to_first_token_ms", "p99"),
        tpot_ms_p50=_median(metrics, "inter_token_latency_ms"),
        tpot_ms_p99=_median(metrics, "inter_token_latency_ms", "p99"),
        throughput_tok_s=positive(dig(metrics, "output_tokens_per_second", "successful", "mean")),
        e2e_latency_ms_p50=None if latency is None else latency * 1000,
        e2e_latency_ms_p99=None if latency_p99 is None else latency_p99 * 1000,
        duration_s=positive(dig(benchmark, "duration")),
        completed=completed,
        failed=failed,
        total_input_tokens=_total(metrics, "prompt_token_count", completed),
        total_output_tokens=_total(metrics, "output_token_count", completed),
    )


def _requests(benchmark: Any, concurrency: int) -> list[RequestRecord]:
    """Return raw records of completed requests, where the report keeps them."""
    listed = dig(benchmark, "requests", "successful")
    if not isinstance(listed, list):
        return []
    records = []
    starts = [number(dig(item, "request_start_time") or dig(item, "start_time")) for item in listed]
    origin = min((start for start in starts if start is not None), default=0.0)
    order = sorted(range(len(listed)), key=lambda position: (starts[position] is None, starts[position] or 0.0))
    for index, position in enumerate(order):
        item, start = listed[position], starts[position]
        latency = positive(dig(item, "request_latency"))
        records.append(
            RequestRecord(
                concurrency=concurrency,
                index=index,
                start_s=None if start is None else start - origin,
                ttft_ms=positive(dig(item, "time_to_first_token_ms")),
                tpot_ms=positive(dig(item, "inter_token_latency_ms")),
                e2e_ms=None if latency is None else latency * 1000,
                input_tokens=count(dig(item, "prompt_tokens")),
                output_tokens=count(dig(item, "output_tokens")),
            )
        )
    return records
