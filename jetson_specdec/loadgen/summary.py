# SPDX-License-Identifier: Apache-2.0
"""All requests of one concurrency, summed up as `vllm bench serve` does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jetson_specdec.measurements import Acceptance, RequestRecord, Run

__all__ = ["percentile", "summarise"]


def percentile(values: Iterable[float | None], p: float) -> float | None:
    """Return the p-th percentile (0–100), interpolated linearly as numpy does; None without values."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    place = (len(known) - 1) * p / 100.0
    low = int(place)
    high = min(low + 1, len(known) - 1)
    return known[low] + (known[high] - known[low]) * (place - low)


def summarise(
    records: Sequence[RequestRecord],
    *,
    concurrency: int,
    duration_s: float,
    acceptance: Acceptance | None = None,
    preemptions: float | None = None,
    prefix_cache_queries: float | None = None,
    prefix_cache_hits: float | None = None,
) -> Run:
    """Sum up a run.

    Speeds and latencies are over completed requests, `duration_s` is that of the whole run, failures included. If any
    completed request has an unknown number of tokens, throughput is unknown: a sum that leaves it out would be wrong.

    Args:
        records: of this run, failed ones too.
        concurrency: requests in flight.
        duration_s: from the first sending to the end of the last answer, seconds.
        acceptance: during this run.
        preemptions: counted by the server during this run.
        prefix_cache_queries: tokens, counted likewise.
        prefix_cache_hits: tokens, counted likewise.
    """
    done = [record for record in records if record.ok]
    tokens = [record.output_tokens for record in done]
    prompts = [record.input_tokens for record in done]
    total = sum(count for count in tokens if count is not None) if done and None not in tokens else None
    gaps = [
        later - earlier
        for record in done
        for earlier, later in zip(record.chunk_times_ms or (), (record.chunk_times_ms or ())[1:], strict=False)
    ]
    figures: dict[str, float | None] = {}
    for name, values in (
        ("ttft_ms", [record.ttft_ms for record in done]),
        ("itl_ms", gaps),
        ("tpot_ms", [record.tpot_ms for record in done]),
        ("e2e_latency_ms", [record.e2e_ms for record in done]),
    ):
        for p in (50, 90, 99):
            figures[f"{name}_p{p}"] = percentile(values, p)
    return Run(
        concurrency=concurrency,
        **figures,
        throughput_tok_s=total / duration_s if total is not None and duration_s > 0 else None,
        duration_s=duration_s,
        completed=len(done),
        failed=len(records) - len(done),
        total_input_tokens=sum(count for count in prompts if count is not None)
        if done and None not in prompts
        else None,
        total_output_tokens=total,
        acceptance=acceptance,
        preemptions=preemptions,
        prefix_cache_queries=prefix_cache_queries,
        prefix_cache_hits=prefix_cache_hits,
    )
