# SPDX-License-Identifier: Apache-2.0
"""Containers, compose services and units, against stand-ins that behave like the real commands where it matters."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jetson_specdec.errors import InTheWayError, StartFailed
from jetson_specdec.planning.plan import FileChange, Plan
from jetson_specdec.server import restore
from jetson_specdec.server.commands import Commands

IMAGE = "vllm/vllm-openai:v0.20.0"


def names(ask):
    return {one["name"]: one for one in ask(do="list")["containers"]}


@pytest.fixture
def docker(environ):
    return lambda *words: Commands(environ).run(["docker", *words])


# --- the stand-in is faithful where starting and stopping depends on it -----------------------------------------------


def test_stand_in_terminal_names_and_conflicts(daemon, docker, ask):
    assert docker("run", "-it", IMAGE, "--model", "m").stderr.strip() == "the input device is not a TTY"
    assert docker("run", "-d", "--name", "a", "--entrypoint", "sleep", IMAGE, "300").ok
    taken = docker("run", "-d", "--name", "a", "--entrypoint", "sleep", IMAGE, "300")
    assert taken.exit_code == 125
    assert 'The container name "/a" is already in use' in taken.stderr
    assert docker("run", "--rm", "--restart", "always", IMAGE).exit_code == 125
    assert docker("stop", "-t", "1", "a").ok
    assert not names(ask)["a"]["running"]
    assert docker("rm", "a").ok
    assert docker("inspect", "a").exit_code == 1


def test_stand_in_restarts_what_ends_by_itself_and_not_what_is_stopped(daemon, docker, ask, tools):
    docker("run", "-d", "--name", "b", "--restart", "unless-stopped", "--entrypoint", "sleep", IMAGE, "300")
    first = names(ask)["b"]["pid"]
    ask(do="kill", name="b", number=15)
    tools["until"](lambda: names(ask)["b"]["pid"] not in (0, first))
    docker("stop", "-t", "1", "b")
    assert not names(ask)["b"]["running"]


def test_stand_in_containers_outlive_their_client(daemon, environ, ask, tools):
    client = subprocess.Popen(
        ["docker", "run", "--rm", "--name", "c", "--entrypoint", "sleep", IMAGE, "300"],
        env=environ,
        stdin=subprocess.DEVNULL,
    )
    tools["until"](lambda: names(ask).get("c", {}).get("running"))
    client.kill()
    client.wait()
    assert names(ask)["c"]["running"]


# --- docker run -------------------------------------------------------------------------------------------------------


def test_docker_run_is_started_by_name_and_removed(server, daemon, port, ask):
    one = server(f"docker run -it --rm --gpus all --name llm -p {port}:8000 {IMAGE} --model org/m\n")
    started = one.start()
    assert (started.container, started.base_url) == ("llm", f"http://127.0.0.1:{port}/v1")
    assert names(ask)["llm"]["running"]
    assert "Application startup complete" in one.log_path.read_text()
    one.stop()
    assert names(ask) == {}


@pytest.mark.parametrize("options", ["-dit --restart unless-stopped"])
def test_detached_and_restarting_containers_are_held(server, daemon, port, ask, options):
    one = server(f"docker run {options} --network host {IMAGE} org/m --port {port} && docker logs -f x\n")
    started = one.start()
    assert started.container == f"jetson-specdec-{one.run_id}"
    assert names(ask)[started.container]["restart"] == "no"
    assert any(finding.topic == "run-options-left-out" for finding in started.findings)
    one.stop()
    assert names(ask) == {}


def test_sudo_before_docker_is_left_out(server, port):
    one = server(f"sudo docker run --rm --network host {IMAGE} --model org/m --port {port}")
    assert any(finding.topic == "sudo-left-out" for finding in one.launch.findings)
    assert "sudo" not in one.launch.argv[2]


def test_a_container_that_fails_is_diagnosed_and_gone(server, daemon, port, ask):
    one = server(f"docker run --name llm --network host {IMAGE} --model org/m --port {port} --no-such-flag")
    with pytest.raises(StartFailed) as caught:
        one.start()
    assert caught.value.diagnosis.cause == "flag_unrecognized"
    assert names(ask) == {}


def test_an_image_that_is_missing(server, daemon, port):
    with pytest.raises(StartFailed) as caught:
        server(f"docker run --network host missing/vllm:1 vllm serve org/m --port {port}").start()
    assert caught.value.diagnosis.cause == "image_missing"
    assert caught.value.diagnosis.stage == "container"


def test_no_docker_daemon(server, port):
    with pytest.raises(StartFailed) as caught:
        server(f"docker run --network host {IMAGE} org/m --port {port}").start()
    assert caught.value.diagnosis.cause == "container_runtime"


def test_a_killed_owner_leaves_no_container(environ, daemon, port, tmp_path, ask, tools):
    code = (
        "import time; from jetson_specdec.server import Server\n"
        f"Server('docker run --rm --name llm -p {port}:8000 {IMAGE} org/m', log_dir={str(tmp_path)!r},"
        f" state_dir={str(tmp_path / 'state')!r}, grace_s=5).start()\nprint('up', flush=True); time.sleep(300)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True)
    with process.stdout:
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait()
        tools["until"](lambda: not names(ask))
    restore(tmp_path / "state", runner=Commands(environ), grace_s=5)


def test_a_container_of_that_name_is_named_and_not_touched(server, daemon, port, docker, ask):
    docker(
        "run",
        "-d",
        "--name",
        "llm",
        "--restart",
        "always",
        "--network",
        "host",
        IMAGE,
        "org/old",
        "--port",
        port_text(port),
    )
    with pytest.raises(InTheWayError) as caught:
        server(f"docker run --rm --name llm --network host {IMAGE} org/m --port {port}").start()
    assert "container llm" in str(caught.value)
    assert names(ask)["llm"]["running"]
    assert names(ask)["llm"]["restarts"] == 0


def test_a_container_is_replaced_through_docker_and_put_back(server, daemon, port, docker, ask, tools):
    docker("run", "-d", "--name", "llm", "--restart", "always", "-p", f"{port}:8000", IMAGE, "org/old")
    old = names(ask)["llm"]["id"]
    one = server(f"docker run --rm --name llm -p {port}:8000 {IMAGE} org/m", replace=True)
    assert one.start().model == "org/m"
    kept = next(shown for shown in names(ask).values() if shown["id"] == old)
    assert kept["name"].startswith("llm-before-")
    assert not kept["running"]
    one.stop(put_back=True)
    back = names(ask)
    assert set(back) == {"llm"}
    assert back["llm"]["id"] == old
    assert back["llm"]["running"]


def test_a_container_on_the_port_under_another_name(server, daemon, port, docker, ask, tools):
    docker("run", "-d", "--name", "theirs", "-p", f"{port}:8000", IMAGE, "org/old")
    one = server(f"docker run --rm -p {port}:8000 {IMAGE} org/m")
    (occupant,) = tools["until"](one.in_the_way)
    assert (occupant.kind, occupant.name, occupant.holds) == ("container", "theirs", "port")
    assert occupant.stop == ("docker", "stop", "theirs")


def port_text(port):
    return str(port)


# --- docker compose ---------------------------------------------------------------------------------------------------


def compose(tmp_path, port, command="--model org/m"):
    folder = tmp_path / "Stack"
    folder.mkdir(exist_ok=True)
    path = folder / "compose.yaml"
    path.write_text(
        "services:\n"
        "  db:\n    image: postgres:16\n"
        "  llm:\n"
        f"    image: {IMAGE}\n"
        "    restart: unless-stopped\n"
        f'    ports: ["{port}:8000"]\n'
        f"    command: {command}\n"
    )
    return path


def test_a_compose_service_is_started_alone_and_removed(server, daemon, port, tmp_path, ask):
    path = compose(tmp_path, port)
    before = path.read_bytes()
    one = server(path)
    started = one.start()
    assert (started.service, started.model) == ("llm", "org/m")
    assert set(names(ask)) == {"stack-llm-1"}
    assert names(ask)["stack-llm-1"]["restart"] == "no"
    one.stop()
    assert names(ask) == {}
    assert path.read_bytes() == before


def test_a_compose_service_that_fails(server, daemon, port, tmp_path, ask):
    path = compose(tmp_path, port, command="--model org/m --no-such-flag")
    with pytest.raises(StartFailed) as caught:
        server(path).start()
    assert caught.value.diagnosis.cause == "flag_unrecognized"
    assert names(ask) == {}


def test_a_running_compose_service_is_in_the_way_and_put_back_by_compose(server, daemon, port, tmp_path, ask, environ):
    path = compose(tmp_path, port)
    up = ["docker", "compose", "--project-directory", str(path.parent), "-f", str(path), "up", "-d", "llm"]
    assert Commands(environ).run(up).ok
    with pytest.raises(InTheWayError) as caught:
        server(path).start()
    assert "service llm" in str(caught.value)
    one = server(path, replace=True)
    one.start()
    one.stop(put_back=True)
    assert names(ask)["stack-llm-1"]["running"]
    assert names(ask)["stack-llm-1"]["restart"] == "unless-stopped"


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit(daemon, port, extra=""):
    folder = Path(daemon) / "units"
    folder.mkdir(exist_ok=True)
    path = folder / "llm.service"
    path.write_text(f"[Unit]\n[Service]\nExecStart=vllm serve org/m --port {port}{extra}\nRestart=always\n")
    return path


def planned(path, before, after):
    """A plan that changes a file's text, as far as starting it goes."""
    text = path.read_text()
    change = FileChange(path=str(path), before=text, after=text.replace(before, after))
    assert change.changed
    return Plan(outcome="draft_model", target="org/m", recipe=change)


def test_a_unit_is_started_by_systemd_without_its_restart_policy(server, daemon, port, ask):
    path = unit(daemon, port)
    one = server(path)
    started = one.start()
    assert started.unit == "llm.service"
    assert names(ask)["llm.service"]["restart"] == "no"
    drop_ins = list((Path(daemon) / "run" / "llm.service.d").glob("*.conf"))
    assert [file.read_text() for file in drop_ins] == ["[Service]\nRestart=no\n"]
    assert "Application startup complete" in one.log_path.read_text()
    one.stop()
    assert not names(ask)["llm.service"]["running"]
    assert not list((Path(daemon) / "run" / "llm.service.d").glob("*.conf"))


def test_a_unit_that_fails_is_diagnosed(server, daemon, port):
    path = unit(daemon, port, " --no-such-flag")
    with pytest.raises(StartFailed) as caught:
        server(path).start()
    assert caught.value.diagnosis.cause == "flag_unrecognized"


def test_a_unit_that_is_not_installed(server, daemon, port, tmp_path):
    path = tmp_path / "llm.service"
    path.write_text(f"[Service]\nExecStart=vllm serve org/m --port {port}\n")
    one = server(path)
    with pytest.raises(StartFailed):
        one.start()
    assert "Unit llm.service not found" in one.log_path.read_text()


def test_a_running_unit_is_in_the_way_and_put_back_by_systemd(server, daemon, port, ask, environ):
    path = unit(daemon, port)
    assert Commands(environ).run(["systemctl", "start", "llm.service"]).ok
    with pytest.raises(InTheWayError) as caught:
        server(path).start()
    assert "unit llm.service" in str(caught.value)
    assert json.dumps(caught.value.occupants[0].to_json()["stop"]) == '["systemctl", "stop", "llm.service"]'
    one = server(path, replace=True)
    one.start()
    one.stop(put_back=True)
    assert names(ask)["llm.service"]["running"]
    assert names(ask)["llm.service"]["restart"] == "always"


def test_a_planned_unit_runs_from_a_drop_in(server, daemon, port):
    path = unit(daemon, port)
    before = path.read_bytes()
    one = server(planned(path, "serve org/m", "serve org/m --served-model-name planned"))
    started = one.start()
    assert started.model == "planned"
    one.stop()
    assert path.read_bytes() == before
    assert not list((Path(daemon) / "run" / "llm.service.d").glob("*.conf"))


def test_a_planned_compose_service_runs_from_a_copy(server, daemon, port, tmp_path, ask):
    path = compose(tmp_path, port)
    before = path.read_bytes()
    with server(planned(path, "--model org/m", "--model org/m --served-model-name planned")) as one:
        assert one.address.model == "planned"
        assert names(ask)["stack-llm-1"]["running"]
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["compose.yaml"]


def test_a_unit_around_a_container_answers_on_the_published_port(server, daemon, tmp_path, port):
    path = tmp_path / "llm.service"
    path.write_text(f"[Service]\nExecStart=/usr/bin/docker run --rm --name llm -p {port}:8000 {IMAGE} --model org/m\n")
    one = server(path)
    assert (one.launch.kind, one.base_url) == ("unit", f"http://127.0.0.1:{port}/v1")
