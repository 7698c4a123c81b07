# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.findings import Severity
from jetson_specdec.recipe import Arg, ServeCommand, ServeFlags, parse_config, parse_recipe, read_speculation
from jetson_specdec.recipe.spec_text import read_spec_text, spec_json

V032 = EngineRelease(version="0.32.0", candidates=("0.32.0",), distribution="upstream", source="named")
CONFIG = {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 3}
JSON = json.dumps(CONFIG)


def flags_of(line, config=None, release=V032):
    args = []
    for word in shlex.split(line):
        names = (word.partition("$")[2],) if "$" in word else ()
        args.append(Arg(value=None if names else word, raw=shlex.quote(word), start=0, end=0, unresolved=names))
    return ServeFlags.read(ServeCommand(index=0, serve_form="vllm_serve", args=tuple(args)), release, config)


def read(line, config=None, release=V032, **more):
    return read_speculation(flags_of(line, config, release), **more)


def topics(found, severity=None):
    return [one.topic for one in found.findings if severity is None or one.severity == severity]


@pytest.mark.parametrize(
    ("written", "form", "words"),
    [
        (f"--speculative-config '{JSON}'", "json", 2),
        (f"--speculative-config='{JSON}'", "json", 1),
        (f"--speculative_config '{JSON}'", "json", 2),
        (f"--speculative-con '{JSON}'", "json", 2),
        (f"-sc '{JSON}'", "json", 2),
        ("--speculative-config '" + JSON.replace(", ", ",\n  ") + "'", "json", 2),
        ("--speculative-config '" + JSON.replace("num_speculative_tokens", "num-speculative-tokens") + "'", "json", 2),
        (
            "-sc.method eagle3 -sc.model RedHatAI/Qwen3-8B-speculator.eagle3 -sc.num_speculative_tokens 3",
            "dotted",
            6,
        ),
        (
            "--speculative_config.method=eagle3 --speculative-config.num-speculative-tokens 3 "
            "--speculative-config.model RedHatAI/Qwen3-8B-speculator.eagle3",
            "dotted",
            5,
        ),
        (
            "--spec-method eagle3 --spec-model RedHatAI/Qwen3-8B-speculator.eagle3 --spec-tokens 3",
            "shorthand",
            6,
        ),
    ],
)
def test_every_form_says_the_same(written, form, words):
    found = read(f"Qwen/Qwen3-8B --port 1 {written} --max-num-seqs 2")
    assert found.state == "present"
    assert found.active
    assert found.form == form
    assert found.config == CONFIG
    assert (found.method, found.model, found.num_speculative_tokens) == tuple(CONFIG.values())
    assert found.args == tuple(range(3, 3 + words))
    assert not found.method_inferred
    assert found.findings == ()


@pytest.mark.parametrize("value", ["''", "None", "null", "' null '"])
@pytest.mark.parametrize("shape", ["--speculative-config {}", "--speculative-config={}", "-sc {}"])
def test_off_is_none_but_its_words_are_known(value, shape):
    found = read("a/b " + shape.format(value))
    assert found.state == "none"
    assert not found.active
    assert found.args


def test_no_speculation():
    assert read("a/b --port 1").state == "none"
    assert read("a/b --port 1").args == ()


def test_the_last_one_is_in_force():
    found = read(f"a/b --speculative-config '{{\"method\":\"ngram\"}}' -sc '{JSON}'")
    assert found.config == CONFIG
    assert found.args == (1, 2, 3, 4)


def test_dotted_keys_replace_the_json():
    found = read(f"a/b --speculative-config.method ngram --speculative-config '{JSON}'")
    assert found.form == "dotted"
    assert found.config == {"method": "ngram"}
    assert "spec-overridden" in topics(found)
    assert found.args == (1, 2, 3, 4)


def test_short_flags_fill_in_but_do_not_repeat():
    found = read('a/b -sc \'{"method":"eagle3","model":"c/d"}\' --spec-tokens 4')
    assert found.num_speculative_tokens == 4
    assert not topics(found, Severity.BLOCKING)
    assert "spec-config-invalid" in topics(read(f"a/b -sc '{JSON}' --spec-tokens 4"), Severity.BLOCKING)


def test_a_dotted_revision_of_digits_is_refused():
    found = read("a/b -sc.method eagle3 -sc.model c/d -sc.num_speculative_tokens 3 -sc.revision 1234567")
    assert found.config is not None
    assert found.config["revision"] == 1234567
    assert "spec-config-invalid" in topics(found, Severity.BLOCKING)


def test_the_old_flags():
    found = read("a/b --speculative-model c/d-0.5B --num-speculative-tokens 5", release=None)
    assert (found.state, found.form, found.method) == ("present", "legacy", "draft_model")
    assert (found.model, found.num_speculative_tokens) == ("c/d-0.5B", 5)
    assert found.args == (1, 2, 3, 4)
    assert read("a/b --speculative-model '[ngram]' --num-speculative-tokens 5", release=None).method == "ngram"


class TestConfigFile:
    @pytest.mark.parametrize("key", ["speculative-config", "speculative_config"])
    def test_a_mapping(self, key):
        body = "".join(f"  {name}: {value}\n" for name, value in CONFIG.items())
        config = parse_config(f"model: a/b\n{key}:\n{body}", path="/v.yaml")
        found = read("--config /v.yaml", config)
        assert (found.state, found.form, found.config) == ("present", "config_file", CONFIG)
        assert found.in_config == (key,)
        assert found.args == ()
        assert topics(found) == ["spec-in-config-file"]

    def test_a_json_text(self):
        config = parse_config(f"model: a/b\nspeculative-config: '{JSON}'\n", path="/v.yaml")
        assert read("--config /v.yaml", config).config == CONFIG

    def test_the_command_line_replaces_it(self):
        config = parse_config("model: a/b\nspeculative-config: {method: ngram}\n", path="/v.yaml")
        found = read(f"--config /v.yaml -sc '{JSON}'", config)
        assert (found.form, found.config) == ("json", CONFIG)
        assert found.in_config == ("speculative-config",)
        assert "spec-overridden" in topics(found)

    def test_null_is_off(self):
        config = parse_config("model: a/b\nspeculative-config: null\n", path="/v.yaml")
        assert read("--config /v.yaml", config).state == "none"


def test_a_value_outside_the_recipe():
    for line in ("a/b --speculative-config $SPEC", "a/b --speculative-config=$SPEC"):
        found = read(line)
        assert (found.state, found.method, found.num_speculative_tokens) == ("by_reference", None, None)
        assert found.active
        assert topics(found) == ["spec-by-reference"]
        assert "$SPEC" in found.findings[0].message


class TestImplicit:
    def test_by_name(self):
        found = read(
            "RedHatAI/Qwen3-8B-speculator.eagle3 --port 1",
            verifier_of={"RedHatAI/Qwen3-8B-speculator.eagle3": "Qwen/Qwen3-8B"}.get,
        )
        assert (found.state, found.method, found.target) == ("implicit", "eagle3", "Qwen/Qwen3-8B")
        assert found.num_speculative_tokens is None
        assert topics(found) == ["spec-implicit"]

    def test_an_unknown_one_names_no_target(self):
        found = read("/models/Own-7B-speculator.eagle3/")
        assert (found.state, found.method, found.target) == ("implicit", "eagle3", None)

    def test_by_config_json(self):
        inside = {
            "algorithm": "eagle3",
            "verifier": {"name_or_path": "Qwen/Qwen3-8B"},
            "proposal_methods": [{"speculative_tokens": 4}],
        }
        found = read("/models/head", target_config={"speculators_config": inside})
        assert (found.target, found.method, found.num_speculative_tokens) == ("Qwen/Qwen3-8B", "eagle3", 4)

    def test_a_configuration_changes_k_only(self):
        found = read('RedHatAI/Qwen3-8B-speculator.eagle3 -sc \'{"method":"ngram","num_speculative_tokens":2}\'')
        assert (found.state, found.method, found.num_speculative_tokens) == ("implicit", "eagle3", 2)


class TestFindings:
    def test_method_left_out(self):
        found = read('a/b -sc \'{"model":"x/own-eagle3","num_speculative_tokens":3}\'')
        assert (found.method, found.method_inferred) == ("eagle3", True)
        assert topics(found) == ["method-inferred"]
        assert read('a/b -sc \'{"model":"x/y","num_speculative_tokens":3}\'').method == "draft_model"

    def test_neither_method_nor_model(self):
        assert "spec-config-invalid" in topics(read("a/b -sc '{\"num_speculative_tokens\":3}'"), Severity.BLOCKING)

    def test_other_methods(self):
        assert topics(read('a/b -sc \'{"method":"mtp","num_speculative_tokens":3}\'')) == ["method-not-ours"]

    @pytest.mark.parametrize("release", [V032, None])
    def test_keys_that_are_gone(self, release):
        config = '{"method":"eagle3","model":"x","num_speculative_tokens":3,"disable_by_batch_size":8}'
        found = read(f"a/b -sc '{config}'", release=release)
        assert topics(found) == ["unknown-spec-keys"]
        assert topics(found, Severity.BLOCKING) == ([] if release is None else ["unknown-spec-keys"])
        assert "disable_by_batch_size" in found.findings[0].message

    @pytest.mark.parametrize("k", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 400, f'"{"9" * 5000}"', "[]", "{}"])
    @pytest.mark.parametrize("release", [V032, None])
    def test_no_json_value_is_too_odd(self, k, release):
        config = f'{{"method":"eagle3","model":"x","num_speculative_tokens":{k}}}'
        found = read(f"a/b -sc '{config}'", release=release)
        assert found.num_speculative_tokens is None
        assert topics(found, Severity.BLOCKING) == ([] if k.isdigit() else ["spec-config-invalid"])

    @pytest.mark.parametrize(
        "config",
        [
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":0}',
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":-1}',
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":2.5}',
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":"many"}',
            '{"method":"eagle3","model":"x/y"}',
            '{"method":"eagle3","num_speculative_tokens":3}',
            '{"method":"draft_model","num_speculative_tokens":3}',
            '{"method":"ngram"}',
            '{"method":"eagle3","model":7,"num_speculative_tokens":3}',
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":3,"draft_tensor_parallel_size":0}',
        ],
    )
    @pytest.mark.parametrize("release", [V032, None])
    def test_what_no_release_would_start_with(self, config, release):
        found = read(f"a/b -sc '{config}'", release=release)
        assert set(topics(found, Severity.BLOCKING)) == {"spec-config-invalid"}

    @pytest.mark.parametrize(
        "config",
        [
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":3.0}',
            '{"method":"eagle3","model":"x/y","num_speculative_tokens":"3"}',
            '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}',
            '{"method":"mlp_speculator","model":"./x","num_speculative_tokens":3,"disable_logprobs":false}',
        ],
    )
    def test_what_some_release_starts_with(self, config):
        assert topics(read(f"a/b -sc '{config}'", release=None), Severity.BLOCKING) == []


@pytest.mark.parametrize(
    ("word", "variant"),
    [
        (f"'{JSON}'", "literal_single_quotes"),
        (JSON.replace('"', "").replace(" ", ""), "inner_quotes_lost"),
        (JSON.replace('"', ""), "inner_quotes_lost"),
        ("{" + JSON + "}", "double_braces"),
        (JSON.replace("{", "{{").replace("}", "}}"), "double_braces"),
        (JSON.replace('"', '\\"'), "every_character_escaped"),
        ("\\" + "\\".join(JSON.replace(" ", "")), "every_character_escaped"),
        (JSON.replace('"', "'"), "single_quoted_keys"),
        (JSON.replace('"', "”"), "typographic_quotes"),
        ("‘" + JSON.replace('"', "").replace(" ", "") + "’", "typographic_quotes"),
        (JSON.replace("}", ",}"), "invalid_json"),
        (json.dumps(JSON), "not_an_object"),
    ],
)
def test_broken_text_is_named_and_corrected(word, variant):
    found = read("a/b --port 1 --speculative-config " + shlex.quote(word))
    assert found.state == "broken"
    assert not found.active
    assert found.variant == variant
    assert topics(found, Severity.BLOCKING) == ["typography" if variant == "typographic_quotes" else "quoting-broken"]
    flag, value = shlex.split(found.correction)
    assert flag == "--speculative-config"
    assert json.loads(value) == CONFIG
    assert found.correction in found.findings[-1].message


@pytest.mark.parametrize(
    ("word", "variant"), [("[1]", "not_an_object"), ("3", "not_an_object"), ('{"method": ', "invalid_json")]
)
def test_what_cannot_be_mended_is_only_named(word, variant):
    found = read("a/b --speculative-config " + shlex.quote(word))
    assert (found.state, found.variant, found.correction) == ("broken", variant, None)


def test_a_bare_brace_is_split_by_the_shell():
    raw = JSON.replace(" ", "")
    for value in (None, raw.replace('"', "")):
        text = read_spec_text(value, raw=raw)
        assert text.variant == "split_by_brace_expansion"
        assert text.repaired == CONFIG
    words = [f"{key}:{value}" for key, value in CONFIG.items()]
    text = read_spec_text(words[0], following=tuple(words[1:]))
    assert text.variant == "split_by_brace_expansion"
    assert text.repaired == CONFIG


def test_what_the_shell_took_apart_is_reported_once():
    recipe = parse_recipe(f"vllm serve a/b --speculative-config {JSON} --port 1\n")
    flags = ServeFlags.read(recipe.commands[0], V032)
    found = read_speculation(flags)
    assert found.state == "broken"
    assert json.loads(shlex.split(found.correction)[1]) == CONFIG
    assert flags.findings == ()


def test_an_unquoted_variable_is_split_at_blanks():
    recipe = parse_recipe(f"SPEC='{JSON}'\nvllm serve a/b --speculative-config $SPEC\n")
    found = read_speculation(ServeFlags.read(recipe.commands[0], V032))
    assert found.variant == "split_by_blanks"
    assert json.loads(shlex.split(found.correction)[1]) == CONFIG


def test_inside_another_layer_the_correction_says_so():
    recipe = parse_recipe(f"bash -c \"vllm serve a/b --speculative-config '{JSON}'\"\n")
    found = read_speculation(ServeFlags.read(recipe.commands[0], V032))
    assert found.state == "broken"
    assert "bash -c" in found.findings[-1].message
    assert spec_json(CONFIG) in found.findings[-1].message


def test_a_variable_inside_the_json_hides_only_its_key():
    recipe = parse_recipe(
        'vllm serve a/b --speculative-config "{\\"method\\": \\"eagle3\\", \\"model\\": \\"$HEAD\\", '
        '\\"num_speculative_tokens\\": $K}"\n'
    )
    found = read_speculation(ServeFlags.read(recipe.commands[0], V032))
    assert (found.state, found.method, found.model, found.num_speculative_tokens) == (
        "by_reference",
        "eagle3",
        None,
        None,
    )


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,15}/[A-Za-z][A-Za-z0-9_.-]{0,20}", fullmatch=True)
CONFIGS = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["eagle3", "draft_model"]),
        "model": NAMES,
        "num_speculative_tokens": st.integers(1, 128),
    }
)


@given(CONFIGS)
def test_what_we_write_is_read_back(config):
    text = spec_json(config)
    assert read_spec_text(text).config == config
    assert shlex.split(f"--speculative-config '{text}'") == ["--speculative-config", text]
    found = read(f"a/b --speculative-config '{text}'")
    assert found.config == config


@given(CONFIGS)
def test_lost_quotes_are_given_back(config):
    text = spec_json(config)
    for broken in (text.replace('"', ""), f"'{text}'", text.replace('"', '\\"'), text.replace('"', "'")):
        assert read_spec_text(broken).repaired == config


@given(st.text(max_size=60))
def test_any_text_is_judged_without_failing(text):
    found = read_spec_text(text)
    assert found.off or found.config is not None or found.variant is not None
