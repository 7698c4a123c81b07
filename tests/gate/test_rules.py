# SPDX-License-Identifier: Apache-2.0
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import ReportError
from jetson_specdec.gate import EXIT_CODES, Gate, Verdict
from jetson_specdec.policy import Policy


def points(gain=None, time=None, eight=None, **more):
    """Judge plain ratios."""
    return Gate().judge_points(
        throughput_c1=None if gain is None else (10.0, 10.0 * gain),
        tpot_c1=None if time is None else (100.0, 100.0 * time),
        throughput_c8=None if eight is None else (50.0, 50.0 * eight),
        **more,
    )


def topics(verdict):
    return {finding.topic for finding in verdict.findings}


def kinds(verdict):
    return {step.kind for step in verdict.next_steps}


@pytest.mark.parametrize(
    ("gain", "tpot", "eight", "outcome"),
    [
        (1.30, 0.80, 1.00, "enable"),  # each exactly at its threshold
        (1.31, 0.79, 1.01, "enable"),
        (1.299, 0.70, 1.10, "marginal"),
        (1.40, 0.801, 1.10, "marginal"),
        (1.40, 0.70, 0.999, "disable"),
        (1.099, 0.70, 1.10, "disable"),
        (1.10, 0.70, 1.10, "marginal"),
        (1.40, 0.70, None, "incomplete"),
        (1.40, None, 1.10, "incomplete"),
        (1.40, None, 0.90, "disable"),
        (None, 0.70, 1.10, "incomplete"),
        (1.20, None, None, "marginal"),  # can no longer become enable
        (1.05, None, None, "disable"),  # needs no other number
        (None, None, None, "incomplete"),
    ],
)
def test_the_literal_rule_on_point_values(gain, tpot, eight, outcome):
    verdict = points(gain, tpot, eight)
    assert verdict.outcome == outcome
    assert verdict.contract_outcome == outcome
    assert verdict.exit_code == EXIT_CODES[outcome]
    if gain or tpot or eight:
        assert "blind-to-noise" in topics(verdict)


def test_exit_codes_are_those_of_the_design():
    assert EXIT_CODES == {
        "enable": 0, "disable": 10, "marginal": 11, "inconclusive": 12, "incomplete": 12, "invalid": 13,
        "enable_limited": 14,
    }  # fmt: skip


def test_missing_figures_are_named_and_asked_for():
    verdict = points(1.4, None, None)
    assert {"missing-tpot", "missing-c8"} <= topics(verdict)
    assert "missing-throughput" not in topics(verdict)
    (step,) = [step for step in verdict.next_steps if step.kind == "gate-measure"]
    assert step.values["missing"] == ["tpot_c1", "throughput_c8"]


def test_a_loss_at_another_concurrency_limits_what_could_be_enabled():
    verdict = points(1.4, 0.7, None, throughput={16: (100.0, 80.0), 4: (40.0, 50.0)})
    assert verdict.outcome == "enable_limited"
    assert verdict.contract_outcome == "incomplete"
    assert "gate-batch-schedule" in kinds(verdict)
    assert verdict.criterion("throughput_c16").change == pytest.approx(-0.2)
    # Measured at 8 without loss: the contract speaks, the loss is a warning.
    fine = points(1.4, 0.7, 1.0, throughput={16: (100.0, 80.0)})
    assert fine.outcome == "enable"
    assert "loses-above" in topics(fine)


def test_tpot_tells_where_a_concurrency_has_no_throughput():
    assert points(None, 0.81, None, tpot={16: (20.0, 21.0)}).outcome == "disable"
    assert points(None, 0.81, None, tpot={16: (20.0, 19.0)}).outcome == "incomplete"
    assert points(None, 0.70, None, tpot={16: (20.0, 21.0)}).outcome == "incomplete"


def test_concurrency_8_does_not_apply_to_a_small_server():
    verdict = points(1.4, 0.7, None, max_num_seqs=4)
    assert verdict.outcome == "enable"
    assert verdict.criterion("throughput_c8") is None
    assert "c8-not-applicable" in topics(verdict)
    assert points(1.4, 0.7, 0.5, max_num_seqs=4).outcome == "enable"
    assert points(1.4, 0.7, 0.5, max_num_seqs=8).outcome == "disable"


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("n-gram k=4", {"method-not-ours", "try-smaller-k"}),
        ("EAGLE-3, k = 2", {"try-smaller-k"}),
        ("eagle k=7", {"method-not-ours", "try-smaller-k"}),
        ("5", {"try-smaller-k"}),
        ("draft model", set()),
        ("medusa", {"method-not-ours"}),
    ],
)
def test_a_label_tells_method_and_k(label, found):
    verdict = points(1.2, 0.9, 1.0, label=label)
    assert topics(verdict) & {"method-not-ours", "try-smaller-k"} == found


@pytest.mark.parametrize(
    ("more", "severity"),
    [
        ({"target": "openai/gpt-oss-20b"}, "warning"),
        ({"target": "someone/Model-30B-A3B-FP8"}, "warning"),
        ({"moe": True}, "warning"),
        ({"target": "Qwen/Qwen3-8B"}, None),
        ({"moe": False}, None),
        ({}, "info"),
    ],
)
def test_mixtures_of_experts_are_named(more, severity):
    found = [finding.severity.value for finding in points(1.2, **more).findings if finding.topic == "moe-target"]
    assert found == ([severity] if severity else [])


def test_low_gain_suggests_a_smaller_k_and_switching_off():
    verdict = points(1.05, 0.95, 1.0, k=6)
    assert {"remove-speculation", "gate-smaller-k"} <= kinds(verdict)


def test_time_to_the_first_token_is_a_guard_and_no_criterion_of_the_contract():
    verdict = points(1.4, 0.7, 1.0, ttft_c1=(100.0, 150.0))
    assert verdict.outcome == "enable"
    assert verdict.criterion("ttft_c1").state == "failed"
    assert "ttft-rise" in topics(verdict)
    assert points(1.4, 0.7, 1.0, ttft_c1=(100.0, 110.0)).criterion("ttft_c1").state == "met"


def test_repeated_figures_are_pairs_and_noise_decides():
    before, after = [30.0, 31.0, 29.0], [39.6, 40.0, 38.0]
    verdict = Gate().judge_points(
        throughput_c1=(before, after), tpot_c1=([33.0] * 3, [24.0] * 3), throughput_c8=([150.0] * 3, [151.0] * 3)
    )
    criterion = verdict.criterion("throughput_c1")
    assert criterion.pairs == 3
    assert criterion.interval[0] < criterion.change < criterion.interval[1]
    assert criterion.state == "undecided"
    assert (verdict.outcome, verdict.contract_outcome) == ("inconclusive", "enable")
    assert {"noise", "contract-differs"} <= topics(verdict)
    assert verdict.exit_code == 12


def test_how_many_more_pairs_follows_from_the_spread():
    import math

    from scipy import stats

    logs = [math.log(1.36) + shift for shift in (-0.04, 0.0, 0.04)]
    verdict = Gate().judge_points(
        throughput_c1=([10.0] * 3, [10 * math.exp(value) for value in logs]),
        tpot_c1=([33.0] * 3, [20.0] * 3),
        throughput_c8=([150.0] * 3, [160.0] * 3),
    )
    assert verdict.outcome == "inconclusive"
    needed = next(n for n in range(4, 50) if math.log(1.36) - stats.t.ppf(0.95, n - 1) * 0.04 / n**0.5 >= math.log(1.3))
    assert verdict.more_pairs == needed - 3
    assert [step.values["more"] for step in verdict.next_steps if step.kind == "gate-more-pairs"] == [needed - 3]


def test_an_effect_at_the_threshold_is_never_settled():
    verdict = Gate().judge_points(
        throughput_c1=([10.0] * 3, [12.0, 13.0, 14.0833]),
        tpot_c1=([33.0] * 3, [20.0] * 3),
        throughput_c8=([150.0] * 3, [160.0] * 3),
    )
    assert (verdict.outcome, verdict.more_pairs) == ("inconclusive", None)
    assert "gate-treat-as-off" in kinds(verdict)


def test_a_small_loss_at_8_inside_the_margin_is_no_regression():
    after = [146.9, 147.2, 147.0]
    verdict = Gate().judge_points(
        throughput_c1=([10.0] * 3, [14.0, 14.1, 14.2]),
        tpot_c1=([33.0] * 3, [20.0, 20.1, 20.2]),
        throughput_c8=([150.0] * 3, after),
    )
    assert (verdict.outcome, verdict.contract_outcome) == ("enable", "disable")
    strict = Gate(policy=Policy(equivalence_margin=0.0)).judge_points(
        throughput_c1=([10.0] * 3, [14.0, 14.1, 14.2]),
        tpot_c1=([33.0] * 3, [20.0, 20.1, 20.2]),
        throughput_c8=([150.0] * 3, after),
    )
    assert strict.outcome == "enable_limited"


def test_high_spread_is_said():
    verdict = Gate().judge_points(throughput_c1=([10.0] * 4, [14.0, 18.0, 11.0, 20.0]))
    assert "high-variance" in topics(verdict)


def test_a_known_spread_gives_single_figures_an_interval():
    import math

    from scipy import stats

    low, high = points(1.35, 0.6, 1.2, spread=0.05).criterion("throughput_c1").interval
    reach = stats.norm.ppf(0.95) * math.log(1.05) * 2**0.5
    assert (1 + low, 1 + high) == (pytest.approx(1.35 * math.exp(-reach)), pytest.approx(1.35 * math.exp(reach)))
    assert points(1.35, 0.6, 1.2, spread=0.05).outcome == "inconclusive"
    assert points(1.35, 0.6, 1.2, spread=0.001).outcome == "enable"


def test_unequal_series_are_judged_as_independent():
    verdict = Gate().judge_points(throughput_c1=([10.0, 10.1], [9.0, 9.1, 8.9]))
    assert verdict.outcome == "disable"
    assert verdict.criterion("throughput_c1").interval is not None


def test_thresholds_come_from_the_policy():
    gate = Gate(policy=Policy(enable_throughput_gain=0.5, enable_tpot_drop=0.4))
    verdict = gate.judge_points(throughput_c1=(10, 14), tpot_c1=(100, 70), throughput_c8=(50, 55))
    assert verdict.outcome == "marginal"
    assert verdict.criterion("throughput_c1").threshold == 0.5
    assert verdict.criterion("tpot_c1").threshold == -0.4


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, "12", [10.0, 0.0]])
def test_figures_must_be_numbers_above_zero(value):
    with pytest.raises(ReportError) as caught:
        Gate().judge_points(throughput_c1=(10.0, value))
    assert "\n" not in str(caught.value)


ratio = st.floats(0.5, 2.0)
RANK = {"disable": 0, "marginal": 1, "enable": 2}


@given(ratio, ratio, ratio, st.floats(1.0, 1.5), st.sampled_from(["gain", "time", "eight"]))
def test_better_figures_never_make_the_literal_outcome_worse(gain, tpot, eight, factor, which):
    better = {"gain": gain, "time": tpot, "eight": eight}
    better[which] = better[which] / factor if which == "time" else better[which] * factor
    assert RANK[points(**better).outcome] >= RANK[points(gain, tpot, eight).outcome]


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=6), ratio, ratio, ratio, st.floats(0, 1))
def test_less_noise_around_the_same_means_keeps_a_decision(noise, gain, tpot, eight, shrink):
    import math

    middle = sum(noise) / len(noise)

    def judge(scale):
        def series(base, factor):
            return [base] * len(noise), [base * factor * math.exp(scale * (value - middle)) for value in noise]

        return Gate().judge_points(
            throughput_c1=series(10, gain), tpot_c1=series(100, tpot), throughput_c8=series(50, eight)
        )

    loud, quiet = judge(0.1), judge(0.1 * shrink)
    if loud.outcome in ("enable", "marginal"):
        assert quiet.outcome == loud.outcome
    if loud.outcome in ("disable", "enable_limited"):
        # What was called a loss at 8 whatever the gain may turn out to be a limited gain, never an unlimited one.
        assert quiet.outcome in ("disable", "enable_limited")


@given(ratio | st.none(), ratio | st.none(), ratio | st.none(), st.sampled_from([None, "n-gram k=4", "8"]))
def test_verdicts_round_trip_and_fit_their_schema(gain, tpot, eight, label):
    verdict = points(gain, tpot, eight, label=label)
    text = json.dumps(verdict.to_json(), allow_nan=False)
    assert Verdict.from_json(text) == verdict
    assert list(VALIDATOR.iter_errors(json.loads(text))) == []


VALIDATOR = jsonschema.Draft202012Validator(Verdict.schema())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.update(outcome="perhaps"),
        lambda data: data.update(surprise=1),
        lambda data: data.pop("outcome"),
        lambda data: data.update(schema_version=9),
        lambda data: data.update(reasons=["made up"]),
    ],
)
def test_other_documents_are_no_verdict(spoil):
    data = points(1.4, 0.7, 1.0).to_json()
    spoil(data)
    with pytest.raises(ReportError) as caught:
        Verdict.from_json(data)
    assert "\n" not in str(caught.value)
