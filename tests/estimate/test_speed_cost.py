# SPDX-License-Identifier: Apache-2.0
"""The cost of a round: bytes, overheads, own measurements; expected values worked out by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.device.core import Device
from jetson_specdec.device.tables import module
from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed import (
    Board,
    RoundCost,
    Span,
    SpeedConstants,
    calibrate,
    calibrate_report,
    calibrate_round,
    drafter_passes,
    round_cost,
    target_reads,
)
from jetson_specdec.measurements.core import BenchReport, Conditions, Run
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.core import Head, TargetRecord
from jetson_specdec.models.profile import ModelProfile, profile_from_catalogue, profile_from_config

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
YUHUILI = "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
THOR = Board(bandwidth_gb_s=273.0, family="thor")
SMALL = Head(id="h", target="x", resident_bytes=1)
EXACT = SpeedConstants(
    bandwidth_efficiency=Span.exact(0.5),
    step_overhead_s=Span.exact(0.002),
    draft_pass_overhead_s=Span.exact(0.001),
    round_overhead_s=Span.exact(0.003),
    compute_tflops={"bf16": Span.exact(100.0)},
)


def dense(size=10_000_000_000):
    return ModelProfile(
        weight_bytes=size, weight_bytes_active=size, head_bytes=0, precision="bf16", dtype="bf16", kv_bytes_bf16=100_000
    )


def llama(precision):
    record = Catalog.default().target(LLAMA)
    return profile_from_catalogue(record, precision), record, Catalog.default().head(YUHUILI)


def test_by_hand():
    """10 GB at half of 200 GB/s take 100 ms; 5 · 10⁹ parameters · 2 at 100 TFLOPS take 0.1 ms a position."""
    cost = round_cost(
        dense(), Head(id="h", target="t", resident_bytes=1_000_000_000, kv_bytes_per_token=2_000),
        Board(bandwidth_gb_s=200.0), 2,
        context_tokens=1000, constants=EXACT,
    )  # fmt: skip
    kept = 1000 * 100_000 / 100e9
    assert cost.plain.low == pytest.approx(max(0.1 + kept, 0.0001) + 0.002)
    # A drafter pass: 1 GB in 10 ms, 2 KB for each of 1000 tokens in 0.02 ms, and 1 ms; the products hide behind it.
    plain = 0.1 + kept + 0.002
    assert cost.seconds(1).low == pytest.approx(plain + 0.01102 + 0.003)
    assert cost.seconds(2).low == pytest.approx(plain + 0.02204 + 0.003)
    # In the middle they add: 0.1 ms a position for the target, 0.01 ms a pass for the drafter.
    assert cost.middle.plain == pytest.approx(plain + 0.0001)
    assert cost.middle.rounds[1] == pytest.approx(plain + 3 * 0.0001 + 2 * (0.01102 + 0.00001) + 0.003)
    assert cost.basis == ("bytes",)


def test_sizes_of_the_workshop():
    """Llama-3.1-8B with its head: 8 KV heads of 128 in bf16 are 4096 bytes a layer and token; the head is 0.79 GiB."""
    profile, record, head = llama("bf16")
    reads = target_reads(profile, record)
    assert reads.kv_bytes_per_token == 32 * 4096
    assert head.resident_bytes / 2**30 == pytest.approx(0.79, abs=0.005)
    # Read per token: everything but the embedding of 128256 · 4096 numbers.
    assert reads.weights(1) == Span.exact(16060522496 - 128256 * 4096 * 2)


def test_a_quantised_target_makes_the_head_weigh_more():
    wide = {p: round_cost(llama(p)[0], llama(p)[2], THOR, 5, record=llama(p)[1]) for p in ("bf16", "nvfp4")}
    # 849 387 520 of 15.01 GB, and of 4.98 GB (6 027 747 328 less the embedding).
    assert wide["bf16"].draft_ratio == pytest.approx(849387520 / 15009849344)
    assert wide["nvfp4"].draft_ratio == pytest.approx(849387520 / (6027747328 - 1050673152))
    assert wide["nvfp4"].draft_ratio_bf16 == pytest.approx(wide["bf16"].draft_ratio)
    assert wide["nvfp4"].relative(5).low > wide["bf16"].relative(5).high
    assert [f.code for f in wide["nvfp4"].findings if f.topic == "head-weight"] == ["JSD433"]
    assert not [f for f in wide["bf16"].findings if f.topic == "head-weight"]


def test_a_lower_power_mode_is_slower():
    orin = module("agx-orin-64gb")
    slow = min(mode.bandwidth_gb_s for mode in orin.power_modes if mode.bandwidth_gb_s)
    profile, record, head = llama("w4a16")
    full = round_cost(profile, head, Board(bandwidth_gb_s=orin.bandwidth_gb_s, family="agx_orin"), 3, record=record)
    less = round_cost(profile, head, Board(bandwidth_gb_s=slow, family="agx_orin"), 3, record=record)
    assert slow < orin.bandwidth_gb_s
    assert less.plain.low > full.plain.low
    assert less.plain.high > full.plain.high


def test_board_takes_the_bandwidth_of_the_power_mode():
    device = Device(family="agx_orin", power_mode="MODE_30W", memory_bandwidth_gb_s=102.4)
    assert Board.of(device) == Board(bandwidth_gb_s=102.4, family="agx_orin", power_mode="MODE_30W")


@given(st.floats(5, 500), st.integers(1, 8))
def test_a_baseline_is_reproduced(tpot_ms, batch):
    profile, record, head = llama("bf16")
    cost = round_cost(
        profile, head, THOR, 4, batch=batch, record=record, calibration=calibrate(baseline_tpot_ms=tpot_ms, batch=batch)
    )
    assert cost.plain.low == pytest.approx(tpot_ms / 1e3)
    assert cost.plain.high == pytest.approx(tpot_ms / 1e3)
    assert cost.basis == ("bytes", "baseline")
    assert all(cost.relative(k).low >= 1 for k in cost.covered())


def test_a_baseline_narrows_the_range():
    profile, record, head = llama("nvfp4")
    blind = round_cost(profile, head, THOR, 5, record=record)
    known = round_cost(profile, head, THOR, 5, record=record, calibration=calibrate(baseline_tpot_ms=24.0))
    assert known.relative(5).high - known.relative(5).low < blind.relative(5).high - blind.relative(5).low


def test_a_baseline_at_another_batch_is_worth_less():
    profile, record, head = llama("bf16")
    one = calibrate(baseline_tpot_ms=70.0)
    assert round_cost(profile, head, THOR, 3, record=record, calibration=one).confidence == "medium"
    eight = round_cost(profile, head, THOR, 3, record=record, calibration=one, batch=8)
    assert eight.confidence == "low"
    # Eight requests add their keys and values (0 to 2048 tokens of 128 KiB each) and products to the same weights.
    assert 0.07 <= eight.plain.low < eight.plain.high < 0.1


def test_a_baseline_faster_than_the_memory_is_said():
    """Llama-3.1-8B in bf16 reads 15 GB a step: below 55 ms is impossible at 273 GB/s."""
    profile, record, head = llama("bf16")
    cost = round_cost(profile, head, THOR, 3, record=record, calibration=calibrate(baseline_tpot_ms=20.0))
    assert "calibration-implausible" in [f.topic for f in cost.findings]


def test_two_points_of_a_published_pair():
    """vLLM PR 16035: 128.6 tok/s; k = 2: 175.5 with length 1.89; k = 4: 165.7 with 2.08. Costs 1.385 and 1.614."""
    calibration = calibrate(baseline_tpot_ms=1e3 / 128.6)
    four = calibrate_round(calibration, tpot_on_ms=1e3 / 165.7, mean_length=2.08, k=4)
    cost = round_cost(None, None, Board(bandwidth_gb_s=None), 4, calibration=four)
    assert cost.middle.relative(4) == pytest.approx(1.614, abs=0.0005)
    assert 1.385 in cost.relative(2)
    assert cost.middle.relative(2) == pytest.approx(1.385, rel=0.03)
    assert cost.basis == ("baseline", "round")
    two = calibrate_round(calibration, tpot_on_ms=1e3 / 175.5, mean_length=1.89, k=2)
    again = round_cost(None, None, Board(bandwidth_gb_s=None), 4, calibration=two)
    assert again.middle.relative(2) == pytest.approx(1.385, abs=0.0005)


def test_a_round_cannot_be_cheaper_than_a_step():
    calibration = calibrate_round(calibrate(baseline_tpot_ms=20.0), tpot_on_ms=8.0, mean_length=2.0, k=3)
    cost = round_cost(None, None, THOR, 3, calibration=calibration)
    assert [f.code for f in cost.findings] == ["JSD438"]


@pytest.mark.parametrize(
    ("target", "draft", "board", "missing"),
    [
        (None, None, THOR, ("target-size", "draft-size")),
        (ModelProfile(id="x"), SMALL, THOR, ("target-size",)),
        (dense(), Head(id="h", target="x"), THOR, ("draft-size",)),
        (dense(), SMALL, Board(bandwidth_gb_s=None, family="thor"), ("bandwidth",)),
        (dense(), SMALL, Board(bandwidth_gb_s=68.0, family="orin_nano"), ("constants",)),
    ],
)  # fmt: skip
def test_unknown_stays_unknown(target, draft, board, missing):
    cost = round_cost(target, draft, board, 3)
    assert cost.state == "unknown"
    assert cost.missing == missing
    assert cost.relative(1) is None
    assert cost.plain is None
    assert [f.code for f in cost.findings] == ["JSD434"]


def test_a_context_of_unknown_keys_and_values():
    """Where the target's are not known there is no answer; the drafter's are a range up to the target's."""
    head = Head(id="h", target="x", resident_bytes=1_000_000_000)
    nameless = ModelProfile(weight_bytes=10_000_000_000, weight_bytes_active=10_000_000_000, precision="bf16")
    board = Board(bandwidth_gb_s=200.0)
    unknown = round_cost(nameless, head, board, 2, constants=EXACT, context_tokens=1000)
    assert (unknown.state, unknown.missing) == ("unknown", ("target-kv",))
    assert round_cost(nameless, head, board, 2, constants=EXACT, context_tokens=0).state == "known"

    found = round_cost(dense(), head, board, 2, constants=EXACT, context_tokens=1000)
    assert [finding.code for finding in found.findings if finding.code == "JSD446"] == ["JSD446"]
    # A step of 100 + 1 + 2 ms, two passes of 10 + 1 ms, 3 ms a round; 100 KB for each of 1000 tokens are 1 ms a pass.
    assert found.seconds(2).low == pytest.approx(0.103 + 2 * 0.011 + 0.003)
    assert found.seconds(2).high == pytest.approx(0.103 + 2 * 0.012 + 0.003)


def test_mixture_of_experts_from_its_config():
    """128 experts, 8 for a token: 8 independent tokens meet 128 · (1 − (15/16)⁸) of them at most, 8 at least."""
    config = {
        "model_type": "qwen3_moe", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
        "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "torch_dtype": "bfloat16",
    }  # fmt: skip
    reads = target_reads(profile_from_config(config))
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    assert reads.weights(1).high - reads.weights(1).low == pytest.approx(0)
    rest = reads.weights(1).low - experts / 16
    assert reads.weights(8).low == pytest.approx(rest + experts / 16)
    assert reads.weights(8).high == pytest.approx(rest + experts * (1 - (15 / 16) ** 8))


def test_mixture_of_experts_without_the_number_of_experts():
    record = TargetRecord(
        id="m", moe=True, params_total=30_000, params_active=3_000, weight_bytes={"bf16": 60_000}, hidden_size=10,
        vocab_size=10,
    )  # fmt: skip
    reads = target_reads(profile_from_catalogue(record), record)
    assert reads.weights(1) == Span.exact(6_000)
    # The output projection (200 bytes) is read once; the rest at most once a token.
    assert reads.weights(4) == Span(6_000, 200 + 5_800 * 4)
    assert reads.weights(1000).high == 60_000 - 200


@pytest.mark.parametrize(
    ("method", "parallel", "passes"),
    [("eagle3", False, 4), ("draft_model", False, 4), ("mtp", False, 4), ("dflash", False, 1), ("ngram", False, 0),
     ("draft_model", True, 1)],
)  # fmt: skip
def test_passes(method, parallel, passes):
    assert drafter_passes(method, 4, parallel=parallel) == passes


def test_calibration_from_a_report():
    report = BenchReport(runs=(Run(concurrency=1, tpot_ms_p50=20.0), Run(concurrency=8, tpot_ms_p50=34.0)))
    calibration = calibrate_report(report)
    assert calibration.plain == {1: 0.02, 8: 0.034}
    assert calibration.plain_at(4) == pytest.approx(0.02 + 0.014 * 3 / 7)
    assert calibration.plain_at(16) is None
    assert json.loads(json.dumps(calibration.to_json()))["plain_tpot_ms"] == {"1": 20.0, "8": 34.0}


def test_a_speculating_server_is_no_baseline():
    runs = (Run(concurrency=1, tpot_ms_p50=20.0),)
    assert calibrate_report(BenchReport(runs=runs, conditions=Conditions(speculation=True))) is None
    assert calibrate_report(BenchReport(runs=(Run(concurrency=1),))) is None


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True])
def test_bad_times(value):
    with pytest.raises(OptionError):
        calibrate(baseline_tpot_ms=value)


def test_a_length_that_k_cannot_have():
    with pytest.raises(OptionError):
        calibrate_round(calibrate(baseline_tpot_ms=20), tpot_on_ms=10, mean_length=4.5, k=3)


def test_json_holds_everything():
    profile, record, head = llama("nvfp4")
    data = json.loads(json.dumps(round_cost(profile, head, THOR, 3, record=record).to_json(), allow_nan=False))
    assert [row["k"] for row in data["rounds"]] == [1, 2, 3]
    assert {term["name"] for term in data["terms"]} == {"target_step", "draft_pass", "verify_extra", "round_overhead"}
    assert all(term["source"] and term["confidence"] for term in data["terms"])


def test_given_refuses_nonsense():
    with pytest.raises(OptionError):
        RoundCost.given([])
    with pytest.raises(OptionError):
        RoundCost.given([0.0])
