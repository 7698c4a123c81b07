# SPDX-License-Identifier: Apache-2.0
"""How a recipe's text becomes what is run: pure, without starting anything."""

from __future__ import annotations

import subprocess

import pytest

from jetson_specdec.errors import LaunchError
from jetson_specdec.planning.gather import release_of
from jetson_specdec.recipe.flags import ServeFlags
from jetson_specdec.recipe.load import parse_recipe
from jetson_specdec.recipe.shell import parse_shell
from jetson_specdec.server import launch_of
from jetson_specdec.server.address import address_of
from jetson_specdec.server.services import service_at, unit_name

IMAGE = "vllm/vllm-openai:v0.20.0"
LABEL = "--label jetson-specdec.run=jetson-specdec-r1"


def launch(text, index=0, *, environ=None, **options):
    recipe = parse_shell(text, environ=environ or {})
    command = recipe.commands[index]
    flags = ServeFlags.read(command, release_of(command, None), None)
    return launch_of(recipe, command, flags, run_id="r1", environ=environ or {}, work_dir="/w", **options)


def script(text, index=0, **options):
    made = launch(text, index, **options)
    assert made.argv[:2] == ("bash", "-c")
    assert subprocess.run(["bash", "-n", "-c", made.argv[2]], check=False).returncode == 0
    return made.argv[2]


@pytest.mark.parametrize(
    ("text", "run"),
    [
        ("vllm serve m\n", "vllm serve m"),
        ("A=1\nvllm serve m --port $A &\nwait\n", "A=1\nvllm serve m --port $A"),
        ("vllm serve m > out.log 2>&1\n", "vllm serve m  "),
        ("vllm serve m 2>&1 | tee out.log\n", "vllm serve m "),
        ("vllm serve m <in.txt\n", "vllm serve m <in.txt"),
        ("vllm serve m \\\r\n  --port 1\r\n", "vllm serve m \\\n  --port 1"),
        ("# Note\n```bash\n$ vllm serve m\n```\nmore\n", "vllm serve m"),
        ("# Note\n```bash\nexport X=1\nvllm serve m\n```\n```\nrm -rf y\n```\n", "export X=1\nvllm serve m"),
        ("source venv/bin/activate && vllm serve m && echo over\n", "source venv/bin/activate && vllm serve m"),
        ("CUDA_VISIBLE_DEVICES=0 uv run vllm serve m &\n", "CUDA_VISIBLE_DEVICES=0 uv run vllm serve m"),
    ],
)
def test_native_texts(text, run):
    assert script(text) == run


def test_other_serve_commands_of_the_text_are_not_started():
    text = "X=1\nvllm serve a --port 1 &\nvllm serve b --port 2 &\n"
    assert script(text, 1) == "X=1\n: &\nvllm serve b --port 2"
    assert script(text, 0) == "X=1\nvllm serve a --port 1"
    assert [finding.topic for finding in launch(text, 1).findings] == ["several-commands"]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ("-it", " -i"),
        ("-dit", " -i"),
        ("-d", " "),
        ("-t", " "),
        ("-itp 8000:8000", " -ip 8000:8000"),
        ("-dp 8000:8000", " -p 8000:8000"),
        ("--detach --tty --gpus all", "   --gpus all"),
        ("--restart unless-stopped --ipc=host", "  --ipc=host"),
        ("--restart=always -e A=-d", "  -e A=-d"),
    ],
)
def test_options_that_hide_the_server_are_left_out(options, left):
    run = script(f"docker run {options} --name llm --network host {IMAGE} org/m -t\n")
    assert run == f"docker run {LABEL}{left} --name llm --network host {IMAGE} org/m -t"


def test_a_container_without_a_name_gets_one():
    made = launch(f"docker run --rm --network=host {IMAGE} org/m\n")
    assert made.container == "jetson-specdec-r1"
    assert made.argv[2] == f"docker run --name jetson-specdec-r1 {LABEL} --rm --network=host {IMAGE} org/m"
    assert made.host_network


def test_stopping_a_container_only_reaches_our_own():
    made = launch(f"podman run --name llm --network host {IMAGE} org/m\n", grace_s=7)
    assert made.program == "podman"
    (stop,) = made.stop
    assert stop[:2] == ("sh", "-c")
    assert "podman ps -aq --filter label=jetson-specdec.run=jetson-specdec-r1" in stop[2]
    assert "podman stop -t 7 $ids" in stop[2]
    assert "llm" not in stop[2]


def test_sudo_is_left_out_before_docker_and_refused_elsewhere():
    assert script(f"sudo docker run --name a --network host {IMAGE} org/m\n").startswith("docker run")
    assert script(f"sudo docker run --name a --network host {IMAGE} org/m\n", allow_sudo=True).startswith("sudo docker")
    for text in ("sudo nvpmodel -m 0\nvllm serve m\n", "sudo -E vllm serve m\n"):
        with pytest.raises(LaunchError) as caught:
            launch(text)
        assert caught.value.code == "JSE902"
        assert launch(text, allow_sudo=True).argv[2] == text.rstrip("\n")
    assert script("# sudo nvpmodel -m 0\nvllm serve m\n").endswith("vllm serve m")


def test_an_alias_is_started_by_its_words():
    made = launch("alias llm='vllm serve org/m --port 8001'\n")
    assert made.argv == ("vllm", "serve", "org/m", "--port", "8001")
    assert made.findings[0].topic == "started-by-words"


def test_a_container_started_by_the_recipe_may_be_entered():
    text = f"docker run -d --name box --entrypoint sleep {IMAGE} 1000\ndocker exec -it box vllm serve m --port 8000\n"
    made = launch(text)
    assert made.container == "box"
    assert made.argv[2].splitlines()[-1] == "docker exec -i box vllm serve m --port 8000"
    assert made.stop == (("docker", "stop", "-t", "20", "box"),)


def test_a_config_file_recipe_is_started_with_its_flag(tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text("model: org/m\nport: 8123\n")
    recipe = parse_recipe(path.read_text(), path=str(path))
    flags = ServeFlags.read(recipe.commands[0], None, None)
    made = launch_of(recipe, recipe.commands[0], flags, run_id="r", environ={}, work_dir="/w")
    assert made.argv == ("vllm", "serve", "--config", str(path))
    assert made.files == {}
    planned = launch_of(
        recipe, recipe.commands[0], flags, run_id="r", environ={}, work_dir="/w", original="model: org/m\n"
    )
    assert planned.argv[-1] == "/w/config.yaml"
    assert planned.files == {"/w/config.yaml": "model: org/m\nport: 8123\n"}
    assert address_of(recipe.commands[0], flags, in_container=False).port == 8123


@pytest.mark.parametrize(
    ("options", "arguments", "url"),
    [
        ("", "", "http://127.0.0.1:8000"),
        ("--network host", "--port 9000 --host 0.0.0.0", "http://127.0.0.1:9000"),
        ("-p 8500:8000", "", "http://127.0.0.1:8500"),
        ("-p 127.0.0.1:8500:8000/tcp", "", "http://127.0.0.1:8500"),
        ("-p 192.168.1.5:80:9000", "--port 9000", "http://192.168.1.5:80"),
        ("-p 1:2 -p 8500:8000", "", "http://127.0.0.1:8500"),
        ("", "--host 10.0.0.3 --port 81 --ssl-certfile c.pem", "http://127.0.0.1:81"),
    ],
)
def test_where_it_answers(options, arguments, url):
    recipe = parse_shell(f"docker run {options} {IMAGE} org/m {arguments}\n")
    command = recipe.commands[0]
    flags = ServeFlags.read(command, None, None)
    expected = url.replace("http:", "https:") if "ssl" in arguments else url
    assert address_of(command, flags, in_container=True).root_url == expected


def test_service_and_unit_names():
    text = "x-a: &a {}\nservices:\n  one:\n    image: a\n  two:\n    network_mode: host\n    command: vllm serve m\n"
    assert service_at(text, text.index("vllm")) == ("two", True)
    with pytest.raises(LaunchError):
        service_at("name: x\n", 0)
    assert unit_name("/etc/systemd/system/llm.service") == "llm.service"
    assert unit_name("/etc/systemd/system/llm.service.d/10-x.conf") == "llm.service"
