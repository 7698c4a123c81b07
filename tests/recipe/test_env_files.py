# SPDX-License-Identifier: Apache-2.0
"""`--env-file` of containers, and files that a unit's command reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_specdec import Planner
from jetson_specdec.recipe import ServeFlags, load_recipe
from jetson_specdec.recipe.core import ServeCommand
from jetson_specdec.recipe.dotenv import read_container_env

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
IMAGE = "vllm/vllm-openai:v0.30.0"


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("A=b", "A", "b"),
        ("A=", "A", ""),
        ('A="b c"', "A", None),  # as it stands, or without the quotes: releases differ
        ("A=b # no comment", "A", "b # no comment"),
        ("A=b=c", "A", "b=c"),
        ("  A= b ", "A", " b "),
        ("A=$B", "A", "$B"),
        ("A=b\r", "A", "b"),
        ("OUT", "OUT", "side"),
        ("NOWHERE", "NOWHERE", None),
        ("# A=b", "A", "absent"),
        ("", "A", "absent"),
    ],
)
def test_lines_are_read_as_docker_reads_them(line: str, name: str, value: str | None) -> None:
    found = read_container_env(f"\ufeffFIRST=1\n{line}\n", {"OUT": "side"})
    assert found.refused is None
    assert found.values["FIRST"] == "1"
    assert found.values.get(name, "absent") == value


def test_podman_takes_every_name_and_keeps_quotes() -> None:
    found = read_container_env("export A=1\nB='2'\n", {}, podman=True)
    assert (found.values, found.quoted, found.refused) == ({"export A": "1", "B": "'2'"}, ("B",), None)
    assert read_container_env("=1\n", {}, podman=True).refused == 1


@pytest.mark.parametrize(("text", "line"), [("A=1\nexport B=2\n", 2), ("A =1\n", 1), ("=1\n", 1), ("\nA b\n", 2)])
def test_lines_with_which_the_file_is_refused(text: str, line: int) -> None:
    assert read_container_env(text, {}).refused == line


def run(folder: Path, options: str, before: str = "", **files: str) -> ServeCommand:
    for name, text in files.items():
        (folder / f"{name}.env").write_text(text, encoding="utf-8")
    recipe = folder / "run.sh"
    recipe.write_text(f"{before}docker run {options} {IMAGE} Qwen/Qwen3-8B\n", encoding="utf-8")
    return load_recipe(recipe).commands[0]


@pytest.mark.parametrize(
    ("options", "env"),
    [
        ("--env-file a.env", {"A": "1", "B": "2", "OUT": None}),
        ("--env-file=./a.env", {"A": "1", "B": "2", "OUT": None}),
        ("-e A=9 --env-file a.env", {"A": "9", "B": "2", "OUT": None}),
        ("--env-file a.env --env-file b.env", {"A": "3", "B": "2", "OUT": None}),
        ("--env-file b.env --env-file a.env", {"A": "1", "B": "2", "OUT": None}),
        ('--env-file "$(dirname "$0")/a.env"', {"A": "1", "B": "2", "OUT": None}),
        ("--env-file b.env", {"A": "3"}),
    ],
)
def test_what_reaches_the_container(tmp_path: Path, options: str, env: dict[str, str | None]) -> None:
    command = run(tmp_path, options, a="A=1\n# x\nB=2\nOUT\n", b="A=3\n")
    assert command.env == env
    assert {finding.code for finding in command.findings} == {"JSD218"}


def test_a_name_alone_comes_from_what_the_script_exports(tmp_path: Path) -> None:
    before = 'D="$(cd "$(dirname "$0")" && pwd)"\nexport HF_HOME=/data\nHIDDEN=1\nset -a; . "$D/b.env"; set +a\n'
    command = run(tmp_path, '--env-file "$D/a.env"', before, a="HF_HOME\nHIDDEN\nSEEN\n", b="SEEN=yes\n")
    assert command.env == {"HF_HOME": "/data", "HIDDEN": None, "SEEN": "yes"}


def test_podman_reads_them_too(tmp_path: Path) -> None:
    (tmp_path / "a.env").write_text("HF_HUB_OFFLINE=1\n", encoding="utf-8")
    recipe = tmp_path / "run.sh"
    recipe.write_text(f"podman run --env-file a.env {IMAGE} Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n")
    plan = Planner().plan(recipe, **THOR)
    assert plan.outcome == "eagle3"
    assert "JSD576" in {finding.code for finding in plan.findings}  # offline


@pytest.mark.parametrize(
    ("options", "content", "code"),
    [
        ("--env-file no.env", "A=1\n", "JSD216"),
        ('--env-file "$WHERE"', "A=1\n", "JSD216"),
        ("--env-file a.env", "export A=1\n", "JSD219"),
        ("--env-file a.env", 'A="1"\n', "JSD220"),
    ],
)
def test_what_is_said_about_a_file(tmp_path: Path, options: str, content: str, code: str) -> None:
    command = run(tmp_path, options, a=content)
    assert code in {finding.code for finding in command.findings}
    if code == "JSD219":
        plan = Planner().plan(tmp_path / "run.sh", **THOR)
        assert plan.outcome == "refuse"
        assert "line 1 of a.env" in next(finding.message for finding in plan.findings if finding.code == code)


UNIT = "[Service]\n{}ExecStart={}\n"


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        ("", "/bin/bash -c '. {}/x.env && exec vllm serve Qwen/Qwen3-8B --gpu-memory-utilization $$U'"),
        (
            "WorkingDirectory={}\n",
            "/bin/bash -c 'source ./x.env; vllm serve Qwen/Qwen3-8B --gpu-memory-utilization $$U'",
        ),
        ("", "/bin/bash -c '. /etc/default/x.env; vllm serve Qwen/Qwen3-8B --gpu-memory-utilization \"$$U\"'"),
    ],
)
def test_scripts_in_a_unit(tmp_path: Path, lines: str, command: str) -> None:
    (tmp_path / "x.env").write_text("U=0.8\n", encoding="utf-8")
    unit = tmp_path / "vllm.service"
    unit.write_text(UNIT.format(lines.format(tmp_path), command.format(tmp_path)), encoding="utf-8")
    read = load_recipe(unit)
    assert ServeFlags.read(read.commands[0]).gpu_memory_utilization == 0.8
    plan = Planner().plan(unit, **THOR)
    assert (plan.outcome, plan.utilization.after) == ("eagle3", 0.75)
    assert "$$U" not in plan.recipe.after
    unit.write_text(plan.recipe.after, encoding="utf-8")
    assert ServeFlags.read(load_recipe(unit).commands[0]).gpu_memory_utilization == 0.75


def test_a_unit_that_runs_a_container(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("HF_HUB_OFFLINE=1\n", encoding="utf-8")
    unit = tmp_path / "vllm.service"
    unit.write_text(
        UNIT.format("", f"/usr/bin/docker run --env-file /etc/x.env {IMAGE} Qwen/Qwen3-8B"), encoding="utf-8"
    )
    assert load_recipe(unit).commands[0].env == {"HF_HUB_OFFLINE": "1"}
