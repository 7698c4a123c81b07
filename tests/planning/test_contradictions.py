# SPDX-License-Identifier: Apache-2.0
"""What the user names is held against the recipe and the catalogue; so is the speculation that is already there."""

from __future__ import annotations

import json

import pytest

from jetson_specdec import Planner
from jetson_specdec.errors import CatalogueError, OptionError, RecipeSyntaxError

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
QWEN = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n"


def topics(made):
    return {finding.topic for finding in made.findings}


def already(model, config, env=""):
    text = f"{env}vllm serve {model} --gpu-memory-utilization 0.8 --speculative-config '{json.dumps(config)}'\n"
    made = Planner().plan(text, **THOR)
    assert made.outcome == "already"
    return made


def test_a_target_that_contradicts_the_recipe():
    with pytest.raises(OptionError, match="contradicts"):
        Planner().plan(QWEN, target="meta-llama/Llama-3.1-8B-Instruct", **THOR)


@pytest.mark.parametrize("target", ["nope", "Qwen/Qwen3-9B", "nobody/at-all"])
def test_a_target_nothing_is_known_of(target):
    with pytest.raises(CatalogueError, match=target):
        Planner().plan("vllm serve /model --gpu-memory-utilization 0.8\n", target=target, **THOR)
    made = Planner().plan("vllm serve /model\n", target="nobody/at-all", head="nobody/a-head", **THOR)
    assert made.outcome == "eagle3"


def test_a_target_may_name_what_the_recipe_does_not_tell():
    made = Planner().plan("vllm serve /model --gpu-memory-utilization 0.8\n", target="Qwen/Qwen3-8B", **THOR)
    assert made.outcome == "eagle3"
    assert made.target == "Qwen/Qwen3-8B"
    same = Planner().plan("vllm serve nvidia/Qwen3-8B-NVFP4\n", target="Qwen/Qwen3-8B", **THOR)
    assert same.outcome == "eagle3"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"draft": "Qwen/Qwen3-8B"}, "itself"),
        ({"draft": "RedHatAI/Qwen3-8B-speculator.eagle3"}, "--head"),
        ({"head": "Qwen/Qwen3-0.6B"}, "--draft"),
        ({"head": "openai/gpt-oss-20b"}, "--draft"),
    ],
)
def test_drafters_of_the_wrong_kind(options, says):
    with pytest.raises(OptionError, match=says):
        Planner().plan(QWEN, **options, **THOR)


@pytest.mark.parametrize(
    ("draft", "topic"),
    [
        ("openai/gpt-oss-20b", "vocab-mismatch"),
        ("meta-llama/Llama-3.2-1B-Instruct", "vocab-mismatch"),
        ("Qwen/Qwen3-32B", "draft-not-useful"),
    ],
)
def test_named_drafts_that_cannot_work_are_rejected_with_the_reason(draft, topic):
    made = Planner().plan(QWEN, draft=draft, **THOR)
    assert made.outcome == "none"
    assert made.rejected["draft_model"].topic == topic


def test_an_existing_pair_of_unequal_vocabularies():
    config = {"method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct", "num_speculative_tokens": 5}
    made = already("Qwen/Qwen2.5-7B-Instruct", config)
    told = next(finding for finding in made.findings if finding.topic == "vocab-mismatch")
    assert "151936" in told.message
    assert "152064" in told.message
    other = already("meta-llama/Llama-3.1-8B-Instruct", {**config, "model": "Qwen/Qwen3-0.6B"})
    assert "vocab-mismatch" in topics(other)
    good = already("Qwen/Qwen3-8B", {**config, "model": "Qwen/Qwen3-0.6B"})
    assert "vocab-mismatch" not in topics(good)


def test_an_existing_head_for_another_target():
    head = "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"
    config = {"method": "eagle3", "model": head, "num_speculative_tokens": 5}
    assert "head-mismatch" in topics(already("Qwen/Qwen3-8B", config))
    assert "head-mismatch" not in topics(already("nvidia/Llama-3.1-8B-Instruct-FP8", config))


def test_an_existing_drafter_of_an_offline_recipe():
    config = {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 5}
    assert "offline-head" in topics(already("Qwen/Qwen3-8B", config, env="HF_HUB_OFFLINE=1 "))
    assert "offline-head" not in topics(already("Qwen/Qwen3-8B", config, env="HF_HUB_OFFLINE=0 "))


def test_nothing_is_added_beside_a_config_file_that_cannot_be_read():
    made = Planner().plan("vllm serve Qwen/Qwen3-8B --config /nowhere/at-all.yaml\n", **THOR)
    assert made.outcome == "refuse"
    assert "config-not-found" in topics(made)
    assert "eager-mode" not in topics(made)
    assert made.recipe.after == made.recipe.before


@pytest.mark.parametrize(
    "target", ["google/gemma-4-26B-A4B-it", "mistralai/Mixtral-8x7B-Instruct-v0.1", "openai/gpt-oss-20b"]
)
def test_mixtures_of_experts_are_told_by_name_where_the_catalogue_does_not(target):
    assert "moe-target" in topics(Planner().plan(f"vllm serve {target} --gpu-memory-utilization 0.7\n", **THOR))


def test_a_strangers_copy_is_planned_for_with_a_warning():
    made = Planner().plan("vllm serve hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4\n", **THOR)
    assert made.outcome == "eagle3"
    assert "third-party-copy" in topics(made)


def test_a_baseline_of_another_model_decides_nothing(tmp_path):
    run = {"concurrency": 1, "ttft_ms_p50": 9000.0, "tpot_ms_p50": 40.0, "throughput_tok_s": 9.0}
    report = {
        "skill": "jetson-llm-benchmark",
        "runtime": "vllm",
        "model": "openai/gpt-oss-20b",
        "config": {"output_len": 128},
        "runs": [run],
    }
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(report))
    made = Planner().plan(QWEN, baseline=file, **THOR)
    assert made.outcome == "eagle3"
    assert "baseline-other-model" in topics(made)


def test_other_engines_get_no_notes_about_vllm_flags():
    made = Planner().plan("ollama serve\n", **THOR)
    assert "default-utilization" not in topics(made)


def test_a_simulated_baseline_is_not_used(tmp_path):
    run = {"concurrency": 1, "ttft_ms_p50": 9000.0, "tpot_ms_p50": 40.0, "throughput_tok_s": 9.0}
    report = {"skill": "jetson-llm-benchmark", "runtime": "fake-vllm", "config": {"output_len": 128}, "runs": [run]}
    file = tmp_path / "bench.json"
    file.write_text(json.dumps(report))
    made = Planner().plan(QWEN, baseline=file, **THOR)
    assert made.outcome == "eagle3"
    assert "baseline-simulated" in topics(made)
    assert any(step.kind == "measure-baseline" for step in made.next_steps)


def test_a_report_handed_over_as_recipe(tmp_path):
    file = tmp_path / "before.json"
    file.write_text(json.dumps({"runtime": "vllm", "schema_version": 1, "runs": [{"concurrency": 8}]}))
    with pytest.raises(RecipeSyntaxError, match="--baseline"):
        Planner().plan(file, **THOR)


@pytest.mark.parametrize("name", ["nonsense", "", "two words/x"])
def test_heads_that_cannot_be_ids(name):
    with pytest.raises(OptionError):
        Planner().plan(QWEN, head=name, **THOR)


def test_a_strategy_that_raises_is_named_and_skipped():
    class Broken:
        name = "broken"
        priority = 400

        def propose(self, situation):
            return 1 / 0

    planner = Planner(strategies=[Broken(), *Planner().strategies])
    made = planner.plan(QWEN, **THOR)
    assert made.outcome == "eagle3"
    assert "ZeroDivisionError" in made.rejected["broken"].message


def test_a_message_that_quotes_a_bad_value_never_quotes_a_secret(capsys):
    from jetson_specdec.render.plan import print_plan

    secret = "Zq7wK9xT2mLp4vRb"
    text = f"vllm serve Qwen/Qwen3-8B --api-key {secret} --gpu-memory-utilization {secret}\n"
    made = Planner().plan(text, **THOR)
    assert secret not in json.dumps(made.to_json())
    print_plan(made)
    assert secret not in capsys.readouterr().out
