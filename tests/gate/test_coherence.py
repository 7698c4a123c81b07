# SPDX-License-Identifier: Apache-2.0
import pytest
from attrs import evolve

from jetson_specdec.gate import Gate
from jetson_specdec.measurements import BenchConfig, BenchReport, Conditions, Run, decode_share
from jetson_specdec.measurements.coherence import contradictions


def report(tpot=50.0, *, tokens=100, requests=20, ttft=400.0, streams=1, **more):
    """Make a report whose figures fit each other, unless `more` says otherwise."""
    whole = ttft + (tokens - 1) * tpot
    figures = {
        "tpot_ms_p50": tpot,
        "ttft_ms_p50": ttft,
        "e2e_latency_ms_p50": whole,
        "throughput_tok_s": streams * tokens * 1000 / whole,
        "duration_s": requests * whole / 1000 / streams,
        "completed": requests,
        "failed": 0,
        "total_output_tokens": requests * tokens,
    }
    run = Run(concurrency=streams, **{**figures, **more})
    return BenchReport(model="org/target", runs=(run,), config=BenchConfig(output_len=tokens))


def codes(one):
    return {found.code for found in contradictions(one)}


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"tpot_ms_p50": 0.03}, "JSD604"),  # seconds
        ({"tpot_ms_p50": 30_000.0}, "JSD604"),  # microseconds
        ({"tpot_ms_p50": 5.0, "e2e_latency_ms_p50": None}, "JSD604"),
        ({"throughput_tok_s": 1e9, "duration_s": None}, "JSD604"),
        ({"throughput_tok_s": 60 * 20.0, "duration_s": None}, "JSD604"),  # a minute
        ({"throughput_tok_s": 0.1, "duration_s": None}, "JSD604"),
        ({"ttft_ms_p50": None, "e2e_latency_ms_p50": None, "tpot_ms_p50": 0.05}, "JSD604"),
        ({"total_output_tokens": None, "tpot_ms_p50": 0.05}, "JSD604"),
        ({"duration_s": 1000.0}, "JSD605"),
        ({"total_output_tokens": 200, "completed": None}, "JSD605"),
        ({"e2e_latency_ms_p50": 5.35}, "JSD606"),  # seconds
        ({"ttft_ms_p50": 400_000.0}, "JSD606"),
    ],
)
def test_figures_that_cannot_both_be_true(wrong, code):
    good, bad = report(), report(**wrong)
    assert codes(good) == set()
    assert code in codes(bad)
    for before, after, arm in ((good, bad, "after"), (bad, good, "before")):
        verdict = Gate().judge(before, after)
        assert (verdict.outcome, verdict.contract_outcome) == ("invalid", "invalid")
        said = [reason for reason in verdict.reasons if reason.code == code]
        assert [reason.values["arm"] for reason in said] == [arm]
        assert "None" not in said[0].message


@pytest.mark.parametrize("streams", [1, 8, 64])
@pytest.mark.parametrize("ttft", [10.0, 400.0, 60_000.0])
@pytest.mark.parametrize("tokens", [2, 100, 4000])
def test_whatever_the_share_of_prefill_true_figures_pass(streams, ttft, tokens):
    one = report(ttft=ttft, tokens=tokens, streams=streams)
    assert codes(one) == set()
    pauses = evolve(one, runs=tuple(evolve(run, throughput_tok_s=run.throughput_tok_s / 1.2) for run in one.runs))
    assert codes(pauses) == set()


@pytest.mark.parametrize("field", ["duration_s", "total_output_tokens", "ttft_ms_p50", "tpot_ms_p50", "completed"])
def test_what_is_not_known_contradicts_nothing(field):
    assert codes(report(**{field: None})) == set()


def test_a_speed_far_too_high_shows_at_any_concurrency():
    assert "JSD604" in codes(report(streams=8, throughput_tok_s=1e6, duration_s=None))


def test_a_wrong_unit_leaves_the_share_of_decoding_unknown():
    assert decode_share(report()) == pytest.approx(99 * 50 / (400 + 99 * 50))
    assert decode_share(report(tpot_ms_p50=0.05)) is None
    assert decode_share(report(duration_s=10_000.0)) is None


@pytest.mark.parametrize("name", ["tpot_ms", "ttft_ms"])
def test_requests_are_held_against_their_summary(measured_report, name):
    before, after = measured_report({1: 1.0}, seed=1), measured_report({1: 2.0}, seed=2)
    assert codes(before) == codes(after) == set()
    shifted = tuple(evolve(record, **{name: getattr(record, name) * 10}) for record in after.requests)
    verdict = Gate().judge(before, evolve(after, requests=shifted))
    assert verdict.outcome == "invalid"
    (reason,) = verdict.reasons
    assert (reason.code, reason.values["name"]) == ("JSD607", f"{name}_p50")


def test_tokens_of_requests_are_held_against_their_summary(measured_report):
    after = measured_report({1: 2.0}, seed=2)
    one = evolve(after, requests=tuple(evolve(record, output_tokens=10) for record in after.requests))
    assert "JSD607" in codes(one)


# --- the same report several times -----------------------------------------------------------------------------------


def test_copies_of_a_pair_are_no_further_pairs(measured_report):
    before, after = measured_report({1: 1.0, 8: 1.0}, seed=1), measured_report({1: 2.0, 8: 1.3}, seed=2)
    assert Gate().judge(before, after).outcome == "enable"
    verdict = Gate().judge([before] * 3, [after] * 3)
    assert verdict.outcome == "invalid"
    assert {reason.code for reason in verdict.reasons} == {"JSD609"}
    assert {(reason.values["other"], reason.values["pair"]) for reason in verdict.reasons} == {(1, 2), (1, 3)}


def test_one_baseline_for_several_runs_is_one_baseline(measured_report):
    before = measured_report({1: 1.0}, seed=1)
    verdict = Gate().judge([before, before], [measured_report({1: 2.0}, seed=seed) for seed in (2, 3)])
    assert [reason.values["arm"] for reason in verdict.reasons if reason.code == "JSD609"] == ["before"]


def test_a_copy_is_known_by_its_content_not_by_what_a_reader_noticed(measured_report):
    before, after = measured_report({1: 1.0}, seed=1), measured_report({1: 2.0}, seed=2)
    noted = evolve(after, findings=(Gate().judge(before, after).findings[0],))
    verdict = Gate().judge([before, measured_report({1: 1.0}, seed=5)], [after, noted])
    assert "repeated-report" in {reason.topic for reason in verdict.reasons}


# --- what was asked of the servers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "before", "after", "invalid"),
    [
        ("vllm_bench_json", {"request_rate": 0.1}, {}, True),
        ("vllm_bench_json", {}, {"request_rate": 0.1}, True),
        ("vllm_bench_json", {"request_rate": 0.1}, {"request_rate": 0.1}, False),
        ("guidellm", {"request_rate": 0.1}, {"request_rate": 0.2}, True),
        ("guidellm", {"request_rate": 0.1}, {}, False),
        ("vllm_bench_json", {"endpoint": "chat"}, {"endpoint": "completions"}, True),
        ("vllm_bench_json", {"endpoint": "chat"}, {}, False),
    ],
)
def test_arms_under_another_load_cannot_be_compared(source, before, after, invalid):
    arms = [
        evolve(report(tpot), config=BenchConfig(**config), source_format=source)
        for tpot, config in ((50.0, before), (30.0, after))
    ]
    verdict = Gate().judge(*arms)
    assert (verdict.outcome == "invalid") == invalid
    assert ("different-prompts" in {reason.topic for reason in verdict.reasons}) == invalid


@pytest.mark.parametrize(("source", "outcome"), [("jetson_llm_benchmark", "invalid"), ("guidellm", "incomplete")])
def test_a_low_power_mode_beside_an_unknown_one(source, outcome):
    slow = Conditions(power_mode="15W", power_mode_is_max=False)
    before = evolve(report(), conditions=slow, source_format=source)
    verdict = Gate().judge(before, evolve(report(30.0), source_format=source))
    assert verdict.outcome == outcome
    assert "power-mode-differs" in {finding.topic for finding in verdict.findings}


def test_figures_hundreds_of_powers_of_ten_apart_are_no_crash():
    for points in ((1e-300, 1e300), (1e300, 1e-300)):
        verdict = Gate().judge_points(throughput_c1=points, tpot_c1=points[::-1], throughput_c8=(1.0, 1.0))
        assert verdict.criterion("throughput_c1").change is not None
        repeated = Gate().judge_points(throughput_c1=([points[0]] * 3, [points[1], points[1], 2 * points[1]]))
        assert repeated.outcome
