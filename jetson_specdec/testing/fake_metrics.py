# SPDX-License-Identifier: Apache-2.0
"""The `/metrics` text of a fake server: the names and labels vLLM 0.32 prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetson_specdec.testing.fake_app import FakeApp

__all__ = ["metrics_text"]

_CREATED = 1.75e9


def metrics_text(app: FakeApp) -> str:
    """Return the Prometheus text of an app's counters; without log statistics vLLM shows none of its own."""
    if app.settings.disable_log_stats:
        return ""
    counts, engine = app.engine.counts, app.engine
    labels = {"engine": "0", "model_name": app.settings.name}
    lines: list[str] = []
    if engine.k:
        _counter(lines, "spec_decode_num_drafts", "Number of spec decoding drafts.", labels, {(): counts.drafts})
        _counter(lines, "spec_decode_num_draft_tokens", "Number of draft tokens.", labels, {(): counts.draft_tokens})
        _counter(
            lines,
            "spec_decode_num_accepted_tokens",
            "Number of accepted tokens.",
            labels,
            {(): counts.accepted_tokens},
        )
        _counter(
            lines,
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            labels,
            {(("position", str(i)),): value for i, value in enumerate(counts.accepted_per_position)},
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
        _counter(lines, name, text, labels, {(): value})
    _counter(
        lines,
        "request_success",
        "Count of successfully processed requests.",
        labels,
        {(("finished_reason", reason),): counts.finished[reason] for reason in ("stop", "length", "abort", "error")},
    )
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
) -> None:
    for suffix, kind in (("total", "counter"), ("created", "gauge")):
        lines += [f"# HELP vllm:{name}_{suffix} {text}", f"# TYPE vllm:{name}_{suffix} {kind}"]
        for extra, value in values.items():
            shown = value if suffix == "total" else _CREATED
            lines.append(_sample(f"{name}_{suffix}", {**labels, **dict(extra)}, shown))


def _gauge(lines: list[str], name: str, text: str, labels: Mapping[str, str], value: float) -> None:
    lines += [f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} gauge", _sample(name, labels, value)]
