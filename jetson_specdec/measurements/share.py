# SPDX-License-Identifier: Apache-2.0
"""How much of a request's time is decoding, the only part that speculation can shorten?"""

from __future__ import annotations

from jetson_specdec.measurements.coherence import speed_contradicts_time
from jetson_specdec.measurements.core import BenchReport

__all__ = ["decode_share"]


def decode_share(report: BenchReport) -> float | None:
    """Return the share of a request's time at concurrency 1 that is decoding: (n − 1) · TPOT ÷ E2E.

    Args:
        report: a baseline. n is the measured answer length, else the one asked for. Where E2E is missing it is
            TTFT + (n − 1) · TPOT; so too where the median E2E is below (n − 1) · TPOT, as answers of very different
            length cause it.

    Returns:
        A fraction from 0 to 1, or None when TPOT, the answer length, or both E2E and TTFT are unknown, and where the
        report's speed and times contradict each other.
    """
    run = report.run_at(1)
    if run is None or run.tpot_ms_p50 is None or speed_contradicts_time(report) is not None:
        return None
    length = run.output_tokens_per_request or report.config.output_len
    if length is None or length <= 1:
        return None
    decode = (length - 1) * run.tpot_ms_p50
    whole = run.e2e_latency_ms_p50
    # A median E2E below the decoding time of a mean answer comes from answers of very different length.
    if whole is None or whole < decode:
        whole = None if run.ttft_ms_p50 is None else run.ttft_ms_p50 + decode
    return decode / whole if whole else None
