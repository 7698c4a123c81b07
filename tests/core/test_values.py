# SPDX-License-Identifier: Apache-2.0
"""Values of this package behave as attrs' own do."""

from __future__ import annotations

import copy
import pickle

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.values import frozen


def make(decorator):
    @decorator(kw_only=True)
    class Point:
        x: int
        y: float = 0.5
        note: str = attrs.field(default="n", repr=False)
        cached: list[int] = attrs.field(factory=list, eq=False)
        shown: str = attrs.field(default="s", repr=str.upper)
        _hidden: tuple[int, ...] = attrs.field(default=(), alias="given")

    return Point


Ours, Theirs = make(frozen), make(attrs.frozen)


@frozen
class Pair:
    left: int
    right: int


@frozen
class Nothing:
    pass


@frozen(eq=False)
class Thing:
    name: str


@frozen
class Named:
    name: str

    def __repr__(self):
        return f"<{self.name}>"

    def __eq__(self, other):
        return isinstance(other, Named) and self.name.lower() == other.name.lower()

    def __hash__(self):
        return hash(self.name.lower())


@frozen
class Longer(Pair):
    third: int = 3


FIELDS = st.fixed_dictionaries(
    {"x": st.integers(0, 1)},
    optional={
        "y": st.sampled_from([0.5, 1.5]),
        "note": st.sampled_from("ab"),
        "cached": st.just([1]),
        "given": st.just((1,)),
    },
)


@given(FIELDS, FIELDS)
def test_compared_and_shown_as_attrs_does(one, other):
    assert (Ours(**one) == Ours(**other)) == (Theirs(**one) == Theirs(**other))
    assert (Ours(**one) != Ours(**other)) == (Theirs(**one) != Theirs(**other))
    if Ours(**one) == Ours(**other):
        assert hash(Ours(**one)) == hash(Ours(**other))
    assert repr(Ours(**one)) == repr(Theirs(**one))
    assert Ours(**one) != Theirs(**one)


def test_is_an_attrs_class():
    assert [field.name for field in attrs.fields(Ours)] == [field.name for field in attrs.fields(Theirs)]
    assert Pair.__match_args__ == ("left", "right")
    assert attrs.evolve(Pair(1, 2), right=3) == Pair(1, 3)
    assert not hasattr(Pair(1, 2), "__dict__")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Pair(1, 2).left = 3
    assert pickle.loads(pickle.dumps(Pair(1, 2))) == copy.deepcopy(Pair(1, 2)) == Pair(1, 2)


def test_classes_are_told_apart_and_may_say_it_themselves():
    assert Pair(1, 2) != (1, 2)
    assert Longer(1, 2) != Pair(1, 2)
    assert Longer(1, 2) == Longer(1, 2, 3)
    assert repr(Longer(1, 2)) == "Longer(left=1, right=2, third=3)"
    assert Nothing() == Nothing()
    assert {Nothing(), Nothing()} == {Nothing()}
    assert Thing("a") != Thing("a")
    assert Named("A") == Named("a")
    assert repr(Named("A")) == "<A>"
    assert len({Named("A"), Named("a")}) == 1


def test_unhashable_fields_are_refused_as_keys():
    with pytest.raises(TypeError, match="unhashable"):
        hash(Pair([], 1))


def test_a_value_that_holds_itself_can_be_shown():
    loop = Pair([], 1)
    loop.left.append(loop)
    assert repr(loop) == "Pair(left=[...], right=1)"
