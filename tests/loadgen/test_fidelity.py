# SPDX-License-Identifier: Apache-2.0
"""A benchmark finds what the server is: within 1 % at concurrency 1, 8 and 64, in virtual time."""

from __future__ import annotations

import pytest

from jetson_specdec.loadgen import Benchmark
from jetson_specdec.testing import FakeVllm, Truth

HEAD = {"method": "eagle3", "model": "me/head", "num_speculative_tokens": 3}
TOKENS = 300


@pytest.mark.parametrize("concurrency", [1, 8, 64])
@pytest.mark.parametrize("config", [None, HEAD], ids=["plain", "speculative"])
def test_tpot_and_throughput_are_those_of_the_server(config, concurrency):
    truth = Truth(step_ms=20, batch_ms=1, draft_ms=1.5, verify_ms=0.1, prefill_ms_per_token=0, acceptance=(0.75, 0.5))
    step = 20 + (concurrency - 1) * 1.0
    # k=3: 4.5 ms of drafting, 0.1 ms for each of 3 drafts of each sequence; 0.75, 0.5 and 0.5 · 0.5 / 0.75 accepted.
    tpot = step if config is None else (step + 4.5 + 0.3 * concurrency) / (1 + 0.75 + 0.5 + 1 / 3)
    fake = FakeVllm(truth=truth, speculative_config=config)
    run = (
        Benchmark(
            connection=fake.connection(),
            prompts=[f"{index} what is it" for index in range(concurrency + 1)],
            num_prompts=concurrency,
            concurrency=concurrency,
            output_len=TOKENS,
            warmup=1,
            sample_conditions=False,
        )
        .run()
        .runs[0]
    )
    assert run.completed == concurrency
    assert run.tpot_ms_p50 == pytest.approx(tpot, rel=0.01)
    assert run.throughput_tok_s == pytest.approx(concurrency * TOKENS / (step + (TOKENS - 1) * tpot) * 1000, rel=0.01)
