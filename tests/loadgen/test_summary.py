# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.loadgen import summarise
from jetson_specdec.loadgen.summary import percentile
from jetson_specdec.measurements import RequestRecord


def record(index, *, ttft, e2e, tokens, times=None, ok=True):
    return RequestRecord(
        concurrency=2,
        index=index,
        ttft_ms=ttft,
        e2e_ms=e2e if ok else None,
        tpot_ms=(e2e - ttft) / (tokens - 1) if ok and tokens else None,
        input_tokens=10,
        output_tokens=tokens,
        chunk_times_ms=times,
        ok=ok,
        error=None if ok else "boom",
    )


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.sampled_from([0, 50, 90, 99, 100]))
def test_percentile_is_numpys(values, p):
    assert percentile(values, p) == pytest.approx(float(np.percentile(values, p)), rel=1e-9, abs=1e-6)


def test_percentile_of_nothing_is_unknown():
    assert percentile([], 50) is None
    assert percentile([None], 50) is None


def test_run():
    records = [
        record(0, ttft=100, e2e=1000, tokens=10, times=(100.0, 400.0, 1000.0)),
        record(1, ttft=200, e2e=1400, tokens=13, times=(200.0, 1400.0)),
        record(2, ttft=300, e2e=0, tokens=None, times=(300.0,), ok=False),
    ]
    run = summarise(records, concurrency=2, duration_s=4.0)
    assert (run.completed, run.failed) == (2, 1)
    assert run.total_output_tokens == 23
    assert run.throughput_tok_s == pytest.approx(23 / 4)
    assert run.ttft_ms_p50 == pytest.approx(150)  # the failed request counts nowhere
    assert run.tpot_ms_p50 == pytest.approx(100)
    assert run.e2e_latency_ms_p50 == pytest.approx(1200)
    assert run.itl_ms_p50 == pytest.approx(600)  # gaps 300, 600 and 1200
    assert run.ttft_ms_p90 == pytest.approx(float(np.percentile([100, 200], 90)))
    assert run.e2e_latency_ms_p99 == pytest.approx(float(np.percentile([1000, 1400], 99)))
    assert run.total_input_tokens == 20


def test_one_uncounted_answer_makes_throughput_unknown():
    records = [record(0, ttft=1, e2e=9, tokens=5), record(1, ttft=1, e2e=9, tokens=None)]
    run = summarise(records, concurrency=2, duration_s=1.0)
    assert run.throughput_tok_s is None
    assert run.total_output_tokens is None
    assert run.tpot_ms_p50 == pytest.approx(2)


def test_nothing_completed():
    run = summarise([record(0, ttft=1, e2e=0, tokens=None, ok=False)], concurrency=2, duration_s=1.0)
    assert (run.completed, run.failed, run.throughput_tok_s, run.tpot_ms_p50) == (0, 1, None, None)
    assert run.measured is False
