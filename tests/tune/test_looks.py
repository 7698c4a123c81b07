# SPDX-License-Identifier: Apache-2.0
"""Looking after each pair: how strict a look is, and how often a series that only just misses is switched on."""

from __future__ import annotations

import math
import random

import pytest

from jetson_specdec.gate import Gate
from jetson_specdec.policy import Policy
from jetson_specdec.tune.looks import judge_looking, level_of_a_look
from jetson_specdec.tune.schedule import settled


def test_a_single_look_has_the_level_itself():
    assert level_of_a_look(Policy(min_pairs=6, max_pairs=6)) == pytest.approx(0.95)


def test_more_looks_are_stricter():
    levels = [level_of_a_look(Policy(max_pairs=most)) for most in (3, 4, 8, 16, 64)]
    assert levels == sorted(set(levels))
    assert levels[-1] < 1
    assert level_of_a_look(Policy(confidence_level=0.9999, max_pairs=1000)) <= 0.9999


def series(chance, policy, *, gain, noise=0.02):
    """One tune in figures: pairs until it is settled."""
    one, tpot, eight = ([], []), ([], []), ([], [])
    for pair in range(1, policy.max_pairs + 1):
        for arm, ratio in enumerate((1.0, gain)):
            slow = math.exp(chance.gauss(0, noise))
            one[arm].append(20 * ratio / slow)
            tpot[arm].append(50 / (ratio * 1.1 if arm else 1.0) * slow)
            eight[arm].append(100 * (1.2 if arm else 1.0))
        if pair >= policy.min_pairs:
            verdict = judge_looking(
                lambda gate: gate.judge_points(throughput_c1=one, tpot_c1=tpot, throughput_c8=eight), policy
            )
            if settled(verdict, pair, policy):
                return verdict.outcome
    return "inconclusive"


def test_what_misses_the_threshold_by_a_hair_is_enabled_no_more_often_than_the_level_says():
    chance, policy, trials = random.Random(4), Policy(), 200
    wrong = sum(series(chance, policy, gain=1.2999) == "enable" for _ in range(trials))
    # The same looks at 95 % each enable 15 to 17 %.
    assert wrong / trials <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / trials)


def test_what_is_far_above_is_enabled():
    chance, policy = random.Random(5), Policy()
    assert all(series(chance, policy, gain=1.6) == "enable" for _ in range(20))


def figures(gain, eight):
    return {
        "throughput_c1": ([20.0, 20.2, 19.9], [value * gain for value in (20.1, 19.9, 20.0)]),
        "tpot_c1": ([50.0, 49.5, 50.2], [value / gain for value in (49.8, 50.3, 50.0)]),
        "throughput_c8": ([100.0, 101.0, 99.5], [value * eight for value in (100.5, 99.0, 100.0)]),
    }


def test_switching_off_needs_no_stricter_level():
    values = figures(1.0, 1.0)
    policy = Policy()
    found = judge_looking(lambda gate: gate.judge_points(**values), policy)
    assert found.outcome == "disable"
    assert found == Gate(policy=policy).judge_points(**values)


def test_switching_on_rests_on_the_wider_intervals():
    values = figures(1.6, 1.1)
    policy = Policy()
    found = judge_looking(lambda gate: gate.judge_points(**values), policy)
    plain = Gate(policy=policy).judge_points(**values)
    assert found.outcome == plain.outcome == "enable"
    narrow, wide = (verdict.criterion("throughput_c1").interval for verdict in (plain, found))
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
