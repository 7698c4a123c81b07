# SPDX-License-Identifier: Apache-2.0
"""Arguments read from a shell text are those that bash itself would pass."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import RecipeError
from jetson_specdec.recipe.shell import parse_shell

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash")

STUB = 'set -f; vllm() { printf "%s\\0" "$@"; }; HOME=/nowhere; eval "$1"'

VALUES = st.one_of(
    st.sampled_from(
        ["0.8", "org/model", "", "two words", "it's", '{"method":"eagle3","n":3}', "$HOME", "a\\b", '"', "{a,b}"]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=12),
)


def bash_arguments(text: str) -> list[str] | None:
    """Return what a command named vllm receives, or None where bash does not accept the text."""
    environment = {"PATH": "/nonexistent", "LC_ALL": "C.UTF-8"}
    done = subprocess.run([BASH, "-c", STUB, "bash", text], capture_output=True, env=environment, check=False)
    return done.stdout.decode().split("\0")[:-1] if done.returncode == 0 and done.stdout else None


def single(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


def double(value: str) -> str:
    return '"' + "".join("\\" + char if char in '\\"$`' else char for char in value) + '"'


def ansi(value: str) -> str:
    return "$'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def escaped(value: str) -> str:
    return "".join("$'\\n'" if char == "\n" else "\\" + char for char in value) or "''"


@st.composite
def written(draw: st.DrawFn) -> tuple[str, str]:
    """A value, and one of the many ways to write it."""
    value = draw(VALUES)
    cuts = sorted(draw(st.lists(st.integers(0, len(value)), max_size=2)))
    pieces = [value[left:right] for left, right in zip([0, *cuts], [*cuts, len(value)], strict=True)]
    return value, "".join(draw(st.sampled_from([single, double, ansi, escaped]))(piece) for piece in pieces)


@settings(max_examples=150)
@given(st.lists(written(), min_size=1, max_size=5), st.sampled_from([" ", "\t", " \\\n  ", "  \\\n"]))
def test_however_a_value_is_quoted_it_is_read_as_bash_reads_it(words: list[tuple[str, str]], gap: str) -> None:
    text = "vllm serve" + "".join(gap + raw for _, raw in words) + "\n"
    values = [value for value, _ in words]
    assert bash_arguments(text) == ["serve", *values]
    args = parse_shell(text).commands[0].args
    assert [arg.value for arg in args] == values
    assert [text[arg.start : arg.end] for arg in args] == [raw for _, raw in words] == [arg.raw for arg in args]


TOKENS = [
    *(
        "a",
        "b",
        "'",
        '"',
        "\\",
        " ",
        "\t",
        "\\\n",
        "{",
        "}",
        ",",
        "..",
        "1",
        "3",
        "#",
        "=",
        "-",
        "~",
        "é",
        "“",
        "[",
        "]",
    ),
    *(
        ":",
        "!",
        "%",
        "+",
        "'x y'",
        '"p"',
        "$'\\n'",
        "${X:+",
        "${X:-",
        "$X",
        "${X}",
        "${A[@]}",
        '"${A[@]}"',
        "$Y",
        "\\$",
    ),
]
PREFIXES = ["", "X=1\n", "X='u v'\n", "X=\n", "A=(p 'q r' '')\n", "X=1; A=(--k v)\n"]


@settings(max_examples=400)
@given(st.sampled_from(PREFIXES), st.lists(st.sampled_from(TOKENS), min_size=1, max_size=9))
@example("X='u v'\n", ["a", "$X", "b"])
@example("", ["{", "a", ",", "b", "}", "{", "1", "..", "3", "}"])
@example("", ['{"method":"eagle3","n":3}'])
@example("X=1\n", ["${X:+", "a", " ", "b", "}"])
@example("X=\n", ["${X:-", "a", "'x y'", "}"])
def test_whatever_is_known_agrees_with_bash(prefix: str, tokens: list[str]) -> None:
    text = f"{prefix}vllm serve m {''.join(tokens)}\n"
    expected = bash_arguments(text)
    try:
        recipe = parse_shell(text)
    except RecipeError:
        assert expected is None, "bash accepts it"
        return
    args = recipe.commands[0].args
    if expected is None or any(arg.value is None or arg.optional or arg.splices for arg in args):
        return  # nothing is claimed
    assert [arg.value for arg in args] == expected[1:]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (r"$'\x41\102\u00e9\t\cA\e'", "AB\u00e9\t\x01\x1b"),
        (r"$'it\'s'", "it's"),
        (r'"a\b\"c"', 'a\\b"c'),
        (r"a\ b", "a b"),
        ("--x=\"a\"'b'c", "--x=abc"),
        ('$"text"', "text"),
        ("a#b", "a#b"),
    ],
)
def test_single_forms(raw: str, value: str) -> None:
    text = f"vllm serve {raw}\n"
    assert bash_arguments(text) == ["serve", value]
    assert [arg.value for arg in parse_shell(text).commands[0].args] == [value]


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    for shape in (text, "vllm serve m " + text, f'bash -c "{text} vllm serve m"', "X=(" + text + ")\nvllm serve $X"):
        try:
            parse_shell(shape)
        except RecipeError as error:
            said = str(error)
        else:
            continue
        assert said
