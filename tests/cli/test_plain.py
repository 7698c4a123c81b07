# SPDX-License-Identifier: Apache-2.0
"""Plain command lines mean the same to the short way as to cyclopts; everything else is left to cyclopts."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.cli import COMMANDS, main, parser
from jetson_specdec.cli.plain import read_plain

APP = parser()
PLAIN = {
    "plan": ["serve.sh", "--device", "thor-t5000", "--l4t", "38.4.0", "--json"],
    "apply": ["serve.sh", "--undo", "--force"],
    "detect": ["--recorded", "board"],
    "doctor": ["--network", "--command", "1"],
    "bench": ["http://127.0.0.1:8000", "--num-prompts", "8", "--ignore-eos", "--out", "a.json"],
    "gate": ["a.json", "b.json", "--policy", "mine.toml"],
    "tune": ["serve.sh", "--catalog", "a.toml", "--catalog", "b.toml"],
    "watch": ["http://127.0.0.1:8000", "--reference", "verdict.json", "--once"],
    "diagnose": ["a.log", "b.log", "--dmesg", "dmesg.txt"],
    "catalog": ["Qwen/Qwen3-8B", "--fit"],
    "explain": ["JSD501"],
    "schema": [],
    "demo": ["--seed", "007"],
}
VALUES = st.sampled_from(
    [
        "serve.sh", "a b", "", "-", "--", "-1", "-y", "7", "007", "1_0", "0x1f", "1.5", "1e3", "9" * 30, "²", "none",
        "NULL", "true", "[1]", '{"a": 1}', "thor-t5000", "--json", "--device", "plan", "@file", "=", "a=b", "a,b",
        "~/x", "a/../b",
    ]
)  # fmt: skip
ODD = st.sampled_from(["--no-json", "--JSON", "--vllm_version", "--dev", "-h", "--nothing", "-V"])


def function_of(name):
    return getattr(import_module(f"jetson_specdec.cli.{name}"), name)


def arguments(function, *given, **named):
    bound = inspect.signature(function).bind(*given, **named)
    bound.apply_defaults()
    return bound.arguments


def as_cyclopts_reads(name, words):
    _, bound, _ = APP.parse_args([name, *words], exit_on_error=False, print_error=False)
    bound.apply_defaults()
    return bound.arguments


@st.composite
def lines(draw):
    name = draw(st.sampled_from(sorted(COMMANDS)))
    known = [
        "--" + parameter.name.replace("_", "-")
        for parameter in inspect.signature(function_of(name)).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    option = st.sampled_from(known)
    flag = option.map(lambda word: [word])
    valued = st.tuples(option, VALUES).map(list)
    joined = st.tuples(option, VALUES).map(lambda pair: ["=".join(pair)])
    alone = st.one_of(VALUES, ODD).map(lambda word: [word])
    parts = draw(st.lists(st.one_of(flag, valued, valued, valued, alone, joined), max_size=5))
    return name, [word for part in parts for word in part]


@settings(max_examples=300, deadline=None)
@given(lines())
def test_what_is_read_the_short_way_is_what_cyclopts_reads(line):
    name, words = line
    function = function_of(name)
    read = read_plain(function, words)
    if read is not None:
        assert arguments(function, *read[0], **read[1]) == as_cyclopts_reads(name, words)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_usual_lines_of_every_command_are_plain(name):
    function = function_of(name)
    read = read_plain(function, PLAIN[name])
    assert read is not None
    assert arguments(function, *read[0], **read[1]) == as_cyclopts_reads(name, PLAIN[name])


def test_values_have_the_types_of_the_signature():
    words = ["-", "--command", "2", "--write", "new.sh", "--catalog", "a", "--catalog", "b", "--force"]
    assert read_plain(function_of("plan"), words) == (
        ["-"],
        {"command": 2, "write": Path("new.sh"), "catalog": [Path("a"), Path("b")], "force": True},
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["a", "b"],
        ["a", "--nothing"],
        ["a", "--device"],
        ["a", "--device", "--json"],
        ["a", "--device=thor-t5000"],
        ["a", "--device", "x", "--device", "y"],
        ["a", "--json", "--json"],
        ["a", "--concurrency", "two"],
        ["a", "--concurrency", "-2"],
        ["a", "--target", "none"],
        ["a", "--vllm_version", "0.20.0"],
        ["a", "--"],
        ["-x"],
        [""],
    ],
    ids=" ".join,
)
def test_whatever_is_in_doubt_is_left_to_cyclopts(words):
    assert read_plain(function_of("plan"), words) is None


def test_more_than_a_signature_says_is_left_to_cyclopts():
    assert read_plain(function_of("gate"), ["--before", "a.json"]) is None
    assert read_plain(function_of("gate"), ["a.json", "--format", "vllm"]) is None
    assert read_plain(function_of("gate"), ["a.json", "--json", "b.json"]) is None
    assert read_plain(function_of("watch"), ["http://127.0.0.1:8000"]) is None


def test_ways_that_are_not_plain_end_the_same(capsys):
    assert main(["explain", "JSD501"]) == 0
    plain = capsys.readouterr().out
    assert main(["explain", "JSD501", "--no-such-option"]) == 2
    capsys.readouterr()
    assert main(["explain", "--", "JSD501"]) == 0
    assert capsys.readouterr().out == plain
