# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest
from attrs import evolve

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.gate import Gate, Verdict
from jetson_specdec.measurements import Acceptance, BenchConfig, BenchReport, Conditions, RequestRecord, Run


def topics(verdict):
    return {finding.topic for finding in verdict.findings}


def blocking(verdict):
    return {finding.topic for finding in verdict.reasons if finding.severity == "blocking"}


def judge(before, after):
    return Gate().judge(before, after)


OFF = {1: (30.0, 33.0), 8: (150.0, 50.0)}
ON = {1: (45.0, 20.0), 8: (160.0, 45.0)}


@pytest.fixture
def arms(point_report):
    return point_report(OFF), point_report(ON)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_one_pair_of_point_values(arms):
    verdict = judge(*arms)
    assert (verdict.outcome, verdict.contract_outcome, verdict.pairs) == ("enable", "enable", 1)
    gain = verdict.criterion("throughput_c1")
    assert (gain.before, gain.after, gain.change, gain.interval) == (
        pytest.approx(30), pytest.approx(45), pytest.approx(0.5), None,
    )  # fmt: skip
    assert "blind-to-noise" in topics(verdict)


def test_one_pair_with_raw_records_has_intervals(measured_report):
    verdict = judge(measured_report({1: 1.0, 8: 1.0}, seed=1), measured_report({1: 2.0, 8: 1.3}, seed=2))
    assert verdict.outcome == "enable"
    for name in ("throughput_c1", "tpot_c1", "throughput_c8"):
        low, high = verdict.criterion(name).interval
        assert low < verdict.criterion(name).change < high
    assert "blind-to-noise" not in topics(verdict)
    assert "one-pair" in topics(verdict)


def test_many_pairs_take_the_wider_of_both_intervals(measured_report):
    before = [measured_report({1: 1.0, 8: 1.0}, seed=seed, noise=0.3) for seed in range(4)]
    after = [measured_report({1: 1.7, 8: 1.2}, seed=100 + seed, noise=0.3) for seed in range(4)]
    verdict = judge(before, after)
    bare = judge([evolve(one, requests=()) for one in before], [evolve(one, requests=()) for one in after])
    assert verdict.pairs == 4
    for name in ("throughput_c1", "tpot_c1", "throughput_c8"):
        (low, high), (bare_low, bare_high) = verdict.criterion(name).interval, bare.criterion(name).interval
        assert low <= bare_low
        assert high >= bare_high


def test_noise_is_not_a_regression(measured_report):
    before = [measured_report({1: 1.0, 8: 1.0}, seed=seed) for seed in range(5)]
    after = [measured_report({1: 2.0, 8: 0.995}, seed=100 + seed) for seed in range(5)]
    verdict = judge(before, after)
    assert verdict.criterion("throughput_c8").change < 0
    assert (verdict.outcome, verdict.contract_outcome) == ("enable", "disable")


def test_pairs_need_as_many_reports(arms):
    before, after = arms
    with pytest.raises(ReportError) as caught:
        judge([before, before], [after])
    assert caught.value.code == "JSE615"
    with pytest.raises(ReportError) as caught:
        judge(None, [])
    assert caught.value.code == "JSE611"


def test_one_arm_alone_is_incomplete(arms):
    verdict = judge(None, arms[1])
    assert (verdict.outcome, verdict.criterion("throughput_c1").after) == ("incomplete", pytest.approx(45))
    assert judge(arms[0], None).outcome == "incomplete"


def test_pairs_that_lack_a_figure_are_left_out_and_said(point_report):
    before = [point_report(OFF)] * 3
    after = [point_report(ON), point_report({1: ON[1]}), point_report(ON)]
    verdict = judge(before, after)
    assert (verdict.criterion("throughput_c1").pairs, verdict.criterion("throughput_c8").pairs) == (3, 2)
    assert "pairs-incomplete" in topics(verdict)


def test_categories_have_verdicts_of_their_own(measured_report):
    before = measured_report({1: 1.0, 8: 1.0}, seed=1)
    after = measured_report({1: 1.0, 8: 1.3}, seed=2)

    def sped_up(record):
        if record.category != "code" or record.concurrency != 1:
            return record
        return evolve(record, tpot_ms=record.tpot_ms / 3, e2e_ms=100 + 99 * record.tpot_ms / 3)

    after = evolve(after, requests=tuple(map(sped_up, after.requests)))
    verdict = judge(before, after)
    assert {category.category: category.outcome for category in verdict.categories} == {
        "code": "enable", "chat": "disable",
    }  # fmt: skip
    assert {category.requests for category in verdict.categories} == {12}
    assert Verdict.from_json(verdict.to_json()) == verdict


def with_runs(report, **values):
    """Set fields of the run at concurrency 8."""
    return evolve(report, runs=tuple(evolve(run, **values) if run.concurrency == 8 else run for run in report.runs))


@pytest.mark.parametrize(
    ("without", "with_", "topic"),
    [
        (0.0, 12.0, "kv-preemption"),
        (3.0, 3.0, "speculation-costs"),
        (0.0, None, "loss-unexplained"),
    ],
)
def test_preemptions_tell_why_concurrency_8_lost(arms, without, with_, topic):
    before, after = arms
    verdict = judge(with_runs(before, preemptions=without), with_runs(after, preemptions=with_, throughput_tok_s=120.0))
    assert verdict.outcome == "disable"
    assert {"regression-c8", topic} <= {finding.topic for finding in verdict.reasons}
    kinds = {step.kind for step in verdict.next_steps}
    assert "gate-batch-schedule" in kinds
    assert ("gate-more-kv" in kinds) == (topic == "kv-preemption")


def test_limited_use_is_not_offered_twice(measured_report):
    before = [measured_report({1: 1.0, 8: 1.0}, seed=seed) for seed in range(4)]

    def after(**config):
        conditions = Conditions(speculative_config={"method": "eagle3", "num_speculative_tokens": 3, **config})
        return [measured_report({1: 2.0, 8: 0.8}, seed=50 + seed, conditions=conditions) for seed in range(4)]

    plain = judge(before, after())
    assert (plain.outcome, plain.exit_code, plain.contract_outcome) == ("enable_limited", 14, "disable")
    scheduled = judge(before, after(num_speculative_tokens_per_batch_size=[[1, 2, 3], [3, 8, 1]]))
    assert scheduled.outcome == "disable"
    assert "gate-batch-schedule" not in {step.kind for step in scheduled.next_steps}


# --- lossless --------------------------------------------------------------------------------------------------------


def answers(tokens, *, temperature=0.0, **more):
    records = tuple(
        RequestRecord(concurrency=1, index=index, prompt_id=f"p{index}", token_ids=tuple(ids), **more)
        for index, ids in enumerate(tokens)
    )
    return BenchReport(
        model="org/target",
        config=BenchConfig(temperature=temperature),
        runs=(Run(concurrency=1, throughput_tok_s=10.0),),
        requests=records,
    )


def test_answers_are_compared_token_by_token():
    verdict = judge(answers([[1, 2, 3, 4], [5, 6, 7, 8]]), answers([[1, 2, 3, 4], [5, 9, 7, 8]]))
    # 4 of 4 and 1 of 4 leading tokens.
    assert (verdict.lossless.compared, verdict.lossless.identical) == (2, 1)
    assert verdict.lossless.token_agreement == pytest.approx(5 / 8)
    assert "answers-differ" in topics(verdict)
    explanation = next(finding for finding in verdict.findings if finding.topic == "answers-differ")
    from jetson_specdec.messages import explain

    assert "Benign causes" in explain(explanation.code)


def test_equal_answers_are_reported_too():
    verdict = judge(answers([[1, 2, 3]] * 3), answers([[1, 2, 3]] * 3))
    assert verdict.lossless.token_agreement == 1.0
    assert "lossless" in topics(verdict)


def test_digests_tell_identity_only():
    def arm(texts):
        report = answers([[1]] * len(texts))
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        records = [evolve(r, token_ids=None, text_sha256=d) for r, d in zip(report.requests, digests, strict=True)]
        return evolve(report, requests=tuple(records))

    found = judge(arm(["a", "b"]), arm(["a", "c"])).lossless
    assert (found.compared, found.identical, found.token_agreement) == (2, 1, None)


def test_sampled_answers_are_not_compared():
    assert judge(answers([[1]], temperature=0.7), answers([[1]], temperature=0.7)).lossless is None


# --- validity --------------------------------------------------------------------------------------------------------


def both(arms, which, change):
    before, after = arms
    return (change(before), after) if which == "before" else (before, change(after))


ONE_ARM = {
    "failed-requests": lambda report: with_runs(report, completed=29, failed=1),
    "throttled": lambda report: evolve(report, conditions=Conditions(throttled=True)),
    "swap": lambda report: evolve(report, conditions=Conditions(swap_growth_bytes=2**30)),
    "synthetic-acceptance": lambda report: evolve(
        report, conditions=Conditions(speculative_config={"rejection_sample_method": "synthetic"})
    ),
    "other-traffic": lambda report: evolve(report, conditions=Conditions(foreign_requests=True)),
    "counter-reset": lambda report: with_runs(report, acceptance=Acceptance(state="reset", rate=0.5)),
    "run-failed": lambda report: evolve(report, runs=(Run(concurrency=1), Run(concurrency=8))),
}


@pytest.mark.parametrize("which", ["before", "after"])
@pytest.mark.parametrize("topic", sorted(ONE_ARM))
def test_an_arm_that_failed_is_invalid(arms, which, topic):
    verdict = judge(*both(arms, which, ONE_ARM[topic]))
    assert (verdict.outcome, verdict.contract_outcome, verdict.exit_code) == ("invalid", "invalid", 13)
    assert blocking(verdict) == {topic}
    named = [finding.values["arm"] for finding in verdict.reasons]
    assert named == [which]
    assert all(criterion.change is None and criterion.interval is None for criterion in verdict.criteria)


DIFFERENT = {
    "different-models": lambda report: evolve(report, model="org/other"),
    "other-engine": lambda report: evolve(report, conditions=Conditions(vllm_version="0.31.0")),
    "different-boards": lambda report: evolve(report, variant="orin-agx-64gb"),
    "power-mode-differs": lambda report: evolve(report, conditions=Conditions(power_mode="MODE_30W")),
    "different-prompts": lambda report: evolve(report, config=BenchConfig(prompts_sha256="b" * 64)),
}


@pytest.mark.parametrize("topic", sorted(DIFFERENT))
def test_arms_that_differ_in_more_than_speculation_are_invalid(arms, topic):
    known = {
        "variant": "thor-t5000",
        "config": BenchConfig(prompts_sha256="a" * 64),
        "conditions": Conditions(vllm_version="0.32.0", power_mode="MAXN"),
    }
    before, after = (evolve(report, **known) for report in arms)
    assert judge(before, after).outcome == "enable"
    verdict = judge(before, DIFFERENT[topic](after))
    assert blocking(verdict) == {topic}
    # What one arm does not tell is not held against it.
    assert judge(evolve(before, variant=None, config=BenchConfig(), conditions=Conditions()), after).outcome == "enable"


def test_a_runner_of_the_engine_is_part_of_it(arms):
    before, after = (
        evolve(report, conditions=Conditions(model_runner=runner))
        for report, runner in zip(arms, ("v1", "v2"), strict=True)
    )
    assert blocking(judge(before, after)) == {"other-engine"}


def test_images_count_where_versions_are_unknown(arms):
    before, after = (
        evolve(report, container=image)
        for report, image in zip(arms, ("vllm/vllm-openai:v0.31.0", "vllm/vllm-openai:v0.32.0"), strict=True)
    )
    assert blocking(judge(before, after)) == {"other-engine"}
    same = Conditions(vllm_version="0.32.0")
    assert judge(evolve(before, conditions=same), evolve(after, conditions=same)).outcome == "enable"


@pytest.mark.parametrize(
    ("names", "topic"),
    [
        (("meta-llama/Llama-3.1-8B-Instruct", "nvidia/Llama-3.1-8B-Instruct-FP8"), "other-precision-baseline"),
        (("org/Some-7B-AWQ", "org/Some-7B"), "other-precision-baseline"),
        (("Qwen/Qwen3-8B", "Qwen/Qwen3-4B"), "different-models"),
    ],
)
def test_another_precision_is_named_as_such(arms, names, topic):
    before, after = (evolve(report, model=name) for report, name in zip(arms, names, strict=True))
    assert topic in blocking(judge(before, after))


def test_the_same_precision_in_both_arms_is_only_noted(arms):
    before, after = (evolve(report, model="nvidia/Llama-3.1-8B-Instruct-FP8") for report in arms)
    verdict = judge(before, after)
    assert verdict.outcome == "enable"
    assert "other-precision-baseline" in topics(verdict)


@pytest.mark.parametrize(
    ("tokens", "outcome"), [((2048, 128), "invalid"), ((205, 103), "enable"), ((202, 128), "invalid")]
)
def test_tokens_a_request_show_other_prompts(arms, tokens, outcome):
    def told(report, prompt, answer):
        totals = {"completed": 10, "total_input_tokens": 10 * prompt, "total_output_tokens": 10 * answer}
        return with_runs(report, **totals)

    verdict = judge(told(arms[0], 202, 100), told(arms[1], *tokens))
    assert verdict.outcome == outcome
    if outcome == "invalid":
        assert blocking(verdict) == {"different-prompts"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (BenchConfig(input_len=128), BenchConfig(input_len=256)),
        (BenchConfig(num_prompts=10), BenchConfig(num_prompts=20)),
        (BenchConfig(temperature=0.0), BenchConfig(temperature=0.7)),
        (BenchConfig(dataset="random", seed=1), BenchConfig(dataset="random", seed=2)),
        (BenchConfig(ignore_eos=True), BenchConfig(ignore_eos=False)),
    ],
)
def test_other_settings_are_other_prompts(arms, old, new):
    before, after = (evolve(report, config=config) for report, config in zip(arms, (old, new), strict=True))
    assert blocking(judge(before, after)) == {"different-prompts"}


def test_a_seed_matters_only_where_it_makes_the_prompts(arms):
    before, after = (evolve(report, config=BenchConfig(seed=seed)) for report, seed in zip(arms, (1, 2), strict=True))
    assert judge(before, after).outcome == "enable"


def test_requests_that_never_came_back_have_failed(arms):
    before, after = (evolve(report, config=BenchConfig(num_prompts=30)) for report in arms)
    assert blocking(judge(with_runs(before, completed=30), with_runs(after, completed=28))) == {"failed-requests"}


def test_raw_records_that_failed_count(measured_report):
    before, after = measured_report({1: 1.0}, seed=1), measured_report({1: 2.0}, seed=2)
    broken = evolve(after.requests[3], ok=False, error="HTTP 500")
    after = evolve(after, requests=(*after.requests[:3], broken, *after.requests[4:]))
    assert blocking(judge(before, after)) == {"failed-requests"}


def test_prefix_hits_of_one_arm_only_are_invalid(arms):
    before, after = arms
    cold = {"prefix_cache_queries": 1000.0, "prefix_cache_hits": 0.0}
    warm = {"prefix_cache_queries": 1000.0, "prefix_cache_hits": 800.0}
    assert blocking(judge(with_runs(before, **cold), with_runs(after, **warm))) == {"prefix-hits"}
    assert judge(with_runs(before, **warm), with_runs(after, **warm)).outcome == "enable"


def test_a_cold_first_request_is_invalid(measured_report):
    before, after = measured_report({1: 1.0, 8: 1.0}, seed=1), measured_report({1: 2.0, 8: 1.2}, seed=2)
    assert judge(before, after).outcome == "enable"
    slow = evolve(before.requests[0], ttft_ms=9000.0)
    verdict = judge(evolve(before, requests=(slow, *before.requests[1:])), after)
    assert blocking(verdict) == {"cold-start"}
    # The slowest request is in the middle: that is not a cold start.
    slow = evolve(before.requests[5], ttft_ms=9000.0)
    late = evolve(before, requests=(*before.requests[:5], slow, *before.requests[6:]))
    assert "cold-start" not in blocking(judge(late, after))


def test_without_records_a_slow_tail_only_warns(arms):
    before = evolve(arms[0], runs=(evolve(arms[0].runs[0], ttft_ms_p50=100.0, ttft_ms_p99=5000.0), arms[0].runs[1]))
    verdict = judge(before, arms[1])
    assert verdict.outcome == "enable"
    assert "cold-start" in topics(verdict)


@pytest.mark.parametrize(
    ("conditions", "state", "topic"),
    [
        (Conditions(speculation=False), None, "speculation-off"),
        (Conditions(), "idle", "speculation-off"),
        (Conditions(), "absent", "speculation-off"),
        (Conditions(speculation=True), "absent", None),
        (Conditions(), None, None),
        (Conditions(), "active", None),
    ],
)
def test_speculation_that_is_silently_off_is_caught(arms, conditions, state, topic):
    acceptance = None if state is None else Acceptance(state=state)
    after = evolve(arms[1], conditions=conditions, acceptance=acceptance)
    verdict = judge(arms[0], after)
    assert blocking(verdict) == ({topic} if topic else set())
    if conditions.speculation and state == "absent":
        assert "no-counters" in topics(verdict)


@pytest.mark.parametrize(
    "change",
    [
        lambda report: evolve(report, conditions=Conditions(speculation=True)),
        lambda report: evolve(report, acceptance=Acceptance(state="active", rate=0.5)),
    ],
)
def test_a_baseline_that_speculates_is_none(arms, change):
    assert blocking(judge(change(arms[0]), arms[1])) == {"baseline-speculates"}


def test_one_bad_pair_is_named(point_report):
    before = [point_report({**OFF, 1: (30.0 + number, 33.0)}) for number in range(3)]
    after = [point_report({**ON, 1: (45.0 + number, 20.0)}) for number in range(3)]
    verdict = judge(before, [after[0], with_runs(after[1], failed=2, completed=10), after[2]])
    assert verdict.outcome == "invalid"
    assert [finding.values["pair"] for finding in verdict.reasons] == [2]


def test_pairs_of_different_models_cannot_be_pooled(point_report):
    one = point_report(OFF), point_report(ON)
    two = point_report(OFF, model="org/other"), point_report(ON, model="org/other")
    assert "different-models" in blocking(judge([one[0], two[0]], [one[1], two[1]]))


# --- notes -----------------------------------------------------------------------------------------------------------


def test_notes_about_how_it_was_measured(arms):
    def slower_mode(report):
        return evolve(
            report,
            config=BenchConfig(dataset="random", seed=1),
            conditions=Conditions(power_mode="120W", power_mode_is_max=False, gpu_processes=("Xorg",)),
        )

    assert {"random-prompts", "power-mode-not-max", "gpu-shared"} <= topics(judge(*map(slower_mode, arms)))


def test_gap_between_pieces_is_not_the_time_per_token(arms):
    def with_itl(report, itl):
        return evolve(report, runs=(evolve(report.runs[0], itl_ms_p50=itl), report.runs[1]))

    verdict = judge(with_itl(arms[0], 33.0), with_itl(arms[1], 60.0))
    assert "itl-not-tpot" in topics(verdict)
    assert verdict.outcome == "enable"


@pytest.mark.parametrize(
    ("acceptance", "topic"),
    [
        (Acceptance(state="active", rate=0.1, drafts=5000), "low-acceptance"),
        (Acceptance(state="active", rate=0.0, drafts=5000, drafted_tokens=15000), "zero-acceptance"),
        (Acceptance(state="active", rate=0.7, drafts=20), "too-few-drafts"),
    ],
)
def test_notes_about_acceptance(arms, acceptance, topic):
    assert topic in topics(judge(arms[0], evolve(arms[1], acceptance=acceptance)))


def test_what_the_readers_found_is_kept(arms):
    found = Finding.of("JSD601", fields=["ttft_ms_p99 (c=1)"], count=1)
    assert "zero-is-missing" in topics(judge(arms[0].with_findings(found), arms[1]))


def test_the_same_reports_give_the_same_verdict(measured_report):
    arms = measured_report({1: 1.0, 8: 1.0}, seed=1), measured_report({1: 1.31, 8: 1.0}, seed=2)
    assert judge(*arms) == judge(*arms)
