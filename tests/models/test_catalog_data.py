# SPDX-License-Identifier: Apache-2.0
"""The packaged tables: whole, normalised, and never surer than their sources."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest

from jetson_specdec.models.catalog import Catalog

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
DATA = {
    name: json.loads(resources.files("jetson_specdec.models").joinpath(f"data/{name}.json").read_text("utf-8"))
    for name in ("targets", "heads", "pairs")
}
TARGETS, HEADS, PAIRS = DATA["targets"]["targets"], DATA["heads"]["heads"], DATA["pairs"]["pairs"]


def all_ids():
    for row in TARGETS:
        yield row["id"]
        yield from row.get("variants", {})
        yield from row.get("aliases", [])
        yield from row.get("renamed", {})
        yield from row.get("renamed", {}).values()
    for row in [*HEADS, *DATA["heads"]["unplaced"]]:
        yield row["id"]
    for row in HEADS:
        yield row["target"]
    for row in PAIRS:
        yield row["draft"]
        if "target" in row:
            yield row["target"]


def test_every_id_is_a_repository_id_without_remarks():
    assert [id for id in all_ids() if not ID.fullmatch(id)] == []


def test_ids_are_unique():
    for rows in (TARGETS, HEADS):
        ids = [row["id"] for row in rows]
        assert len(ids) == len(set(ids))
    keys = [(row.get("target"), row["draft"]) for row in PAIRS]
    assert len(keys) == len(set(keys))


def test_a_copy_belongs_to_one_base():
    copies = [copy for row in TARGETS for copy in row.get("variants", {})]
    assert len(copies) == len(set(copies))
    assert not set(copies) & {row["id"] for row in TARGETS}


@pytest.mark.parametrize("name", ["targets", "heads", "pairs"])
def test_every_entry_names_known_sources_and_a_confidence(name):
    sources = DATA[name]["sources"]
    for row in DATA[name][name]:
        assert row["sources"], row
        assert set(row["sources"]) <= set(sources), row
        assert row["confidence"] in ("high", "medium", "low")
        for record in row.get("acceptance", ()):
            assert record["source"] in sources


def test_heads_point_at_targets_the_catalogue_has():
    catalog = Catalog.default()
    for row in HEADS:
        assert catalog.target(row["target"]) is not None, row["id"]


def test_claims_about_vllm_are_backed():
    for row in HEADS + PAIRS:
        assert row["loads_in_vllm"] in ("tested", "documented", "unknown")
        assert ("evidence" in row) == (row["loads_in_vllm"] != "unknown"), row


def test_unverified_ids_are_never_claimed_to_load():
    unverified = [row for row in HEADS if not row["id_verified"]]
    assert len(unverified) == 6
    for row in unverified:
        assert (row["loads_in_vllm"], row["confidence"]) == ("unknown", "low")


def test_another_engine_proves_nothing():
    """Heads measured or documented only for SGLang, TensorRT or nothing stay unknown."""
    elsewhere = {"specforge", "specbundle", "eagle-readme", "edgellm", "summary", "hf-tw", "hf-mnn", "hf-zh32"}
    for row in HEADS:
        if set(row["sources"]) <= elsewhere:
            assert row["loads_in_vllm"] == "unknown", row["id"]


def test_minimum_releases_are_releases():
    for row in HEADS + PAIRS:
        if "min_vllm" in row:
            assert re.fullmatch(r"\d+\.\d+\.\d+", row["min_vllm"]), row


def test_licences_are_short_ids_not_prose():
    for row in HEADS:
        if "licence" in row:
            assert re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", row["licence"]), row


def test_acceptance_is_possible():
    for row in HEADS:
        for record in row.get("acceptance", ()):
            length, k, positions = (
                record.get(key) for key in ("mean_length", "num_speculative_tokens", "per_position")
            )
            assert length is not None or positions is not None
            if length is not None:
                assert 1 <= length <= (k or 20) + 1, row["id"]
            if positions is not None:
                assert len(positions) == k
                assert all(0 <= p <= 1 for p in positions)
                assert sorted(positions, reverse=True) == positions
                # The mean is one bonus token and the chance of each position (published to three digits).
                assert length == pytest.approx(1 + sum(positions), abs=0.02)


def test_usable_pairs_have_one_vocabulary_and_a_small_draft():
    usable = [row for row in PAIRS if row["usable"]]
    assert len(usable) == 15
    for row in usable:
        assert "why_not" not in row
        assert row["target_vocab_size"] == row["draft_vocab_size"]
        assert 0 < row["weight_ratio"] <= 0.25


def test_unusable_pairs_say_why():
    words = {"vocab-mismatch", "draft-too-large", "no-gain-expected", "multimodal", "chat-format-differs"}
    for row in PAIRS:
        if not row["usable"]:
            assert row["why_not"] in words
        mismatch = row["target_vocab_size"] != row["draft_vocab_size"]
        assert mismatch == (row.get("why_not") == "vocab-mismatch")


def test_pair_vocabularies_are_those_of_the_targets():
    catalog = Catalog.default()
    for pair in catalog.all_pairs:
        for id, size in ((pair.target, pair.target_vocab_size), (pair.draft, pair.draft_vocab_size)):
            record = catalog.target(id)
            if record is not None and record.vocab_size is not None:
                assert record.vocab_size == size, id


def test_weight_ratios_follow_from_the_parameters():
    catalog = Catalog.default()
    checked = 0
    for pair in catalog.all_pairs:
        target, draft = catalog.target(pair.target), catalog.target(pair.draft)
        if target is None or draft is None or not target.params_active or not draft.params_active:
            continue
        assert pair.weight_ratio == pytest.approx(draft.params_active / target.params_active, abs=1e-4), pair
        checked += 1
    assert checked > 30


def test_draft_sizes_are_the_targets_bf16_sizes():
    catalog = Catalog.default()
    for pair in catalog.all_pairs:
        record = catalog.target(pair.draft)
        if pair.download_bytes is not None:
            assert record is not None
            assert pair.download_bytes == record.weight_bytes["bf16"]
            assert pair.size_status == "computed"


def test_bf16_weights_are_two_bytes_a_parameter():
    for record in Catalog.default().all_targets:
        if "bf16" in record.weight_bytes:
            assert record.weight_bytes["bf16"] == 2 * record.params_total, record.id


def test_models_with_a_vision_part_have_no_made_up_size():
    for record in Catalog.default().all_targets:
        if record.multimodal:
            assert not record.weight_bytes, record.id


def test_numbers_without_a_source_are_of_low_confidence():
    for row in TARGETS:
        if "memory" in row["sources"] or "hidden_size" not in row:
            assert row["confidence"] == "low", row["id"]


def test_the_fine_tune_that_is_another_is_no_copy_of_llama_3_3():
    catalog = Catalog.default()
    assert catalog.variant_of("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w4a16") == (
        "meta-llama/Llama-3.1-70B-Instruct",
        "w4a16",
    )
    assert catalog.heads_for("meta-llama/Llama-3.1-70B-Instruct") == ()


def test_suffixes_stand_longest_first():
    suffixes = [suffix.lower() for suffix in DATA["targets"]["copy_suffixes"]]
    for index, suffix in enumerate(suffixes):
        assert not any(later.endswith(suffix) for later in suffixes[index + 1 :]), suffix


def test_every_entry_makes_its_value():
    catalog = Catalog.default()
    assert len(catalog.all_heads) == len(HEADS) == 94
    assert len(catalog.all_targets) == len(TARGETS)
    assert len(catalog.all_pairs) == len(PAIRS) - 1  # one holds for a family
    for value in (*catalog.all_heads, *catalog.all_targets, *catalog.all_pairs):
        assert all(isinstance(source, str) and len(source) > 5 for source in value.sources)
