# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.recipe.numbers import guess_value, human_int, parse_float


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8192", 8192),
        ("8k", 8000),
        ("8K", 8192),
        ("25.6k", 25600),
        ("10G", 10 * 2**30),
        ("10g", 10**10),
        (" 7 ", 7),
        ("8.5K", None),
        ("k", None),
        ("", None),
        (".5k", None),
        ("1.k", None),
        ("8e3", None),
        ("abc", None),
        ("-1", -1),
    ],
)
def test_whole_numbers_as_vllm_reads_them(text, number):
    assert human_int(text) == number


def test_auto_is_minus_one_only_where_it_is_allowed():
    assert human_int("auto", auto=True) == -1
    assert human_int("AUTO", auto=True) == -1
    assert human_int("auto") is None


@given(st.integers(0, 9000), st.sampled_from("kmgtKMGT"))
def test_suffixes_multiply(number, suffix):
    power = "kmgt".index(suffix.lower()) + 1
    assert human_int(f"{number}{suffix}") == number * (1024 if suffix.isupper() else 1000) ** power


def test_floats_must_be_finite():
    assert parse_float("0.85") == 0.85
    assert parse_float("nan") is None
    assert parse_float("inf") is None
    assert parse_float("0,85") is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("eagle3", "eagle3"),
        ("4k", 4000),
        ("true", True),
        ("123456", 123456),
        ("12e3", 12000.0),
        ("[1, 2]", [1, 2]),
        ('"3"', "3"),
    ],
)
def test_dotted_values_get_the_type_vllm_guesses(text, value):
    guessed = guess_value(text)
    assert guessed == value
    assert type(guessed) is type(value)
