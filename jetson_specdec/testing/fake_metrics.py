# SPDX-License-Identifier: Apache-2.0
"""The `/metrics` text of a fake server: the names and labels vLLM 0.32 prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jetson_specdec.testing.fake_engine import STEP_EDGES

if TYPE_CHECKING:
    from jetson_specdec.testing.fake_app import FakeApp

__all__ = ["metrics_text"]


def metrics_text(app: FakeApp) -> str:
    """Return the Prometheus text of an app's counters; without log statistics vLLM shows none of its own."""
    if app.settings.disable_log_stats:
        return ""
    counts, engine = app.engine.counts, app.engine
    labels = {"engine": "0", "model_name": app.settings.name}
    lines: list[str] = [
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.",
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {app.started}",
    ]
    if engine.k:
        _counter(
            lines,
            "spec_decode_num_drafts",
            "Number of spec decoding drafts.",
            labels,
            {(): counts.drafts},
            created=app.started,
        )
        _counter(
            lines,
            "spec_decode_num_draft_tokens",
            "Number of draft tokens.",
            labels,
            {(): counts.draft_tokens},
            created=app.started,
        )
        _counter(
            lines,
            "spec_decode_num_accepted_tokens",
            "Number of accepted tokens.",
            labels,
            {(): counts.accepted_tokens},
            created=app.started,
        )
        _counter(
            lines,
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            labels,
            {(("position", str(i)),): value for i, value in enumerate(counts.accepted_per_position)},
            created=app.started,
        )
    _gauge(lines, "num_requests_running", "Number of requests in model execution batches.", labels, len(engine.running))
    _gauge(lines, "num_requests_waiting", "Number of requests waiting to be processed.", labels, len(engine.waiting))
    _gauge(
        lines, "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", labels, 0.004 * len(engine.running)
    )
    for name, text, value in (
        ("prefix_cache_queries", "Prefix cache queries, in terms of number of queried tokens.", counts.prefix_queries),
        ("prefix_cache_hits", "Prefix cache hits, in terms of number of cached tokens.", counts.prefix_hits),
        ("num_preemptions", "Cumulative number of preemption from the engine.", counts.preemptions),
        ("prompt_tokens", "Number of prefill tokens processed.", counts.prompt_tokens),
        ("generation_tokens", "Number of generation tokens processed.", counts.generation_tokens),
    ):
        _counter(lines, name, text, labels, {(): value}, created=app.started)
    _counter(
        lines,
        "request_success",
        "Count of successfully processed requests.",
        labels,
        {(("finished_reason", reason),): counts.finished[reason] for reason in ("stop", "length", "abort", "error")},
        created=app.started,
    )
    for name, text, count, total in (
        (
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            counts.first_tokens,
            counts.first_token_seconds,
        ),
        ("inter_token_latency_seconds", "Histogram of inter-token latency.", counts.gaps, counts.gap_seconds),
        (
            "request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            counts.request_tpots,
            counts.request_tpot_seconds,
        ),
    ):
        _histogram(lines, name, text, labels, {"+Inf": count}, total, created=app.started)
    steps = {
        str(edge) if math.isfinite(edge) else "+Inf": sum(counts.steps_of[each] for each in STEP_EDGES if each <= edge)
        for edge in STEP_EDGES
    }
    text = "Histogram of number of tokens per engine_step."
    _histogram(lines, "iteration_tokens_total", text, labels, steps, counts.step_tokens, created=app.started)
    caching = str(app.settings.enable_prefix_caching)
    lines += [
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig",
        "# TYPE vllm:cache_config_info gauge",
        f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",enable_prefix_caching="{caching}",engine="0",'
        f'gpu_memory_utilization="{app.settings.gpu_memory_utilization:g}"}} 1.0',
    ]
    return "\n".join(lines) + "\n"


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels))
    return f"vllm:{name}{{{inner}}} {float(value)}"


def _counter(
    lines: list[str],
    name: str,
    text: str,
    labels: Mapping[str, str],
    values: Mapping[tuple[tuple[str, str], ...], float],
    *,
    created: float,
) -> None:
    for suffix, kind in (("total", "counter"), ("created", "gauge")):
        lines += [f"# HELP vllm:{name}_{suffix} {text}", f"# TYPE vllm:{name}_{suffix} {kind}"]
        for extra, value in values.items():
            shown = value if suffix == "total" else created
            lines.append(_sample(f"{name}_{suffix}", {**labels, **dict(extra)}, shown))


def _histogram(
    lines: list[str],
    name: str,
    text: str,
    labels: Mapping[str, str],
    buckets: Mapping[str, float],
    total: float,
    *,
    created: float,
) -> None:
    """Print a histogram with those of its buckets that are counted here."""
    lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} histogram"]
    lines += [_sample(f"{name}_bucket", {**labels, "le": edge}, count) for edge, count in buckets.items()]
    lines += [_sample(f"{name}_count", labels, buckets["+Inf"]), _sample(f"{name}_sum", labels, total)]
    lines += [f"# HELP vllm:{name}_created {text}", f"# TYPE vllm:{name}_created gauge"]
    lines.append(_sample(f"{name}_created", labels, created))


def _gauge(lines: list[str], name: str, text: str, labels: Mapping[str, str], value: float) -> None:
    lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} gauge", _sample(name, labels, value)]
