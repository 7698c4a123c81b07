# SPDX-License-Identifier: Apache-2.0
"""The search for k against worlds whose best k is worked out by trying them all."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.policy import Policy
from jetson_specdec.tune import Probe, next_k


class World:
    """A drafter and a board: `chances` of each position given those before, and what a round costs in plain steps."""

    def __init__(self, chances, cost):
        self.positions, kept = [], 1.0
        for chance in chances:
            kept *= chance
            self.positions.append(kept)
        self.cost = cost

    def tokens(self, k):
        return 1 + sum(self.positions[:k])

    def speed(self, k):
        return self.tokens(k) / self.cost(k)

    def rate(self, k):
        return (self.tokens(k) - 1) / k

    def probe(self, k, noise=0.0):
        tpot = self.cost(k) * (1 + noise) / self.tokens(k)
        return Probe(k=k, tpot_s=tpot, tokens=self.tokens(k), per_position=tuple(self.positions[:k]), drafts=500)

    def search(self, start, noise=lambda: 0.0, **options):
        probes = []
        while (step := next_k(1.0, probes, start_k=start, **options)).action == "probe":
            assert step.k not in [probe.k for probe in probes], "a k is launched once"
            probes.append(self.probe(step.k, noise()))
        return step, probes

    def permitted(self, start):
        """The literal rule, one step at a time: k rises while what ran is accepted above 0.6."""
        top = start
        while top < 32 and self.rate(top) > 0.6:
            top += 1
        return range(1, top + 1)


def random_world(seed):
    draw = random.Random(seed)
    first, fall = draw.uniform(0.3, 0.92), draw.uniform(0.9, 1.0)
    chances = [min(first * fall**index, 0.99) for index in range(40)]
    once, each = draw.choice([0.0, draw.uniform(0, 0.3)]), draw.uniform(0.02, 0.2)
    bend, knee = draw.choice([0.0, draw.uniform(0, 0.004)]), draw.randint(3, 9)
    return World(chances, lambda k: 1 + once + each * k + bend * max(k - knee, 0) ** 2)


def test_best_k_within_three_percent_in_three_launches():
    lost, launches = [], []
    for seed in range(150):
        world = random_world(seed)
        start = 5 if seed % 2 else 3
        step, probes = world.search(start)
        best = max(world.speed(k) for k in world.permitted(start))
        lost.append(best / world.speed(step.k) - 1)
        launches.append(len(probes))
    assert max(launches) <= 3
    assert sum(loss > 0.03 for loss in lost) <= 3, sorted(lost)[-8:]
    assert sum(launches) / len(launches) < 2


def test_noise_of_the_board_costs_little():
    lost = []
    for seed in range(60):
        world, draw = random_world(seed), random.Random(seed)
        step, _ = world.search(3, noise=lambda draw=draw: draw.gauss(0, 0.01))
        best = max(world.speed(k) for k in world.permitted(3))
        lost.append(best / world.speed(step.k) - 1)
    assert sum(loss > 0.05 for loss in lost) <= 2, sorted(lost)[-5:]


@settings(deadline=None, max_examples=40)
@given(
    chances=st.lists(st.floats(0.05, 0.99), min_size=40, max_size=40),
    slope=st.floats(0.001, 0.5),
    start=st.integers(1, 6),
)
def test_the_rule_is_kept_in_any_world(chances, slope, start):
    world = World(chances, lambda k: 1 + slope * k)
    step, probes = world.search(start)
    assert 1 <= len(probes) <= 3
    assert step.k in step.allowed
    top = start
    for probe in probes[1:]:
        if probe.k > top:
            # A larger k is launched only when the largest that ran was accepted above 0.6.
            assert world.rate(top) > 0.6
            top = probe.k
    if step.k > top:
        assert world.rate(top) > 0.6


def test_low_acceptance_never_raises_and_says_so():
    world = World([0.7] * 40, lambda k: 1 + 0.001 * k)  # nearly free drafts: 12 would win, rate at 3 is 0.51
    step, probes = world.search(3)
    assert [probe.k for probe in probes] == [3]
    assert step.k == 3
    assert [finding.code for finding in step.findings] == ["JSD960"]


def test_losing_everywhere_is_seen():
    step, _ = World([0.1] * 40, lambda k: 1.5 + 0.3 * k).search(3)
    assert step.loses
    assert step.speedup < 1


def test_limits_of_the_board_and_of_the_policy():
    world = World([0.95] * 40, lambda k: 1 + 0.02 * k)
    step, _ = world.search(5, max_k=6)
    assert step.k <= 6
    _, probes = world.search(5, policy=Policy(search_launches=1))
    assert len(probes) == 1


def test_without_positions_the_mean_length_serves():
    probe = Probe(k=4, tpot_s=0.5, tokens=2.2)
    step = next_k(1.0, [probe], start_k=4)
    assert step.k in range(1, 5)
    assert step.estimates[4] == pytest.approx(2.2 / (0.5 * 2.2))
