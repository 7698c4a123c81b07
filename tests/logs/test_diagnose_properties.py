# SPDX-License-Identifier: Apache-2.0
"""What must hold of every log: no text is an error, noise and order change nothing, secrets stay hidden."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.logs import diagnose
from jetson_specdec.logs.signatures import signatures

DATA = Path(__file__).parents[1] / "data" / "logs"
CASES = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(schemas.load("diagnosis"))
SINGLE = sorted(name for name, case in CASES.items() if len(case["logs"]) == 1)

NOISE = (
    "(EngineCore pid=5) INFO 03-04 05:06:07 [gpu_worker.py:1020] Free memory on device (100.41/122.82 GiB) on startup. "
    "Desired GPU memory utilization is (0.8, 98.26 GiB).",
    "(APIServer pid=5) WARNING 03-04 05:06:07 [interface.py:1457] Unknown vLLM environment variable detected: VLLM_X",
    "(APIServer pid=5) WARNING 03-04 05:06:07 [system_utils.py:255] Found ulimit of 1024 and failed to automatically "
    "increase with error current limit exceeds maximum limit. This can cause fd limit errors like "
    "`OSError: [Errno 24] Too many open files`. Consider increasing with ulimit -n",
    "(Worker pid=5) WARNING 03-04 05:06:07 [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner "
    "instead.",
    "(EngineCore pid=5) WARNING 03-04 05:06:07 [vllm.py:2276] max_num_scheduled_tokens is set to 2048 based on the "
    "speculative decoding settings. Consider increasing max_num_batched_tokens to accommodate the additional draft "
    "token slots, or decrease num_speculative_tokens.",
    "(APIServer pid=5) WARNING 03-04 05:06:07 [network_utils.py:248] Port 29500 is already in use, trying port 29501",
    "(APIServer pid=5) WARNING 03-04 05:06:07 [speculative.py:1361] CUDA out of memory is likelier with more tokens",
    "[W1130 18:38:19.590650774 utils.cpp:68] Warning: NUMA binding (function init_cpu_memory_env)",
    "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
    "UserWarning: resource_tracker: process died unexpectedly, relaunching.  Some folders/sempahores might leak.",
    "",
    "\x1b[32mINFO\x1b[0m 03-04 05:06:07 nothing of interest: 137 tokens, 9 Killed jobs",
)

words = st.one_of(
    st.text(max_size=80),
    st.sampled_from([entry.example for entry in signatures()]),
    st.sampled_from([anchor for entry in signatures() for anchor in entry.anchors]),
    st.sampled_from(NOISE),
    st.sampled_from(
        [
            "INFO:     Application startup complete.",
            "(A pid=1) INFO 03-04 05:06:07 [x.py:1] non-default args: {'model': 'a/b', 'x': Namespace(",
            "1 validation error for SpeculativeConfig",
            "Traceback (most recent call last):",
            "(A pid=1) ERROR 03-04 05:06:07 [x.py:1] ",
            '{"log": 3}',
            "speculative_config=SpeculativeConfig(method='",
            "Model loading took 1e999 GiB",
            "argument --speculative-config: Value {",
        ]
    ),
)
logs = st.lists(words, max_size=12).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n", "\r", ""]).map(lambda end: end.join(lines))
)


def essence(found):
    return found.started_ok, found.stage, found.cause, found.remedy, found.speculation_involved, dict(found.values)


def read(name):
    return (DATA / name).read_bytes().decode("utf-8")


def beside(case):
    keys = ("dmesg", "meminfo", "recipe", "nv_tegra_release", "target_config", "draft_config")
    return {"exit_code": case.get("exit_code"), **{key: read(case[key]) for key in keys if key in case}}


@given(logs, st.none() | logs, st.none() | logs, st.none() | st.text(max_size=60), st.none() | st.integers(-255, 255))
def test_any_text_has_an_answer(log, dmesg, meminfo, recipe, exit_code):
    found = diagnose(log, dmesg=dmesg, meminfo=meminfo, recipe=recipe, exit_code=exit_code, target_config=dmesg)
    VALIDATOR.validate(json.loads(json.dumps(found.to_json())))
    assert found == diagnose(log, dmesg=dmesg, meminfo=meminfo, recipe=recipe, exit_code=exit_code, target_config=dmesg)


@given(st.binary(max_size=400))
def test_binary_garbage_has_an_answer(data):
    for text in (data.decode("utf-8", errors="replace"), data.decode("utf-8", errors="surrogateescape")):
        assert diagnose(text).started_ok is not True


@given(st.lists(logs, min_size=1, max_size=3).flatmap(lambda texts: st.tuples(st.just(texts), st.permutations(texts))))
def test_the_order_of_logs_does_not_matter(pair):
    given_order, other_order = pair
    assert diagnose(given_order).to_json() == diagnose(other_order).to_json()


@given(st.sampled_from(SINGLE), st.data())
def test_noise_changes_nothing(name, data):
    case = CASES[name]
    lines = read(case["logs"][0]).split("\n")
    places = data.draw(st.lists(st.tuples(st.integers(0, len(lines)), st.sampled_from(NOISE)), min_size=1, max_size=4))
    noisy = list(lines)
    # The lines of one validation report, and of one option value, are printed in one go: nothing comes between.
    for at, noise in sorted(places, reverse=True):
        if not joined(lines, at):
            noisy.insert(at, noise)
    assert essence(diagnose("\n".join(noisy), **beside(case))) == essence(diagnose("\n".join(lines), **beside(case)))


def joined(lines, at):
    return 0 < at < len(lines) and (
        "Value {" in "\n".join(lines[:at]) and "cannot be converted" in "\n".join(lines[at:])
    )


@pytest.mark.parametrize("name", SINGLE)
def test_wrappers_change_nothing(name):
    case = CASES[name]
    text = read(case["logs"][0])
    lines = text.rstrip("\n").split("\n")
    plain = essence(diagnose(text, **beside(case)))
    kinds = {
        "crlf": "\r\n".join(lines),
        "journald": "\n".join("Feb 11 08:00:01 board vllm[71]: " + line for line in lines),
        "docker": "\n".join("2027-02-11T08:00:01.123456789Z " + line for line in lines),
        "cri": "\n".join("2027-02-11T08:00:01.123456789+00:00 stderr F " + line for line in lines),
        "compose": "\n".join("llm-1  | " + line for line in lines),
        "kubectl": "\n".join("[pod/llm-0/vllm] " + line for line in lines),
        "json": "\n".join(json.dumps({"log": line + "\n", "stream": "stderr", "time": "t"}) for line in lines),
        "coloured": "\n".join(f"\x1b[0;36m{line}\x1b[0m" for line in lines),
    }
    if name == "docker-json":
        del kinds["json"]
    for kind, wrapped in kinds.items():
        assert essence(diagnose(wrapped, **beside(case))) == plain, kind


@pytest.mark.parametrize("name", SINGLE)
def test_a_long_service_before_or_after_changes_nothing(name):
    case = CASES[name]
    text = read(case["logs"][0])
    # Blocks are cut somewhere: at any distance the answer is the same.
    filler = "systemd[1]: Reached target Multi-User System.\n" * 7000
    assert essence(diagnose(filler + text, **beside(case))) == essence(diagnose(text, **beside(case)))


def test_the_lines_are_where_they_are_said_to_be():
    text = "\n" * 9000 + read("kv-none-with-head.log")
    found = diagnose(text, names=["server.log"])
    proof = found.evidence[0]
    assert proof.input == "server.log"
    assert proof.text in text.split("\n")[proof.line - 1]
    assert found.values["requested_utilization"] == 0.7


def test_secrets_do_not_reach_the_answer():
    token, key, plain = "hf_" + "Zq9" * 12, "sk-" + "a1B2" * 9, "swordfish-of-the-house"
    text = (
        "(APIServer pid=7) INFO 02-11 08:00:01 [api_utils.py:286] non-default args: {'model': 'acme/base-8b', "
        f"'api_key': ['{plain}', '{key}'], 'hf_token': '{token}'}}\n"
        f"vllm serve: error: unrecognized arguments: --hf-tokn {token}\n"
        f"RuntimeError: no access with {token} or {key}\n"
    )
    shown = json.dumps(diagnose(text).to_json())
    assert not [secret for secret in (token, key, plain) if secret in shown]


def test_arguments_that_python_cannot_read_are_read_in_part():
    text = (
        "INFO 02-11 08:00:01 [utils.py:233] non-default args: {'model': 'acme/base-8b', 'dtype': torch.bfloat16, "
        "'gpu_memory_utilization': 0.66, 'enforce_eager': True}\nINFO:     Application startup complete.\n"
    )
    values = diagnose(text).values
    assert (values["requested_utilization"], values["enforce_eager"]) == (0.66, True)


def test_configurations_beside_the_log_give_the_vocabulary_sizes():
    text = (
        "  Value error, Target and draft model should have the same vocabulary size. [type=value_error, input_value=1]"
    )
    found = diagnose(text, target_config={"text_config": {"vocab_size": 151936}}, draft_config='{"vocab_size": 128256}')
    assert (found.values["target_vocab"], found.values["draft_vocab"]) == (151936, 128256)


def test_more_memory_than_there_is_gets_a_warning():
    log = read("kv-none-with-head.log")
    meminfo = "MemTotal: 64000000 kB\nMemAvailable: 30000000 kB\n"
    found = diagnose(log, meminfo=meminfo)
    assert (found.cause, found.remedy) == ("kv_cache_none", "raise_utilization")
    assert [finding.code for finding in found.findings] == ["JSD712", "JSD743"]


def test_an_unreadable_recipe_is_said_and_left_out():
    found = diagnose(read("kv-none-with-head.log"), recipe="services:\n  vllm:\n    image: x\n")
    assert found.cause == "kv_cache_none"
    assert "JSD741" in [finding.code for finding in found.findings] or "JSD742" in [f.code for f in found.findings]
