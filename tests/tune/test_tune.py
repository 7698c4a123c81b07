# SPDX-License-Identifier: Apache-2.0
"""The whole loop in virtual time: what is measured in which order, what comes out, and what is left when it breaks."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time

import pytest
from attrs import evolve
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.errors import DeclinedError, EndpointError, InTheWayError, OutputError, ReportError
from jetson_specdec.gate import Verdict
from jetson_specdec.policy import Policy
from jetson_specdec.server import Occupant
from jetson_specdec.testing import Memory
from jetson_specdec.tune import Evidence, TuneResult, TuneSettings, rejudge
from jetson_specdec.tune import evidence as evidence_module
from jetson_specdec.tune.watching import reference_from

GOOD = {"step_ms": 30.0, "draft_ms": 1.0, "verify_ms": 0.05, "acceptance": (0.8, 0.66, 0.55, 0.45, 0.37), "noise": 0.01}
EIGHT_LOSES = {
    "step_ms": 30.0, "draft_ms": 0.6, "verify_ms": 5.0, "batch_ms": 0.3, "acceptance": (0.75, 0.55, 0.42, 0.3),
    "noise": 0.005,
}  # fmt: skip
ARGV = (sys.executable, "/usr/bin/vllm", "serve", "Qwen/Qwen3-8B")
OURS = Occupant(kind="process", name="vllm", holds="port", port=8391, pid=1, argv=ARGV)


def codes(result):
    return [finding.code for finding in result.findings]


def blocks(lab):
    return [
        (block["role"], block["arm"], block["pair"], block["k"])
        for block in Evidence(lab.folder / "evidence").state()["blocks"]
    ]


def unharmed(lab, before):
    assert lab.recipe.read_text() == before
    assert lab.running is None
    assert lab.back == [each.name for each in lab.occupants]


def test_speculation_that_pays(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    result = here.tune()
    assert (result.outcome, result.exit_code, result.reason) == ("enable", 0, "settled")
    unharmed(here, before)
    # Worked out from the truth: what each k gives, among those the rule permits.
    speed = {k: 1 / here.truth.tpot_ms(k=k) for k in range(1, 33)}
    rates = {k: here.truth.acceptance_rate(k) for k in speed}
    top = next(k for k in range(5, 33) if rates[k] <= 0.6)
    assert speed[result.k] >= 0.97 * max(speed[k] for k in range(1, top + 1))
    told = blocks(here)
    assert told[0] == ("baseline", "off", 1, None)
    assert 1 <= result.search_launches <= 3
    pairs = [(arm, pair) for role, arm, pair, _ in told if role == "pair"]
    assert pairs == [("on", 1), ("on", 2), ("off", 2), ("off", 3), ("on", 3)]  # the baseline is the first OFF
    assert result.launches == len(here.launches) == len(told)
    written = here.folder / "serve.specdec.sh"
    assert result.written == str(written)
    assert f'"num_speculative_tokens":{result.k}' in written.read_text()
    assert written.read_text().startswith("#!/bin/bash\n# ours\n")
    Draft202012Validator(schemas.load("tune")).validate(result.to_json())
    assert result.downtime_s >= 60 * len(here.launches)


def test_the_evidence_can_be_judged_again(lab):
    here = lab(**GOOD)
    result = here.tune()
    folder = here.folder / "evidence"
    verdict = rejudge(folder)
    assert verdict == Verdict.from_json(json.loads((folder / "verdict.json").read_text()))
    assert verdict.outcome == "enable"
    strict = rejudge(folder, policy=Policy(enable_throughput_gain=5.0))
    assert strict.outcome != "enable"
    evidence = Evidence(folder)
    assert evidence.damaged() == ()
    listed = (folder / "SHA256SUMS").read_text()
    assert listed.count("reports/") == len(blocks(here))
    assert listed.count("logs/") == result.launches
    report = folder / "reports" / "001-off.json"
    report.write_text(report.read_text().replace("Qwen3-8B", "Qwen3-9B"))
    with pytest.raises(ReportError) as caught:
        rejudge(folder)
    assert caught.value.code == "JSE952"
    assert Evidence(folder).damaged() == ("reports/001-off.json",)


def test_speculation_that_loses_ends_after_one_pair(lab):
    here = lab(**{**GOOD, "acceptance": (0.1, 0.02), "draft_ms": 12.0})
    result = here.tune()
    assert (result.outcome, result.exit_code, result.pairs) == ("disable", 10, 1)
    assert result.written is None
    assert result.recipe == str(here.recipe)
    assert "JSD973" in codes(result)


def test_a_recipe_that_speculates_is_compared_with_itself_without(lab):
    here = lab(**{**GOOD, "acceptance": (0.1, 0.02), "draft_ms": 12.0})
    config = json.dumps(
        {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 4}
    )
    here.recipe.write_text(here.recipe.read_text().rstrip("\n") + f" --speculative-config '{config}'\n")
    before = here.recipe.read_text()
    result = here.tune()
    assert result.outcome == "disable"
    assert here.recipe.read_text() == before
    assert "speculative" not in here.launches[0].recipe.after
    assert blocks(here)[1] == ("search", "on", None, 4)
    assert here.launches[1].recipe.after == before
    text = (here.folder / "serve.specdec.sh").read_text()
    assert "speculative" not in text
    assert result.recipe == result.written


def test_a_schedule_is_tried_when_only_concurrency_eight_loses(lab):
    here = lab(**EIGHT_LOSES)
    result = here.tune()
    state = Evidence(here.folder / "evidence").state()
    assert state["variant"] == 1
    schedule = state["schedule"]["num_speculative_tokens_per_batch_size"]
    assert schedule[0][2] > schedule[-1][2]
    assert result.outcome == "enable"
    assert "num_speculative_tokens_per_batch_size" in result.speculative_config
    firsts = [block for block in state["blocks"] if block["variant"] == 0 and block["role"] == "pair"]
    assert max(block["pair"] for block in firsts) >= 3


def with_schedule(plan):
    return "num_speculative_tokens_per_batch_size" in plan.recipe.after


def holds_without_schedule(here, result):
    """The result is the fixed k that was proved first, in the recipe, the verdict, the evidence and what is watched."""
    assert (result.outcome, result.exit_code) == ("enable_limited", 14)
    assert result.speculative_config["num_speculative_tokens"] == result.k
    assert "num_speculative_tokens_per_batch_size" not in result.speculative_config
    assert "num_speculative_tokens_per_batch_size" not in (here.folder / "serve.specdec.sh").read_text()
    folder = here.folder / "evidence"
    assert rejudge(folder) == Verdict.from_json(json.loads((folder / "verdict.json").read_text())) == result.verdict
    assert reference_from(folder).tpot_s[1] == pytest.approx(here.truth.tpot_ms(k=result.k) / 1e3, rel=0.15)


def test_a_schedule_that_does_not_start_leaves_what_was_proved(lab):
    here = lab(**EIGHT_LOSES)
    here.fail = lambda server, number: {"memory": Memory(free_gib=10.0)} if with_schedule(server.plan) else {}
    result = here.tune()
    assert 1 <= sum(with_schedule(plan) for plan in here.launches) <= 2
    assert "JSD939" in codes(result)
    assert result.reason == "settled"
    holds_without_schedule(here, result)


def test_a_schedule_that_cannot_be_measured_leaves_what_was_proved(lab):
    here = lab(**EIGHT_LOSES)

    def dies(number):
        if with_schedule(here.launches[-1]):
            raise EndpointError("JSE690", name="x")

    here.on_bench = dies
    result = here.tune()
    assert codes(result).count("JSD991") == 2
    assert "JSD959" in codes(result)
    holds_without_schedule(here, result)


def test_time_that_runs_out_with_a_schedule_leaves_what_was_proved(lab):
    here = lab(**EIGHT_LOSES)
    whole = here.tune(evidence=here.folder / "whole")
    seconds = sum(
        block["start_s"] + block["bench_s"] + block["stop_s"]
        for block in Evidence(here.folder / "whole").state()["blocks"]
        if block["variant"] == 0
    )
    (here.folder / "serve.specdec.sh").unlink()
    limited = TuneSettings(num_prompts=5, output_len=32, max_time_s=seconds + 250.0)
    result = here.tune(settings=limited)
    assert result.reason == "time"
    assert "JSD957" in codes(result)
    holds_without_schedule(here, result)
    assert any(step.kind == "tune-resume" for step in result.next_steps)
    (here.folder / "serve.specdec.sh").unlink()
    again = here.tune(resume=here.folder / "evidence", settings=TuneSettings())
    assert again.outcome == whole.outcome == "enable"
    assert "num_speculative_tokens_per_batch_size" in again.speculative_config


def test_a_schedule_that_costs_the_gain_is_said(lab):
    here = lab(**EIGHT_LOSES)
    truth = here.truth

    def other_graphs(server):
        here.truth = evolve(truth, step_ms=60.0) if with_schedule(server.plan) else truth

    here.before_start = other_graphs
    result = here.tune()
    assert (result.outcome, result.written) == ("disable", None)
    assert "JSD958" in codes(result)


def test_a_schedule_of_the_owner_does_not_stand_in_the_way_of_k(lab):
    here = lab(**GOOD)
    config = {
        "method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 2,
        "num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 16, 0]],
    }  # fmt: skip
    here.recipe.write_text(here.recipe.read_text().rstrip("\n") + f" --speculative-config '{json.dumps(config)}'\n")
    result = here.tune()
    assert blocks(here)[1] == ("search", "on", None, 2)
    assert not any(with_schedule(plan) for plan in here.launches)
    assert result.outcome == "enable"
    assert result.k > 2


def test_the_time_limit_is_kept_and_resumed_from(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    result = here.tune(settings=TuneSettings(num_prompts=5, output_len=32, max_time_s=400.0))
    assert result.reason == "time"
    assert result.exit_code == 12
    assert here.now <= 400.0 + 65.0  # what began may end: nothing was known before the first block
    assert "JSD964" in codes(result)
    assert any(step.kind == "tune-resume" for step in result.next_steps)
    done = blocks(here)
    state = Evidence(here.folder / "evidence").state()
    assert state["status"] == "stopped"
    again = here.tune(resume=here.folder / "evidence", settings=TuneSettings())
    assert again.outcome == "enable"
    assert blocks(here)[: len(done)] == done


def test_estimate_is_given_first_and_narrows(lab):
    here = lab(**GOOD)
    offers, told = [], []
    here.tune(agree=lambda offer: offers.append(offer) or True, tell=lambda kind, values: told.append((kind, values)))
    down = offers[0].downtime
    assert 0 < down.low < down.high
    assert not down.measured
    left = [values["minutes"] for kind, values in told if kind == "tune-event-left"]
    assert left == sorted(left, reverse=True)
    assert left[0] * 60 < down.high


def test_nothing_happens_without_a_yes(lab):
    here = lab(**GOOD)
    with pytest.raises(DeclinedError):
        here.tune(agree=lambda offer: False)
    assert here.launches == []
    assert not (here.folder / "evidence").exists()


def test_a_stranger_is_named_and_left_alone(lab):
    here = lab(**GOOD)
    here.occupants = (evolve(OURS, name="nginx", argv=(sys.executable, "nginx")),)
    with pytest.raises(InTheWayError) as caught:
        here.tune()
    assert "nginx" in str(caught.value)
    assert here.launches == []
    assert here.tune(settings=TuneSettings(num_prompts=5, output_len=32, replace=True)).outcome == "enable"
    assert here.back == ["nginx"]


def test_the_recipe_itself_does_not_start(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    here.fail = lambda server, number: {"memory": Memory(free_gib=20.0)}
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert "JSD929" in codes(result)
    assert len(here.launches) == 1
    unharmed(here, before)


def test_the_ladder_leads_to_what_starts(lab):
    here = lab(**GOOD)
    before = here.recipe.read_text()

    def too_little(server, number):
        # Free memory allows 0.86 of it, so the recipe has to say less than that.
        return {"memory": Memory(total_gib=100.0, free_gib=93.0 if server.plan.outcome == "none" else 86.0)}

    here.fail = too_little
    result = here.tune()
    assert result.outcome == "enable"
    assert "JSD968" in codes(result)
    tries = list((here.folder / "evidence" / "plans").glob("try-*.json"))
    assert tries
    first = json.loads(tries[0].read_text())
    assert first["diagnosis"]["cause"] == "memory_precheck"
    used = float((here.folder / "serve.specdec.sh").read_text().partition("--gpu-memory-utilization ")[2].split()[0])
    assert used <= 0.86
    assert here.recipe.read_text() == before


def test_speculation_that_never_starts(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    here.fail = lambda server, number: (
        {} if "speculative" not in server.plan.recipe.after else {"memory": Memory(free_gib=10.0)}
    )
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    unharmed(here, before)


def test_a_larger_k_that_does_not_start_is_an_answer(lab):
    here = lab(**{**GOOD, "acceptance": (0.95, 0.9, 0.86, 0.82, 0.78)})

    def no_room(server, number):
        k = (server.plan.speculative_config or {}).get("num_speculative_tokens", 0)
        return {"memory": Memory(free_gib=10.0)} if k > 5 else {}

    here.fail = no_room
    result = here.tune()
    assert result.outcome == "enable"
    assert result.k <= 5
    assert Evidence(here.folder / "evidence").state()["max_k"] == 5
    tried = [plan.speculative_config["num_speculative_tokens"] for plan in here.launches if plan.speculative_config]
    assert 1 <= sum(k > 5 for k in tried) <= 2


def test_between_what_runs_and_what_does_not_start_the_search_goes_on(lab):
    here = lab(**{**GOOD, "acceptance": (0.97, 0.94, 0.91, 0.89, 0.87, 0.85), "draft_ms": 0.5})

    def no_room(server, number):
        k = (server.plan.speculative_config or {}).get("num_speculative_tokens", 0)
        return {"memory": Memory(free_gib=10.0)} if k > 12 else {}

    here.fail = no_room
    result = here.tune()
    assert 5 < result.k <= 12


def test_a_spoilt_pair_is_measured_again(lab):
    here = lab(**GOOD)

    def throttled(report, number):
        return evolve(report, conditions=evolve(report.conditions, throttled=True)) if number == 4 else report

    here.change = throttled
    result = here.tune()
    assert result.outcome == "enable"
    assert "JSD965" in codes(result)
    assert Evidence(here.folder / "evidence").state()["spoilt"]["0"]
    assert result.verdict.pairs == 3


def test_pairs_that_are_always_spoilt_end_it(lab):
    here = lab(**GOOD)
    here.change = lambda report, number: (
        evolve(report, conditions=evolve(report.conditions, throttled=True))
        if report.conditions.speculation
        else report
    )
    result = here.tune()
    assert (result.outcome, result.exit_code, result.reason) == ("invalid", 13, "spoilt")
    assert result.written is None


def test_the_kv_pool_can_be_pinned(lab):
    here = lab(**GOOD)
    result = here.tune(settings=TuneSettings(num_prompts=5, output_len=32, pin_kv=True))
    assert result.outcome == "enable"
    assert "JSD969" in codes(result)
    pinned = [plan for plan in here.launches if "--num-gpu-blocks-override" in plan.recipe.after]
    assert {plan.outcome == "none" for plan in pinned} == {True, False}
    values = {plan.recipe.after.partition("--num-gpu-blocks-override ")[2].split()[0] for plan in pinned}
    assert values == {"84"}  # blocks as the server counts them, whatever a block holds
    assert "num-gpu-blocks" not in (here.folder / "serve.specdec.sh").read_text()
    assert ("pair", "off", 1, None) in blocks(here)


@pytest.mark.parametrize(
    ("page", "blocks"),
    [
        ('vllm:cache_config_info{block_size="128",num_gpu_blocks="None"} 1.0\n', "tokens // 128"),
        ('vllm:cache_config_info{num_gpu_blocks="None"} 1.0\n', None),
        ("", None),
        (None, None),
    ],
)
def test_a_pool_of_unknown_blocks_is_never_guessed(lab, page, blocks):
    here = lab(**GOOD)
    here.page = page
    result = here.tune(settings=TuneSettings(num_prompts=5, output_len=32, pin_kv=True))
    pinned = {
        plan.recipe.after.partition("--num-gpu-blocks-override ")[2].split()[0]
        for plan in here.launches
        if "--num-gpu-blocks-override" in plan.recipe.after
    }
    if blocks is None:
        assert pinned == set()
        assert "JSD978" in codes(result)
    else:
        (found,) = [each.values for each in result.findings if each.code == "JSD969"]
        assert pinned == {str(found["tokens"] // 128)}


def test_a_baseline_bound_by_its_prompts_ends_it(lab):
    here = lab(**{**GOOD, "prefill_ms_per_token": 200.0})
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("none", 20)
    assert any(finding.topic == "ttft-bound" for finding in result.findings)
    assert len(here.launches) == 1


def test_a_small_server_is_measured_at_what_it_takes(lab):
    here = lab(**GOOD)
    here.recipe.write_text(here.recipe.read_text().replace("--max-num-seqs 16", "--max-num-seqs 4"))
    result = here.tune()
    assert result.outcome == "enable"
    assert {run.concurrency for run in Evidence(here.folder / "evidence").report("reports/001-off.json").runs} == {1}


def test_a_board_that_may_not_is_refused_untouched(lab):
    here = lab(**GOOD)
    result = here.tune(device="orin-nano-8gb", l4t="36.4.7", vllm_version=None)
    assert result.exit_code == 21
    assert here.launches == []


def test_a_failed_measurement_is_repeated_once(lab):
    here = lab(**GOOD)

    def drop(number):
        if number == 3:
            raise EndpointError("JSE669", url="http://x", reason="connection refused")

    here.on_bench = drop
    result = here.tune()
    assert result.outcome == "enable"
    assert codes(result).count("JSD991") == 1


def test_a_server_that_cannot_be_measured_ends_it(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)

    def drop(number):
        if number >= 3:
            raise EndpointError("JSE669", url="http://x", reason="connection refused")

    here.on_bench = drop
    before = here.recipe.read_text()
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert here.benches == 4
    unharmed(here, before)


def test_the_result_can_be_left_running(lab, tmp_path):
    here = lab(**GOOD)
    started = tmp_path / "started"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "vllm").write_text(f'#!/bin/sh\necho "$@" > {started}.part\nmv {started}.part {started}\n')
    (tmp_path / "bin" / "vllm").chmod(0o755)
    environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    here.occupants = (evolve(OURS, environ=environ, cwd=str(tmp_path)),)
    result = here.tune(settings=TuneSettings(num_prompts=5, output_len=32, leave="result"))
    assert result.outcome == "enable"
    assert here.back == []
    for _ in range(500):
        if started.exists():
            break
        time.sleep(0.01)
    assert f'"num_speculative_tokens":{result.k}' in started.read_text()


def test_stopped_stays_stopped(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    here.tune(settings=TuneSettings(num_prompts=5, output_len=32, leave="stopped"))
    assert here.back == []


# --- what is left when it breaks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 2, 5])
def test_an_interruption_anywhere(lab, at):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()

    def stop(number):
        if number == at:
            raise KeyboardInterrupt

    here.on_bench = stop
    result = here.tune()
    if result.outcome != "interrupted":
        assert here.benches < at
        return
    assert result.exit_code == 130
    unharmed(here, before)
    assert len(blocks(here)) == at - 1
    here.on_bench = lambda number: None
    here.back.clear()
    again = here.tune(resume=here.folder / "evidence")
    assert again.outcome == "enable"
    unharmed(here, before)
    assert Evidence(here.folder / "evidence").damaged() == ()


def test_an_interruption_while_stopping(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    here.on_stop = [KeyboardInterrupt]
    before = here.recipe.read_text()
    assert here.tune().exit_code == 130
    unharmed(here, before)


@pytest.mark.parametrize("at", [1, 3, 13])
def test_a_full_disk_anywhere(lab, at, monkeypatch):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    genuine, count = evidence_module.write_atomic, [0]

    def write(path, text, **options):
        count[0] += 1
        if count[0] >= at:
            raise OutputError("JSE007", path=str(path), reason="No space left on device")
        genuine(path, text, **options)

    monkeypatch.setattr(evidence_module, "write_atomic", write)
    with pytest.raises(OutputError, match="No space left"):
        here.tune()
    assert here.recipe.read_text() == before
    assert here.running is None
    assert here.back == ([] if not here.launches else ["vllm"])
    monkeypatch.setattr(evidence_module, "write_atomic", genuine)
    if at > 1:
        here.back.clear()
        assert here.tune(resume=here.folder / "evidence").outcome == "enable"


def test_a_changed_recipe_is_not_resumed(lab):
    here = lab(**GOOD)
    here.tune(settings=TuneSettings(num_prompts=5, output_len=32, max_time_s=200.0))
    here.recipe.write_text(here.recipe.read_text() + "# changed\n")
    with pytest.raises(Exception, match="has changed"):
        here.tune(resume=here.folder / "evidence")


def test_a_result_that_is_there_already_is_not_overwritten(lab):
    here = lab(**GOOD)
    (here.folder / "serve.specdec.sh").write_text("somebody's own\n")
    result = here.tune()
    assert (here.folder / "serve.specdec.sh").read_text() == "somebody's own\n"
    assert result.written == str(here.folder / "serve.specdec-2.sh")
    shutil.rmtree(here.folder / "evidence")
    assert here.tune().written == result.written  # the same text is the same file


def test_exit_codes():
    expected = {
        "enable": 0, "disable": 10, "marginal": 11, "inconclusive": 12, "incomplete": 12, "invalid": 13,
        "enable_limited": 14, "not_started": 15, "none": 20, "refuse": 21, "interrupted": 130,
    }  # fmt: skip
    assert {name: TuneResult(outcome=name, reason="x", recipe="r").exit_code for name in expected} == expected
