# SPDX-License-Identifier: Apache-2.0
"""`tune` on the command line: what it refuses before it touches anything. The loop itself: tests/tune."""

from __future__ import annotations

import pytest

from jetson_specdec.cli import main
from jetson_specdec.cli.tune import seconds_of

BOARD = ["--device", "thor-t5000", "--l4t", "38.4.0"]


def run(capsys, *words):
    code = main(["tune", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve Qwen/Qwen3-8B --port 8397\n")
    return path


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("45m", 2700), ("2h", 7200), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_spans_of_time(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "words",
    [
        ["--max-time", "soon"],
        ["--max-time", ""],
        ["--concurrency", "one"],
        ["--concurrency", "0"],
        ["--device", "toaster"],
        ["--leave", "burning"],
        ["--resume", "nowhere"],
        ["--policy", "nowhere.toml"],
        ["--head", "a/b", "--draft", "c/d"],
    ],
)
def test_bad_options_get_one_line_and_touch_nothing(capsys, recipe, words):
    code, out, err = run(capsys, recipe, "--yes", *(BOARD if "--device" not in words else []), *words)
    assert code == 2, err
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert [path.name for path in recipe.parent.iterdir()] == ["serve.sh"]


@pytest.mark.parametrize("words", [["-"], ["nowhere.sh"], [], ["--rejudge", "nowhere"]])
def test_without_a_file_there_is_nothing_to_do(capsys, words):
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_without_a_terminal_it_declines(capsys, recipe):
    code, _, err = run(capsys, recipe, *BOARD)
    assert code == 3
    assert "--yes" in err
    assert [path.name for path in recipe.parent.iterdir()] == ["serve.sh"]


def test_a_refused_board_is_told_at_once(capsys, recipe):
    code, out, _ = run(capsys, recipe, "--device", "orin-nano-8gb", "--l4t", "36.4.7", "--yes")
    assert code == 21
    assert "refuses" in out
    assert [path.name for path in recipe.parent.iterdir()] == ["serve.sh"]


def test_nothing_to_restore_is_fine(capsys, tmp_path):
    code, out, _ = run(capsys, "--restore", "--state-dir", tmp_path / "none")
    assert code == 0
    assert out.startswith("0 killed starts")
