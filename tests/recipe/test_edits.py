# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import shlex

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import UneditableError
from jetson_specdec.recipe import ServeFlags, parse_config, parse_recipe, plan_edit, read_speculation

CONFIG = {"method": "eagle3", "model": "org/Head-8B", "num_speculative_tokens": 3}
TEXT = json.dumps(CONFIG, separators=(",", ":"))
SPEC = f"--speculative-config '{TEXT}'"


def plan(text, config=None, index=0, **changes):
    recipe = parse_recipe(text)
    flags = ServeFlags.read(recipe.commands[index], None, config)
    return plan_edit(recipe, recipe.commands[index], flags, **changes)


def speculate(text, utilization="0.8", **more):
    return plan(text, set_flags={"gpu-memory-utilization": utilization}, speculative_config=CONFIG, **more)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vllm serve a/b --gpu-memory-utilization 0.85\n", f"vllm serve a/b --gpu-memory-utilization 0.8 {SPEC}\n"),
        ("vllm serve a/b --gpu_memory_utilization=0.85\n", f"vllm serve a/b --gpu_memory_utilization=0.8 {SPEC}\n"),
        ("vllm serve a/b --gpu-mem 0.85 # x\n", f"vllm serve a/b --gpu-mem 0.8 {SPEC} # x\n"),
        ("vllm serve a/b --gpu-mem '0.85' &\n", f"vllm serve a/b --gpu-mem '0.8' {SPEC} &\n"),
        ("vllm serve a/b > log\n", f"vllm serve a/b --gpu-memory-utilization 0.8 {SPEC} > log\n"),
        ("vllm serve a/b --gpu-mem 0.80\n", f"vllm serve a/b --gpu-mem 0.80 {SPEC}\n"),
    ],
)
def test_one_line_recipes(before, after):
    made = speculate(before)
    assert made.text_after == after
    assert made.changed
    assert made.files == ()
    assert read_speculation(made.flags_after).config == CONFIG
    assert made.serve_args_after[-2:] == ("--speculative-config", TEXT)
    assert made.added_args[-2:] == ("--speculative-config", TEXT)


def test_the_same_plan_twice_changes_nothing():
    once = speculate("vllm serve a/b --gpu-mem=0.85 \\\n  --port 1\n")
    again = speculate(once.text_after)
    assert not again.changed
    assert again.added_args == ()
    assert again.serve_args_after == once.serve_args_after


def test_a_variable_stays_and_its_use_is_replaced():
    made = speculate("UTIL=0.85\nvllm serve a/b --gpu-memory-utilization $UTIL\nvllm serve c/d --gpu-mem $UTIL\n")
    assert made.text_after.startswith("UTIL=0.85\n")
    assert made.text_after.endswith("vllm serve c/d --gpu-mem $UTIL\n")
    assert made.flags_after.gpu_memory_utilization == 0.8
    assert [found.topic for found in made.findings] == ["variable-bypassed"]


def test_the_chosen_command_alone_changes():
    text = "vllm serve a/b --gpu-mem 0.9\nvllm serve c/d --gpu-mem 0.9\n"
    made = speculate(text, index=1)
    assert made.text_after.splitlines()[0] == "vllm serve a/b --gpu-mem 0.9"
    assert made.flags_after.model == "c/d"


@pytest.mark.parametrize(
    "written",
    [
        SPEC,
        f"--speculative-config='{TEXT}'",
        f"-sc '{TEXT}'",
        "--speculative-config.method eagle3 --speculative_config.model=x --speculative-config.num_speculative_tokens 2",
        "--spec-method eagle3 --spec-model x --spec-tokens 2",
        "--speculative-model x --num-speculative-tokens 2",
        f"-sc '{TEXT}' --per-request-spec-decode-metrics summary",
        f"-sc '{TEXT}' --port 1 -sc '{TEXT}'",
        "--speculative-config $OTHER",
    ],
)
@pytest.mark.parametrize(
    "shape", ["vllm serve a/b {} --enforce-eager\n", "vllm serve a/b \\\n  --enforce-eager \\\n  {}\n"]
)
def test_every_form_is_removed(written, shape):
    made = plan(shape.format(written), remove_speculation=True)
    assert read_speculation(made.flags_after).state == "none"
    assert [word for word in made.serve_args_after if word not in ("--port", "1")] == ["a/b", "--enforce-eager"]
    assert not plan(made.text_after, remove_speculation=True).changed


def test_removing_nothing_changes_nothing():
    assert not plan("vllm serve a/b\n", remove_speculation=True).changed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('vllm serve a/b -sc \'{"method": "ngram"}\' --port 1\n', f"vllm serve a/b -sc '{TEXT}' --port 1\n"),
        (
            'vllm serve a/b --speculative-config=\'{"method": "ngram"}\'\n',
            f"vllm serve a/b --speculative-config='{TEXT}'\n",
        ),
        ("vllm serve a/b --spec-method ngram --port 1\n", f"vllm serve a/b --port 1 {SPEC}\n"),
        ("vllm serve a/b -sc.method ngram --port 1\n", f"vllm serve a/b --port 1 {SPEC}\n"),
    ],
)
def test_another_configuration_replaces_the_one_that_is_there(before, after):
    assert plan(before, speculative_config=CONFIG).text_after == after


def test_a_speculators_target_becomes_the_model_behind_it():
    recipe = parse_recipe("vllm serve RedHatAI/Qwen3-8B-speculator.eagle3 --port 1\n")
    flags = ServeFlags.read(recipe.commands[0])
    known = read_speculation(flags, verifier_of=lambda _: "Qwen/Qwen3-8B")
    made = plan_edit(recipe, recipe.commands[0], flags, speculation=known, remove_speculation=True)
    assert made.text_after == "vllm serve Qwen/Qwen3-8B --port 1\n"
    with pytest.raises(UneditableError):
        plan_edit(recipe, recipe.commands[0], flags, remove_speculation=True)


class TestConfigFile:
    CONFIG = parse_config("model: a/b\ngpu_memory_utilization: 0.85 # u\n", path="/srv/v.yaml", named="/c/v.yaml")

    def test_the_value_changes_where_it_is_in_force(self):
        made = speculate("vllm serve --config /c/v.yaml\n", config=self.CONFIG)
        assert made.text_after == f"vllm serve --config /c/v.yaml {SPEC}\n"
        (file,) = made.files
        assert file.path == "/srv/v.yaml"
        assert file.before == self.CONFIG.text
        assert file.after == self.CONFIG.text.replace("0.85", "0.8")
        assert made.flags_after.gpu_memory_utilization == 0.8

    def test_the_command_line_is_changed_where_it_overrides(self):
        made = speculate("vllm serve --config /c/v.yaml --gpu-mem 0.9\n", config=self.CONFIG)
        assert made.files == ()
        assert "--gpu-mem 0.8" in made.text_after

    def test_speculation_in_the_file_is_changed_and_removed_there(self):
        text = "model: a/b\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 2\n# end\n"
        config = parse_config(text, path="/srv/v.yaml")
        made = plan("vllm serve --config v.yaml\n", config=config, speculative_config=CONFIG)
        assert not made.text_after.count("speculative")
        assert yaml.safe_load(made.files[0].after)["speculative-config"] == CONFIG
        made = plan("vllm serve --config v.yaml\n", config=config, remove_speculation=True)
        assert made.files[0].after == "model: a/b\n# end\n"


class TestConfigRecipe:
    TEXT = "# arm\nmodel: a/b\ngpu-memory-utilization: 0.85  # u\nmax-model-len: 8k\n"

    def test_everything_is_done_in_the_file(self):
        made = speculate(self.TEXT)
        assert made.text_after.startswith(self.TEXT.replace("0.85", "0.8"))
        assert yaml.safe_load(made.text_after)["speculative-config"] == CONFIG
        assert made.files == ()
        assert made.added_args == ("--speculative-config", TEXT)
        assert read_speculation(made.flags_after).config == CONFIG
        assert not speculate(made.text_after).changed

    def test_and_undone(self):
        made = plan(speculate(self.TEXT).text_after, remove_speculation=True)
        assert made.text_after == self.TEXT.replace("0.85", "0.8")

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_short_keys_at_the_end_make_room(self, end):
        made = speculate(f"model: a/b\nspec-method: ngram\nspec-tokens: 2{end}")
        assert read_speculation(made.flags_after).config == CONFIG
        assert "ngram" not in made.text_after
        assert made.flags_after.gpu_memory_utilization == 0.8

    @pytest.mark.parametrize("end", ["\n", ""])
    def test_the_last_entry_is_rewritten_and_another_follows(self, end):
        made = speculate(f"model: a/b\nspeculative-config:\n  method: ngram # x{end}")
        assert yaml.safe_load(made.text_after) == {
            "model": "a/b",
            "speculative-config": CONFIG,
            "gpu-memory-utilization": 0.8,
        }

    def test_a_missing_value_is_added(self):
        made = speculate("model: a/b\nmax-model-len: 8k\n")
        assert made.text_after.startswith("model: a/b\nmax-model-len: 8k\ngpu-memory-utilization: 0.8\n")


class TestRefusals:
    def test_behind_a_separator(self):
        with pytest.raises(UneditableError) as caught:
            speculate("vllm serve --port 1 -- a/b\n")
        assert "--speculative-config" in str(caught.value)

    def test_broken_text(self):
        with pytest.raises(UneditableError):
            plan("vllm serve a/b -sc '{method:eagle3}'\n", speculative_config=CONFIG)

    def test_another_engine(self):
        with pytest.raises(UneditableError) as caught:
            speculate("python3 -m sglang.launch_server --model-path a/b\n")
        assert "sglang" in str(caught.value)

    def test_mem_tune(self):
        with pytest.raises(UneditableError):
            speculate('{"launch_flags": ["--gpu-memory-utilization=0.7"]}')


WORDS = st.lists(
    st.sampled_from(
        [
            "--port 8500",
            "--enforce-eager",
            "--max-model-len=8k",
            "--served-model-name 'my arm'",
            '--host "0.0.0.0"',
            "--dtype half",
        ]
    ),
    unique=True,
    max_size=5,
)


@settings(max_examples=60)
@given(
    WORDS,
    st.sampled_from(["", "--gpu-memory-utilization 0.9", "--gpu_mem=0.9", "--gpu-memory-util '0.9'"]),
    st.sampled_from([" ", " \\\n  "]),
    st.sampled_from(["\n", "", " # note\n", " > log 2>&1 &\n"]),
    st.integers(1, 16),
)
def test_an_edit_adds_only_what_it_says(words, utilization, gap, tail, k):
    text = gap.join(["vllm serve a/b", *filter(None, [*words[:2], utilization, *words[2:]])]) + tail
    config = {**CONFIG, "num_speculative_tokens": k}
    made = plan(text, set_flags={"gpu-memory-utilization": "0.85"}, speculative_config=config)
    before, after = (
        shlex.split(one.replace("\\\n", "").partition(" >")[0], comments=True) for one in (text, made.text_after)
    )
    expected = [word.replace("0.9", "0.85") if "0.9" in word else word for word in before]
    if not utilization:
        expected += ["--gpu-memory-utilization", "0.85"]
    assert after == [*expected, "--speculative-config", json.dumps(config, separators=(",", ":"))]
    assert made.text_after.endswith(tail)
    again = plan(made.text_after, set_flags={"gpu-memory-utilization": "0.85"}, speculative_config=config)
    assert not again.changed
