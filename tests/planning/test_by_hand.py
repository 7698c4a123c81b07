# SPDX-License-Identifier: Apache-2.0
"""What to type where a text is not changed: in the language of the text, and said once."""

from __future__ import annotations

import ast

import pytest

from jetson_specdec import Planner

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
CALL = "from vllm import LLM\nllm = LLM('Qwen/Qwen3-8B', gpu_memory_utilization=0.8)\n"
SHELL = 'A="--gpu-memory-utilization 0.8"\n' + 2 * "vllm serve Qwen/Qwen3-8B $A\n"


def test_a_python_program_gets_keyword_arguments() -> None:
    plan = Planner().plan(CALL, **THOR)
    assert plan.outcome == "refuse"
    typed = next(step for step in plan.next_steps if step.kind == "type-by-hand").values["arguments"]
    call = ast.parse(f"LLM({typed})", mode="eval").body
    assert isinstance(call, ast.Call)
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert 0 < given["gpu_memory_utilization"] < 0.8
    assert given["speculative_config"]["method"] == "eagle3"
    assert set(given) == {"gpu_memory_utilization", "speculative_config"}
    shown = [finding.message for finding in plan.findings if finding.topic == "not-editable"]
    assert len(shown) == 1
    assert "--speculative-config" not in shown[0]


@pytest.mark.parametrize("form", ["python", "shell"])
def test_what_to_type_is_said_once(form: str) -> None:
    plan = Planner().plan({"python": CALL, "shell": SHELL}[form], command=0, **THOR)
    shown = [finding.message for finding in plan.findings if finding.topic == "not-editable"]
    assert len(shown) == 1
    assert shown[0].count("num_speculative_tokens") == {"python": 2, "shell": 1}[form]


def test_an_unknown_model_is_named_as_it_is_written() -> None:
    plan = Planner().plan('vllm serve "$MODEL_OF_MINE" --port 8000\n', **THOR)
    message = next(finding.message for finding in plan.findings if finding.code == "JSD560")
    assert "MODEL_OF_MINE" in message
    assert "None" not in message
