# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.release import release_from_image
from jetson_specdec.findings import Severity
from jetson_specdec.recipe import Arg, ServeCommand, ServeFlags, parse_config

V032 = EngineRelease(version="0.32.0", candidates=("0.32.0",), distribution="upstream", source="named")


def command(line, form="vllm_serve", **more):
    """A command whose words are plain; `$NAME` is a word that cannot be resolved, `?word` an optional one."""
    args = []
    for word in shlex.split(line):
        names = (word.partition("$")[2].strip('{}"'),) if "$" in word else ()
        optional = word.startswith("?")
        word = word.removeprefix("?")
        args.append(Arg(value=None if names else word, raw=word, start=0, end=0, unresolved=names, optional=optional))
    return ServeCommand(index=0, serve_form=form, args=tuple(args), **more)


def read(line, form="vllm_serve", release=None, config=None, **more):
    return ServeFlags.read(command(line, form, **more), release, config)


def topics(flags, severity=None):
    return [found.topic for found in flags.findings if severity is None or found.severity == severity]


@pytest.mark.parametrize(
    "written",
    [
        "--gpu-memory-utilization 0.85",
        "--gpu-memory-utilization=0.85",
        "--gpu_memory_utilization 0.85",
        "--gpu_memory_utilization=0.85",
        "--gpu-memory_utilization=.85",
        "--gpu-mem 0.85",
        "--gpu_mem=0.85",
        "--gpu-memory-utilization 0.5 --gpu-mem 0.85",
    ],
)
@pytest.mark.parametrize("place", ["a/b {}", "{} a/b", "a/b --port 1 {} --enforce-eager", "--model a/b {}"])
def test_every_spelling_of_the_utilisation(written, place):
    flags = read(place.format(written))
    assert flags.gpu_memory_utilization == 0.85
    assert flags.model == "a/b"
    assert flags.utilization.state == "value"
    assert not topics(flags, Severity.BLOCKING)


@pytest.mark.parametrize(
    ("line", "state", "value"),
    [
        ("a/b", "absent", None),
        ("a/b --gpu-memory-utilization 0.9", "value", 0.9),
        ("a/b --gpu-memory-utilization 1", "value", 1.0),
        ("a/b --gpu-memory-utilization $UTIL", "unresolved", None),
        ("a/b --gpu-memory-utilization=$UTIL", "unresolved", None),
        ("a/b --gpu-memory-utilization 1.5", "invalid", None),
        ("a/b --gpu-memory-utilization 0", "invalid", None),
        ("a/b --gpu-memory-utilization 85%", "invalid", None),
        ("a/b --gpu-memory-utilization", "invalid", None),
        ("a/b --gpu-memory-utilization --port 1", "invalid", None),
    ],
)
def test_states_of_a_value(line, state, value):
    flags = read(line)
    assert (flags.utilization.state, flags.gpu_memory_utilization) == (state, value)
    assert ("flag-invalid-value" in topics(flags, Severity.BLOCKING)) == (state == "invalid")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("--max-model-len -5", None),
        ("--max-model-len -1", -1),
        ("--max-model-len auto", -1),
        ("--max-num-seqs -1", None),
        ("--max-num-batched-tokens -8", None),
        ("--kv-cache-memory-bytes -1", None),
    ],
)
def test_negative_sizes_are_invalid(line, value):
    name = line.split()[0][2:]
    reading = read(f"a/b {line}").number(name)
    assert (reading.state, reading.value) == ("invalid" if value is None else "value", value)


def test_the_accessors():
    flags = read(
        "Qwen/Qwen3-8B --served-model-name arm planner --max-model-len 8K --max-num-seqs 4 --max-num-batched-tokens 2k "
        "-tp 2 --kv-cache-memory-bytes 10G --kv-cache-dtype fp8 -q awq --dtype half --enforce-eager --enable-lora "
        "--trust_remote_code --revision abc --host 127.0.0.1 --port 8500 --api-key topsecret"
    )
    assert flags.model == "Qwen/Qwen3-8B"
    assert flags.served_model_name == "arm"
    assert flags.max_model_len == 8192
    assert flags.max_num_seqs == 4
    assert flags.max_num_batched_tokens == 2000
    assert flags.tensor_parallel_size == 2
    assert flags.kv_cache_memory_bytes == 10 * 2**30
    assert flags.kv_cache_dtype == "fp8"
    assert flags.quantization == "awq"
    assert flags.dtype == "half"
    assert flags.enforce_eager
    assert flags.enable_lora
    assert flags.trust_remote_code
    assert flags.revision == "abc"
    assert flags.host == "127.0.0.1"
    assert flags.port == 8500
    assert flags.api_key_present
    assert flags.findings == ()


def test_what_is_absent_is_none():
    flags = read("a/b")
    assert flags.max_model_len is None
    assert flags.tensor_parallel_size is None
    assert flags.port is None
    assert not flags.enforce_eager
    assert not flags.api_key_present


@pytest.mark.parametrize(("text", "value"), [("8k", 8000), ("auto", -1), ("-1", -1), ("25.6k", 25600)])
def test_context_lengths(text, value):
    assert read(f"a/b --max-model-len {text}").max_model_len == value


def test_booleans_and_their_negation():
    assert read("a/b --enable-prefix-caching").has("enable-prefix-caching")
    assert not read("a/b --no-enable-prefix-caching").has("enable-prefix-caching")
    assert not read("a/b --enable-prefix-caching --no-enable-prefix-caching").has("enable-prefix-caching")
    assert "flag-invalid-value" in topics(read("a/b --enforce-eager=false"), Severity.BLOCKING)


def test_an_optional_flag_says_so():
    flags = read("a/b ?--enforce-eager")
    assert flags.enforce_eager
    assert flags.get("enforce-eager").optional


class TestModel:
    def test_positional_or_flag(self):
        assert read("a/b --port 1").model == "a/b"
        assert read("--port 1 a/b").model_index == 2
        assert read("--port 1 --model=a/b").model == "a/b"
        assert read("--port 1 --model a/b").model_index == 3

    def test_both_is_refused(self):
        flags = read("a/b --model c/d")
        assert flags.model == "c/d"
        assert "unknown-argument" in topics(flags, Severity.BLOCKING)

    def test_api_server_ignores_a_positional(self):
        flags = read("a/b --port 1", form="api_server")
        assert flags.model is None
        assert topics(flags, Severity.BLOCKING) == ["target-unidentified"]
        assert read("--model a/b", form="api_server").model == "a/b"
        assert read("c/d --model a/b", form="api_server").findings == ()

    def test_images_that_start_the_api_server(self):
        old = release_from_image("vllm/vllm-openai:v0.9.1")
        assert read("a/b", form="image_entrypoint", release=old).model is None
        assert read("a/b", form="image_entrypoint", release=V032).model == "a/b"
        assert read("--model a/b", form="image_entrypoint", release=old).model == "a/b"

    def test_a_list_flag_swallows_the_model(self):
        flags = read("--served-model-name arm a/b")
        assert flags.model is None
        assert "target-unidentified" in topics(flags, Severity.BLOCKING)

    def test_a_variable(self):
        flags = read("$MODEL --port 1")
        assert flags.model is None
        assert flags.model_reading.state == "unresolved"
        assert flags.model_reading.text == "$MODEL"

    def test_no_model(self):
        assert read("--port 1").model_reading.state == "absent"

    def test_an_unknown_switch_does_not_swallow_the_model(self):
        assert read("--brand-new-switch a/b --port 1").model == "a/b"


class TestSlips:
    def test_a_dash_from_a_web_page(self):
        for sign in "–—−":
            flags = read(f"a/b {sign}gpu-memory-utilization 0.35")
            assert flags.utilization.state == "absent"
            assert topics(flags, Severity.BLOCKING) == ["typography"]
            assert "--gpu-memory-utilization" in flags.findings[0].message

    def test_british_spelling(self):
        flags = read("a/b --port 8601 --gpu-memory-utilisation 0.25")
        assert flags.utilization.state == "absent"
        assert topics(flags, Severity.BLOCKING) == ["unknown-flag"]
        assert "--gpu-memory-utilization" in flags.findings[0].message

    def test_an_ambiguous_beginning(self):
        flags = read("a/b --spec eagle3", release=V032)
        assert topics(flags, Severity.BLOCKING) == ["unknown-flag"]
        assert "--speculative-config" in flags.findings[0].message

    def test_a_flag_nobody_knows_only_warns(self):
        flags = read("a/b --zzyzx 3")
        assert topics(flags) == ["unknown-flag"]
        assert not topics(flags, Severity.BLOCKING)

    def test_retired_flags_warn(self):
        flags = read("a/b --use-v2-block-manager --swap-space 8")
        assert topics(flags) == ["retired-flags", "retired-flags"]
        assert not topics(flags, Severity.BLOCKING)

    @pytest.mark.parametrize(
        ("flag", "version", "blocks"),
        [
            ("--use-v2-block-manager", "0.30.0", True),
            ("--disable-log-requests", "0.32.0", True),
            ("--swap-space 8", "0.32.0", True),
            ("--swap-space 8", "0.10.0", False),
        ],
    )
    def test_retired_flags_stop_a_release_that_is_known_to_lack_them(self, flag, version, blocks):
        release = EngineRelease(version=version, candidates=(version,), distribution="upstream", source="named")
        flags = read(f"a/b {flag}", release=release)
        assert topics(flags, Severity.BLOCKING) == (["retired-flags"] if blocks else [])
        if blocks:
            assert version in flags.findings[0].message

    def test_a_stray_word(self):
        flags = read("a/b c/d")
        assert flags.model == "a/b"
        assert topics(flags, Severity.BLOCKING) == ["unknown-argument"]

    def test_words_from_outside(self):
        spliced = Arg(value=None, raw="$EXTRA", start=0, end=0, unresolved=("EXTRA",), splices=True)
        flags = ServeFlags.read(
            ServeCommand(index=0, serve_form="vllm_serve", args=(*command("a/b --port 1").args, spliced))
        )
        assert flags.model == "a/b"
        assert flags.opaque == (3,)
        assert topics(flags) == ["ambiguous-shell-form"]

    def test_a_plain_number_takes_no_suffix(self):
        assert "flag-invalid-value" in topics(read("a/b --max-num-seqs 1k"), Severity.BLOCKING)

    def test_a_bad_value_counts_even_where_it_is_replaced(self):
        assert "flag-invalid-value" in topics(read("a/b --max-model-len x --max-model-len 8k"), Severity.BLOCKING)

    def test_duplicates(self):
        flags = read("a/b --gpu-memory-utilization 0.8 --gpu-memory-utilization 0.9")
        assert flags.gpu_memory_utilization == 0.9
        assert topics(flags) == ["duplicate-flag"]

    def test_another_engine_is_left_alone(self):
        assert read("launch --zzyzx", form="other", engine="sglang").findings == ()


class TestConfig:
    def test_the_command_line_wins(self):
        config = parse_config("model: c/d\ngpu_memory_utilization: 0.7\nport: 9000\n", path="/v.yaml")
        flags = read("a/b --config /v.yaml --gpu-memory-utilization 0.8", config=config)
        assert flags.model == "a/b"
        assert flags.gpu_memory_utilization == 0.8
        assert flags.port == 9000
        assert flags.get("port").origin == "config"

    def test_the_model_may_stand_in_the_file(self):
        config = parse_config("model: c/d\n", path="/v.yaml")
        flags = read("--config /v.yaml", config=config)
        assert flags.model == "c/d"
        assert flags.model_index is None

    def test_the_inline_form_is_ignored_by_vllm(self):
        flags = read("a/b --config=/v.yaml")
        assert flags.config_path is None
        assert "config-ignored" in topics(flags)

    def test_false_is_dropped(self):
        config = parse_config("enforce-eager: false\ntrust-remote-code: true\n", path="/v.yaml")
        flags = read("a/b --config /v.yaml", config=config)
        assert not flags.enforce_eager
        assert flags.trust_remote_code
        assert flags.get("enforce-eager").state == "absent"
        assert "config-ignored" in topics(flags)

    def test_a_flag_before_the_model_hides_it(self):
        config = parse_config("port: 1\n", path="/v.yaml")
        assert "target-unidentified" in topics(read("--config /v.yaml a/b", config=config), Severity.BLOCKING)
        with_model = parse_config("model: c/d\n", path="/v.yaml")
        assert not topics(read("--config /v.yaml a/b", config=with_model), Severity.BLOCKING)

    def test_an_unread_file_leaves_values_unknown(self):
        flags = read("a/b --config /v.yaml", config=parse_config("", named="/v.yaml"))
        assert flags.utilization.state == "unresolved"
        assert "config-unread" in topics(flags)
        assert read("a/b --config /v.yaml --gpu-mem 0.8", config=flags.config).gpu_memory_utilization == 0.8
        assert read("a/b --config /v.yaml").utilization.state == "unresolved"

    def test_two_files_are_refused(self):
        assert "config-ignored" in topics(read("a/b --config v.yaml --config w.yaml"), Severity.BLOCKING)

    def test_a_quoted_truth_value_is_a_stray_word(self):
        config = parse_config("enforce-eager: 'true'\n", path="/v.yaml")
        assert "flag-invalid-value" in topics(read("a/b --config /v.yaml", config=config), Severity.BLOCKING)

    def test_other_file_names_are_refused(self):
        assert "config-unread" in topics(read("a/b --config /v.json"), Severity.BLOCKING)


class TestServeArgs:
    def test_words_in_order_unresolved_ones_as_written(self):
        flags = read("a/b --port $PORT --api-key hunter2hunter2 -e")
        assert flags.serve_args()[:4] == ["a/b", "--port", "$PORT", "--api-key"]

    @pytest.mark.parametrize("written", ["--api-key hunter22", "--api-key=hunter22", "--api_key hunter22 hunter23"])
    def test_secrets_are_masked(self, written):
        flags = read(f"a/b {written} --port 1")
        assert "hunter2" not in " ".join(flags.serve_args(redacted=True))
        assert "hunter22" in " ".join(flags.serve_args())
        assert len(flags.serve_args(redacted=True)) == len(flags.serve_args())

    def test_words_behind_the_separator_are_no_flags(self):
        flags = read("--port 1 -- a/b --gpu-memory-utilization 0.5")
        assert flags.model == "a/b"
        assert flags.utilization.state == "absent"


# A small parser with vLLM's kinds of flags, as the independent judge of how words are taken.
def judge():
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--max-model-len")
    parser.add_argument("--served-model-name", nargs="+")
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    parser.add_argument("--tensor-parallel-size", "-tp", type=int)
    parser.add_argument("--port", type=int)
    return parser


PIECES = st.lists(
    st.sampled_from(
        [
            ["--gpu-memory-utilization", "0.8"],
            ["--gpu-memory-utilization=0.7"],
            ["--gpu-memory-util", "0.6"],
            ["--max-model-len", "-1"],
            ["--max-model-len=4096"],
            ["--served-model-name", "x"],
            ["--served-model-name", "x", "y y"],
            ["--enforce-eager"],
            ["--no-enforce-eager"],
            ["-tp", "2"],
            ["-tp=4"],
            ["--port", "9000"],
        ]
    ),
    max_size=6,
)


@given(PIECES)
def test_words_are_taken_as_argparse_takes_them(pieces):
    words = ["a/b", *(word for piece in pieces for word in piece)]
    expected = judge().parse_args(words)
    flags = read(shlex.join(words))
    assert flags.model == expected.model
    assert flags.gpu_memory_utilization == expected.gpu_memory_utilization
    assert flags.text_of("max-model-len") == expected.max_model_len
    assert flags.tensor_parallel_size == expected.tensor_parallel_size
    assert flags.port == expected.port
    assert flags.enforce_eager == bool(expected.enforce_eager)
    names = flags.all("served-model-name")
    assert (list(names[-1].values) if names else None) == expected.served_model_name
    assert flags.serve_args() == words
    covered = {0} | {at for found in flags.occurrences for at in range(found.first, found.last + 1)}
    assert covered == set(range(len(words)))
