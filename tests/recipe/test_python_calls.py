# SPDX-License-Identifier: Apache-2.0
"""Python programs are read and explained, and never changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeError, RecipeSyntaxError, UneditableError
from jetson_specdec.recipe import ServeFlags, parse_recipe, plan_edit, read_speculation
from jetson_specdec.recipe.python_calls import parse_python

TEXT = (Path(__file__).parent.parent / "data" / "recipe" / "offline.py.txt").read_text()


def test_keywords_are_read_as_flags() -> None:
    recipe = parse_recipe(TEXT)
    assert recipe.form == "python"
    command = recipe.commands[0]
    flags = ServeFlags.read(command)
    assert flags.get("model").value == "Qwen/Qwen3-8B"
    assert flags.gpu_memory_utilization == 0.8
    assert flags.has("enable-prefix-caching") is False
    speculation = read_speculation(flags)
    assert (speculation.method, speculation.num_speculative_tokens) == ("ngram", 4)
    assert command.line == 4
    assert recipe.text[command.start : command.end].startswith("LLM(\n")
    assert recipe.text[command.args[0].start : command.args[0].end] == "model"
    assert command.args[1].resolved_from == ("MODEL",)


def test_places_count_characters_not_bytes() -> None:
    recipe = parse_python('from vllm import LLM\nx = "äöü€"; llm = LLM(model="m", seed=1)\r\n')
    command = recipe.commands[0]
    assert recipe.text[command.start : command.end] == 'LLM(model="m", seed=1)'
    assert [recipe.text[arg.start : arg.end] for arg in command.args] == ["model", '"m"', "seed", "1"]


def test_what_only_the_program_knows_stays_unknown() -> None:
    text = (
        "import os\nfrom vllm import AsyncEngineArgs\n"
        "def make(name, **more):\n    return AsyncEngineArgs(model=name, speculative_config=settings.spec, "
        'quantization=os.environ.get("Q", "hunter2-secret"), dtype=None, **more)\n'
    )
    recipe = parse_recipe(text)
    args = recipe.commands[0].args
    assert [arg.value for arg in args] == [
        *("--model", None, "--speculative-config", None, "--quantization", None, None),
    ]
    assert read_speculation(ServeFlags.read(recipe.commands[0])).state == "by_reference"
    assert "hunter2" not in json.dumps([finding.message for finding in recipe.commands[0].findings])
    assert "hunter2" not in "".join(arg.raw for arg in args)


def test_a_plan_explains_and_changes_nothing() -> None:
    plan = Planner().plan(TEXT, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
    assert plan.outcome == "already"
    assert plan.existing_method == "ngram"
    assert "JSD292" in {finding.code for finding in plan.findings}
    without = TEXT.replace(TEXT.splitlines()[7] + "\n", "")
    refused = Planner().plan(without, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
    assert (refused.outcome, refused.editable) == ("refuse", False)
    assert refused.recipe.after == without
    recipe = parse_recipe(without)
    with pytest.raises(UneditableError, match="speculative_config="):
        plan_edit(recipe, recipe.commands[0], ServeFlags.read(recipe.commands[0]), speculative_config={"method": "x"})


def test_declined_in_one_line() -> None:
    with pytest.raises(RecipeSyntaxError, match="line 2") as caught:
        parse_python("from vllm import LLM\nllm = LLM(\n")
    assert caught.value.code == "JSE241"
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_python("print(1)\n")
    assert caught.value.code == "JSE242"


@settings(max_examples=150)
@given(st.integers(0, len(TEXT)), st.integers(0, 9), st.text(max_size=6))
def test_no_program_makes_it_stumble(at: int, length: int, piece: str) -> None:
    text = TEXT[:at] + piece + TEXT[at + length :]
    try:
        recipe = parse_python(text)
    except RecipeError:
        return
    for command in recipe.commands:
        for arg in command.args:
            assert 0 <= arg.start <= arg.end <= len(text)
