# SPDX-License-Identifier: Apache-2.0
"""Docker compose files, read: words in every form, surroundings, variables, and what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import ServeFlags, load_recipe, parse_recipe, recognise
from jetson_specdec.recipe.core import Mount, Recipe


def one(body: str, **files: str) -> Recipe:
    text = "services:\n  llm:\n    image: vllm/vllm-openai:v0.20.0\n" + body
    return parse_recipe(text, read={name.replace("_", "."): content for name, content in files.items()}.get)


def values(recipe: Recipe, index: int = 0) -> list[str | None]:
    return [arg.value for arg in recipe.commands[index].args]


@pytest.fixture(scope="module")
def styles() -> Recipe:
    path = Path(__file__).parent.parent / "data" / "recipe" / "compose-styles.yaml"
    return load_recipe(path)


def test_every_style_gives_the_same_kind_of_command(styles: Recipe) -> None:
    assert styles.form == "compose"
    assert len(styles.commands) == 10  # ten services serve, the web page does not
    for command in styles.commands:
        flags = ServeFlags.read(command)
        assert flags.gpu_memory_utilization == (0.85 if command.index == 0 else 0.8)
        assert command.launcher == "compose"
        assert command.image == "vllm/vllm-openai:v0.20.0"
        assert command.editable
    assert [command.serve_form for command in styles.commands] == [
        *("image_entrypoint", "image_entrypoint", "api_server", "vllm_serve", "vllm_serve"),
        *("image_entrypoint",) * 5,
    ]


def test_places_are_those_of_the_text(styles: Recipe) -> None:
    for command in styles.commands:
        for arg in command.args:
            assert styles.text[arg.start : arg.end] == arg.raw
            assert arg.raw


def test_surroundings_come_through_merge_keys(styles: Recipe) -> None:
    folded = styles.commands[0]
    assert dict(folded.env) == {"HF_TOKEN": None, "HF_HOME": "/cache"}
    assert folded.mounts == (
        Mount(host="./weights", container="/weights", read_only=True),
        Mount(host=None, container="/cache"),
    )
    assert folded.ports == ("8001:8000",)
    assert styles.commands[1].ports == ()


def test_script_in_a_block_text(styles: Recipe) -> None:
    script = styles.commands[3]
    assert script.wrapped_in == ("bash -c",)
    assert script.entrypoint == ("/bin/bash",)
    assert script.args[0].value is None
    assert script.args[0].unresolved == ("TARGET",)
    assert script.env["VLLM_LOGGING_LEVEL"] == "INFO"
    assert styles.text.splitlines()[script.line - 1].strip().startswith("exec vllm serve")


def test_default_and_env_file_of_a_variable() -> None:
    body = "    command: --model ${MODEL:-Qwen/Qwen3-8B} --port ${PORT} --dtype ${DTYPE-auto}\n"
    bare = one(body)
    assert values(bare) == ["--model", "Qwen/Qwen3-8B", "--port", None, "--dtype", "auto"]
    assert bare.commands[0].args[1].resolved_from == ("MODEL",)
    assert bare.commands[0].args[3].unresolved == ("PORT",)
    assert bare.commands[0].args[3].splices
    assert "JSD207" in {finding.code for finding in bare.commands[0].findings}
    known = one(body, _env="MODEL=Qwen/Qwen3-4B\nexport PORT='8123' # here\nDTYPE=\n")
    # an empty DTYPE counts with `-`, and an unquoted nothing is no word
    assert values(known) == ["--model", "Qwen/Qwen3-4B", "--port", "8123", "--dtype"]


def test_dollar_signs() -> None:
    recipe = one("    command: --model m --chat-template '$${x}' --served-model-name $$y\n")
    assert values(recipe) == ["--model", "m", "--chat-template", "${x}", "--served-model-name", "$y"]
    broken = one("    command: --model m --served-model-name 'a$(b'\n")
    assert [f.code for f in broken.commands[0].findings] == ["JSD294"]


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("--model m && echo done", "JSD291"),
        ("--model m > /log", "JSD291"),
        ("--model m | tee x", "JSD291"),
        ("--model 'm", "JSD297"),
        ("--model m $$(date)", "JSD298"),
    ],
)
def test_what_needs_a_shell_is_said(written: str, code: str) -> None:
    recipe = one(f"    command: {written}\n")
    found = [finding for finding in recipe.commands[0].findings if finding.code == code]
    assert found
    assert found[0].severity.value == "blocking"


def test_env_files_and_list_environment(tmp_path: Path) -> None:
    (tmp_path / "site.env").write_text("HF_HOME=/data\nEDGE=1\n")
    (tmp_path / ".env").write_text("MODEL=Qwen/Qwen3-8B\n")
    file = tmp_path / "any name"
    file.write_text(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    env_file:\n"
        "      - site.env\n      - {path: gone.env}\n"
        "    environment:\n      - EDGE=2\n      - HF_TOKEN\n    command: --model $MODEL\n"
    )
    recipe = load_recipe(file)
    assert dict(recipe.commands[0].env) == {"HF_HOME": "/data", "EDGE": "2", "HF_TOKEN": None}
    assert values(recipe) == ["--model", "Qwen/Qwen3-8B"]
    assert set(recipe.beside) == {".env", "site.env"}
    assert "Qwen/Qwen3-8B" not in repr(recipe).replace(repr(recipe.commands), "")


def test_long_mounts_and_ports() -> None:
    recipe = one(
        "    volumes:\n      - {type: bind, source: /srv/w, target: /w, read_only: true}\n"
        "      - {type: volume, source: hub, target: /hub}\n      - /scratch\n"
        "    ports:\n      - {target: 8000, published: 9000}\n    working_dir: /w\n    command: --model /w/m\n"
    )
    command = recipe.commands[0]
    assert command.mounts == (
        Mount(host="/srv/w", container="/w", read_only=True),
        Mount(host=None, container="/hub"),
        Mount(host=None, container="/scratch"),
    )
    assert command.ports == ("9000:8000",)
    assert command.workdir == "/w"


def test_extends_in_the_file_and_beyond() -> None:
    text = (
        "services:\n  base:\n    image: vllm/vllm-openai:v0.20.0\n    environment: {A: '1'}\n"
        "    command: --model Qwen/Qwen3-4B\n"
        "  own:\n    extends: {service: base}\n    environment: {B: '2'}\n    command: --model Qwen/Qwen3-8B\n"
        "  far:\n    extends: {file: other.yaml, service: base}\n    command: vllm serve m\n"
    )
    recipe = parse_recipe(text)
    base, own, far = recipe.commands
    assert (base.image, own.image, far.image) == ("vllm/vllm-openai:v0.20.0",) * 2 + (None,)
    assert dict(own.env) == {"A": "1", "B": "2"}
    assert values(recipe, 1) == ["--model", "Qwen/Qwen3-8B"]
    assert "JSD293" in {finding.code for finding in far.findings}
    assert "JSD200" in {finding.code for finding in recipe.findings}


def test_words_shared_by_an_anchor_are_not_changed() -> None:
    text = (
        "x-c: &c [--model, Qwen/Qwen3-8B]\nservices:\n"
        "  a: {image: 'vllm/vllm-openai:v0.20.0', command: *c}\n  b: {image: 'vllm/vllm-openai:v0.20.0', command: *c}\n"
    )
    recipe = parse_recipe(text)
    assert [command.blocked.code for command in recipe.commands if command.blocked] == ["JSD299", "JSD299"]
    alone = parse_recipe(text.partition("  b:")[0])
    assert alone.commands[0].editable


def test_numbers_without_quotes_and_two_words_in_an_item() -> None:
    recipe = one("    command:\n      - --model=m\n      - --port\n      - 8000\n      - --dtype auto\n")
    codes = {finding.code: finding for finding in recipe.commands[0].findings}
    assert codes["JSD296"].values["line"] == 7
    assert codes["JSD232"].values["flag"] == "--dtype"


def test_other_engines_and_own_scripts() -> None:
    text = (
        "services:\n  a:\n    image: lmsysorg/sglang:latest\n    command: python3 -m sglang.launch_server --model m\n"
        "  b:\n    image: vllm/vllm-openai:v0.20.0\n    entrypoint: /start.sh\n"
        "    command: --model m --max-model-len 1\n"
    )
    sglang, script = parse_recipe(text).commands
    assert (sglang.engine, sglang.serve_form) == ("sglang", "other")
    assert script.serve_form == "image_entrypoint"
    assert "JSD209" in {finding.code for finding in script.findings}


def test_form_is_told_from_the_content() -> None:
    assert recognise("llm:\n  image: x\n  command: vllm serve m\n") == "compose"
    assert recognise('{"services": {"a": {"image": "vllm/vllm-openai", "command": ["--model", "m"]}}}') == "compose"
    assert recognise("# c\nname: p\nservices:\n  a: {}\n") == "compose"


def test_nothing_to_serve_is_one_line() -> None:
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_recipe("services:\n  db:\n    image: postgres:16\n    command: postgres -c x=1\n")
    assert caught.value.code == "JSE240"
    assert "db (line 2)" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(RecipeSyntaxError, match="line 4"):
        parse_recipe("services:\n  a:\n    image: [x\n  b: y\n")


def test_plan_of_a_compose_file() -> None:
    text = "services:\n  llm:\n    image: vllm/vllm-openai:v0.20.0\n    command: --model Qwen/Qwen3-8B\n"
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0").to_json()
    assert plan["outcome"] == "eagle3"
    assert plan["serve_form"] == "image_entrypoint"
    assert plan["gpu_memory_utilization"]["after"] == pytest.approx(0.87)
    again = Planner().plan(plan["recipe"]["after"], device="thor-t5000", l4t="38.4.0").to_json()
    assert again["outcome"] == "already"
    assert again["recipe"]["before"] == again["recipe"]["after"] == plan["recipe"]["after"]


def test_secrets_of_env_files_stay_out_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("KEY=correct-horse-battery\n")
    file = tmp_path / "compose.yaml"
    file.write_text(
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.20.0\n"
        "    environment: {HF_TOKEN: not-for-others}\n    command: --model Qwen/Qwen3-8B --api-key $KEY\n"
    )
    plan = Planner().plan(file, device="thor-t5000", l4t="38.4.0")
    import json

    shown = json.dumps(plan.to_json())
    assert "correct-horse-battery" not in shown
    assert "not-for-others" not in shown
    assert plan.outcome == "eagle3"
    assert "not-for-others" in plan.recipe.after


def test_merge_keys_cannot_be_made_to_take_for_ever() -> None:
    levels = "".join(f"x{n}: &x{n}\n  <<: [*x{n - 1}, *x{n - 1}]\n" for n in range(1, 50))
    text = f"x0: &x0 {{image: vllm/vllm-openai}}\n{levels}services:\n  a:\n    <<: *x49\n    command: --model m\n"
    assert parse_recipe(text).commands[0].image == "vllm/vllm-openai"


def test_words_that_depend_on_a_variable_being_set() -> None:
    recipe = one("    command: --model m ${EAGER:+--enforce-eager} --port 1\n")
    assert values(recipe) == ["--model", "m", "--enforce-eager", "--port", "1"]
    assert [arg.optional for arg in recipe.commands[0].args] == [False, False, True, False, False]


def test_an_entrypoint_that_stands_there_twice() -> None:
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: vllm serve Qwen/Qwen3-8B\n"
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0")
    assert "entrypoint-doubled" in {finding.topic for finding in plan.findings}
    own = text.replace("    command", "    entrypoint: []\n    command")
    plan = Planner().plan(own, device="thor-t5000", l4t="38.4.0")
    assert "entrypoint-doubled" not in {finding.topic for finding in plan.findings}
    assert plan.recipe.after.endswith("\n")
