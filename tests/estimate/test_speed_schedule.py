# SPDX-License-Identifier: Apache-2.0
"""Batch schedules and the outlook of a plan."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.speculative import validate_config
from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed import (
    AcceptanceCurve,
    Board,
    RoundCost,
    batch_schedule,
    calibrate,
    calibrate_round,
    outlook,
    round_cost,
)
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.core import Head
from jetson_specdec.models.profile import profile_from_catalogue


def release(version):
    return EngineRelease(version=version, candidates=(version,), source="named")


NEW = release("0.32.0")
CURVE = AcceptanceCurve.of_positions([0.48, 0.25, 0.15, 0.10, 0.07], kind="measured")
CHEAP = RoundCost.given([1.10, 1.15, 1.2, 1.24, 1.28])
LOADED = RoundCost.given([1.3, 1.7, 2.1, 2.5, 2.9], batch=8)
HEAVY = RoundCost.given([1.9, 2.6, 3.2, 3.9, 4.5], batch=32)


def test_drafts_fall_with_the_batch():
    found = batch_schedule({1: CHEAP, 8: LOADED, 32: HEAVY}, CURVE, release=NEW, ran_k=5, max_num_seqs=256)
    # 1 + Σ ÷ cost: at batch 1 best is 4 (1.98 ÷ 1.24), at 8 only k = 1 pays (1.48 ÷ 1.3), at 32 none does.
    assert found.state == "schedule"
    assert found.config == {
        "num_speculative_tokens": 5 if found.entries[0].k == 5 else 4,
        "num_speculative_tokens_per_batch_size": [[1, 1, found.entries[0].k], [2, 8, 1], [9, 256, 0]],
    }
    gains = {k: (1 + sum(CURVE.per_position[:k])) / (1.10, 1.15, 1.2, 1.24, 1.28)[k - 1] for k in range(1, 6)}
    assert found.entries[0].k == max(gains, key=gains.__getitem__)
    assert [f.code for f in found.findings] == ["JSD441"] * 3


def test_the_engine_accepts_it():
    found = batch_schedule({1: CHEAP, 8: HEAVY}, CURVE, release=NEW, ran_k=5, max_num_seqs=16)
    config = {"method": "eagle3", "model": "org/head", **found.config}
    assert validate_config(config, NEW) == []


def test_releases_without_the_key():
    old = batch_schedule({1: CHEAP, 8: HEAVY}, CURVE, release=release("0.20.0"), ran_k=5, max_num_seqs=16)
    assert old.state == "unsupported"
    assert old.config is None
    assert old.findings[0].code == "JSD442"
    assert old.findings[0].values["since"] == "0.24.0"
    unknown = batch_schedule({1: CHEAP, 8: HEAVY}, CURVE, release=EngineRelease(), ran_k=5, max_num_seqs=16)
    assert unknown.release_supports is None


def test_one_k_for_all():
    found = batch_schedule({1: CHEAP, 8: CHEAP}, CURVE, release=NEW, ran_k=3, max_num_seqs=8)
    assert found.state == "not_needed"
    assert found.config is None


def test_never_pays():
    found = batch_schedule({1: HEAVY, 8: HEAVY}, CURVE, release=NEW, ran_k=3, max_num_seqs=8)
    assert found.state == "never_pays"
    assert [entry.k for entry in found.entries] == [0]


def test_nothing_without_acceptance():
    assert batch_schedule({1: CHEAP}, None, release=NEW, ran_k=3, max_num_seqs=8).state == "unknown"
    with pytest.raises(OptionError):
        batch_schedule({}, CURVE, release=NEW, ran_k=3, max_num_seqs=8)


def test_the_recorded_servers_say_draft_less_at_eight():
    """vLLM 0.32 on two CPU cores, draft model with k = 3: TPOT 27.1 → 19.5 ms at 1, 42.8 → 43.6 ms at 8, length 1.916.

    A run with k = 5 up to batch 2 and k = 1 from 3 on was 5 % faster at concurrency 8 than no speculation.
    """
    curve = AcceptanceCurve.of_positions([0.4888, 0.2612, 0.1660], kind="measured")
    calibration = calibrate(baseline_tpot_ms=27.052)
    calibration = calibrate_round(calibration, tpot_on_ms=19.523, mean_length=1.916, k=3)
    eight = calibrate_round(
        calibrate(baseline_tpot_ms=42.822, batch=8), tpot_on_ms=43.585, mean_length=1.916, k=3, batch=8
    )
    board = Board(bandwidth_gb_s=None)
    costs = {
        1: round_cost(None, None, board, 3, calibration=calibration),
        8: round_cost(None, None, board, 3, batch=8, calibration=eight),
    }
    found = batch_schedule(costs, curve, release=NEW, ran_k=3, max_num_seqs=8)
    assert [(entry.first, entry.last) for entry in found.entries] == [(1, 1), (2, 8)]
    assert found.entries[0].k > found.entries[1].k
    assert found.entries[0].prediction.sign == "+"


@given(
    st.dictionaries(
        st.integers(1, 64), st.lists(st.floats(1, 5), min_size=5, max_size=5).map(sorted), min_size=1, max_size=6
    ),
    st.integers(64, 512),
)
def test_schedules_cover_all_batches_and_never_rise(costs, most):
    found = batch_schedule(
        {size: RoundCost.given(relative, batch=size) for size, relative in costs.items()},
        CURVE, release=NEW, ran_k=5, max_num_seqs=most,
    )  # fmt: skip
    assert found.entries[0].first == 1
    assert found.entries[-1].last == most
    for one, two in zip(found.entries, found.entries[1:], strict=False):
        assert two.first == one.last + 1
        assert two.k < one.k
    if found.config:
        assert found.config["num_speculative_tokens"] == found.entries[0].k
    json.dumps(found.to_json(), allow_nan=False)


# ----------------------------------------------------------------------------------------------------------- outlook


THOR = Board(bandwidth_gb_s=273.0, family="thor")


def test_outlook_of_a_catalogued_pair():
    catalog = Catalog.default()
    record = catalog.target("meta-llama/Llama-3.1-8B-Instruct")
    head = catalog.head("RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3")
    found = outlook(profile_from_catalogue(record, "bf16"), head, THOR, k=5, record=record)
    assert [row.k for row in found.break_even.rows] == [1, 2, 3, 4, 5, 6, 7]
    assert found.known
    # Published with k = 3 only: 2.6049 tokens; at k = 5 no less, and the last chance continued at most.
    (prediction,) = found.predictions
    last = 0.3545 / 0.5208
    assert prediction.tokens.low == pytest.approx(2.6049)
    assert prediction.tokens.high == pytest.approx(2.6049 + 0.3545 * (last + last**2))
    assert {f.code for f in found.findings} >= {"JSD430", "JSD436", "JSD444"}
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert data["speedup"]["low"] < data["speedup"]["high"]
    assert data["break_even"]["rows"][4]["k"] == 5


def test_outlook_without_published_acceptance():
    record = Catalog.default().target("meta-llama/Llama-3.1-8B-Instruct")
    head = Head(id="org/head", target=record.id, resident_bytes=849387520)
    found = outlook(profile_from_catalogue(record, "bf16"), head, THOR, k=5, record=record)
    assert found.predictions == ()
    assert found.speedup is None
    assert len(found.break_even.rows) == 7
    assert "JSD431" in [f.code for f in found.findings]


def test_outlook_of_the_unknown():
    found = outlook(None, None, Board(bandwidth_gb_s=None), k=3)
    assert not found.known
    assert found.speedup is None
    assert [f.code for f in found.findings] == ["JSD434"]
    assert found.findings[0].message
