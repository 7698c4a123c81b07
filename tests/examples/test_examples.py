# SPDX-License-Identifier: Apache-2.0
"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jetson_specdec import Planner

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(*words):
    done = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=True, cwd=EXAMPLES)
    return done.stdout


def test_plan_a_folder():
    out = run(EXAMPLES / "plan_a_folder.py", EXAMPLES / "recipes", "thor-t5000", "38.4.0")
    assert "thor-llama-3.1-8b.sh: eagle3 RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3 0.7" in out


def test_own_strategy():
    out = run(EXAMPLES / "own_strategy.py")
    assert out.startswith("ngram ")
    assert "--gpu-memory-utilization 0.65" in out


@pytest.mark.parametrize(
    ("name", "module", "l4t", "k"),
    [("thor-llama-3.1-8b.sh", "thor-t5000", "38.4.0", 5), ("agx-orin-qwen3-8b.sh", "agx-orin-64gb", "36.4.4", 3)],
)
def test_sample_recipes(name, module, l4t, k):
    plan = Planner().plan(EXAMPLES / "recipes" / name, device=module, l4t=l4t)
    assert plan.outcome == "eagle3"
    assert plan.speculative_config["num_speculative_tokens"] == k
    done = subprocess.run(["bash", "-n"], input=plan.recipe.after, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_own_detector():
    assert run(EXAMPLES / "own_detector.py") == "agx-orin-64gb /etc/acme-carrier\n"


def test_sample_policy_and_catalogue():
    from jetson_specdec import Catalog
    from jetson_specdec.extensions import load_policy

    policy = load_policy(EXAMPLES / "policy.toml")
    assert (policy.start_k_thor, policy.utilization_step) == (4, 0.08)
    planner = Planner(policy=policy, catalog=Catalog.load([EXAMPLES / "catalog.toml"]))
    recipe = "vllm serve acme/Qwen3-8B-support --gpu-memory-utilization 0.8\n"
    plan = planner.plan(recipe, device="thor-t5000", l4t="38.4.0")
    assert plan.outcome == "eagle3"
    assert plan.speculative_config["model"] == "acme/Qwen3-8B-support-eagle3"
    assert plan.utilization.after == 0.72
    assert plan.speculative_config["num_speculative_tokens"] == 4
