# SPDX-License-Identifier: Apache-2.0
"""Compose files and manifests, changed: what a YAML reader that is not ours makes of the result.

The reference for compose is PyYAML, then `$$` and `${…}` by the Compose file reference, then Python's shlex (what
docker compose v1 and podman-compose use); for manifests PyYAML and the rule for `$$`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import CommandChoiceError, RecipeError, UneditableError
from jetson_specdec.recipe import AppendArgs, RemoveArgs, ReplaceArg, ServeFlags, load_recipe, parse_recipe, plan_edit
from jetson_specdec.recipe.forms_embedded import EMBEDDED, edit_embedded

CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 5}
JSON = json.dumps(CONFIG, separators=(",", ":"))
DATA = Path(__file__).parent.parent / "data" / "recipe"


def reference(service: dict[str, Any]) -> list[str]:
    """What compose hands to the container, `${NAME:-default}` taken as its default."""

    def plain(text: str) -> str:
        return re.sub(r"\$\$|\$\{\w+:-([^}]*)\}", lambda match: match[1] if match[1] is not None else "$", text)

    def words(value: Any) -> list[str]:
        return shlex.split(plain(value)) if isinstance(value, str) else [plain(item) for item in value or []]

    return words(service.get("entrypoint")) + words(service.get("command"))


def by_shell(script: str, folder: Path) -> list[str]:
    """What a real shell hands to the program `vllm`."""
    program = folder / "vllm"
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\nexit 1\n')
    program.chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "TARGET": "some/model"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    return done.stdout.split("\0")[:-1]


def untouched_lines(before: str, after: str, touched: set[int]) -> bool:
    """Whether every line that is not touched is still there, in order."""
    rest = iter(after.splitlines())
    return all(number in touched or line in rest for number, line in enumerate(before.splitlines(), 1))


def lines(text: str, start: int, end: int) -> set[int]:
    return set(range(text.count("\n", 0, start) + 1, text.count("\n", 0, max(start, end - 1)) + 2))


def test_each_style_keeps_everything_else(tmp_path: Path) -> None:
    recipe = load_recipe(DATA / "compose-styles.yaml")
    names = [name for name in yaml.safe_load(recipe.text)["services"] if name != "page"]
    before = yaml.safe_load(recipe.text)["services"]
    for command in recipe.commands:
        flags = ServeFlags.read(command)
        plan = plan_edit(
            recipe, command, flags, set_flags={"gpu-memory-utilization": "0.75"}, speculative_config=CONFIG
        )
        after = yaml.safe_load(plan.text_after)["services"]
        name = names[command.index]
        assert {key: value for key, value in after.items() if key != name} == {
            key: value for key, value in before.items() if key != name
        }
        words, old = reference(after[name]), reference(before[name])
        if name in ("script", "inline"):  # one more round, by the shell
            words, old = by_shell(words[-1], tmp_path), by_shell(old[-1], tmp_path)
        expected = [word.replace("0.85", "0.75").replace("0.8", "0.75") for word in old]
        assert words == [*expected, "--speculative-config", JSON]
        touched = {line for arg in command.args[-2:] for line in lines(recipe.text, arg.start, arg.end)}
        touched |= {
            line
            for arg in command.args
            if "0.8" in (arg.value or "")
            for line in lines(recipe.text, arg.start, arg.end)
        }
        assert untouched_lines(recipe.text, plan.text_after, touched)
        assert plan_edit(recipe, command, flags).text_after == recipe.text
        again = parse_recipe(plan.text_after)
        second = ServeFlags.read(again.commands[command.index])
        repeat = plan_edit(
            again,
            again.commands[command.index],
            second,
            set_flags={"gpu-memory-utilization": "0.75"},
            speculative_config=CONFIG,
        )
        assert repeat.text_after == plan.text_after


def test_new_lines_look_like_their_neighbours() -> None:
    recipe = load_recipe(DATA / "compose-styles.yaml")

    def added(index: int) -> list[str]:
        flags = ServeFlags.read(recipe.commands[index])
        after = plan_edit(recipe, recipe.commands[index], flags, speculative_config=CONFIG).text_after
        return [line for line in after.splitlines() if line not in recipe.text.splitlines()]

    assert added(0) == [f"      --speculative-config '{JSON}'"]
    assert added(3) == ["          --port 8000 \\", f"          --speculative-config '{JSON}'"]
    assert added(9) == ["    - --speculative-config", f"    - '{JSON}'"]
    assert added(8)[-1] == f"      --speculative-config '{JSON}' # enough for us"


def test_removing_takes_lines_and_leaves_comments() -> None:
    recipe = load_recipe(DATA / "compose-styles.yaml")
    text = edit_embedded(recipe, 9, [RemoveArgs(first=2, last=3)])
    assert yaml.safe_load(text)["services"]["items"]["command"] == [
        *("--model", "Qwen/Qwen3-8B", "--compilation-config"),
        '{"cudagraph_mode": "PIECEWISE"}',
    ]
    assert "# lower it when the desktop runs" in text
    flow = edit_embedded(recipe, 7, [RemoveArgs(first=0, last=1)])
    assert yaml.safe_load(flow)["services"]["lines"]["command"] == ["--gpu-memory-utilization", "0.8"]


def test_json_needs_other_quotes_than_the_scalar_has() -> None:
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: --model m\n"
    recipe = parse_recipe(text)
    spaced = '{"method": "ngram", "note": "it\'s $5 # here"}'
    after = edit_embedded(recipe, 0, [AppendArgs(values=("--speculative-config", spaced))])
    assert reference(yaml.safe_load(after)["services"]["a"]) == ["--model", "m", "--speculative-config", spaced]


def test_compose_file_that_is_json() -> None:
    text = json.dumps({"services": {"a": {"image": "vllm/vllm-openai", "command": ["--model", "m"]}}}, indent=1)
    after = edit_embedded(parse_recipe(text), 0, [AppendArgs(values=("--speculative-config", JSON))])
    assert json.loads(after)["services"]["a"]["command"] == ["--model", "m", "--speculative-config", JSON]


def test_windows_line_ends_stay() -> None:
    text = (DATA / "compose-styles.yaml").read_text().replace("\n", "\r\n")
    recipe = parse_recipe(text)
    for command in recipe.commands:
        after = plan_edit(recipe, command, ServeFlags.read(command), speculative_config=CONFIG).text_after
        assert after.replace("\r\n", "").count("\n") == 0
        assert len(after) > len(text)


def test_refusals_name_what_to_type() -> None:
    recipe = parse_recipe("services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: --model m ${MORE}\n")
    with pytest.raises(UneditableError, match=r"0\.7") as caught:
        edit_embedded(recipe, 0, [ReplaceArg(index=2, value="0.7")])
    assert caught.value.code == "JSE211"
    with pytest.raises(CommandChoiceError):
        edit_embedded(recipe, 3, [ReplaceArg(index=0, value="x")])
    with pytest.raises(UneditableError, match="no argument 9"):
        edit_embedded(recipe, 0, [ReplaceArg(index=9, value="x")])
    with pytest.raises(UneditableError):
        edit_embedded(recipe, 0, [AppendArgs(values=("a\0b",))])
    folded = "services:\n  a:\n    image: vllm/vllm-openai\n    command: >\n      --model m\n"
    with pytest.raises(UneditableError, match="To do it by hand"):
        edit_embedded(parse_recipe(folded), 0, [AppendArgs(values=("--x", "two\nlines"))])


def test_words_can_go_in_front_of_others() -> None:
    text = "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: --model m ${MORE}\n"
    after = edit_embedded(parse_recipe(text), 0, [AppendArgs(values=("--seed", "1"), before=2)])
    assert after == text.replace("--model m", "--model m --seed 1")
    items = text.replace("--model m ${MORE}", "\n    - --model\n    - m\n    # last\n    - --more")
    after = edit_embedded(parse_recipe(items), 0, [AppendArgs(values=("--seed", "1"), before=2)])
    assert after == items.replace("    - m\n", '    - m\n    - --seed\n    - "1"\n')


def test_nothing_asked_nothing_changed() -> None:
    for name in ("compose-styles.yaml", "manifest-forms.yaml"):
        recipe = load_recipe(DATA / name)
        for command in recipe.commands:
            assert edit_embedded(recipe, command.index, []) == recipe.text


# --- properties ------------------------------------------------------------------------------------------------------

WORD = st.one_of(
    st.sampled_from(["0.8", "8000", "true", "null", "a b", JSON, "it's", "$HOME", "$$x", "100%", "# no", "x: y", "-1"]),
    st.text(
        st.characters(min_codepoint=32, max_codepoint=0x2FF, blacklist_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12
    ),
)
ARGS = st.lists(WORD, min_size=1, max_size=5).map(lambda words: ["--model", "m", *words])


def _string(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words).replace("$", "$$")


def _compose(words: list[str], style: str) -> str:
    if style in ("flow", "block"):
        command: Any = [word.replace("$", "$$") for word in words]
        dumped = yaml.safe_dump(
            {"command": command}, default_flow_style=None if style == "flow" else False, width=10**6, allow_unicode=True
        )
    else:
        quote = {"single": "'", "double": '"', "any": None}[style]
        dumped = yaml.safe_dump({"command": _string(words)}, default_style=quote, width=10**6, allow_unicode=True)
    body = "".join(f"    {line}\n" for line in dumped.splitlines())
    return f"services:\n  a:\n    # kept\n    image: vllm/vllm-openai:v0.20.0\n{body}    restart: always # kept too\n"


@settings(max_examples=120)
@given(words=ARGS, style=st.sampled_from(["flow", "block", "single", "double", "any"]))
def test_words_written_by_another_writer_are_read(words: list[str], style: str) -> None:
    recipe = parse_recipe(_compose(words, style))
    assert [arg.value for arg in recipe.commands[0].args] == words
    assert recipe.commands[0].editable


@settings(max_examples=200)
@given(
    words=ARGS,
    style=st.sampled_from(["flow", "block", "single", "double", "any"]),
    new=WORD,
    place=st.integers(2, 6),
    added=st.lists(WORD, max_size=2),
)
def test_changes_read_back_by_another_reader(
    words: list[str], style: str, new: str, place: int, added: list[str]
) -> None:
    text = _compose(words, style)
    recipe = parse_recipe(text)
    place = min(place, len(words) - 1)
    after = edit_embedded(recipe, 0, [ReplaceArg(index=place, value=new), AppendArgs(values=tuple(added))])
    expected = [*words[:place], new, *words[place + 1 :], *added]
    assert reference(yaml.safe_load(after)["services"]["a"]) == expected
    assert after.startswith("services:\n  a:\n    # kept\n    image: vllm/vllm-openai:v0.20.0\n")
    assert after.endswith("    restart: always # kept too\n")


@settings(max_examples=100)
@given(words=ARGS, new=WORD, added=st.lists(WORD, max_size=2), flow=st.booleans())
def test_manifests_read_back_by_another_reader(words: list[str], new: str, added: list[str], flow: bool) -> None:
    container = {"name": "a", "image": "vllm/vllm-openai:v0.20.0", "args": [word.replace("$", "$$") for word in words]}
    tree = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    text = yaml.safe_dump(tree, default_flow_style=True if flow else None, width=10**6, allow_unicode=True)
    recipe = parse_recipe(text)
    assert [arg.value for arg in recipe.commands[0].args] == words
    after = edit_embedded(recipe, 0, [ReplaceArg(index=2, value=new), AppendArgs(values=tuple(added))])
    args = yaml.safe_load(after)["spec"]["containers"][0]["args"]
    assert [word.replace("$$", "$") for word in args] == [*words[:2], new, *words[3:], *added]


def one_line(message: str) -> None:
    assert "\n" not in message


CORPUS = [path.read_text() for path in sorted(DATA.glob("*.*"))]
PIECES = ["'", '"', "\\", "$", "{", "}", "[", "]", ":", "- ", "\n", "  ", "#", "&a ", "*a", "%", "|", ">", "\t", "\r"]
PIECES += ["é", "\ud800", "\0", "${X:-", "$(", ";", "<<: ", "!t ", "\ufeff", "\x85", "\u2028", "---\n", "%YAML 1.1\n"]


@settings(max_examples=150)
@given(
    source=st.sampled_from(CORPUS),
    cuts=st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 12), st.sampled_from(["", *PIECES])), max_size=4),
)
def test_no_text_makes_it_stumble(source: str, cuts: list[tuple[int, int, str]]) -> None:
    text = source
    for at, length, piece in cuts:
        at %= len(text) + 1
        text = text[:at] + piece + text[at + length :]
    try:
        recipe = parse_recipe(text)
    except RecipeError as error:
        one_line(str(error))
        return
    for command in recipe.commands[:3]:
        for arg in command.args:
            assert 0 <= arg.start <= arg.end <= len(text)
        if recipe.form not in EMBEDDED:
            continue
        try:
            after = edit_embedded(recipe, command.index, [AppendArgs(values=("--speculative-config", JSON))])
        except UneditableError as error:
            one_line(str(error))
            continue
        again = parse_recipe(after)
        assert [arg.value for arg in again.commands[command.index].args][-2:] == ["--speculative-config", JSON]


@settings(max_examples=100)
@given(text=st.text(max_size=200))
def test_any_text_inside_a_compose_file(text: str) -> None:
    for body in (
        f"services:\n  a:\n    image: vllm/vllm-openai\n    command: {text}\n",
        f"[Service]\nExecStart={text}\n",
    ):
        try:
            recipe = parse_recipe(body)
        except RecipeError as error:
            one_line(str(error))
            continue
        assert recipe.commands
