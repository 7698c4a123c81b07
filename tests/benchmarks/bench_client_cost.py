# SPDX-License-Identifier: Apache-2.0
"""What measuring costs the board: processor time a streamed token and peak memory, beside `vllm bench serve`.

    JETSON_SPECDEC_REAL_VLLM=VENV python tests/benchmarks/bench_client_cost.py [--rounds 3]

A `FakeVllm` in a process of its own streams one token a chunk. `jetson-specdec bench` and `vllm bench serve` (from the
virtual environment that the variable names; left out without it) take turns, each as a whole process. Marginal cost is
the processor time (user and system) of a run with three times the tokens (`--times`) less that of a run, so that
start-up does not count. vLLM's start-up takes about 15 s and varies by one: `--times 11` gives it a longer lever.
Bare sockets, which wait, receive and note the time, show how much of it no client can avoid. Aims: at most a third of
the other's processor time and a fifth of its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from fake_process import MODEL, fake_server

VLLM = "JETSON_SPECDEC_REAL_VLLM"
MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(sys.argv[1])
"""
QUESTION = "how does a board keep a steady pace while each small step adds one more word to what it has said before"


def cost(argv: list[str], log: Path) -> tuple[float, float]:
    """Run a program; returns its processor time in seconds and its peak memory in MiB, children included."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "NO_COLOR": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT, env=env)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[:4]} ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


class Ours:
    name = "jetson-specdec bench"

    def argv(self, url: str, prompts: Path, requests: int, length: int, concurrency: int, out: Path) -> list[str]:
        return [
            *(sys.executable, "-m", "jetson_specdec", "bench", url, "--prompts", str(prompts), "--ignore-eos"),
            *("--concurrency", str(concurrency), "--num-prompts", str(requests), "--output-len", str(length)),
            *("--warmup", "1", "--out", str(out), "--force"),
        ]

    def tokens(self, out: Path) -> int:
        return int(json.loads(out.read_text())["runs"][0]["total_output_tokens"])


class Bare:
    name = "(bare sockets)"

    def argv(self, url: str, prompts: Path, requests: int, length: int, concurrency: int, out: Path) -> list[str]:
        port = url.rpartition(":")[2]
        program = str(Path(__file__).with_name("bare_client.py"))
        return [sys.executable, program, port, str(requests), str(length), str(concurrency), str(out)]

    def tokens(self, out: Path) -> int:
        return int(json.loads(out.read_text())["total_output_tokens"])


class Theirs:
    name = "vllm bench serve"

    def __init__(self, folder: str, tokenizer: Path) -> None:
        self._program = str(Path(folder) / "bin" / "vllm")
        self._tokenizer = str(tokenizer)
        # It takes a model without tokenizer for one that does not generate; the smallest one there is will do.
        subprocess.run([str(Path(folder) / "bin" / "python"), "-c", MAKE_TOKENIZER, self._tokenizer], check=True)

    def argv(self, url: str, prompts: Path, requests: int, length: int, concurrency: int, out: Path) -> list[str]:
        return [
            *(self._program, "bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
            *("--base-url", url, "--model", MODEL, "--tokenizer", self._tokenizer, "--disable-tqdm"),
            *("--dataset-name", "custom", "--dataset-path", str(prompts), "--custom-output-len", str(length)),
            *("--skip-chat-template", "--disable-shuffle", "--num-prompts", str(requests), "--num-warmups", "1"),
            *("--max-concurrency", str(concurrency), "--ignore-eos", "--temperature", "0", "--seed", "1"),
            *("--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed"),
            *("--result-dir", str(out.parent), "--result-filename", out.name),
        ]

    def tokens(self, out: Path) -> int:
        return int(json.loads(out.read_text())["total_output_tokens"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=10_000, help="of the shorter run")
    parser.add_argument("--times", type=int, default=3, help="how many times as many tokens the longer run has")
    parser.add_argument("--output-len", type=int, default=500)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--step-ms", type=float, default=2.0, help="of the server; longer with concurrency")
    parser.add_argument("--port", type=int, default=8479)
    options, _ = parser.parse_known_args()
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the start")
    requests = options.tokens // options.output_len
    found: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools: list[Ours | Bare | Theirs] = [Ours(), Bare()]
        if os.environ.get(VLLM):
            tools.append(Theirs(os.environ[VLLM], folder / "tokenizer"))
        else:
            print(f"{Theirs.name}: left out, since {VLLM} names no virtual environment with vLLM")
        prompts = folder / "prompts.jsonl"
        rows = [{"prompt": f"number {index}: {QUESTION}"} for index in range(options.times * requests + 1)]
        prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
        for concurrency in options.concurrency:
            with fake_server(options.port, {"step_ms": options.step_ms * concurrency**0.5, "batch_ms": 0.0}) as url:
                for _ in range(options.rounds):
                    for tool in tools:
                        seconds, peak = [], 0.0
                        for count in (requests, options.times * requests):
                            out = folder / "result.json"
                            argv = tool.argv(url, prompts, count, options.output_len, concurrency, out)
                            used, peak = cost(argv, folder / "log.txt")
                            got = tool.tokens(out)
                            if got != count * options.output_len:
                                raise SystemExit(f"{tool.name} counted {got} tokens")
                            seconds.append(used)
                        found.setdefault((tool.name, concurrency), []).append((*seconds, peak))
    further = (options.times - 1) * requests * options.output_len
    print(f"medians of {options.rounds} interleaved rounds; load {os.getloadavg()[0]:.2f} at the end")
    print(f"{'':24}{'c':>3}{'CPU s / 10 000 tokens':>23}{'each round':>30}{'CPU s, shorter run':>20}{'peak MiB':>10}")
    shown: dict[tuple[str, int], tuple[float, float]] = {}
    for (tool_name, concurrency), rows_ in found.items():
        short, long, peaks = (statistics.median(values) for values in zip(*rows_, strict=True))
        # The difference of medians: an odd start-up counts less than in a median of differences.
        marginal = (long - short) / further * 10_000
        each = " ".join(f"{(row[1] - row[0]) / further * 10_000:.2f}" for row in rows_)
        shown[tool_name, concurrency] = marginal, peaks
        print(f"{tool_name:24}{concurrency:3}{marginal:23.3f}{each:>30}{short:20.2f}{peaks:10.0f}")
    for concurrency in options.concurrency if len(tools) == 3 else ():
        ours, theirs = shown[tools[0].name, concurrency], shown[tools[2].name, concurrency]
        print(
            f"concurrency {concurrency}: {ours[0] / theirs[0]:.2f} of its processor time (aim <= 0.33), "
            f"{ours[1] / theirs[1]:.2f} of its memory (aim <= 0.20)"
        )


if __name__ == "__main__":
    main()
