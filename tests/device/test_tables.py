# SPDX-License-Identifier: Apache-2.0
"""The facts: complete, with sources, and consistent with what is known independently."""

from __future__ import annotations

import json
from importlib import resources

import pytest

from jetson_specdec.device import families, jetpack_of, modules
from jetson_specdec.device.tables import fits_memory, modules_by_memory
from jetson_specdec.messages import all_codes, explain

BOARDS = json.loads(resources.files("jetson_specdec.device").joinpath("data").joinpath("modules.json").read_text())
RELEASES = json.loads(resources.files("jetson_specdec.device").joinpath("data").joinpath("l4t.json").read_text())
SURE = {"high", "medium", "low"}


@pytest.mark.parametrize("table", ["families", "older_families", "modules"])
def test_every_board_entry_names_known_sources_and_a_confidence(table):
    for entry in BOARDS[table]:
        assert entry["confidence"] in SURE
        assert entry["source"]
        assert set(entry["source"]) <= set(BOARDS["sources"])


def test_every_release_names_known_sources_and_a_confidence():
    for table in ("majors", "releases", "known_problems"):
        for entry in RELEASES[table].values():
            assert entry["confidence"] in SURE
            assert entry["source"]
            assert set(entry["source"]) <= set(RELEASES["sources"])


def test_releases_are_written_in_one_way():
    for l4t, entry in RELEASES["releases"].items():
        assert [str(int(part)) for part in l4t.split(".")] == l4t.split(".")
        assert len(l4t.split(".")) == 3
        assert "GA" not in entry["jetpack"]
        assert l4t.split(".")[0] in RELEASES["majors"]


@pytest.mark.parametrize(
    ("l4t", "jetpack"),
    [
        ("39.2.0", "7.2"),
        ("38.4.0", "7.1"),
        ("38.2.0", "7.0"),
        ("36.5.0", "6.2.2"),
        ("36.4.7", "6.2.1"),
        ("36.4.3", "6.2"),
        ("36.4.0", "6.1"),
        ("36.3.0", "6.0"),
        ("35.4.1", "5.1.2"),
    ],
)
def test_jetpack_names(l4t, jetpack):
    assert jetpack_of(l4t) == (jetpack, "high")


def test_an_unknown_release_has_no_name():
    assert jetpack_of("36.9.9") is None


@pytest.mark.parametrize("entry", modules().values(), ids=lambda entry: entry.key)
def test_memory_that_was_seen_fits_the_module_and_no_other_of_its_family(entry):
    for kib in entry.mem_total_kib_seen:
        assert fits_memory(entry, kib * 1024)
        assert modules_by_memory(entry.family, kib * 1024) == (entry,)


# MHz of the memory clock, bits of the bus: from the modules' data sheets.
@pytest.mark.parametrize(
    ("key", "mhz", "bits"),
    [
        ("thor-t5000", 4266, 256),
        ("agx-orin-64gb", 3200, 256),
        ("agx-orin-32gb", 3200, 256),
        ("orin-nx-16gb", 3200, 128),
        ("orin-nx-8gb", 3200, 128),
        ("orin-nano-8gb", 2133, 128),
        ("orin-nano-4gb", 2133, 64),
    ],
)
def test_bandwidth_is_clock_times_bus(key, mhz, bits):
    assert modules()[key].bandwidth_gb_s == pytest.approx(mhz * 2 * bits / 8 / 1000, abs=0.15)


def test_bandwidth_in_a_mode():
    nano, agx = modules()["orin-nano-8gb"], modules()["agx-orin-64gb"]
    assert nano.bandwidth_in("MAXN_SUPER") == pytest.approx(102.4, abs=0.1)
    assert nano.bandwidth_in("15W") == pytest.approx(68.3, abs=0.1)
    assert nano.bandwidth_in("a mode nobody knows") == nano.bandwidth_gb_s
    assert agx.bandwidth_in("MODE_15W") == pytest.approx(2133 * 2 * 256 / 8 / 1000, abs=0.1)
    assert agx.bandwidth_in(None) == agx.bandwidth_gb_s


def test_part_numbers_name_one_module_each():
    numbers = [number for entry in modules().values() for number in entry.part_numbers]
    assert len(numbers) == len(set(numbers))
    assert "p3701-0000" not in numbers


def test_every_module_has_a_family():
    assert {entry.family for entry in modules().values()} <= set(families())


def test_every_code_of_this_room_is_explained():
    codes = [code for code in all_codes() if code.startswith("JSD1")]
    assert codes
    short = [code for code in codes if not explain(code)]
    assert set(short) <= {"JSD172", "JSD174", "JSD175"}
