# SPDX-License-Identifier: Apache-2.0
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jetson_specdec.gate import Gate
from jetson_specdec.gate.statistics import RequestSample, over_pairs, over_requests, unpaired, wider
from jetson_specdec.policy import DEFAULT_POLICY, Policy

LEVEL = 0.95
ratios = st.floats(-1, 1).map(lambda value: round(value, 6))


@given(st.lists(ratios, min_size=2, max_size=12))
def test_paired_bounds_are_those_of_a_t_interval(values):
    found = over_pairs(values, LEVEL)
    spread = np.std(values, ddof=1)
    if spread < 1e-12:
        assert found.low == pytest.approx(values[0])
        assert found.high == pytest.approx(values[0])
        return
    # Two one-sided 95 % bounds are one two-sided 90 % interval.
    low, high = stats.t.interval(0.90, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert found.spread == pytest.approx(spread)


@given(
    st.lists(st.floats(1, 100), min_size=2, max_size=8),
    st.lists(st.floats(1, 100), min_size=2, max_size=8),
)
def test_unpaired_bounds_are_those_of_welch(before, after):
    found = unpaired(before, after, LEVEL)
    logs = np.log(after), np.log(before)
    if min(np.std(part) for part in logs) < 1e-9:
        return
    interval = stats.ttest_ind(*logs, equal_var=False).confidence_interval(0.90)
    assert (found.low, found.high) == (pytest.approx(interval.low, abs=1e-9), pytest.approx(interval.high, abs=1e-9))


def test_too_few_values_give_no_interval():
    assert over_pairs([0.1], LEVEL) is None
    assert unpaired([1.0], [1.0, 2.0], LEVEL) is None
    assert over_requests([], 0.0, LEVEL, 100) is None
    few = RequestSample(before=(1.0, 2.0, 3.0), after=(1.0, 2.0, 3.0, 4.0))
    assert over_requests([few], 0.0, LEVEL, 100) is None


def test_wider_contains_both():
    narrow, wide = over_pairs([0.1, 0.11], LEVEL), over_pairs([0.0, 0.3], LEVEL)
    both = wider(narrow, wide)
    assert (both.low, both.high) == (min(narrow.low, wide.low), max(narrow.high, wide.high))
    assert wider(None, wide) == wide
    assert wider(narrow, None) == narrow


@pytest.mark.parametrize(("pairs", "spread"), [(3, 0.05), (5, 0.05), (8, 0.15)])
def test_paired_bounds_cover_the_truth_at_the_level(pairs, spread):
    draw, truth, rounds = random.Random(11), math.log(1.3), 4000
    low = high = 0
    for _ in range(rounds):
        found = over_pairs([draw.gauss(truth, spread) for _ in range(pairs)], LEVEL)
        low += found.low <= truth
        high += found.high >= truth
    # 0.95 ± 3 standard errors of 4000 draws.
    assert 0.9396 <= low / rounds <= 0.9604
    assert 0.9396 <= high / rounds <= 0.9604


def simulated(draw, count, factor, concurrency=1):
    """Requests that got `factor` times as fast, with lengths and speeds that vary; neighbours share a little fate."""
    sizes = draw.integers(40, 200, count)
    hardness = draw.lognormal(0, 0.15, count)

    def arm(speed):
        waves = np.repeat(draw.lognormal(0, 0.05, -(-count // concurrency)), concurrency)[:count]
        own = draw.lognormal(0, 0.05, count)
        return sizes * 0.05 / speed * hardness * own * (waves if concurrency > 1 else 1.0)

    before, after = arm(1.0), arm(factor)
    weights = tuple(sizes.astype(float))
    return RequestSample(
        before=tuple(before), after=tuple(after), before_weights=weights, after_weights=weights, matched=True,
        block=concurrency,
    )  # fmt: skip


def point_of(sample):
    return math.log(sum(sample.before) / sum(sample.after))


@pytest.mark.parametrize(("count", "concurrency"), [(16, 1), (50, 1), (48, 8)])
def test_request_bounds_cover_the_truth_about_at_the_level(count, concurrency):
    draw, truth, rounds = np.random.default_rng(5), math.log(1.3), 600
    low = high = 0
    for _ in range(rounds):
        sample = simulated(draw, count, 1.3, concurrency)
        found = over_requests([sample], point_of(sample), LEVEL, 400)
        low += found.low <= truth
        high += found.high >= truth
    assert 0.92 <= low / rounds <= 0.985
    assert 0.92 <= high / rounds <= 0.985


def test_median_bounds_cover_the_truth_about_at_the_level():
    draw, rounds, hits = np.random.default_rng(6), 600, 0
    for _ in range(rounds):
        before, after = draw.lognormal(0, 0.1, 30), draw.lognormal(math.log(0.8), 0.1, 30)
        point = math.log(np.median(after) / np.median(before))
        found = over_requests([RequestSample(before=tuple(before), after=tuple(after))], point, LEVEL, 400)
        hits += found.low <= math.log(0.8) <= found.high
    # Both sides together: 0.90 and a little more, as percentile intervals of a median are wide.
    assert 0.88 <= hits / rounds <= 0.98


def test_drawing_matched_requests_together_is_narrower():
    sample = simulated(np.random.default_rng(3), 40, 1.3)
    apart = RequestSample(
        before=sample.before, after=sample.after, before_weights=sample.before_weights,
        after_weights=sample.after_weights,
    )  # fmt: skip
    together, free = (over_requests([one], point_of(one), LEVEL, 2000) for one in (sample, apart))
    assert together.high - together.low < free.high - free.low


def test_the_same_requests_give_the_same_bounds():
    sample = simulated(np.random.default_rng(3), 40, 1.3)
    assert over_requests([sample], 0.1, LEVEL, 500) == over_requests([sample], 0.1, LEVEL, 500)


def outcome_rate(wanted, *, gain, tpot, eight, pairs=5, spread=0.05, rounds=600):
    """How often the gate says so when the truth is this and every figure of a pair varies by `spread`."""
    draw, gate, seen = random.Random(17), Gate(), 0
    for _ in range(rounds):

        def series(base, factor):
            before = [base * draw.lognormvariate(0, spread / 2**0.5) for _ in range(pairs)]
            return before, [base * factor * draw.lognormvariate(0, spread / 2**0.5) for _ in range(pairs)]

        verdict = gate.judge_points(
            throughput_c1=series(30, gain), tpot_c1=series(33, tpot), throughput_c8=series(150, eight)
        )
        seen += verdict.outcome == wanted
    return seen / rounds


def test_an_unchanged_concurrency_8_is_rarely_called_a_regression():
    # A true change of 0 lies inside the margin: wrong in far fewer than 1 − level of the cases.
    limited = outcome_rate("enable_limited", gain=1.6, tpot=0.6, eight=1.0)
    disabled = outcome_rate("disable", gain=1.6, tpot=0.6, eight=1.0)
    assert limited + disabled <= 0.05


def test_a_loss_exactly_at_the_margin_is_called_one_at_most_as_often_as_the_level_allows():
    rate = outcome_rate("enable_limited", gain=1.8, tpot=0.5, eight=1 - Policy().equivalence_margin, rounds=1500)
    assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)


def test_a_gain_just_below_the_threshold_is_enabled_at_most_as_often_as_the_level_allows():
    assert outcome_rate("enable", gain=1.299, tpot=0.6, eight=1.1, rounds=1500) <= 0.05 + 0.017


def test_a_gain_just_above_the_floor_is_switched_off_at_most_as_often_as_the_level_allows():
    assert outcome_rate("disable", gain=1.101, tpot=0.9, eight=1.1, rounds=1500) <= 0.05 + 0.017


def test_clear_cases_are_decided():
    assert outcome_rate("enable", gain=1.6, tpot=0.6, eight=1.08, rounds=200) > 0.9
    assert outcome_rate("disable", gain=1.0, tpot=1.0, eight=1.0, rounds=200) > 0.9
    assert outcome_rate("enable_limited", gain=1.6, tpot=0.6, eight=0.85, rounds=200) > 0.9


@pytest.mark.parametrize("noise", [0.02, 0.04])
def test_at_the_default_policy_a_weak_gain_is_hardly_ever_enabled(noise):
    # TPOT passes easily, so the gain alone decides; a run varies by `noise`, a ratio by √2 times that.
    for pairs in (DEFAULT_POLICY.min_pairs, 8):
        options = {"pairs": pairs, "spread": noise * 2**0.5, "rounds": 500}
        assert outcome_rate("enable", gain=1.24, tpot=0.7, eight=1.0, **options) <= 0.01


@pytest.mark.parametrize(("noise", "pairs"), [(0.02, 8), (0.04, DEFAULT_POLICY.max_pairs)])
def test_at_the_default_policy_a_strong_gain_is_proved_within_its_pairs(noise, pairs):
    options = {"pairs": pairs, "spread": noise * 2**0.5, "rounds": 400}
    assert outcome_rate("enable", gain=1.5, tpot=1 / 1.5, eight=1.0, **options) >= 0.95
    assert outcome_rate("enable_limited", gain=1.5, tpot=1 / 1.5, eight=1.0, **options) <= 0.05
