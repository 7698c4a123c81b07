# SPDX-License-Identifier: Apache-2.0
"""Starting, failing and stopping native recipes, with a stand-in for `vllm`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from jetson_specdec.errors import InTheWayError, LaunchError, ServerError, StartFailed
from jetson_specdec.server import leftovers, restore
from jetson_specdec.server.others import is_engine

SPEC = """--speculative-config '{"method": "draft_model", "model": "org/draft", "num_speculative_tokens": 3}'"""


def test_start_returns_after_a_first_completion_and_stop_leaves_nothing(server, port, marked, tmp_path):
    one = server(f"vllm serve org/m --port {port}\n")
    started = one.start()
    assert started.base_url == f"http://127.0.0.1:{port}/v1" == one.base_url
    assert started.model == "org/m"
    assert started.first_completion_tokens == 16
    assert marked(one.run_id)
    assert [path.name for path in (tmp_path / "state").glob("*.json")] == [f"{one.run_id}.json"]
    log = one.log_path.read_text()
    assert "Application startup complete" in log
    assert '"POST /v1/completions' in log
    stopped = one.stop()
    assert (stopped.port_free, stopped.memory_back, stopped.findings) == (True, True, ())
    assert not marked(one.run_id)
    assert not list((tmp_path / "state").glob("*.json"))
    assert not one.running


def test_the_text_is_run_as_it_is_up_to_the_command(server, port, tmp_path):
    script = tmp_path / "serve.sh"
    script.write_text(
        f"#!/bin/bash\nexport PORT={port}\nNAME=small\ncd sub\n"
        'nohup vllm serve org/m --port "$PORT" --served-model-name $NAME > server.log 2>&1 &\n'
        "touch afterwards\n"
    )
    (tmp_path / "sub").mkdir()
    with server(script) as one:
        assert urllib.request.urlopen(f"{one.base_url}/models").status == 200
        assert one.address.model == "small"
        topics = [finding.topic for finding in one.launch.findings]
        assert topics == ["output-redirected"]
        assert "Application startup complete" in one.log_path.read_text()
    assert not (tmp_path / "sub" / "server.log").exists()
    assert not (tmp_path / "afterwards").exists()
    assert not (tmp_path / "sub" / "afterwards").exists()


def test_a_command_inside_a_condition_runs_with_the_whole_text(server, port):
    with server(f"if true; then\n  vllm serve org/m --port {port}\nfi\n") as one:
        assert one.running


def test_variables_of_this_environment_decide_the_port(server, port, environ):
    environ["MY_PORT"] = str(port)
    with server("vllm serve org/m --port $MY_PORT") as one:
        assert one.address.port == port


def test_secrets_stay_out_of_the_log(server, port, fake):
    key = "sesame-open-1234"
    with server(f"echo the key is {key}\nvllm serve org/m --port {port} --api-key {key}\n") as one:
        log = one.log_path.read_text()
        assert "the key is ***" in log
        assert key not in log
        assert key not in repr(one.launch)
        assert key not in repr(one.address)


def test_everything_it_started_goes_even_what_hides(server, port, marked, tools):
    text = f"nohup setsid sleep 300 >/dev/null 2>&1 &\n(trap '' TERM; sleep 301) &\nvllm serve org/m --port {port}\n"
    one = server(text, grace_s=1)
    one.start()
    assert len(marked(one.run_id)) >= 3
    one.stop()
    assert marked(one.run_id) == []


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--no-such-flag", "flag_unrecognized"),
        ("--speculative-config '{method: eagle3}'", "spec_config_quoting"),
    ],
)
def test_a_start_that_is_refused_is_diagnosed(server, port, arguments, cause, marked):
    one = server(f"vllm serve org/m --port {port} {arguments}")
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert caught.value.diagnosis.cause == cause
    assert caught.value.diagnosis.started_ok is False
    assert cause in str(caught.value)
    assert str(one.log_path) in str(caught.value)
    assert not one.running
    assert not marked(one.run_id)


def test_too_little_memory_is_diagnosed_with_its_direction(server, port, fake):
    fake(memory={"free_gib": 20.0})
    with pytest.raises(StartFailed) as caught:
        server(f"vllm serve org/m --port {port} --gpu-memory-utilization 0.8").start()
    assert caught.value.diagnosis.cause == "memory_precheck"
    assert caught.value.diagnosis.values["feasible_utilization"] == 0.32  # 20 / 61.4, rounded down


def test_a_pair_that_dies_at_its_first_request_did_not_start(server, port, fake):
    fake(faults={"0": {"kind": "engine_dead"}})
    with pytest.raises(StartFailed) as caught:
        server(f"vllm serve org/m --port {port} {SPEC}", settle_s=0.5).start()
    found = caught.value.diagnosis
    assert (found.cause, found.stage, found.remedy) == ("first_request_failed", "first_request", "drop_speculation")
    assert found.speculation_involved is True


def test_a_server_that_goes_away_with_exit_code_0_did_not_start(server, programs, environ, tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text("#!/bin/sh\necho loading\nexit 0\n")
    program.chmod(0o755)
    environ["PATH"] = f"{program.parent}:{environ['PATH']}"
    with pytest.raises(StartFailed) as caught:
        server("vllm serve org/m").start()
    assert caught.value.diagnosis.started_ok is False
    assert caught.value.diagnosis.cause == "engine_failed"


def test_a_process_that_hangs_after_a_fatal_line_is_not_waited_for(server, environ, tmp_path, port):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    line = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
    program.write_text(f"#!/bin/sh\necho '(EngineCore pid=7) {line}'\nexec sleep 300\n")
    program.chmod(0o755)
    environ["PATH"] = f"{program.parent}:{environ['PATH']}"
    with pytest.raises(StartFailed) as caught:
        server(f"vllm serve org/m --port {port}", start_timeout_s=60, settle_s=0.2).start()
    assert caught.value.diagnosis.cause == "kv_cache_none"
    assert caught.value.diagnosis.remedy == "raise_utilization"


def test_a_start_that_takes_too_long(server, port, fake, marked):
    fake(startup_s=300)
    one = server(f"vllm serve org/m --port {port}", start_timeout_s=0.5)
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert caught.value.diagnosis.cause == "start_timeout"
    assert not marked(one.run_id)


def test_a_program_that_is_not_there(server, environ, port):
    environ["PATH"] = "/usr/bin:/bin"
    one = server(f"vllm serve org/m --port {port}")
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert caught.value.diagnosis.started_ok is False
    assert "vllm: command not found" in one.log_path.read_text()


def test_the_wrong_key_is_said_at_once(server, port, environ, programs, tmp_path):
    # The key in force is another one than the recipe tells: the engine reads it from a file of its own.
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm"
    program.write_text(f'#!/bin/sh\nexec {programs}/vllm "$@" --api-key other-key\n')
    program.chmod(0o755)
    environ["PATH"] = f"{program.parent}:{environ['PATH']}"
    with pytest.raises(ServerError) as caught:
        server(f"vllm serve org/m --port {port}").start()
    assert caught.value.code == "JSE934"


# --- who is in the way ------------------------------------------------------------------------------------------------


@pytest.fixture
def other(environ, port, tmp_path):
    """A server of somebody else on the port."""
    (tmp_path / "other").mkdir()
    log = tmp_path / "other" / "out.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["vllm", "serve", "org/other", "--port", str(port), "--api-key", "their-secret-key"],
            env=environ,
            stdout=output,
            stderr=output,
            cwd=tmp_path / "other",
        )
    yield process
    process.kill()
    process.wait()


def test_a_server_in_the_way_is_named_and_not_touched(server, other, port, tools):
    tools["until"](lambda: _listens(port))
    one = server(f"vllm serve org/m --port {port}")
    with pytest.raises(InTheWayError) as caught:
        one.start()
    (occupant,) = caught.value.occupants
    assert (occupant.kind, occupant.pid, occupant.port) == ("process", other.pid, port)
    assert f"process {occupant.name} (pid {other.pid})" in str(caught.value)
    assert occupant.name not in ("python", "python3", "sh", "bash")  # what it runs, not what runs it
    assert "their-secret-key" not in str(caught.value) + repr(occupant) + json.dumps(occupant.to_json())
    assert other.poll() is None
    assert not one.log_path.exists()


def test_when_told_to_it_is_replaced_and_put_back(server, other, port, tmp_path, tools):
    tools["until"](lambda: _listens(port))
    one = server(f"vllm serve org/m --port {port}", replace=True)
    started = one.start()
    assert started.model == "org/m"
    assert other.wait(10) is not None
    assert one.stop().port_free
    assert len(list((tmp_path / "state").glob("*.json"))) == 1  # it still knows what to put back
    assert len(one.put_back()) == 1
    tools["until"](lambda: _listens(port))
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": "Bearer their-secret-key"}
    )
    back = tools["until"](lambda: _try(request))
    assert json.loads(back)["data"][0]["id"] == "org/other"
    assert not list((tmp_path / "state").glob("*.json"))
    again = server(f"vllm serve org/m --port {port}").in_the_way()
    os.kill(again[0].pid, signal.SIGKILL)


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _try(request):
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read()
    except OSError:
        return None


def test_another_server_elsewhere_is_named(server, other, port, tools):
    tools["until"](lambda: _listens(port))
    one = server(f"vllm serve org/m --port {tools['free_port']()}")
    started = one.start()
    found = [finding for finding in started.findings if finding.topic == "other-server"]
    assert other.pid in [finding.values["pid"] for finding in found]
    assert started.pid not in [finding.values["pid"] for finding in found]
    one.stop()
    assert other.poll() is None


@pytest.mark.parametrize(
    ("argv", "engine"),
    [
        (["/usr/bin/python3", "/usr/local/bin/vllm", "serve", "m"], True),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], True),
        (["VLLM::EngineCore", "", ""], True),
        (["vllm", "bench", "serve"], False),
        (["grep", "vllm serve"], False),
        ([], False),
    ],
)
def test_what_an_engine_looks_like(argv, engine):
    assert is_engine(argv) is engine


def test_an_engine_whose_server_was_killed_is_named(server, port):
    """It hangs in the air under the title it gave itself, and holds all the memory."""
    left = subprocess.Popen(["bash", "-c", "exec -a VLLM::EngineCore sleep 300"])
    try:
        found = server(f"vllm serve org/m --port {port}").start().findings
        assert left.pid in [each.values["pid"] for each in found if each.topic == "other-server"]
    finally:
        left.kill()
        left.wait()


_SEVERAL = """
import subprocess, sys
listen = "import socket, time; one = socket.create_server(('0.0.0.0', {port})); time.sleep(300)"
subprocess.run(["bash", "-c", 'exec -a VLLM::APIServer_0 "$@"', "bash", sys.executable, "-c", listen])
"""


def test_with_several_api_servers_the_one_above_them_is_in_the_way(server, port, tmp_path, tools):
    script = tmp_path / "vllm"
    script.write_text(_SEVERAL.format(port=port))
    above = subprocess.Popen([sys.executable, str(script), "serve", "org/other"], start_new_session=True)
    try:
        tools["until"](lambda: _listens(port))
        (held,) = server(f"vllm serve org/m --port {port}").in_the_way()
        assert (held.pid, held.name) == (above.pid, "vllm")
        assert held.argv[-2:] == ("serve", "org/other")  # what can be started again; a title cannot
    finally:
        os.killpg(above.pid, signal.SIGKILL)
        above.wait()


def test_titles_leave_the_mark_readable(server, port):
    started = server(f"vllm serve org/m --port {port}").start()
    environ = Path(f"/proc/{started.pid}/environ").read_bytes().split(b"\0")
    assert b"SPT_NOENV=1" in environ


# --- when we are killed -----------------------------------------------------------------------------------------------

_OWNER = """
import sys, time
from jetson_specdec.server import Server
server = Server({text!r}, log_dir={logs!r}, state_dir={state!r}, grace_s=5)
server.start()
print(server.run_id, flush=True)
time.sleep(300)
"""


def _owner(environ, port, tmp_path):
    code = _OWNER.format(
        text=f"vllm serve org/m --port {port}\n", logs=str(tmp_path / "logs"), state=str(tmp_path / "state")
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_a_killed_owner_takes_its_server_along(environ, fake, port, tmp_path, marked, tools):
    process, run_id = _owner(environ, port, tmp_path)
    with process.stdout:
        assert marked(run_id)
        process.kill()
        process.wait()
        tools["until"](lambda: not marked(run_id))
    assert [state.run_id for state in leftovers(tmp_path / "state")] == [run_id]
    (done,) = restore(tmp_path / "state", grace_s=5)
    assert (done.run_id, done.failed) == (run_id, ())
    assert not list((tmp_path / "state").glob("*.json"))


def test_restore_ends_what_a_killed_owner_and_keeper_left(environ, fake, port, tmp_path, marked, tools):
    process, run_id = _owner(environ, port, tmp_path)
    with process.stdout:
        keeper = json.loads((tmp_path / "state" / f"{run_id}.json").read_text())["keeper_pid"]
        os.kill(keeper, signal.SIGSTOP)  # so that it cannot end the server, as if it had been killed first
        process.kill()
        process.wait()
        orphan = subprocess.Popen(
            ["sleep", "300"], env={**environ, "JETSON_SPECDEC_RUN": run_id}
        )  # what a hidden child of the server looks like
        os.kill(keeper, signal.SIGKILL)
        (done,) = restore(tmp_path / "state", grace_s=5)
        orphan.wait(10)
    assert orphan.pid in done.ended
    assert marked(run_id) == []
    assert leftovers(tmp_path / "state") == ()


def test_the_start_of_a_living_program_is_no_leftover(server, port, tmp_path):
    with server(f"vllm serve org/m --port {port}"):
        assert leftovers(tmp_path / "state") == ()
        assert restore(tmp_path / "state") == ()


# --- what cannot be started from here ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("sudo sysctl -w vm.drop_caches=3\nvllm serve org/m\n", "JSE902"),
        ("vllm serve org/m --port $UNKNOWN_PORT\n", "JSE904"),
        ("vllm serve org/m --uds s.sock\n", "JSE905"),
        ("docker run -p 9000:9000 vllm/vllm-openai:v0.20.0 --model org/m\n", "JSE906"),
        ("docker exec theirs vllm serve org/m\n", "JSE909"),
        ("alias s='vllm serve org/m --port $X'\n", "JSE907"),
    ],
)
def test_refused_beforehand(server, text, code):
    with pytest.raises(LaunchError) as caught:
        server(text)
    assert caught.value.code == code
    assert caught.value.exit_code == 2


def test_a_running_server_is_not_started_twice(server, port):
    with server(f"vllm serve org/m --port {port}") as one, pytest.raises(ServerError) as caught:
        one.start()
    assert caught.value.code == "JSE931"
