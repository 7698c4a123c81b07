# SPDX-License-Identifier: Apache-2.0
"""Recorded boards (made up for these tests, in the formats that boards print) and what each must be taken for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetson_specdec.device import detect
from jetson_specdec.findings import Severity
from jetson_specdec.host import RecordedHost

DATA = Path(__file__).parents[1] / "data" / "device"
BOARDS = sorted(path.name for path in DATA.iterdir() if (path / "expected.json").is_file())
FIELDS = (
    "is_jetson",
    "family",
    "module",
    "l4t",
    "jetpack",
    "power_mode",
    "power_mode_is_max",
    "speculation_allowed",
    "runtime",
)


def seen(name: str):
    return json.loads((DATA / name / "expected.json").read_text()), detect(RecordedHost(DATA / name))


@pytest.mark.parametrize("name", BOARDS)
def test_a_recorded_board_is_what_it_is(name):
    expected, device = seen(name)
    assert {field: getattr(device, field) for field in FIELDS} == {field: expected[field] for field in FIELDS}
    total = device.memory_total_bytes
    assert (total if total is None else total / 1024) == expected["memory_total_kib"]
    topics = {finding.topic for finding in device.findings}
    assert set(expected["topics"]) <= topics
    assert "detector-failed" not in topics


@pytest.mark.parametrize("name", BOARDS)
def test_every_field_that_is_known_says_where_from_and_how_sure(name):
    _, device = seen(name)
    unset = {"unknown", None}
    known = {
        field
        for field in (*FIELDS, "memory_total_bytes", "memory_available_bytes", "gpu_name", "memory_bandwidth_gb_s")
        if getattr(device, field) not in unset
    }
    assert known <= set(device.sources)
    assert set(device.sources) == set(device.confidence)


@pytest.mark.parametrize("name", BOARDS)
def test_texts_are_whole_sentences_without_holes(name):
    _, device = seen(name)
    for finding in device.findings:
        assert finding.message.endswith((".", ")"))
        assert "{" not in finding.message
        assert finding.message != finding.code


@pytest.mark.parametrize("name", [name for name in BOARDS if seen(name)[0].get("no_warnings")])
def test_a_plain_board_gets_no_warning(name):
    _, device = seen(name)
    assert [finding.code for finding in device.findings if finding.severity is not Severity.INFO] == []


@pytest.mark.parametrize("name", [name for name in BOARDS if "values" in seen(name)[0]])
def test_figures_read_on_the_way_stand_in_the_findings(name):
    expected, device = seen(name)
    values = {key: value for finding in device.findings for key, value in finding.values.items()}
    assert {key: values.get(key, "absent") for key in expected["values"]} == expected["values"]


def test_bandwidth_follows_the_power_mode():
    # 25W exists only where the board was flashed as Super, and there the memory clock is 3199 MHz on 128 bits.
    _, device = seen("orin-nano-super-36-4-7")
    assert device.memory_bandwidth_gb_s == pytest.approx(3199 * 2 * 128 / 8 / 1000, abs=0.1)


def test_sources_name_files_and_programs():
    _, device = seen("thor-t4000")
    assert device.sources["l4t"] == "/etc/nv_tegra_release"
    assert device.sources["memory_total_bytes"] == "/proc/meminfo"
    assert device.sources["power_mode"] == "nvpmodel -q"
    assert "TNSPEC" in device.sources["module"]


def test_json_is_json_and_keeps_null():
    _, device = seen("orin-smi-only")
    data = json.loads(json.dumps(device.to_json()))
    assert data["schema_version"] == 1
    assert data["memory_total_bytes"] is None
    assert data["family"] is None
    assert {"code", "topic", "severity", "message", "source"} <= set(data["findings"][0])


def test_a_board_that_is_no_jetson_is_named():
    _, device = seen("raspberry-pi-5")
    assert "Raspberry Pi 5 Model B Rev 1.0" in device.findings[0].message
    assert device.findings[0].severity is Severity.BLOCKING
