# SPDX-License-Identifier: Apache-2.0
"""Starts of a fake server that fail: as vLLM would refuse what was given, or by the name of a cause."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from jetson_specdec.errors import OptionError
from jetson_specdec.logs import diagnose
from jetson_specdec.logs.causes import causes
from jetson_specdec.testing import FakeStartFailed, FakeVllm, Memory, start_failures

EAGLE = {"method": "eagle3", "model": "org/m-eagle3", "num_speculative_tokens": 3}
RELEASES = ("0.8.5", "0.9.1", "0.10.0", "0.12.0", "0.17.0", "0.20.0", "0.25.0", "0.32.0")
NAMES = [f"{cause}:{variant}" for cause, variants in start_failures().items() for variant in variants]
# What nobody can read from a log: that we end it, or that it never ends.
UNSEEN = ("watchdog_stopped:falling", "start_timeout:hangs")


def words(config=None, *more):
    return [
        "org/m",
        "--gpu-memory-utilization",
        "0.8",
        *(["--speculative-config", json.dumps(config)] if config else []),
        *more,
    ]


def start(fake):
    """Start a fake without a socket, ask it once, and diagnose what it left."""
    try:
        fake.prepare()
    except FakeStartFailed as error:
        kernel = "\n".join(f"[  1.000000] {line}" for line in error.failure.filled({"pid": 7, "core_pid": 8})["kernel"])
        return diagnose(fake.log.text, exit_code=error.failure.exit_code, dmesg=kernel or None)
    fake.announce(8000)
    reply = asyncio.run(fake.app.handle("POST", "/v1/completions", {}, b'{"prompt": "a b", "max_tokens": 2}'))
    fake.log.access("127.0.0.1:1", "POST", "/v1/completions", reply.status, reply.reason)
    if fake.app.dead:
        fake.log.stopped(by_itself=True)
    return diagnose(fake.log.text, exit_code=0 if fake.app.dead else None)


# --- by the name of a cause -------------------------------------------------------------------------------------------


def test_every_cause_can_be_shown():
    assert set(start_failures()) == set(causes())
    assert all(variants for cause, variants in start_failures().items() if cause != "none")


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_what_it_is_called_in_every_release_that_has_it(name):
    shown = []
    for version in RELEASES:
        try:
            fake = FakeVllm(words(EAGLE), start_failure=name, version=version)
        except OptionError:
            continue  # this release cannot fail like that
        found = start(fake)
        shown.append(version)
        if name in UNSEEN:
            assert (found.started_ok, found.cause) == (None, "engine_failed")
        else:
            assert (found.started_ok, found.cause) == (False, name.partition(":")[0]), (version, fake.log.text)
    assert shown


def test_the_layout_is_the_releases():
    def of(version):
        fake = FakeVllm(words(), start_failure="kv_cache_none", version=version)
        start(fake)
        return fake.log.text

    assert re.search(
        r"^\(APIServer pid=\d+\) INFO .* vLLM server version 0\.32\.0, serving", of("0.32.0"), re.MULTILINE
    )
    assert re.search(r"^\(EngineCore pid=\d+\) ERROR .*ValueError: No available memory", of("0.32.0"), re.MULTILINE)
    assert re.search(r"^\(EngineCore_DP0 pid=\d+\) ERROR .*ValueError: No available", of("0.12.0"), re.MULTILINE)
    assert re.search(r"^ERROR .* \[core\.py:\d+\] ValueError: No available memory", of("0.9.1"), re.MULTILINE)
    assert "Got fatal signal from worker processes" in of("0.8.5")
    assert "Engine core initialization failed" not in of("0.8.5")


def test_the_next_start_of_a_log_is_another_one():
    found = start(FakeVllm(words(EAGLE), start_failure="does_not_fit"))
    assert (found.cause, found.attempts, found.values["failed_low_utilization"]) == ("does_not_fit", 2, 0.78)


def test_what_only_a_drafter_can_do_wrong_needs_one():
    assert start(FakeVllm(words(), start_failure="vocab_mismatch")).started_ok is True
    assert start(FakeVllm(words(EAGLE), start_failure="vocab_mismatch")).started_ok is False
    assert start(FakeVllm(words(), start_failure="none")).started_ok is True


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("no_such_cause", "0.32.0", "JSE682"), ("oom_load:nothing", "0.32.0", "JSE682"),
     ("spec_config_unknown_key", "0.12.0", "JSE683"), ("vocab_mismatch", "0.12.0", "JSE683")],
)  # fmt: skip
def test_what_cannot_be_shown_is_refused(name, version, code):
    with pytest.raises(OptionError) as caught:
        FakeVllm(words(EAGLE), start_failure=name, version=version)
    assert caught.value.code == code


# --- as vLLM would refuse what was given ------------------------------------------------------------------------------


DRAFT = {"method": "draft_model", "model": "org/d", "num_speculative_tokens": 3}
KEY, VALUE, METHOD = "spec_config_unknown_key", "spec_config_invalid_value", "method_unsupported"


def eagle(**more):
    return {**EAGLE, **more}


@pytest.mark.parametrize(
    ("config", "version", "cause", "said"),
    [
        # 0.16 forbids keys it does not know, 0.9 to 0.15 ignore them, 0.8 is a standard dataclass.
        (eagle(num_spec_tokens=3), "0.32.0", KEY, "num_spec_tokens\n  Unexpected keyword"),
        (eagle(num_spec_tokens=3), "0.12.0", "none", None),
        (eagle(num_spec_tokens=3), "0.8.5", KEY, "got an unexpected keyword argument"),
        (eagle(moe_backend="triton"), "0.17.0", KEY, "moe_backend"),
        (eagle(moe_backend="triton"), "0.25.0", "none", None),
        (eagle(trust_remote_code=True), "0.25.0", KEY, "trust_remote_code"),
        (eagle(method="eagel3"), "0.32.0", VALUE, "type=literal_error, input_value='eagel3'"),
        (DRAFT, "0.12.0", METHOD, "such as ngram, medusa, eagle, or mtp."),
        (DRAFT, "0.10.0", METHOD, "such as ngram, medusa, eagle, or deepseek_mtp."),
        (DRAFT, "0.15.0", "none", None),
        ({**DRAFT, "method": "dflash"}, "0.19.0", METHOD, "type=literal_error, input_value='dflash'"),
        ({**DRAFT, "method": "mlp_speculator"}, "0.32.0", METHOD, "mlp_speculator is not supported yet"),
        (
            {"method": "suffix", "num_speculative_tokens": 8},
            "0.32.0",
            "package_missing",
            "Arctic Inference is required",
        ),
        ({"method": "eagle3", "model": "org/h"}, "0.32.0", VALUE, "`num_speculative_tokens` was not provided"),
        ({"num_speculative_tokens": 3}, "0.32.0", VALUE, "was provided but without speculative model."),
        ({"num_speculative_tokens": 3}, "0.11.0", VALUE, "was provided without speculative model."),
        (eagle(num_speculative_tokens=0), "0.32.0", VALUE, "Input should be greater than 0"),
        (eagle(num_speculative_tokens="three"), "0.32.0", VALUE, "type=int_parsing"),
        (eagle(num_speculative_tokens=2.5), "0.32.0", VALUE, "with a fractional part"),
        (eagle(tensor_parallel_size=1), "0.32.0", VALUE, "Please pass 'draft_tensor_parallel_size'"),
        (eagle(draft_tensor_parallel_size=2), "0.32.0", VALUE, "size=2 cannot be other value than 1"),
        (eagle(revision=12), "0.32.0", VALUE, "Input should be a valid string"),
        (eagle(use_heterogeneous_vocab=True), "0.32.0", VALUE, "only works with method='draft_model'"),
        (
            {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 5, "prompt_lookup_max": 2},
            "0.32.0",
            VALUE,
            "prompt_lookup_min=5 must be <= prompt_lookup_max=2",
        ),
        (eagle(rejection_sample_method="strict"), "0.32.0", VALUE, "'standard'"),
        (eagle(num_speculative_tokens_per_batch_size=[[2, 8, 1]]), "0.32.0", VALUE, "batch-size range must start"),
        ([1, 2], "0.32.0", VALUE, "'list' object has no attribute 'items'"),
        (EAGLE, "0.32.0", "none", None),
    ],
)
def test_a_configuration_is_read_as_that_release_reads_it(config, version, cause, said):
    fake = FakeVllm(words(config), version=version)
    found = start(fake)
    assert found.cause == cause, fake.log.text
    assert found.speculation_involved is True
    if said is None:
        assert found.started_ok is True
        assert fake.k == config["num_speculative_tokens"]
    else:
        assert found.started_ok is False
        assert said in fake.log.text


@pytest.mark.parametrize(
    ("more", "cause", "said"),
    [
        (["--gpu-memory-utilization", "1.5"], "flag_invalid_value", "Input should be less than or equal to 1"),
        (["--gpu-memory-utilization", "0"], "flag_invalid_value", "Input should be greater than 0"),
        (["--max-num-seqs", "0"], "flag_invalid_value", "Input should be greater than or equal to 1"),
    ],
)
def test_other_values_are_refused_after_the_arguments(more, cause, said):
    fake = FakeVllm(words(None, *more))
    found = start(fake)
    assert (found.started_ok, found.cause, found.stage) == (False, cause, "config")
    assert found.speculation_involved is False
    assert said in fake.log.text


def test_the_draft_may_split_as_the_target_does():
    split = {**EAGLE, "draft_tensor_parallel_size": 2}
    assert start(FakeVllm(words(split, "--tensor-parallel-size", "2"))).started_ok is True
    assert start(FakeVllm(words(split))).started_ok is False


def test_flags_are_those_of_the_release():
    from jetson_specdec.testing.fake_args import ArgumentFailure

    words_ = ["org/m", "--spec-method", "ngram", "--spec-tokens", "2"]
    assert FakeVllm(words_, version="0.32.0").k == 2
    with pytest.raises(ArgumentFailure, match="--spec-method"):
        FakeVllm(words_, version="0.17.0")


def test_a_memory_that_holds_the_target_and_not_the_draft():
    memory = Memory(total_gib=61.4, free_gib=50.0, model_gib=30.0, draft_gib=22.0)
    assert start(FakeVllm(words(), memory=memory)).started_ok is True
    found = start(FakeVllm(words(EAGLE), memory=memory))
    assert (found.cause, found.speculation_involved) == ("oom_load", True)
