# SPDX-License-Identifier: Apache-2.0
"""Configs, headers and tokenizers that nobody should have written: one clear error or unknowns, never a crash."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import ModelError
from jetson_specdec.estimate.memory import build_ledger
from jetson_specdec.host import LocalHost
from jetson_specdec.models.local import profile_from_dir
from jetson_specdec.models.pair import check_pair, tokenizers_equal
from jetson_specdec.models.profile import profile_from_config
from jetson_specdec.models.safetensors_read import TensorInfo, parse_header, weight_sizes

DATA = Path(__file__).parents[1] / "data" / "models" / "built_counts.json"
CONFIGS = [row["config"] for row in json.loads(DATA.read_text(encoding="utf-8"))["models"]]
PLAIN = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "torch_dtype": "bfloat16", "max_position_embeddings": 512,
}  # fmt: skip
HEAD = {**PLAIN, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 500, "num_hidden_layers": 1}
WRAPPER = {
    "architectures": ["XForConditionalGeneration"], "text_config": PLAIN,
    "vision_config": {"depth": 2, "hidden_size": 8, "intermediate_size": 16, "patch_size": 14, "in_channels": 3},
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["lm_head"]},
}  # fmt: skip
SPECULATOR = {
    "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": 500,
    "transformer_layer_config": PLAIN, "eagle_aux_hidden_state_layer_ids": [0, 1],
    "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {"name_or_path": "org/x"}},
}  # fmt: skip
BASES = [*CONFIGS, PLAIN, HEAD, WRAPPER, SPECULATOR]
MORE_KEYS = [
    "global_head_dim", "kv_lora_rank", "sliding_window", "layer_types", "block_configs", "linear_attn_config",
    "attn_config", "ffn_config", "moe_layer_freq", "num_experts", "num_experts_per_tok", "hybrid_override_pattern",
    "no_rope_layers", "attention_chunk_size", "eagle_config", "audio_config", "vision_config", "text_config",
    "auto_map",
    "quantization_config", "attn_layer_indices", "mlp_only_layers", "tie_word_embeddings", "torch_dtype", "dtype",
]  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
    | st.sampled_from([10**30, -1, 0, 1e999, "2", "abc", [1], [None], ["a"], [14, 14], {}, {"a": 1}]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@st.composite
def mutated(draw):
    config = json.loads(json.dumps(draw(st.sampled_from(BASES))))
    for _ in range(draw(st.integers(1, 4))):
        places = [config, *(value for value in config.values() if isinstance(value, dict))]
        place = draw(st.sampled_from(places))
        place[draw(st.sampled_from([*sorted(place), *MORE_KEYS]))] = copy.deepcopy(draw(ODD))
    return config


@given(mutated())
def test_a_damaged_config_gives_a_profile_or_one_error(config):
    try:
        profile = profile_from_config(config, id="org/x")
    except ModelError:
        return
    for value in (profile.weight_bytes, profile.kv_bytes_per_token(), profile.weight_bytes_active):
        assert value is None or (isinstance(value, int) and value > 0)
    assert profile.state_bytes_per_sequence(3) is None or profile.state_bytes_per_sequence(3) >= 0
    assert json.dumps(profile.to_json())
    build_ledger(
        device_total_bytes=2**36, available_bytes=None, utilization=0.8, release_version="0.32.0", target=profile,
        draft=profile, k=3, max_num_seqs=4,
    )  # fmt: skip
    whole = profile_from_config(PLAIN, id="org/y")
    for method in ("eagle3", "draft_model"):
        assert check_pair(whole, profile, method=method, k=3).state
        assert check_pair(profile, whole, method=method, k=3).state


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({"intermediate_size": ["a"]}, False),
        ({"intermediate_size": [None, None]}, False),
        ({"intermediate_size": [128, 128]}, True),
        ({"num_hidden_layers": 10**7}, False),
        ({"num_hidden_layers": 0}, False),
        ({"num_hidden_layers": "2"}, False),
        ({"hidden_size": -64}, False),
        ({"hidden_size": 64.0}, False),
        ({"vocab_size": 10**30}, False),
        ({"kv_lora_rank": [1], "model_type": "deepseek_v2"}, False),
        ({"model_type": "gemma4_text", "layer_types": ["full_attention"] * 2, "global_head_dim": "abc",
          "hidden_size_per_layer_input": 0}, True),
    ],
)  # fmt: skip
def test_values_of_the_wrong_kind_are_unknown(change, known):
    assert (profile_from_config({**PLAIN, **change}).weight_bytes is not None) is known


@pytest.mark.parametrize(("patch", "pixels"), [(14, 196), ([14, 14], 196), ([14, 7], 98), ("14", None), (1e999, None)])
def test_patches_may_have_two_sides(patch, pixels):
    vision = {"depth": 2, "hidden_size": 8, "intermediate_size": 16, "patch_size": patch}
    profile = profile_from_config({**WRAPPER, "quantization_config": None, "vision_config": vision})
    expected = None if pixels is None else 2 * (2 * (4 * 64 + 2 * 8 * 16) + 8 * 3 * pixels)
    assert profile.vision_bytes == expected


def test_wrappers_within_wrappers_end():
    config = PLAIN
    for _ in range(3000):
        config = {"text_config": config}
    assert profile_from_config(config).weight_bytes is None


# --- headers -----------------------------------------------------------------------------------------------------


def file_of(text, data=b""):
    raw = text.encode() if isinstance(text, str) else json.dumps(text).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype="BF16", shape=(10,), start=0, end=20):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"dtype":"BF16","shape":[10],"data_offsets":[0,1e999]}}',
        '{"a":{"dtype":"BF16","shape":[1e999],"data_offsets":[0,20]}}',
        '{"a":{"dtype":"BF16","shape":[-10],"data_offsets":[0,20]}}',
        '{"a":{"dtype":"BF16","shape":[true],"data_offsets":[0,2]}}',
        '{"a":{"dtype":"BF16","shape":"123","data_offsets":[0,20]}}',
        '{"a":{"dtype":"BF16","shape":[10],"data_offsets":["0","20"]}}',
        '{"a":{"dtype":"BF16","shape":[10],"data_offsets":[0.5,20.9]}}',
        '{"a":{"dtype":"BF16","shape":[10],"data_offsets":[-20,0]}}',
        '{"a":{"dtype":["BF16"],"shape":[10],"data_offsets":[0,20]}}',
        '{"a":{"dtype":"BF16","shape":[10],"data_offsets":[0]}}',
        '{"a":[1,2]}',
        "[" * 100_000,
        '{"a":' * 50_000,
    ],
    ids=lambda text: text[:60],
)
def test_a_damaged_header_is_one_error(text):
    with pytest.raises(ModelError):
        parse_header(file_of(text), where="x")


def directory(tmp_path, files, config=PLAIN):
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return profile_from_dir(LocalHost(), str(tmp_path))


def ledger_confidence(profile):
    ledger = build_ledger(
        device_total_bytes=2**36, available_bytes=None, utilization=0.8, release_version="0.32.0", target=profile,
        max_num_seqs=4,
    )  # fmt: skip
    return ledger.off.line("target_weights").confidence


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 50_000, "[]", "nope", ""])
def test_a_damaged_config_file_is_one_error(tmp_path, content):
    with pytest.raises(ModelError, match="config"):
        directory(tmp_path, {}, content)


@pytest.mark.parametrize("bad", [entry(end=400), entry(shape=(11,)), entry(dtype="F32"), entry("F4", (10,), 0, 20)])
def test_places_must_agree_with_shapes(tmp_path, bad):
    with pytest.raises(ModelError, match="'w'"):
        directory(tmp_path, {"model.safetensors": file_of({"w": bad}, b"0" * 400)})


@pytest.mark.parametrize(("size", "whole"), [(0, False), (19, False), (20, True)])
def test_a_header_alone_is_no_certainty(tmp_path, size, whole):
    profile = directory(tmp_path, {"model.safetensors": file_of({"w": entry()}, b"0" * size)})
    assert profile.bytes_source == "headers"
    assert profile.weight_bytes == 20
    assert profile.incomplete is not whole
    assert ledger_confidence(profile) == ("high" if whole else "medium")
    assert ("JSD488" in [finding.code for finding in profile.findings]) is not whole


def test_shards_without_an_index_are_counted(tmp_path):
    part = file_of({"w": entry()}, b"0" * 20)
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    profile = directory(tmp_path, {names[0]: part, names[2]: part})
    assert profile.bytes_source == "formula"
    missing = next(finding for finding in profile.findings if finding.code == "JSD475")
    assert missing.values["missing"] == [names[1]]


def test_an_adapter_beside_the_weights_is_not_added(tmp_path):
    part = file_of({"w": entry()}, b"0" * 20)
    profile = directory(tmp_path, {"model.safetensors": part, "adapter_model.safetensors": part})
    assert profile.weight_bytes == 20
    assert profile.files == ("model.safetensors",)


def sized(names):
    return [TensorInfo(name, "BF16", (50,), 100) for name in names]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.2.mlp.experts.0.up_proj.weight", "mtp"),
        ("model.layers.2.embed_tokens.weight", "mtp"),
        ("model.layers.2.shared_head.head.weight", "mtp"),
        ("model.layers.1.mlp.experts.0.up_proj.weight", "experts"),
        ("model.layers.1.block_sparse_moe.input_linear.weight", "experts"),
        ("model.layers.1.shared_mlp.input_linear.weight", None),
        ("model.language_model.embed_tokens_per_layer.weight", "lookup"),
        ("model.language_model.embed_tokens.weight", "embedding"),
        ("model.embed_tokens_extend.image_embed.img_processor.a.weight", "vision"),
        ("vision_tower.model.layers.20.a.weight", "vision"),
        ("talker.model.layers.0.mlp.experts.0.up_proj.weight", "speech"),
        ("code2wav.decoder.0.weight", "speech"),
        ("thinker.lm_head.weight", "head"),
    ],
)
def test_what_a_tensor_is(name, part):
    sizes = weight_sizes(sized([name]), dtype_bytes=2, quantized=False, tied=False, layers=2)
    parts = ("mtp", "experts", "lookup", "embedding", "vision", "speech", "head")
    assert {key: getattr(sizes, key) for key in parts if getattr(sizes, key)} == ({part: 100} if part else {})
    assert sizes.loaded == (0 if part in ("mtp", "speech") else 100)


def test_what_a_token_does_not_read():
    names = ["model.embed_tokens.weight", "model.embed_tokens_per_layer.weight", "model.layers.0.a.weight",
             "lm_head.weight", "talker.a.weight", "model.layers.2.a.weight"]  # fmt: skip
    profile = profile_from_config(PLAIN, headers=sized(names))
    assert profile.weight_bytes == 400
    assert profile.weight_bytes_active == 200
    assert {finding.code for finding in profile.findings} >= {"JSD447", "JSD472"}


def test_unreadable_experts_leave_the_active_part_unknown():
    tensors = sized(["model.layers.0.mlp.experts.0.a.weight", "model.norm.weight"])
    profile = profile_from_config({**PLAIN, "num_experts": 8, "new_top_k": 2}, headers=tensors)
    assert profile.weight_bytes == 200
    assert profile.weight_bytes_active is None


# --- pairs -------------------------------------------------------------------------------------------------------

GOOD = json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}, "added_tokens": []}).encode()


@pytest.mark.parametrize(
    "odd",
    [
        b"[]", b"null", b"{}", b"\0", b"\xff", b'{"model":[]}', b'{"model":"x"}', b'{"model":{"merges":5}}',
        b'{"model":{"merges":[[1,2]]}}', b'{"model":{},"added_tokens":[{"content":"a","id":1e999}]}',
        b'{"model":{},"added_tokens":{"a":1}}', b'{"model":{},"added_tokens":5}', b"[" * 100_000,
    ],
    ids=lambda odd: repr(odd[:40]),
)  # fmt: skip
def test_an_odd_tokenizer_is_not_compared(odd):
    assert tokenizers_equal(GOOD, odd) is None
    assert tokenizers_equal(odd, GOOD) is None


def pair_codes(report):
    return {finding.code for finding in report.findings}


@pytest.mark.parametrize(("vocab", "equal", "found"), [(1000, True, False), (1024, False, True), (500, None, False)])
def test_a_head_made_for_another_vocabulary(vocab, equal, found):
    report = check_pair(profile_from_config(PLAIN), profile_from_config({**HEAD, "vocab_size": vocab}), method="eagle3")
    assert report.vocab_equal is equal
    assert ("JSD448" in pair_codes(report)) is found
    assert (report.state == "bad_guess") is found


@pytest.mark.parametrize("k", [0, -1])
def test_no_drafted_token_is_refused(k):
    report = check_pair(profile_from_config(PLAIN), profile_from_config(HEAD), method="eagle3", k=k)
    assert report.state == "refused"
    assert "JSD486" in pair_codes(report)


def test_an_unknown_method_is_unknown():
    report = check_pair(profile_from_config(PLAIN), profile_from_config(PLAIN), method="wonder", k=3)
    assert report.state == "unknown"
    assert "JSD487" in pair_codes(report)


@pytest.mark.parametrize(
    ("target", "draft", "found"),
    [
        ({}, {}, True),
        ({}, {"num_hidden_layers": 3}, True),
        ({"num_hidden_layers": 8}, {}, False),
        ({"num_hidden_layers": 8}, {"model_type": "brand_new"}, False),
    ],
)
def test_a_draft_no_smaller_than_its_target_is_said(target, draft, found):
    first, second = profile_from_config({**PLAIN, **target}), profile_from_config({**PLAIN, **draft})
    assert ("JSD485" in pair_codes(check_pair(first, second, method="draft_model", k=3))) is found


def test_a_model_as_its_own_draft_is_said():
    itself = profile_from_config({**PLAIN, "model_type": "brand_new"}, id="org/x")
    assert "JSD485" in pair_codes(check_pair(itself, itself, method="draft_model", k=3))


# --- the cache's own format --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "size"), [("FP8", 1), (None, 2), ("NONE", 2), ("NVFP4", None), ("INT8", None), ("brand_new", None)]
)
def test_a_cache_format_of_unknown_size_is_unknown(asked, size):
    beside = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": asked}}
    profile = profile_from_config(PLAIN, quantization=beside)
    expected = None if size is None else 2 * 2 * 2 * 16 * size
    assert profile.kv_bytes_per_token("auto") == expected
    assert profile.kv_bytes_per_token("fp8") == 2 * 2 * 2 * 16


# --- the ledger --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("odd", "missing"),
    [
        ({"utilization": math.nan}, "utilization"),
        ({"utilization": -0.5}, "utilization"),
        ({"utilization": 1.5}, "utilization"),
        ({"max_model_len": -5}, "max_model_len"),
        ({"block_size": 0}, "kv_layers"),
        ({"block_size": -16}, "kv_layers"),
        ({"device_total_bytes": 0}, "memory_total"),
        ({"max_num_seqs": -1}, "activations"),
    ],
)
def test_odd_settings_make_the_ledger_unknown(odd, missing):
    usual = {
        "device_total_bytes": 2**36, "available_bytes": None, "utilization": 0.8, "release_version": "0.32.0",
        "target": profile_from_config(PLAIN), "max_model_len": 512, "max_num_seqs": 4,
    }  # fmt: skip
    assert build_ledger(**usual).off.missing == ()
    arm = build_ledger(**{**usual, **odd}).off
    assert missing in arm.missing
    assert arm.state == "unknown"


def test_auto_length_is_the_models_own():
    ledger = build_ledger(
        device_total_bytes=2**36, available_bytes=None, utilization=0.8, release_version="0.32.0",
        target=profile_from_config(PLAIN), max_model_len=-1, max_num_seqs=4,
    )  # fmt: skip
    assert ledger.off.max_model_len == 512
