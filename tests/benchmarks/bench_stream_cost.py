# SPDX-License-Identifier: Apache-2.0
"""What a streamed chunk costs the client: raw bytes with a time stamp, against parsed chunk objects.

    python tests/benchmarks/bench_stream_cost.py [--rounds 9]

A `FakeVllm` in a process of its own streams long answers; both ways take turns in one process, and what counts is the
processor time of this process, so other load matters little.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from fake_process import fake_server

from jetson_specdec.loadgen import Prompt
from jetson_specdec.loadgen.client import Client
from jetson_specdec.loadgen.connection import Network
from jetson_specdec.loadgen.stream import read_answer


async def raw(client: Client, tokens: int) -> tuple[float, float, int]:
    """Receive as the load generator does; returns CPU seconds while streaming, those of reading afterwards, chunks."""
    begin = time.process_time()
    reception = await client.send(Prompt(id="x", text="go"), tokens)
    middle = time.process_time()
    answer = read_answer(reception.pieces, failure=reception.failure)
    assert answer.ok, answer.error
    return middle - begin, time.process_time() - middle, len(answer.times_s)


async def parsed(client: Client, tokens: int) -> tuple[float, float, int]:
    """Receive chunk objects, with the same time stamps."""
    begin = time.process_time()
    stream = await client._openai.chat.completions.create(**client._body(Prompt(id="x", text="go"), tokens))
    times, texts = [], []
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            times.append(time.perf_counter())
            texts.append(chunk.choices[0].delta.content)
    return time.process_time() - begin, 0.0, len(times)


async def compare(url: str, rounds: int, tokens: int) -> dict[str, list[float]]:
    client = Client(base_url=url, connection=Network())
    await client.open()
    await client.find_model()
    found: dict[str, list[float]] = {"raw": [], "raw_reading": [], "parsed": []}
    for way in (raw, parsed):
        await way(client, tokens)  # imports and caches
    for _ in range(rounds):
        streaming, reading, chunks = await raw(client, tokens)
        found["raw"].append(1e6 * streaming / chunks)
        found["raw_reading"].append(1e6 * reading / chunks)
        streaming, _, chunks = await parsed(client, tokens)
        found["parsed"].append(1e6 * streaming / chunks)
    await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--port", type=int, default=8479)
    options, _ = parser.parse_known_args()
    with fake_server(options.port, {"step_ms": 2.0}) as url:
        found = asyncio.run(compare(url, options.rounds, options.tokens))
    for name, values in found.items():
        print(f"{name:12} {statistics.median(values):7.1f} us a chunk  (min {min(values):.1f}, max {max(values):.1f})")
    ratio = statistics.median(found["parsed"]) / statistics.median(found["raw"])
    print(f"parsed / raw while streaming: {ratio:.2f}")


if __name__ == "__main__":
    main()
