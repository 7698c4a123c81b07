# SPDX-License-Identifier: Apache-2.0
"""Which model types are counted, which are left unknown, and what experts, KV heads and windows do to a profile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetson_specdec.models.profile import profile_from_config
from jetson_specdec.packaged import packaged_json

DATA = Path(__file__).parents[1] / "data" / "models" / "built_counts.json"
BUILT = json.loads(DATA.read_text(encoding="utf-8"))["models"]
VERIFIED = packaged_json("models", "data", "model_types.json")["formula"]


def plain(**more):
    return {
        "model_type": "llama", "architectures": ["XForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16,
        "vocab_size": 1000, "max_position_embeddings": 4096, "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


def without(key, **more):
    return {name: value for name, value in plain(**more).items() if name != key}


def topics(profile):
    return [finding.topic for finding in profile.findings]


def codes(profile):
    return [finding.code for finding in profile.findings]


# --- the formula -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", BUILT, ids=[row["name"] for row in BUILT])
def test_counts_equal_those_of_the_built_model(row):
    profile = profile_from_config({**row["config"], "torch_dtype": "bfloat16"})
    assert profile.bytes_source == "formula"
    assert profile.weight_bytes == 2 * row["parameters"]


def test_every_counted_type_has_been_compared():
    # deepseek_v3 is compared in test_profile.py
    assert set(VERIFIED) - {row["config"]["model_type"] for row in BUILT} == {"deepseek_v3"}


@pytest.mark.parametrize(
    "model_type", ["phi", "gpt_neox", "opt", "gemma3n_text", "apertus", "brand_new", "kimi_linear"]
)
def test_other_types_are_not_counted_and_it_is_said(model_type):
    profile = profile_from_config(plain(model_type=model_type))
    assert profile.weight_bytes is None
    assert profile.weight_bytes_active is None
    assert profile.bytes_source is None
    assert "JSD481" in codes(profile)
    assert profile.kv_bytes_per_token() == (
        None if model_type in ("gemma3n_text", "kimi_linear") else 4 * 2 * 2 * 16 * 2
    )


def test_embeddings_of_each_layer_are_looked_up_not_read():
    config = next(row["config"] for row in BUILT if row["name"] == "gemma 4 E4B")
    profile = profile_from_config({**config, "torch_dtype": "bfloat16"})
    table = 262144 * 42 * 256
    assert profile.embedding_bytes == 2 * (262144 * 2560 + table)
    assert profile.weight_bytes_active == profile.weight_bytes - 2 * table


def test_an_audio_tower_is_not_guessed():
    vision = {"depth": 2, "hidden_size": 8, "intermediate_size": 16, "patch_size": 2}
    seeing = {"text_config": plain(), "vision_config": vision}
    assert profile_from_config(seeing).weight_bytes is not None
    assert profile_from_config({**seeing, "audio_config": {"hidden_size": 8}}).weight_bytes is None


def test_an_image_part_under_another_name_is_multimodal():
    assert profile_from_config(plain(embd_layer={"image_embd_layer": {}})).multimodal is True
    assert profile_from_config(plain()).multimodal is False


# --- experts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "experts",
    [
        {"num_experts": 8, "num_experts_per_tok": "2"},
        {"num_experts": 8},
        {"num_experts": 8, "new_top_k": 2},
        {"num_experts": 8, "num_experts_per_tok": 0},
        {"num_experts": 8, "num_experts_per_tok": 9},
        {"num_experts": [8, 16, 8, 8], "num_experts_per_tok": 2},
        {"num_experts": "8", "num_experts_per_tok": 2},
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": [32, 64, 32, 64]},
        {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": "64"},
        {"n_routed_experts": 8, "num_experts_per_tok": [2, 4]},
    ],
    ids=str,
)
@pytest.mark.parametrize("model_type", ["qwen3_moe", "llama"])
def test_experts_that_cannot_be_read_are_no_dense_model(experts, model_type):
    profile = profile_from_config(plain(model_type=model_type, **experts))
    assert profile.moe is not None
    assert not profile.moe.known
    assert profile.weight_bytes is None
    assert "JSD482" in codes(profile)
    assert profile.kv_bytes_per_token() == 4 * 2 * 2 * 16 * 2


@pytest.mark.parametrize(
    ("written", "experts", "top_k", "size", "layers"),
    [
        ({"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32, "moe_layer_start_index": 1}, 8, 2, 32, 3),
        ({"num_experts": 8, "moe_topk": [2] * 4, "moe_intermediate_size": [32] * 4}, 8, 2, 32, 4),
        ({"moe_num_experts": 8, "moe_top_k": 3, "moe_intermediate_size": 32}, 8, 3, 32, 4),
        ({"ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}}, 4, 2, 48, 4),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_layer_freq": [0, 1, 1, 0]},
         8, 2, 32, 2),
        ({"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "moe_layer_freq": 2},
         8, 2, 32, 2),
    ],
)  # fmt: skip
def test_experts_under_the_names_in_use(written, experts, top_k, size, layers):
    moe = profile_from_config(plain(**written)).moe
    assert (moe.experts, moe.top_k, moe.intermediate, moe.layers) == (experts, top_k, size, layers)


def test_shared_experts_are_counted_with_all_their_names():
    for name in ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"):
        config = plain(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, **{name: 2})
        assert profile_from_config(config).moe.shared_intermediate == 64


def test_one_expert_or_none_is_a_dense_model():
    for count in (0, 1, None):
        assert profile_from_config(plain(num_experts=count, num_experts_per_tok=0)).moe is None


# --- KV heads ----------------------------------------------------------------------------------------------------

ONE_HEAD = 4 * 2 * 16 * 2
"""Bytes a token keeps in four layers with one KV head of 16."""


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (without("num_key_value_heads"), 8),
        (without("num_key_value_heads", model_type="mistral", sliding_window=None), 8),
        (without("num_key_value_heads", model_type="brand_new"), None),
        (plain(num_key_value_heads=None), 8),
        (plain(model_type="qwen3", num_key_value_heads=None), 8),
        (plain(model_type="mistral", num_key_value_heads=None, sliding_window=None), None),
        (plain(model_type="brand_new", num_key_value_heads=None), None),
        (plain(num_key_value_heads="2"), None),
        (without("num_key_value_heads", model_type="chatglm", multi_query_attention=True, multi_query_group_num=2), 2),
        (without("num_key_value_heads", model_type="chatglm", multi_query_attention=False, multi_query_group_num=2), 8),
        (without("num_key_value_heads", model_type="dbrx", attn_config={"kv_n_heads": 4}), 4),
        (without("num_key_value_heads", model_type="falcon", multi_query=True), 1),
        (without("num_key_value_heads", model_type="falcon"), 1),
        (without("num_key_value_heads", model_type="falcon", multi_query=False), 8),
        (without("num_key_value_heads", model_type="falcon", new_decoder_architecture=True, num_kv_heads=4), 4),
        (without("num_key_value_heads", model_type="gpt_bigcode", multi_query=True), 1),
        (without("num_key_value_heads", model_type="gpt_bigcode", multi_query=False), 8),
        (plain(block_configs=[{"attention": {"n_heads_in_group": 8}}] * 4), None),
        (plain(model_type="kimi_linear", kv_lora_rank=16, linear_attn_config={"kda_layers": [1, 2]}), None),
    ],
)  # fmt: skip
def test_kv_heads_are_only_assumed_where_that_is_known(config, heads):
    assert profile_from_config(config).kv_bytes_per_token() == (None if heads is None else heads * ONE_HEAD)


def test_missing_kv_heads_are_said():
    assert "JSD484" in codes(profile_from_config(without("num_key_value_heads", model_type="brand_new")))


def test_latent_weights_with_a_full_cache():
    latent = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}
    mini = plain(model_type="minicpm3", num_key_value_heads=8, **latent)
    assert profile_from_config(mini).kv_bytes_per_token() == 4 * 8 * 2 * (8 + 16) * 2
    assert profile_from_config(plain(model_type="deepseek_v2", **latent)).kv_bytes_per_token() == 4 * (32 + 8) * 2
    assert profile_from_config(plain(model_type="brand_new", **latent)).kv_bytes_per_token() is None


@pytest.mark.parametrize(
    "words",
    [
        {"attn_type_list": [0, 1, 0, 1]},
        {"mamba_d_state": 16},
        {"block_types": ["recurrent", "attention"]},
        {"layer_group_size": 4},
        {"ssm_state_size": 64},
        {"model_type": "deepseek_v32", "kv_lora_rank": 32, "qk_rope_head_dim": 8, "index_topk": 2048},
    ],
    ids=str,
)
def test_layers_of_kinds_that_are_not_read_are_unknown(words):
    profile = profile_from_config(plain(**{"model_type": "brand_new", **words}))
    assert profile.kv_layers is None
    assert profile.state_layers is None
    assert profile.hybrid is None
    assert profile.kv_bytes_per_token() is None


# --- windows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [4096, 262144])
def test_a_window_no_shorter_than_the_context_is_none(window):
    profile = profile_from_config(plain(model_type="phi3", sliding_window=window))
    assert [(group.kind, group.count, group.window) for group in profile.kv_layers] == [("full", 4, None)]
    assert profile.kv_bytes_per_token() == 2 * ONE_HEAD


def test_a_token_is_never_free():
    profile = profile_from_config(plain(model_type="mistral", sliding_window=1024))
    assert [(group.kind, group.window) for group in profile.kv_layers] == [("sliding", 1024)]
    assert profile.kv_bytes_per_token() == 2 * ONE_HEAD
    assert profile.kv_bytes_bf16 == 2 * ONE_HEAD


def test_a_shorter_served_length_makes_a_window_whole():
    config = plain(model_type="exaone4", sliding_window=1024, sliding_window_pattern="LLLG")
    profile = profile_from_config(config)
    assert {(group.kind, group.count) for group in profile.kv_layers} == {("sliding", 3), ("full", 1)}
    assert profile.kv_bytes_per_token() == 2 * ONE_HEAD // 4
    assert profile.kv_bytes_per_token(max_model_len=1024) == 2 * ONE_HEAD
    assert profile.kv_bytes_per_token(max_model_len=1025) == 2 * ONE_HEAD // 4


@pytest.mark.parametrize("count", [1, 3])
def test_a_short_list_of_layer_kinds_is_no_list(count):
    profile = profile_from_config(plain(layer_types=["full_attention"] * count))
    assert profile.kv_layers is None
    assert profile.kv_bytes_per_token() is None
    assert profile.weight_bytes is None
    assert "JSD483" in codes(profile)
    assert "size-unknown" in topics(profile)
