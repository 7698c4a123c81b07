# SPDX-License-Identifier: Apache-2.0
"""Drift: judged from pages of counters that we write ourselves, and the looking at a server that exists only here."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.errors import EndpointError, ReportError
from jetson_specdec.loadgen import Benchmark
from jetson_specdec.policy import Policy
from jetson_specdec.testing import FakeVllm, Truth
from jetson_specdec.tune import Reference, judge_drift, watch
from jetson_specdec.tune.drift import kept_lines, observe
from jetson_specdec.tune.watching import fetch_metrics, reference_from

REFERENCE = Reference(acceptance=0.70, tpot_s={1: 0.020, 8: 0.048})
K = 3


def page(rounds, rate, *, tpot=0.020, load=1.0, requests=None, spec=True):
    """Counters after so many rounds with this acceptance, time per token and mean batch."""
    requests = rounds / 20 if requests is None else requests
    tokens = rounds * (1 + rate * K)
    label = 'engine="0",model_name="m"'
    lines = [
        f"vllm:generation_tokens_total{{{label}}} {tokens}",
        f'vllm:request_success_total{{{label},finished_reason="stop"}} {requests}',
        f"vllm:request_time_per_output_token_seconds_sum{{{label}}} {requests * tpot}",
        f"vllm:request_time_per_output_token_seconds_count{{{label}}} {requests}",
        f"vllm:iteration_tokens_total_count{{{label}}} {rounds / load}",
        f"vllm:e2e_request_latency_seconds_sum{{{label}}} 1",
    ]
    if spec:
        lines += [
            f"vllm:spec_decode_num_drafts_total{{{label}}} {rounds}",
            f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {rounds * K}",
            f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {rounds * K * rate}",
        ]
    return "\n".join(lines) + "\n"


def plus(first, *args, **kwargs):
    """Counters of one page followed by what another describes."""
    total = {}
    for text in (first, page(*args, **kwargs)):
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            total[name] = total.get(name, 0.0) + float(value)
    return "".join(f"{name} {value}\n" for name, value in total.items())


def judged(*args, policy=None, **kwargs):
    before = page(1000, 0.7)
    return judge_drift(REFERENCE, observe(before, plus(before, *args, **kwargs)), policy=policy or Policy())


@pytest.mark.parametrize(
    ("acceptance", "state"), [(0.70, "ok"), (0.90, "ok"), (0.56, "ok"), (0.54, "drift"), (0.1, "drift")]
)
def test_acceptance(acceptance, state):
    result = judged(500, acceptance)
    assert result.state == state
    assert result.exit_code == {"ok": 0, "drift": 30}[state]
    assert result.observed.acceptance == pytest.approx(acceptance)
    assert bool(result.next_steps) is (state == "drift")


@pytest.mark.parametrize(
    ("tpot", "load", "state"),
    [
        (0.020, 1, "ok"),
        (0.0234, 1, "ok"),  # 14.5 % slower
        (0.0236, 1, "drift"),  # 15.3 %
        (0.048, 8, "ok"),  # slow because eight share it, as measured
        (0.032, 4, "ok"),  # between: 0.020 + 3/7 · 0.028
        (0.039, 4, "ok"),  # what one and eight by turns would show: (4 · 1 · 20 + 3 · 8 · 48) ÷ (7 · 4) = 44 ms
        (0.053, 4, "drift"),  # beyond that as well
        (0.200, 20, "ok"),  # never measured at that load: not judged
    ],
)
def test_speed_is_compared_at_the_same_load(tpot, load, state):
    result = judged(500, 0.7, tpot=tpot, load=load)
    assert result.state == state
    assert result.observed.load == pytest.approx(load)
    if load == 20:
        assert "JSD986" in [finding.code for finding in result.findings]


def test_limits_come_from_the_policy():
    assert judged(500, 0.6).state == "ok"
    assert judged(500, 0.6, policy=Policy(drift_acceptance_drop=0.05)).state == "drift"


def test_too_little_is_no_drift():
    result = judged(40, 0.0)
    assert (result.state, result.exit_code) == ("unknown", 0)


def test_a_restart_counts_from_the_start():
    result = judge_drift(REFERENCE, observe(page(5000, 0.7), page(300, 0.2)))
    assert result.state == "drift"
    assert [finding.code for finding in result.findings][:2] == ["JSD987", "JSD980"]


def test_speculation_that_is_off():
    result = judge_drift(REFERENCE, observe(page(500, 0.7), page(500, 0.0, spec=False)))
    assert result.state == "drift"
    assert result.findings[-1].code == "JSD983"


def test_only_what_is_needed_is_kept():
    text = page(500, 0.7)
    kept = kept_lines(text)
    assert "e2e_request_latency" not in kept
    assert observe(None, kept) == observe(None, text)


# --- looking ----------------------------------------------------------------------------------------------------------


def looks(*pages):
    """Return a `fetch` that gives one page after the other; None is a server that cannot be reached."""
    queue = list(pages)

    def fetch():
        text = queue.pop(0)
        if text is None:
            raise EndpointError("JSE961", url="http://x", reason="refused")
        return text

    return fetch


def test_it_ends_with_the_first_drift():
    one = page(500, 0.7)
    two = plus(one, 500, 0.7)
    three = plus(two, 500, 0.2)
    waited = []
    results = list(watch(looks(one, two, three), REFERENCE, interval_s=9.0, sleep=waited.append))
    assert [result.state for result in results] == ["unknown", "ok", "drift"]
    assert waited == [9.0, 9.0]
    for result in results:
        Draft202012Validator(schemas.load("watch")).validate(result.to_json())


def test_rare_requests_add_up():
    one = page(500, 0.7)
    two = plus(one, 60, 0.2)
    three = plus(two, 60, 0.2)
    results = list(watch(looks(one, two, three), REFERENCE, sleep=lambda seconds: None))
    assert [result.state for result in results] == ["unknown", "unknown", "drift"]


def test_a_miss_is_forgiven_and_three_are_not():
    one = page(500, 0.7)
    fetch = looks(one, None, plus(one, 500, 0.7), None, None, None)
    states = [result.state for result in watch(fetch, REFERENCE, sleep=lambda seconds: None)]
    assert states == ["unknown", "ok", "unreachable"]


def test_once_with_a_state_file(tmp_path):
    state = tmp_path / "watch.json"
    one = page(500, 0.7)
    first = list(watch(looks(one), REFERENCE, once=True, state=state))
    assert [result.state for result in first] == ["unknown"]
    second = list(watch(looks(plus(one, 500, 0.2)), REFERENCE, once=True, state=state))
    assert [result.state for result in second] == ["drift"]
    assert state.stat().st_mode & 0o777 == 0o600
    assert [each.exit_code for each in watch(looks(None), REFERENCE, once=True, state=state)] == [31]


def test_once_without_a_state_file_waits_one_interval():
    one = page(500, 0.7)
    waited = []
    results = list(watch(looks(one, plus(one, 500, 0.7)), REFERENCE, once=True, interval_s=7.0, sleep=waited.append))
    assert [result.state for result in results] == ["ok"]
    assert waited == [7.0]


def test_a_reference_from_a_report(tmp_path):
    config = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}
    truth = Truth(step_ms=20.0, acceptance=(0.8, 0.6, 0.4))
    fake = FakeVllm(["Qwen/Qwen3-8B"], speculative_config=config, truth=truth)
    report = Benchmark(
        "http://fake", num_prompts=6, output_len=64, connection=fake.connection(), sample_conditions=False
    )
    path = tmp_path / "on.json"
    path.write_text(json.dumps(report.run().to_json()))
    found = reference_from(path)
    assert found.acceptance == pytest.approx(0.6, abs=0.05)
    assert found.tpot_s[1] == pytest.approx(truth.tpot_ms(k=3) / 1e3, rel=0.08)
    assert found.tpot_s[8] > found.tpot_s[1]
    plain = FakeVllm(["Qwen/Qwen3-8B"], truth=truth)
    other = Benchmark(
        "http://fake", num_prompts=6, output_len=32, connection=plain.connection(), sample_conditions=False
    )
    path.write_text(json.dumps(other.run().to_json()))
    with pytest.raises(ReportError) as caught:
        reference_from(path)
    assert caught.value.code == "JSE959"


def test_a_page_over_http():
    with FakeVllm(["Qwen/Qwen3-8B", "--api-key", "k"], time_scale=0.01) as server:
        assert "vllm:generation_tokens_total" in fetch_metrics(server.base_url)
        port = server.port
    for address in (f"http://127.0.0.1:{port}", "http://[bad", "http://127.0.0.1:1"):
        with pytest.raises(EndpointError):
            fetch_metrics(address, timeout_s=2.0)
