# SPDX-License-Identifier: Apache-2.0
"""`watch` against a server that exists: exit codes for timers. The judging: tests/tune/test_drift.py."""

from __future__ import annotations

import json

import pytest

from jetson_specdec.cli import main
from jetson_specdec.loadgen import Benchmark
from jetson_specdec.testing import FakeVllm, Truth

CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
TRUTH = Truth(step_ms=10.0, acceptance=(0.8, 0.6, 0.4))


@pytest.fixture
def server():
    with FakeVllm(["Qwen/Qwen3-8B"], speculative_config=CONFIG, truth=TRUTH, time_scale=0.02) as made:
        yield made


@pytest.fixture
def reference(tmp_path):
    fake = FakeVllm(["Qwen/Qwen3-8B"], speculative_config=CONFIG, truth=TRUTH)
    benchmark = Benchmark(
        "http://x", num_prompts=4, output_len=64, connection=fake.connection(), sample_conditions=False
    )
    path = tmp_path / "on.json"
    path.write_text(json.dumps(benchmark.run().to_json()))
    return path


def watch(capsys, *words):
    code = main(["watch", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def ask(server):
    Benchmark(
        server.base_url, num_prompts=6, output_len=96, concurrency=(1,), sample_conditions=False, allow_reuse=True
    ).run()


def test_a_timer_sees_no_drift_then_drift(capsys, server, reference, tmp_path):
    words = [server.root_url, "--reference", reference, "--once", "--state", tmp_path / "state.json", "--json"]
    code, out, _ = watch(capsys, *words)
    assert (code, json.loads(out)["state"]) == (0, "unknown")
    ask(server)
    code, out, _ = watch(capsys, *words)
    assert (code, json.loads(out)["state"]) == (0, "ok"), out
    server.change(acceptance=(0.2, 0.05, 0.0))
    ask(server)
    code, out, _ = watch(capsys, *words)
    assert (code, json.loads(out)["state"]) == (30, "drift"), out
    assert "Measure again" in out


def test_a_server_that_is_gone(capsys, reference):
    code, out, _ = watch(capsys, "http://127.0.0.1:1", "--reference", reference, "--once")
    assert code == 31
    assert "cannot be reached" in out


@pytest.mark.parametrize(
    "words", [[], ["--reference", "nowhere.json"], ["--interval", "0"], ["--api-key-env", "UNSET_X"]]
)
def test_bad_options_get_one_line(capsys, reference, words):
    given = words if not words or words[0] == "--reference" else ["--reference", reference, *words]
    code, out, err = watch(capsys, "http://127.0.0.1:1", *given)
    assert (code, out) == (2, ""), err
    assert len(err.splitlines()) == 1
