# SPDX-License-Identifier: Apache-2.0
"""`apply` as a user meets it: shown, asked, written, taken back."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main

TEXT = """docker run --rm --runtime nvidia -p 8000:8000 -e HF_TOKEN=hf_secretsecret vllm/vllm-openai:v0.30.0 \\
  --model {}
"""
REPORT = {
    "skill": "jetson-llm-benchmark",
    "runtime": "vllm",
    "model": "Qwen/Qwen3-8B",
    "config": {"input_len": 2048, "output_len": 128, "num_prompts": 50},
    "runs": [
        {
            "concurrency": 1,
            "ttft_ms_p50": 40.0,
            "tpot_ms_p50": 20.5,
            "throughput_tok_s": 47.0,
        },
        {"concurrency": 8, "ttft_ms_p50": 80.0, "tpot_ms_p50": 24.5, "throughput_tok_s": 290.0},
    ],
}


@pytest.fixture
def thor(data_dir):
    return ["--recorded", str(data_dir / "device" / "thor-kit-r38-2")]


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "deploy" / "serve.sh"
    file.parent.mkdir()
    file.write_text(TEXT.format("Qwen/Qwen3-8B"))
    return file


@pytest.fixture
def run(capsys):
    def call(*words):
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def beside(recipe):
    return sorted(path.name.rpartition(".")[2] for path in recipe.parent.iterdir() if ".specdec-" in path.name)


def test_without_a_terminal_it_shows_everything_and_writes_nothing(run, recipe, thor):
    before = recipe.read_text()
    code, out, err = run("apply", recipe, *thor, "--no-baseline")
    assert code == 3
    assert "--yes" in err
    assert len(err.splitlines()) == 1
    assert recipe.read_text() == before
    assert beside(recipe) == []
    for told in (
        "+  --model Qwen/Qwen3-8B",
        "RedHatAI/Qwen3-8B-speculator.eagle3",
        "1.90 GiB",
        "apache-2.0",
        "huggingface.co",
        "No code from the model repositories",
        "port 8000",
        "stats.vllm.ai: on (off with VLLM_NO_USAGE_STATS=1)",
    ):
        assert told in out, told
    assert "secretsecret" not in out


def test_undo_asks_as_apply_does(run, recipe, thor):
    assert run("apply", recipe, *thor, "--no-baseline", "--yes")[0] == 0
    applied = recipe.read_bytes()
    for more in ([], ["--json"], ["--force"]):
        code, _, err = run("apply", recipe, "--undo", *more)
        assert code == 3
        assert "--yes" in err
        assert recipe.read_bytes() == applied


def test_yes_writes_and_undo_takes_it_back(run, recipe, thor):
    before = recipe.read_bytes()
    code, out, err = run("apply", recipe, *thor, "--no-baseline", "--yes")
    assert (code, err) == (0, "")
    assert "--speculative-config" in recipe.read_text()
    assert "hf_secretsecret" in recipe.read_text()
    assert "secretsecret" not in out
    assert beside(recipe) == ["bak", "manifest"]
    code, out, _ = run("apply", recipe, "--undo", "--yes")
    assert code == 0
    assert out.startswith("Taken back")
    assert recipe.read_bytes() == before
    code, _, err = run("apply", recipe, "--undo", "--yes")
    assert code == 2
    assert "nothing to undo" in err


def test_the_plan_is_what_is_written(run, recipe, thor, tmp_path):
    run("plan", recipe, *thor, "--write", tmp_path / "planned.sh")
    run("apply", recipe, *thor, "--no-baseline", "--yes", "--pin", "none")
    assert recipe.read_text() == (tmp_path / "planned.sh").read_text()


def test_enabling_needs_a_baseline_or_a_word(run, recipe, thor, tmp_path):
    before = recipe.read_bytes()
    code, _, err = run("apply", recipe, *thor, "--yes")
    assert code == 2
    assert "--baseline FILE" in err
    assert "--no-baseline" in err
    assert recipe.read_bytes() == before
    report = tmp_path / "report.json"
    report.write_text(json.dumps(REPORT))
    assert run("apply", recipe, *thor, "--baseline", report, "--no-baseline")[0] == 2
    assert run("apply", recipe, *thor, "--baseline", tmp_path / "none.json", "--yes")[0] == 2
    code, out, _ = run("apply", recipe, *thor, "--baseline", report, "--yes", "--json")
    assert code == 0
    document = json.loads(out)
    assert json.loads(Path(document["baseline"]).read_text()) == REPORT
    assert beside(recipe) == ["bak", "baseline", "manifest"]
    assert "no-baseline" not in {finding["topic"] for finding in document["findings"]}


def test_a_baseline_that_cannot_serve_as_one_is_named(run, recipe, thor, tmp_path):
    report = tmp_path / "report.json"
    report.write_text(json.dumps({**REPORT, "runs": REPORT["runs"][:1]}))
    document = json.loads(run("apply", recipe, *thor, "--baseline", report, "--json")[1])
    assert "baseline-incomplete" in {finding["topic"] for finding in document["findings"]}


def test_a_second_name_of_the_file_is_said(run, recipe, thor, tmp_path):
    (tmp_path / "other.sh").hardlink_to(recipe)
    document = json.loads(run("apply", recipe, *thor, "--no-baseline", "--json")[1])
    assert "hard-link" in {finding["topic"] for finding in document["findings"]}


def test_an_interrupted_apply_comes_first(run, recipe, thor):
    run("apply", recipe, *thor, "--no-baseline", "--yes")
    (manifest,) = recipe.parent.glob("*.manifest")
    manifest.write_text(manifest.read_text().replace('"applied"', '"pending"'))
    code, out, err = run("apply", recipe, *thor, "--no-baseline", "--yes")
    assert (code, out) == (2, "")
    assert "--undo" in err
    assert run("apply", recipe, "--undo", "--yes")[0] == 0
    assert "--speculative-config" not in recipe.read_text()


def test_json_never_asks_and_follows_its_schema(run, recipe, thor):
    validator = Draft202012Validator(schemas.load("apply"))
    code, out, _ = run("apply", recipe, *thor, "--no-baseline", "--json")
    shown = json.loads(out)
    validator.validate(shown)
    assert code == 3
    assert shown["applied"] is False
    assert [file["backup"] for file in shown["files"]] == [None]
    code, out, _ = run("apply", recipe, *thor, "--no-baseline", "--json", "--yes")
    done = json.loads(out)
    validator.validate(done)
    assert code == 0
    assert done["applied"] is True
    assert Path(done["files"][0]["backup"]).exists()
    assert done["disclosure"]["fetches"] == shown["disclosure"]["fetches"]
    assert "secretsecret" not in out
    code, out, _ = run("apply", recipe, "--undo", "--yes", "--json")
    validator.validate(json.loads(out))
    assert code == 0


def test_a_refused_plan_is_never_applied(run, recipe, thor):
    recipe.write_text(recipe.read_text().replace("Qwen3-8B", "Qwen3-8B --gpu-memory-utilization 0.97"))
    before = recipe.read_bytes()
    code, out, _ = run("apply", recipe, *thor, "--no-baseline", "--yes")
    assert code == 21
    assert out.startswith("Refused")
    code, out, _ = run("apply", recipe, *thor, "--no-baseline", "--yes", "--json")
    assert code == 21
    Draft202012Validator(schemas.load("apply")).validate(json.loads(out))
    assert recipe.read_bytes() == before
    assert beside(recipe) == []


@pytest.mark.parametrize("model", ["nobody/nothing-7b", "Qwen/Qwen3-8B --spec-method ngram --spec-tokens 3"])
def test_where_nothing_changes_nothing_is_asked(run, recipe, thor, model):
    recipe.write_text(TEXT.format(model))
    before = recipe.read_bytes()
    code, _, err = run("apply", recipe, *thor)
    assert code == 0
    assert "Nothing to change" in err
    assert recipe.read_bytes() == before
    assert beside(recipe) == []


def test_what_was_edited_since_is_taken_back_by_force_only(run, recipe, thor):
    before = recipe.read_bytes()
    run("apply", recipe, *thor, "--no-baseline", "--yes")
    recipe.write_text("edited\n")
    code, _, err = run("apply", recipe, "--undo", "--yes")
    assert code == 2
    assert "--force" in err
    assert recipe.read_text() == "edited\n"
    code, out, _ = run("apply", recipe, "--undo", "--yes", "--force")
    assert code == 0
    assert ".bak" in out
    assert recipe.read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [["--undo", "--no-baseline"], ["--undo", "--head", "a/b"], ["--pin", "some"], ["--undo"]],
    ids=" ".join,
)
def test_bad_options_get_one_line(run, recipe, thor, words):
    code, out, err = run("apply", recipe, *words)
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1


def test_standard_input_has_no_place_to_write_to(run):
    code, _, err = run("apply", "-", "--no-baseline", "--yes")
    assert code == 2
    assert "standard input" in err


def test_a_recommendation_is_no_recipe_to_write_to(run, tmp_path, thor):
    advice = tmp_path / "advice.json"
    advice.write_text(json.dumps({"runtime": "vllm", "launch_flags": ["--gpu-memory-utilization", "0.8"]}))
    code, out, err = run("apply", advice, *thor, "--target", "Qwen/Qwen3-8B", "--no-baseline", "--yes")
    assert (code, out) == (2, "")
    assert "Save it to a file" in err


def ask(recipe, thor, answer):
    """Run in a terminal of its own, answer the question, and return exit code and what was shown."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "jetson_specdec", "apply", str(recipe), *thor, "--no-baseline"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "NO_COLOR": "1", "TERM": "dumb"}
    running = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    shown, answered = b"", False
    while True:
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
        if b"[y/N]" in shown and not answered:
            os.write(master, answer.encode())
            answered = True
    code = running.wait()
    os.close(master)
    return code, shown.decode()


@pytest.mark.parametrize(
    ("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 3), ("\n", 3), ("yesterday\n", 3), ("\x04", 3)]
)
def test_on_a_terminal_a_person_is_asked(recipe, thor, answer, code):
    before = recipe.read_bytes()
    got, shown = ask(recipe, thor, answer)
    assert got == code, shown
    assert (recipe.read_bytes() != before) is (code == 0)
    assert (beside(recipe) == ["bak", "manifest"]) is (code == 0)
    if code:
        assert "nothing was changed" in shown
