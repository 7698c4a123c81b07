# SPDX-License-Identifier: Apache-2.0
"""Aggregated exports of aiperf and of its predecessor genai-perf.

Here `inter_token_latency` is per token, so it is the TPOT (pieces are `inter_chunk_latency`). `output_token_throughput`
is that of the system; the one `per_user` is not used. Every figure carries its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import BenchConfig, BenchReport, Run
from jetson_specdec.measurements.readers.base import count, dig, endpoint_kind, number, positive, text

__all__ = ["AiperfReader"]

_TO_MS: Final = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
_PER_SECOND: Final = ("tokens/sec", "tokens/s", "tokens/second", "token/sec", "tok/s")
_CONCURRENCY: Final = (
    ("loadgen", "concurrency"),
    ("perf_analyzer", "stimulus", "concurrency"),
    ("stimulus", "concurrency"),
    ("concurrency",),
)


class AiperfReader:
    """Reads `profile_export_aiperf.json` and `profile_export_genai_perf.json`."""

    name = "aiperf"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether it is the aggregate, or the per-request file (which `read` then refuses by name)."""
        metrics = _metrics(data)
        if isinstance(dig(metrics, "output_token_throughput"), Mapping):
            return isinstance(dig(metrics, "output_token_throughput", "unit"), str)
        return _is_record_file(text)

    def read(self, text_: str, data: Any, where: str) -> BenchReport:
        """Return the report.

        Raises:
            ReportError: it is the per-request file, or does not say its concurrency.
        """
        metrics = _metrics(data)
        if not isinstance(dig(metrics, "output_token_throughput"), Mapping):
            raise ReportError("JSE614", where=where)
        config = dig(data, "input_config")
        concurrency = next((found for path in _CONCURRENCY if (found := count(dig(config, *path)))), None)
        if concurrency is None:
            raise ReportError("JSE613", where=where)
        completed = count(dig(metrics, "request_count", "avg"))
        run = Run(
            concurrency=concurrency,
            ttft_ms_p50=_ms(metrics, "time_to_first_token", "p50"),
            ttft_ms_p99=_ms(metrics, "time_to_first_token", "p99"),
            itl_ms_p50=_ms(metrics, "inter_chunk_latency", "p50"),
            itl_ms_p99=_ms(metrics, "inter_chunk_latency", "p99"),
            tpot_ms_p50=_ms(metrics, "inter_token_latency", "p50"),
            tpot_ms_p99=_ms(metrics, "inter_token_latency", "p99"),
            throughput_tok_s=_tokens_per_second(metrics),
            e2e_latency_ms_p50=_ms(metrics, "request_latency", "p50"),
            e2e_latency_ms_p99=_ms(metrics, "request_latency", "p99"),
            duration_s=_seconds(metrics, "benchmark_duration"),
            completed=completed,
            failed=_failed(data, metrics, config, completed),
            total_input_tokens=_total(metrics, "input_sequence_length", completed),
            total_output_tokens=_total(metrics, "output_sequence_length", completed),
        )
        return BenchReport(
            skill=None,
            model=_model(config),
            config=BenchConfig(
                num_prompts=count(dig(config, "loadgen", "request_count")),
                request_rate=positive(dig(config, "loadgen", "request_rate")),
                endpoint=endpoint_kind(dig(config, "endpoint", "type")),
            ),
            runs=(run,),
            findings=() if run.measured else (Finding.of("JSD602", concurrencies=[concurrency]),),
            source_format=self.name,
        )


def _metrics(data: Any) -> Any:
    """Return where the figures are: at the top, or under `records` in some releases."""
    records = dig(data, "records")
    return records if isinstance(dig(records, "output_token_throughput"), Mapping) else data


def _is_record_file(text: str) -> bool:
    from jetson_specdec.measurements.serial import parse_json

    line = text.lstrip().split("\n", 1)[0]
    try:
        first = parse_json(line)
    except ValueError:
        return False
    return isinstance(dig(first, "metadata"), Mapping) and "session_num" in first["metadata"] and "metrics" in first


def _ms(metrics: Any, name: str, which: str) -> float | None:
    value = positive(dig(metrics, name, which))
    factor = _TO_MS.get(str(dig(metrics, name, "unit")).lower())
    return None if value is None or factor is None else value * factor


def _tokens_per_second(metrics: Any) -> float | None:
    unit = str(dig(metrics, "output_token_throughput", "unit")).lower()
    return positive(dig(metrics, "output_token_throughput", "avg")) if unit in _PER_SECOND else None


def _seconds(metrics: Any, name: str) -> float | None:
    value = _ms(metrics, name, "avg")
    return None if value is None else value / 1000


def _total(metrics: Any, name: str, completed: int | None) -> int | None:
    mean = positive(dig(metrics, name, "avg"))
    return round(mean * completed) if mean is not None and completed else None


def _failed(data: Any, metrics: Any, config: Any, completed: int | None) -> int | None:
    told = count(dig(metrics, "error_request_count", "avg"))
    if told is not None:
        return told
    summary = dig(data, "error_summary")
    if isinstance(summary, list):
        return sum(count(dig(item, "count")) or 0 for item in summary)
    asked = number(dig(config, "loadgen", "request_count"))
    # Cancelled and failed requests are not in the count of the aggregate.
    return int(asked - completed) if asked is not None and completed is not None and asked >= completed else None


def _model(config: Any) -> str | None:
    for path in (("endpoint", "model_names"), ("model_names",), ("model",)):
        found = dig(config, *path)
        named = text(found[0] if isinstance(found, list) and found else found)
        if named:
            return named
    return None
