# SPDX-License-Identifier: Apache-2.0
"""The contract's rules, each through `Planner.plan`."""

from __future__ import annotations

import json

import pytest

from jetson_specdec import Planner, Policy
from jetson_specdec.errors import CommandChoiceError, OptionError
from jetson_specdec.models.catalog import Catalog

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
ORIN6 = {"device": "agx-orin-64gb", "l4t": "36.4.4"}
ORIN7 = {"device": "agx-orin-64gb", "l4t": "39.2.0"}
JETSON_IMAGE = "ghcr.io/nvidia-ai-iot/vllm:0.14.0-r36.4-tegra-aarch64-cu126-22.04"


def plan(text, **options):
    return Planner().plan(text + "\n", **options)


def topics(made):
    return {finding.topic for finding in made.findings}


# --- EAGLE-3, drafts, none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("board", "k"), [(THOR, 5), (ORIN7, 3)])
def test_a_published_head_is_added_with_the_boards_k(board, k):
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", vllm_version="0.30.0", **board)
    assert made.outcome == "eagle3"
    assert made.speculative_config["method"] == "eagle3"
    assert made.speculative_config["model"] == "RedHatAI/Qwen3-8B-speculator.eagle3"
    assert made.speculative_config["num_speculative_tokens"] == k
    assert made.speculative_config["draft_tensor_parallel_size"] == 1
    assert made.utilization.before == 0.8
    assert made.utilization.after == 0.75
    assert made.added_args[0] == "--speculative-config"
    assert json.loads(made.added_args[1]) == made.speculative_config


@pytest.mark.parametrize(
    "target",
    [
        "RedHatAI/Qwen3-8B-quantized.w4a16",
        "nvidia/Qwen3-8B-NVFP4",
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
        "openai/gpt-oss-20b",
    ],
)
def test_quantised_copies_use_the_head_of_their_original(target):
    assert plan(f"vllm serve {target} --gpu-memory-utilization 0.7", **THOR).outcome == "eagle3"


def test_a_small_draft_with_identical_vocabulary_when_no_head_is_known_to_load():
    made = plan(
        "docker run --rm --runtime nvidia vllm/vllm-openai:v0.30.0 --model meta-llama/Llama-3.2-3B-Instruct", **THOR
    )
    assert made.outcome in ("none", "draft_model")
    made = plan(
        "docker run --rm --runtime nvidia vllm/vllm-openai:v0.30.0 --model Qwen/Qwen2.5-3B-Instruct"
        " --gpu-memory-utilization 0.6",
        **THOR,
    )
    assert made.outcome == "draft_model"
    assert made.speculative_config == {
        "method": "draft_model",
        "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "num_speculative_tokens": 5,
        "draft_tensor_parallel_size": 1,
    }
    assert made.utilization.after == 0.55
    assert "eagle3" in made.rejected


def test_no_draft_on_the_jetson_image_of_jetpack_6():
    made = plan(
        f"docker run --rm {JETSON_IMAGE} vllm serve Qwen/Qwen2.5-3B-Instruct --gpu-memory-utilization 0.6", **ORIN6
    )
    assert made.outcome == "none"
    assert "0.15" in made.rejected["draft_model"].message
    assert made.recipe.after == made.recipe.before


def test_padded_vocabularies_of_one_family_are_not_identical():
    made = plan("vllm serve Qwen/Qwen2.5-7B-Instruct --gpu-memory-utilization 0.8", **THOR)
    assert made.outcome == "none"
    assert made.rejected["draft_model"].topic == "vocab-mismatch"
    assert "152064" in made.rejected["draft_model"].message
    assert "heterogeneous" not in json.dumps(made.to_json()["added_args"])


def test_an_unproven_head_is_named_but_not_chosen():
    made = plan("vllm serve Qwen/Qwen2.5-14B-Instruct --gpu-memory-utilization 0.8", **THOR)
    assert made.outcome == "none"
    assert "head-unproven" in topics(made)
    wanted = "thoughtworks/Qwen2.5-14B-Instruct-Eagle3"
    assert any(wanted in finding.message for finding in made.findings)
    forced = plan("vllm serve Qwen/Qwen2.5-14B-Instruct --gpu-memory-utilization 0.8", head=wanted, **THOR)
    assert forced.outcome == "eagle3"
    assert forced.speculative_config["model"] == wanted
    assert "head-unproven" in topics(forced)


def test_a_head_for_another_target_is_refused_by_name():
    made = plan(
        "vllm serve Qwen/Qwen3-14B --gpu-memory-utilization 0.7", head="RedHatAI/Qwen3-8B-speculator.eagle3", **THOR
    )
    assert made.outcome != "eagle3"
    assert made.rejected["eagle3"].topic == "head-mismatch"
    assert "Qwen/Qwen3-8B" in made.rejected["eagle3"].message


def test_a_misspelt_head_is_used_and_its_near_miss_named():
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.7", head="RedHatAI/Qwen3-8B-eagle3", **THOR)
    assert made.outcome == "eagle3"
    unknown = next(finding for finding in made.findings if finding.topic == "unknown-head")
    assert "RedHatAI/Qwen3-8B-speculator.eagle3" in unknown.message


def test_head_and_draft_exclude_each_other():
    with pytest.raises(OptionError, match="exclude"):
        plan("vllm serve Qwen/Qwen3-8B", head="a/b", draft="c/d", **THOR)


# --- board, runtime, ceiling --------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["orin-nx-16gb", "orin-nx-8gb", "orin-nano-8gb", "orin-nano-4gb"])
def test_small_orins_are_refused_and_told_what_helps(module):
    made = plan(
        f"docker run --rm {JETSON_IMAGE} vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.6",
        device=module,
        l4t="36.4.4",
    )
    assert made.outcome == "refuse"
    assert "family-not-supported" in topics(made)
    assert any("n-gram" in step.text for step in made.next_steps)
    assert made.recipe.after == made.recipe.before


@pytest.mark.parametrize(
    ("value", "refused"), [("0.90", False), ("0.9", False), ("0.91", True), ("0.95", True), ("0.985", True)]
)
def test_values_above_the_ceiling_are_refused(value, refused):
    made = plan(f"vllm serve Qwen/Qwen3-8B --gpu-memory-utilization {value}", **THOR)
    assert (made.outcome == "refuse") is refused
    assert ("near-ceiling" in topics(made)) is refused
    if refused:
        handed_over = next(step for step in made.next_steps if step.kind == "free-memory")
        assert "--runtime vllm" in handed_over.command
        assert "--workload llm-server" in handed_over.command


def test_upstream_images_do_not_start_on_jetpack_6():
    made = plan("docker run --rm vllm/vllm-openai:v0.30.0 --model Qwen/Qwen3-8B", **ORIN6)
    assert made.outcome == "refuse"
    assert "runtime-mismatch" in topics(made)


def test_a_release_proved_too_old_for_thor_is_refused():
    made = plan("vllm serve Qwen/Qwen3-8B", vllm_version="0.19.0", **THOR)
    assert made.outcome == "refuse"
    assert topics(made) & {"image-too-old", "runtime-mismatch"}


def test_the_orin_image_never_on_thor():
    made = plan(f"docker run --rm {JETSON_IMAGE} vllm serve Qwen/Qwen3-8B", **THOR)
    assert made.outcome == "refuse"


def test_jetpack_5_is_unsupported():
    made = plan("vllm serve Qwen/Qwen3-8B", device="agx-orin-64gb", l4t="35.4.1")
    assert made.outcome == "refuse"


def test_a_default_utilisation_is_written_out_and_lowered():
    made = plan("docker run --rm vllm/vllm-openai:v0.30.0 --model Qwen/Qwen3-8B", **ORIN7)
    assert made.utilization.before is None
    assert made.utilization.after == 0.87
    assert "--gpu-memory-utilization 0.87" in made.recipe.after


def test_the_steps_size_follows_the_policy():
    planner = Planner(policy=Policy(utilization_step=0.1, start_k_thor=2))
    made = planner.plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", **THOR)
    assert made.utilization.after == 0.7
    assert made.speculative_config["num_speculative_tokens"] == 2


# --- already speculative, broken ----------------------------------------------------------------------------------


def test_nothing_is_added_to_a_recipe_that_speculates():
    made = plan(
        "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8 --speculative-config "
        '\'{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}\'',
        **THOR,
    )
    assert made.outcome == "already"
    assert made.existing_method == "ngram"
    assert "method-not-ours" in topics(made)
    assert made.utilization.after == 0.8
    assert made.recipe.after == made.recipe.before


def test_speculation_on_a_small_board_is_recommended_away():
    made = plan(
        "vllm serve Qwen/Qwen3-4B --speculative-config "
        '\'{"method":"draft_model","model":"Qwen/Qwen3-0.6B","num_speculative_tokens":3}\'',
        device="orin-nx-16gb",
        l4t="39.2.0",
    )
    assert made.outcome == "already"
    assert any(step.kind == "remove-speculation" for step in made.next_steps)


def test_broken_json_is_refused_with_the_right_text():
    made = plan('vllm serve Qwen/Qwen3-8B --speculative-config {"method":"eagle3","model":"x/y"}', **THOR)
    assert made.outcome == "refuse"
    assert "quoting-broken" in topics(made)


def test_applying_a_plan_twice_changes_nothing_the_second_time():
    first = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8   # chat", **THOR)
    second = Planner().plan(first.recipe.after, **THOR)
    assert second.outcome == "already"
    assert second.recipe.after == first.recipe.after
    assert second.speculative_config == first.speculative_config


# --- workload -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "outcome"), [(1, "eagle3"), (2, "eagle3"), (3, "eagle3"), (7, "eagle3")])
def test_low_concurrency_is_planned_for(concurrency, outcome):
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", concurrency=concurrency, **THOR)
    assert made.outcome == outcome
    assert ("high-concurrency" in topics(made)) is (concurrency > 2)


@pytest.mark.parametrize("concurrency", [8, 64])
def test_high_concurrency_gets_no_speculation(concurrency):
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", concurrency=concurrency, **THOR)
    assert made.outcome == "none"
    assert "high-concurrency" in topics(made)


def test_max_num_seqs_is_capacity_not_load():
    made = plan("vllm serve Qwen/Qwen3-8B --max-num-seqs 32 --gpu-memory-utilization 0.8", **THOR)
    assert made.outcome == "eagle3"
    assert "high-concurrency" in topics(made)


def incumbent_report(ttft_ms, tpot_ms, output_len=128):
    run = {
        "ttft_ms_p50": ttft_ms,
        "ttft_ms_p99": ttft_ms,
        "itl_ms_p50": tpot_ms,
        "itl_ms_p99": tpot_ms,
        "tpot_ms_p50": tpot_ms,
        "throughput_tok_s": 1000.0 * output_len / (ttft_ms + (output_len - 1) * tpot_ms),
        "e2e_latency_ms_p50": 0.0,
    }
    return {
        "skill": "jetson-llm-benchmark",
        "runtime": "vllm",
        "model": "Qwen/Qwen3-8B",
        "sku": "thor",
        "generation": "thor",
        "product_line": "thor-agx",
        "variant": "thor-t5000",
        "l4t": "38.4.0",
        "benchmark_mode": "container",
        "container": "vllm/vllm-openai:v0.30.0",
        "config": {"input_len": 2048, "output_len": output_len, "num_prompts": 50},
        "runs": [{"concurrency": 1, **run}, {"concurrency": 8, **run}],
        "warnings": [],
    }


# decode share f = (n-1)*TPOT / (TTFT + (n-1)*TPOT), with n = 128
@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "outcome", "severity"),
    [
        (200.0, 40.0, "eagle3", "info"),  # 5080 / 5280 = 0.96
        (4000.0, 40.0, "eagle3", "warning"),  # 5080 / 9080 = 0.56
        (9000.0, 40.0, "none", None),  # 5080 / 14080 = 0.36
    ],
)
def test_the_baseline_tells_whether_decoding_is_the_bottleneck(tmp_path, ttft_ms, tpot_ms, outcome, severity):
    report = tmp_path / "bench.json"
    report.write_text(json.dumps(incumbent_report(ttft_ms, tpot_ms)))
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", baseline=report, **THOR)
    assert made.outcome == outcome
    found = [finding for finding in made.findings if finding.topic in ("ttft-bound", "decode-share")]
    assert found
    if severity is not None:
        assert found[0].severity.value == severity


def test_a_dead_servers_zeros_are_missing_numbers(tmp_path):
    report = tmp_path / "bench.json"
    report.write_text(json.dumps(incumbent_report(1.0, 1.0) | {"runs": [{"concurrency": 1, "tpot_ms_p50": 0.0}]}))
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", baseline=report, **THOR)
    assert made.outcome == "eagle3"
    assert "baseline-incomplete" in topics(made)


# --- several commands, other engines ------------------------------------------------------------------------------


def test_several_commands_must_be_chosen_from():
    text = "vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-14B\n"
    with pytest.raises(CommandChoiceError, match="2 serve commands"):
        plan(text, **THOR)
    made = plan(text, command=1, **THOR)
    assert made.target == "Qwen/Qwen3-14B"
    assert made.recipe.after.splitlines()[0] == "vllm serve Qwen/Qwen3-8B"
    with pytest.raises(CommandChoiceError):
        plan(text, command=2, **THOR)


SEVERAL = {
    "two.sh": "vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-14B\n",
    "inside.sh": "docker run img bash -c 'vllm serve Qwen/Qwen3-8B & vllm serve Qwen/Qwen3-14B'\n",
    "compose.yaml": """services:
  a: {image: "vllm/vllm-openai:v0.30.0", command: "--model Qwen/Qwen3-8B"}
  b: {image: "vllm/vllm-openai:v0.30.0", command: "--model Qwen/Qwen3-14B"}
""",
    "pod.yaml": """apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  containers:
  - {name: a, image: "vllm/vllm-openai:v0.30.0", args: ["--model", "Qwen/Qwen3-8B"]}
  - {name: b, image: "vllm/vllm-openai:v0.30.0", args: ["--model", "Qwen/Qwen3-14B"]}
""",
    "two.service": "[Service]\nExecStart=/bin/bash -c 'vllm serve Qwen/Qwen3-8B & vllm serve Qwen/Qwen3-14B'\n",
    "two.py": "from vllm import LLM\na = LLM('Qwen/Qwen3-8B')\nb = LLM('Qwen/Qwen3-14B')\n",
}


@pytest.mark.parametrize("name", list(SEVERAL))
def test_every_form_says_once_that_it_holds_several_commands(name, tmp_path):
    path = tmp_path / name
    path.write_text(SEVERAL[name], encoding="utf-8")
    made = Planner().plan(path, command=0, **THOR)
    assert [finding.code for finding in made.findings if finding.topic == "several-commands"] == ["JSD200"]


def test_a_plan_is_its_situation_decided():
    """What is read and what is decided come apart: the same situation gives the same plan, without a host."""
    planner = Planner()
    text = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n"
    situation = planner.situation(text, concurrency=2, **THOR)
    assert (situation.concurrency, situation.device.module) == (2, "thor-t5000")
    expected = planner.plan(text, concurrency=2, **THOR).to_json()
    assert planner.decide(situation).to_json() == Planner(host=None).decide(situation).to_json() == expected


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B", "sglang"),
        ("llama-server -m model.gguf -c 4096", "llama.cpp"),
        ("ollama serve", "ollama"),
        ("trtllm-serve Qwen/Qwen3-8B", "tensorrt-llm"),
    ],
)
def test_other_engines_are_declined_by_name(text, engine):
    made = plan(text, **THOR)
    assert made.outcome == "refuse"
    assert any(engine in finding.message for finding in made.findings if finding.topic == "other-engine")


# --- the shape of the answer --------------------------------------------------------------------------------------


def test_a_plan_is_the_same_value_every_time():
    text = "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8"
    assert plan(text, **THOR).to_json() == plan(text, **THOR).to_json()


def test_secrets_are_masked_in_json_and_kept_in_the_recipe():
    secret = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    text = (
        f"docker run --rm -e HF_TOKEN={secret} vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-8B"
        " --gpu-memory-utilization 0.8 --api-key not-for-you-42"
    )
    made = plan(text, **THOR)
    shown = json.dumps(made.to_json())
    assert secret not in shown
    assert "not-for-you-42" not in shown
    assert made.to_json()["recipe"]["redacted"] is True
    assert secret in made.recipe.after
    assert "not-for-you-42" in made.recipe.after
    assert secret not in made.recipe.diff


def test_every_finding_has_a_text_and_every_rule_a_source():
    made = plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", **THOR)
    for finding in made.findings:
        assert finding.message
        assert "JSD" not in finding.message
        assert "unknown" not in finding.message or finding.topic != "memory-step"


# --- what the download of a drafter needs -----------------------------------------------------------------------------

OWN_HEAD = """
schema_version = 1

[[heads]]
id = "org/head"
target = "Qwen/Qwen3-8B"
min_vllm = "0.14.0"
loads_in_vllm = "tested"
gated = {gated}
"""


def steps_for_own_head(tmp_path, *, gated, before=""):
    path = tmp_path / "own.toml"
    path.write_text(OWN_HEAD.format(gated=str(gated).lower()), encoding="utf-8")
    text = f"{before}vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n"
    made = Planner(catalog=Catalog.load([path])).plan(text, head="org/head", vllm_version="0.30.0", **THOR)
    assert made.speculative_config["model"] == "org/head"
    return [step for step in made.next_steps if step.kind.startswith("download")]


def test_a_gated_drafter_asks_for_its_licence_first(tmp_path):
    assert [step.kind for step in steps_for_own_head(tmp_path, gated=False)] == ["download"]
    first, second = steps_for_own_head(tmp_path, gated=True)
    assert (first.kind, second.kind) == ("download-gated", "download")
    assert "org/head is gated" in first.text


def test_an_offline_recipe_is_not_told_that_the_drafter_comes_by_itself(tmp_path):
    (step,) = steps_for_own_head(tmp_path, gated=False, before="HF_HUB_OFFLINE=1 ")
    assert step.kind == "download-offline"
    assert "fetch it first" in step.text
