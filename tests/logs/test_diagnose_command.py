# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec diagnose` through the command line: files, stdin, several logs, bad input, what a person sees."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main
from jetson_specdec.errors import ReportError
from jetson_specdec.logs import Diagnosis
from jetson_specdec.logs import reading as log_reading
from jetson_specdec.logs.reading import read_log, read_stream

DATA = Path(__file__).parents[1] / "data" / "logs"


def run(capsys, *words):
    code = main(["diagnose", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_json_of_a_file(capsys):
    path = DATA / "kv-small.log"
    code, out, err = run(capsys, path, "--json")
    document = json.loads(out)
    Draft202012Validator(schemas.load("diagnosis")).validate(document)
    assert (code, err) == (0, "")
    assert (document["cause"], document["remedy"]) == ("kv_cache_too_small", "reduce_max_model_len")
    assert document["evidence"][0]["input"] == str(path)
    assert "20032" in document["next_steps"][0]["text"]


def test_stdin_and_the_kernel_log(capsys, monkeypatch):
    stdin = io.TextIOWrapper(io.BytesIO((DATA / "kernel-driver.log").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, _ = run(capsys, "-", "--dmesg", DATA / "kernel-driver.dmesg", "--json")
    assert (code, json.loads(out)["cause"]) == (0, "driver_oom")


def test_several_logs_a_recipe_and_an_exit_code(capsys):
    _, out, _ = run(capsys, DATA / "nothing-between.1.log", DATA / "nothing-between.0.log", "--json")
    document = json.loads(out)
    assert (document["cause"], document["attempts"]) == ("does_not_fit", 2)
    assert {each["input"] for each in document["evidence"]} == {
        str(DATA / "nothing-between.0.log"),
        str(DATA / "nothing-between.1.log"),
    }
    _, out, _ = run(capsys, DATA / "recipe-speaks.log", "--recipe", DATA / "recipe-speaks.recipe", "--json")
    assert json.loads(out)["values"]["requested_utilization"] == 0.55
    _, out, _ = run(capsys, DATA / "still-loading.log", "--exit-code", "137", "--json")
    assert json.loads(out)["cause"] == "host_oom_killed"


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.glob("*.log")))
def test_a_person_sees_the_cause_the_proof_and_what_to_do(capsys, name):
    code, out, err = run(capsys, DATA / name)
    assert (code, err) == (0, "")
    first = out.split("\n")[0]
    assert first.startswith(("Started", "Failed at stage ", "The log does not tell"))
    assert not re.search(r"\bunknown\b(?![_-])|\bNone\b", out.partition("Evidence")[0])
    if first.startswith("Failed"):
        head, _, proof = out.partition("\nEvidence\n")
        assert proof
        # What to do stands before what proves it: on a small screen it must not scroll away.
        assert head.partition("\nNext\n")[2].startswith(" 1. ")
        assert "unknown" not in head.partition("\nNext\n")[2]


def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path):
    for words in (
        [tmp_path / "absent.log"],
        [tmp_path],
        [DATA / "kv-small.log", "--dmesg", tmp_path / "absent"],
        ["-", "--dmesg", "-"],
        [DATA / "kv-small.log", "--recipe", tmp_path / "absent.sh"],
        [],
        [DATA / "kv-small.log", "--no-such-option"],
    ):
        code, out, err = run(capsys, *words)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1


def test_large_files_are_read_from_both_ends(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(log_reading, "HEAD_BYTES", 2000)
    monkeypatch.setattr(log_reading, "TAIL_BYTES", 3000)
    log = (DATA / "kv-none-with-head.log").read_bytes()
    path = tmp_path / "large.log"
    path.write_bytes(log[:900] + b"\n" + b"middle\n" * 5000 + log[-700:])
    text, shortened = read_log(path)
    assert shortened
    assert len(text) <= 5001
    assert set(text.split("\n")) <= set(path.read_text(encoding="utf-8").split("\n"))
    code, out, err = run(capsys, path, "--json")
    assert (code, json.loads(out)["cause"]) == (0, "kv_cache_none")
    assert str(path) in err
    path.write_bytes(b"x" * 5000)
    assert read_log(path) == ("x" * 5000, False)


def test_a_long_stream_is_read_from_both_ends(monkeypatch, capsys):
    monkeypatch.setattr(log_reading, "HEAD_BYTES", 2000)
    monkeypatch.setattr(log_reading, "TAIL_BYTES", 3000)
    monkeypatch.setattr(log_reading, "_CHUNK_BYTES", 100)
    log = (DATA / "kv-none-with-head.log").read_bytes()
    data = log[:900] + b"\n" + b"middle\n" * 5000 + log[-700:]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    code, out, err = run(capsys, "-", "--json")
    assert (code, json.loads(out)["cause"]) == (0, "kv_cache_none")
    assert err.startswith("- ") or " - " in err
    text, shortened = read_stream(io.BytesIO(data).read)
    assert shortened
    assert len(text) <= 5001
    assert read_stream(io.BytesIO(log).read) == (log.decode(), False)


def test_a_packed_log_and_one_that_is_damaged(tmp_path, capsys):
    path = tmp_path / "server.log.1.gz"
    path.write_bytes(gzip.compress((DATA / "kv-small.log").read_bytes()))
    code, out, _ = run(capsys, path, "--json")
    assert (code, json.loads(out)["cause"]) == (0, "kv_cache_too_small")
    packed = path.read_bytes()
    for damaged in (packed[:-9], packed[:40] + b"\xff" * 40 + packed[80:], packed[:12]):
        path.write_bytes(damaged)
        code, out, err = run(capsys, path)
        assert (code, out, err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("coding", ["utf-16", "utf-8-sig", "utf-8"])
def test_logs_saved_by_other_systems(tmp_path, coding):
    path = tmp_path / "server.log"
    path.write_bytes((DATA / "kv-small.log").read_text(encoding="utf-8").encode(coding))
    assert read_log(path)[0] == (DATA / "kv-small.log").read_text(encoding="utf-8")


def test_what_is_no_diagnosis_is_refused():
    good = {"schema_version": 1, "started_ok": None, "stage": "load", "cause": "engine_failed", "remedy": "none"}
    good = {**good, "speculation_involved": None}
    assert Diagnosis.from_json(good).cause == "engine_failed"
    for bad in (
        {},
        [],
        "x",
        3,
        {**good, "schema_version": 2},
        {**good, "extra": 1},
        {**good, "evidence": [{"line": 1}]},
    ):
        with pytest.raises(ReportError):
            Diagnosis.from_json(bad)
