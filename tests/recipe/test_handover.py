# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import ServeFlags, parse_recipe, read_mem_tune

ANSWER = {
    "sku": "orin-agx",
    "variant": "orin-agx-64gb",
    "l4t_version": "36.4.4",
    "mem_total_gb": 61,
    "runtime": "vllm",
    "rationale": "one model, one user",
    "launch_flags": [
        "--gpu-memory-utilization=0.70",
        "--max-model-len=8192",
        "--max-num-seqs=16",
        "--enable-prefix-caching",
    ],
    "alternatives": [{"runtime": "llama-cpp", "rationale": "smaller", "launch_flags": ["-ngl", "99"]}],
    "notes": ["close the desktop"],
    "made_up": {"x": 1},
}


def test_the_values_are_read():
    tuned = read_mem_tune(json.dumps(ANSWER))
    assert tuned.runtime == "vllm"
    assert tuned.gpu_memory_utilization == 0.7
    assert tuned.max_model_len == 8192
    assert tuned.max_num_seqs == 16
    assert tuned.enable_prefix_caching is True
    assert tuned.sku == "orin-agx"
    assert tuned.variant == "orin-agx-64gb"
    assert tuned.l4t_version == "36.4.4"
    assert tuned.mem_total_gib == 61.0
    assert tuned.rationale == ("one model, one user",)
    assert tuned.notes == ("close the desktop",)
    assert tuned.launch_flags == tuple(ANSWER["launch_flags"])


def test_missing_and_unknown_values_are_none():
    tuned = read_mem_tune('{"launch_flags": [], "sku": "unknown", "mem_total_gb": "many"}')
    assert tuned.gpu_memory_utilization is None
    assert tuned.max_model_len is None
    assert tuned.enable_prefix_caching is None
    assert tuned.sku is None
    assert tuned.mem_total_gib is None


@pytest.mark.parametrize(
    "flags",
    [
        ["--gpu-memory-utilization", "0.7", "--max-num-seqs", "16"],
        ["--gpu-memory-utilization 0.7 --max-num-seqs 16"],
        "--gpu-memory-utilization=0.7 --max-num-seqs=16",
        {"gpu-memory-utilization": 0.7, "--max-num-seqs": 16},
    ],
)
def test_flags_in_other_shapes(flags):
    tuned = read_mem_tune(json.dumps({"runtime": "vllm", "launch_flags": flags}))
    assert (tuned.gpu_memory_utilization, tuned.max_num_seqs) == (0.7, 16)


def test_vllm_among_the_alternatives():
    answer = {
        "runtime": "llama-cpp",
        "launch_flags": ["-ngl", "99"],
        "alternatives": [{"runtime": "vllm", "launch_flags": ["--gpu-memory-utilization=0.5"]}],
    }
    tuned = read_mem_tune(json.dumps(answer))
    assert tuned.gpu_memory_utilization is None
    assert tuned.other_vllm_flags == ("--gpu-memory-utilization=0.5",)


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"runtime": "vllm"}', "3"])
def test_anything_else_is_one_clear_line(text):
    with pytest.raises(RecipeSyntaxError) as caught:
        read_mem_tune(text, where="tune.json")
    assert str(caught.value).startswith("tune.json cannot be read")
    assert "\n" not in str(caught.value)


def test_as_a_recipe_it_has_flags_but_cannot_be_edited():
    text = json.dumps(ANSWER)
    recipe = parse_recipe(text)
    assert recipe.form == "mem_tune"
    (command,) = recipe.commands
    assert not command.editable
    flags = ServeFlags.read(command)
    assert flags.gpu_memory_utilization == 0.7
    assert flags.model is None
