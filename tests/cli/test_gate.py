# SPDX-License-Identifier: Apache-2.0
"""`gate` as a user meets it: pairs of files in, the verdict as text, JSON and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main
from jetson_specdec.gate import EXIT_CODES, Gate, Verdict
from jetson_specdec.measurements import read_report


def run(capsys, *words):
    code = main([str(word) for word in ("gate", *words)])
    out, err = capsys.readouterr()
    return code, out, err


def complaint(capsys, *words):
    code, out, err = run(capsys, *words)
    assert code == 2, (code, err)
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("jetson-specdec: ")
    return err


@pytest.fixture
def report(tmp_path):
    """Write a report as jetson-llm-benchmark does: (throughput, TPOT) at concurrency 1, throughput at 8."""

    def write(name, one, eight=None, **more):
        ttft = 100.0 if one[0] else 0.0
        runs = [{"concurrency": 1, "ttft_ms_p50": ttft, "throughput_tok_s": one[0], "tpot_ms_p50": one[1]}]
        if eight is not None:
            runs.append({"concurrency": 8, "ttft_ms_p50": 3 * ttft, "throughput_tok_s": eight})
        data = {"skill": "jetson-llm-benchmark", "runtime": "vllm", "model": "me/model", "config": {}, "runs": runs}
        file = tmp_path / name
        file.write_text(json.dumps({**data, **more}))
        return file

    return write


# (throughput and TPOT at 1, throughput at 8) after speculation; before: 20 tok/s, 50 ms, 100 tok/s
OUTCOMES = {
    "enable": ((27.0, 37.0), 101.0),
    "disable": ((21.0, 47.0), 101.0),
    "marginal": ((24.0, 42.0), 101.0),
    "incomplete": ((27.0, 37.0), None),
    "invalid": ((0.0, 0.0), 0.0),
}


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_the_exit_code_is_the_verdict(capsys, report, outcome):
    before = report("before.json", (20.0, 50.0), 100.0)
    after = report("after.json", *OUTCOMES[outcome])
    code, out, err = run(capsys, before, after)
    assert (code, err) == (EXIT_CODES[outcome], "")
    assert out.splitlines()[0].lower().startswith(outcome)
    code, out, _ = run(capsys, before, after, "--json")
    assert code == EXIT_CODES[outcome]
    document = json.loads(out)
    Draft202012Validator(schemas.load("verdict")).validate(document)
    assert document["outcome"] == outcome
    verdict = Gate().judge(read_report(before), read_report(after))
    assert Verdict.from_json(document) == verdict


def test_each_figure_stands_in_one_line(capsys, report):
    before = [report(f"b{n}.json", (20.0 + n / 10, 50.0), 100.0) for n in range(5)]
    after = [report(f"a{n}.json", (26.0 + n / 3, 37.0), 100.0) for n in range(5)]
    code, out, _ = run(capsys, "--before", *before, "--after", *after)
    lines = {line.split("   ")[0].strip(): " ".join(line.split()) for line in out.splitlines()}
    first = lines["throughput c=1"]
    # Means of logarithms: (20·20.1·20.2·20.3·20.4)^(1/5) and (26·26⅓·26⅔·27·27⅓)^(1/5).
    assert first.startswith("throughput c=1 20.2 → 26.7 tok/s +32.0 % [+")
    assert "] 5 pairs needs ≥ +30 %: " in first
    assert lines["TPOT p50 c=1"].endswith("needs ≤ -20 %: met")
    assert "~ +0.0 %" in lines["throughput c=8"]
    assert code in (0, 12)


def test_noise_is_not_proved(capsys, report):
    before = [report(f"b{n}.json", (20.0 + n / 100, 50.0), 100.0) for n in range(3)]
    after = [report(f"a{n}.json", (value, 37.0), 100.0) for n, value in enumerate((22.0, 27.0, 31.0))]
    code, out, _ = run(capsys, "--before", *before, "--after", *after)
    assert code == 12
    assert "not proved" in out
    assert "throughput c=1 (floor)" in out


def test_pairs_in_turn_and_arms_one_after_the_other_are_the_same(capsys, report):
    before = [report(f"b{n}.json", (20.0 + n, 50.0), 100.0) for n in range(3)]
    after = [report(f"a{n}.json", (30.0 + n, 34.0), 105.0) for n in range(3)]
    turns = [file for pair in zip(before, after, strict=True) for file in pair]
    first = run(capsys, *turns, "--json")
    assert first == run(capsys, "--before", *before, "--after", *after, "--json")
    assert json.loads(first[1])["pairs"] == 3


def test_files_of_one_arm_are_joined(capsys, report, tmp_path):
    whole = [report("before.json", (20.0, 50.0), 100.0), report("after.json", (27.0, 37.0), 101.0)]
    parts = []
    for file in whole:
        data = json.loads(file.read_text())
        names = []
        for number, run_ in enumerate(data["runs"]):
            part = tmp_path / f"{file.stem}-{number}.json"
            part.write_text(json.dumps({**data, "runs": [run_]}))
            names.append(str(part))
        parts.append(",".join(names))
    assert run(capsys, *parts)[0] == run(capsys, *whole)[0] == 0


def test_one_arm_alone_is_incomplete(capsys, report):
    only = report("before.json", (20.0, 50.0), 100.0)
    for option in ("--before", "--after"):
        code, out, _ = run(capsys, option, only, "--json")
        assert code == 12
        assert json.loads(out)["outcome"] == "incomplete"


def test_a_policy_moves_the_thresholds(capsys, report, tmp_path):
    files = [report("before.json", (20.0, 50.0), 100.0), report("after.json", (24.0, 42.0), 101.0)]
    policy = tmp_path / "policy.toml"
    policy.write_text("[policy]\nenable_throughput_gain = 0.15\nenable_tpot_drop = 0.1\n")
    assert run(capsys, *files)[0] == 11
    code, out, _ = run(capsys, *files, "--policy", policy)
    assert code == 0
    assert "needs ≥ +15 %: met" in out


def test_simulated_against_real_is_invalid_and_says_simulated(capsys, report, tmp_path):
    fake = tmp_path / "fake.json"
    assert main(["bench", "--fake", "--num-prompts", "3", "--output-len", "4", "--out", str(fake)]) == 0
    capsys.readouterr()
    data = json.loads(fake.read_text())
    real = tmp_path / "real.json"
    real.write_text(json.dumps({**data, "runtime": "vllm", "findings": [], "warnings": []}))
    code, out, _ = run(capsys, fake, real)
    assert code == 13
    assert out.startswith("SIMULATED")
    assert "fake-vllm against vllm" in out


def test_bad_input_gets_one_line(capsys, report, tmp_path):
    good = report("good.json", (20.0, 50.0), 100.0)
    broken, empty = tmp_path / "broken.json", tmp_path / "empty.json"
    broken.write_text('{"runs": [')
    empty.write_text("")
    complaint(capsys)
    complaint(capsys, good)
    assert "3" in complaint(capsys, good, good, good)
    for bad in (broken, empty, tmp_path, tmp_path / "missing.json"):
        complaint(capsys, good, bad)
    complaint(capsys, good, good, "--before", good)
    complaint(capsys, "--before", good, good, "--after", good)
    complaint(capsys, good, good, "--format", "papyrus")
    complaint(capsys, good, good, "--policy", tmp_path / "missing.toml")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_of_the_terminal_costs_the_verdict(encoding, report):
    files = [
        str(report(name, one, eight, model="org/t\ud800")) for name, one, eight in
        (("before", (20.0, 49.0), 120.0), ("after", (30.0, 32.0), 130.0))
    ]  # fmt: skip
    found = subprocess.run(
        [sys.executable, "-c", "import sys; from jetson_specdec.cli import main; sys.exit(main(sys.argv[1:]))",
         "gate", *files],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=False,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.startswith(b"Enable")
