# SPDX-License-Identifier: Apache-2.0
"""The estimate against published measurements; `python tests/estimate/test_speed_measured.py` prints the tables of
`docs/speed.md`, and a test holds the page to them.

The rows on Jetson are of another engine (TensorRT Edge-LLM), so its constants are fitted first: per board and precision
the bandwidth and the overhead of a step from plain decoding at batch 1 (release 0.9.0), and the rate of products from
one speculative row (Qwen3-8B, EAGLE-3, 0.9.0, the largest batch). Everything else is predicted; no row that
was fitted counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from jetson_specdec.device.tables import module
from jetson_specdec.estimate.speed import (
    Board,
    Span,
    SpeedConstants,
    calibrate,
    outlook,
    round_cost,
    target_reads,
)
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.profile import ModelProfile, profile_from_catalogue

DATA = Path(__file__).parents[1] / "data" / "estimate"
DOCS = Path(__file__).parents[2] / "docs" / "speed.md"
TREE_STEPS, TREE_POSITIONS = 6, 60
SCALED = {"nvfp4": 4.5 / 16, "w4a16": 4.25 / 16}
"""The drafter there is quantised like the base: bits of a weight with its scale, against 16."""
FITTED_ON = ("0.9.0", "Qwen3-8B", "eagle3")
DRAFT_PASS_S = 0.0003
CONTEXT = 300


def load(name):
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def profile(model, precision):
    record = Catalog.default().target(model)
    return profile_from_catalogue(record, precision), record


def bytes_of(model, precision):
    return target_reads(*profile(model, precision)).weights(1).mid


def board(key, family="none"):
    return Board(bandwidth_gb_s=module(key).bandwidth_gb_s, family=family)


def line_through(points):
    """Least squares of seconds = slope · bytes + rest in relative error: two normal equations."""
    rows = [(size / seconds, 1 / seconds) for size, seconds in points]
    aa, ab = sum(x * x for x, _ in rows), sum(x * y for x, y in rows)
    bb, a1, b1 = sum(y * y for _, y in rows), sum(x for x, _ in rows), sum(y for _, y in rows)
    determinant = aa * bb - ab * ab
    return (a1 * bb - b1 * ab) / determinant, (aa * b1 - ab * a1) / determinant


def fit(data):
    """Return constants per (module, precision)."""
    found = {}
    for key in sorted({(row["module"], row["precision"]) for row in data["plain"]}):
        points = [
            (bytes_of(row["text_model"], row["precision"]), row["batch"] / row["decode_tok_s"])
            for row in data["plain"]
            if (row["module"], row["precision"], row["batch"]) == (*key, 1) and "A3B" not in row["model"]
        ]
        spec = [
            row
            for row in data["speculative"]
            if (row["release"], row["model"], row["method"]) == FITTED_ON
            and (row["module"], row["precision"]) == key
        ]  # fmt: skip
        if len(points) < 3 or not spec:
            continue
        slope, rest = line_through(points)
        rate, step = 1 / slope, max(rest, 0.0)
        row = max(spec, key=lambda each: each["batch"])
        drafts = TREE_STEPS * (data["head_bf16_bytes"][row["model"]] * SCALED[key[1]] / rate + DRAFT_PASS_S)
        whole = row["batch"] * row["accept_len"] / row["spec_tok_s"]
        left = whole - bytes_of(row["text_model"], key[1]) / rate - step - drafts
        reads = target_reads(*profile(row["text_model"], key[1]))
        tflops = 2 * reads.parameters.mid * TREE_POSITIONS * row["batch"] / left / 1e12
        found[key] = SpeedConstants(
            bandwidth_efficiency=Span.exact(rate / 1e9 / module(key[0]).bandwidth_gb_s),
            step_overhead_s=Span.exact(step),
            draft_pass_overhead_s=Span.exact(DRAFT_PASS_S),
            round_overhead_s=Span.exact(0.0),
            compute_tflops={key[1]: Span.exact(tflops), "bf16": Span.exact(tflops)},
        )
    return found


def fitted_row(row, data):
    same = (row["release"], row["model"], row["method"]) == FITTED_ON
    largest = max(
        (
            each["batch"]
            for each in data["speculative"]
            if (each["release"], each["model"], each["method"]) == FITTED_ON
            and (each["module"], each["precision"]) == (row["module"], row["precision"])
        ),
        default=None,
    )
    return same and row["batch"] == largest


def predictions():
    """Return every predicted EAGLE-3 row: (row, measured speed-up, predicted with the measured plain step, without)."""
    data = load("edge_llm.json")
    constants = fit(data)
    for row in data["speculative"]:
        key = (row["module"], row["precision"])
        if row["method"] != "eagle3" or key not in constants or fitted_row(row, data):
            continue
        target, record = profile(row["text_model"], row["precision"])
        size = round(data["head_bf16_bytes"][row["model"]] * SCALED[row["precision"]])
        one_layer = target.kv_bytes_bf16 // target.layers
        draft = ModelProfile(
            weight_bytes=size, weight_bytes_active=size, precision=row["precision"], dtype="bf16",
            kv_bytes_bf16=one_layer,
        )  # fmt: skip
        plain = calibrate(baseline_tpot_ms=1e3 * row["batch"] / row["plain_tok_s"], batch=row["batch"])
        gains = []
        for calibration in (plain, None):
            cost = round_cost(
                target, draft, board(row["module"]), TREE_STEPS, batch=row["batch"], record=record,
                calibration=calibration, constants=constants[key], context_tokens=CONTEXT, positions=TREE_POSITIONS,
            )  # fmt: skip
            gains.append(row["accept_len"] / cost.middle.relative(TREE_STEPS))
        yield row, row["spec_tok_s"] / row["plain_tok_s"], *gains


def carried_over():
    """Return the speed-up of 0.9.0 as the round cost measured with 0.8.0 and the new acceptance give it."""
    rows = load("edge_llm.json")["speculative"]
    keys = ("module", "model", "method", "precision", "batch")
    old = {tuple(row[key] for key in keys): row for row in rows if row["release"] == "0.8.0"}
    for row in rows:
        before = old.get(tuple(row[key] for key in keys))
        if row["release"] != "0.9.0" or before is None:
            continue
        cost = before["accept_len"] / (before["spec_tok_s"] / before["plain_tok_s"])
        yield row, row["spec_tok_s"] / row["plain_tok_s"], row["accept_len"] / cost


def grouped(found):
    groups = {}
    for row, measured, *predicted in found:
        key = (row["module"], row["precision"], row["method"], row["batch"])
        groups.setdefault(key, []).append((measured, predicted))
    return dict(sorted(groups.items()))


def error(predicted, measured):
    return predicted / measured - 1


def steps():
    """Return (row, measured ms, predicted range, middle) of plain vLLM steps on Jetson boards."""
    for row in load("vllm_jetson.json")["steps"]:
        target, record = profile(row["model"], row["precision"])
        cost = round_cost(
            target, None, board(row["module"], module(row["module"]).family), 1, method="ngram", record=record,
            context_tokens=2112,
        )  # fmt: skip
        yield row, 1e3 / row["tok_s"], cost.plain.scaled(1e3), cost.middle.plain * 1e3


# ------------------------------------------------------------------------------------------------------------- tables


def percent(value):
    return f"{value * 100:+.0f} %"


def table_of_predictions():
    lines = [
        "| board | precision | method | batch | rows | measured speed-up | error, own baseline | error, without "
        "| signs right |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (key, precision, method, batch), found in grouped(predictions()).items():
        measured = [each for each, _ in found]
        with_plain = [error(predicted[0], each) for each, predicted in found]
        without = [error(predicted[1], each) for each, predicted in found]
        signs = sum((predicted[0] > 1) == (each > 1) for each, predicted in found)
        lines.append(
            f"| {key} | {precision} | {method} | {batch} | {len(found)} | {min(measured):.2f} to {max(measured):.2f} "
            f"| {percent(min(with_plain))} to {percent(max(with_plain))} "
            f"| {percent(min(without))} to {percent(max(without))} | {signs} of {len(found)} |"
        )
    return "\n".join(lines)


def table_of_carried():
    lines = [
        "| board | precision | method | batch | rows | measured speed-up | error | signs right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (key, precision, method, batch), found in grouped(carried_over()).items():
        measured = [each for each, _ in found]
        errors = [error(predicted[0], each) for each, predicted in found]
        signs = sum((predicted[0] > 1) == (each > 1) for each, predicted in found)
        lines.append(
            f"| {key} | {precision} | {method} | {batch} | {len(found)} | {min(measured):.2f} to {max(measured):.2f} "
            f"| {percent(min(errors))} to {percent(max(errors))} | {signs} of {len(found)} |"
        )
    return "\n".join(lines)


def table_of_steps():
    lines = [
        "| board | model | measured | predicted range | middle |",
        "|---|---|---|---|---|",
    ]
    for row, measured, span, middle in steps():
        outside = "" if measured in span else " (outside)"
        lines.append(
            f"| {row['module']} | {row['model'].split('/')[-1]} | {measured:.1f} ms "
            f"| {span.low:.1f} to {span.high:.1f} ms{outside} | {percent(error(middle, measured))} |"
        )
    return "\n".join(lines)


TABLES = {
    "predictions": table_of_predictions,
    "carried": table_of_carried,
    "steps": table_of_steps,
}


# -------------------------------------------------------------------------------------------------------------- tests


@pytest.mark.parametrize("name", list(TABLES))
def test_the_page_shows_what_comes_out(name):
    text = DOCS.read_text(encoding="utf-8")
    assert f"<!-- {name} -->\n\n{TABLES[name]()}\n" in text


def test_signs_and_size_of_speculation_on_jetson():
    """With the user's own plain step: every sign right, no row off by more than a quarter, half within 8 %."""
    found = list(predictions())
    errors = [abs(error(predicted, measured)) for _, measured, predicted, _ in found]
    assert len(found) == 35
    assert all((predicted > 1) == (measured > 1) for _, measured, predicted, _ in found)
    assert max(errors) < 0.25
    assert median(errors) < 0.08


def test_without_a_baseline_batches_are_no_use():
    """At batch 8 without the measured step the speed-up of 4-bit weights is underestimated by up to three fifths."""
    found = [(row, measured, blind) for row, measured, _, blind in predictions()]
    alone = [abs(error(blind, measured)) for row, measured, blind in found if row["batch"] == 1]
    eight = [
        error(blind, measured) for row, measured, blind in found if (row["batch"], row["precision"]) == (8, "w4a16")
    ]
    assert max(alone) < 0.25
    assert -0.65 < min(eight) < max(eight) < -0.2


def test_plain_steps_of_vllm():
    """All twelve dense rows lie in the range, the middle within 15 %; the mixture of experts is slower."""
    dense = [each for each in steps() if "A3B" not in each[0]["model"]]
    assert len(dense) == 12
    assert all(measured in span for _, measured, span, _ in dense)
    assert max(abs(error(middle, measured)) for _, measured, _, middle in dense) < 0.15
    (mixture,) = [each for each in steps() if "A3B" in each[0]["model"]]
    assert mixture[1] > mixture[2].high


def test_the_only_speculative_vllm_row():
    """Thor, NVFP4, k = 5: 19.1 → 25.6 tok/s on a long answer; MT-Bench acceptance gives a range with it."""
    runs = {(row["quant"], row["k"]): row["tok_s"] for row in load("vllm_jetson.json")["workshop"] if row["tok_s"] > 15}
    target, record = profile("meta-llama/Llama-3.1-8B-Instruct", "nvfp4")
    head = Catalog.default().head("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    found = outlook(
        target, head, board("thor-t5000", "thor"), k=5, record=record,
        calibration=calibrate(baseline_tpot_ms=1e3 / runs["NVFP4", None]),
    )  # fmt: skip
    chat = next(each for each in found.predictions if each.acceptance.label.startswith("MT-Bench"))
    assert runs["NVFP4", 5] / runs["NVFP4", None] in chat.speedup
    assert chat.sign == "+"


def test_more_tokens_meet_more_experts():
    """Qwen3-30B-A3B, 8 tokens against 1: measured 2.8 to 3.0 times the step; the middle comes within a fifth."""
    data = load("edge_llm.json")
    constants = fit(data)
    rows = {(r["module"], r["precision"], r["batch"]): r for r in data["plain"] if "A3B" in r["model"]}
    ratios = []
    for key in constants:
        if (*key, 8) not in rows:
            continue
        one, eight = (rows[(*key, batch)]["batch"] / rows[(*key, batch)]["decode_tok_s"] for batch in (1, 8))
        target, record = profile("Qwen/Qwen3-30B-A3B", key[1])
        plain = [
            round_cost(
                target,
                None,
                board(key[0]),
                1,
                method="ngram",
                batch=batch,
                record=record,
                constants=constants[key],
                context_tokens=CONTEXT,
            )
            for batch in (1, 8)
        ]
        ratios.append((eight / one, plain[1].middle.plain / plain[0].middle.plain))
        assert eight in Span(plain[1].plain.low, plain[1].plain.high)
    assert len(ratios) == 3
    assert all(2.7 < measured < 3.0 for measured, _ in ratios)
    assert max(abs(error(predicted, measured)) for measured, predicted in ratios) < 0.2


if __name__ == "__main__":
    import sys

    for name, table in TABLES.items():
        sys.stdout.write(f"<!-- {name} -->\n\n{table()}\n\n")
