# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import SpecdecError
from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics
from jetson_specdec.testing import FakeVllm, Fault, Memory, RecordedHost, Truth, VirtualTimeLoop
from jetson_specdec.testing.fake_args import ArgumentFailure, read_arguments
from jetson_specdec.testing.fake_vllm import main

EAGLE = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
FAST = {"truth": Truth(step_ms=2), "time_scale": 0.1}


def get(server, path):
    with urllib.request.urlopen(server.root_url + path, timeout=30) as reply:
        return reply.read().decode()


def post(server, path, body, key=None):
    headers = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(server.root_url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return reply.read().decode()


def complete(server, prompt, tokens=32, **more):
    body = {"model": server.model, "prompt": prompt, "max_tokens": tokens, **more}
    return json.loads(post(server, "/v1/completions", body))


# --- the truth ------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 12))
def test_further_positions_never_rise(rates, k):
    truth = Truth(acceptance=sorted(rates, reverse=True))
    found = truth.per_position(k)
    assert len(found) == k
    assert all(1 >= one >= other >= 0 for one, other in pairwise(found))


def test_geometric_acceptance():
    truth = Truth(acceptance=(0.8, 0.64))
    assert truth.per_position(4) == pytest.approx((0.8, 0.64, 0.512, 0.4096))
    assert truth.mean_acceptance_length(2) == pytest.approx(2.44)
    assert truth.acceptance_rate(2) == pytest.approx(0.72)
    assert truth.acceptance_rate(0) is None


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), st.floats(0, 1))
def test_shares_come_out_within_one_in_a_hundred(rates, offset):
    truth = Truth(acceptance=sorted(rates, reverse=True))
    k, steps = len(rates), 2000
    accepted = [truth.accepted(step, k, offset=offset) for step in range(steps)]
    for position, rate in enumerate(truth.per_position(k)):
        assert sum(count > position for count in accepted) / steps == pytest.approx(rate, abs=0.01)


def test_step_time():
    truth = Truth(step_ms=20, batch_ms=0.5, draft_ms=1.5, verify_ms=0.1, prefill_ms_per_token=0.05)
    assert truth.step_seconds(1, 0) == pytest.approx(0.020)
    assert truth.step_seconds(8, 3) == pytest.approx(0.020 + 7 * 0.0005 + 3 * 0.0015 + 24 * 0.0001)
    assert truth.step_seconds(1, 0, new_tokens=100) == pytest.approx(0.025)
    assert Truth(step_ms=20, drift_per_minute=0.1).step_seconds(1, 0, at=120) == pytest.approx(0.024)
    throttled = Truth(step_ms=20, throttle_after_s=5, throttle_factor=1.5)
    assert [throttled.step_seconds(1, 0, at=at) for at in (4.9, 5.0)] == pytest.approx([0.02, 0.03])


# --- the clock ------------------------------------------------------------------------------------------------------


def test_virtual_time():
    loop = VirtualTimeLoop()

    async def work():
        order = []

        async def nap(name, seconds):
            await asyncio.sleep(seconds)
            order.append((name, loop.time()))

        await asyncio.gather(nap("b", 3600), nap("a", 60), nap("c", 3600.5))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 10)
        return order, loop.time()

    try:
        order, end = loop.run_until_complete(work())
    finally:
        loop.close()
    assert [name for name, _ in order] == ["a", "b", "c"]
    assert [at for _, at in order] == pytest.approx([60, 3600, 3600.5])
    assert end == pytest.approx(3610.5)


# --- what it answers ------------------------------------------------------------------------------------------------


def test_pages():
    with FakeVllm(model="org/target", served_model_name="tiny", max_model_len=2048, **FAST) as server:
        assert get(server, "/health") == ""
        assert json.loads(get(server, "/version")) == {"version": "0.32.0"}
        card = json.loads(get(server, "/v1/models"))["data"][0]
        assert (card["id"], card["root"], card["max_model_len"]) == ("tiny", "org/target", 2048)
        assert json.loads(post(server, "/tokenize", {"prompt": "one two three"}))["count"] == 3
        for path, code in (("/nothing", 404), ("/v1/completions", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(server, path)
            assert caught.value.code == code
            caught.value.close()


def test_errors_as_vllm_words_them():
    with FakeVllm(max_model_len=64, api_key="sk-1", **FAST) as server:
        cases = [
            ({"model": "other", "prompt": "x"}, "sk-1", 404, "does not exist"),
            ({"prompt": "x", "max_tokens": 64}, "sk-1", 400, "maximum context length is 64 tokens"),
            ({"prompt": "x"}, "sk-2", 401, "Unauthorized"),
            ({"prompt": "x"}, None, 401, "Unauthorized"),
        ]
        for body, key, code, text in cases:
            with pytest.raises(urllib.error.HTTPError) as caught:
                post(server, "/v1/completions", body, key)
            assert caught.value.code == code
            assert text in caught.value.read().decode()


def test_same_prompt_same_answer_with_and_without_speculation():
    with FakeVllm(**FAST) as plain, FakeVllm(speculative_config=EAGLE, **FAST) as spec:
        answers = [complete(server, "tell me")["choices"][0]["text"] for server in (plain, spec, spec)]
        other = complete(plain, "tell me more")["choices"][0]["text"]
    assert answers[0] == answers[1] == answers[2] != other
    assert len(answers[0].split()) == 32


def test_metrics_tell_the_truth():
    truth = Truth(step_ms=1, acceptance=(0.8, 0.5, 0.2))
    with FakeVllm(truth=truth, time_scale=0.01, speculative_config=EAGLE) as server:
        before = get(server, "/metrics")
        for index in range(6):
            complete(server, f"{index} go", 300)
        after = get(server, "/metrics")
    metrics = SpecMetrics.delta(before, after)
    assert metrics.state == "active"
    assert metrics.mean_acceptance_length == pytest.approx(2.5, rel=0.02)
    assert metrics.acceptance_rate == pytest.approx(0.5, rel=0.02)
    assert metrics.per_position == pytest.approx((0.8, 0.5, 0.2), abs=0.02)
    counters = ServerCounters.delta(before, after)
    assert (counters.generation_tokens, counters.prompt_tokens, counters.requests) == (1800, 12, 6)
    # The engine's own log says the same.
    logged = SpecMetrics.from_log(server.log.text)
    assert logged.state in ("active", "absent")


def test_no_speculation_has_no_speculative_counters_and_disable_log_stats_none():
    with FakeVllm(**FAST) as server:
        assert SpecMetrics.delta("", get(server, "/metrics")).state == "absent"
        assert "vllm:prompt_tokens_total" in get(server, "/metrics")
    with FakeVllm(disable_log_stats=True, speculative_config=EAGLE, **FAST) as server:
        assert get(server, "/metrics") == ""


def test_log_lines_are_those_the_log_reader_knows():
    fake = FakeVllm(truth=Truth(step_ms=50, acceptance=(0.8, 0.5, 0.2)), speculative_config=EAGLE)
    from jetson_specdec.loadgen import Benchmark

    Benchmark(
        "http://fake",
        connection=fake.connection(),
        concurrency=1,
        num_prompts=10,
        output_len=200,
        prompts=[f"{i} x" for i in range(20)],
        sample_conditions=False,
    ).run()
    lines = [line for line in fake.log.lines if "SpecDecoding metrics" in line]
    assert len(lines) >= 3
    metrics = SpecMetrics.from_log(fake.log.text)
    assert metrics.mean_acceptance_length == pytest.approx(2.5, rel=0.02)
    assert metrics.per_position == pytest.approx((0.8, 0.5, 0.2), abs=0.02)
    assert re.search(r"Avg generation throughput: \d+\.\d tokens/s, Running: 1 reqs", fake.log.text)


def test_prefix_cache():
    long = " ".join(f"w{index}" for index in range(100))
    with FakeVllm(**FAST) as server:
        cached = [
            complete(server, prompt, 2)["usage"]["prompt_tokens_details"]["cached_tokens"]
            for prompt in (long, long, long + " more", "other " + long)
        ]
        post(server, "/reset_prefix_cache", {})
        cached.append(complete(server, long, 2)["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert cached == [0, 96, 96, 0, 0]
    with FakeVllm(enable_prefix_caching=False, **FAST) as server:
        assert [complete(server, long, 2)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)] == [
            0,
            0,
        ]


def test_waiting_when_full():
    """Two of four run at once; the others get their first token when a place is free."""
    from jetson_specdec.loadgen import Benchmark

    fake = FakeVllm(truth=Truth(step_ms=10, batch_ms=0, prefill_ms_per_token=0), max_num_seqs=2)
    report = Benchmark(
        "http://fake",
        connection=fake.connection(),
        concurrency=4,
        num_prompts=4,
        output_len=10,
        warmup=0,
        prompts=["a", "b", "c", "d"],
        sample_conditions=False,
    ).run()
    assert sorted(r.ttft_ms for r in report.requests) == pytest.approx([10, 10, 110, 110], abs=0.01)


def test_hanging_up_stops_the_work():
    from jetson_specdec.loadgen import Benchmark

    truth = Truth(step_ms=20)
    with FakeVllm(truth=truth) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            body = json.dumps({"prompt": "x", "max_tokens": 5000, "stream": True}).encode()
            client.sendall(b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            assert client.recv(10)
        for _ in range(500):
            if server.app.engine.counts.finished["abort"]:
                break
            time.sleep(0.02)
        assert server.app.engine.counts.finished["abort"] == 1
        report = Benchmark(
            server.base_url,
            concurrency=1,
            num_prompts=2,
            output_len=3,
            prompts=["a", "b", "c", "d"],
            sample_conditions=False,
        ).run()
    assert report.run_at(1).completed == 2


def test_change_while_running():
    fake = FakeVllm(truth=Truth(step_ms=20))
    assert fake.expected_tpot_ms() == pytest.approx(20)
    fake.change(step_ms=30)
    assert fake.expected_tpot_ms() == pytest.approx(30)
    assert fake.app.engine.truth.step_ms == 30


def test_engine_that_dies():
    with FakeVllm(faults={1: Fault("engine_dead")}, **FAST) as server:
        complete(server, "fine", 2)
        codes = []
        for _ in range(2):
            with pytest.raises(urllib.error.HTTPError) as caught:
                complete(server, "x", 2)
            codes.append(caught.value.code)
            caught.value.close()
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(server, "/health")
        codes.append(caught.value.code)
        caught.value.close()
    assert codes == [500, 503, 503]
    assert "EngineCore encountered a fatal error." in server.log.text


# --- starting -------------------------------------------------------------------------------------------------------


def test_start_log():
    with FakeVllm(["org/target", "--speculative-config", json.dumps(EAGLE), "--max-num-seqs", "8"]) as server:
        assert server.k == 3
    log = server.log.text
    for part in (
        "vLLM server version 0.32.0, serving model org/target",
        "speculative_config=SpeculativeConfig(method='eagle3', model='org/head', num_spec_tokens=3)",
        "Available KV cache memory:",
        "GPU KV cache size:",
        "Application startup complete.",
        f"Starting vLLM server on http://127.0.0.1:{server.port}",
        "Application shutdown complete.",
    ):
        assert part in log
    with FakeVllm(model="m") as server:
        assert "speculative_config=None" in server.log.text


@pytest.mark.parametrize(
    ("memory", "utilization", "text"),
    [
        (
            {"free_gib": 40.0},
            0.9,
            "(40.00/61.40 GiB) on startup is less than desired GPU memory utilization (0.9, 55.26",
        ),
        ({"model_gib": 30.0}, 0.5, "No available memory for the cache blocks"),
        ({"kv_bytes_per_token": 40_000_000}, 0.5, "To serve at least one request with the model's max seq len (8192)"),
        ({"load_peak_gib": 60.0}, 0.5, "CUDA out of memory. Tried to allocate 60.00 GiB"),
    ],
)
def test_starts_that_run_out_of_memory(memory, utilization, text):
    fake = FakeVllm(model="m", memory=Memory(**memory), gpu_memory_utilization=utilization)
    with pytest.raises(SpecdecError, match="did not start"):
        fake.__enter__()
    assert text in fake.log.text
    assert "Engine core initialization failed. See root cause above." in fake.log.text
    assert "Application startup complete." not in fake.log.text


def test_a_draft_takes_from_the_kv_cache():
    def kv(config):
        fake = FakeVllm(model="m", memory=Memory(draft_gib=2.0), gpu_memory_utilization=0.5, speculative_config=config)
        fake.prepare()
        fake.announce(8000)
        return float(re.search(r"Available KV cache memory: ([\d.]+) GiB", fake.log.text)[1])

    assert kv(None) - kv(EAGLE) == pytest.approx(2.0, abs=0.011)


# --- arguments ------------------------------------------------------------------------------------------------------


def test_arguments():
    words = [
        "serve",
        "org/m",
        "--max_model_len",
        "4k",
        "--port=8123",
        "--gpu-mem",
        "0.8",
        "--no-enable-prefix-caching",
        "--served-model-name",
        "a",
        "b",
        "--speculative-config.method",
        "eagle3",
        "--speculative-config.num_speculative_tokens",
        "3",
        "--enforce-eager",
    ]
    settings = read_arguments(words)
    assert settings.model == "org/m"
    assert settings.name == "a"
    assert (settings.max_model_len, settings.port, settings.gpu_memory_utilization) == (4000, 8123, 0.8)
    assert settings.enable_prefix_caching is False
    assert settings.speculative_config == {"method": "eagle3", "num_speculative_tokens": 3}
    assert read_arguments(["m", "-sc", "null"]).speculative_config is None


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (
            ["m", "--speculative-config", "{method:eagle3}"],
            "argument --speculative-config/-sc: Value {method:eagle3} cannot be converted to <function loads at",
        ),
        (["m", "--speculative-model", "x"], "unrecognized arguments: --speculative-model"),
        (["m", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
        (["m", "n"], "unrecognized arguments: n"),
        (["m", "--port"], "argument --port: expected one argument"),
        (["m", "--port", "many"], "argument --port: invalid"),
    ],
)
def test_arguments_that_vllm_refuses(words, printed):
    with pytest.raises(ArgumentFailure) as caught:
        FakeVllm(words)
    assert caught.value.printed.startswith("vllm serve: error: ")
    assert printed in caught.value.printed


def test_command_line_failures(capsys, monkeypatch, tmp_path):
    assert main(["serve", "m", "--no-such-flag"]) == 2
    assert "unrecognized arguments" in capsys.readouterr().err
    monkeypatch.setenv("JETSON_SPECDEC_FAKE", json.dumps({"memory": {"free_gib": 1}}))
    assert main(["serve", "m"]) == 1
    assert "is less than desired GPU memory utilization" in capsys.readouterr().out
    (tmp_path / "start.log").write_text("something went wrong\n")
    monkeypatch.setenv("JETSON_SPECDEC_FAKE", json.dumps({"start_log": str(tmp_path / "start.log"), "exit_code": 137}))
    assert main(["serve", "m"]) == 137
    assert capsys.readouterr().out == "something went wrong\n"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "0.32.0\n"


def test_command_line_serves_until_it_is_told_to_stop():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "JETSON_SPECDEC_FAKE": json.dumps({"step_ms": 1, "time_scale": 0.1, "startup_s": 0.05})}
    program = [
        sys.executable,
        "-m",
        "jetson_specdec.testing.fake_vllm",
        "serve",
        "org/m",
        "--port",
        str(port),
        "--host",
        "127.0.0.1",
        "--speculative-config",
        json.dumps(EAGLE),
    ]
    with subprocess.Popen(program, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            seen = []
            while not seen or "Application startup complete." not in seen[-1]:
                seen.append(process.stdout.readline())
                assert seen[-1], "the server ended"
            for attempt in range(100):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30) as reply:
                        assert reply.status == 200
                    break
                except urllib.error.URLError:
                    assert attempt < 99
                    time.sleep(0.1)
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.stdout.read()
        assert process.wait(30) == 0
    assert "Application shutdown complete." in rest
    assert '"GET /health HTTP/1.1" 200 OK' in rest


def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            FakeVllm(model="m", port=port).__enter__()


def test_names_of_the_package():
    import jetson_specdec.testing as testing

    for name in testing.__all__:
        assert getattr(testing, name) is not None
    assert testing.RecordedHost is RecordedHost
    with pytest.raises(AttributeError):
        testing.nothing  # noqa: B018
