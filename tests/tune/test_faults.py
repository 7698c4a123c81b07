# SPDX-License-Identifier: Apache-2.0
"""What can go wrong around a tune: folders that vanish, ports that are taken, supervisors, readers that go away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest
from attrs import evolve

from jetson_specdec.errors import InTheWayError, OutputError, ServerError
from jetson_specdec.server import Occupant
from jetson_specdec.tune import Evidence, restore

GOOD = {"step_ms": 30.0, "draft_ms": 1.0, "verify_ms": 0.05, "acceptance": (0.8, 0.66, 0.55, 0.45, 0.37), "noise": 0.01}
ARGV = (sys.executable, "/usr/bin/vllm", "serve", "Qwen/Qwen3-8B")
OURS = Occupant(kind="process", name="vllm", holds="port", port=8391, pid=1, argv=ARGV)
VERDICTS = (0, 10, 11, 12)


def codes(result):
    return [finding.code for finding in result.findings]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [2, 4])
def test_the_evidence_is_deleted_meanwhile(lab, at):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    before = here.recipe.read_bytes()
    here.on_bench = lambda number: shutil.rmtree(here.folder / "evidence") if number == at else None
    with pytest.raises(OutputError):
        here.tune()
    assert here.running is None
    assert here.back == ["vllm"]
    assert here.recipe.read_bytes() == before


@pytest.mark.parametrize("fault", ["a file in its place", "a file above it"])
def test_a_state_folder_that_cannot_be_written_is_found_before_anybody_is_asked(lab, fault):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    (here.folder / "state").write_text("")
    asked = []
    tools = here.tools if fault == "a file in its place" else evolve(here.tools, state_dir=here.folder / "state" / "x")
    with pytest.raises(OutputError, match="state"):
        here.tune(tools=tools, agree=lambda offer: asked.append(offer) or True)
    assert (here.launches, asked) == ([], [])
    assert not (here.folder / "evidence").exists()


@pytest.mark.parametrize("how", ["edited", "removed"])
def test_the_recipe_is_changed_meanwhile(lab, how):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    old = here.recipe.read_text()

    def change(number):
        if number == 2:
            here.recipe.unlink() if how == "removed" else here.recipe.write_text("vllm serve other/model\n")

    here.on_bench = change
    result = here.tune()
    assert result.outcome == "enable"
    assert "JSD994" in codes(result)
    assert here.back == ["vllm"]
    # What was measured is what is handed over; what its owner did to the file stays.
    assert (here.folder / "serve.specdec.sh").read_text().startswith(old.partition(" --port")[0])
    assert not here.recipe.exists() if how == "removed" else here.recipe.read_text() == "vllm serve other/model\n"


def test_a_config_file_that_is_changed_meanwhile_ends_it(lab):
    """A server of a `--config` file is started from the file, so the next arm would be another recipe."""
    here = lab(**GOOD)
    here.recipe = here.folder / "vllm.yaml"
    here.recipe.write_text("model: Qwen/Qwen3-8B\nport: 8391\nmax-num-seqs: 16\n")
    here.occupants = (OURS,)
    here.on_bench = lambda number: here.recipe.write_text("model: other/model\n") if number == 2 else None
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert "JSD994" in codes(result)
    assert (here.back, len(here.launches)) == (["vllm"], 2)


# --- the board --------------------------------------------------------------------------------------------------------


def test_the_board_vanishes(lab):
    """No program answers, no memory can be read: nothing is known, and nothing is assumed."""
    here = lab(**GOOD)
    here.occupants = (OURS,)
    gone = []

    class Vanishing(type(here.tools.host)):
        def read_text(self, path, *, limit=1 << 20):
            return None if gone else super().read_text(path, limit=limit)

        def read_bytes(self, path, *, limit=1 << 24):
            return None if gone else super().read_bytes(path, limit=limit)

        def list_dir(self, path):
            return () if gone else super().list_dir(path)

    here.on_bench = lambda number: gone.append(number) if number == 2 else None
    result = here.tune(tools=evolve(here.tools, host=Vanishing()))
    assert result.outcome == "enable"
    assert here.back == ["vllm"]


# --- others -----------------------------------------------------------------------------------------------------------


def test_a_stranger_takes_the_port_between_two_starts(lab, real):
    real.serve()
    here = lab(board=real, **GOOD)
    before = real.recipe.read_bytes()
    stranger = []

    def listen(number):
        if number == 2:
            code = f"import socket, time; s = socket.create_server(('127.0.0.1', {real.port})); time.sleep(300)"
            stranger.append(subprocess.Popen([sys.executable, "-c", code]))
            real.until(real.answers)

    here.on_bench = listen
    try:
        result = here.tune()
        assert (result.outcome, result.exit_code) == ("not_started", 15)
        found = next(finding for finding in result.findings if finding.code == "JSD992")
        assert str(stranger[0].pid) in found.message
        assert {"tune-restore", "tune-resume"} <= {step.kind for step in result.next_steps}
        # The old server would find its port taken, so it is not started; it is still known what to bring back.
        assert "JSD975" in codes(result)
        assert stranger[0].poll() is None
        assert real.servers() == []
        (failed,) = restore(real.state)
        assert "is taken by" in failed.failed[0][1]
    finally:
        stranger[0].kill()
        stranger[0].wait()
    (done,) = restore(real.state)
    assert len(done.brought_back) == 1
    real.until(real.answers)
    here.on_bench = lambda number: None
    assert here.tune(resume=here.folder / "evidence").outcome == "enable"
    real.until(real.answers)
    assert len(real.servers()) == 1
    assert real.recipe.read_bytes() == before


def test_an_unknown_supervisor_is_said_and_not_fought_over(lab, real):
    """A loop in a shell brings the old server back each time it ends."""
    loop = f"while true; do bash {real.recipe}; done"
    shell = subprocess.Popen(["bash", "-c", loop], env=real.environ, start_new_session=True, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        real.until(real.answers)
        here = lab(board=real, **GOOD)
        with pytest.raises(ServerError) as caught:
            here.tune()
        assert caught.value.code == "JSE921"
        assert "supervisor" in str(caught.value)
        assert shell.poll() is None
        real.until(real.answers)
        assert len(real.servers()) == 1
        assert list(real.state.iterdir()) == []
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_a_supervisor_that_takes_its_time_ends_it_at_the_next_start(lab):
    here = lab(**GOOD)
    here.occupants = (OURS,)
    here.on_bench = lambda number: setattr(here, "returned", (OURS,)) if number == 2 else None
    result = here.tune()
    assert (result.outcome, result.exit_code) == ("not_started", 15)
    assert "JSD993" in codes(result)
    assert len(here.launches) == 2
    assert Evidence(here.folder / "evidence").state()["status"] == "stopped"
    here.returned = ()
    assert here.tune(resume=here.folder / "evidence").outcome == "enable"


def test_somebody_who_came_after_the_question_is_not_taken_down(lab, real):
    """What was agreed to is what was shown."""
    here = lab(board=real, **GOOD)
    stranger = []

    def agree(offer):
        assert offer.occupants == ()
        code = f"import socket, time; s = socket.create_server(('127.0.0.1', {real.port})); time.sleep(300)"
        stranger.append(subprocess.Popen([sys.executable, "-c", code]))
        real.until(real.answers)
        return True

    try:
        with pytest.raises(InTheWayError) as caught:
            here.tune(agree=agree)
        assert caught.value.code == "JSE930"
        assert stranger[0].poll() is None
        assert here.launches == []
        assert list(real.state.iterdir()) == []
    finally:
        stranger[0].kill()
        stranger[0].wait()


def test_two_tunes_at_once(lab):
    here = lab(**GOOD)
    inner = []

    def second(number):
        if number == 1:
            with pytest.raises(ServerError) as caught:
                here.tune(evidence=here.folder / "other")
            inner.append(caught.value.code)

    here.on_bench = second
    assert here.tune().outcome == "enable"
    assert inner == ["JSE935"]
    assert not (here.folder / "other").exists()


# --- whoever reads it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_nobody_reads_any_more(real, stream):
    """The reader of a pipe goes away in the middle: the old server comes back, and the exit code still tells."""
    real.serve()
    process = subprocess.Popen(
        real.words("--yes", "--evidence", real.evidence), env=real.environ, cwd=real.folder,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: subprocess.PIPE},
    )  # fmt: skip
    real.until(lambda: len(real.servers()) and (real.evidence / "state.json").exists())
    getattr(process, stream).close()
    assert process.wait(120) in VERDICTS
    real.until(real.answers)
    assert len(real.servers()) == 1
    assert real.state_of()["status"] == "done"
    assert list(real.state.iterdir()) == []


def test_streams_that_were_closed_from_the_beginning(real):
    words = [sys.executable, "-m", "jetson_specdec", "tune", "--restore", "--state-dir", str(real.state)]
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], env=real.environ, check=False)
        assert done.returncode == 0, closed


def test_a_live_tune_is_not_disturbed(real, mortals):
    real.serve()
    begun = real.begin("--evidence", real.evidence)
    real.until(real.marked)
    done = real.run("tune", "--restore", "--state-dir", real.state, "--json")
    assert (done.returncode, done.stdout) == (15, "")
    assert f"pid {begun[0]}" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    code, out, err = real.finish(begun)
    assert code in VERDICTS, err
    assert json.loads(out)["pairs"] == 1
    real.until(real.answers)
    assert len(real.servers()) == 1


def test_keeper_and_server_killed_while_measuring(real, mortals):
    """Each costs a block that is measured once more; twice in a row would end it."""
    real.fake(time_scale=0.5)
    real.serve()
    begun = real.begin("--evidence", real.evidence)
    remarks = begun[2]
    for ready, find in ((1, lambda: _keepers(real)), (3, real.speculating)):
        real.until(lambda ready=ready: remarks.read_text().count("is ready after") >= ready, 180)
        os.kill(real.until(find)[0], signal.SIGKILL)
    code, out, err = real.finish(begun)
    assert code in VERDICTS, err
    assert codes_of(out).count("JSD991") == 2
    assert real.marked() == []
    real.until(real.answers)
    assert len(real.servers()) == 1
    assert list(real.state.iterdir()) == []


def codes_of(out):
    return [finding["code"] for finding in json.loads(out)["findings"]]


def _keepers(board):
    found = [json.loads(path.read_text()) for path in board.state.glob("[!.c]*.json")]
    return [each["keeper_pid"] for each in found if each["keeper_pid"] and not each["ended"]]
