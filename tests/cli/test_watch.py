# SPDX-License-Identifier: Apache-2.0
"""`watch` against a server that exists: exit codes for timers. The judging: tests/tune/test_drift.py."""

from __future__ import annotations

import json
import threading
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main
from jetson_specdec.loadgen import Benchmark
from jetson_specdec.testing import FakeVllm, Truth
from jetson_specdec.tune import Reference

CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
TRUTH = Truth(step_ms=10.0, acceptance=(0.8, 0.6, 0.4))
WORSE = evolve(TRUTH, acceptance=(0.2, 0.05, 0.0))


@contextmanager
def guarded(url, key):
    """Something in front of a server that wants a key for every path."""

    class Guard(BaseHTTPRequestHandler):
        def do_GET(self):
            right = self.headers.get("Authorization") == f"Bearer {key}"
            body = urllib.request.urlopen(url + self.path, timeout=30).read() if right else b""
            self.send_response(200 if right else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Guard) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(30)


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


def ask(server, *, at_once=1, requests=6, tokens=96):
    Benchmark(
        server.base_url, num_prompts=requests, output_len=tokens, concurrency=(at_once,), sample_conditions=False,
        allow_reuse=True, warmup=0,
    ).run()  # fmt: skip


def look(capsys, *words):
    """One look of a timer: exit code, and the JSON of what it says."""
    code, out, err = watch(capsys, *words, "--once", "--json")
    assert err == ""
    document = json.loads(out)
    Draft202012Validator(schemas.load("watch")).validate(document)
    return code, document


def said(document):
    return [finding["code"] for finding in document["findings"]]


@pytest.fixture
def timer(server, reference, tmp_path, capsys):
    """A timer after its first look: each call asks the server and looks again."""
    words = (server.root_url, "--reference", reference, "--state", tmp_path / "state.json")
    assert look(capsys, *words)[1]["state"] == "unknown"

    def again(**how):
        if how:
            ask(server, **how)
        return look(capsys, *words)

    return again


def test_a_timer_sees_no_drift_then_drift(timer, server):
    code, seen = timer(requests=6)
    assert (code, seen["state"]) == (0, "ok"), seen
    assert seen["observed"]["acceptance"] == pytest.approx(0.6, abs=0.03)
    assert seen["observed"]["tpot_s"] == pytest.approx(TRUTH.tpot_ms(k=3) / 1e3, rel=0.05)
    server.change(acceptance=(0.2, 0.05, 0.0))
    code, seen = timer(requests=6)
    assert (code, seen["state"]) == (30, "drift"), seen
    assert "JSD980" in said(seen)
    assert [step["kind"] for step in seen["next_steps"]] == [
        "watch-board",
        "tune-again",
        "watch-smaller-k",
        "watch-off",
    ]


def test_speed_falls(timer, server):
    server.change(step_ms=14.0)
    code, seen = timer(requests=6)
    assert (code, said(seen)) == (30, ["JSD984", "JSD981"]), seen
    assert [step["kind"] for step in seen["next_steps"]] == ["watch-board", "tune-again"]


def test_a_little_slower_is_no_drift(timer, server):
    server.change(step_ms=TRUTH.step_ms + 1.0)
    assert timer(requests=6)[0] == 0


@pytest.mark.parametrize("mix", [((8, 48), (1, 6)), ((1, 12), (8, 16)), ((4, 16),)])
def test_another_mix_of_loads_is_no_drift(timer, server, mix):
    """Nothing but the load has changed since the verdict, which rested on one and on eight requests at once."""
    for at_once, requests in mix[:-1]:
        ask(server, at_once=at_once, requests=requests, tokens=48)
    at_once, requests = mix[-1]
    code, seen = timer(at_once=at_once, requests=requests, tokens=48)
    assert (code, seen["state"]) == (0, "ok"), seen
    assert "JSD988" in said(seen)


def test_slower_at_eight_is_seen(timer, server):
    server.change(batch_ms=TRUTH.batch_ms + 2.0)
    code, seen = timer(at_once=8, requests=32, tokens=48)
    assert (code, seen["state"]) == (30, "drift"), seen
    assert seen["observed"]["load"] > 2


def test_more_at_once_than_was_measured_is_not_judged_by_speed(timer):
    code, seen = timer(at_once=24, requests=48, tokens=48)
    assert (code, said(seen)[-1]) == (0, "JSD986"), seen


def test_too_little_traffic_adds_up(timer, server):
    server.change(acceptance=(0.2, 0.05, 0.0))
    code, seen = timer()
    assert (code, said(seen)) == (0, ["JSD982"])
    code, seen = timer(requests=3, tokens=96)
    assert (code, said(seen)) == (0, ["JSD952"]), seen
    code, seen = timer(requests=3, tokens=96)
    assert (code, seen["state"]) == (30, "drift"), seen
    assert seen["observed"]["requests"] == 6


def restarted(port, *, later=100.0, **more):
    """Another life of the server on the same port."""
    words = ["Qwen/Qwen3-8B", "--port", str(port)]
    made = FakeVllm(words, **{"speculative_config": CONFIG, "truth": WORSE, "time_scale": 0.02, **more})
    made.app.started += later
    return made


@pytest.fixture
def first_life(reference, tmp_path, capsys):
    """A server that answered some requests, a look at it, and its end: words of the next looks, and its port."""
    with FakeVllm(["Qwen/Qwen3-8B"], speculative_config=CONFIG, truth=TRUTH, time_scale=0.02) as server:
        ask(server)
        words = (server.root_url, "--reference", reference, "--state", tmp_path / "state.json")
        assert look(capsys, *words)[1]["state"] == "unknown"
        port = server.port
    return words, port


def test_after_a_restart_everything_since_counts(capsys, first_life):
    words, port = first_life
    assert look(capsys, *words)[0] == 31
    with restarted(port) as server:
        ask(server, requests=3)
        code, seen = look(capsys, *words)
        assert (code, said(seen)) == (0, ["JSD987", "JSD952"]), seen
        ask(server, requests=3)
        code, seen = look(capsys, *words)
        assert (code, seen["state"], seen["observed"]["requests"]) == (30, "drift", 6), seen


def test_a_restart_is_seen_although_the_counters_have_passed_the_old_ones(capsys, first_life):
    words, port = first_life
    with restarted(port) as server:
        ask(server, requests=12)
        code, seen = look(capsys, *words)
    assert (code, said(seen)[0]) == (30, "JSD987"), seen
    assert seen["observed"]["requests"] == 12
    assert seen["observed"]["acceptance"] == pytest.approx(0.25 / 3, abs=0.02)


def test_a_restart_without_speculation(capsys, first_life):
    words, port = first_life
    with restarted(port, speculative_config=None) as server:
        ask(server)
        code, seen = look(capsys, *words)
    assert (code, said(seen)[-1]) == (30, "JSD983"), seen
    assert [step["kind"] for step in seen["next_steps"]] == ["tune-again"]


def test_without_speculation_the_first_look_says_so(capsys, reference, tmp_path):
    with FakeVllm(["Qwen/Qwen3-8B"], truth=TRUTH, time_scale=0.02) as server:
        code, seen = look(capsys, server.root_url, "--reference", reference, "--state", tmp_path / "state.json")
    assert (code, said(seen)) == (30, ["JSD983"])


def test_another_model_on_the_same_port_is_not_compared_with(capsys, first_life):
    words, port = first_life
    with restarted(port, served_model_name="other") as server:
        Benchmark(server.base_url, num_prompts=6, output_len=32, concurrency=(1,), sample_conditions=False).run()
        code, seen = look(capsys, *words)
    assert (code, said(seen)) == (0, ["JSD953", "JSD985"]), seen
    assert "Qwen/Qwen3-8B" in seen["findings"][0]["message"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 1, "page": 3}', '{"schema_version": 99, "page": ""}'],
)
def test_a_damaged_state_counts_as_none_and_is_replaced(capsys, timer, server, reference, tmp_path, text):
    state = tmp_path / "state.json"
    state.write_text(text)
    code, seen = timer(requests=1)
    assert (code, said(seen)) == (0, ["JSD953", "JSD985"])
    assert json.loads(state.read_text())["server"] == server.root_url


def test_the_state_of_another_server_is_not_compared_with(capsys, timer, reference, tmp_path):
    with FakeVllm(["Qwen/Qwen3-8B"], speculative_config=CONFIG, truth=WORSE, time_scale=0.02) as other:
        ask(other)
        words = (other.base_url, "--reference", reference, "--state", tmp_path / "state.json")
        code, seen = look(capsys, *words)
        assert (code, said(seen)) == (0, ["JSD953", "JSD985"])
        ask(other)
        assert look(capsys, *words)[0] == 30


def test_a_state_that_cannot_be_written_is_an_error(capsys, server, reference, tmp_path):
    code, out, err = watch(
        capsys, server.root_url, "--reference", reference, "--once", "--state", tmp_path / "nowhere" / "state.json"
    )
    assert (code, out) == (2, "")
    assert "nowhere" in err


def test_a_key_that_is_asked_for(capsys, server, reference, tmp_path, monkeypatch):
    with guarded(server.root_url, "secret-1") as url:
        words = (url, "--reference", reference, "--state", tmp_path / "state.json")
        code, seen = look(capsys, *words)
        assert (code, said(seen)) == (31, ["JSD954"])
        assert "--api-key-env" in seen["findings"][0]["message"]
        monkeypatch.setenv("THE_KEY", "secret-1")
        code, seen = look(capsys, *words, "--api-key-env", "THE_KEY")
        assert (code, seen["state"]) == (0, "unknown")
        assert "secret-1" not in json.dumps(seen) + (tmp_path / "state.json").read_text()


def test_a_page_without_counters_is_no_drift(capsys, reference):
    with FakeVllm(["Qwen/Qwen3-8B", "--disable-log-stats"], truth=TRUTH, time_scale=0.02) as server:
        code, seen = look(capsys, server.root_url, "--reference", reference, "--interval", "0.01")
    assert (code, said(seen)) == (31, ["JSD989"])
    assert "--disable-log-stats" in seen["findings"][0]["message"]


def test_an_evidence_folder_knows_what_it_was_without(capsys, tmp_path, monkeypatch):
    """Slower than without speculation: switching off comes first."""
    known = Reference(acceptance=0.6, tpot_s={1: TRUTH.tpot_ms(k=3) / 1e3}, plain_s={1: TRUTH.tpot_ms() / 1e3})
    monkeypatch.setattr("jetson_specdec.tune.watching.reference_from", lambda path: known)
    with FakeVllm(["Qwen/Qwen3-8B"], speculative_config=CONFIG, truth=TRUTH, time_scale=0.02) as server:
        words = (server.root_url, "--reference", "evidence", "--state", tmp_path / "state.json")
        look(capsys, *words)
        server.change(acceptance=(0.2, 0.05, 0.0))
        ask(server)
        code, seen = look(capsys, *words)
    assert (code, said(seen)) == (30, ["JSD980", "JSD981", "JSD951"]), seen
    assert seen["next_steps"][0]["kind"] == "watch-off"


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
