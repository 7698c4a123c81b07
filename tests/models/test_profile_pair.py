# SPDX-License-Identifier: Apache-2.0
"""Pairs of target and drafter: what vLLM would refuse, and what it would load and guess badly."""

from __future__ import annotations

import json

import attrs
import pytest

from jetson_specdec.models.draft_config import DraftConfig
from jetson_specdec.models.pair import check_pair, tokenizers_equal
from jetson_specdec.models.profile import ModelProfile

TARGET = ModelProfile(
    id="Qwen/Qwen3-8B", architecture="Qwen3ForCausalLM", layers=36, hidden_size=4096, vocab_size=151936,
    max_position_embeddings=40960, dtype="bf16", precision="bf16", multimodal=False, remote_code=False,
)  # fmt: skip
DRAFT = ModelProfile(
    id="Qwen/Qwen3-0.6B", architecture="Qwen3ForCausalLM", layers=28, hidden_size=1024, vocab_size=151936,
    max_position_embeddings=40960, dtype="bf16", precision="bf16", remote_code=False,
)  # fmt: skip
HEAD = ModelProfile(
    id="org/qwen3-8b-head", architecture="LlamaForCausalLMEagle3", layers=1, hidden_size=4096, vocab_size=151936,
    max_position_embeddings=40960, dtype="bf16", precision="bf16", remote_code=False,
    draft=DraftConfig(method="eagle3", format="speculators", draft_vocab_size=32000, aux_layers=(2, 18, 33),
                      verifier="Qwen/Qwen3-8B"),
)  # fmt: skip


def tokenizer(**changes):
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}
    return json.dumps(
        {"model": {**model, **changes}, "added_tokens": [{"id": 2, "content": "<end>"}], "truncation": None}
    ).encode()


def topics(report):
    return {finding.topic for finding in report.findings}


def test_a_pair_that_fits():
    report = check_pair(
        TARGET, DRAFT, method="draft_model", release="0.32.0", k=3, target_tokenizer=tokenizer(),
        draft_tokenizer=tokenizer(),
    )  # fmt: skip
    assert report.state == "ok"
    assert report.vocab_equal is True
    assert report.tokenizers_equal is True
    assert report.draft_max_len == 40960


def test_a_head_that_fits():
    assert check_pair(TARGET, HEAD, method="eagle3", release="0.32.0", k=5).state == "ok"


def test_padding_counts_as_another_vocabulary():
    report = check_pair(attrs.evolve(TARGET, vocab_size=152064), DRAFT, method="draft_model", release="0.32.0")
    assert report.state == "refused"
    assert "same vocabulary size" in next(f for f in report.findings if f.code == "JSD450").message


def test_without_tokenizers_the_pair_is_unknown_not_ok():
    report = check_pair(TARGET, DRAFT, method="draft_model", release="0.32.0")
    assert report.state == "unknown"
    assert report.ok
    assert report.tokenizers_equal is None


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        (tokenizer(), True),
        (tokenizer(merges=[["a", "b"]]), True),  # the newer spelling of the same merges
        (tokenizer().replace(b'"truncation": null', b'"truncation": {"max_length": 5}'), True),
        (tokenizer(vocab={"a": 1, "b": 0}), False),
        (tokenizer(merges=[]), False),
        (tokenizer().replace(b"<end>", b"<stop>"), False),
        (b"not json", None),
        (None, None),
    ],
)
def test_tokenizers_are_really_compared(other, equal):
    assert tokenizers_equal(tokenizer(), other) is equal
    assert tokenizers_equal(other, tokenizer()) is equal


def test_another_tokenizer_of_the_same_size_serves_badly():
    report = check_pair(
        TARGET, DRAFT, method="draft_model", target_tokenizer=tokenizer(), draft_tokenizer=tokenizer(merges=[])
    )
    assert report.state == "bad_guess"
    assert "tokenizer-differs" in topics(report)


@pytest.mark.parametrize(
    ("release", "code"), [("0.10.0", "JSD459"), ("0.14.1", "JSD459"), ("0.15.0", None), ("0.9.1", None), (None, None)]
)
def test_draft_model_is_missing_in_some_releases(release, code):
    report = check_pair(TARGET, DRAFT, method="draft_model", release=release)
    assert (code in {finding.code for finding in report.findings}) is (code is not None)
    assert (report.state == "refused") is (code is not None)


def test_multimodal_targets_and_the_first_release_that_has_draft_model_again():
    seeing = attrs.evolve(TARGET, multimodal=True)
    assert check_pair(seeing, DRAFT, method="draft_model", release="0.15.0").state == "refused"
    assert check_pair(seeing, DRAFT, method="draft_model", release="0.16.0").state != "refused"


def test_what_the_tables_say_about_a_release():
    assert check_pair(TARGET, HEAD, method="eagle3", release="0.11.0", supported=False).state == "refused"
    assert check_pair(TARGET, HEAD, method="eagle3", release="0.11.0", min_release="0.17.0").state == "refused"
    assert check_pair(TARGET, HEAD, method="eagle3", release="0.17.0", min_release="0.17.0").state == "ok"


@pytest.mark.parametrize("where", ["target_hidden_size", "hidden_size"])
def test_a_head_of_another_size(where):
    if where == "hidden_size":
        head = attrs.evolve(HEAD, hidden_size=2048)
    else:
        head = attrs.evolve(HEAD, draft=attrs.evolve(HEAD.draft, target_hidden_size=2048))
    report = check_pair(TARGET, head, method="eagle3")
    assert report.state == "refused"
    assert "head-shape" in topics(report)


def test_a_narrow_head_with_the_right_inputs_fits():
    head = attrs.evolve(HEAD, hidden_size=2048, draft=attrs.evolve(HEAD.draft, target_hidden_size=4096))
    assert check_pair(TARGET, head, method="eagle3").state == "ok"


def test_layers_beyond_the_target():
    head = attrs.evolve(HEAD, draft=attrs.evolve(HEAD.draft, aux_layers=(2, 32, 61)))
    assert check_pair(TARGET, head, method="eagle3").state == "refused"


def test_layers_not_said_are_vllms_defaults():
    head = attrs.evolve(HEAD, draft=attrs.evolve(HEAD.draft, aux_layers=None))
    report = check_pair(TARGET, head, method="eagle3")
    assert next(f for f in report.findings if f.topic == "aux-layers-default").values["layers"] == [2, 18, 33]


def test_a_head_for_another_fine_tune_and_a_quantised_copy_of_the_right_one():
    other = attrs.evolve(TARGET, id="someone/Qwen3-8B-abliterated")
    assert "unknown-head" in topics(check_pair(other, HEAD, method="eagle3"))
    assert check_pair(other, HEAD, method="eagle3").state == "bad_guess"
    copy = attrs.evolve(TARGET, id="Qwen/Qwen3-8B-AWQ")
    assert "unknown-head" not in topics(check_pair(copy, HEAD, method="eagle3", target_ids=("Qwen/Qwen3-8B",)))


@pytest.mark.parametrize(
    ("release", "code"), [("0.27.0", "JSD477"), ("0.28.0", "JSD457"), (None, "JSD457")]
)  # fmt: skip
def test_heads_trained_short(release, code):
    report = check_pair(TARGET, attrs.evolve(HEAD, max_position_embeddings=2048), method="eagle3", release=release)
    assert code in {finding.code for finding in report.findings}
    assert report.draft_max_len == 2048
    assert report.state == "bad_guess"


def test_a_short_recipe_makes_a_short_head_long_enough():
    head = attrs.evolve(HEAD, max_position_embeddings=2048)
    assert check_pair(TARGET, head, method="eagle3", max_model_len=2048).state == "ok"


def test_tensor_parallel_sizes():
    assert check_pair(TARGET, HEAD, method="eagle3", draft_tensor_parallel_size=2).state == "refused"
    assert check_pair(TARGET, HEAD, method="eagle3", tensor_parallel_size=2, draft_tensor_parallel_size=2).state == "ok"
    assert check_pair(TARGET, HEAD, method="eagle3", tensor_parallel_size=2).state == "ok"
    assert "draft-tensor-parallel" in topics(check_pair(TARGET, DRAFT, method="draft_model", tensor_parallel_size=2))


@pytest.mark.parametrize(
    ("trust", "severity"), [(False, "blocking"), (True, "warning"), (None, "warning")]
)  # fmt: skip
def test_code_from_the_drafters_repository(trust, severity):
    report = check_pair(TARGET, attrs.evolve(HEAD, remote_code=True), method="eagle3", trust_remote_code=trust)
    assert next(f for f in report.findings if f.topic == "remote-code").severity == severity


@pytest.mark.parametrize(("draft", "method"), [(HEAD, "draft_model"), (DRAFT, "eagle3")])
def test_heads_are_no_models_and_models_no_heads(draft, method):
    report = check_pair(TARGET, draft, method=method)
    assert report.state == "refused"
    assert "method-mismatch" in topics(report)


def test_paths_that_name_a_method():
    report = check_pair(TARGET, attrs.evolve(DRAFT, id="/models/qwen-eagle3-draft"), method="draft_model")
    assert "path-names-method" in topics(report)


@pytest.mark.parametrize(("k", "refused"), [(128, False), (129, True)])
def test_the_longest_draft_vllm_survives(k, refused):
    assert (check_pair(TARGET, HEAD, method="eagle3", k=k).state == "refused") is refused


def test_every_finding_has_a_text():
    report = check_pair(
        attrs.evolve(TARGET, vocab_size=5), attrs.evolve(HEAD, remote_code=True, dtype="fp16", id=None),
        method="draft_model", release="0.12.0", k=500, tensor_parallel_size=2, draft_tensor_parallel_size=4,
        max_model_len=100000,
    )  # fmt: skip
    for finding in report.findings:
        assert not finding.message.startswith("JSD")
        assert finding.to_json()["topic"]
