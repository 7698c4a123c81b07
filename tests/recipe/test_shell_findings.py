# SPDX-License-Identifier: Apache-2.0
"""What the shell layer says about a recipe."""

from __future__ import annotations

import pytest

from jetson_specdec import messages
from jetson_specdec.findings import Finding, Severity
from jetson_specdec.planner import Planner
from jetson_specdec.recipe.shell import parse_shell


def findings(text: str) -> tuple[Finding, ...]:
    return parse_shell(text).commands[0].findings


def topics(text: str) -> list[tuple[str, str]]:
    return [(finding.code, finding.topic) for finding in findings(text)]


def test_a_plain_command_needs_no_words() -> None:
    assert topics("# start\nvllm serve m --c '{\"a\": 1}' # ok\n") == []


def test_quotes_lost_to_the_shell_are_shown_as_the_engine_would_see_them() -> None:
    recipe = parse_shell('vllm serve m --speculative-config {"method":"eagle3","k":3}\n')
    args = [arg.value for arg in recipe.commands[0].args]
    assert args == ["m", "--speculative-config", "method:eagle3", "k:3"]
    (finding,) = recipe.commands[0].findings
    assert (finding.code, finding.topic) == ("JSD203", "quoting-broken")
    assert finding.values["values"] == ["method:eagle3", "k:3"]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ('{"method":"ngram"}', ["{method:ngram}"]),
        ('"{"method":"eagle3","k":3}"', ["{method:eagle3,k:3}"]),
        (
            '--speculative-config={"method":"eagle3","k":3}',
            ["--speculative-config=method:eagle3", "--speculative-config=k:3"],
        ),
    ],
)
def test_other_ways_to_lose_quotes(word: str, values: list[str]) -> None:
    recipe = parse_shell(f"vllm serve m {word}\n")
    assert [arg.value for arg in recipe.commands[0].args[1:]] == values
    assert [finding.code for finding in recipe.commands[0].findings] == ["JSD203"]


def test_quotes_lost_in_an_outer_string() -> None:
    text = 'bash -c "vllm serve m --speculative-config \'{"method":"eagle3","k":3}\'"\n'
    assert topics(text) == [("JSD203", "quoting-broken")]


@pytest.mark.parametrize("word", ["'{\"a\":1}'", '"{\\"a\\":1}"', '\\{\\"a\\":1\\}', "$'{\"a\":1}'"])
def test_quotes_that_arrive_are_not_complained_about(word: str) -> None:
    assert topics(f"vllm serve m --c {word}\n") == []


def test_a_blank_behind_the_backslash_breaks_the_line() -> None:
    recipe = parse_shell("vllm serve m \\ \n  --port 1\n")
    command = recipe.commands[0]
    assert [arg.value for arg in command.args] == ["m", " "]
    assert command.blocked is not None
    assert (command.blocked.code, command.blocked.topic) == ("JSD204", "quoting-broken")
    assert command.blocked.values == {"line": 1}


def test_too_many_layers_of_quotes() -> None:
    text = "alias up='\n  docker run img bash -c \"cd /srv && vllm serve m\"\n'\n"
    command = parse_shell(text).commands[0]
    assert not command.editable
    assert command.blocked is not None
    assert (command.blocked.topic, command.blocked.values["layers"]) == ("quoting-extra-layer", ["alias", "bash -c"])
    assert command.blocked in command.findings


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("vllm serve “org/m” --port 1\n", "JSD206"),
        ('vllm serve m --c ‘{"a":1}’\n', "JSD206"),
        ("vllm serve m\u00a0--port 1\n", "JSD211"),
    ],
)
def test_typography(text: str, code: str) -> None:
    assert topics(text) == [(code, "typography")]


def test_an_apostrophe_inside_a_name_is_no_quote() -> None:
    assert topics("vllm serve m --served-model-name bob’s\n") == []


def test_commented_alternatives_are_named_and_left_alone() -> None:
    text = "vllm serve m \\\n  --a 1\n  # --b 2\n# vllm serve other\n# just a note\n"
    (finding,) = findings(text)
    assert (finding.code, finding.topic, finding.values["lines"]) == ("JSD201", "commented-alternatives", [3, 4])


def test_a_comment_that_cuts_the_command() -> None:
    text = "vllm serve m \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n"
    command = parse_shell(text).commands[0]
    assert [arg.value for arg in command.args] == ["m", "--a", "1"]
    assert [(one.code, one.values.get("line", one.values.get("lines"))) for one in command.findings] == [
        ("JSD201", [3]),
        ("JSD202", 3),
    ]
    assert command.blocked is not None
    assert command.blocked.severity is Severity.BLOCKING


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m \\\n  --a 1\n  # --b 2 \\\n",  # behind the last argument
        "vllm serve m \\\n  --a 1 \\\n\n# --b 2\n",  # an empty line ends it
        "vllm serve m \\\n  --a 1 \\\n  # last one\n",  # nothing is lost
        "vllm serve m --a 1 # --b 2 \\\n",
    ],
)
def test_a_comment_behind_the_command_cuts_nothing(text: str) -> None:
    assert parse_shell(text).commands[0].blocked is None


def test_a_cut_command_is_refused_with_what_to_repair() -> None:
    text = "vllm serve Qwen/Qwen3-8B \\\n  --port 1 \\\n  # --max-num-seqs 8 \\\n  --seed 1\n"
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0")
    assert plan.outcome == "refuse"
    assert plan.recipe.before == plan.recipe.after
    assert "Move the comment" in next(one.message for one in plan.findings if one.code == "JSD202")


@pytest.mark.parametrize(
    ("comment", "counts"),
    [
        ("# vllm serve is slow on Thor, see docs", False),
        ("# then vllm serve starts", False),
        ("# docker run needs the nvidia runtime", False),
        ("# - a list item", False),
        ("# vllm serve org/other", True),
        ("# vllm serve $MODEL --port 1", True),
        ("# X=1 vllm serve other \\", True),
        ("# docker run --rm vllm/vllm-openai m", True),
        ("#   --port 1", True),
    ],
)
def test_prose_is_no_alternative(comment: str, counts: bool) -> None:
    found = topics(f"{comment}\nvllm serve m\n{comment}\n")
    assert found == ([("JSD201", "commented-alternatives")] if counts else [])


def test_windows_line_ends_are_told_and_kept() -> None:
    text = "vllm serve Qwen/Qwen3-8B \\\r\n  --gpu-memory-utilization 0.6 \\\r\n  --port 8000\r\n"
    (finding,) = parse_shell(text).findings
    assert (finding.code, finding.topic, finding.severity) == ("JSD212", "quoting-broken", Severity.WARNING)
    assert "dos2unix" in finding.message
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0")
    assert plan.outcome == "eagle3"
    assert plan.recipe.after.count("\r\n") == plan.recipe.after.count("\n") > 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("$ vllm serve m \\\n> --port 1\n", 2),
        ("vllm serve m \\\n  --a 1 \\\n> --port 1 \\\n> --b 2\n", 3),
        ("```console\n$ vllm serve \\\n> org/m\n```\n", 3),
        ("bob@thor:~$ vllm serve m \\\n> --port 1\n", 2),
        ("$ docker run vllm/vllm-openai org/m \\\n>   --port 1\n", 2),
    ],
)
def test_the_prompt_of_a_continued_line_is_no_redirection(text: str, line: int) -> None:
    blocked = parse_shell(text).commands[0].blocked
    assert blocked is not None
    assert (blocked.code, blocked.values["line"], blocked.severity) == ("JSD214", line, Severity.BLOCKING)


@pytest.mark.parametrize(
    "text",
    ["vllm serve m \\\n  > log.txt\n", "vllm serve m > log\n", "$ vllm serve m >> log 2>&1\n", "vllm serve m 2> e\n"],
)
def test_a_redirection_is_one(text: str) -> None:
    assert parse_shell(text).commands[0].blocked is None


@pytest.mark.parametrize("sign", ["\u200b", "\ufeff", "\u2060", "\u00ad", "\u200e"])
@pytest.mark.parametrize("place", ["{}--gpu-memory-utilization 0.6", "--gpu-memory{}-utilization 0.6", "--port 8{}0"])
def test_invisible_characters_are_named(sign: str, place: str) -> None:
    found = [one for one in findings(f"vllm serve m {place.format(sign)}\n") if one.topic == "typography"]
    assert [one.severity for one in found] == [Severity.BLOCKING]
    assert f"U+{ord(sign):04X}" in found[0].message
    assert sign not in found[0].message


def test_joined_emoji_are_ordinary_text() -> None:
    assert topics("vllm serve m --served-model-name \U0001f468\u200d\U0001f4bb\n") == []


def test_an_image_whose_name_says_nothing() -> None:
    assert topics("docker run my/llm --model m --max-model-len 9\n") == [("JSD210", "ambiguous-shell-form")]


def test_a_program_whose_options_are_not_read() -> None:
    assert topics("nsys profile -o x vllm serve m\n") == [("JSD209", "ambiguous-shell-form")]


def test_every_text_is_complete() -> None:
    codes = [code for code in messages.all_codes() if "JSD200" <= code < "JSD240"]
    assert "JSD200" in codes
    for code in codes:
        assert messages.render(code, {}) != code
