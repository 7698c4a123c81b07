# SPDX-License-Identifier: Apache-2.0
"""Variables in a script that another form holds: an outer layer replaces them, or the script's shell does."""

from __future__ import annotations

import pytest

from jetson_specdec.recipe import Recipe, ServeFlags, parse_recipe, plan_edit

COMPOSE = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    entrypoint: [bash, -c]\n    {}\n"
POD = (
    "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.20.0\n"
    "    command: [sh, -c]\n    env: [{{name: PORT, value: '1'}}, {{name: UTIL, value: '0.8'}}]\n    {}\n"
)
UNIT = "[Service]\nEnvironment=PORT=1 UTIL=0.8\nExecStart=/bin/bash -c {}\n"
CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 5}


def changed(text: str) -> tuple[str, Recipe]:
    recipe = parse_recipe(text)
    command = recipe.commands[0]
    flags = ServeFlags.read(command)
    plan = plan_edit(recipe, command, flags, set_flags={"gpu-memory-utilization": "0.7"}, speculative_config=CONFIG)
    return plan.text_after, recipe


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (COMPOSE.format("command: ['vllm serve m --gpu-memory-utilization 0.8 --port ${PORT:-1}']"), "${PORT:-1}"),
        (COMPOSE.format('command: ["vllm serve m --gpu-memory-utilization 0.8 --port ${PORT}"]'), "${PORT}"),
        (
            COMPOSE.format(
                "command:\n    - |\n      vllm serve m \\\n        --gpu-memory-utilization 0.8 \\\n"
                "        --port ${P:-1}"
            ),
            "--port ${P:-1} \\\n        --speculative-config",
        ),
        (POD.format("args: ['vllm serve m --gpu-memory-utilization 0.8 --port $(PORT)']"), "$(PORT)"),
        (UNIT.format("'vllm serve m --gpu-memory-utilization 0.8 --port ${PORT}'"), "${PORT}"),
    ],
)
def test_new_words_go_behind_a_reference_that_is_the_last_word(text: str, kept: str) -> None:
    after, recipe = changed(text)
    assert kept in after
    again = parse_recipe(after).commands[0]
    assert [arg.raw for arg in again.args][: len(recipe.commands[0].args)] == [
        "0.7" if arg.raw == "0.8" else arg.raw for arg in recipe.commands[0].args
    ]


@pytest.mark.parametrize(
    ("text", "before"),
    [
        (COMPOSE.format("command: ['vllm serve m --gpu-memory-utilization ${UTIL:-0.8} --port 1']"), "${UTIL:-0.8}"),
        (COMPOSE.format('command: ["vllm serve m --gpu-memory-utilization=${UTIL:-0.8}"]'), "${UTIL:-0.8}"),
        (
            COMPOSE.format(
                "environment: {UTIL: '0.8'}\n    command: ['vllm serve m --gpu-memory-utilization \"$$UTIL\" --port 1']"
            ),
            "$$UTIL",
        ),
        (
            COMPOSE.format(
                "environment: [UTIL=0.8]\n    command: ['vllm serve m --gpu-memory-utilization $$UTIL --port 1']"
            ),
            "$$UTIL",
        ),
        (POD.format("args: ['vllm serve m --gpu-memory-utilization $(UTIL) --port 1']"), "$(UTIL)"),
        (POD.format("args: ['vllm serve m --gpu-memory-utilization $UTIL --port 1']"), "$UTIL"),
        (POD.format("args: ['vllm serve m --gpu-memory-utilization ${OTHER:-0.8} --port 1']"), "${OTHER:-0.8}"),
        (UNIT.format("'vllm serve m --gpu-memory-utilization ${UTIL} --port 1'"), "${UTIL}"),
        (UNIT.format('"vllm serve m --gpu-memory-utilization $$UTIL --port 1"'), "$$UTIL"),
    ],
)
def test_a_reference_is_replaced_as_a_whole(text: str, before: str) -> None:
    after, recipe = changed(text)
    assert ServeFlags.read(recipe.commands[0]).gpu_memory_utilization == 0.8
    expected = text.replace(before, "0.7")
    assert after.startswith(expected[: expected.index("0.7") + 3])
    assert before not in after
    assert ServeFlags.read(parse_recipe(after).commands[0]).gpu_memory_utilization == 0.7
