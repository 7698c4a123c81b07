# SPDX-License-Identifier: Apache-2.0
"""Edits change the arguments asked for and not one other byte; bash is the judge."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import CommandChoiceError, UneditableError
from jetson_specdec.recipe.core import AppendArgs, ArgEdit, RemoveArgs, ReplaceArg
from jetson_specdec.recipe.shell import edit_shell, parse_shell

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")

CONFIG = '{"method":"eagle3","num_speculative_tokens":5}'
ADD = AppendArgs(values=("--speculative-config", CONFIG))


def run(text: str) -> list[list[str]]:
    """Return what each call of a command named vllm receives."""
    stub = 'vllm() { printf "%s\\0" "$@" >&3; printf "\\1\\0" >&3; }; export -f vllm; exec 3>&1 >/dev/null; eval "$1"'
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nowhere"}
    done = subprocess.run([BASH, "-c", stub, "bash", text], capture_output=True, env=environment, check=False)
    calls: list[list[str]] = [[]]
    for word in done.stdout.decode().split("\0")[:-1]:
        if word == "\1":
            calls.append([])
        else:
            calls[-1].append(word)
    return calls[:-1]


def changed(text: str, *edits: ArgEdit, index: int = 0) -> str:
    return edit_shell(parse_shell(text), index, edits)


# --- where and how ---------------------------------------------------------------------------------------------------

ON_ONE_LINE = f" --speculative-config '{CONFIG}'"
IN_DOUBLE = " --speculative-config '" + CONFIG.replace('"', '\\"') + "'"
IN_SINGLE = ' --speculative-config "' + CONFIG.replace('"', '\\"') + '"'


@pytest.mark.parametrize(
    ("text", "mark", "added"),
    [
        ("vllm serve m --port 1|\n", "|", ON_ONE_LINE),
        ("vllm serve m --port 1|", "|", ON_ONE_LINE),
        ("vllm serve m|   # one user\n", "|", ON_ONE_LINE),
        ("nohup vllm serve m@ > log 2>&1 & \n", "@", ON_ONE_LINE),
        ("vllm serve m@ | tee log\n", "@", ON_ONE_LINE),
        ("vllm serve m@ && echo ok || exit 1\n", "@", ON_ONE_LINE),
        ("if a; then vllm serve m@; fi\n", "@", ON_ONE_LINE),
        ("vllm serve m > log --port 1@\n", "@", ON_ONE_LINE),
        ('vllm serve m "${extra[@]}"|\n', "|", ON_ONE_LINE),
        ("vllm serve m ${X:+--eager}|\n", "|", ON_ONE_LINE),
        ('A=(--port 1)\nvllm serve m "${A[@]}"|\n', "|", ON_ONE_LINE),
        ("vllm serve m \\\n    --port 1@ \\\n\n# end\n", "@", f" \\\n   {ON_ONE_LINE}"),
        ("vllm serve m \\\r\n\t--port 1@\r\n", "@", f" \\\r\n\t{ON_ONE_LINE[1:]}"),
        ("docker run \\\n  img/vllm \\\n  --model m --port 1@   # note\n", "@", f" \\\n {ON_ONE_LINE}"),
        ("vllm serve m \\\n  --a 1@ \\\n  # --b 2\n", "@", f" \\\n {ON_ONE_LINE}"),
        ('bash -c "cd /srv && vllm serve m@"\n', "@", IN_DOUBLE),
        ('bash -c "vllm serve m \\\n    --port 1@"  # x\n', "@", f" \\\n   {IN_DOUBLE}"),
        ("sh -lc 'exec vllm serve m@; date'\n", "@", IN_SINGLE),
        ("bash <<'EOF'\nvllm serve m@\nEOF\n", "@", ON_ONE_LINE),
        ("bash <<EOF\nvllm serve m@ &\nEOF\n", "@", ON_ONE_LINE),
        ("alias up='vllm serve m@'\n", "@", IN_SINGLE),
        ('CMD="vllm serve m"\n$CMD@\n', "@", ON_ONE_LINE),
        ('CMD="vllm serve m@"\neval "$CMD"\n', "@", IN_DOUBLE),
        ('bash -c "vllm serve m --port ${PORT:-8000}@"\n', "@", IN_DOUBLE),
        ('bash -c "vllm serve $MODEL@"\n', "@", IN_DOUBLE),
        ("bash <<EOF\nvllm serve m ${X:+--eager}@\nEOF\n", "@", ON_ONE_LINE),
        ('CMD=(vllm serve m)\n[ -n "$K" ] && CMD+=(--k)\neval "${CMD[*]}@"\n', "@", IN_DOUBLE),
        ("```bash\nvllm serve m@\n```\n", "@", ON_ONE_LINE),
    ],
)
def test_words_are_added_in_the_style_of_the_recipe(text: str, mark: str, added: str) -> None:
    before, after = text.split(mark) if mark == "@" else text.rsplit(mark, 1)
    assert changed(before + after, ADD) == before + added + after


@needs_bash
@pytest.mark.parametrize("port", ["", "PORT=9 "])
def test_added_words_do_not_depend_on_the_environment(port: str) -> None:
    text = 'bash -c "vllm serve m --port ${PORT:-8}"\n'
    command = f"export {port}PORT\n" if port else ""
    received = run(command + changed(text, ADD))
    assert received == [["serve", "m", "--port", "9" if port else "8", *ADD.values]]


def test_each_flag_gets_a_line_of_its_own_with_its_values() -> None:
    text = "vllm serve m \\\n  --port 1\n"
    new = changed(text, AppendArgs(values=("--a", "x", "y", "--seed", "-1", "--c=2")))
    assert new == "vllm serve m \\\n  --port 1 \\\n  --a x y \\\n  --seed -1 \\\n  --c=2\n"


@pytest.mark.parametrize(
    ("raw", "value", "new"),
    [
        ("0.9", "0.85", "0.85"),
        ('"0.9"', "0.85", '"0.85"'),
        ("'0.9'", "0.85", "'0.85'"),
        ("$UTIL", "0.85", "0.85"),
        ('"$UTIL"', "0.85", '"0.85"'),
        ("--u=0.9", "--u=0.85", "--u=0.85"),
        ('--u="0.9"', "--u=0.85", '--u="0.85"'),
        ("--c='{\"a\":1}'", '--c={"a":2}', "--c='{\"a\":2}'"),
        ('"{\\"a\\":1}"', '{"a":2}', '"{\\"a\\":2}"'),
        ("x", CONFIG, f"'{CONFIG}'"),
        ("'x'", "it's", '"it\'s"'),
    ],
)
def test_a_new_value_keeps_the_quoting(raw: str, value: str, new: str) -> None:
    text = f"UTIL=0.9\nvllm serve m {raw} --port 1 # {raw}\n"
    assert changed(text, ReplaceArg(index=1, value=value)) == f"UTIL=0.9\nvllm serve m {new} --port 1 # {raw}\n"


@pytest.mark.parametrize(
    ("text", "first", "last", "left"),
    [
        ("vllm serve m --a 1 --b 2\n", 1, 2, "vllm serve m --b 2\n"),
        ("vllm serve m --a 1 --b 2 # c\n", 3, 4, "vllm serve m --a 1 # c\n"),
        ("vllm serve m \\\n  --a 1 \\\n  --b 2\n", 1, 2, "vllm serve m \\\n  --b 2\n"),
        ("vllm serve m \\\n  --a 1 \\\n  --b 2\n", 3, 4, "vllm serve m \\\n  --a 1\n"),
        ("vllm serve m --a 1 > log --b 2\n", 2, 3, "vllm serve m --a > log 2\n"),
        ('A=(--a 1 # one\n --b 2\n)\nvllm serve m "${A[@]}"\n', 3, 4, 'A=(--a 1 # one\n)\nvllm serve m "${A[@]}"\n'),
        ('A=(--a 1 --b 2)\nvllm serve m "${A[@]}"\n', 1, 2, 'A=(--b 2)\nvllm serve m "${A[@]}"\n'),
        ('K=1\nvllm serve m ${K:+--k "$K"} --b\n', 1, 2, "K=1\nvllm serve m --b\n"),
        ("bash -c 'vllm serve m --a '\\''x y'\\'' --b'\n", 1, 2, "bash -c 'vllm serve m'' --b'\n"),
    ],
)
def test_removed_words_take_their_gap_along(text: str, first: int, last: int, left: str) -> None:
    assert changed(text, RemoveArgs(first=first, last=last)) == left


def test_only_the_chosen_command_changes() -> None:
    text = "vllm serve a --u 0.9\nvllm serve b --u 0.9\n"
    assert changed(text, ReplaceArg(index=2, value="0.8"), index=1) == "vllm serve a --u 0.9\nvllm serve b --u 0.8\n"


def test_no_edits_no_change() -> None:
    text = "\ufeffvllm serve m \\\r\n  --a 1   \r\n\r\n"
    assert changed(text) == text


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "edit", "code"),
    [
        ("alias up='docker run img bash -c \"vllm serve m\"'\n", ADD, "JSE210"),
        ("vllm serve m --a \\ \n  --b 1\n", ADD, "JSE210"),
        ('vllm serve m "$@"\n', ReplaceArg(index=1, value="x"), "JSE211"),
        ("vllm serve m ${U:+--u=0.9}\n", ReplaceArg(index=1, value="--u=0.8"), "JSE211"),
        ('vllm serve m {"a":1,"b":2}\n', ReplaceArg(index=1, value="x"), "JSE211"),
        # the array serves two commands, only one was to change
        (
            'A=(--u 0.9)\nvllm serve a "${A[@]}"\nvllm serve b "${A[@]}"\n',
            ReplaceArg(index=2, value="0.8"),
            "JSE213",
        ),
        ("vllm serve m\n", ReplaceArg(index=0, value="a\0b"), "JSE214"),
        ("vllm serve m\n", RemoveArgs(first=0, last=4), "JSE215"),
    ],
)
def test_where_no_safe_edit_exists_it_is_refused(text: str, edit: ArgEdit, code: str) -> None:
    with pytest.raises(UneditableError) as caught:
        changed(text, edit)
    assert caught.value.code == code
    if code in ("JSE210", "JSE211", "JSE213"):
        assert caught.value.values["type"]
        assert caught.value.values["type"] in str(caught.value)


def test_what_to_type_by_hand_names_the_flag_too() -> None:
    text = 'A=(--u 0.9)\nvllm serve a "${A[@]}"\nvllm serve b "${A[@]}"\n'
    with pytest.raises(UneditableError) as caught:
        changed(text, ReplaceArg(index=2, value="0.8"), ADD)
    assert caught.value.values["type"] == f"--u 0.8 --speculative-config '{CONFIG}'"


def test_a_missing_command() -> None:
    with pytest.raises(CommandChoiceError) as caught:
        changed("vllm serve m\n", ADD, index=1)
    assert caught.value.values == {"index": 1, "count": 1}


def test_a_recipe_with_another_text_is_noticed() -> None:
    recipe = attrs.evolve(parse_shell("vllm serve m --a\n"), text="vllm serve m\n")
    with pytest.raises(UneditableError):
        edit_shell(recipe, 0, [ADD])


# --- against bash ----------------------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.sampled_from(["0.8", "m/x", "", "a b", "it's", CONFIG, '{"a": ["x", "y$z"], "b": "q`w"}', "--flag", "--k=v"]),
    st.sampled_from(["back\\slash", '"', "é“”", "$HOME", "a\nb", "*", "{a,b}", "~", "#x", "!", "'\\''"]),
)


def double(text: str, special: str = '\\"$`') -> str:
    return "".join("\\" + char if char in special else char for char in text)


def single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHAPES = {
    "plain": lambda inner: f"# it's\n{inner}\n",
    "redirected": lambda inner: f"{inner} >/dev/null 2>&1 & # don't\nwait\n",
    "piped": lambda inner: f"{inner} | cat\n",
    "condition": lambda inner: f"if true; then {inner} || true; fi\n",
    "function": lambda inner: f"go() {{\n  {inner}\n}}\ngo\n",
    "double": lambda inner: f'bash -c "{double(inner)} && true" # c\n',
    "single": lambda inner: f"env A=1 bash -c {single(inner)}\n",
    "ansi": lambda inner: "bash -c $'" + inner.replace("\\", "\\\\").replace("'", "\\'") + "'\n",
    "heredoc": lambda inner: "bash <<EOF\n" + double(inner, special="\\$`") + "\nEOF\n",
    "raw heredoc": lambda inner: f"bash <<'EOF' 2>/dev/null\n{inner}\nEOF\n",
    "eval": lambda inner: f"eval {single(inner)}\n",
    "variable": lambda inner: f'CMD="{double(inner)}"\neval "$CMD"\n',
}

EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(VALUES, min_size=1, max_size=3), st.just(0)),
        st.tuples(st.just("replace"), VALUES, st.integers(1, 9)),
        st.tuples(st.just("remove"), st.integers(1, 9), st.integers(0, 2)),
    ),
    max_size=3,
)


@needs_bash
@settings(max_examples=250)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.lists(
        st.tuples(VALUES, st.sampled_from([single, shlex.quote, lambda v: f'"{double(v)}"'])), min_size=1, max_size=4
    ),
    st.sampled_from([" ", " \\\n  ", "\t"]),
    EDITS,
)
def test_bash_receives_exactly_what_was_asked_for(shape, words, gap, wishes) -> None:  # type: ignore[no-untyped-def]
    text = SHAPES[shape]("vllm serve m" + "".join(gap + quote(value) for value, quote in words))
    values = ["m", *(value for value, _ in words)]
    assert run(text) == [["serve", *values]]
    recipe = parse_shell(text)
    assert [arg.value for arg in recipe.commands[0].args] == values

    edits: list[ArgEdit] = []
    wanted: list[str | None] = list(values)
    added: list[str] = []
    touched: set[int] = set()
    for kind, one, two in wishes:
        if kind == "append":
            edits.append(AppendArgs(values=tuple(one)))
            added += one
            continue
        first = two if kind == "replace" else one
        span = {first} if kind == "replace" else set(range(first, first + two + 1))
        if span & touched or max(span) >= len(values):
            continue
        touched |= span
        if kind == "replace":
            edits.append(ReplaceArg(index=first, value=one))
            wanted[first] = one
        else:
            edits.append(RemoveArgs(first=first, last=first + two))
            wanted[first : first + two + 1] = [None] * (two + 1)

    new = edit_shell(recipe, 0, edits)
    result = [value for value in wanted if value is not None] + added
    assert run(new) == [["serve", *result]]
    assert subprocess.run([BASH, "-n"], input=new.encode(), check=False, capture_output=True).returncode == 0
    assert [arg.value for arg in parse_shell(new).commands[0].args] == result
    if not edits:
        assert new == text
    if len(edits) == 1 and isinstance(edits[0], AppendArgs) and "'" not in text.split("vllm")[0]:
        # what was there is still there, in order: the new words were only put in between
        start = next(at for at in range(len(text) + 1) if at == len(text) or text[at] != new[at])
        assert new.endswith(text[start:])
