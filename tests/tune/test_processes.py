# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec tune` as a process that starts real processes: stopped, killed, and put back."""

from __future__ import annotations

import json
import signal

from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.gate import EXIT_CODES

# The truth says "enable" by far; a machine that is busy with other things may still measure something else.
VERDICTS = (0, 10, 11, 12)


def finished(process, seconds=120):
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out, err


def test_a_whole_tune_takes_the_old_server_down_and_brings_it_back(real):
    old = real.serve()
    before = real.recipe.read_bytes()
    code, out, err = finished(real.start())
    assert code in VERDICTS, err
    result = json.loads(out)
    Draft202012Validator(schemas.load("tune")).validate(result)
    assert EXIT_CODES[result["outcome"]] == code
    assert result["launches"] == 3
    assert old.wait(10) is not None
    assert real.recipe.read_bytes() == before
    real.until(real.answers)
    assert len(real.listeners()) == 1
    assert real.speculating() == []
    assert {"JSD974", "JSD976"} <= {finding["code"] for finding in result["findings"]}
    assert list(real.state.glob("*.json")) == []
    again = real.run("tune", "--rejudge", real.evidence, "--json")
    assert again.returncode == code
    assert json.loads(again.stdout) == result["verdict"]
    watched = real.run("watch", f"http://127.0.0.1:{real.port}", "--reference", real.evidence, "--once", "--interval",
                       "0.01", "--json")  # fmt: skip
    assert watched.returncode == 30  # the old server does not speculate
    assert json.loads(watched.stdout)["findings"][-1]["code"] == "JSD983"


def test_stopped_in_the_middle(real):
    real.serve()
    before = real.recipe.read_bytes()
    process = real.start()
    real.until(real.speculating)
    process.send_signal(signal.SIGTERM)
    code, out, err = finished(process)
    assert code == 130, err
    result = json.loads(out)
    assert result["outcome"] == "interrupted"
    assert real.recipe.read_bytes() == before
    real.until(real.answers)
    assert real.speculating() == []
    assert len(real.listeners()) == 1
    assert real.state_of()["status"] == "interrupted"


def test_killed_then_restored_then_resumed(real):
    real.serve()
    before = real.recipe.read_bytes()
    process = real.start()
    real.until(real.speculating)
    process.kill()
    process.communicate(timeout=30)
    # What it had started ends by itself, or restore ends it; the old server is back either way.
    done = real.run("tune", "--restore", "--state-dir", real.state, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["restored"]
    assert [step["kind"] for step in said["next_steps"]] == ["tune-resume"]
    assert said["next_steps"][0]["command"].endswith(f"--resume {real.evidence}")
    real.until(real.answers)
    real.until(lambda: not real.speculating())
    assert len(real.listeners()) == 1
    assert real.recipe.read_bytes() == before
    measured = real.state_of()["blocks"]
    assert measured
    again = real.run(*real.words("--yes", "--resume", real.evidence)[3:])
    assert again.returncode in VERDICTS, again.stderr
    assert json.loads(again.stdout)["pairs"] == 1
    assert real.state_of()["blocks"][: len(measured)] == measured
    real.until(real.answers)
    assert real.speculating() == []
    assert real.recipe.read_bytes() == before


def test_a_server_that_dies_at_once(real):
    log = real.folder / "dead.log"
    log.write_text(
        "INFO 03-04 05:06:07 [api_server.py:1] vLLM API server version 0.32.0\nFatal Python error: Aborted\n"
    )
    real.fake(start_log=str(log), exit_code=1)
    code, out, _ = finished(real.start())
    assert code == 15
    result = json.loads(out)
    assert result["outcome"] == "not_started"
    assert result["launches"] == 1
    assert not real.answers()


def test_without_a_yes_and_a_terminal_nothing_is_touched(real):
    real.serve()
    listening = real.listeners()
    done = real.run(*real.words("--evidence", real.evidence)[3:])
    assert done.returncode == 3
    assert done.stdout == ""
    assert "will be down" in done.stderr
    assert real.listeners() == listening
    assert not real.evidence.exists()
