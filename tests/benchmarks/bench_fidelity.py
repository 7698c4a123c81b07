# SPDX-License-Identifier: Apache-2.0
"""Does a benchmark find what the server is? TPOT and throughput against a fake server's truth.

    python tests/benchmarks/bench_fidelity.py [--rounds 3] [--output-len 1024]

In virtual time (no socket, nobody waits) only the definitions show: how figures are read. Over a socket, against a
server in a process of its own, the rest shows: what a client and a busy machine add. Answers are long, since sending
the requests one after the other is part of a run's duration but not of the server's speed. Aim: TPOT (median) and
throughput within 1 % at concurrency 1, 8 and 64. Ends with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from attrs import asdict
from fake_process import fake_server

from jetson_specdec.loadgen import Benchmark
from jetson_specdec.testing import FakeVllm, Truth

TRUTH = Truth(step_ms=20.0, batch_ms=1.0, draft_ms=1.5, verify_ms=0.1, prefill_ms_per_token=0.0)
HEAD = {"method": "eagle3", "model": "me/head", "num_speculative_tokens": 3}
AIM = 0.01


def expected(k: int, concurrency: int, tokens: int) -> tuple[float, float]:
    """Return TPOT in ms and throughput in tok/s of answers that run side by side, by the truth alone."""
    tpot = TRUTH.tpot_ms(k=k, batch=concurrency)
    first = 1000 * TRUTH.step_seconds(concurrency, 0)
    return tpot, concurrency * tokens / (first + (tokens - 1) * tpot) * 1000


def measured(concurrency: int, tokens: int, **where: object) -> tuple[float, float]:
    prompts = [f"number {index} of {concurrency}: what is it" for index in range(2 * concurrency + 2)]
    options = {"prompts": prompts, "num_prompts": concurrency, "output_len": tokens, "concurrency": concurrency}
    run = Benchmark(**where, **options, ignore_eos=True, warmup=1, sample_conditions=False).run().runs[0]
    if run.tpot_ms_p50 is None or run.throughput_tok_s is None:
        raise SystemExit(f"concurrency {concurrency}: nothing was measured")
    return run.tpot_ms_p50, run.throughput_tok_s


def line(name: str, concurrency: int, truth: tuple[float, float], found: list[tuple[float, float]]) -> bool:
    """Print one row; returns whether the aim is met."""
    texts, met = [], True
    for place, unit in ((0, "ms"), (1, "tok/s")):
        value = statistics.median(row[place] for row in found)
        error = value / truth[place] - 1
        met = met and abs(error) <= AIM
        texts.append(f"{truth[place]:9.2f} {value:9.2f} {unit:5} {error:+7.2%}")
    print(f"{name:24}{concurrency:4}   {'   '.join(texts)}   {'met' if met else 'MISSED'}", flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="over the socket; medians are shown")
    parser.add_argument("--output-len", type=int, default=1024)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--port", type=int, default=8477)
    options, _ = parser.parse_known_args()
    tokens = options.output_len
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; {tokens} tokens an answer")
    print(f"{'':24}{'c':>4}   {'TPOT: truth':>9} {'found':>7} {'':5} {'error':>7}   {'tok/s: truth':>9}")
    met = []
    for k, config in ((0, None), (3, HEAD)):
        for concurrency in options.concurrency:
            fake = FakeVllm(truth=TRUTH, speculative_config=config)
            found = measured(concurrency, tokens, connection=fake.connection())
            met.append(line(f"virtual time, k={k}", concurrency, expected(k, concurrency, tokens), [found]))
    for k, config in ((0, None), (3, HEAD)):
        with fake_server(options.port, asdict(TRUTH), speculative_config=config) as url:
            for concurrency in options.concurrency:
                rows = [measured(concurrency, tokens, base_url=url) for _ in range(options.rounds)]
                met.append(line(f"socket, k={k}", concurrency, expected(k, concurrency, tokens), rows))
    print(f"load {os.getloadavg()[0]:.2f} at the end; {'every aim is met' if all(met) else 'an aim is missed'}")
    return not all(met)


if __name__ == "__main__":
    sys.exit(main())
