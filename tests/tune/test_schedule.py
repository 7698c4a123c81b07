# SPDX-License-Identifier: Apache-2.0
"""The pure schedule: which block comes next."""

from __future__ import annotations

import pytest
from attrs import evolve

from jetson_specdec.gate import Criterion, Verdict
from jetson_specdec.policy import Policy
from jetson_specdec.tune import BlockRecord, Probe, TuneSettings
from jetson_specdec.tune.downtime import downtime
from jetson_specdec.tune.schedule import Finish, Measure, Progress, TrySchedule, next_action, settled, usable_pairs

SETTINGS = TuneSettings()
SEARCHED = Probe(k=3, tpot_s=0.02, tokens=2.0, per_position=(0.5, 0.3, 0.2), drafts=500)


def block(index, role, arm, pair=None, k=None, **more):
    probe = SEARCHED if arm == "on" else None
    return BlockRecord(
        index=index, role=role, arm=arm, pair=pair, k=k, report=f"{index}", tpot_s=0.03, probe=probe, start_s=60.0,
        bench_s=100.0, stop_s=5.0, **more,
    )  # fmt: skip


BASE = block(1, "baseline", "off", pair=1)
SEARCH = block(2, "search", "on", k=3)


def verdict(outcome, high=0.5, more=None):
    criterion = Criterion(name="throughput_c1", before=1.0, after=1.0, change=0.0, interval=(high - 0.2, high))
    return Verdict(outcome=outcome, contract_outcome="marginal", criteria=(criterion,), more_pairs=more)


def paired(count, variant=0):
    blocks, index = [], 3
    for pair in range(1, count + 1):
        for arm in ("off", "on"):
            if (variant, pair, arm) != (0, 1, "off"):
                blocks.append(block(index, "pair", arm, pair=pair, variant=variant))
                index += 1
    return tuple(blocks)


def after(count, outcome, **more):
    return Progress(blocks=(BASE, SEARCH, *paired(count)), verdict=verdict(outcome, **more))


def test_baseline_search_and_pairs_in_turns():
    assert next_action(Progress(), SETTINGS) == Measure(role="baseline", arm="off", pair=1, concurrency=(1, 8))
    action = next_action(Progress(blocks=(BASE,), start_k=3), SETTINGS)
    assert (action.role, action.k, action.concurrency) == ("search", 3, (1,))
    order = []
    blocks = (BASE, SEARCH)
    for index in range(3, 12):
        action = next_action(Progress(blocks=blocks, verdict=verdict("inconclusive", more=3)), SETTINGS)
        order.append((action.pair, action.arm))
        blocks = (*blocks, block(index, "pair", action.arm, pair=action.pair))
    assert order == [
        (1, "on"), (2, "on"), (2, "off"), (3, "off"), (3, "on"), (4, "on"), (4, "off"), (5, "off"), (5, "on"),
    ]  # fmt: skip


def test_without_the_baseline_in_the_first_pair():
    action = next_action(Progress(blocks=(BASE, SEARCH), baseline_counts=False), SETTINGS)
    assert (action.role, action.pair, action.arm) == ("pair", 1, "off")


@pytest.mark.parametrize(
    ("pairs", "outcome", "high", "done"),
    [
        (1, "enable", 0.5, False), (2, "enable", 0.5, False), (3, "enable", 0.5, True),
        (1, "disable", -0.01, True), (1, "disable", 0.05, False), (3, "disable", 0.05, True),
        (3, "marginal", 0.2, True), (2, "marginal", 0.2, False), (9, "inconclusive", 0.4, False),
        (3, "incomplete", 0.4, True), (3, "enable_limited", 0.4, True),
    ],
)  # fmt: skip
def test_when_it_is_settled(pairs, outcome, high, done):
    assert settled(verdict(outcome, high), pairs, Policy()) is done


def only_eight_loses(*, gain, eight="failed"):
    states = {"throughput_c1": gain, "tpot_c1": "met", "throughput_c1_floor": "met", "throughput_c8": eight}
    criteria = tuple(
        Criterion(name=name, before=1.0, after=1.0, change=0.2, interval=(0.1, 0.3), state=state)
        for name, state in states.items()
    )
    return Verdict(outcome="disable", contract_outcome="disable", criteria=criteria)


@pytest.mark.parametrize(
    ("gain", "pairs", "variant", "done"),
    [
        ("undecided", 3, 0, False), ("undecided", 5, 0, False), ("undecided", 6, 0, True),
        ("undecided", 3, 1, True), ("failed", 3, 0, True), ("met", 3, 0, True),
    ],
)  # fmt: skip
def test_a_few_more_pairs_where_a_schedule_may_be_worth_it(gain, pairs, variant, done):
    assert settled(only_eight_loses(gain=gain), pairs, Policy(), variant=variant) is done


def test_how_it_ends():
    assert next_action(after(3, "enable"), SETTINGS) == Finish(reason="settled")
    assert next_action(after(Policy().max_pairs, "inconclusive", more=1), SETTINGS) == Finish(reason="pairs")
    assert next_action(after(6, "inconclusive"), SETTINGS) == Finish(reason="hopeless")
    assert isinstance(next_action(after(5, "inconclusive"), SETTINGS), Measure)
    spoilt = evolve(after(3, "inconclusive"), spoilt={0: (1, 2, 3)}, verdict=None)
    assert next_action(spoilt, SETTINGS) == Finish(reason="spoilt")
    blind = Progress(blocks=(BASE, evolve(SEARCH, probe=None)))
    assert next_action(blind, SETTINGS) == Finish(reason="search")


def test_a_schedule_is_tried_once():
    assert next_action(after(3, "enable_limited"), SETTINGS) == TrySchedule()
    tried = evolve(after(3, "enable_limited"), schedule_tried=True)
    assert next_action(tried, SETTINGS) == Finish(reason="settled")
    second = evolve(tried, variant=1, verdict=None)
    action = next_action(second, SETTINGS)
    assert (action.variant, action.pair, action.arm) == (1, 1, "off")


def test_a_spoilt_pair_is_left_out_and_followed_by_another():
    progress = evolve(after(3, "inconclusive", more=1), spoilt={0: (2,)})
    assert list(usable_pairs(progress)) == [1, 3]
    assert next_action(progress, SETTINGS).pair == 4


def test_nothing_starts_that_would_not_end_in_time():
    progress = evolve(after(1, "inconclusive", more=2), elapsed_s=1000.0)
    whole = 2 * 165.0 * 1.1  # both arms of the next pair, a tenth longer than before
    limit = 1000.0 + whole
    assert isinstance(next_action(progress, evolve(SETTINGS, max_time_s=limit + 1)), Measure)
    assert next_action(progress, evolve(SETTINGS, max_time_s=limit - 1)).reason == "time"
    half = evolve(progress, blocks=(*progress.blocks, block(9, "pair", "on", pair=2)))
    assert isinstance(next_action(half, evolve(SETTINGS, max_time_s=1000.0 + 165 * 1.1 + 1)), Measure)


def test_downtime_counts_what_is_left():
    first = downtime(SETTINGS)
    assert (first.fewest, first.most, first.measured) == (1 + 1 + 5, 1 + 3 + 2 * Policy().max_pairs - 1, False)
    later = downtime(SETTINGS, done=(BASE, SEARCH, *paired(2)))
    assert (later.fewest, later.most, later.measured) == (2, 2 + 2 * Policy().max_pairs - 1 - 3, True)
    assert later.low == pytest.approx(2 * 165.0)
    assert downtime(evolve(SETTINGS, max_time_s=100.0)).high == 100.0
