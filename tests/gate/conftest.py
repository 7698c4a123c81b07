# SPDX-License-Identifier: Apache-2.0
import random
import statistics

import pytest

from jetson_specdec.measurements import BenchConfig, BenchReport, Conditions, RequestRecord, Run


@pytest.fixture(scope="session")
def point_report():
    """Make a report of point values: {concurrency: (tok/s, TPOT ms)}."""

    def make(figures, **more):
        runs = [
            Run(concurrency=concurrency, throughput_tok_s=throughput, tpot_ms_p50=tpot)
            for concurrency, (throughput, tpot) in figures.items()
        ]
        return BenchReport(**{"model": "org/target", "runs": tuple(runs), **more})

    return make


@pytest.fixture(scope="session")
def measured_report():
    """Make a report with raw records: decoding `speed` times as fast as 50 ms a token, for each concurrency."""

    def make(speeds, *, seed, requests=24, tokens=100, noise=0.05, ttft=100.0, conditions=None, **more):
        draw = random.Random(seed)
        runs, records = [], []
        for concurrency, speed in speeds.items():
            own = []
            for index in range(requests):
                tpot = 50.0 * (concurrency**0.5) / speed * draw.lognormvariate(0, noise)
                own.append(
                    RequestRecord(
                        concurrency=concurrency,
                        index=index,
                        prompt_id=f"p{index}",
                        category=("code", "chat")[index % 2],
                        ttft_ms=ttft * draw.lognormvariate(0, noise),
                        tpot_ms=tpot,
                        e2e_ms=ttft + (tokens - 1) * tpot,
                        input_tokens=64,
                        output_tokens=tokens,
                    )
                )
            seconds = sum(record.e2e_ms for record in own) / 1000 / concurrency
            runs.append(
                Run(
                    concurrency=concurrency,
                    throughput_tok_s=requests * tokens / seconds,
                    tpot_ms_p50=statistics.median(record.tpot_ms for record in own),
                    ttft_ms_p50=statistics.median(record.ttft_ms for record in own),
                    duration_s=seconds,
                    completed=requests,
                    failed=0,
                    total_input_tokens=64 * requests,
                    total_output_tokens=tokens * requests,
                )
            )
            records += own
        return BenchReport(
            model="org/target",
            runs=tuple(runs),
            requests=tuple(records),
            config=more.pop("config", BenchConfig(num_prompts=requests, dataset="ours", temperature=0.0)),
            conditions=conditions or Conditions(),
            **more,
        )

    return make
