# SPDX-License-Identifier: Apache-2.0
"""A unit and its drop-ins are read together, and a change lands where the command stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_specdec import Planner
from jetson_specdec.host import RecordedHost
from jetson_specdec.recipe import ServeFlags, load_recipe, parse_recipe
from jetson_specdec.recipe.core import Recipe

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
BASE = (
    "[Unit]\nDescription=engine\n\n[Service]\nEnvironment=HF_HOME=/hub U=0.8\nWorkingDirectory=/srv\n"
    "ExecStart=/opt/v/bin/vllm serve Qwen/Qwen3-8B --gpu-memory-utilization ${U} --port 8000\nRestart=always\n"
)
NEW = "[Service]\nExecStart=\nExecStart=/opt/v/bin/vllm serve Qwen/Qwen3-14B --gpu-memory-utilization ${U}\n"


def units(folder: Path, read: str, **files: str) -> Recipe:
    for name, text in {"vllm.service": BASE, **files}.items():
        file = folder / name.replace("__", "/vllm.service.d/").lstrip("/").replace("_conf", ".conf")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return load_recipe(folder / read)


def served(recipe: Recipe) -> tuple[str | None, float | None]:
    flags = ServeFlags.read(recipe.commands[0])
    return flags.model, flags.gpu_memory_utilization


def test_a_drop_in_that_sets_the_environment(tmp_path: Path) -> None:
    recipe = units(tmp_path, "vllm.service", __10_conf="[Service]\nEnvironment=HF_HUB_OFFLINE=1 U=0.7\n")
    command = recipe.commands[0]
    assert served(recipe) == ("Qwen/Qwen3-8B", 0.7)
    assert dict(command.env) == {"HF_HOME": "/hub", "U": "0.7", "HF_HUB_OFFLINE": "1"}
    assert command.editable
    assert "vllm.service.d/10.conf" in next(one.message for one in command.findings if one.code == "JSD224")
    plan = Planner().plan(tmp_path / "vllm.service", **THOR)
    assert (plan.outcome, plan.utilization.after) == ("eagle3", 0.65)
    assert "--gpu-memory-utilization 0.65 --port 8000" in plan.recipe.after


def test_the_last_command_counts_and_is_changed_in_its_own_file(tmp_path: Path) -> None:
    recipe = units(tmp_path, "vllm.service", __10_conf=NEW)
    assert served(recipe) == ("Qwen/Qwen3-14B", 0.8)
    plan = Planner().plan(tmp_path / "vllm.service", **THOR)
    assert (plan.outcome, plan.recipe.after, plan.editable) == ("refuse", BASE, False)
    assert "vllm.service.d/10.conf (line 3)" in next(one.message for one in plan.findings if one.code == "JSD225")
    drop_in = tmp_path / "vllm.service.d" / "10.conf"
    there = Planner().plan(drop_in, **THOR)
    assert (there.target, there.utilization.before) == ("Qwen/Qwen3-14B", 0.8)
    assert there.recipe.after.startswith(NEW.replace("${U}\n", ""))
    assert there.recipe.after != NEW
    drop_in.write_text(there.recipe.after, encoding="utf-8")
    assert Planner().plan(drop_in, **THOR).outcome == "already"
    assert Planner().plan(tmp_path / "vllm.service", **THOR).outcome == "already"


def test_a_drop_in_without_a_command_is_read_with_its_unit(tmp_path: Path) -> None:
    recipe = units(tmp_path, "vllm.service.d/10.conf", __10_conf="# x\n[Service]\nEnvironment=U=0.7\n")
    assert served(recipe) == ("Qwen/Qwen3-8B", 0.7)
    assert recipe.commands[0].workdir == "/srv"
    assert recipe.commands[0].line == 3
    plan = Planner().plan(tmp_path / "vllm.service.d" / "10.conf", **THOR)
    assert plan.outcome == "refuse"
    assert "../vllm.service (line 7)" in next(one.message for one in plan.findings if one.code == "JSD225")


@pytest.mark.parametrize(
    ("read", "first", "second", "value"),
    [
        ("vllm.service", "05", "50", 0.6),
        ("vllm.service", "50", "05", 0.7),
        ("vllm.service.d/05.conf", "05", "50", 0.6),
        ("vllm.service.d/50.conf", "50", "05", 0.7),
    ],
)
def test_drop_ins_count_in_the_order_of_their_names(
    tmp_path: Path, read: str, first: str, second: str, value: float
) -> None:
    files = {f"__{first}_conf": "[Service]\nEnvironment=U=0.7\n", f"__{second}_conf": "[Service]\nEnvironment=U=0.6\n"}
    assert served(units(tmp_path, read, **files)) == ("Qwen/Qwen3-8B", value)


def test_resets_reach_across_files(tmp_path: Path) -> None:
    recipe = units(tmp_path, "vllm.service", __10_conf="[Service]\nEnvironment=\nEnvironment=U=0.5\n")
    assert dict(recipe.commands[0].env) == {"U": "0.5"}


def test_other_files_in_the_folder_are_none(tmp_path: Path) -> None:
    (tmp_path / "vllm.service.d").mkdir()
    (tmp_path / "vllm.service.d" / "10.conf.bak").write_text(NEW, encoding="utf-8")
    recipe = units(tmp_path, "vllm.service", **{"other.service": NEW})
    assert served(recipe) == ("Qwen/Qwen3-8B", 0.8)
    assert recipe.beside.keys() == {"vllm.service.d/"}
    assert {one.code for one in recipe.commands[0].findings}.isdisjoint({"JSD224"})


def test_a_script_in_another_file(tmp_path: Path) -> None:
    script = "[Service]\nExecStart=\nExecStart=/bin/bash -c 'vllm serve Qwen/Qwen3-8B --gpu-memory-utilization $$U'\n"
    recipe = units(tmp_path, "vllm.service", __10_conf=script)
    assert served(recipe) == ("Qwen/Qwen3-8B", 0.8)
    assert Planner().plan(tmp_path / "vllm.service", **THOR).outcome == "refuse"


def test_a_quadlet_and_its_drop_in(tmp_path: Path) -> None:
    (tmp_path / "llm.container.d").mkdir()
    (tmp_path / "llm.container.d" / "a.conf").write_text("[Container]\nEnvironment=HF_HUB_OFFLINE=1\n")
    quadlet = tmp_path / "llm.container"
    quadlet.write_text("[Container]\nImage=vllm/vllm-openai:v0.30.0\nExec=--model Qwen/Qwen3-8B\n")
    assert dict(load_recipe(quadlet).commands[0].env) == {"HF_HUB_OFFLINE": "1"}


def test_a_board_that_was_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "etc" / "systemd" / "system"
    (folder / "vllm.service.d").mkdir(parents=True)
    (folder / "vllm.service").write_text(BASE, encoding="utf-8")
    (folder / "vllm.service.d" / "x.conf").write_text("[Service]\nEnvironment=U=0.7\n", encoding="utf-8")
    host = RecordedHost(tmp_path)
    assert served(load_recipe("/etc/systemd/system/vllm.service", host=host)) == ("Qwen/Qwen3-8B", 0.7)
    assert served(load_recipe("/etc/systemd/system/vllm.service.d/x.conf", host=host)) == ("Qwen/Qwen3-8B", 0.7)


def test_parts_of_an_installed_unit_stand_in_several_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    base, drop_ins = root / "usr/lib/systemd/system", root / "etc/systemd/system/vllm.service.d"
    base.mkdir(parents=True)
    drop_ins.mkdir(parents=True)
    (base / "vllm.service").write_text(BASE, encoding="utf-8")
    (drop_ins / "x.conf").write_text("[Service]\nEnvironment=U=0.7\n", encoding="utf-8")
    (drop_ins / "z-jetson-specdec.conf").write_text("[Service]\nEnvironment=U=0.1\n", encoding="utf-8")
    host = RecordedHost(tmp_path)
    assert served(load_recipe("/usr/lib/systemd/system/vllm.service", host=host)) == ("Qwen/Qwen3-8B", 0.7)
    assert served(load_recipe("/etc/systemd/system/vllm.service.d/x.conf", host=host)) == ("Qwen/Qwen3-8B", 0.7)


def test_a_unit_kept_elsewhere_is_not_mixed_with_an_installed_one(tmp_path: Path) -> None:
    asked: list[str] = []

    def read(name: str) -> str | None:
        asked.append(name)
        return None

    parse_recipe(NEW, path=str(tmp_path / "vllm.service.d" / "x.conf"), read=read)
    assert all(not name.startswith("/") for name in asked)


def test_a_text_alone_is_a_unit_alone() -> None:
    assert served(parse_recipe(NEW)) == ("Qwen/Qwen3-14B", None)
    assert served(parse_recipe(BASE)) == ("Qwen/Qwen3-8B", 0.8)
