# SPDX-License-Identifier: Apache-2.0
"""Look-ups in the catalogue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.memory import weights_of

CATALOG = Catalog.default()
ANY_ID = st.sampled_from([*CATALOG.rows.targets, *CATALOG.rows.copies, *CATALOG.rows.heads]) | st.text(max_size=30)


def test_default_is_one_object():
    assert Catalog.default() is CATALOG
    assert Catalog.load() is CATALOG


@pytest.mark.parametrize(
    ("base", "head", "loads"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3", "tested"),
        ("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", "tested"),
        ("openai/gpt-oss-20b", "RedHatAI/gpt-oss-20b-speculator.eagle3", "tested"),
        ("openai/gpt-oss-120b", "RedHatAI/gpt-oss-120b-speculator.eagle3", "tested"),
        ("Qwen/Qwen3-4B", "AngelSlim/Qwen3-4B_eagle3", "tested"),
        ("Qwen/Qwen2.5-7B-Instruct", "thoughtworks/Qwen2.5-7B-Instruct-Eagle3", "unknown"),
    ],
)
def test_best_head(base, head, loads):
    best = CATALOG.heads_for(base)[0]
    assert (best.id, best.loads_in_vllm) == (head, loads)


def test_copies_and_aliases_share_the_heads():
    expected = CATALOG.heads_for("meta-llama/Llama-3.1-8B-Instruct")
    assert CATALOG.heads_for("meta-llama/Meta-Llama-3.1-8B-Instruct") == expected
    assert CATALOG.heads_for("nvidia/Llama-3.1-8B-Instruct-NVFP4") == expected


def test_head_of_exactly_the_served_copy_comes_first():
    base, copy = "Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-Coder-30B-A3B-Instruct-FP8"
    own = "xinjiahui/Qwen3-Coder-30B-A3B-Instruct-FP8-EAGLE3"
    assert CATALOG.heads_for(base, served=copy)[0].id == own
    assert CATALOG.heads_for(base)[-1].id == own


def test_tested_stands_before_documented_before_unknown():
    order = {"tested": 0, "documented": 1, "unknown": 2}
    for record in CATALOG.all_targets:
        exact = [order[h.loads_in_vllm] for h in CATALOG.heads_for(record.id) if h.target == record.id]
        assert exact == sorted(exact), record.id


def test_same_conditions_decide_between_equals():
    # Both documented, both with a licence, both measured with 7 drafts at T=1: 3.89 against 2.88 on MT-Bench.
    ids = [head.id for head in CATALOG.heads_for("meta-llama/Llama-3.3-70B-Instruct")[:2]]
    assert ids == ["nebius/EAGLE3-Llama-3.3-70B-Instruct", "RedHatAI/Llama-3.3-70B-Instruct-speculator.eagle3"]


def test_methods_are_kept_apart():
    assert {head.method for head in CATALOG.heads_for("Qwen/Qwen3-8B")} == {"eagle3"}
    assert [head.id for head in CATALOG.heads_for("Qwen/Qwen3-8B", "dflash")] == ["RedHatAI/Qwen3-8B-speculator.dflash"]
    parallel = CATALOG.head("RedHatAI/Qwen3-8B-speculator.peagle")
    assert parallel is not None
    assert parallel.extra_config == {"parallel_drafting": True}


def test_head_keeps_what_was_published():
    head = CATALOG.head("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3")
    assert head is not None
    record = head.acceptance[0]
    assert (record.num_speculative_tokens, record.mean_length) == (3, 2.6)
    assert record.per_position == (0.7296, 0.5208, 0.3545)
    # One layer of 4096, 32 query and 8 KV heads of 128, MLP 14336, 32000 draft tokens; the fusing layer and the
    # attention read twice the width (three times for the fusion).
    h, ffn, q, kv, vocab = 4096, 14336, 32 * 128, 8 * 128, 32000
    params = 3 * h * h + 2 * h * q + 2 * (2 * h * kv) + q * h + 3 * h * ffn + vocab * h
    assert head.resident_bytes == pytest.approx(2 * params, rel=1e-4)  # and a few norms
    assert head.kv_bytes_per_token == 2 * kv * 2


def test_vocabulary_mismatch_can_be_told():
    pairs = CATALOG.pairs_for("Qwen/Qwen2.5-7B-Instruct")
    assert [pair.draft for pair in pairs] == [f"Qwen/Qwen2.5-{size}-Instruct" for size in ("0.5B", "1.5B", "3B")]
    for pair in pairs:
        assert (pair.usable, pair.why_not) == (False, "vocab-mismatch")
        assert (pair.target_vocab_size, pair.draft_vocab_size) == (152064, 151936)
        assert pair.min_vllm is None


@pytest.mark.parametrize(
    ("target", "draft", "why"),
    [
        ("openai/gpt-oss-120b", "openai/gpt-oss-20b", "no-gain-expected"),
        ("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-7B-Instruct", "draft-too-large"),
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen/Qwen3-0.6B", "multimodal"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "meta-llama/Llama-3.2-1B-Instruct", "chat-format-differs"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "vocab-mismatch"),
        ("Qwen/Qwen3.5-27B", "Qwen/Qwen3-0.6B", "vocab-mismatch"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B", None),
        ("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", None),
    ],
)
def test_why_a_pair_is_not_proposed(target, draft, why):
    pair = next(pair for pair in CATALOG.pairs_for(target) if pair.draft == draft)
    assert pair.target == target
    assert (pair.usable, pair.why_not) == (why is None, why)


def test_smallest_usable_draft_first():
    ratios = [pair.weight_ratio for pair in CATALOG.pairs_for("meta-llama/Llama-3.3-70B-Instruct") if pair.usable]
    assert ratios == sorted(ratios)
    assert CATALOG.pairs_for("Qwen/Qwen3-32B")[0].draft == "Qwen/Qwen3-0.6B"


def test_copy_by_name_needs_the_exact_base_and_a_known_organisation():
    copy = CATALOG.copy_of("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic")
    assert copy is not None
    assert (copy.base, copy.precision, copy.confidence, copy.listed) == (
        "meta-llama/Llama-3.1-8B-Instruct",
        "fp8",
        "medium",
        False,
    )
    assert CATALOG.copy_of("somebody/Qwen3-8B-FP8") is None
    assert CATALOG.copy_of("RedHatAI/Qwen3-8B-Base-FP8") is None
    assert CATALOG.copy_of("Qwen/Qwen3-8B") is None


def test_older_name_of_a_copy():
    copy = CATALOG.copy_of("nvidia/Llama-3.1-8B-Instruct-FP4")
    assert copy is not None
    assert (copy.base, copy.precision) == ("meta-llama/Llama-3.1-8B-Instruct", "nvfp4")
    assert copy.renamed_to == "nvidia/Llama-3.1-8B-Instruct-NVFP4"


@pytest.mark.parametrize(
    ("written", "kind", "meant"),
    [
        ("RedHatAI/Llama-3.1-8B-speculator.eagle3", "head", "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"),
        ("RedHatAi/Qwen3-8B-speculator.eagle3", "head", "RedHatAI/Qwen3-8B-speculator.eagle3"),
        ("Qwen/Qwen3-8B-Instruct", "target", "Qwen/Qwen3-8B"),
        ("qwen/qwen-3-8b", "target", "Qwen/Qwen3-8B"),
        ("meta-llama/Llama3.1-8B-Instruct", "target", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_near_misses(written, kind, meant):
    assert CATALOG.near_misses(written, kind=kind)[0] == meant


@pytest.mark.parametrize(
    "other", ["Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen/Qwen3-80B", "Qwen/Qwen3-8B-Base", "mistralai/Devstral-Small-2507"]
)
def test_other_models_are_not_misspellings(other):
    assert CATALOG.near_misses(other, kind="target") == ()


def test_a_known_id_has_no_near_misses():
    assert CATALOG.near_misses("Qwen/Qwen3-8B") == ()


def test_knows_what_any_entry_mentions():
    for id in (
        "Qwen/Qwen3-0.6B",
        "Qwen/Qwen3-8B-AWQ",
        "Ichigec/a1-agents-eagle3-speculator",
        "AngelSlim/Qwen3-VL-2B_eagle3",
    ):
        assert CATALOG.knows(id)
    assert not CATALOG.knows("RedHatAI/Llama-3.1-8B-speculator.eagle3")


def test_a_head_without_a_place_is_never_offered():
    assert CATALOG.head("Ichigec/a1-agents-eagle3-speculator") is None


def test_weights_of():
    llama = CATALOG.target("meta-llama/Llama-3.1-8B-Instruct")
    assert llama is not None
    assert weights_of(llama, None) / 2**30 == pytest.approx(14.96, abs=0.005)
    assert weights_of(llama, "fp8") / 2**30 == pytest.approx(8.46, abs=0.005)
    assert weights_of(llama, "int8") == weights_of(llama, "fp8")
    assert weights_of(llama, "bnb-4bit") is None
    gpt_oss = CATALOG.target("openai/gpt-oss-20b")
    assert gpt_oss is not None
    assert weights_of(gpt_oss, None) == weights_of(gpt_oss, "mxfp4") == int(12.8 * 2**30)
    assert weights_of(gpt_oss, "bf16") is None


@given(ANY_ID)
def test_look_ups_take_anything(id):
    record = CATALOG.target(id)
    if record is not None:
        assert CATALOG.canonical(record.id) == record.id
    for head in CATALOG.heads_for(id):
        assert head.method == "eagle3"
    assert [pair.usable for pair in CATALOG.pairs_for(id)] == sorted(
        (p.usable for p in CATALOG.pairs_for(id)), reverse=True
    )


def test_the_catalogue_shows_its_size_not_its_rows():
    assert repr(CATALOG) == "Catalog(76 targets, 94 heads, 41 pairs)"
