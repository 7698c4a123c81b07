# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec catalog TARGET` on a board: does each drafter fit, and what must it yield."""

from __future__ import annotations

import json

import pytest

from jetson_specdec.cli import main


def fit(capsys, target, *words):
    assert main(["catalog", target, "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_every_drafter_gets_a_row_and_heads_cost_less_than_drafts(capsys):
    found = fit(
        capsys, "meta-llama/Llama-3.1-8B-Instruct", "--device", "agx-orin-64gb", "--l4t", "39.2.0",
        "--max-model-len", "8192", "--max-num-seqs", "4", "--gpu-memory-utilization", "0.8",
    )  # fmt: skip
    rows = {row["drafter"]: row for row in found["fit"]}
    assert set(rows) == {head["id"] for head in found["heads"]} | {pair["draft"] for pair in found["drafts"]}
    head = rows["RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3"]
    draft = rows["meta-llama/Llama-3.2-1B-Instruct"]
    assert head["fits"] is draft["fits"] is True
    assert head["utilization"] == pytest.approx(0.75)
    assert 0 < head["tokens_lost"] < draft["tokens_lost"]
    assert found["k"] == 3


def test_what_does_not_fit_says_so(capsys):
    # 70 B parameters in bf16 are about 131 GiB, twice what the board has
    found = fit(capsys, "meta-llama/Llama-3.3-70B-Instruct", "--device", "agx-orin-64gb", "--l4t", "39.2.0")
    assert found["fit"]
    assert all(row["fits"] is False for row in found["fit"])


def test_a_board_of_unknown_memory_leaves_the_fit_unknown(capsys, tmp_path):
    (tmp_path / "root").mkdir()
    found = fit(capsys, "Qwen/Qwen3-8B", "--recorded", str(tmp_path))
    assert all(row["fits"] is None and row["kv_tokens"] is None for row in found["fit"])


def test_the_table_for_a_person(capsys):
    assert main(["catalog", "Qwen/Qwen3-8B", "--device", "thor-t5000", "--max-model-len", "8192"]) == 0
    out = capsys.readouterr().out
    assert "Fit on thor-t5000 with k = 5" in out
    assert "tokens of context" in out


@pytest.mark.parametrize("value", ["0", "1.2", "-0.5"])
def test_absurd_utilisations_are_one_line(capsys, value):
    words = ["catalog", "Qwen/Qwen3-8B", "--device", "thor-t5000", f"--gpu-memory-utilization={value}"]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
