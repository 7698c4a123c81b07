# SPDX-License-Identifier: Apache-2.0
"""Variables that are added to, and words that only the outside knows: the user's own words keep the last say."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from jetson_specdec.planner import Planner
from jetson_specdec.recipe import AppendArgs, ServeFlags, edit_shell, parse_shell, plan_edit

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")

GROWING = [
    'A="--max-model-len 8192"\nA+=" --gpu-memory-utilization 0.70"\nvllm serve m $A\n',
    'A="--max-model-len 8192"\nA="$A --gpu-memory-utilization 0.70"\nvllm serve m $A\n',
    'A="--gpu-memory-utilization 0.70"\nA="--max-model-len 8192 ${A}"\nvllm serve m $A --port 1\n',
    'A=""\nA="${A:-} --gpu-memory-utilization 0.70"\nA="${A:-} --port 1"\nvllm serve m $A\n',
    'A="${A:-} --port 1"\nA+=" --gpu-memory-utilization 0.70"\nvllm serve m $A\n',
    'B="--port 1"\nB+=" --dtype auto"\nA="$B --gpu-memory-utilization 0.70"\nvllm serve m $A\n',
    'export A="--port 1"\nexport A+=" --gpu-memory-utilization 0.70"\nbash -c "vllm serve m $A"\n',
    'A=(--port 1)\nA=("${A[@]}" --gpu-memory-utilization 0.70)\nvllm serve m "${A[@]}"\n',
    'A=(--port 1)\nA=(--dtype auto "${A[@]}" --gpu-memory-utilization 0.70)\nA+=(--x)\nvllm serve m "${A[@]}"\n',
    'go() {\n  local A="--port 1"\n  A+=" --gpu-memory-utilization 0.70"\n  vllm serve m $A\n}\ngo\n',
    'P=80\nP+=00\nvllm serve m --gpu-memory-utilization 0.70 --port $P\n',
]  # fmt: skip


def args_of(text: str) -> list[str | None]:
    return [arg.value for arg in parse_shell(text).commands[0].args]


@needs_bash
@pytest.mark.parametrize("text", GROWING)
def test_what_is_added_counts_as_it_does_for_bash(text: str) -> None:
    stub = 'vllm() { shift; printf "%s\\n" "$@"; }; export -f vllm; eval "$1"'
    environment = {"PATH": os.defpath}
    done = subprocess.run([BASH, "-c", stub, "bash", text], capture_output=True, env=environment, check=True, text=True)
    assert args_of(text) == done.stdout.splitlines()
    assert ServeFlags.read(parse_shell(text).commands[0]).gpu_memory_utilization == 0.7


@pytest.mark.parametrize("text", GROWING[:6])
def test_what_was_added_is_changed_where_it_stands(text: str) -> None:
    recipe = parse_shell(text)
    flags = ServeFlags.read(recipe.commands[0])
    made = plan_edit(recipe, recipe.commands[0], flags, set_flags={"gpu-memory-utilization": "0.65"})
    assert made.text_after == text.replace("0.70", "0.65")


def test_speculation_in_an_added_text_is_found() -> None:
    text = 'A=\'--port 1\'\nA+=\' --speculative-config={"method":"ngram","num_speculative_tokens":4}\'\n'
    plan = Planner().plan(f"{text}vllm serve Qwen/Qwen3-8B $A\n", device="thor-t5000", l4t="38.4.0")
    assert (plan.outcome, plan.existing_method) == ("already", "ngram")


def test_what_is_added_under_a_condition_is_optional() -> None:
    text = 'A="--port 1"\nif [ -n "$L" ]; then A="$A --enable-lora"; fi\n[ "$E" ] && A+=" --x y"\nvllm serve m $A\n'
    args = parse_shell(text).commands[0].args
    assert [(arg.value, arg.optional) for arg in args] == [
        ("m", False),
        ("--port", False),
        ("1", False),
        ("--enable-lora", True),
        ("--x", True),
        ("y", True),
    ]


@pytest.mark.parametrize(
    "text",
    [
        'A="--x 1"\nA="--y 2"\nvllm serve m $A\n',  # two values
        'A="--x 1"\nfor i in 1 2; do A="$A --y $i"; done\nvllm serve m $A\n',  # as often as the loop runs
        'A="--x 1"\nfor i in 1 2; do A+=" --y 1"; vllm serve m $A; done\n',
        'A="--x 1"\nmore() { A+=" --y 2"; }\nvllm serve m $A\n',
        'A="--x 1"\ngo() { vllm serve m $A; }\nA+=" --y 2"\ngo\n',
        'A="--x 1"\n[ "$B" ] && A+="2"\nvllm serve m $A\n',  # 1 or 12
        'A="--x 1"\nA+=" --y $(cat y)"\nvllm serve m $A\n',
        'A="--x 1"\nA="$A $A"\nvllm serve m $A\n',
        'A="--x 1"\nsource more.sh\nA+=" --y 1"\nvllm serve m $A\n',
        'A="--x 1"\nA="${A:+$A }--y 1"\nvllm serve m $A\n',
        'A="$A --y 1"\nvllm serve m $A\n',  # the environment's value goes in front
        "A=(--x)\nA+=y\nvllm serve m $A\n",
    ],
)
def test_what_is_not_certain_is_no_value(text: str) -> None:
    arg = parse_shell(text).commands[0].args[-1]
    assert (arg.value, arg.splices) == (None, True)


OUTSIDE = [
    ('exec vllm serve Qwen/Qwen3-8B "$@"\n', '"$@"'),
    ("vllm serve Qwen/Qwen3-8B --port 1 $EXTRA_ARGS\n", "$EXTRA_ARGS"),
    ("vllm serve Qwen/Qwen3-8B --enforce-eager $X\n", "$X"),
    ("vllm serve Qwen/Qwen3-8B --served-model-name q $EXTRA\n", "--served-model-name q $EXTRA"),
    ("vllm serve Qwen/Qwen3-8B --port 1 \\\n  ${MORE[@]} --seed 1\n", "${MORE[@]}"),
    ("vllm serve Qwen/Qwen3-8B $(cat flags.txt)\n", "$(cat flags.txt)"),
    ("docker run vllm/vllm-openai:v0.30.0 Qwen/Qwen3-8B --port 1 $FLAGS\n", "$FLAGS"),
    ("bash -c 'vllm serve Qwen/Qwen3-8B $EXTRA'\n", "$EXTRA"),
    ('A=(--port 1)\n[ "$X" ] && A+=($X)\nvllm serve Qwen/Qwen3-8B "${A[@]}"\n', '"${A[@]}"'),
]


@pytest.mark.parametrize(("text", "outside"), OUTSIDE)
def test_words_from_outside_may_set_the_utilisation_and_keep_the_last_word(text: str, outside: str) -> None:
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0")
    assert plan.outcome == "eagle3"
    assert (plan.utilization.before, plan.utilization.after) == (None, None)
    assert "--gpu-memory-utilization" not in plan.recipe.after
    assert plan.recipe.after.index("--speculative-config") < plan.recipe.after.rindex(outside)
    said = {finding.code: finding for finding in plan.findings}
    assert said["JSD515"].topic == "utilization-unresolved"
    assert "speculation" in said["JSD280"].message
    again = Planner().plan(plan.recipe.after, device="thor-t5000", l4t="38.4.0")
    assert again.outcome == "already"


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m --port $PORT\n",
        "vllm serve m --dtype $DTYPE --port 1\n",
        'vllm serve m "$X"\n',
        "vllm serve m ${EAGER:+--enforce-eager}\n",
        "A=(--port 1)\nvllm serve m ${A[@]}\n",
        "vllm serve $MODEL --port 1\n",
    ],
)
def test_one_word_is_no_room_for_a_flag(text: str) -> None:
    assert ServeFlags.read(parse_shell(text).commands[0]).utilization.state == "absent"


def test_a_flag_in_front_of_words_from_outside_is_seen() -> None:
    text = 'vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.7 "$@"\n'
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0")
    assert (plan.utilization.before, plan.utilization.after) == (0.7, 0.65)


def test_the_place_is_between_words_as_written() -> None:
    text = 'A=(--port 1)\n[ "$X" ] && A+=($X)\nvllm serve m "${A[@]}" --seed 1\n'
    recipe = parse_shell(text)
    after = edit_shell(recipe, 0, [AppendArgs(values=("--a", "1"), before=3)])
    assert after == text.replace('m "$', 'm --a 1 "$')


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("source thor.env\nvllm serve m --port ${PORT:-80}\n", "JSD215", "thor.env"),
        ('. "$HOME/thor.env"\nexec vllm serve m\n', "JSD215", '"$HOME/thor.env"'),
        ("[ -f .env ] && source .env\ndocker run vllm/vllm-openai org/m\n", "JSD215", ".env"),
        ("docker run --env-file thor.env vllm/vllm-openai org/m\n", "JSD216", "thor.env"),
        ("docker run --env-file=thor.env vllm/vllm-openai org/m\n", "JSD216", "thor.env"),
    ],
)
def test_files_that_are_not_looked_into_are_named(text: str, code: str, what: str) -> None:
    said = {one.code: one for one in parse_shell(text).commands[0].findings}
    assert said[code].values["what"] == what
    assert what in said[code].message
    assert "{" not in said[code].message.replace("${X:-…}", "")


def test_what_is_read_afterwards_is_of_no_interest() -> None:
    text = ". env/bin/activate\nvllm serve m &\nsource after.env\n"
    assert parse_shell(text).commands[0].findings == ()


@pytest.mark.parametrize(
    "text",
    [
        "V0=x\n" + "".join(f'V{at}="$V{at - 1}$V{at - 1}"\n' for at in range(1, 39)) + 'vllm serve m "$V38"\n',
        "V0=(x y)\n"
        + "".join(f'V{at}=("${{V{at - 1}[@]}}" "${{V{at - 1}[@]}}")\n' for at in range(1, 39))
        + 'vllm serve m "${V38[@]}"\n',
    ],
)
def test_values_without_end_are_not_followed(text: str) -> None:
    model, *others = args_of(text)
    assert model == "m"
    assert set(others) == {None}


def test_a_chain_of_variables_is_followed() -> None:
    text = "V0=80\n" + "".join(f"V{at}=$V{at - 1}\n" for at in range(1, 30)) + "vllm serve m --port $V29 --x $V12\n"
    assert args_of(text) == ["m", "--port", "80", "--x", "80"]


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("A=1; export A\n", {"A": "1"}),
        ('A=1; [ "$Z" ] && export A\n', {"A": None}),
        ('A=1\nif [ "$Z" ]; then\n  export A\nfi\n', {"A": None}),
        ("set -a; A=1; set +a; B=2\n", {"A": "1"}),
        ("set -o allexport\nA=1\nset +o allexport\nB=2\n", {"A": "1"}),
        ("(set -a; C=1)\nA=1\n", {}),
        ('[ "$Z" ] && set -a\nA=1\n', {"A": None}),
        ("set -euo pipefail\nA=1\n", {}),
        ('[ "$Z" ] && { U=1; export U; }\n', {"U": None}),
    ],
)
def test_what_reaches_the_engine(text: str, env: dict[str, str | None]) -> None:
    assert dict(parse_shell(f"{text}vllm serve m\n").commands[0].env) == env
