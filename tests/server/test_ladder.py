# SPDX-License-Identifier: Apache-2.0
"""The ladder: the direction each cause asks for, the window between what failed, and where it ends."""

from __future__ import annotations

import itertools

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec import Policy
from jetson_specdec.device import detect
from jetson_specdec.engine.release import release_from_version
from jetson_specdec.errors import StartFailed
from jetson_specdec.findings import Step
from jetson_specdec.host import LocalHost
from jetson_specdec.logs import Diagnosis
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.planning.decide import decide
from jetson_specdec.planning.gather import Wishes, gather
from jetson_specdec.recipe.shell import parse_shell
from jetson_specdec.server import Started, climb, next_rung
from jetson_specdec.server.climbing import setting_of
from jetson_specdec.server.ladder import Setting, Tried, Window, window_of

TARGET = "meta-llama/Llama-3.1-8B-Instruct"
TEXT = f"vllm serve {TARGET} --gpu-memory-utilization 0.80 --max-model-len 32768 --max-num-seqs 4\n"


def situation(text=TEXT, device="thor-t5000", **policy):
    recipe = parse_shell(text)
    return gather(
        recipe,
        recipe.commands[0],
        device=detect(LocalHost(), named=device, l4t="38.4.0"),
        host=LocalHost(),
        catalog=Catalog.default(),
        wishes=Wishes(vllm_version="0.20.0"),
        policy=Policy(**policy),
    )


def diagnosis(cause, remedy, involved=True, **values):
    return Diagnosis(
        started_ok=False, stage="load", cause=cause, remedy=remedy, speculation_involved=involved, values=values
    )


def setting(utilization=0.75, **other):
    known = {"strategy": "eagle3", "model": "org/head", "k": 5, "max_model_len": 32768, "max_num_seqs": 4}
    return Setting(utilization=utilization, **{**known, **other})


def rung(*failed, **policy):
    return next_rung(situation(**policy), [Tried(setting=one, diagnosis=found) for one, found in failed])


# --- one step ---------------------------------------------------------------------------------------------------------


def test_too_little_free_memory_goes_to_what_fits():
    found = diagnosis("memory_precheck", "lower_utilization", feasible_utilization=0.62)
    assert rung((setting(0.75), found)).set_flags == {"gpu-memory-utilization": "0.62"}


@pytest.mark.parametrize("cause", ["oom_load", "driver_oom", "host_oom_killed", "watchdog_stopped"])
def test_out_of_memory_takes_the_policys_step_down(cause):
    assert rung((setting(0.75), diagnosis(cause, "lower_utilization"))).set_flags == {"gpu-memory-utilization": "0.70"}


def test_weights_above_the_budget_ask_for_that_much_more_at_once():
    # 4 GiB of 50 are missing for the weights: 0.08, and the usual step for the cache itself.
    found = diagnosis("kv_cache_none", "raise_utilization", kv_available_gib=-4.0, total_gib=50.0)
    assert rung((setting(0.70), found)).set_flags == {"gpu-memory-utilization": "0.83"}
    unknown = diagnosis("kv_cache_none", "raise_utilization", kv_available_gib=0.0, total_gib=50.0)
    assert rung((setting(0.70), unknown)).set_flags == {"gpu-memory-utilization": "0.75"}


def test_too_small_a_cache_asks_for_more_by_what_is_missing():
    # 3 GiB of 60 are missing: 0.05, and 0.01 because the message rounds.
    found = diagnosis(
        "kv_cache_too_small", "raise_utilization", kv_needed_gib=5.0, kv_available_gib=2.0, total_gib=60.0
    )
    assert rung((setting(0.70), found)).set_flags == {"gpu-memory-utilization": "0.76"}
    found = diagnosis("kv_cache_none", "raise_utilization")
    assert rung((setting(0.70), found)).set_flags == {"gpu-memory-utilization": "0.75"}


def test_limits_are_lowered_to_what_the_message_says():
    found = diagnosis("kv_cache_too_small", "reduce_max_model_len", feasible_max_model_len=20480)
    assert rung((setting(), found)).set_flags == {"max-model-len": "20480"}
    found = diagnosis("kv_cache_too_small", "reduce_max_model_len")
    assert rung((setting(), found)).set_flags == {"max-model-len": "16384"}
    found = diagnosis("oom_warmup", "reduce_max_num_seqs", num_seqs=4)
    assert rung((setting(), found)).set_flags == {"max-num-seqs": "2"}


def test_fewer_sequences_until_they_are_few():
    found = diagnosis("oom_warmup", "reduce_max_num_seqs", num_seqs=1024)
    many = setting(max_num_seqs=None)
    assert rung((many, found)).set_flags == {"max-num-seqs": "32"}
    assert rung((many, found), (setting(max_num_seqs=32), found)).set_flags == {"max-num-seqs": "16"}
    # Sixteen are few: it is something else that is too much.
    steps = [(many, found), (setting(max_num_seqs=32), found), (setting(max_num_seqs=16), found)]
    assert rung(*steps).set_flags == {"gpu-memory-utilization": "0.70"}
    assert rung((setting(max_num_seqs=1), found)).set_flags == {"gpu-memory-utilization": "0.70"}


def test_fewer_drafted_tokens():
    assert rung((setting(k=129), diagnosis("first_request_failed", "reduce_k"))).k == 3
    assert rung((setting(k=5), diagnosis("first_request_failed", "reduce_k"))).k == 2


def test_the_next_try_stays_between_what_was_too_little_and_too_much():
    low = (setting(0.60), diagnosis("kv_cache_none", "raise_utilization"))
    high = (setting(0.65), diagnosis("oom_load", "lower_utilization"))
    assert rung(low, high).set_flags == {"gpu-memory-utilization": "0.62"}


def test_an_empty_window_is_said_and_something_becomes_smaller():
    low = (setting(0.64), diagnosis("kv_cache_none", "raise_utilization"))
    high = (setting(0.65), diagnosis("oom_load", "lower_utilization"))
    found = rung(low, high)
    assert found.findings[0].topic == "ladder-window-empty"
    assert (found.findings[0].values["low"], found.findings[0].values["high"]) == (0.64, 0.65)
    # A shorter context would not have helped either of the two: the drafter has to become smaller.
    assert found.action == "other_draft"
    assert found.cause == "does_not_fit"


def test_an_empty_window_above_a_context_that_is_too_long_shortens_it_where_the_memory_sufficed():
    low = (setting(0.64), diagnosis("kv_cache_too_small", "reduce_max_model_len", feasible_max_model_len=30000))
    high = (setting(0.65), diagnosis("oom_load", "lower_utilization"))
    found = rung(low, high)
    assert found.findings[0].topic == "ladder-window-empty"
    assert found.set_flags == {"gpu-memory-utilization": "0.64", "max-model-len": "30000"}
    at_low = rung(high, (setting(0.64), diagnosis("kv_cache_too_small", "raise_utilization")))
    assert at_low.set_flags == {"max-model-len": "16384"}


def test_our_own_memory_step_is_given_back_before_the_context_is_shortened():
    # The recipe serves with 0.80; 1.2 GiB of 122.8 are missing: 0.01, and 0.01 because the message rounds.
    sizes = {"kv_needed_gib": 5.0, "kv_available_gib": 3.8, "total_gib": 122.8, "feasible_max_model_len": 24000}
    found = diagnosis("kv_cache_too_small", "reduce_max_model_len", **sizes)
    assert rung((setting(0.75), found)).set_flags == {"gpu-memory-utilization": "0.77"}
    # No more than the owner's value, and all of it where that just suffices: 0.02 of 122.8 GiB are 2.4.
    close = diagnosis("kv_cache_too_small", "reduce_max_model_len", **{**sizes, "kv_available_gib": 2.6})
    assert rung((setting(0.78), close)).set_flags == {"gpu-memory-utilization": "0.80"}
    # Where it does not suffice the context becomes shorter, by less: at 0.80 there is room for 2.6 + 1.228 of 5.0 GiB,
    # so for 0.98 · 0.7656 · 32768 tokens.
    assert rung((setting(0.79), close)).set_flags == {"gpu-memory-utilization": "0.80", "max-model-len": "24585"}
    assert rung((setting(0.80), close)).set_flags == {"max-model-len": "24000"}
    # A context that nobody could use is not tried: more than the owner's value is.
    useless = diagnosis("kv_cache_too_small", "reduce_max_model_len", **{**sizes, "feasible_max_model_len": 500})
    assert rung((setting(0.80), useless)).set_flags == {"gpu-memory-utilization": "0.82"}
    # What is known to be too much is not given back.
    high = (setting(0.77), diagnosis("oom_warmup", "lower_utilization"))
    assert rung(high, (setting(0.75), found)).set_flags == {"max-model-len": "24000"}


def test_an_empty_window_without_anything_to_make_smaller_stops_and_hands_over():
    plain = {"strategy": "none", "model": None, "k": None, "max_model_len": 1024}
    low = (setting(0.64, **plain), diagnosis("kv_cache_none", "raise_utilization", involved=False))
    high = (setting(0.65, **plain), diagnosis("oom_load", "lower_utilization", involved=False))
    found = rung(low, high)
    assert found.action == "stop"
    assert found.findings[0].topic == "ladder-window-empty"
    assert any("--runtime vllm" in (step.command or "") for step in found.next_steps)


def test_the_ceiling_of_the_policy_is_never_passed():
    found = rung((setting(0.89), diagnosis("kv_cache_none", "raise_utilization")))
    assert found.set_flags == {"gpu-memory-utilization": "0.90"}
    # What is wanted lies above it: the most that is allowed, not somewhere below.
    found = rung((setting(0.80), diagnosis("kv_cache_none", "raise_utilization")), utilization_step=0.2)
    assert found.set_flags == {"gpu-memory-utilization": "0.90"}
    at_top = rung((setting(0.90), diagnosis("kv_cache_none", "raise_utilization")))
    assert at_top.findings[0].topic == "ladder-window-empty"
    assert "more than 0.9 may not be given" in at_top.findings[0].message


def test_a_passing_failure_is_repeated_once():
    found = diagnosis("memory_profiling_race", "retry", involved=False)
    assert rung((setting(), found)).action == "retry"
    twice = rung((setting(), found), (setting(), found))
    assert twice.action == "stop"
    assert twice.findings[0].topic == "ladder-retry-failed"
    # Another start between them makes it a new one.
    other = (setting(0.7), diagnosis("oom_load", "lower_utilization"))
    assert rung((setting(), found), other, (setting(0.65), found)).action == "retry"


def test_caches_are_not_dropped_by_waiting():
    # Nothing here empties the page cache: less utilisation does, and the step stays told to the end.
    step = Step.of("remedy-drop-caches")
    dropped = evolve(diagnosis("memory_precheck", "drop_caches", feasible_utilization=0.5), next_steps=(step,))
    assert rung((setting(), dropped)).set_flags == {"gpu-memory-utilization": "0.50"}
    none = diagnosis("kv_cache_none", "raise_utilization")
    ended = rung((setting(), dropped), (setting(0.5, strategy="none", model=None, k=None), none))
    assert (ended.action, ended.cause) == ("stop", "does_not_fit")
    assert step in ended.next_steps


def test_memory_that_others_hold_is_for_a_person_to_free():
    tiny = diagnosis("memory_precheck", "free_memory", involved=False, feasible_utilization=0.08)
    found = rung((setting(), tiny))
    assert (found.action, found.findings[0].topic) == ("stop", "ladder-stopped")
    assert any("--runtime vllm" in (step.command or "") for step in found.next_steps)
    # The target itself does not load: without the drafter it does not either.
    assert rung((setting(), diagnosis("oom_load", "free_memory", involved=False))).action == "stop"
    # The drafter may be what is too much.
    assert rung((setting(), diagnosis("oom_load", "free_memory", involved=None))).action == "other_draft"


def test_what_fails_without_speculation_too_is_not_tried_without_it():
    for cause, remedy in (
        ("flag_unrecognized", "fix_config"),
        ("flag_invalid_value", "fix_config"),
        ("flag_invalid_value", "reduce_max_model_len"),
        ("container_name_taken", "fix_config"),
        ("container_runtime", "none"),
        ("start_timeout", "set_environment"),
    ):
        found = rung((setting(), diagnosis(cause, remedy, involved=False)))
        assert (found.action, found.findings[0].topic) == ("stop", "ladder-not-speculation"), cause


def test_a_failure_at_the_first_request_goes_where_its_inner_cause_asks():
    found = diagnosis("first_request_failed", "lower_utilization", inner_cause="oom_warmup")
    assert rung((setting(0.75), found)).set_flags == {"gpu-memory-utilization": "0.70"}
    # Its value stays known as too much.
    none = (setting(0.70), diagnosis("kv_cache_none", "raise_utilization"))
    assert float(rung((setting(0.75), found), none).set_flags["gpu-memory-utilization"]) < 0.75


def test_what_was_free_bounds_every_later_start():
    history = [
        Tried(setting=setting(0.75), diagnosis=diagnosis("memory_precheck", "x", feasible_utilization=0.62)),
        Tried(setting=setting(0.62), diagnosis=diagnosis("kv_cache_none", "raise_utilization")),
    ]
    assert window_of(history, setting(0.62)) == Window(low=0.62, high=0.63)
    assert window_of(history, setting(0.62, model="org/other")) == Window(low=None, high=0.63)


@pytest.mark.parametrize("remedy", ["upgrade_runtime", "change_image", "accept_licence", "predownload", "free_port"])
def test_what_a_person_has_to_do_ends_the_ladder(remedy):
    found = rung((setting(), diagnosis("hub_gated", remedy)))
    assert found.action == "stop"
    assert found.findings[0].values["remedy"] == remedy


def test_a_rejected_configuration_falls_back_to_the_recipe():
    assert rung((setting(), diagnosis("spec_config_unknown_key", "fix_config"))).action == "drop_speculation"
    assert rung((setting(), diagnosis("target_unsupported", "drop_speculation"))).action == "drop_speculation"
    found = rung((setting(strategy="none", model=None), diagnosis("flag_unrecognized", "fix_config", involved=False)))
    assert found.action == "stop"


def test_the_tries_are_bounded():
    failed = (setting(), diagnosis("oom_load", "lower_utilization"))
    assert rung(failed, failed, ladder_tries=2).findings[0].topic == "ladder-tries-used-up"
    assert rung(failed, ladder_tries=2).action == "utilization"


def test_what_failed_for_another_load_does_not_bound_this_one():
    other = (setting(0.70, model="org/bigger"), diagnosis("oom_load", "lower_utilization"))
    checked = (setting(0.80, model="org/bigger"), diagnosis("memory_precheck", "lower_utilization"))
    history = [Tried(setting=one, diagnosis=found) for one, found in (other, checked)]
    assert window_of(history, setting(0.6)) == Window(low=None, high=0.80)


@given(
    st.floats(0.05, 0.95),
    st.one_of(st.none(), st.integers(5, 95).map(lambda n: n / 100)),
    st.one_of(st.none(), st.integers(5, 95).map(lambda n: n / 100)),
    st.integers(50, 95).map(lambda n: n / 100),
)
def test_a_window_gives_only_what_is_left(wanted, low, high, ceiling):
    value = Window(low=low, high=high).between(wanted, ceiling=ceiling)
    left = [
        n / 100
        for n in range(1, 100)
        if (low is None or n / 100 > low) and (high is None or n / 100 < high) and n / 100 <= ceiling
    ]
    assert (value is None) == (not left)
    assert value is None or value in left
    if round(wanted, 2) in left:
        assert value == round(wanted, 2)
    if wanted > ceiling and (high is None or high > ceiling) and ceiling in left:
        assert value == ceiling


# --- the whole way ----------------------------------------------------------------------------------------------------


def up(plan):
    return Started(
        base_url="http://127.0.0.1:8000/v1",
        root_url="http://127.0.0.1:8000",
        model="m",
        run_id="1",
        log_path="1.log",
        ready_s=1.0,
        first_completion_s=0.1,
        first_completion_tokens=16,
    )


class Board:
    """Starts plans on a board of which the test says what happens."""

    def __init__(self, decide_start):
        self.decide = decide_start
        self.plans = []

    def __call__(self, plan):
        self.plans.append(plan)
        found = self.decide(plan)
        if found is None:
            return up(plan)
        raise StartFailed("JSE932", diagnosis=found, log_path="x.log", cause=found.cause, remedy=found.remedy)


def test_climbing_finds_the_value_that_fits_in_the_recipes_own_text():
    def start(plan):
        if plan.utilization.after > 0.62:
            return diagnosis("memory_precheck", "lower_utilization", feasible_utilization=0.62)
        return None

    board, seen = Board(start), []
    done = climb(situation(), board, record=seen.append)
    assert done.outcome == "started"
    assert [one.setting.utilization for one in done.tries] == [0.75, 0.62]
    assert "--gpu-memory-utilization 0.62" in done.plan.recipe.after
    assert "--speculative-config" in done.plan.recipe.after
    assert done.plan.recipe.before == TEXT
    assert [one.number for one in seen] == [1, 2]
    assert seen[0].diagnosis.cause == "memory_precheck"
    assert done.to_json()["tries"][1]["action"] == "utilization"


def test_climbing_ends_without_speculation_and_hands_over():
    def start(plan):
        return diagnosis("oom_load", "smaller_draft") if plan.speculative_config else None

    board = Board(start)
    done = climb(situation(), board)
    assert done.outcome == "started_without"
    assert done.plan.recipe.after == TEXT
    assert done.plan.speculative_config is None
    tried = [one.setting.model for one in done.tries]
    assert len(set(tried)) == len(tried)  # no drafter twice
    assert any("--runtime vllm" in (step.command or "") for step in done.next_steps)


def test_a_smaller_drafter_is_really_smaller():
    known = situation()
    sizes = {head.id: head.resident_bytes or head.download_bytes for head in known.heads}
    sizes |= {pair.draft: pair.download_bytes for pair in known.pairs}
    board = Board(lambda plan: diagnosis("oom_load", "smaller_draft") if plan.speculative_config else None)
    tried = [one.setting.model for one in climb(known, board).tries if one.setting.model is not None]
    assert tried
    for bigger, smaller in itertools.pairwise(tried):
        assert sizes[smaller] < sizes[bigger]


def test_climbing_stops_when_not_even_the_recipe_starts():
    board = Board(lambda plan: diagnosis("target_load_failed", "none", involved=None))
    done = climb(situation(), board)
    assert done.outcome == "stopped"
    assert done.plan is None
    assert len(board.plans) == 2
    assert done.findings[-1].topic == "ladder-fallback-failed"


def test_climbing_never_starts_more_often_than_the_policy_allows():
    board = Board(lambda plan: diagnosis("oom_load", "lower_utilization"))
    done = climb(situation(ladder_tries=3), board)
    assert len(board.plans) == len(done.tries) == 3
    assert done.outcome == "stopped"


def test_speculation_that_stood_in_the_recipe_is_taken_out():
    text = TEXT.rstrip() + ' --speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'\n'
    board = Board(lambda plan: diagnosis("target_unsupported", "drop_speculation") if plan.speculative_config else None)
    done = climb(situation(text), board)
    assert done.outcome == "started_without"
    assert done.plan.recipe.after == TEXT


def test_other_errors_are_not_swallowed():
    def start(plan):
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        climb(situation(), start)


def test_setting_of_a_plan_reads_what_is_in_force():
    known = situation()
    plan = decide(known)
    found = setting_of(plan, known)
    assert (found.utilization, found.max_model_len, found.max_num_seqs) == (0.75, 32768, 4)
    assert found.model == plan.speculative_config["model"]
    assert release_from_version("0.20.0").version == known.release.version
