# SPDX-License-Identifier: Apache-2.0
"""`doctor` as a user meets it."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("name", "code"),
    [("thor-kit-r38-2", 0), ("orin-nano-super-36-4-7", 40), ("x86-laptop", 41), ("raspberry-pi-5", 41)],
)
def test_the_worst_finding_is_the_exit_code(run, data_dir, name, code):
    got, out, err = run("doctor", "--recorded", data_dir / "device" / name)
    assert (got, err) == (code, "")
    first = {0: "Nothing found", 40: "Look first", 41: "Not ready"}[code]
    assert out.startswith(first)
    got, out, _ = run("doctor", "--recorded", data_dir / "device" / name, "--json")
    document = json.loads(out)
    Draft202012Validator(schemas.load("doctor")).validate(document)
    assert got == document["exit_code"] == code


def test_every_recorded_board_gets_a_checkup(run, data_dir):
    boards = sorted(path for path in (data_dir / "device").iterdir() if path.is_dir())
    assert len(boards) > 20
    for board in boards:
        code, out, err = run("doctor", "--recorded", board, "--json")
        assert code in (0, 40, 41), board
        assert err == "", board
        Draft202012Validator(schemas.load("doctor")).validate(json.loads(out))


def test_a_recipe_adds_its_rows(run, data_dir, tmp_path):
    recipe = tmp_path / "serve.sh"
    recipe.write_text("docker run --name llm -p 8000:8000 vllm/vllm-openai:v0.30.0 --model Qwen/Qwen3-8B\n")
    board = data_dir / "device" / "thor-kit-r38-2"
    _, out, _ = run("doctor", recipe, "--recorded", board, "--json")
    names = [check["name"] for check in json.loads(out)["checks"]]
    assert {"image", "runtime", "name"} <= set(names)
    assert "network" not in names
    assert recipe.read_text().startswith("docker run")


def test_the_release_named_decides_what_counts_as_free(run, data_dir):
    board = data_dir / "device" / "thor-kit-r38-2"
    topics = {}
    for version in ("0.11.0", "0.30.0"):
        out = run("doctor", "--recorded", board, "--vllm-version", version, "--json")[1]
        memory = next(check for check in json.loads(out)["checks"] if check["name"] == "memory")
        topics[version] = {finding["topic"] for finding in memory["findings"]}
    assert topics["0.11.0"] - topics["0.30.0"] == {"page-cache"}


def test_bad_input_gets_one_line(run, tmp_path):
    for words in (["/no/such/recipe"], ["--recorded", tmp_path / "none"], ["--vllm-version", "newest"]):
        code, out, err = run("doctor", *words)
        assert code == 2
        assert out == ""
        assert len(err.splitlines()) == 1
