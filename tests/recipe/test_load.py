# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import RecipeError, RecipeSyntaxError
from jetson_specdec.host import RecordedHost
from jetson_specdec.recipe import ServeFlags, load_recipe, parse_recipe, recognise

SHELL = "#!/bin/sh\n# serve\nvllm serve a/b --port 1\n"
CONFIG = "# for the arm\nmodel: a/b\ngpu_memory_utilization: 0.8\ntrust-remote-code: true\nenforce-eager: false\n"
COMPOSE = "services:\n  llm:\n    image: vllm/vllm-openai:latest\n    command: [a/b]\n"
UNIT = "[Unit]\nDescription=x\n\n[Service]\nExecStart=/usr/bin/vllm serve a/b\n"
MANIFEST = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template: {}\n"
MANIFEST_SERVES = "kind: Pod\nspec:\n  containers:\n  - {name: x, image: vllm/vllm-openai, args: [--model, a/b]}\n"
PYTHON = 'from vllm import LLM\nllm = LLM(model="a/b", speculative_config={"method": "ngram"})\n'
MEM_TUNE = json.dumps({"runtime": "vllm", "launch_flags": ["--gpu-memory-utilization=0.7"]})


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (SHELL, "shell"),
        ("vllm serve a/b\n", "shell"),
        ("docker run --rm vllm/vllm-openai a/b\n", "shell"),
        ("MODEL=a/b\nvllm serve $MODEL\n", "shell"),
        ("cat > c.yaml <<EOF\nservices:\n  x: 1\nEOF\nvllm serve a/b\n", "shell"),
        ("# note: this is the arm\nvllm serve a/b\n", "shell"),
        ("key: value\nother: thing\n", "shell"),
        (CONFIG, "config_file"),
        ("---\n" + CONFIG, "config_file"),
        (CONFIG.replace("\n", "\r\n"), "config_file"),
        ("\ufeff" + CONFIG, "config_file"),
        ('{"model": "a/b", "gpu-memory-utilization": 0.8}', "config_file"),
        ("model: a/b\nspeculative-config:\n  method: ngram\n", "config_file"),
        (COMPOSE, "compose"),
        ("# stack\nversion: '3'\n" + COMPOSE, "compose"),
        ("llm:\n  image: vllm/vllm-openai\n  command: a/b\n", "compose"),
        (UNIT, "unit"),
        (MANIFEST, "manifest"),
        ("containers:\n- name: x\n  image: y\n", "manifest"),
        ("- name: pod\n  kind: Pod\napiVersion: v1\n", "shell"),
        (PYTHON, "python"),
        ("python3 - <<E\nfrom vllm import LLM\nLLM('a')\nE\nvllm serve a/b\n", "shell"),
        (MEM_TUNE, "mem_tune"),
    ],
)
def test_the_form_is_told_from_the_content(text, form):
    assert recognise(text) == form


@pytest.mark.parametrize(
    ("text", "form"), [(COMPOSE, "compose"), (UNIT, "unit"), (PYTHON, "python"), (MANIFEST_SERVES, "manifest")]
)
def test_other_forms_are_read_under_any_name(tmp_path, text, form):
    path = tmp_path / "serve.sh"
    path.write_text(text)
    recipe = load_recipe(path)
    assert (recipe.form, recipe.path, recipe.text) == (form, str(path), text)
    assert ServeFlags.read(recipe.commands[0]).model == "a/b"


def test_a_manifest_that_serves_nothing_is_declined_by_name(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text(MANIFEST)
    with pytest.raises(RecipeSyntaxError) as caught:
        load_recipe(path)
    assert "Kubernetes manifest" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_is_read_byte_for_byte(tmp_path):
    path = tmp_path / "any.txt"
    data = b"# caf\xe9\r\nvllm serve a/b --port 1\r\n"
    path.write_bytes(data)
    recipe = load_recipe(path)
    assert recipe.form == "shell"
    assert recipe.path == str(path)
    assert recipe.text.encode("utf-8", "surrogateescape") == data
    assert ServeFlags.read(recipe.commands[0]).model == "a/b"


def test_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BytesIO(SHELL.encode())

    monkeypatch.setattr(sys, "stdin", Stdin)
    recipe = load_recipe("-")
    assert recipe.text == SHELL
    assert recipe.path is None


def test_a_text_with_a_name():
    recipe = load_recipe("note.md", text="vllm serve a/b\n")
    assert (recipe.path, recipe.text) == ("note.md", "vllm serve a/b\n")


def test_a_recorded_board(tmp_path):
    (tmp_path / "root/srv").mkdir(parents=True)
    (tmp_path / "root/srv/serve.sh").write_text(SHELL)
    host = RecordedHost(tmp_path)
    assert load_recipe("/srv/serve.sh", host=host).text == SHELL
    for path in ("/srv", "/srv/none.sh"):
        with pytest.raises(RecipeSyntaxError):
            load_recipe(path, host=host)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n\t\r\n", "empty"),
        (b"\xef\xbb\xbf\n", "empty"),
        (b"vllm serve a/b\0", "binary"),
        (b"# " + b"x" * 2**20, "larger"),
        (b"model: a/b\nport: 1\nport: 2\n", "line 3"),
        (b"model: a/b\nport: [1\n", "line 2"),
    ],
)
def test_what_cannot_be_a_recipe_is_one_clear_line(tmp_path, data, words):
    path = tmp_path / "r"
    path.write_bytes(data)
    with pytest.raises(RecipeError) as caught:
        load_recipe(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_missing_files_and_folders(tmp_path):
    for path, words in ((tmp_path / "none", "no such file"), (tmp_path, "directory"), ("a\0b", "cannot read")):
        with pytest.raises(RecipeSyntaxError) as caught:
            load_recipe(path)
        assert words in str(caught.value)


class TestConfigRecipe:
    def test_it_is_one_serve_command(self):
        recipe = parse_recipe(CONFIG, path="v.yaml")
        assert recipe.text == CONFIG
        (command,) = recipe.commands
        assert command.serve_form == "vllm_serve"
        flags = ServeFlags.read(command)
        assert flags.model == "a/b"
        assert flags.gpu_memory_utilization == 0.8
        assert flags.trust_remote_code
        assert not flags.enforce_eager
        assert [found.topic for found in command.findings] == ["config-ignored"]
        assert flags.serve_args() == [
            "--model",
            "a/b",
            "--gpu_memory_utilization",
            "0.8",
            "--trust-remote-code",
        ]

    def test_words_know_where_they_stand(self):
        (command,) = parse_recipe(CONFIG).commands
        assert [CONFIG[arg.start : arg.end] for arg in command.args] == [
            "model",
            "a/b",
            "gpu_memory_utilization",
            "0.8",
            "trust-remote-code",
        ]
        assert all(arg.raw == CONFIG[arg.start : arg.end] for arg in command.args)
        assert command.line == 2


def outcome(text):
    """What comes of a text: the text of the recipe, or the message of the error."""
    try:
        return parse_recipe(text).text, None
    except RecipeError as error:
        return None, str(error)


@given(st.text(max_size=200))
def test_any_text_ends_in_a_recipe_or_a_clear_error(text):
    kept, message = outcome(text)
    assert kept == text or (message and "\n" not in message)


@given(st.text(max_size=100))
def test_any_text_with_a_key_in_front(text):
    kept, message = outcome("model: a/b\n" + text)
    assert kept == "model: a/b\n" + text or (message and "\n" not in message)
