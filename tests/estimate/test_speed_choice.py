# SPDX-License-Identifier: Apache-2.0
"""Break-even, prediction and choice of k: published arithmetic and the project's rules."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.estimate.speed import (
    AcceptanceCurve,
    RoundCost,
    Span,
    break_even,
    choose_k,
    needed_speedup,
    predict,
    published_curves,
    throughput_ratio,
)
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.policy import Policy

CODING = (0.83, 0.62, 0.49, 0.32, 0.21, 0.10, 0.05)
"""Differences of the lengths 1.83 2.45 2.94 3.26 3.47 3.57 3.62 of a published head."""


def costs(first, each, top=7):
    return RoundCost.given([first + each * k for k in range(1, top + 1)])


def measured(rates):
    return AcceptanceCurve.of_positions(rates, kind="measured")


# ------------------------------------------------------------------------------------------------------------ choice


def test_best_k_of_a_published_curve():
    """With 1.10 + 0.05 k the best is 5 (3.47 / 1.35), with 1.15 + 0.10 k it is 4, and 5 is within 0.1 %."""
    curve = measured(CODING)
    cheap = choose_k(costs(1.10, 0.05), curve, ran_k=7)
    assert (cheap.k, cheap.state) == (5, "lower")
    assert cheap.estimates[5] == pytest.approx(3.47 / 1.35, abs=1e-6)
    dear = choose_k(costs(1.15, 0.10), curve, ran_k=7)
    assert dear.k == 4
    assert 5 in dear.rivals
    assert dear.estimates[5] / dear.estimates[4] == pytest.approx(1, abs=0.001)


def test_catalogue_curve_gives_the_same_choice():
    head = Catalog.default().head("RedHatAI/Llama4-Maverick-17B-128E-Instruct-speculator.eagle3")
    curves = published_curves(head.acceptance)
    coding = next(curve for curve in curves if curve.label.startswith("coding"))
    assert choose_k(costs(1.10, 0.05), coding, ran_k=7).k == 5


def test_more_drafts_were_worse():
    """vLLM PR 16035: k = 2 at 1.385 with 1.89 tokens beats k = 4 at 1.614 with 2.08."""
    cost = RoundCost.given([1.27, 1.385, 1.5, 1.614])
    curve = AcceptanceCurve.of_positions([0.6, 0.29, 0.12, 0.07], kind="measured")
    choice = choose_k(cost, curve, ran_k=4)
    assert choice.k == 2
    assert choice.state == "lower"
    assert "JSD440" in [f.code for f in choice.findings]
    assert choice.estimates[2] == pytest.approx(1.89 / 1.385)


@pytest.mark.parametrize(("rates", "raised"), [((0.9, 0.8, 0.7), True), ((0.7, 0.6, 0.5), False)])
def test_raise_only_above_the_measured_rate(rates, raised):
    """Mean of the positions is the acceptance rate: 0.8 raises, exactly 0.6 does not."""
    choice = choose_k(costs(1.0, 0.02), measured(rates), ran_k=3)
    assert choice.rate == pytest.approx(sum(rates) / 3)
    assert (choice.k > 3) is raised
    assert choice.best_without_rule > 3
    assert ("JSD439" in [f.code for f in choice.findings]) is not raised
    assert max(choice.allowed) == (7 if raised else 3)


@pytest.mark.parametrize("kind", ["published", "assumed"])
def test_published_acceptance_never_raises(kind):
    curve = AcceptanceCurve.of_positions([0.95, 0.9, 0.85], kind=kind)
    choice = choose_k(costs(1.0, 0.02), curve, ran_k=3)
    assert choice.k == 3
    assert choice.rate is None


def test_the_threshold_is_the_policys():
    choice = choose_k(costs(1.0, 0.02), measured([0.7, 0.6, 0.5]), ran_k=3, policy=Policy(raise_k_above_acceptance=0.5))
    assert choice.state == "raise"


def test_max_k_limits():
    assert choose_k(costs(1.0, 0.02), measured([0.9, 0.9, 0.9]), ran_k=3, max_k=5).k == 5


def test_none_when_every_k_loses():
    choice = choose_k(costs(1.5, 0.3), measured([0.3, 0.1, 0.05]), ran_k=3)
    assert choice.k is None
    assert choice.state == "none"
    assert choice.speedup.high < 1


def test_without_acceptance_there_is_no_choice():
    choice = choose_k(costs(1.1, 0.05), None, ran_k=5)
    assert (choice.k, choice.state, choice.speedup) == (5, "unknown", None)
    unknown = choose_k(RoundCost(), measured([0.5]), ran_k=5)
    assert (unknown.k, unknown.state) == (5, "unknown")


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
    st.floats(1.0, 2.0),
    st.floats(0.0, 0.5),
    st.integers(1, 8),
)
def test_choice_is_the_best_of_what_is_allowed(chances, first, each, ran):
    rates, so_far = [], 1.0
    for chance in chances:
        so_far *= chance
        rates.append(so_far)
    cost = costs(first, each, 8)
    choice = choose_k(cost, measured(rates), ran_k=ran)
    if choice.k is None:
        assert all(choice.estimates[k] < 1 for k in choice.allowed)
        return
    gains = {k: (1 + sum(rates[:k])) / (first + each * k) for k in choice.allowed if k <= len(rates)}
    assert choice.k in choice.allowed
    assert all(choice.estimates[choice.k] >= gain - 1e-9 for gain in gains.values())


# -------------------------------------------------------------------------------------------------------- break-even


def test_what_the_gate_asks_for():
    """All decoding: +30 % throughput (1.30) asks for more than −20 % TPOT (1.25)."""
    assert needed_speedup() == pytest.approx(1.30)
    assert needed_speedup(Policy(enable_tpot_drop=0.5)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("share", "needed"),
    # f ÷ (1 ÷ 1.3 − 1 + f): decode must be twice as fast at 0.46, half as fast again at 0.69; at 0.23 nothing suffices.
    [(0.4615384615, 2.0), (0.6923076923, 1.5), (1.0, 1.3), (0.23, None)],
)
def test_decode_share(share, needed):
    found = needed_speedup(decode_share=share)
    assert found is None if needed is None else found == pytest.approx(needed)


def test_throughput_ratio_of_two_arms():
    """(TTFT + (n − 1) · TPOT_off) ÷ (TTFT + (n − 1) · TPOT_on), with 500 ms, 128 tokens, 20 → 12 ms."""
    off, on = 500 + 127 * 20, 500 + 127 * 12
    assert throughput_ratio(20 / 12, 127 * 20 / off) == pytest.approx(off / on)


def test_break_even_rows():
    table = break_even(RoundCost.given([Span(1.1, 1.2), Span(1.4, 1.8), Span(1.7, 2.4)]), shown_k=2)
    row = table.at(2)
    assert row.cost == Span(1.4, 1.8)
    assert row.needed.low == pytest.approx(1.4 * 1.3)
    assert row.rate_even.low == pytest.approx(0.2)
    assert row.rate_needed.high == pytest.approx((1.8 * 1.3 - 1) / 2)
    assert row.possible is True
    (finding,) = table.findings
    assert finding.code == "JSD430"
    assert "1.82 to 2.34" in finding.message


def test_out_of_reach():
    """At k = 1 two tokens are the most: a cost of 1.6 needs 2.08."""
    table = break_even(RoundCost.given([1.6]))
    assert table.at(1).possible is False
    assert [f.code for f in table.findings] == ["JSD437"]
    assert break_even(RoundCost.given([Span(1.5, 1.6)])).at(1).possible is None


def test_nothing_suffices_where_little_is_decoded():
    table = break_even(RoundCost.given([1.1, 1.2]), decode_share=0.2)
    assert table.speedup_needed is None
    assert table.at(2).needed is None
    json.dumps(table.to_json(), allow_nan=False)
    assert table.findings[0].message


def test_unknown_cost_has_no_table():
    assert break_even(RoundCost()).rows == ()


# -------------------------------------------------------------------------------------------------------- prediction


def test_prediction_is_a_range():
    cost = RoundCost.given([Span(1.2, 1.4), Span(1.3, 1.6)])
    found = predict(cost, measured([0.8, 0.5]), 2, decode_share=0.5)
    assert found.speedup.low == pytest.approx(2.3 / 1.6)
    assert found.speedup.high == pytest.approx(2.3 / 1.3)
    assert found.tpot_change.low == pytest.approx(1.3 / 2.3 - 1)
    assert found.throughput_gain.low == pytest.approx(1 / (0.5 + 0.5 * 1.6 / 2.3) - 1)
    assert found.sign == "+"


@pytest.mark.parametrize(
    ("relative", "sign"), [(Span(1.1, 1.2), "+"), (Span(1.6, 1.8), "-"), (Span(1.4, 1.6), "?")]
)  # fmt: skip
def test_signs(relative, sign):
    assert predict(RoundCost.given([relative]), measured([0.5]), 1).sign == sign


def test_no_prediction_from_nothing():
    assert predict(RoundCost.given([1.1]), None, 1) is None
    assert predict(RoundCost(), measured([0.5]), 1) is None
    assert predict(RoundCost.given([1.1]), measured([0.5]), 2) is None


def test_past_the_measured_positions_is_said():
    found = predict(RoundCost.given([1.1, 1.2, 1.3]), measured([0.5]), 3)
    assert "JSD445" in [f.code for f in found.findings]
