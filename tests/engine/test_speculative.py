# SPDX-License-Identifier: Apache-2.0
import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.release import NEWEST_KNOWN, release_from_image, release_from_version
from jetson_specdec.engine.speculative import (
    config_keys,
    infer_method,
    is_mtp,
    keys_every_candidate_accepts,
    method_support,
    normalise_method,
    unknown_keys,
    validate_config,
)

UNKNOWN = EngineRelease()
ORIN = release_from_image("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin")
THOR = release_from_image("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-thor")
EAGLE3 = {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 3}


def at(version):
    return release_from_version(version)


def state(method, release, model_type=None):
    return method_support(method, at(release) if isinstance(release, str) else release, model_type).state


class TestMethods:
    @pytest.mark.parametrize(
        ("version", "expected"),
        [
            ("0.8.5", "supported"),
            ("0.9.1", "supported"),
            ("0.10.0", "unsupported"),
            ("0.11.2", "unsupported"),
            ("0.14.1", "unsupported"),
            ("0.15.0", "supported"),
            ("0.32.0", "supported"),
        ],
    )
    def test_draft_models_left_and_came_back(self, version, expected):
        support = method_support("draft_model", at(version))
        assert support.state == expected
        assert support.since == "0.15.0"
        assert support.gap == ("0.10.0", "0.14.0")
        assert (support.finding is None) == (expected == "supported")

    def test_the_gap_says_so(self):
        finding = method_support("draft_model", at("0.13.0")).finding
        assert (finding.topic, finding.severity) == ("method-unsupported", "blocking")
        assert "0.15.0" in finding.message

    def test_the_orin_image_has_no_draft_models(self):
        assert state("draft_model", ORIN) == "unsupported"
        assert state("eagle3", ORIN, "qwen3") == "supported"

    def test_an_open_line_is_unknown(self):
        support = method_support("draft_model", THOR)
        assert (support.state, support.finding.severity) == ("unknown", "warning")

    def test_an_unknown_release(self):
        support = method_support("eagle3", UNKNOWN)
        assert (support.state, support.finding.topic) == ("unknown", "method-unproven")

    @pytest.mark.parametrize(
        ("method", "before", "since"),
        [
            ("suffix", "0.10.2", "0.11.1"),
            ("ngram_gpu", "0.17.0", "0.18.0"),
            ("dflash", "0.19.1", "0.20.0"),
            ("dspark", "0.24.0", "0.25.0"),
        ],
    )
    def test_younger_methods(self, method, before, since):
        assert state(method, before) == "unsupported"
        assert state(method, since) == "supported"
        assert method_support(method, at(before)).since == since

    def test_methods_that_went(self):
        assert state("medusa", "0.32.0") == "supported"
        assert state("medusa", "0.33.0") == "unsupported"
        assert state("mlp_speculator", "0.12.0") == "unsupported"

    def test_a_release_before_the_table(self):
        assert state("eagle3", "0.6.3") == "unsupported"

    def test_no_method_at_all(self):
        support = method_support("eagle4", at("0.20.0"))
        assert (support.state, support.finding.severity) == ("unsupported", "blocking")

    def test_a_newer_release_is_the_newest_known(self):
        assert state("eagle3", "0.70.0", "llama") == "supported"


class TestEagle3Targets:
    @pytest.mark.parametrize(
        ("model_type", "version", "expected"),
        [
            ("llama", "0.8.5", "supported"),
            ("qwen3", "0.9.2", "unsupported"),
            ("qwen3", "0.10.2", "supported"),
            ("gpt_oss", "0.10.2", "unsupported"),
            ("gpt_oss", "0.11.0", "supported"),
            ("qwen3_moe", "0.10.2", "unsupported"),
            ("qwen3_moe", "0.12.0", "supported"),
            ("gemma4", "0.19.0", "unsupported"),
            ("gemma4", "0.20.0", "supported"),
            ("mistral", "0.20.2", "unsupported"),
            ("mistral", "0.22.0", "supported"),
            ("phi3", "0.20.2", "unsupported"),
            ("gemma3", "0.20.2", "unsupported"),
            ("gemma3_text", "0.33.0", "unsupported"),
            ("qwen2_vl", "0.33.0", "unsupported"),
            ("never_heard_of", "0.20.2", "unsupported"),
            ("never_heard_of", "0.33.0", "unknown"),
        ],
    )
    def test_by_release(self, model_type, version, expected):
        assert state("eagle3", version, model_type) == expected

    def test_since_is_the_first_release_that_passes_both_tests(self):
        assert method_support("eagle3", at("0.20.2"), "mistral").since == "0.22.0"
        assert method_support("eagle3", at("0.33.0"), "gemma3").since is None

    def test_topics(self):
        assert method_support("eagle3", at("0.33.0"), "gemma3").finding.topic == "target-unsupported"
        assert method_support("eagle3", at("0.33.0"), "new_thing").finding.severity == "warning"

    def test_a_floating_tag_passes_only_when_every_release_does(self):
        assert state("eagle3", THOR, "llama") == "supported"
        assert state("eagle3", THOR, "gemma4") == "unknown"

    def test_the_model_type_matters_for_eagle3_only(self):
        assert state("draft_model", "0.20.0", "gemma3") == "supported"


class TestNames:
    def test_mtp(self):
        assert is_mtp("mtp")
        assert is_mtp("qwen3_5_mtp")
        assert not is_mtp("made_up_mtp")
        assert not is_mtp("eagle3")

    def test_normalise(self):
        assert normalise_method("qwen3_5_mtp", at("0.20.0")) == "mtp"
        assert normalise_method("deepseek_mtp", at("0.10.2")) == "deepseek_mtp"
        assert normalise_method("deepseek_mtp") == "mtp"
        assert normalise_method("[ngram]") == "ngram"
        assert normalise_method("eagle3") == "eagle3"

    @pytest.mark.parametrize(
        ("model", "model_type", "expected"),
        [
            ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "llama", "eagle3"),
            ("yuhuili/EAGLE-LLaMA3-Instruct-8B", None, "eagle"),
            ("AngelSlim/Qwen3-8B_eagle3", None, "eagle3"),
            ("z-lab/Qwen3-8B-DFlash", None, "dflash"),
            ("deepseek-ai/dspark_qwen3_8b_block7", None, "dspark"),
            ("/models/head", None, "draft_model"),
            ("/models/medusa-8b", "medusa", "medusa"),
            ("/models/x", "qwen3_next_mtp", "mtp"),
            ("ngram", None, "ngram"),
            ("[ngram]", None, "ngram"),
            (None, "medusa", None),
            ("", None, None),
        ],
    )
    def test_inference(self, model, model_type, expected):
        assert infer_method(model, model_type) == expected


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "before", "since"),
        [
            ("parallel_drafting", "0.15.0", "0.16.0"),
            ("num_speculative_tokens_per_batch_size", "0.23.0", "0.25.0"),
            ("use_heterogeneous_vocab", "0.24.0", "0.25.0"),
            ("kv_cache_dtype", "0.25.0", "0.28.0"),
            ("enable_adaptive_verification", "0.27.0", "0.28.0"),
            ("draft_lm_head_quantization", "0.32.0", "0.33.0"),
        ],
    )
    def test_younger_keys(self, key, before, since):
        assert key not in config_keys(at(before))
        assert key in config_keys(at(since))

    def test_keys_that_went(self):
        assert "disable_by_batch_size" in config_keys(at("0.16.0"))
        assert "disable_by_batch_size" not in config_keys(at("0.17.0"))

    def test_a_set_of_releases_has_what_all_of_them_have(self):
        assert "parallel_drafting" not in config_keys(THOR)
        assert "draft_tensor_parallel_size" in config_keys(THOR)
        assert config_keys(UNKNOWN) is None

    def test_internal_fields_are_no_keys(self):
        for version in ("0.8.5", "0.20.0", NEWEST_KNOWN):
            assert not {"target_model_config", "draft_model_config", "tensor_parallel_size"} & config_keys(at(version))

    def test_unknown_keys(self):
        config = {**EAGLE3, "disable-by-batch-size": 4, "trust_remote_code": True}
        assert unknown_keys(config, at("0.20.0")) == ("disable-by-batch-size", "trust_remote_code")
        assert unknown_keys(config, at("0.12.0")) == ("trust_remote_code",)
        assert unknown_keys(config, UNKNOWN) == ("disable-by-batch-size", "trust_remote_code")
        assert unknown_keys(EAGLE3, THOR) == ()

    def test_what_every_candidate_takes(self):
        config = {**EAGLE3, "revision": "abc", "draft_tensor_parallel_size": 1, "moe_backend": "triton"}
        kept = {**EAGLE3, "revision": "abc", "draft_tensor_parallel_size": 1}
        assert keys_every_candidate_accepts(config, ORIN) == kept
        assert keys_every_candidate_accepts(config, UNKNOWN) == kept
        assert keys_every_candidate_accepts(config, at("0.20.0")) == config


def problems(config, release="0.32.0", **options):
    release = at(release) if isinstance(release, str) else release
    return {finding.code: finding for finding in validate_config(config, release, **options)}


class TestValidation:
    @pytest.mark.parametrize(
        ("config", "release"),
        [
            (EAGLE3, "0.32.0"),
            (EAGLE3, "0.11.2"),
            ({**EAGLE3, "num_speculative_tokens": "3", "draft_tensor_parallel_size": 1}, "0.20.2"),
            ({"method": "mtp", "num_speculative_tokens": 2}, "0.20.0"),
            (
                {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
                "0.20.0",
            ),
            ({**EAGLE3, "num_speculative_tokens_per_batch_size": [[1, 4, 5], [5, 32, 2], [33, 256, 0]]}, "0.25.0"),
            ({**EAGLE3, "quantization": None}, "0.33.0"),
        ],
    )
    def test_sound(self, config, release):
        assert problems(config, release) == {}

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"num_speculative_tokens": 0}, "JSD361"),
            ({"num_speculative_tokens": -1}, "JSD361"),
            ({"num_speculative_tokens": 2.5}, "JSD361"),
            ({"num_speculative_tokens": "many"}, "JSD361"),
            ({"num_speculative_tokens": None}, "JSD360"),
            ({"model": None}, "JSD362"),
            ({"tensor_parallel_size": 1}, "JSD363"),
            ({"draft_tensor_parallel_size": 0}, "JSD366"),
            ({"revision": 123456}, "JSD366"),
            ({"max_model_len": "long"}, "JSD366"),
            ({"method": "eagle9"}, "JSD330"),
            ({"use_heterogeneous_vocab": True}, "JSD367"),
            ({"dspark_draft_topk": 4}, "JSD368"),
            ({"rejection_sample_method": "strict"}, "JSD373"),
            ({"num_speculative_tokens_per_batch_size": [[2, 4, 5]]}, "JSD379"),
            ({"num_speculative_tokens_per_batch_size": [[1, 4, 5], [4, 9, 2]]}, "JSD378"),
            ({"num_speculative_tokens_per_batch_size": [[4, 1, 5]]}, "JSD377"),
            ({"num_speculative_tokens_per_batch_size": {}}, "JSD377"),
            ({"gpu_memory_utilization": 0.5}, "JSD355"),
            ({"num_spec_tokens": 3}, "JSD350"),
        ],
    )
    def test_rejected(self, change, code):
        found = problems({**EAGLE3, **change})
        assert set(found) == {code}
        assert found[code].severity == "blocking"
        assert found[code].message

    def test_draft_tensor_parallel_size_against_the_target(self):
        config = {**EAGLE3, "draft_tensor_parallel_size": 2}
        assert set(problems(config, target_tensor_parallel_size=4)) == {"JSD364"}
        assert problems(config, target_tensor_parallel_size=2) == {}
        assert problems(config) == {}

    def test_lookup_window(self):
        config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 5, "prompt_lookup_max": 2}
        assert set(problems(config)) == {"JSD365"}

    def test_unknown_keys_are_rejected_or_ignored_by_release(self):
        config = {**EAGLE3, "attention_backend": "FLASHINFER"}
        assert problems(config, "0.18.0")["JSD352"].severity == "blocking"
        assert problems(config, "0.12.0")["JSD351"].severity == "warning"
        assert problems(config, "0.8.5")["JSD352"].severity == "blocking"
        assert problems(config, "0.22.0") == {}
        assert problems(config, THOR)["JSD352"].severity == "warning"

    def test_a_retired_key_names_its_successor(self):
        config = {**EAGLE3, "disable_by_batch_size": 8}
        found = problems(config, "0.25.0")
        assert found["JSD354"].severity == "blocking"
        assert "num_speculative_tokens_per_batch_size" in found["JSD354"].message
        assert "JSD376" in problems(config, "0.12.0")
        assert problems(config, UNKNOWN)["JSD354"].severity == "warning"

    def test_a_misspelt_key_is_recognised(self):
        assert "num_speculative_tokens" in problems({**EAGLE3, "num_speculativ_tokens": 3})["JSD350"].message

    def test_keys_of_the_old_engine_in_an_unknown_release(self):
        config = {"method": "medusa", "model": "m", "num_speculative_tokens": 2, "disable_logprobs": False}
        assert any(f.topic == "unknown-spec-keys" for f in validate_config(config, UNKNOWN))

    def test_a_method_the_release_lacks(self):
        config = {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}
        assert problems(config, "0.14.0")["JSD331"].severity == "blocking"
        assert problems(config, "0.15.0") == {}

    def test_method_left_out(self):
        found = problems({"model": "/models/eagle-head-of-mine", "num_speculative_tokens": 3})
        assert found["JSD370"].values["method"] == "eagle"
        assert problems({"model": "ngram", "num_speculative_tokens": 3}) == {}

    def test_the_path_wins_over_an_ordinary_method(self):
        found = problems({"method": "draft_model", "model": "me/x-eagle3", "num_speculative_tokens": 3})
        assert found["JSD375"].values["inferred"] == "eagle3"

    def test_renamed_mtp(self):
        assert problems({"method": "qwen3_5_mtp", "num_speculative_tokens": 2}, "0.20.0")["JSD371"].severity == "info"

    def test_faked_acceptance_is_named(self):
        config = {**EAGLE3, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5}
        assert set(problems(config)) == {"JSD369"}

    def test_suffix_needs_a_package(self):
        assert problems({"method": "suffix"}, "0.20.0")["JSD374"].severity == "info"

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    )
    keys = sorted(
        {
            *json.loads(resources.files("jetson_specdec.engine").joinpath("data/releases.json").read_text("utf-8"))[
                "config_keys"
            ],
            "tensor_parallel_size",
            "x",
        }
    )

    @given(
        st.dictionaries(st.sampled_from(keys), json_values, max_size=6),
        st.sampled_from(["0.6.3", "0.8.5", "0.12.0", "0.33.0", None]),
    )
    def test_any_json_is_judged(self, config, version):
        release = at(version) if version else UNKNOWN
        for finding in validate_config(config, release):
            assert finding.message
            json.dumps(finding.to_json())


def test_every_code_of_this_room_is_catalogued_with_a_text():
    room = resources.files("jetson_specdec").joinpath("messages")
    codes = json.loads(room.joinpath("codes/engine.json").read_text("utf-8"))
    texts = json.loads(room.joinpath("en/engine.json").read_text("utf-8"))
    assert set(codes) == {code for code in texts if code.startswith("JSD")}
