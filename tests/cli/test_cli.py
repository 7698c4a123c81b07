# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: answers on stdout, one line of complaint on stderr, exit codes."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main

BOARD = ["--device", "thor-t5000", "--l4t", "38.4.0"]


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8  # chat\n")
    return file


def run(capsys, *words):
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def complaint(capsys, *words):
    code, out, err = run(capsys, *words)
    assert code == 2, (code, err)
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("jetson-specdec: ")
    return err


def test_plan_shows_the_decision_first_then_diff_memory_reasons_next(capsys, recipe):
    code, out, err = run(capsys, "plan", recipe, *BOARD)
    assert code == 0
    assert err == ""
    assert out.splitlines()[0].startswith("Add speculation: eagle3")
    order = [out.index(title) for title in ("\nChange\n", "\nMemory\n", "\nReasons\n", "\nNext\n")]
    assert order == sorted(order)
    assert "+vllm serve" in out


def test_plan_json_follows_its_schema(capsys, recipe):
    code, out, _ = run(capsys, "plan", recipe, *BOARD, "--json")
    assert code == 0
    document = json.loads(out)
    Draft202012Validator(schemas.load("plan")).validate(document)
    assert document["outcome"] == "eagle3"
    assert document["gpu_memory_utilization"] == {"before": 0.8, "after": 0.75, "default": None}


def test_plan_reads_stdin(capsys, recipe, monkeypatch):
    import io

    class Stdin:
        buffer = io.BytesIO(recipe.read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin())
    code, out, _ = run(capsys, "plan", "-", *BOARD, "--json")
    assert code == 0
    assert json.loads(out)["outcome"] == "eagle3"


def test_write_puts_the_planned_recipe_beside_the_old_one(capsys, recipe, tmp_path):
    new = tmp_path / "new.sh"
    before = recipe.read_bytes()
    code, _, err = run(capsys, "plan", recipe, *BOARD, "--write", new)
    assert code == 0
    assert "wrote" in err
    assert recipe.read_bytes() == before
    assert "--speculative-config" in new.read_text()
    assert new.read_text().endswith("# chat\n")
    complaint(capsys, "plan", recipe, *BOARD, "--write", new)
    assert run(capsys, "plan", recipe, *BOARD, "--write", new, "--force")[0] == 0


def test_write_refuses_with_the_plan(capsys, tmp_path):
    recipe, new = tmp_path / "a.sh", tmp_path / "b.sh"
    recipe.write_text("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.97\n")
    code, _, err = run(capsys, "plan", recipe, *BOARD, "--write", new)
    assert code == 21
    assert "not written" in err
    assert not new.exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8", 0),
        ("vllm serve nobody/nothing-7b --gpu-memory-utilization 0.8", 20),
        ("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.97", 21),
        ("vllm serve Qwen/Qwen3-8B --spec-method ngram --spec-tokens 3", 22),
    ],
)
def test_exit_codes_on_request(capsys, tmp_path, text, code):
    recipe = tmp_path / "serve.sh"
    recipe.write_text(text + "\n")
    assert run(capsys, "plan", recipe, *BOARD)[0] == 0
    assert run(capsys, "plan", recipe, *BOARD, "--exit-code")[0] == code


BAD_FILES = {
    "empty": b"",
    "blank": b"  \n\n\t\n",
    "binary": bytes(range(256)) * 40,
    "large": b"# a comment line of a note that never ends\n" * 250_000,
    "prose": b"this is a shopping list: milk, bread, a Jetson\n",
    "unbalanced": b"vllm serve 'Qwen/Qwen3-8B --port 8000\n",
    "yaml": b"a: [1, 2\nb: }\n",
}


@pytest.mark.parametrize("name", sorted(BAD_FILES))
def test_bad_recipes_get_one_line(capsys, tmp_path, name):
    recipe, new = tmp_path / "recipe", tmp_path / "new"
    recipe.write_bytes(BAD_FILES[name])
    complaint(capsys, "plan", recipe, *BOARD, "--write", new)
    assert not new.exists()
    assert recipe.read_bytes() == BAD_FILES[name]


@pytest.mark.parametrize(
    "words",
    [
        ["--device", "thor-t9000"],
        ["--device", "thor-t5000", "--l4t", "yesterday"],
        [*BOARD, "--vllm-version", "newest"],
        [*BOARD, "--concurrency", "0"],
        [*BOARD, "--concurrency", "many"],
        [*BOARD, "--command", "7"],
        [*BOARD, "--head", "a/b", "--draft", "c/d"],
        [*BOARD, "--head", "not an id"],
        [*BOARD, "--target", ""],
        [*BOARD, "--baseline", "/no/such/file.json"],
        [*BOARD, "--mem-tune", "/no/such/file.json"],
        [*BOARD, "--policy", "/no/such/file.toml"],
        [*BOARD, "--catalog", "/no/such/file.toml"],
        [*BOARD, "--recorded", "/no/such/folder"],
        ["--recorded", "/no/such/folder"],
        ["--audit", "/no/such/audit.json"],
        [*BOARD, "--no-such-option"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_bad_options_get_one_line(capsys, recipe, words):
    complaint(capsys, "plan", recipe, *words)


def test_missing_files_and_commands_get_one_line(capsys, tmp_path):
    complaint(capsys, "plan", tmp_path / "nothing.sh", *BOARD)
    complaint(capsys, "plan", tmp_path, *BOARD)
    complaint(capsys, "plan")
    complaint(capsys, "plam")


def test_several_commands_are_listed_for_programs(capsys, tmp_path):
    recipe = tmp_path / "two.sh"
    recipe.write_text("vllm serve Qwen/Qwen3-8B\n\nvllm serve Qwen/Qwen3-14B\n")
    code, out, err = run(capsys, "plan", recipe, *BOARD, "--json")
    assert code == 2
    assert "--command" in err
    assert [(each["index"], each["line"]) for each in json.loads(out)["commands"]] == [(0, 1), (1, 3)]


def test_detect_json_follows_its_schema(capsys, tmp_path):
    root = tmp_path / "board" / "root"
    (root / "proc").mkdir(parents=True)
    (root / "proc" / "meminfo").write_text("MemTotal:       64349016 kB\nMemAvailable:   60000000 kB\n")
    code, out, _ = run(capsys, "detect", "--recorded", tmp_path / "board", "--json")
    assert code == 0
    document = json.loads(out)
    Draft202012Validator(schemas.load("device")).validate(document)
    assert document["memory_total_bytes"] == 64349016 * 1024
    assert document["family"] is None


def test_detect_for_a_person(capsys):
    code, out, _ = run(capsys, "detect", "--device", "agx-orin-32gb", "--l4t", "36.4.4")
    assert code == 0
    assert out.startswith("agx-orin-32gb, L4T 36.4.4 (JetPack 6.2.1)")


def test_catalog_lists_heads_and_names_near_misses(capsys):
    code, out, _ = run(capsys, "catalog", "Qwen/Qwen3-8B")
    assert code == 0
    assert "RedHatAI/Qwen3-8B-speculator.eagle3" in out
    code, out, _ = run(capsys, "catalog", "nvidia/Qwen3-8B-NVFP4", "--json")
    assert json.loads(out)["base"] == "Qwen/Qwen3-8B"
    assert "Qwen/Qwen3-8B" in complaint(capsys, "catalog", "Qwen/Qwen-3-8B")
    assert run(capsys, "catalog")[0] == 0


def test_explain_knows_codes_topics_and_thresholds(capsys):
    for what in ("JSD510", "near-ceiling", "utilization_step"):
        code, out, _ = run(capsys, "explain", what)
        assert code == 0
        assert "NVIDIA" in out
    assert "near-ceiling" in complaint(capsys, "explain", "near-cieling")
    code, out, _ = run(capsys, "explain", "--json")
    document = json.loads(out)
    assert {each["code"] for each in document["findings"]} >= {"JSD510", "JSD520", "JSD521"}


def test_schemas_are_valid_schemas(capsys):
    for name in schemas.NAMES:
        code, out, _ = run(capsys, "schema", name)
        assert code == 0
        Draft202012Validator.check_schema(json.loads(out))
    complaint(capsys, "schema", "nothing")
    assert run(capsys, "schema")[0] == 0


def test_version_and_help(capsys):
    assert run(capsys, "--version")[0] == 0
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in ("detect", "plan", "catalog", "explain", "schema"):
        assert name in out


def test_the_list_of_commands_follows_the_schema(capsys, tmp_path):
    recipe = tmp_path / "two.sh"
    recipe.write_text("vllm serve Qwen/Qwen3-8B\nvllm serve Qwen/Qwen3-14B\n")
    _, out, _ = run(capsys, "plan", recipe, *BOARD, "--json")
    Draft202012Validator(schemas.load("plan")).validate(json.loads(out))
