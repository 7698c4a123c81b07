# SPDX-License-Identifier: Apache-2.0
"""Answers look the same in a pipe whether rich lays them out or not."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec import Finding, Step
from jetson_specdec.render import plain, terminal

SIGNS = st.sampled_from([*"ab .,[]:/*'", *"·—←✗×界é😀", "\u0301", "\u00a0", "\t", "\r", "\x1b"])
TEXT = st.text(SIGNS, max_size=12)
PLAIN = st.text(st.sampled_from("ab [.]—×"), max_size=12)


def printed(show, *, by_rich):
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        if by_rich:
            patch.setattr(plain, "is_unseen", lambda: False)
        with redirect_stdout(out):
            show()
    return out.getvalue()


def same(show):
    text = printed(show, by_rich=False)
    assert text == printed(show, by_rich=True)
    return text


@pytest.fixture(autouse=True)
def nobody_asks_for_colours(monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@settings(deadline=None, max_examples=60)
@given(st.one_of(TEXT, PLAIN))
def test_lines(text):
    same(lambda: terminal.line(text, "bold"))
    same(lambda: terminal.headline(text))
    same(lambda: terminal.section(text))
    same(lambda: terminal.diff(f"+{text}\n-{text}\n@@ {text}\n"))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 4).flatmap(
        lambda count: st.tuples(
            st.lists(st.one_of(PLAIN, TEXT), min_size=count, max_size=count),
            st.lists(st.lists(st.one_of(st.none(), PLAIN, PLAIN, TEXT), min_size=count, max_size=count), max_size=4),
        )
    ),
    st.sets(st.integers(0, 3)),
)
def test_tables(table, right):
    header, rows = table
    same(lambda: terminal.table(header, rows, right=sorted(right)))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["JSD102", "JSD545"]), st.one_of(PLAIN, TEXT)), max_size=3))
def test_findings(values):
    found = [Finding.of(code, model=text, chosen=text, others=[text, text]) for code, text in values]
    same(lambda: terminal.findings(found))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.one_of(PLAIN, TEXT), st.one_of(st.none(), PLAIN)), max_size=12))
def test_steps(values):
    wanted = [Step.of("no-such-step", command=command, text=text) for text, command in values]
    same(lambda: terminal.steps(wanted))


def test_long_lines_stay_whole_and_longer_ones_are_laid_out_as_before():
    word = "word "
    assert len(same(lambda: terminal.table(["a", "b"], [["1", word * 1500]])).splitlines()) == 2
    assert len(same(lambda: terminal.table(["a", "b"], [["1", word * 2500]])).splitlines()) > 2


def test_what_is_usual_needs_no_rich():
    assert plain.columns([["name", "size"], ["a — b", "7"]], gap=2, right=[1]) == ["name   size", "a — b     7"]
    assert plain.columns([["a", "b"], ["c"]], gap=1) is None
    assert plain.columns([["界"]], gap=1) is None


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_who_asks_for_a_terminal_gets_one(monkeypatch, name):
    with redirect_stdout(io.StringIO()):
        assert plain.is_unseen()
        monkeypatch.setenv(name, "1")
        assert not plain.is_unseen()
