# SPDX-License-Identifier: Apache-2.0
"""A board given by name, an audit, or both: nothing of this machine may leak in."""

from __future__ import annotations

import pytest

from jetson_specdec.device import detect, families, known_names, modules, resolve_name, runtime_for, speculation_for
from jetson_specdec.errors import DeviceError


class Untouchable:
    """A host that must not be asked anything."""

    live = True

    def __getattr__(self, name):
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("key", list(modules()))
def test_every_module_can_be_named(key):
    device = detect(Untouchable(), named=key)
    assert (device.module, device.family) == (key, modules()[key].family)
    assert device.is_jetson is True
    assert "detector-failed" not in {finding.topic for finding in device.findings}


@pytest.mark.parametrize(
    ("name", "module", "family"),
    [
        ("thor", None, "thor"),
        ("Jetson AGX Thor Developer Kit", "thor-t5000", "thor"),
        ("T4000", "thor-t4000", "thor"),
        ("agx-orin", None, "agx_orin"),
        ("AGX Orin 64GB", "agx-orin-64gb", "agx_orin"),
        ("NVIDIA Jetson AGX Orin 32 GB", "agx-orin-32gb", "agx_orin"),
        ("orin-agx-64gb", "agx-orin-64gb", "agx_orin"),
        ("Jetson AGX Orin Developer Kit", None, "agx_orin"),
        ("AGX Orin 64GB Developer Kit", "agx-orin-64gb", "agx_orin"),
        ("orin_nx_16gb", "orin-nx-16gb", "orin_nx"),
        ("Orin NX 8", "orin-nx-8gb", "orin_nx"),
        ("orin-nano", None, "orin_nano"),
        ("Jetson Orin Nano Super Developer Kit", "orin-nano-8gb", "orin_nano"),
        ("xavier nx", None, "xavier_nx"),
    ],
)
def test_names_as_people_type_them(name, module, family):
    assert resolve_name(name) == (module, family)


@pytest.mark.parametrize("name", ["", "rtx4090", "jetson nano", "orin", "agx-orin-48gb", "\n"])
def test_unknown_names_are_refused_with_the_known_ones(name):
    with pytest.raises(DeviceError) as caught:
        detect(named=name)
    assert all(known in str(caught.value) for known in known_names())


def test_a_near_miss_is_suggested():
    with pytest.raises(DeviceError, match="did you mean 'thor-t5000'"):
        resolve_name("thor-t500")


def test_a_family_leaves_the_module_open():
    device = detect(Untouchable(), named="agx-orin", l4t="r36.4.4")
    assert (device.module, device.memory_total_bytes) == (None, None)
    assert {"module-unknown", "memory-unknown"} <= {finding.topic for finding in device.findings}
    assert (device.speculation_allowed, device.runtime) == ("eagle3_and_draft", "nvidia_ai_iot")


def test_memory_of_a_named_module_is_one_that_was_seen():
    device = detect(Untouchable(), named="thor-t5000", l4t="38.4")
    assert device.memory_total_bytes == 125772 * 2**20
    assert device.confidence["memory_total_bytes"] == "medium"
    assert "table" in device.sources["memory_total_bytes"]
    assert (device.l4t, device.jetpack) == ("38.4.0", "7.1")


def test_memory_that_was_never_seen_stays_unknown():
    assert detect(Untouchable(), named="thor-t4000").memory_total_bytes is None


def test_an_announced_module_is_marked():
    device = detect(Untouchable(), named="thor-t3000")
    assert "announced-only" in {finding.topic for finding in device.findings}


@pytest.mark.parametrize("l4t", ["6.2", "thirty-six", "36"])
def test_a_wrong_release_is_refused(l4t):
    with pytest.raises(DeviceError):
        detect(named="thor", l4t=l4t)


ORINS = ("agx_orin", "orin_nx", "orin_nano", "igx_orin")


@pytest.mark.parametrize("family", ORINS)
@pytest.mark.parametrize(
    ("l4t", "runtime"),
    [
        ("39.2.0", "upstream_vllm"),
        ("40.1.0", "upstream_vllm"),
        ("38.4.0", "unknown"),
        ("36.4.7", "nvidia_ai_iot"),
        ("36.2.0", "nvidia_ai_iot"),
        ("35.6.5", "unsupported"),
        ("32.7.1", "unsupported"),
        (None, "unknown"),
    ],
)
def test_the_release_decides_the_runtime_of_an_orin(family, l4t, runtime):
    assert runtime_for(family, l4t) == runtime


@pytest.mark.parametrize("l4t", ["39.2.0", "38.2.0", None])
def test_thor_runs_upstream_whatever_its_release(l4t):
    assert runtime_for("thor", l4t) == "upstream_vllm"


@pytest.mark.parametrize("family", ["agx_xavier", "xavier_nx"])
def test_nothing_runs_on_xavier(family):
    assert (runtime_for(family, None), speculation_for(family)) == ("unsupported", "no")


def test_rules_by_family():
    allowed = {key for key in families() if speculation_for(key) == "eagle3_and_draft"}
    assert allowed == {"thor", "agx_orin", "igx_orin"}
    assert (speculation_for(None), runtime_for(None, "36.4.7")) == ("unknown", "unknown")


AUDIT = {
    "sku": "orin-agx",
    "generation": "orin",
    "product_line": "orin-agx",
    "variant": "orin-agx-64gb",
    "mem_total_gb": 61,
    "l4t_version": "36.4.4",
    "product_model": "nvidia jetson agx orin developer kit",
    "memory_kb": {"total": 64349016, "available": 50000000, "free": 1, "cached": 2, "swap_total": 0, "swap_free": 0},
}


def test_an_audit_describes_a_board_elsewhere():
    device = detect(Untouchable(), audit=AUDIT)
    assert (device.module, device.family, device.l4t) == ("agx-orin-64gb", "agx_orin", "36.4.4")
    assert device.memory_total_bytes == 64349016 * 1024
    assert device.memory_available_bytes == 50000000 * 1024
    assert device.runtime == "nvidia_ai_iot"


def test_the_rounded_memory_of_an_audit_counts_least():
    audit = {key: value for key, value in AUDIT.items() if key != "memory_kb"}
    device = detect(audit=audit)
    assert device.memory_total_bytes == 61 * 2**30
    assert device.confidence["memory_total_bytes"] == "low"


@pytest.mark.parametrize("missing", list(AUDIT))
def test_any_value_of_an_audit_may_be_missing(missing):
    for value in (None, "unknown", [], {"total": "x"}, True, -1):
        device = detect(audit={**AUDIT, missing: value})
        assert device.family == "agx_orin"
        assert "detector-failed" not in {finding.topic for finding in device.findings}


def test_an_empty_audit_tells_nothing():
    device = detect(audit={})
    assert (device.is_jetson, device.family, device.memory_total_bytes) == (None, None, None)


@pytest.mark.parametrize("audit", [[], "text", 3])
def test_an_audit_that_is_no_object_is_refused(audit):
    with pytest.raises(DeviceError, match="JSON object"):
        detect(audit=audit)


def test_a_name_wins_over_an_audit_and_keeps_its_memory():
    device = detect(named="agx-orin-32gb", audit={"memory_kb": {"total": 31000000}, "l4t_version": "36.4.3"})
    assert (device.module, device.l4t) == ("agx-orin-32gb", "36.4.3")
    assert device.memory_total_bytes == 31000000 * 1024
