# SPDX-License-Identifier: Apache-2.0
"""What the real engine refuses: found out why, nothing left behind, and a way on where there is one."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from jetson_specdec.errors import InTheWayError, StartFailed
from jetson_specdec.planner import Planner
from jetson_specdec.server import climb
from jetson_specdec.server.state import marked_processes

pytestmark = pytest.mark.real_vllm

NO_POOL = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
"""Without a size of the KV cache, --gpu-memory-utilization decides, as on a board (here it means the host's memory)."""


def failed(desk, server, recipe, **options):
    """Start a recipe that cannot start; return its diagnosis, after a look at what it left."""
    one = server(recipe, **options)
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert marked_processes(one.run_id) == []
    assert desk.engines() == {}
    assert desk.port_free()
    assert one.log_path.exists()
    assert not list(desk.state.glob("*.json"))
    return caught.value.diagnosis


def seen(found):
    return found.cause, found.stage, found.remedy, found.speculation_involved


def test_an_unknown_key(desk, server):
    found = failed(desk, server, desk.write(*desk.config(num_spec_tokens=3), target="small"))
    assert seen(found) == ("spec_config_unknown_key", "config", "fix_config", True)


def test_json_that_lost_its_quotes(desk, server):
    # As it happens when the text goes through one more shell than it was quoted for.
    option, config = desk.config()
    desk.recipe.write_text(desk.text(target="small").rstrip() + f" {option} {config.replace(' ', '')}\n")
    found = failed(desk, server, desk.recipe)
    assert seen(found) == ("spec_config_quoting", "arguments", "fix_quoting", True)


def test_a_draft_with_another_vocabulary(desk, server):
    other = desk.models / "other-vocabulary"
    found = failed(desk, server, desk.write(*desk.config(model=str(other)), target="small"))
    assert seen(found) == ("vocab_mismatch", "config", "other_draft", True)
    assert (found.values["target_vocab"], found.values["draft_vocab"]) == (2048, 2112)


def test_a_draft_that_is_not_there(desk, server):
    found = failed(desk, server, desk.write(*desk.config(model=str(desk.folder / "gone")), target="small"))
    assert seen(found) == ("hub_missing", "download", "predownload", True)


def test_an_unknown_flag(desk, server):
    found = failed(desk, server, desk.write("--no-such-flag", "3", target="small"))
    assert seen(found) == ("flag_unrecognized", "arguments", "fix_config", False)
    assert found.values["flag"] == "--no-such-flag"


def test_more_memory_than_there_is(desk, server):
    text = desk.text(target="small", environ=NO_POOL).replace("utilization 0.5", "utilization 1.0")
    desk.recipe.write_text(text)
    found = failed(desk, server, desk.recipe)
    assert seen(found) == ("memory_precheck", "load", "lower_utilization", False)
    values = found.values
    assert values["requested_utilization"] == 1.0
    assert values["free_gib"] < values["total_gib"] == pytest.approx(values["requested_gib"], abs=0.02)
    assert values["feasible_utilization"] == int(values["free_gib"] / values["total_gib"] * 100) / 100


@pytest.mark.long
def test_a_cache_too_small_for_one_request(desk, server):
    found = failed(desk, server, desk.write("--kv-cache-memory-bytes", "512K", target="small", environ=NO_POOL))
    assert seen(found) == ("kv_cache_too_small", "kv_cache", "reduce_max_model_len", False)
    assert found.values["max_model_len"] == 512
    assert 0 < found.values["feasible_max_model_len"] < 512


@pytest.mark.long
def test_more_drafts_than_the_verifier_takes(desk, server):
    one = server(desk.write(*desk.config(num_speculative_tokens=129), target="small"))  # 128 is the most (vLLM 0.32)
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert seen(caught.value.diagnosis) == ("first_request_failed", "first_request", "reduce_k", True)
    assert "Application startup complete" in one.log_path.read_text()
    assert desk.engines() == {}
    assert desk.port_free()


def test_a_port_in_use(desk, server):
    with socket.create_server(("0.0.0.0", desk.port)):
        with pytest.raises(InTheWayError) as caught:
            server(desk.write(target="small")).start()
        assert str(os.getpid()) in str(caught.value)
        # Somebody who starts it by hand sees the engine's own words.
        done = subprocess.run(
            ["bash", str(desk.recipe)], env=desk.environ, cwd=desk.folder, capture_output=True, text=True, timeout=600,
            check=False,
        )  # fmt: skip
    log = desk.folder / "by-hand.log"
    log.write_text(done.stdout + done.stderr)
    found = desk.json("diagnose", log, "--recipe", desk.recipe, "--exit-code", done.returncode)
    assert (found["cause"], found["remedy"], found["speculation_involved"]) == ("port_in_use", "free_port", False)
    assert desk.engines() == {}


# --- the ladder -------------------------------------------------------------------------------------------------------


def climbed(desk, server):
    """Climb down the ladder from the recipe as it is; return the result, and the server that runs at its end."""
    planner = Planner()
    situation = planner.situation(desk.recipe, device="agx-orin-64gb", l4t="39.0.0", vllm_version="0.32.0")
    plan = planner.decide(situation)
    assert plan.outcome == "already"
    up = []

    def start(tried):
        up.append(server(tried, command_index=tried.command_index))
        return up[-1].start()

    return climb(situation, start, plan=plan), up[-1]


@pytest.mark.long
def test_the_ladder_shortens_the_context_to_what_fits(desk, server):
    # Room for about 1300 tokens, and 2048 asked for.
    text = desk.text("--kv-cache-memory-bytes", "4M", *desk.config(), target="small", environ=NO_POOL)
    desk.recipe.write_text(text.replace("--max-model-len 512", "--max-model-len 2048"))
    before = desk.recipe.read_bytes()
    result, running = climbed(desk, server)
    assert result.outcome == "started", result.to_json()
    first, second = result.tries
    assert first.diagnosis.cause == "kv_cache_too_small"
    assert second.rung.action == "max_model_len"
    fits = first.diagnosis.values["feasible_max_model_len"]
    assert 1024 <= fits < 2048
    assert json.loads(desk.get("/v1/models"))["data"][0]["max_model_len"] == fits
    assert result.plan.speculative_config["model"] == str(desk.models / "draft")
    assert len(desk.speculating()) == 1
    assert running.stop().port_free
    assert desk.engines() == {}
    assert desk.recipe.read_bytes() == before


@pytest.mark.long
def test_the_ladder_takes_more_memory_where_nothing_is_left_for_the_cache(desk, server):
    """Less would be the usual answer to a memory error; here it is the wrong one."""
    import psutil

    total_gib = psutil.virtual_memory().total / 2**30
    little = max(1, int(0.6 / total_gib * 100)) / 100  # less than the weights and libraries take, on up to 100 GiB
    text = desk.text(*desk.config(), environ=NO_POOL)
    desk.recipe.write_text(text.replace("utilization 0.5", f"utilization {little}"))
    result, running = climbed(desk, server)
    assert result.outcome == "started", result.to_json()
    short = result.tries[:-1]
    assert {seen(each.diagnosis)[:3] for each in short} == {("kv_cache_none", "kv_cache", "raise_utilization")}
    assert [each.rung.action for each in result.tries[1:]] == ["utilization"] * len(short)
    tried = [each.setting.utilization for each in result.tries]
    assert tried == sorted(set(tried))
    assert len(short) == 1, "the message says how much is missing"
    assert len(desk.speculating()) == 1
    assert running.stop().port_free
    assert desk.engines() == {}


def test_the_ladder_ends_without_a_draft_that_does_not_fit(desk, server):
    desk.write(*desk.config(model=str(desk.models / "other-vocabulary")), target="small")
    result, running = climbed(desk, server)
    assert result.outcome == "started_without", result.to_json()
    assert [each.diagnosis and each.diagnosis.cause for each in result.tries] == ["vocab_mismatch", None]
    assert desk.speculating() == []
    assert desk.answers()
    assert running.stop().port_free
    assert desk.engines() == {}


# --- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_a_killed_keeper_leaves_is_found_and_ended(desk, server):
    """Owner and keeper killed at once: the API server ends, its engine lives on by itself, with all the memory."""
    code = (
        "import sys, time\nfrom jetson_specdec.server import Server\n"
        f"one = Server({str(desk.write(target='small'))!r}, state_dir={str(desk.state)!r}, start_timeout_s=600)\n"
        "one.start()\nprint(one.run_id, flush=True)\ntime.sleep(3600)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], env=desk.environ, cwd=desk.folder, stdout=subprocess.PIPE, text=True
    )
    with owner.stdout:
        run_id = owner.stdout.readline().strip()
        state = json.loads((desk.state / f"{run_id}.json").read_text())
        os.kill(state["keeper_pid"], signal.SIGKILL)
        owner.kill()
        owner.wait()
    desk.until(lambda: not desk.answers())
    assert [words for words in desk.engines().values() if "VLLM::" in words], "nothing is left to be found"
    done = desk.json("tune", "--restore", "--state-dir", desk.state)
    assert [each["run_id"] for each in done["restored"]] == [run_id]
    assert done["restored"][0]["ended"]
    desk.until(lambda: not desk.engines())
    assert not list(desk.state.glob("*.json"))
