# SPDX-License-Identifier: Apache-2.0
"""What runs when a tune is over (`--leave`): measured in virtual time, taken down and started for real."""

from __future__ import annotations

import pytest

from jetson_specdec.errors import OptionError
from jetson_specdec.tune import TuneSettings

GOOD = {"step_ms": 30.0, "draft_ms": 1.0, "verify_ms": 0.05, "acceptance": (0.8, 0.66, 0.55, 0.45, 0.37), "noise": 0.01}
FEW = {"concurrency": (1,), "num_prompts": 5, "output_len": 32}


def codes(result):
    return [finding.code for finding in result.findings]


@pytest.fixture
def run(lab, real):
    def make(kind, leave):
        if kind == "process":
            real.serve()
        else:
            real.command(*real.managed(kind))
            real.until(real.answers)
        before = real.recipe.read_bytes()
        here = lab(board=real, **GOOD)
        result = here.tune(settings=TuneSettings(leave=leave, **FEW))
        assert result.outcome == "enable"
        assert real.recipe.read_bytes() == before
        assert list(real.state.iterdir()) == []
        return real, result

    return make


def test_the_result_of_a_process(run):
    board, result = run("process", "result")
    (pid,) = board.until(board.speculating)
    assert board.servers() == [pid]
    assert board.marked() == []
    assert "JSD974" in codes(result)


def test_the_result_of_a_container_while_the_old_one_waits(run):
    board, result = run("container", "result")
    kept = board.kept()
    (waits,) = set(kept) - {"llm"}
    assert kept["llm"]["running"]
    assert "--speculative-config" in kept["llm"]["argv"]
    assert not kept[waits]["running"]
    assert kept[waits]["restart"] == "no"  # after a boot it would be in the way
    told = next(finding for finding in result.findings if finding.code == "JSD995")
    assert f"docker rm {waits}" in told.message


def test_the_result_of_a_container_that_its_stop_removes(run):
    board, result = run("vanishing", "result")
    kept = board.kept()
    assert set(kept) == {"llm"}
    assert kept["llm"]["running"]
    assert "--speculative-config" in kept["llm"]["argv"]
    assert "JSD995" not in codes(result)


def test_the_result_of_a_compose_service(run):
    board, _ = run("compose", "result")
    kept = board.kept()
    assert set(kept) == {"stack-llm-1"}
    assert kept["stack-llm-1"]["running"]
    assert "--speculative-config" in kept["stack-llm-1"]["argv"]
    assert kept["stack-llm-1"]["restart"] == "unless-stopped"
    assert "jetson-specdec.run" not in kept["stack-llm-1"]["labels"]


def test_a_container_that_stays_stopped_has_its_name_back(run):
    board, _ = run("container", "stopped")
    kept = board.kept()
    assert list(kept) == ["llm"]
    assert not kept["llm"]["running"]
    assert kept["llm"]["restart"] == "unless-stopped"


def test_the_result_stays_where_nothing_ran_before(lab, real):
    here = lab(board=real, **GOOD)
    assert here.tune(settings=TuneSettings(leave="result", **FEW)).outcome == "enable"
    assert len(real.until(real.speculating)) == 1
    assert list(real.state.iterdir()) == []


def test_a_unit_is_refused_before_anything_is_touched(lab, real):
    real.command(*real.managed("unit"))
    real.until(real.answers)
    before = real.kept()
    here = lab(board=real, **GOOD)
    with pytest.raises(OptionError, match="apply") as caught:
        here.tune(settings=TuneSettings(leave="result", **FEW))
    assert caught.value.code == "JSE962"
    assert real.kept() == before
    assert here.launches == []
    assert not real.state.exists()


def test_a_change_in_another_file_is_refused_before_anything_is_touched(lab, real):
    (real.folder / "vllm.yaml").write_text("gpu-memory-utilization: 0.8\n")
    real.recipe.write_text(f"vllm serve Qwen/Qwen3-8B --port {real.port} --config vllm.yaml\n")
    here = lab(board=real, **GOOD)
    with pytest.raises(OptionError, match=r"vllm\.yaml") as caught:
        here.tune(settings=TuneSettings(leave="result", **FEW))
    assert caught.value.code == "JSE963"
    assert here.launches == []
