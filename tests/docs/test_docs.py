# SPDX-License-Identifier: Apache-2.0
"""README and docs are run: Python blocks as they stand, console lines against a sample recipe."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from jetson_specdec.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "README.zh-CN.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These ask a person, start a server or look at the network; their own tests run them.
NOT_RUN_HERE = {"apply", "bench", "demo", "doctor", "tune", "watch"}
BOARD = ["--device", "thor-t5000", "--l4t", "38.4.0"]  # the reader is on a board, the tests are not


def blocks(language):
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            if match.group(1) == language:
                yield pytest.param(match.group(2), id=f"{page.name}-{number}")


def console_lines():
    for param in blocks("console"):
        for line in param.values[0].splitlines():
            words = line.split()
            if words[:2] == ["$", "jetson-specdec"] and words[2] not in NOT_RUN_HERE and "--network" not in words:
                yield pytest.param(line[2:], id=f"{param.id}-{line[2:50]}")


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with the files that the documentation names."""
    import io
    import sys

    (tmp_path / "serve.sh").write_text("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n")
    (tmp_path / "server.log").write_text("INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.32.0\n")
    (tmp_path / "dmesg.txt").write_text("")
    (tmp_path / "mine.toml").write_text('schema_version = 1\n[[heads]]\nid = "me/my-head"\ntarget = "Qwen/Qwen3-8B"\n')
    run = {"concurrency": 1, "ttft_ms_p50": 200.0, "tpot_ms_p50": 40.0, "throughput_tok_s": 24.0}
    report = {"skill": "jetson-llm-benchmark", "runtime": "vllm", "config": {"output_len": 128}, "runs": [run]}
    (tmp_path / "bench.json").write_text(json.dumps(report))
    for arm, factor in (("before", 1.0), ("after", 1.5)):
        for number, name in enumerate((f"{arm}.json", f"{arm}-1.json", f"{arm}-2.json")):
            speed = factor * (1 + number / 1000)  # no two runs of a server give the very same figures
            figures = {"ttft_ms_p50": 200.0, "tpot_ms_p50": 40.0 / speed}
            runs = [{"concurrency": c, "throughput_tok_s": 24.0 * c * speed, **figures} for c in (1, 8)]
            (tmp_path / name).write_text(json.dumps({**report, "runs": runs}))
    board = tmp_path / "board-1" / "root" / "proc"
    board.mkdir(parents=True)
    (board / "meminfo").write_text("MemTotal:       64349016 kB\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "serve.sh").read_bytes())))
    return tmp_path


@pytest.mark.parametrize("code", list(blocks("python")))
def test_python_blocks_run(code, desk):
    exec(compile(code, "<documentation>", "exec"), {"__name__": "documentation"})


@pytest.mark.parametrize("line", list(console_lines()))
def test_console_lines_run(line, desk, capsys):
    words = shlex.split(line, comments=True)[1:]
    words = words[: words.index("<")] if "<" in words else words
    if words[0] == "apply":
        if "--undo" in words:
            assert main(["apply", "serve.sh", "--no-baseline", "--yes", *BOARD]) == 0
        words.append("--yes")  # the reader is asked
    if words[0] in ("plan", "apply") and not {"--device", "--undo"} & {*words}:
        words += BOARD
    if "--record" in words:
        words[words.index("--record") + 1] = "board-2"
    # What this machine lacks is what the doctor is for.
    allowed = (0, 40, 41) if words[0] == "doctor" else (0,)
    assert main(words) in allowed, capsys.readouterr().err


def test_every_command_is_documented():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name in COMMANDS:
        assert f"jetson-specdec {name}" in text, name
