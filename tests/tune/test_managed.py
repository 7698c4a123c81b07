# SPDX-License-Identifier: Apache-2.0
"""Whole tunes of containers, compose services and units, killed and put back, against stand-ins of their managers."""

from __future__ import annotations

import json
import signal

import pytest

KILL, TERM = int(signal.SIGKILL), int(signal.SIGTERM)
VERDICTS = (0, 10, 11, 12)
MEASURING = ["jetson_specdec.tune.session:bench", "before", 1]


@pytest.fixture
def managed(real, mortals):
    def make(kind):
        start = real.managed(kind)
        real.bytes = real.recipe.read_bytes()
        real.command(*start)
        real.until(real.answers)
        return real

    return make


def as_before(board, name, *, count=1):
    """The old server runs, under its own name and with its own restart policy; nothing else is kept."""
    kept = board.kept()
    assert list(kept) == [name]
    assert kept[name]["running"]
    assert "jetson-specdec.run" not in kept[name]["labels"]
    assert board.speculating() == []
    assert board.marked() == []
    assert board.recipe.read_bytes() == board.bytes
    assert list(board.state.iterdir()) == []
    assert not list(board.socket.glob("run/*/*.conf"))
    return kept[name]


def killed(board, *deaths):
    how = ("--resume", board.evidence) if board.evidence.exists() else ("--evidence", board.evidence)
    code, out, err = board.tune(*how, deaths=deaths)
    assert code == -KILL, (out, err)
    return board.restore()


def ended(board, *words):
    how = ("--resume", board.evidence) if board.evidence.exists() else ("--evidence", board.evidence)
    code, out, err = board.tune(*how, *words)
    assert code in VERDICTS, (out, err)
    board.until(board.answers)
    return json.loads(out)


def test_a_container_waits_aside_and_comes_back(managed):
    board = managed("container")
    old = board.kept()["llm"]
    for deaths in (
        [["jetson_specdec.server.displace:take_down", "after", 1, KILL]],
        [["jetson_specdec.server.room:Room.note_keeper", "after", 1, KILL]],
        [[*MEASURING, TERM], ["jetson_specdec.server.displace:_started", "after", 1, KILL]],
    ):
        killed(board, *deaths)
        now = as_before(board, "llm")
        assert (now["id"], now["restart"]) == (old["id"], "unless-stopped")
    result = ended(board)
    assert as_before(board, "llm")["id"] == old["id"]
    if result["outcome"] == "enable":
        written = (board.folder / "serve.specdec.sh").read_text()
        assert written.startswith("#!/bin/bash\ndocker run -it --rm --name llm")
        assert "--speculative-config" in written


def test_a_container_that_its_stop_removes_is_run_again(managed):
    board = managed("vanishing")
    killed(board, ["jetson_specdec.server.displace:take_down", "after", 1, KILL])
    assert as_before(board, "llm")["remove"]
    killed(board, [*MEASURING, TERM], ["jetson_specdec.server.displace:_spawned", "after", 1, KILL])
    assert as_before(board, "llm")["remove"]


def test_a_compose_service(managed):
    board = managed("compose")
    killed(board, [*MEASURING, KILL])
    now = as_before(board, "stack-llm-1")
    assert now["restart"] == "unless-stopped"
    assert now["labels"]["com.docker.compose.project.config_files"].endswith("extra.yaml")
    ended(board)
    as_before(board, "stack-llm-1")
    assert sorted(path.name for path in board.recipe.parent.iterdir() if "specdec" not in path.name) == [
        "compose.yaml", "extra.yaml",
    ]  # fmt: skip


def test_a_unit(managed):
    board = managed("unit")
    killed(board, [*MEASURING, KILL])
    assert as_before(board, "llm.service")["restart"] == "always"
    ended(board)
    assert as_before(board, "llm.service")["restart"] == "always"
