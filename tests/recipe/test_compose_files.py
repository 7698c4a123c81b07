# SPDX-License-Identifier: Apache-2.0
"""Compose files that bring in others: what `include` and `extends: file:` add, and where a change may land."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import Recipe, load_recipe, parse_recipe
from jetson_specdec.recipe.core import Mount

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
IMAGE = "vllm/vllm-openai:v0.30.0"
BASE = f"""services:
  engine:
    image: {IMAGE}
    env_file: [engine.env]
    environment: {{HF_HOME: /hub, TIER: base}}
    volumes: [./models:/models, ./hub:/hub]
    ports: ["8000:8000"]
    command: [--model, Qwen/Qwen3-8B, --gpu-memory-utilization, "0.8", --port, "${{PORT:-8000}}"]
"""


def project(folder: Path, main: str, **files: str) -> Recipe:
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / "compose.yaml").write_text(main, encoding="utf-8")
    return load_recipe(folder / "compose.yaml")


def values(recipe: Recipe, index: int = 0) -> list[str | None]:
    return [arg.value for arg in recipe.commands[index].args]


def test_a_command_of_its_own_over_a_base_in_another_file(tmp_path: Path) -> None:
    main = (
        "services:\n  llm:\n    extends:\n      file: common/base.yml\n      service: engine\n"
        "    environment: {TIER: own}\n    volumes: [/fast:/hub]\n"
        "    command: --model Qwen/Qwen3-8B --gpu-memory-utilization 0.7\n"
    )
    recipe = project(tmp_path, main, common__base_yml=BASE, common__engine_env="HF_HUB_OFFLINE=1\nHF_HOME=/lost\n")
    command = recipe.commands[0]
    assert (command.image, command.service, command.editable) == (IMAGE, "llm", True)
    assert dict(command.env) == {"HF_HUB_OFFLINE": "1", "HF_HOME": "/hub", "TIER": "own"}
    assert command.mounts == (
        Mount(host="./common/models", container="/models"),
        Mount(host="/fast", container="/hub"),
    )
    assert command.ports == ("8000:8000",)
    said = {finding.code: finding for finding in command.findings}
    assert "common/base.yml" in said["JSD222"].message
    assert "JSD293" not in said
    plan = Planner().plan(tmp_path / "compose.yaml", **THOR)
    assert plan.outcome == "eagle3"
    assert plan.recipe.after.startswith(main.replace("0.7\n", "0.65 --speculative-config "))


def test_a_command_in_another_file_is_named_and_not_changed(tmp_path: Path) -> None:
    main = "services:\n  llm:\n    extends: {file: base.yml, service: engine}\n    environment: {TIER: own}\n"
    recipe = project(tmp_path, main, base_yml=BASE)
    command = recipe.commands[0]
    assert values(recipe) == ["--model", "Qwen/Qwen3-8B", "--gpu-memory-utilization", "0.8", "--port", "8000"]
    assert command.args[-1].raw == '"${PORT:-8000}"'
    assert (command.line, command.image) == (3, IMAGE)
    plan = Planner().plan(tmp_path / "compose.yaml", **THOR)
    assert (plan.outcome, plan.editable, plan.recipe.after) == ("refuse", False, main)
    assert plan.utilization.before == 0.8
    message = next(finding.message for finding in plan.findings if finding.code == "JSD221")
    assert "base.yml (line 8)" in message
    assert any("--speculative-config" in str(step.values) for step in plan.next_steps)
    there = Planner().plan(tmp_path / "base.yml", **THOR)
    assert there.outcome == "eagle3"


def test_an_entrypoint_from_the_base(tmp_path: Path) -> None:
    base = f"services:\n  b:\n    image: {IMAGE}\n    entrypoint: [vllm, serve]\n"
    main = "services:\n  a:\n    extends: {file: b.yml, service: b}\n    command: [Qwen/Qwen3-8B, --port, '1']\n"
    recipe = project(tmp_path, main, b_yml=base)
    command = recipe.commands[0]
    assert (command.serve_form, command.serve_words, command.editable) == ("vllm_serve", ("vllm", "serve"), True)
    plan = Planner().plan(tmp_path / "compose.yaml", **THOR)
    assert plan.outcome == "eagle3"


def test_a_base_that_extends_another_one(tmp_path: Path) -> None:
    recipe = project(
        tmp_path,
        "services:\n  a:\n    extends: {file: x/one.yml, service: b}\n    command: --model m\n",
        x__one_yml="services:\n  b:\n    extends: {file: ../two.yml, service: c}\n    environment: [A=1]\n",
        two_yml=f"services:\n  c:\n    extends: {{service: d}}\n  d:\n    image: {IMAGE}\n    environment: [B=2]\n",
    )
    assert recipe.commands[0].image == IMAGE
    assert dict(recipe.commands[0].env) == {"A": "1", "B": "2"}
    assert set(recipe.beside) == {"x/one.yml", "two.yml"}


@pytest.mark.parametrize(
    "main",
    [
        "include: [inc/base.yml]\n",
        "include:\n  - inc/base.yml\nservices:\n  web: {image: nginx}\n",
        "services:\n  web: {image: nginx}\ninclude:\n  - path: inc/base.yml\n",
        "include:\n  - path: [inc/base.yml]\n    project_directory: inc\n",
        "include: [middle.yml]\n",
    ],
)
def test_services_of_included_files(tmp_path: Path, main: str) -> None:
    recipe = project(
        tmp_path,
        main,
        inc__base_yml=BASE,
        inc___env="PORT=9000\n",
        inc__engine_env="X=1\n",
        middle_yml="include: [inc/base.yml]\n",
    )
    assert [command.service for command in recipe.commands] == ["engine"]
    assert values(recipe)[-1] == "9000"
    command = recipe.commands[0]
    assert dict(command.env) == {"X": "1", "HF_HOME": "/hub", "TIER": "base"}
    assert command.mounts[0] == Mount(host="./inc/models", container="/models")
    plan = Planner().plan(tmp_path / "compose.yaml", **THOR)
    assert (plan.outcome, plan.recipe.after) == ("refuse", main)
    assert "inc/base.yml (line 8)" in next(finding.message for finding in plan.findings if finding.code == "JSD221")


def test_files_of_one_include_are_merged(tmp_path: Path) -> None:
    over = "services:\n  engine:\n    environment: {TIER: over}\n    command: --model Qwen/Qwen3-14B\n"
    recipe = project(tmp_path, "include:\n  - path: [base.yml, over.yml]\n", base_yml=BASE, over_yml=over)
    assert (values(recipe), recipe.commands[0].image) == (["--model", "Qwen/Qwen3-14B"], IMAGE)
    assert recipe.commands[0].env["TIER"] == "over"


def test_the_projects_own_variables_count_before_those_beside_an_included_file(tmp_path: Path) -> None:
    recipe = project(
        tmp_path, "include: [inc/base.yml]\n", inc__base_yml=BASE, inc___env="PORT=9000\n", _env="PORT=7000\n"
    )
    assert values(recipe)[-1] == "7000"


@pytest.mark.parametrize(
    ("main", "code", "named"),
    [
        ("services:\n  a:\n    extends: {file: no.yml, service: b}\n    command: vllm serve m\n", "JSD293", "no.yml"),
        ("services:\n  a:\n    extends: {file: bad.yml, service: b}\n    command: vllm serve m\n", "JSD293", "bad.yml"),
        ("services:\n  a:\n    extends: {file: base.yml, service: no}\n    command: vllm serve m\n", "JSD293", "no"),
        ("services:\n  a:\n    extends: {file: '${F}', service: b}\n    command: vllm serve m\n", "JSD293", "${F}"),
        (f"include: [no.yml]\nservices:\n  a: {{image: '{IMAGE}', command: --model m}}\n", "JSD223", "no.yml"),
        (
            f"include: ['https://host/x.yml']\nservices:\n  a: {{image: '{IMAGE}', command: --model m}}\n",
            "JSD223",
            "https://host/x.yml",
        ),
    ],
)
def test_what_was_not_read_is_named(tmp_path: Path, main: str, code: str, named: str) -> None:
    recipe = project(tmp_path, main, base_yml=BASE, bad_yml="a: [\n")
    message = next(finding.message for finding in recipe.commands[0].findings if finding.code == code)
    assert named in message


def test_nothing_but_an_include_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeSyntaxError, match=r"no\.yml"):
        project(tmp_path, "include: [no.yml]\n")


def test_circles_end(tmp_path: Path) -> None:
    recipe = project(
        tmp_path,
        f"include: [compose.yaml, a.yml]\nservices:\n  x: {{image: '{IMAGE}', command: --model m}}\n",
        a_yml="include: [b.yml]\n",
        b_yml="include: [a.yml, compose.yaml]\nservices:\n  y:\n    extends: {file: b.yml, service: y}\n",
    )
    assert [command.service for command in recipe.commands] == ["x"]


def test_a_file_that_extends_itself_by_name_stays_editable(tmp_path: Path) -> None:
    main = (
        f"services:\n  base:\n    image: {IMAGE}\n  llm:\n    extends: {{file: ./compose.yaml, service: base}}\n"
        "    command: --model Qwen/Qwen3-8B\n"
    )
    recipe = project(tmp_path, main)
    assert (recipe.commands[0].image, recipe.commands[0].editable) == (IMAGE, True)


def test_secrets_of_other_files_are_not_shown(tmp_path: Path) -> None:
    secret = "Zq7wK9xT2mLp4vRb"
    base = BASE.replace("[--model,", f"[--api-key, {secret}, --model,").replace("TIER: base", f"SITE_TOKEN: {secret}x")
    project(tmp_path, "services:\n  llm:\n    extends: {file: base.yml, service: engine}\n", base_yml=base)
    plan = Planner().plan(tmp_path / "compose.yaml", **THOR)
    assert "--api-key" in plan.serve_args
    assert secret not in json.dumps(plan.to_json())


def test_without_files_at_hand_nothing_is_guessed() -> None:
    recipe = parse_recipe("services:\n  a:\n    extends: {file: o.yml, service: b}\n    command: vllm serve m\n")
    assert recipe.commands[0].image is None
    assert recipe.commands[0].editable
