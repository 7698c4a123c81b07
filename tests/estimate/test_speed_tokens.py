# SPDX-License-Identifier: Apache-2.0
"""Tokens per round: the published arithmetic, and what may be said where less is known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed import AcceptanceCurve, Span, expected_tokens, iid_rate, published_curves
from jetson_specdec.measurements.core import Acceptance
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.core import AcceptanceRecord

MAVERICK = "RedHatAI/Llama4-Maverick-17B-128E-Instruct-speculator.eagle3"


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"),
    [(0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86)],
)
def test_leviathan(alpha, k, tokens):
    """The table of Leviathan et al. 2023."""
    assert expected_tokens(alpha, k) == pytest.approx(tokens, abs=0.005)


def test_ends_of_the_rate():
    assert expected_tokens(1.0, 4) == 5
    assert expected_tokens(0.0, 4) == 1
    assert expected_tokens(0.37, 0) == 1


def test_positions_are_summed():
    # vLLM's own test of the RedHatAI Llama-3.1-8B head: 0.7296 + 0.5208 + 0.3545 accepted per draft.
    assert expected_tokens([0.7296, 0.5208, 0.3545], 3) == pytest.approx(2.6049)
    assert expected_tokens([0.7296, 0.5208, 0.3545], 1) == pytest.approx(1.7296)


@pytest.mark.parametrize(
    ("acceptance", "k", "code"),
    [
        ([0.7, 0.5], 3, "JSE430"),
        (1.2, 2, "JSE431"),
        ([0.5, -0.1], 2, "JSE431"),
        (True, 2, "JSE431"),
        (0.5, -1, "JSE432"),
    ],
)
def test_refusals(acceptance, k, code):
    with pytest.raises(OptionError) as caught:
        expected_tokens(acceptance, k)
    assert caught.value.code == code
    assert str(caught.value)


@given(st.floats(0, 1), st.integers(1, 40))
def test_rate_and_length_invert_each_other(alpha, k):
    assert expected_tokens(iid_rate(expected_tokens(alpha, k), k), k) == pytest.approx(expected_tokens(alpha, k))


@given(st.floats(0, 1), st.integers(1, 30))
def test_iid_equals_the_sum_of_powers(alpha, k):
    assert expected_tokens(alpha, k) == pytest.approx(math.fsum(alpha**i for i in range(k + 1)))


@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=10), st.data())
def test_a_length_bounds_what_smaller_k_yield(chances, data):
    """For every chain whose chance of acceptance does not rise, the truth lies in the range of its mean length."""
    chances = sorted(chances, reverse=True)
    rates = [math.prod(chances[: i + 1]) for i in range(len(chances))]
    k = data.draw(st.integers(1, len(rates)))
    curve = AcceptanceCurve.of_length(min(1 + sum(rates), len(rates) + 1), len(rates), kind="published")
    span = curve.tokens(k)
    assert span.low - 1e-9 <= 1 + sum(rates[:k]) <= span.high + 1e-9


def test_published_lengths_become_positions():
    """RedHatAI's card lists the lengths for k = 1 to 7; each difference is one position."""
    curves = {curve.label: curve for curve in published_curves(Catalog.default().head(MAVERICK).acceptance)}
    coding = next(curve for label, curve in curves.items() if label.startswith("coding"))
    lengths = [1.83, 2.45, 2.94, 3.26, 3.47, 3.57, 3.62]
    assert [round(coding.tokens(k).mid, 2) for k in range(1, 8)] == lengths
    assert coding.per_position[1] == pytest.approx(0.62)


def test_a_length_without_k_is_left_out():
    records = [AcceptanceRecord(benchmark="x", mean_length=2.2), AcceptanceRecord(benchmark="y")]
    assert published_curves(records) == ()


def test_past_the_measured_positions_is_a_range():
    span = AcceptanceCurve.of_positions([0.8, 0.6], kind="measured").tokens(4)
    assert span.low == pytest.approx(2.4)
    # The chance at position 2 was 0.6 / 0.8; continued: 0.45 and 0.3375 more.
    assert span.high == pytest.approx(2.4 + 0.45 + 0.3375)


def test_measured_takes_positions_up_to_k():
    """A batch schedule reports zeros for positions that were never drafted."""
    acceptance = Acceptance(state="active", rate=0.515, mean_length=1.515, per_position=(0.515, 0.0, 0.0, 0.0, 0.0))
    curve = AcceptanceCurve.measured(acceptance, 1)
    assert curve.k == 1
    assert curve.tokens(1).low == curve.tokens(1).high == pytest.approx(1.515)


@pytest.mark.parametrize("state", ["idle", "absent", "legacy"])
def test_nothing_drafted_is_no_acceptance(state):
    assert AcceptanceCurve.measured(Acceptance(state=state), 3) is None
    assert AcceptanceCurve.measured(None, 3) is None


def test_span_refuses_disorder():
    with pytest.raises(OptionError):
        Span(2.0, 1.0)
    with pytest.raises(OptionError):
        Span(float("nan"), 1.0)
