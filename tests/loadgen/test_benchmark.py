# SPDX-License-Identifier: Apache-2.0
"""A whole benchmark against a server whose figures are known; time is virtual, so they come out exactly."""

from __future__ import annotations

import asyncio
import json

import pytest

from jetson_specdec.errors import EndpointError, OptionError
from jetson_specdec.loadgen import Benchmark, Prompt, PromptSet
from jetson_specdec.measurements import BenchReport, Conditions
from jetson_specdec.testing import FakeVllm, Fault, Truth

EAGLE = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}


def texts(count, words=8):
    """Prompts that share no beginning."""
    return [f"{index} " + " ".join(f"w{index}x{step}" for step in range(words - 1)) for index in range(count)]


def bench(fake, **options):
    options = {"prompts": texts(60), "num_prompts": 8, "output_len": 65, "sample_conditions": False, **options}
    return Benchmark("http://fake", connection=fake.connection(), **options).run()


def fake(**options):
    return FakeVllm(**{"truth": Truth(step_ms=20, prefill_ms_per_token=0.5), **options})


def test_without_speculation_everything_is_exact():
    """One request: the first step takes 20 ms + 8 tokens × 0.5 ms, the 64 others 20 ms each."""
    report = bench(fake(), concurrency=1)
    run = report.run_at(1)
    assert run.completed == 8
    assert run.ttft_ms_p50 == pytest.approx(24, abs=1e-3)
    assert run.tpot_ms_p50 == run.tpot_ms_p99 == pytest.approx(20, abs=1e-3)
    assert run.itl_ms_p50 == pytest.approx(20, abs=1e-3)
    assert run.e2e_latency_ms_p50 == pytest.approx(24 + 64 * 20, abs=1e-3)
    assert run.duration_s == pytest.approx(8 * 1.304, abs=1e-6)
    assert run.throughput_tok_s == pytest.approx(65 / 1.304, abs=1e-4)
    assert (run.total_input_tokens, run.total_output_tokens) == (64, 8 * 65)
    assert run.acceptance.state == "absent"
    assert report.conditions.speculation is False


def test_a_batch_costs_what_the_truth_says():
    """Eight at once, all admitted in one step: 20 + 7 × 0.5 ms a step, and 8 × 8 × 0.5 ms of prompts in the first."""
    run = bench(fake(), concurrency=8).run_at(8)
    assert run.ttft_ms_p50 == pytest.approx(23.5 + 32, abs=1e-3)
    assert run.tpot_ms_p50 == pytest.approx(23.5, abs=1e-3)
    assert run.throughput_tok_s == pytest.approx(8 * 65 / (0.0555 + 64 * 0.0235), rel=1e-6)


def test_speculation_is_seen_in_tpot_and_not_in_itl():
    server = fake(speculative_config=EAGLE)
    report = bench(server, concurrency=1, output_len=400)
    run = report.run_at(1)
    step = 20 + 3 * 1.5 + 3 * 0.1
    assert run.itl_ms_p50 == pytest.approx(step, abs=1e-3)  # per chunk, whatever a chunk holds
    assert run.tpot_ms_p50 == pytest.approx(step / 2.7, rel=0.02)
    assert server.expected_tpot_ms() == pytest.approx(step / 2.7)
    assert run.acceptance.state == "active"
    assert run.acceptance.rate == pytest.approx(1.7 / 3, rel=0.01)
    assert run.acceptance.mean_length == pytest.approx(2.7, rel=0.01)
    assert run.acceptance.per_position == pytest.approx((0.75, 0.55, 0.40), rel=0.02)
    assert report.conditions.speculation is True
    first = report.requests[0]
    assert first.chunks < first.output_tokens / 2


def test_both_arms_get_the_same_prompts_and_answers():
    off, on = bench(fake()), bench(fake(speculative_config=EAGLE))
    assert off.config == on.config
    assert off.config.prompts_sha256 is not None
    assert [r.prompt_id for r in off.requests] == [r.prompt_id for r in on.requests]
    assert [r.text_sha256 for r in off.requests] == [r.text_sha256 for r in on.requests]


def test_acceptance_of_the_whole_leaves_warm_up_out():
    report = bench(fake(speculative_config=EAGLE), concurrency=(1, 8))
    parts = [run.acceptance for run in report.runs]
    assert report.acceptance.drafts == sum(part.drafts for part in parts)
    assert report.acceptance.accepted_tokens == sum(part.accepted_tokens for part in parts)


def test_bursts_change_itl_only():
    smooth, burst = (bench(fake(truth=Truth(burst=n)), concurrency=1).run_at(1) for n in (1, 4))
    assert burst.itl_ms_p50 == pytest.approx(4 * smooth.itl_ms_p50, abs=0.01)
    assert burst.tpot_ms_p50 == pytest.approx(smooth.tpot_ms_p50, abs=0.01)


def test_requests_carry_what_was_promised():
    server = fake()
    bench(server, concurrency=1, seed=7, num_prompts=3)
    for body in server.app.bodies:
        assert body["temperature"] == 0
        assert body["seed"] == 7
        assert body["stream"] is True
        assert body["stream_options"] == {"include_usage": True}
        assert body["max_completion_tokens"] == 65
        assert "ignore_eos" not in body


def test_completions_and_extra_keys():
    server = fake()
    bench(server, concurrency=1, num_prompts=3, api="completions", ignore_eos=True, extra_body={"top_k": 1})
    for body in server.app.bodies:
        assert isinstance(body["prompt"], str)
        assert body["max_tokens"] == 65
        assert (body["ignore_eos"], body["top_k"]) == (True, 1)


def test_no_prompt_twice_and_warm_up_never_measured():
    server = fake()
    report = bench(server, concurrency=(1, 8), num_prompts=20, prompts=texts(50))
    sent = [body["messages"][0]["content"] for body in server.app.bodies]
    assert len(sent) == len(set(sent)) == 2 + 8 + 40
    assert report.config.warmup_requests == 10
    assert len({record.prompt_id for record in report.requests}) == 40
    assert all(run.prefix_cache_hits == 0 for run in report.runs)
    assert report.findings == ()


def test_two_few_prompts():
    with pytest.raises(OptionError, match="50 different ones are needed"):
        bench(fake(), concurrency=(1, 8), num_prompts=20, prompts=texts(49))


def test_default_takes_what_there_is():
    report = bench(fake(), concurrency=(1, 8), num_prompts=None, prompts=texts(40), output_len=4)
    assert [run.completed for run in report.runs] == [15, 15]


def test_reuse_is_allowed_and_said():
    long = texts(6, words=40)
    report = bench(fake(), concurrency=1, num_prompts=12, prompts=long, allow_reuse=True)
    assert {finding.code for finding in report.findings} == {"JSD670", "JSD692"}
    assert report.run_at(1).prefix_hit_rate > 0.3
    assert max(record.cached_tokens for record in report.requests) == 32


def test_salt_makes_prompts_new():
    server = fake()
    connection = server.connection()
    options = {
        "prompts": texts(30, words=40),
        "num_prompts": 8,
        "concurrency": 1,
        "output_len": 4,
        "sample_conditions": False,
        "connection": connection,
    }
    first, again, salted = (Benchmark("http://fake", **options, salt=salt).run() for salt in (None, None, "pair 2"))
    assert first.run_at(1).prefix_cache_hits == 0
    assert again.run_at(1).prefix_hit_rate > 0.5
    assert "JSD692" in {finding.code for finding in again.findings}
    assert salted.run_at(1).prefix_cache_hits == 0
    assert first.config.prompts_sha256 == again.config.prompts_sha256 != salted.config.prompts_sha256
    assert [r.prompt_id for r in first.requests] == [r.prompt_id for r in salted.requests]


def test_prefix_cache_can_be_reset():
    connection = fake().connection()
    options = {
        "prompts": texts(30, words=40),
        "num_prompts": 8,
        "concurrency": 1,
        "output_len": 4,
        "sample_conditions": False,
        "connection": connection,
        "reset_prefix_cache": True,
    }
    runs = [Benchmark("http://fake", **options).run().run_at(1) for _ in range(2)]
    assert [run.prefix_cache_hits for run in runs] == [0, 0]


def test_reasoning_and_early_role_chunk():
    """The role comes at once, the first token (of reasoning) after the prompt was processed."""
    truth = Truth(step_ms=20, prefill_ms_per_token=0.5, reasoning_tokens=10, early_role_chunk=True)
    run = bench(fake(truth=truth), concurrency=1).run_at(1)
    assert run.ttft_ms_p50 == pytest.approx(24, abs=1e-3)
    assert run.tpot_ms_p50 == pytest.approx(20, abs=1e-3)


def test_no_usage_is_counted_by_the_server_s_tokenizer():
    counted = bench(fake(truth=Truth(usage=False), speculative_config=EAGLE), concurrency=1)
    usual = bench(fake(speculative_config=EAGLE), concurrency=1)
    assert [r.output_tokens for r in counted.requests] == [65] * 8
    assert counted.run_at(1).tpot_ms_p50 == usual.run_at(1).tpot_ms_p50
    assert [finding.code for finding in counted.findings] == ["JSD687"]


def test_answers_that_end_early():
    report = bench(fake(truth=Truth(answer_tokens=12)), concurrency=1)
    assert {record.finish_reason for record in report.requests} == {"stop"}
    assert report.run_at(1).output_tokens_per_request == 12
    assert [finding.code for finding in report.findings] == ["JSD691"]
    assert "12 tokens on average (65" in report.findings[0].message
    whole = bench(fake(truth=Truth(answer_tokens=12)), concurrency=1, ignore_eos=True)
    assert whole.run_at(1).output_tokens_per_request == 65


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("status", status=500, message="boom"), "HTTP 500: boom"),
        (Fault("status", status=429, message="slow down"), "HTTP 429: slow down"),
        (Fault("drop", after_chunks=3), "peer closed connection"),
        (Fault("truncate", after_chunks=3), "without a finish reason"),
        (Fault("error_event", after_chunks=3), "EngineCore encountered an issue"),
    ],
)
def test_failures_stay_visible(fault, said):
    """Request 5 is the third measured one, behind two of warm-up and two others."""
    report = bench(fake(faults={4: fault}), concurrency=1)
    run = report.run_at(1)
    assert (run.completed, run.failed) == (7, 1)
    failed = report.requests[2]
    assert failed.ok is False
    assert said in failed.error
    assert (failed.tpot_ms, failed.e2e_ms) == (None, None)
    assert run.total_output_tokens == 7 * 65
    assert run.throughput_tok_s == pytest.approx(7 * 65 / run.duration_s)
    assert [finding.code for finding in report.findings] == ["JSD690"]


def test_a_retry_does_not_hide_the_failure():
    report = bench(fake(faults={4: Fault("drop", after_chunks=1)}), concurrency=1, retries=2)
    run = report.run_at(1)
    assert (run.completed, run.failed) == (8, 1)
    assert [record.ok for record in report.requests] == [True, True, False, *[True] * 6]
    assert report.requests[2].prompt_id == report.requests[3].prompt_id
    assert [finding.code for finding in report.findings] == ["JSD690"]


def test_engine_that_dies_at_the_first_request():
    with pytest.raises(EndpointError, match="answers no request"):
        bench(fake(faults={0: Fault("engine_dead")}), concurrency=1)


def test_engine_that_dies_later():
    report = bench(fake(faults={4: Fault("engine_dead")}), concurrency=(1, 8))
    assert [(run.completed, run.failed) for run in report.runs] == [(2, 6), (0, 8)]


def test_wrong_key_and_wrong_model():
    with pytest.raises(EndpointError, match="HTTP 401"):
        bench(fake(api_key="sk-right"), api_key="sk-wrong")
    with pytest.raises(EndpointError, match="serves: org/a"):
        bench(fake(model="org/a"), model="org/b")


def test_key_and_served_name():
    server = fake(model="/models/x", served_model_name="nice", api_key="sk-secret-3141")
    options = Benchmark("http://fake", api_key="sk-secret-3141")
    report = bench(server, api_key="sk-secret-3141", concurrency=1)
    assert report.model == "nice"
    assert "sk-secret" not in json.dumps(report.to_json())
    assert "sk-secret" not in repr(options)


def test_a_server_that_repeats_the_key_in_its_error():
    report = bench(
        fake(api_key="sk-secret-3141", faults={4: Fault("status", message="bad key sk-secret-3141")}),
        api_key="sk-secret-3141",
        concurrency=1,
    )
    assert report.requests[2].error == "HTTP 500: bad key ***"


def test_other_users_are_noticed():
    server = fake()
    connection = server.connection()

    async def main():
        from openai import AsyncOpenAI

        other = AsyncOpenAI(
            base_url="http://fake/v1", api_key="x", http_client=connection.http_client(verify=True, timeout=9)
        )

        task = asyncio.ensure_future(
            Benchmark(
                "http://fake",
                connection=connection,
                prompts=texts(20),
                num_prompts=4,
                concurrency=1,
                output_len=64,
                sample_conditions=False,
            ).run_async()
        )
        await asyncio.sleep(3.0)
        await other.completions.create(model=server.model, prompt="hello", max_tokens=3)
        report = await task
        await other.close()
        return report

    loop = connection.new_event_loop()
    try:
        report = loop.run_until_complete(main())
    finally:
        loop.close()
    assert report.conditions.foreign_requests is True
    assert "JSD693" in {finding.code for finding in report.findings}


def test_inside_a_running_loop():
    async def notebook():
        return bench(fake(), concurrency=1)

    assert asyncio.run(notebook()).run_at(1).completed == 8


def test_report_round_trips_and_carries_the_contract():
    report = bench(fake(speculative_config=EAGLE), known=Conditions(max_num_seqs=16))
    data = json.loads(json.dumps(report.to_json()))
    assert BenchReport.from_json(data) == report
    assert {
        "skill",
        "runtime",
        "model",
        "config",
        "runs",
        "warnings",
        "acceptance",
        "conditions",
        "requests",
        "schema_version",
    } <= data.keys()
    assert [run["concurrency"] for run in data["runs"]] == [1, 8]
    assert data["config"]["seed"] == 0
    assert data["config"]["temperature"] == 0
    assert data["conditions"]["max_num_seqs"] == 16
    assert data["conditions"]["vllm_version"] == "0.32.0"
    assert data["conditions"]["prefix_caching"] is True


def test_random_prompts_are_labelled():
    server = fake()
    report = bench(server, prompts="random", concurrency=1, input_len=32, vocabulary=100)
    assert report.config.dataset == "random"
    assert report.config.input_len == 32
    assert report.config.ignore_eos is True
    assert "random-prompts" in {finding.topic for finding in report.findings}
    assert all(len(body["prompt"]) == 32 and max(body["prompt"]) < 100 for body in server.app.bodies)


def test_own_acceptance_of_each_request():
    server = fake(speculative_config=EAGLE, per_request_spec_decode_metrics="summary")
    report = bench(server, concurrency=1)
    own = [record.acceptance for record in report.requests]
    assert sum(part.drafts for part in own) == report.run_at(1).acceptance.drafts
    assert sum(part.accepted_tokens for part in own) == report.run_at(1).acceptance.accepted_tokens


def test_batch_schedule():
    config = {**EAGLE, "num_speculative_tokens": 5, "num_speculative_tokens_per_batch_size": [[1, 2, 5], [3, 64, 0]]}
    report = bench(fake(speculative_config=config), concurrency=(1, 8))
    assert report.run_at(1).acceptance.drafted_tokens == 5 * report.run_at(1).acceptance.drafts
    assert report.run_at(8).tpot_ms_p50 == pytest.approx(23.5, abs=1e-3)


def test_throttling_and_drift_show():
    steady = bench(fake(truth=Truth()), concurrency=1, num_prompts=20).run_at(1)
    slower = bench(fake(truth=Truth(throttle_after_s=14.0, throttle_factor=2.0)), concurrency=1, num_prompts=20)
    assert slower.requests[0].tpot_ms == pytest.approx(steady.tpot_ms_p50, abs=0.01)
    assert slower.requests[-1].tpot_ms == pytest.approx(2 * steady.tpot_ms_p50, abs=0.01)


def test_progress_is_reported():
    seen = []
    bench(fake(faults={3: Fault("status")}), concurrency=(1, 8), num_prompts=4, progress=seen.append)
    assert [(p.concurrency, p.done, p.total) for p in seen] == [(c, n, 4) for c in (1, 8) for n in (1, 2, 3, 4)]
    assert seen[3].failed == 1
    assert seen[-1].failed == 0


def test_prompt_with_earlier_turns():
    server = fake()
    prompts = [
        Prompt(id=str(index), text=f"question {index}", turns=({"role": "system", "content": "be brief"},))
        for index in range(5)
    ]
    bench(server, prompts=PromptSet(name="mine", prompts=tuple(prompts)), concurrency=1, num_prompts=3)
    assert [message["role"] for message in server.app.bodies[0]["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": (0,)},
        {"concurrency": ()},
        {"concurrency": (1, 1)},
        {"output_len": 0},
        {"num_prompts": 0},
        {"retries": -1},
        {"api": "embeddings"},
        {"timeout_s": 0},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(OptionError):
        Benchmark(**options)


def test_a_server_that_does_not_know_stream_options():
    """It refuses the first warm-up request; from then on nothing asks for usage, and /tokenize counts."""
    refusal = Fault("status", status=400, message="Unrecognized field: stream_options")
    server = fake(faults={0: refusal})
    report = bench(server, concurrency=1)
    assert "stream_options" in server.app.bodies[0]
    assert not any("stream_options" in body for body in server.app.bodies[1:])
    assert (report.run_at(1).completed, report.run_at(1).failed) == (8, 0)
    assert [finding.code for finding in report.findings] == ["JSD687"]
