# SPDX-License-Identifier: Apache-2.0
"""Launch logs of every kind, with what a careful reader says of them; many are a pair with a look-alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.logs import Diagnosis, diagnose
from jetson_specdec.logs.causes import REMEDIES, STAGES, causes
from jetson_specdec.logs.lines import read_line
from jetson_specdec.logs.signatures import signatures

DATA = Path(__file__).parents[1] / "data" / "logs"
CASES = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
BESIDE = ("dmesg", "meminfo", "recipe", "nv_tegra_release", "target_config", "draft_config")


def read(name):
    return (DATA / name).read_bytes().decode("utf-8")


def judged(case):
    beside = {key: read(case[key]) for key in BESIDE if key in case}
    return diagnose([read(name) for name in case["logs"]], exit_code=case.get("exit_code"), **beside)


@pytest.mark.parametrize("name", sorted(CASES))
def test_case(name):
    case = CASES[name]
    found = judged(case)
    said = {key: getattr(found, key) for key in ("started_ok", "cause", "remedy", "speculation_involved")}
    assert said == {key: case[key] for key in said}
    if "stage" in case:
        assert found.stage == case["stage"]
    assert {key: found.values.get(key) for key in case.get("values", {})} == case.get("values", {})
    document = found.to_json()
    Draft202012Validator(schemas.load("diagnosis")).validate(document)
    assert Diagnosis.from_json(json.loads(json.dumps(document))) == found
    assert found.findings
    assert bool(found.next_steps) is (found.started_ok is not True)


def test_every_cause_has_a_case():
    missing = set(causes()) - {case["cause"] for case in CASES.values()}
    assert not missing


def test_names_agree_with_the_schema():
    properties = schemas.load("diagnosis")["properties"]
    assert set(properties["cause"]["enum"]) == set(causes())
    assert set(properties["remedy"]["enum"]) == set(REMEDIES)
    assert tuple(properties["stage"]["enum"]) == STAGES
    for entry in causes().values():
        assert entry["stage"] in STAGES
        assert entry["remedy"] in REMEDIES


def context(entry):
    """What has to stand before an example: its report and its traceback."""
    report = f"1 validation error for {'SpeculativeConfig' if entry.under == 'SpeculativeConfig' else 'VllmConfig'}\n"
    frame = '  File "vllm/v1/spec_decode/x.py", line 1, in create_speculative_config\n    json.loads(spec)\n'
    return (frame if entry.frame else "") + (report if entry.under else "")


@pytest.mark.parametrize("entry", signatures(), ids=lambda entry: entry.id)
def test_the_table_matches_its_examples_and_not_the_look_alikes(entry):
    assert entry.source
    assert any(anchor in entry.example for anchor in entry.anchors)
    found = diagnose(context(entry) + entry.example)
    assert found.started_ok is not True
    defining = read_line(entry.example.split("\n")[-1]).text.strip()
    assert any(defining[:40] in proof.text for proof in found.evidence)
    if entry.look_alike is not None:
        started = entry.look_alike + "\nINFO:     Application startup complete."
        assert (diagnose(started).started_ok, diagnose(started).cause) == (True, "none")
        alone = diagnose(entry.look_alike)
        assert alone.cause == "engine_failed"
