# SPDX-License-Identifier: Apache-2.0
"""`demo`: the README's first command. Simulated, labelled, the same every time, and true to what it simulates."""

from __future__ import annotations

import json
import subprocess
from copy import deepcopy

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main
from jetson_specdec.gate import Gate
from jetson_specdec.measurements import BenchReport, read_report
from jetson_specdec.testing.demo import demo_recipe, demo_truth, run_demo


def run(capsys, *words):
    code = main([str(word) for word in ("demo", *words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture(scope="module")
def demo():
    return run_demo()


def test_plan_numbers_verdict_in_this_order_under_a_label(capsys):
    code, out, err = run(capsys, "--pairs", "1")
    assert (code, err) == (0, "")
    assert out.startswith("SIMULATED")
    order = [out.index(text) for text in ("1. Plan", "Add speculation: eagle3", "2. Numbers (simulated)", "3. Verdict")]
    assert order == sorted(order)
    assert out.index("3. Verdict") < out.index("throughput c=1")


def test_the_default_enables_with_intervals(demo):
    assert demo.verdict.outcome == demo.verdict.contract_outcome == "enable"
    assert demo.verdict.pairs == 3
    for name in ("throughput_c1", "tpot_c1", "throughput_c8"):
        low, high = demo.verdict.criterion(name).interval
        assert low < demo.verdict.criterion(name).change < high


def test_the_numbers_are_those_of_the_simulated_board(demo):
    """Speed by hand from the truth; the spread from start to start is half a per cent."""
    truth = demo_truth()
    plain = truth.step_ms
    k = demo.plan.speculative_config["num_speculative_tokens"]
    assert k == 5
    round_ms = truth.step_ms + k * (truth.draft_ms + truth.verify_ms)
    length = 1 + sum(truth.acceptance)
    for before, after in zip(demo.before, demo.after, strict=True):
        assert before.run_at(1).tpot_ms_p50 == pytest.approx(plain, rel=0.02)
        assert after.run_at(1).tpot_ms_p50 == pytest.approx(round_ms / length, rel=0.03)
        assert after.acceptance.mean_length == pytest.approx(length, rel=0.02)
        assert before.conditions.speculation is False
        assert after.conditions.speculation is True
        assert after.conditions.max_num_seqs == 8


def test_every_report_and_the_verdict_are_labelled(demo):
    for report in (*demo.before, *demo.after):
        assert report.runtime == "fake-vllm"
        assert "simulated" in {finding.topic for finding in report.findings}
    assert "simulated" in {finding.topic for finding in demo.verdict.findings}
    assert demo.to_json()["simulated"] is True


def test_the_same_seed_gives_the_same_answer(demo):
    again, other = run_demo(pairs=1), run_demo(pairs=1, seed=1)
    for arm in ("before", "after"):
        assert getattr(again, arm)[0].runs == getattr(demo, arm)[0].runs
        assert getattr(other, arm)[0].runs != getattr(demo, arm)[0].runs


def test_json_follows_its_schema_and_can_be_judged_again(capsys):
    code, out, _ = run(capsys, "--json", "--pairs", "1")
    assert code == 0
    document = json.loads(out)
    Draft202012Validator(schemas.load("demo")).validate(document)
    arms = [[BenchReport.from_json(each) for each in document[arm]] for arm in ("before", "after")]
    assert Gate().judge(*arms).to_json() == document["verdict"]


def test_the_schema_looks_inside(demo):
    validator = Draft202012Validator(schemas.load("demo"))
    small = json.loads(json.dumps(demo.to_json()))
    for arm in ("before", "after"):
        small[arm] = [{**small[arm][0], "requests": []}]
    assert validator.is_valid(small)
    for spoil in (
        lambda data: data["before"][0]["runs"][0].update(tpot_ms_p50="fast"),
        lambda data: data["verdict"].update(outcome="splendid"),
        lambda data: data["plan"].pop("outcome"),
        lambda data: data.update(simulated=False),
    ):
        data = deepcopy(small)
        spoil(data)
        assert not validator.is_valid(data)


def test_files_are_saved_and_the_gate_judges_them_alike(capsys, tmp_path):
    folder = tmp_path / "sample"
    code, _, err = run(capsys, "--out", folder, "--pairs", "1")
    assert code == 0
    assert "wrote" in err
    names = {file.name for file in folder.iterdir()}
    arms = {f"{arm}-1.json" for arm in ("before", "after")}
    assert names == arms | {"serve.sh", "serve.planned.sh", "verdict.json"}
    assert read_report(folder / "after-1.json").runtime == "fake-vllm"
    assert main(["gate", f"{folder}/before-1.json", f"{folder}/after-1.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((folder / "verdict.json").read_text())
    for name in ("serve.sh", "serve.planned.sh"):
        assert subprocess.run(["bash", "-n", folder / name], check=False).returncode == 0


def test_nothing_of_this_machine_plays_a_part(monkeypatch, demo):
    monkeypatch.setenv("JETSON_SPECDEC_FAKE", '{"step_ms": 1}')
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    assert run_demo(pairs=1).before[0].runs == demo.before[0].runs


def test_the_sample_recipe_is_what_the_plan_changes(demo):
    assert demo.plan.recipe.before == demo_recipe()
    assert "--speculative-config" in demo.plan.recipe.after


@pytest.mark.parametrize("words", [["--pairs", "0"], ["--pairs", "21"], ["--seed", "x"], ["extra"]])
def test_bad_options_get_one_line(capsys, words):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_a_folder_with_something_in_it_is_left_alone(capsys, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for place in (tmp_path, tmp_path / "mine.txt"):
        code, out, err = run(capsys, "--out", place)
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
