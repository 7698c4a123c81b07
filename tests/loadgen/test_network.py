# SPDX-License-Identifier: Apache-2.0
"""The same over real sockets: what arrives is checked, not how long a busy machine takes for it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess

import pytest

from jetson_specdec.errors import EndpointError
from jetson_specdec.loadgen import Benchmark
from jetson_specdec.testing import FakeVllm, Fault, Truth

EAGLE = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}
FAST = {"truth": Truth(step_ms=2), "time_scale": 0.1}


def options(**more):
    return {
        "prompts": [f"{index} what is it" for index in range(40)],
        "num_prompts": 6,
        "output_len": 30,
        "sample_conditions": False,
        **more,
    }


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_counts_over_a_socket(api):
    with FakeVllm(speculative_config=EAGLE, **FAST) as server:
        report = Benchmark(server.root_url, **options(api=api)).run()
    for run in report.runs:
        assert (run.completed, run.failed, run.total_output_tokens) == (6, 0, 180)
        assert run.acceptance.mean_length == pytest.approx(2.7, abs=0.3)
        assert run.duration_s > 0
    for record in report.requests:
        assert 0 < record.ttft_ms <= record.e2e_ms
        assert record.tpot_ms == pytest.approx((record.e2e_ms - record.ttft_ms) / 29, abs=1e-4)
        assert list(record.chunk_times_ms) == sorted(record.chunk_times_ms)
        assert record.finish_reason == "length"
    assert report.conditions.foreign_requests is False


def test_what_was_sent_is_what_arrived():
    with FakeVllm(**FAST) as server:
        Benchmark(server.base_url, **options(concurrency=1)).run()
        assert len(server.app.bodies) == 8
        assert server.log.text.count('"POST /v1/chat/completions HTTP/1.1" 200 OK') == 8


@pytest.mark.parametrize("kind", ["drop", "truncate", "error_event", "status"])
def test_failures_over_a_socket(kind):
    with FakeVllm(faults={4: Fault(kind, after_chunks=2)}, **FAST) as server:
        report = Benchmark(server.base_url, **options(concurrency=1)).run()
    assert [record.ok for record in report.requests] == [True, True, False, True, True, True]
    assert report.requests[2].error


def test_silence_ends_by_time_out():
    with FakeVllm(faults={4: Fault("hang", after_chunks=2)}, **FAST) as server:
        report = Benchmark(server.base_url, **options(concurrency=1, timeout_s=2.0)).run()
    record = report.requests[2]
    assert record.ok is False
    assert "Timeout" in record.error
    assert record.chunks == 2
    assert report.run_at(1).completed == 5


def test_nobody_there():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match=f"cannot reach 127.0.0.1:{port}"):
        Benchmark(f"127.0.0.1:{port}", **options()).run()


def test_something_else_there():
    server = socket.create_server(("127.0.0.1", 0))
    server.close()
    for url in ("ftp://board", "http://", "http://board:99999", "http://[::1"):
        with pytest.raises(EndpointError, match="not the address of a server"):
            Benchmark(url, **options()).run()


def test_inside_a_running_loop_and_awaited():
    async def notebook():
        with FakeVllm(**FAST) as server:
            inside = Benchmark(server.base_url, **options(concurrency=1)).run()
            awaited = await Benchmark(server.base_url, **options(concurrency=1)).run_async()
            return inside, awaited

    inside, awaited = asyncio.run(notebook())
    assert inside.run_at(1).completed == awaited.run_at(1).completed == 6
    assert [r.text_sha256 for r in inside.requests] == [r.text_sha256 for r in awaited.requests]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("needs the openssl program to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            program,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            str(key),
            "-out",
            str(cert),
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    return str(cert), str(key)


def test_tls_and_key(certificate):
    cert, key = certificate
    with FakeVllm(ssl_certfile=cert, ssl_keyfile=key, api_key="sk-abc", **FAST) as server:
        assert server.base_url.startswith("https://")
        report = Benchmark(server.base_url, **options(concurrency=1, verify=cert, api_key="sk-abc")).run()
        assert report.run_at(1).completed == 6
        assert report.run_at(1).acceptance is not None  # /metrics goes the same way
        unchecked = Benchmark(server.base_url, **options(concurrency=1, verify=False, api_key="sk-abc")).run()
        assert unchecked.run_at(1).completed == 6
        with pytest.raises(EndpointError, match="cannot reach"):
            Benchmark(server.base_url, **options(api_key="sk-abc")).run()
    with pytest.raises(EndpointError, match="authority"):
        Benchmark("https://127.0.0.1", **options(verify="/nowhere/ca.pem")).run()


def test_key_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    with FakeVllm(api_key="sk-env", **FAST) as server:
        assert Benchmark(server.base_url, **options(concurrency=1)).run().run_at(1).completed == 6
