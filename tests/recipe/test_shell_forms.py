# SPDX-License-Identifier: Apache-2.0
"""Where a serve command can stand, and what is known of the place it runs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe.core import Mount, ServeCommand
from jetson_specdec.recipe.shell import parse_shell


def one(text: str) -> ServeCommand:
    (command,) = parse_shell(text).commands
    return command


WANTED = ["org/m", "--port", "8000"]
VLLM = "vllm serve org/m --port 8000"


@pytest.mark.parametrize(
    "text",
    [
        VLLM,
        f"A=1 B='x y' {VLLM}",
        f"sudo -E -u vllm {VLLM}",
        f"env -u HF_HOME A=b {VLLM}",
        f"exec {VLLM}",
        f"time nice -n 10 {VLLM}",
        f"numactl -N 0 --membind=0 {VLLM}",
        f"taskset -c 0-3 {VLLM}",
        f"stdbuf -oL {VLLM} | tee log",
        f"nohup setsid {VLLM} > log 2>&1 &",
        f"timeout -k 5 1h {VLLM}",
        f"uv run --with vllm {VLLM}",
        f"uvx --from vllm {VLLM}",
        "uvx vllm@0.20.1 serve org/m --port 8000",
        "uvx --python 3.12 'vllm[flashinfer]==0.20.1' serve org/m --port 8000",
        f"uv tool run --from 'vllm>=0.20' {VLLM}",
        f"pipx run --spec vllm==0.20.1 {VLLM}",
        f"conda run -n serve {VLLM}",
        f"cd /srv && . env/bin/activate && {VLLM} || echo failed; exit",
        f"if true; then\n  {VLLM}\nfi",
        f"for i in 1 2 3; do {VLLM}; sleep 1; done",
        f"start() {{\n  {VLLM}\n}}\nstart",
        f"function start {{ {VLLM}; }}",
        f"( {VLLM} ) &",
        f"case $1 in go) {VLLM};; *) echo no;; esac",
        f"until {VLLM}; do sleep 5; done",
        f"$ {VLLM}",
        f"user@board:~$ {VLLM}",
        f"\ufeff{VLLM}\r\n",
        f"PID=$({VLLM} & echo $!)",
        "/opt/venv/bin/vllm serve org/m --port 8000",
        "$VENV/bin/vllm serve org/m --port 8000",
        "python3 -m vllm.entrypoints.cli.main serve org/m --port 8000",
        f"nsys profile -o trace {VLLM}",
        f"systemd-run --user -p MemoryMax=20G {VLLM}",
        f"tmux new -d -s llm {VLLM}",
        f"screen -dmS llm {VLLM}",
    ],
)
def test_beside_other_programs(text: str) -> None:
    command = one(text + "\n")
    assert [arg.value for arg in command.args] == WANTED
    assert command.serve_form == "vllm_serve"
    assert command.launcher == "native"
    assert command.editable
    assert all(text[arg.start : arg.end] == arg.raw for arg in command.args)


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (f'bash -c "{VLLM}"', ("bash -c",)),
        (f"sh -lc '{VLLM}'", ("bash -c",)),
        (f"bash -euo pipefail -c '{VLLM}'", ("bash -c",)),
        (f"su vllm -c '{VLLM}'", ("bash -c",)),
        (f"eval '{VLLM}'", ("eval",)),
        (f"eval {VLLM}", ("eval",)),
        (f"ssh -p 22 board '{VLLM}'", ("ssh",)),
        (f"ssh board {VLLM}", ("ssh",)),
        (f"tmux new-session -d -s x '{VLLM}'", ("tmux",)),
        (f"tmux send-keys -t x '{VLLM}' Enter", ("tmux",)),
        (f"alias up='{VLLM}'", ("alias",)),
        (f"bash <<'EOF'\n{VLLM}\nEOF", ("heredoc",)),
        (f"bash -s <<-EOF >log\n\t{VLLM}\n\tEOF", ("heredoc",)),
        (f"cat > run.sh <<'EOF'\n#!/bin/sh\n{VLLM}\nEOF\nchmod +x run.sh", ("heredoc",)),
        (f"ssh board <<EOF\n{VLLM}\nEOF", ("heredoc",)),
        (f"bash <<< '{VLLM}'", ("heredoc",)),
        (f"bash -c \"eval '{VLLM}'\"", ("bash -c", "eval")),
    ],
)
def test_inside_quotes(text: str, layers: tuple[str, ...]) -> None:
    command = one(text + "\n")
    assert [arg.value for arg in command.args] == WANTED
    assert command.wrapped_in == layers
    assert command.editable == (len(layers) < 2)
    assert all(text[arg.start : arg.end] == arg.raw for arg in command.args)


def test_what_docker_says_about_the_place() -> None:
    command = one(
        "sudo docker run --rm -dit --gpus all --runtime=nvidia -p8000:8000 --publish 9000:9000 --shm-size=1g \\\n"
        '  -e A=b --env TOKEN="$TOKEN" -e BARE --env-file site.env \\\n'
        "  -v $HOME/hub:/root/.cache/huggingface -v cache:/cache:ro --mount type=bind,src=/data,dst=/data,readonly \\\n"
        "  -w /srv --name llm vllm/vllm-openai:v0.30.0 --model org/m\n"
    )
    assert (command.serve_form, command.launcher, command.image) == (
        "image_entrypoint",
        "docker",
        "vllm/vllm-openai:v0.30.0",
    )
    assert [arg.value for arg in command.args] == ["--model", "org/m"]
    assert command.env == {"A": "b", "TOKEN": None, "BARE": None}
    assert command.ports == ("8000:8000", "9000:9000")
    assert command.workdir == "/srv"
    assert command.mounts == (
        Mount(host="$HOME/hub", container="/root/.cache/huggingface"),
        Mount(host=None, container="/cache", read_only=True),
        Mount(host="/data", container="/data", read_only=True),
    )


@pytest.mark.parametrize(
    ("text", "form", "entrypoint", "words", "args"),
    [
        ("docker run vllm/vllm-openai org/m --port 1", "image_entrypoint", None, (), ["org/m", "--port", "1"]),
        ("docker run img/vllm vllm serve org/m", "vllm_serve", None, ("vllm", "serve"), ["org/m"]),
        ('docker run --entrypoint="" img/vllm vllm serve m', "vllm_serve", (), ("vllm", "serve"), ["m"]),
        ('docker run --entrypoint "" img/vllm vllm serve m', "vllm_serve", (), ("vllm", "serve"), ["m"]),
        ("docker run --entrypoint vllm img/x serve m", "vllm_serve", ("vllm",), ("serve",), ["m"]),
        ("docker run --entrypoint bash img/x -c 'vllm serve m'", "vllm_serve", ("bash",), ("vllm", "serve"), ["m"]),
        (
            "podman run --device x/gpu=all --entrypoint python3 i -m vllm.entrypoints.openai.api_server --model m",
            "api_server",
            ("python3",),
            ("-m", "vllm.entrypoints.openai.api_server"),
            ["--model", "m"],
        ),
        (
            "docker create img python3 -u -m vllm.entrypoints.openai.api_server --model m",
            "api_server",
            None,
            ("python3", "-u", "-m", "vllm.entrypoints.openai.api_server"),
            ["--model", "m"],
        ),
        ("docker run vllm/vllm-openai serve m", "vllm_serve", None, ("serve",), ["m"]),
        (
            "docker run my/llm:1 --model m --max-model-len 9",
            "image_entrypoint",
            None,
            (),
            ["--model", "m", "--max-model-len", "9"],
        ),
        (
            "docker run $IMAGE --model m --max-model-len 9",
            "image_entrypoint",
            None,
            (),
            ["--model", "m", "--max-model-len", "9"],
        ),
        ("docker compose run --rm llm vllm serve m", "vllm_serve", None, ("vllm", "serve"), ["m"]),
        ("docker exec -it llm vllm serve m", "vllm_serve", None, ("vllm", "serve"), ["m"]),
    ],
)
def test_what_a_container_runs(
    text: str, form: str, entrypoint: tuple[str, ...] | None, words: tuple[str, ...], args: list[str]
) -> None:
    command = one(text + "\n")
    assert (command.serve_form, command.entrypoint, command.serve_words) == (form, entrypoint, words)
    assert [arg.value for arg in command.args] == args


def test_jetson_containers() -> None:
    command = one("jetson-containers run -v /data:/data $(autotag vllm) vllm serve org/m\n")
    assert (command.launcher, command.image, command.image_raw) == ("jetson-containers", None, "$(autotag vllm)")
    assert [arg.value for arg in command.args] == ["org/m"]


def test_typed_inside_a_container() -> None:
    command = one("docker run -it --rm -e A=1 reg/vllm:0.6 bash\nexport B=2\nvllm serve m\n")
    assert (command.launcher, command.image, command.env) == ("docker", "reg/vllm:0.6", {"A": "1", "B": "2"})
    assert [finding.topic for finding in command.findings] == ["ambiguous-shell-form"]


def test_a_container_named_before() -> None:
    command = one(
        "docker run -d --name box reg/vllm:1 sleep infinity\ndocker exec -i box bash <<EOF\nvllm serve m\nEOF\n"
    )
    assert (command.launcher, command.image, command.wrapped_in) == ("docker", "reg/vllm:1", ("heredoc",))


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("python3 -m sglang.launch_server --model-path m", "sglang"),
        ("docker run lmsysorg/sglang:latest --model-path m", "sglang"),
        ("./build/bin/llama-server -m x.gguf", "llama.cpp"),
        ("ollama serve", "ollama"),
        ("docker exec -it ollama ollama run llama3", "ollama"),
        ("trtllm-serve m", "tensorrt-llm"),
        ("mlc_llm serve m", "mlc"),
        ("docker run ghcr.io/huggingface/text-generation-inference:3 --model-id m", "tgi"),
    ],
)
def test_other_engines_are_named(text: str, engine: str) -> None:
    command = one(text + "\n")
    assert (command.serve_form, command.engine) == ("other", engine)


def test_environment_reaches_the_engine() -> None:
    command = one("export A=1\nB=2\nexport C\nD=4 env E=5 vllm serve m\n")
    assert command.env == {"A": "1", "C": None, "D": "4", "E": "5"}


def test_fenced_commands_of_a_note(data_dir: Path) -> None:
    text = (data_dir / "recipe/shell/note.md").read_text(encoding="utf-8")
    recipe = parse_shell(text)
    assert [command.args[0].value for command in recipe.commands] == ["org/first", "org/second"]
    assert [command.line for command in recipe.commands] == [6, 21]
    assert [finding.topic for finding in recipe.findings] == ["several-commands"]


@pytest.mark.parametrize(
    ("text", "code", "values"),
    [
        ("", "JSE200", {}),
        (" \n\t\n", "JSE200", {}),
        ("x" * 200_000, "JSE201", {"characters": 200_000}),
        ("vllm serve m\0\n", "JSE202", {"line": 1}),
        ("cd /srv\nvllm serve 'm --x\n", "JSE203", {"line": 2, "what": "'"}),
        ('vllm serve "m\n', "JSE203", {"line": 1, "what": '"'}),
        ("vllm serve $(cat x\n", "JSE203", {"line": 1, "what": "$("}),
        (
            "docker compose up -d\npip install vllm\n",
            "JSE204",
            {"found": ["docker compose up (line 1)", "pip (line 2)"]},
        ),
        ("# vllm serve m\n", "JSE204", {"found": []}),
        ("echo vllm serve m\n", "JSE204", {}),
        ("x=" + "$(" * 60 + ")" * 60 + "\n", "JSE205", {"line": 1}),
        ("vllm serve m\n" * 101, "JSE206", {"limit": 100}),
    ],
)
def test_what_cannot_be_read(text: str, code: str, values: dict[str, object]) -> None:
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_shell(text)
    assert caught.value.code == code
    assert values.items() <= caught.value.values.items()
    assert "{" not in str(caught.value)
