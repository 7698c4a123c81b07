# SPDX-License-Identifier: Apache-2.0
"""Only what the recipe itself decides is known."""

from __future__ import annotations

import pytest

from jetson_specdec.recipe.core import Arg
from jetson_specdec.recipe.shell import parse_shell


def args_of(text: str, **options: object) -> tuple[Arg, ...]:
    return parse_shell(text, **options).commands[0].args  # type: ignore[arg-type]


def last(text: str, **options: object) -> Arg:
    return args_of(text, **options)[-1]


def test_a_variable_of_the_recipe_is_resolved_and_named() -> None:
    arg = last('UTIL=0.18\nvllm serve m --gpu-memory-utilization "$UTIL"\n')
    assert (arg.value, arg.raw, arg.resolved_from, arg.unresolved) == ("0.18", '"$UTIL"', ("UTIL",), ())


@pytest.mark.parametrize(
    "before",
    [
        "",  # not assigned at all: the environment of whoever runs it decides
        "U=0.1\nU=0.2\n",
        'if [ -n "$A" ]; then U=0.1; fi\n',
        "[ -f x ] && U=0.1\n",
        "for U in 0.1 0.2; do :; done\n",
        "read -r U\n",
        "f() { U=0.1; }\n",
        "U=0.1\nsource ./site.env\n",
        "U=$(cat util)\n",
        "(U=0.1)\n",
        "U=0.1 | cat\n",
        "case $1 in a) U=0.1;; esac\n",
        "if true; then U=0.1; else :; fi\n",
    ],
)
def test_what_is_not_certain_stays_unresolved(before: str) -> None:
    arg = last(f'{before}vllm serve m --gpu-memory-utilization "$U"\n')
    assert (arg.value, arg.unresolved) == (None, ("U",))


@pytest.mark.parametrize(
    "text",
    [
        'if true; then\n  U=0.1\n  vllm serve m --u "$U"\nfi\n',
        'go() {\n  local U=0.1\n  vllm serve m --u "$U"\n}\n',
        'cd /srv && U=0.1 && vllm serve m --u "$U"\n',
        'U=0.1\nfor i in 1 2; do vllm serve m --u "$U"; done\n',
        'U=0.1\n. env/bin/activate\nvllm serve m --u "$U"\n',
        "export U=0.1\nbash -c 'vllm serve m --u \"$U\"'\n",
        'V=0.1\nU=$V\nvllm serve m --u "${U}"\n',
    ],
)
def test_certain_in_its_own_block(text: str) -> None:
    assert last(text).value == "0.1"


def test_the_other_branch_does_not_count() -> None:
    text = 'if a; then\n  U=0.1\nelse\n  vllm serve m --u "$U"\nfi\n'
    assert last(text).unresolved == ("U",)


def test_a_shell_of_its_own_sees_only_what_is_exported() -> None:
    assert last("U=0.1\nbash -c 'vllm serve m --u \"$U\"'\n").unresolved == ("U",)
    assert last("U=0.1\neval 'vllm serve m --u \"$U\"'\n").value == "0.1"
    assert last("U=0.1\nbash -c \"vllm serve m --u '$U'\"\n").value == "0.1"


def test_a_default_is_used_and_said() -> None:
    recipe = parse_shell('MODEL=${MODEL:-org/model}\nvllm serve "$MODEL" --port "${PORT:-8000}"\n')
    command = recipe.commands[0]
    assert [arg.value for arg in command.args] == ["org/model", "--port", "8000"]
    assert command.args[2].resolved_from == ("PORT",)
    said = [finding for finding in command.findings if finding.code == "JSD207"]
    assert said[0].values["names"] == ["MODEL", "PORT"]


def test_given_variables_count_only_when_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9999")
    text = 'vllm serve m --port "$PORT"\n'
    assert last(text).value is None
    assert last(text, environ={"PORT": "8100"}).value == "8100"


def test_a_switch_set_to_zero_is_still_on() -> None:
    on = last("NO_GRAPH=0\nvllm serve m ${NO_GRAPH:+--enforce-eager}\n")
    assert (on.value, on.optional, on.resolved_from) == ("--enforce-eager", False, ("NO_GRAPH",))
    off = args_of("NO_GRAPH=\nvllm serve m ${NO_GRAPH:+--enforce-eager}\n")
    assert [arg.value for arg in off] == ["m"]
    perhaps = last("vllm serve m ${NO_GRAPH:+--enforce-eager}\n")
    assert (perhaps.value, perhaps.optional) == ("--enforce-eager", True)


def test_arrays_give_their_elements_where_they_are_written() -> None:
    array = 'ARGS=(--max-model-len 4096 # fits\n  --x "a b")\n'
    text = array + '[ -n "$K" ] && ARGS+=(--api-key "$K")\nvllm serve m "${ARGS[@]}"\n'
    args = args_of(text)
    assert [arg.value for arg in args] == ["m", "--max-model-len", "4096", "--x", "a b", "--api-key", None]
    assert [text[arg.start : arg.end] for arg in args[1:]] == [arg.raw for arg in args[1:]]
    assert args[4].raw == '"a b"'
    assert [arg.optional for arg in args] == [False] * 5 + [True, True]


@pytest.mark.parametrize("word", ['"$@"', '"${MORE[@]}"', "$MORE", "$(cat flags)"])
def test_what_may_become_several_words_says_so(word: str) -> None:
    arg = last(f"vllm serve m {word}\n")
    assert arg.value is None
    assert arg.splices
    assert arg.unresolved


def test_a_command_kept_in_a_variable() -> None:
    text = 'CMD="vllm serve org/m --port 8000"\n$CMD --extra\n'
    assert [arg.value for arg in args_of(text)] == ["org/m", "--port", "8000", "--extra"]
    text = 'CMD=(vllm serve org/m --port 8000)\n"${CMD[@]}"\n'
    assert [arg.value for arg in args_of(text)] == ["org/m", "--port", "8000"]


def test_a_home_directory_is_not_guessed() -> None:
    assert last("vllm serve ~/models/m\n").unresolved == ("HOME",)
    assert last('vllm serve "$HOME/models/m"\n').unresolved == ("HOME",)
