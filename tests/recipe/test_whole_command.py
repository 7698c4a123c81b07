# SPDX-License-Identifier: Apache-2.0
"""The whole command written as a container's `command` or a service's `entrypoint`: it is changed in place."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml

from jetson_specdec.recipe import ServeFlags, parse_recipe, plan_edit

CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 5}
POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.20.0\n    {}\n"
SERVICE = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    {}\n    restart: always\n"
FLOW = '["vllm", "serve", "o/m", "--gpu-memory-utilization", "0.8"]'
BLOCK = "\n    - vllm\n    - serve\n    - o/m\n    - --gpu-memory-utilization\n    - '0.8'"
MODULE = "\n    - python3\n    - -m\n    - vllm.entrypoints.openai.api_server\n    - --model=o/m\n    - --port=1"
SCRIPT = '["/bin/sh", "-c", "vllm serve o/m --gpu-memory-utilization 0.8 --port 1"]'
SCRIPT_BLOCK = "\n    - bash\n    - -c\n    - |\n      vllm serve o/m \\\n        --gpu-memory-utilization 0.8"


def words(value: Any) -> list[str]:
    return shlex.split(value) if isinstance(value, str) else list(value)


def changed(text: str) -> Any:
    recipe = parse_recipe(text)
    command = recipe.commands[0]
    plan = plan_edit(
        recipe,
        command,
        ServeFlags.read(command),
        set_flags={"gpu-memory-utilization": "0.7"},
        speculative_config=CONFIG,
    )
    return yaml.safe_load(plan.text_after)


def check(before: list[str], after: list[str]) -> None:
    if before[-2] == "-c":
        assert after[:-1] == before[:-1]
        before, after = shlex.split(before[-1].replace("\\\n", "")), shlex.split(after[-1].replace("\\\n", ""))
    expected = [word if word != "0.8" else "0.7" for word in before]
    added = after[len(expected) :]
    assert after[: len(expected)] == expected
    assert {"--speculative-config"} <= set(added)
    assert yaml.safe_load(added[added.index("--speculative-config") + 1]) == CONFIG


@pytest.mark.parametrize("command", [FLOW, BLOCK, MODULE, SCRIPT, SCRIPT_BLOCK])
def test_command_of_a_container(command: str) -> None:
    text = POD.format(f"command: {command}")
    before = yaml.safe_load(text)["spec"]["containers"][0]["command"]
    check(before, changed(text)["spec"]["containers"][0]["command"])


@pytest.mark.parametrize(
    "entrypoint",
    [
        *(FLOW, BLOCK, MODULE, SCRIPT, SCRIPT_BLOCK),
        "vllm serve o/m --gpu-memory-utilization 0.8",
        '"vllm serve o/m --gpu-memory-utilization 0.8"',
        ">\n      vllm serve o/m\n      --gpu-memory-utilization 0.8\n      --port 1",
        '/bin/bash -c "vllm serve o/m --gpu-memory-utilization 0.8"',
    ],
)
def test_entrypoint_of_a_service(entrypoint: str) -> None:
    text = SERVICE.format(f"entrypoint: {entrypoint}")
    after = changed(text)["services"]["a"]
    assert after["restart"] == "always"
    check(words(yaml.safe_load(text)["services"]["a"]["entrypoint"]), words(after["entrypoint"]))


@pytest.mark.parametrize("key", ["entrypoint", "command"])
def test_an_entrypoint_in_front_stays(key: str) -> None:
    where = ("entrypoint", "command") if key == "entrypoint" else ("command", "args")
    pieces = f'{where[0]}: [vllm, serve]\n    {where[1]}: [o/m, --gpu-memory-utilization, "0.8"]'
    text = (SERVICE if key == "entrypoint" else POD).format(pieces)
    after = changed(text)
    owner = after["services"]["a"] if key == "entrypoint" else after["spec"]["containers"][0]
    assert owner[where[0]] == ["vllm", "serve"]
    assert owner[where[1]][:4] == ["o/m", "--gpu-memory-utilization", "0.7", "--speculative-config"]
