# SPDX-License-Identifier: Apache-2.0
"""The file that `vllm bench serve --save-result` writes, one run; with `--save-detailed` raw lists as well.

Key names and their meaning: vLLM 0.32 `benchmarks/serve.py`. Rates of acceptance are percentages there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import Acceptance, BenchConfig, BenchReport, Conditions, RequestRecord, Run
from jetson_specdec.measurements.readers.base import count, endpoint_kind, number, positive, text

__all__ = ["VllmBenchJsonReader"]


class VllmBenchJsonReader:
    """Reads the result file of vLLM's own benchmark."""

    name = "vllm_bench_json"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether the object (or the last of a list, or of JSON lines) has this benchmark's keys."""
        return _is_result(data) or _results(text, data) is not None

    def read(self, text_: str, data: Any, where: str) -> BenchReport:
        """Return the report; `--append-result` files hold several runs.

        Raises:
            ReportError: two runs have the same concurrency, or none says its concurrency.
        """
        from jetson_specdec.measurements.merge import merge_reports

        results = [data] if _is_result(data) else _results(text_, data) or []
        reports = [_one(result, where) for result in results]
        try:
            return reports[0] if len(reports) == 1 else merge_reports(reports)
        except ReportError as error:
            if error.code == "JSE606":
                raise ReportError("JSE606", where=where, concurrency=error.values["concurrency"]) from error
            raise


def _is_result(data: Any) -> bool:
    return isinstance(data, Mapping) and "output_throughput" in data and ("completed" in data or "backend" in data)


def _results(text: str, data: Any) -> list[Any] | None:
    """Return the results of a list or of JSON lines, or None."""
    if data is None:
        from jetson_specdec.measurements.serial import parse_json

        try:
            data = [parse_json(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return None
    if isinstance(data, list) and data and all(_is_result(item) for item in data):
        return data
    return None


def _one(data: Mapping[str, Any], where: str) -> BenchReport:
    concurrency = count(data.get("max_concurrency"))
    if not concurrency:
        raise ReportError("JSE613", where=where)
    completed, failed = count(data.get("completed")), count(data.get("failed"))
    asked = count(data.get("num_prompts"))
    if failed is None and asked is not None and completed is not None and asked > completed:
        failed = asked - completed
    total_input = count(data.get("total_input_tokens")) or None
    total_output = count(data.get("total_output_tokens")) or None
    acceptance = _acceptance(data)
    run = Run(
        concurrency=concurrency,
        ttft_ms_p50=_figure(data, "ttft", 50),
        ttft_ms_p99=_figure(data, "ttft", 99),
        itl_ms_p50=_figure(data, "itl", 50),
        itl_ms_p99=_figure(data, "itl", 99),
        tpot_ms_p50=_figure(data, "tpot", 50),
        tpot_ms_p99=_figure(data, "tpot", 99),
        throughput_tok_s=positive(data.get("output_throughput")),
        e2e_latency_ms_p50=_figure(data, "e2el", 50),
        e2e_latency_ms_p99=_figure(data, "e2el", 99),
        duration_s=positive(data.get("duration")),
        completed=completed,
        failed=failed,
        total_input_tokens=total_input,
        total_output_tokens=total_output,
        acceptance=acceptance,
    )
    findings = [] if run.measured else [Finding.of("JSD602", concurrencies=[concurrency])]
    return BenchReport(
        skill=None,
        runtime="vllm",
        model=text(data.get("model_id")),
        config=BenchConfig(
            num_prompts=asked,
            seed=count(data.get("seed")),
            request_rate=positive(data.get("request_rate")),
            endpoint=endpoint_kind(data.get("backend") or data.get("endpoint_type")),
        ),
        runs=(run,),
        acceptance=acceptance,
        conditions=Conditions(speculation=True if acceptance is not None and acceptance.state == "active" else None),
        requests=_requests(data, concurrency),
        findings=tuple(findings),
        source_format=VllmBenchJsonReader.name,
    )


def _figure(data: Mapping[str, Any], name: str, percentile: int) -> float | None:
    found = positive(data.get(f"p{percentile}_{name}_ms"))
    return positive(data.get(f"median_{name}_ms")) if found is None and percentile == 50 else found


def _acceptance(data: Mapping[str, Any]) -> Acceptance | None:
    drafts = number(data.get("spec_decode_num_drafts"))
    drafted = number(data.get("spec_decode_draft_tokens"))
    accepted = number(data.get("spec_decode_accepted_tokens"))
    rates = data.get("spec_decode_per_position_acceptance_rates")
    per_position = [number(rate) for rate in rates] if isinstance(rates, list) else None
    positions = None
    if per_position and None not in per_position:
        positions = tuple(rate for rate in per_position if rate is not None)
    if drafts is not None and drafted is not None and accepted is not None:
        counts = None if positions is None else [rate * drafts for rate in positions]
        return Acceptance.from_counts(
            drafts=drafts,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            accepted_per_position=counts,
            source="bench",
        )
    percent = number(data.get("spec_decode_acceptance_rate"))
    length = positive(data.get("spec_decode_acceptance_length"))
    if percent is None and length is None:
        return None
    rate = None if percent is None else percent / 100
    return Acceptance(rate=rate, mean_length=length, per_position=positions, state="active", source="bench")


def _requests(data: Mapping[str, Any], concurrency: int) -> tuple[RequestRecord, ...]:
    """Return raw records from the lists that `--save-detailed` adds."""
    ttfts, itls, outputs = data.get("ttfts"), data.get("itls"), data.get("output_lens")
    if not (isinstance(ttfts, list) and isinstance(outputs, list) and len(ttfts) == len(outputs)):
        return ()

    def at(name: str, index: int) -> Any:
        values = data.get(name)
        return values[index] if isinstance(values, list) and len(values) == len(ttfts) else None

    starts = [value for value in (number(at("start_times", i)) for i in range(len(ttfts))) if value is not None]
    origin = min(starts, default=0.0)
    records = []
    for index, (first, length) in enumerate(zip(ttfts, outputs, strict=True)):
        error = text(at("errors", index))
        tokens = count(length)
        ttft = positive(first)
        gaps = at("itls", index) if isinstance(itls, list) else None
        steps = [number(gap) for gap in gaps] if isinstance(gaps, list) else None
        rest = sum(step for step in steps if step is not None) if steps is not None and None not in steps else None
        e2e = None if ttft is None or rest is None else (ttft + rest) * 1000
        tpot = rest * 1000 / (tokens - 1) if rest is not None and tokens is not None and tokens > 1 else None
        start = number(at("start_times", index))
        records.append(
            RequestRecord(
                concurrency=concurrency,
                index=index,
                start_s=None if start is None else start - origin,
                ttft_ms=None if ttft is None else ttft * 1000,
                tpot_ms=tpot,
                e2e_ms=e2e,
                input_tokens=count(at("input_lens", index)),
                output_tokens=tokens,
                chunks=None if steps is None else len(steps) + 1,
                ok=error is None and bool(tokens),
                error=None if error is None else error.strip().splitlines()[-1][:200],
            )
        )
    return tuple(records)
