# SPDX-License-Identifier: Apache-2.0
"""Every cause of a failed start in a tune: which starts follow, how it ends, and what is told and kept."""

from __future__ import annotations

import json
import sys

import pytest
from attrs import evolve

from jetson_specdec.logs.causes import causes
from jetson_specdec.policy import Policy
from jetson_specdec.server import Occupant
from jetson_specdec.tune import Evidence, TuneSettings

QUICK = TuneSettings(num_prompts=2, output_len=8, concurrency=(1,))
GOOD = {"step_ms": 30.0, "draft_ms": 1.0, "verify_ms": 0.05, "acceptance": (0.8, 0.66, 0.55, 0.45, 0.37)}
ARGV = (sys.executable, "/usr/bin/vllm", "serve", "Qwen/Qwen3-8B")
OURS = Occupant(kind="process", name="vllm", holds="port", port=8391, pid=1, argv=ARGV)
ONE_PAIR = Policy(bootstrap_resamples=100, min_pairs=1, max_pairs=1, search_launches=1)
FREE = "free-memory"  # the hand-off to the memory tuner

# Written by hand. Failure → what the second start with speculation is, and a step that is told at the end:
# lower or higher utilisation, the same start again, another drafter (where the catalogue has a better one), or
# nothing at all.
ON = {
    "spec_config_quoting": ("nothing", "remedy-fix-quoting"),
    "spec_config_unknown_key": ("nothing", "remedy-fix-config"),
    "spec_config_invalid_value": ("nothing", "remedy-fix-config"),
    "flag_unrecognized": ("nothing", "remedy-fix-config"),
    "flag_invalid_value": ("nothing", "remedy-fix-config"),
    "method_unsupported:no_layers": ("nothing", "remedy-drop-speculation"),
    "target_unsupported": ("nothing", "remedy-drop-speculation"),
    "draft_load_failed": ("nothing", "remedy-drop-speculation"),
    "target_load_failed": ("nothing", "remedy-upgrade-runtime"),
    "vocab_mismatch": ("drafter", "remedy-other-draft"),
    "memory_precheck": ("lower", FREE),
    "kv_cache_none": ("higher", FREE),
    "kv_cache_too_small": ("higher", FREE),
    "does_not_fit": ("drafter", FREE),
    "oom_load:draft": ("drafter", FREE),
    "oom_warmup": ("lower", FREE),
    "driver_oom:kernel": ("lower", FREE),
    "host_oom_killed": ("lower", FREE),
    "watchdog_stopped": ("lower", FREE),
    "memory_profiling_race": ("same", "remedy-retry"),
    "hub_unreachable": ("nothing", "remedy-predownload"),
    "hub_gated:draft": ("nothing", "remedy-accept-licence"),
    "hub_missing": ("nothing", "remedy-drop-speculation"),
    "arch_unsupported": ("nothing", "remedy-upgrade-runtime"),
    "model_arch_unsupported:draft": ("nothing", "remedy-drop-speculation"),
    "runtime_mismatch": ("nothing", "remedy-change-image"),
    "package_missing": ("nothing", "remedy-change-image"),
    "container_runtime": ("nothing", "remedy-none"),
    "container_name_taken": ("nothing", "remedy-fix-config"),
    "image_missing": ("nothing", "remedy-change-image"),
    "port_in_use": ("nothing", "remedy-free-port"),
    "disk_full": ("nothing", "remedy-free-disk"),
    "start_timeout": ("nothing", "start-longer"),
    "first_request_failed": ("nothing", "remedy-drop-speculation"),
    "engine_failed": ("nothing", "remedy-drop-speculation"),
}


def cause_of(name):
    return name.partition(":")[0]


def codes(result):
    return [finding.code for finding in result.findings]


def tries_of(lab):
    return [json.loads(path.read_text()) for path in sorted((lab.folder / "evidence" / "plans").glob("try-*.json"))]


def unharmed(lab, before):
    assert lab.recipe.read_text() == before
    assert sorted(path.name for path in lab.folder.glob("serve*")) == ["serve.sh"]
    assert lab.running is None
    assert lab.back == ["vllm"]


def test_every_cause_is_here():
    assert sorted([*map(cause_of, ON), "none"]) == sorted(causes())


def test_none_goes_on(lab):
    here = lab(**GOOD)
    here.fail = lambda server, number: {"start_failure": "none"}
    result = here.tune(settings=QUICK, policy=ONE_PAIR)
    assert result.reason in ("settled", "pairs")
    assert tries_of(here) == []


@pytest.mark.parametrize("name", ON)
def test_speculation_that_does_not_start(lab, name):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    here.fail = lambda server, number: {"start_failure": name} if server.plan.speculative_config else {}
    result = here.tune(settings=QUICK)
    follows, step = ON[name]

    assert (result.outcome, result.reason, result.exit_code) == ("not_started", "start", 15)
    unharmed(here, before)
    # The recipe itself, then at most as many starts with speculation as the policy allows; never the recipe once more.
    plans = here.launches
    assert [plan.speculative_config is None for plan in plans] == [True] + [False] * (len(plans) - 1)
    assert 2 <= len(plans) == result.launches <= 6
    used = [(plan.utilization.after, (plan.speculative_config or {}).get("model")) for plan in plans[1:]]
    if follows == "nothing":
        assert len(plans) == 2
    elif follows == "same":
        assert [plan.recipe.after for plan in plans[1:]] == [plans[1].recipe.after] * 2
    elif follows == "drafter":
        models = [model for _, model in used]
        assert len(set(models)) == len(models)
    else:
        assert used[1][1] == used[0][1]
        assert (used[1][0] > used[0][0]) is (follows == "higher")
    # What is told: the cause, that the recipe without speculation starts, and the step to take.
    told = next(finding for finding in result.findings if finding.code == "JSD970")
    assert told.values["cause"] in (cause_of(name), "does_not_fit")
    kinds = [each.kind for each in result.next_steps]
    assert {step, f"{step}-to"} & {*kinds}  # with what the log names, where it names it
    handed = [each.command for each in result.next_steps if each.kind == FREE]
    assert [("--audit - --runtime vllm --workload llm-server --target-mb" in each) for each in handed] == [True] * len(
        handed
    )
    # What is kept: every try as a plan with its diagnosis and its log.
    tries = tries_of(here)
    assert len(tries) == len(plans) - 1
    assert [each["diagnosis"]["cause"] for each in tries] == [cause_of(name)] * len(tries)
    assert [each["plan"]["speculative_config"] for each in tries] == [plan.speculative_config for plan in plans[1:]]
    evidence = Evidence(here.folder / "evidence")
    assert evidence.damaged() == ()
    assert (here.folder / "evidence" / "SHA256SUMS").read_text().count("logs/") == len(plans)


@pytest.mark.parametrize("name", [name for name in ON if name != "hub_gated:draft"])
def test_the_recipe_itself_does_not_start(lab, name):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    here.fail = lambda server, number: {"start_failure": name}
    result = here.tune(settings=QUICK)
    if here.launches[1:] and here.launches[1].speculative_config is not None:
        # Only a drafter can do this wrong: the recipe started.
        assert "JSD970" in codes(result)
        return
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    unharmed(here, before)
    # Nothing of it is changed; only what can pass by itself is tried again.
    assert len(here.launches) == (2 if name == "memory_profiling_race" else 1)
    assert {plan.recipe.after for plan in here.launches} == {before}
    assert next(finding for finding in result.findings if finding.code == "JSD929").values["cause"] == cause_of(name)
    assert result.next_steps[0].kind != "tune-stay"
    assert tries_of(here)[0]["diagnosis"]["cause"] == cause_of(name)
    assert tries_of(here)[0]["plan"]["speculative_config"] is None


# --- once it has started ----------------------------------------------------------------------------------------------


def once(at, name):
    """Let one start fail, the others come up."""
    return lambda server, number: {"start_failure": name} if number == at else {}


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("memory_precheck", 3),
        ("host_oom_killed", 3),
        ("watchdog_stopped", 4),
        ("engine_failed", 4),
        ("hub_unreachable:busy", 1),
    ],
)
def test_what_has_started_before_or_passes_is_tried_once_more(lab, name, at):
    here = lab(**GOOD)
    here.fail = once(at, name)
    result = here.tune(settings=QUICK, policy=evolve(ONE_PAIR, min_pairs=2, max_pairs=2))
    assert result.reason in ("settled", "pairs")
    assert result.pairs == 2
    assert here.launches[at].recipe.after == here.launches[at - 1].recipe.after
    assert [each["diagnosis"]["cause"] for each in tries_of(here)] == [cause_of(name)]


@pytest.mark.parametrize(("name", "at"), [("disk_full", 2), ("port_in_use", 4), ("hub_gated", 5)])
def test_what_a_person_has_to_do_is_waited_for(lab, name, at):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_text()
    here.fail = once(at, name)
    short = {"settings": QUICK, "policy": evolve(ONE_PAIR, min_pairs=2, max_pairs=2)}
    result = here.tune(**short)
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert len(here.launches) == at
    unharmed(here, before)
    step = next(each for each in result.next_steps if each.kind == "tune-resume")
    assert "--resume" in step.command
    # Once that is done, it goes on from there.
    done = Evidence(here.folder / "evidence").state()["blocks"]
    assert len(done) == at - 1
    here.back.clear()
    again = here.tune(resume=here.folder / "evidence", **short)
    assert again.pairs == 2
    assert Evidence(here.folder / "evidence").state()["blocks"][: len(done)] == done
    assert here.back == ["vllm"]


def test_a_larger_k_that_fails_for_another_reason_is_no_answer(lab):
    here = lab(**{**GOOD, "acceptance": (0.95, 0.9, 0.86, 0.82, 0.78)})
    here.fail = lambda server, number: (
        {"start_failure": "disk_full"}
        if (server.plan.speculative_config or {}).get("num_speculative_tokens", 0) > 5
        else {}
    )
    result = here.tune(settings=QUICK)
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert Evidence(here.folder / "evidence").state()["max_k"] is None


def test_a_schedule_that_does_not_start_leaves_what_was_proved(lab):
    here = lab(step_ms=30.0, draft_ms=0.6, verify_ms=5.0, batch_ms=0.3, acceptance=(0.75, 0.55, 0.42, 0.3), noise=0.005)
    here.fail = lambda server, number: (
        {"start_failure": "engine_failed"} if "per_batch_size" in server.plan.recipe.after else {}
    )
    result = here.tune()
    assert result.outcome == "enable_limited"
    assert "JSD939" in codes(result)
    assert "num_speculative_tokens_per_batch_size" not in result.speculative_config
    assert (here.folder / "serve.specdec.sh").exists()


def test_the_cause_can_change_between_tries(lab):
    """Too little at first, then the rest of the system in the way: what is between them starts."""
    here = lab(**GOOD)
    sequence = iter(["kv_cache_none", "host_oom_killed"])

    def fail(server, number):
        name = next(sequence, None) if server.plan.speculative_config else None
        return {"start_failure": name} if name else {}

    here.fail = fail
    result = here.tune(settings=QUICK, policy=ONE_PAIR)
    assert result.reason in ("settled", "pairs")
    used = [plan.utilization.after for plan in here.launches if plan.speculative_config]
    assert used[0] < used[2] < used[1]
    assert set(used[2:]) == {used[2]}


def test_nothing_between_too_little_and_too_much(lab):
    here = lab(**GOOD)
    here.recipe.write_text(here.recipe.read_text().replace("serve Qwen", "serve --gpu-memory-utilization 0.8 Qwen"))

    def fail(server, number):
        if server.plan.speculative_config is None:
            return {}
        return {"start_failure": "kv_cache_none" if server.plan.utilization.after <= 0.77 else "host_oom_killed"}

    here.fail = fail
    result = here.tune(settings=QUICK, policy=Policy(bootstrap_resamples=100, ladder_tries=9))
    assert result.exit_code == 15
    assert next(finding for finding in result.findings if finding.code == "JSD970").values["cause"] == "does_not_fit"
    assert any(finding.topic == "ladder-window-empty" for finding in result.findings)
    assert any(each.kind == FREE for each in result.next_steps)
    first = here.launches[1].speculative_config["model"]
    tried = [plan.utilization.after for plan in here.launches if (plan.speculative_config or {}).get("model") == first]
    assert {0.77, 0.78} <= set(tried)
    assert len(set(tried)) == len(tried)


def test_tries_are_bounded_by_the_policy(lab):
    here = lab(**GOOD)
    here.fail = lambda server, number: {"start_failure": "memory_precheck"} if server.plan.speculative_config else {}
    result = here.tune(settings=QUICK, policy=evolve(Policy(), ladder_tries=2))
    assert len(here.launches) == 3
    assert "JSD928" in codes(result)


# --- other drafters ---------------------------------------------------------------------------------------------------


def drafters(lab):
    return [plan.speculative_config["model"] for plan in lab.launches if plan.speculative_config]


def test_only_drafters_that_were_shown_before_the_yes_are_tried(lab):
    here = lab(**GOOD)
    here.fail = lambda server, number: {"start_failure": "vocab_mismatch"}
    offers = []
    here.tune(settings=QUICK, agree=lambda offer: offers.append(offer) or True)
    shown = [finding.values for finding in offers[0].findings if finding.code == "JSD940"]
    first, *others = drafters(here)
    assert first == offers[0].plan.speculative_config["model"]
    assert others
    assert set(others) <= {each["repo"] for each in shown}
    assert all({"bytes", "licence", "cached"} <= set(each) for each in shown)


def test_what_is_behind_a_licence_is_not_fetched_unasked(lab):
    here = lab(**GOOD)
    here.recipe.write_text(here.recipe.read_text().replace("Qwen/Qwen3-8B", "meta-llama/Llama-3.1-8B-Instruct"))
    here.fail = lambda server, number: {"start_failure": "vocab_mismatch"}
    here.tune(settings=QUICK)
    assert len(drafters(here)) > 1
    assert "meta-llama/Llama-3.2-1B-Instruct" not in drafters(here)  # gated, as the catalogue knows


def test_a_drafter_that_was_named_is_the_only_one(lab):
    here = lab(**GOOD)
    here.fail = lambda server, number: {"start_failure": "vocab_mismatch"}
    here.tune(settings=QUICK, draft="Qwen/Qwen3-0.6B")
    assert drafters(here) == ["Qwen/Qwen3-0.6B"]


# --- real processes ---------------------------------------------------------------------------------------------------


def test_a_failing_draft_in_real_processes(real):
    real.serve()
    before = real.recipe.read_bytes()
    real.fake(start_failure="oom_load:draft", fails_when="speculating")
    process = real.start()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 15, err
    result = json.loads(out)
    assert result["outcome"] == "not_started"
    assert next(each for each in result["findings"] if each["code"] == "JSD970")["values"]["cause"] == "oom_load"
    assert any(each["kind"] == FREE and "recommend.py --audit - --runtime vllm" in each["command"]
               for each in result["next_steps"])  # fmt: skip
    tried = json.loads(next((real.evidence / "plans").glob("try-*.json")).read_text())
    assert tried["diagnosis"]["cause"] == "oom_load"
    assert "CUDA out of memory" in (real.evidence / "logs" / tried["log_path"].rpartition("/")[2]).read_text()
    assert real.recipe.read_bytes() == before
    real.until(real.answers)
    assert real.speculating() == []
