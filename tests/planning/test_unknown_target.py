# SPDX-License-Identifier: Apache-2.0
"""A target that is not known: what is missing is said once, and nothing is claimed about it."""

from __future__ import annotations

import pytest

from jetson_specdec import Planner

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}


def said(made):
    return [finding.code for finding in made.findings]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("vllm serve /models/mystery --gpu-memory-utilization 0.8\n", "JSD560"),
        ('vllm serve "$MODEL" --gpu-memory-utilization 0.8\n', "JSD560"),
        ("vllm serve --gpu-memory-utilization 0.8\n", "JSD566"),
    ],
)
def test_nothing_is_said_about_what_drafts_for_an_unknown_target(text, code):
    made = Planner().plan(text, **THOR)
    assert (made.outcome, made.target) == ("none", None)
    assert said(made).count(code) == 1
    assert {finding.topic for finding in made.findings}.isdisjoint(
        {"no-head-known", "no-draft-known", "no-speculation"}
    )
    assert {reason.code for reason in made.rejected.values()} == {code}
    assert [step.kind for step in made.next_steps] == ["name-target"]
    assert made.recipe.after == text


def test_where_the_load_decides_no_target_is_asked_for():
    made = Planner().plan("vllm serve /models/mystery\n", concurrency=8, **THOR)
    assert made.outcome == "none"
    assert [step.kind for step in made.next_steps] == ["stay"]


def test_a_known_target_without_heads_is_still_named():
    made = Planner().plan("vllm serve someone/something-9b --gpu-memory-utilization 0.8\n", **THOR)
    assert made.outcome == "none"
    messages = [finding.message for finding in made.findings if finding.topic in ("no-head-known", "no-draft-known")]
    assert len(messages) == 2
    assert all("someone/something-9b" in message for message in messages)


def test_a_config_file_that_is_not_there_is_said_once(tmp_path):
    recipe = tmp_path / "serve.sh"
    recipe.write_text("vllm serve Qwen/Qwen3-8B --config /nowhere/at/all.yaml\n", encoding="utf-8")
    made = Planner().plan(recipe, **THOR)
    about = [finding for finding in made.findings if "/nowhere/at/all.yaml" in finding.message]
    assert {finding.code for finding in about} == {"JSD574"}


def test_a_command_that_was_chosen_is_not_asked_for_again():
    text = "vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-14B\n"
    made = Planner().plan(text, command=1, **THOR)
    message = next(finding.message for finding in made.findings if finding.code == "JSD200")
    assert "choose" not in message
    assert "lines 1, 2" in message
