# SPDX-License-Identifier: Apache-2.0
"""Files that a script reads: their values count as they do for bash, and an edit never touches them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jetson_specdec import Planner
from jetson_specdec.recipe import load_recipe
from jetson_specdec.recipe.core import ServeCommand

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")

STUB = """
vllm() {
  shift; printf '%s\\0' "$@"; printf 'end\\0'
  for n in A B C; do if [[ -v $n && ${!n@a} == *x* ]]; then printf '%s\\0' "$n=${!n}"; fi; done
}
set -f; . "$0"
"""
USE = 'vllm serve "$A" "${B:-nb}" $C "${C:+alt}"\n'

LINES = [
    *("A=file", "A=\"q 'x' y\"", "export B=fb", 'B="$A-x"', "C=${C:-dc}", "C+=plus", "A='sp ace'", "# A=comment", ""),
    *("A=", "B=$A", "C=$(echo hi)", "A=1 B=2", "set -a", "set +a", 'A="a\\"b"', "A=x # c", "A=a#b", "export A C"),
    *("B=${B:+there}", "C=~/c", "A=$'t\\tab'", "B=${NOT_SET:-'q d'}", "A=$D", ":", "A=a; B=b", "A=1 \\\nB=cont"),
]
OTHER_LINES = ["echo hi >/dev/null", "if true; then A=9; fi", "A=1 true", "A=(x y)", "unset A", "true && A=3"]
FRAGMENTS = [
    *("A=1", 'A="two w"', "B=$A", "A=${A:-d}", 'A="${A:-d e}"', 'B="${A:+x}"', 'A+=" y"', "export A", "export B=2"),
    *(': "${A:=z}"', ": ${B:='q r'}", "C='x'", "set -a", "set +a", "set -eu; set +eu"),
    *(". ./a.env", "source ./b.env", "[ -f ./a.env ] && . ./a.env", "[ -f ./no.env ] && . ./no.env"),
    *("if [ -r ./a.env ]; then set -a; . ./a.env; set +a; fi", "test -e b.env && source ./b.env || true"),
    *("if [ -f no.env ]; then . ./no.env; else A=else; fi", "if [[ -f a.env ]]; then\n  . ./a.env\nelse\n  A=else\nfi"),
    *("[ -f ./b.env ] && { . ./b.env; C=grp; }", "(. ./a.env; B=sub)", "{ . ./b.env; }", "[ -f b.env ] || A=nob"),
    *('source "$(dirname "$0")/a.env"', '. "${BASH_SOURCE%/*}/b.env"', '. "$PWD/a.env"', "E=./a.env; . $E"),
    *('D="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" >/dev/null 2>&1 && pwd)"', '. "$D/a.env"', "cd sub", "cd .."),
    *('[ -z "$A" ] && A=empty', 'if [ -n "${B:-}" ]; then C=$B; fi', '[ "$A" = 1 ] || B=not1', '[[ $A == f* ]] && C=f'),
    *("for i in 1 2; do A=loop; done", "f() { A=inf; }", "f() { . ./a.env; }; f", "if ! [ -f a.env ]; then B=no; fi"),
    *('case "$A" in file) B=cs;; esac', "C=c | cat", "[ -f a.env ] && [ -f b.env ] && B=both"),
]  # fmt: skip


def as_bash(folder: Path) -> tuple[list[str], dict[str, str]] | None:
    """Return the arguments and the exported variables that a command named vllm receives."""
    done = subprocess.run(
        [BASH, "-c", STUB, str(folder / "s.sh")],
        cwd=folder,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nowhere", "LC_ALL": "C.UTF-8"},
        check=False,
    )
    words = done.stdout.decode().split("\0")[:-1]
    if "end" not in words:
        return None
    at = words.index("end")
    return words[:at], dict(word.partition("=")[::2] for word in words[at + 1 :])


def written(folder: Path, script: str, **files: str) -> ServeCommand:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.env").write_text(text, encoding="utf-8")
    (folder / "s.sh").write_text(script, encoding="utf-8")
    return load_recipe(folder / "s.sh").commands[0]


@needs_bash
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5),
    st.lists(st.sampled_from(LINES), max_size=4),
    st.lists(st.sampled_from([*LINES, *OTHER_LINES]), max_size=4),
)
@example([". ./a.env", "A=${A:-d}"], ["A=file"], [])
@example(["A=1", "[ -f ./a.env ] && . ./a.env", ': "${B:=z}"'], ["A=file", "export B=fb"], [])
def test_values_of_files_are_those_of_bash(tmp_path: Path, script: list[str], a: list[str], b: list[str]) -> None:
    (tmp_path / "run" / "sub").mkdir(parents=True, exist_ok=True)
    text = "\n".join([*script, USE])
    command = written(tmp_path / "run", text, a="\n".join(a) + "\n", b="\n".join(b) + "\n")
    real = as_bash(tmp_path / "run")
    if real is None:
        return
    args, exported = real
    if any(finding.code == "JSD215" for finding in command.findings):
        return  # a file that is not followed: nothing is promised, and the plan says so
    if all(arg.value is not None and not arg.optional for arg in command.args):
        assert [arg.value for arg in command.args] == args
    for mine, theirs in zip(command.args[:2], args, strict=False):
        assert mine.value in (None, theirs) or mine.optional
    for name in {"A", "B", "C"} & set(command.env):
        value = command.env[name]
        assert value is None or exported.get(name) == value, name


def test_a_script_and_its_settings(tmp_path: Path) -> None:
    settings_file = "# board\nexport UTIL=0.80\nMODEL='Qwen/Qwen3-8B'\nHF_HOME=/data/hf\nHF_HUB_OFFLINE=1\n"
    script = (
        "#!/bin/bash\nPORT=8000\nset -a\n[ -f ./llm.env ] && . ./llm.env\nset +a\n"
        'vllm serve "$MODEL" --gpu-memory-utilization "${UTIL:-0.9}" --port $PORT\n'
    )
    recipe_file = tmp_path / "s.sh"
    command = written(tmp_path, script, llm=settings_file)
    assert [arg.value for arg in command.args] == [
        "Qwen/Qwen3-8B",
        "--gpu-memory-utilization",
        "0.80",
        "--port",
        "8000",
    ]
    assert command.args[2].resolved_from == ("UTIL",)
    assert command.env == {"UTIL": "0.80", "MODEL": "Qwen/Qwen3-8B", "HF_HOME": "/data/hf", "HF_HUB_OFFLINE": "1"}
    said = {finding.code: finding for finding in command.findings}
    assert set(said) == {"JSD218"}
    assert (said["JSD218"].severity.value, said["JSD218"].values["line"]) == ("info", 4)
    assert "./llm.env was read; it sets UTIL, MODEL, HF_HOME, HF_HUB_OFFLINE" in said["JSD218"].message
    plan = Planner().plan(recipe_file, **THOR)
    assert (plan.outcome, plan.utilization.before, plan.utilization.after) == ("eagle3", 0.8, 0.75)
    assert '--gpu-memory-utilization "0.75" --port $PORT --speculative-config' in plan.recipe.after
    assert plan.recipe.after.startswith(script[: script.index('"${UTIL')])
    assert plan.files == ()
    assert "JSD576" in {finding.code for finding in plan.findings}  # offline: the head has to be in the cache
    assert (tmp_path / "llm.env").read_text(encoding="utf-8") == settings_file
    recipe_file.write_text(plan.recipe.after, encoding="utf-8")
    again = Planner().plan(recipe_file, **THOR)
    assert (again.outcome, again.recipe.after) == ("already", plan.recipe.after)


@pytest.mark.parametrize(
    "naming",
    [
        ". x.env",
        ". ./x.env",
        "source x.env 2>/dev/null || true",
        '. "$(dirname "$0")/x.env"',
        ". $(dirname $0)/x.env",
        '. "`dirname $0`/x.env"',
        '. "$(dirname -- "${BASH_SOURCE[0]}")/x.env"',
        '. "${BASH_SOURCE%/*}/x.env"',
        '. "${0%/*}/x.env"',
        '. "$(cd "$(dirname "$0")" && pwd)/x.env"',
        'SCRIPT_DIR=$(dirname "$(readlink -f "$0")")\n. "$SCRIPT_DIR/x.env"',
        'SCRIPT_DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" >/dev/null 2>&1 && pwd -P )"\n. "${SCRIPT_DIR}/x.env"',
        'HERE="$(cd -- "$(dirname -- "$(realpath "$0")")" &> /dev/null; pwd)"\nF=$HERE/x.env\n. "$F"',
        'ROOT="$(dirname "$(dirname "$(realpath "$0")")")"\n. "$ROOT/box/x.env"',
        'cd "$(dirname "$0")" || exit 1\n. ./x.env',
        'cd "$(dirname "$0")/.."\n. box/x.env',
        "cd sub && . ../x.env",
        '. "$PWD/x.env"',
        'ENV_FILE="${ENV_FILE:-./x.env}"\n. "$ENV_FILE"',
        "bash -c 'true'\nif [[ -r x.env ]]; then\n  source x.env\nfi",
        "[ -f x.env ] && {\n  set -a\n  . x.env\n  set +a\n}",
    ],
)
def test_the_ways_to_name_a_file(tmp_path: Path, naming: str) -> None:
    (tmp_path / "box" / "sub").mkdir(parents=True)
    command = written(tmp_path / "box", f"{naming}\nvllm serve m --port $P\n", x="P=81\n")
    assert [arg.value for arg in command.args] == ["m", "--port", "81"]


def test_a_file_by_its_full_path(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "far.env").write_text("P=81\n", encoding="utf-8")
    for line in (f". {tmp_path}/far.env", f"cd {tmp_path}\n. ./far.env", f"D={tmp_path}; . $D/far.env"):
        command = written(tmp_path / "box", f"{line}\nvllm serve m --port $P\n")
        assert command.args[2].value == "81"


@pytest.mark.parametrize(
    ("script", "content", "why"),
    [
        (". ./no.env", "P=81\n", "no such file"),
        ('. "$HOME/x.env"', "P=81\n", "name"),
        (". ~/x.env", "P=81\n", "name"),
        (". $(ls *.env)", "P=81\n", "name"),
        ("for f in *.env; do . ./$f; done", "P=81\n", "name"),
        ('cd "$WHERE"\n. ./x.env', "P=81\n", "name"),
        ('. "$(dirname "$0")x.env"', "P=81\n", "name"),
        (". ./x.env", "P=81\necho set\n", "line 2"),
        (". ./x.env", "A=1\n\nif true; then P=81; fi\n", "line 3"),
        (". ./x.env", "P = 81\n", "line 1"),
        (". ./x.env", "P=81\n. ./more.env\n", "line 2"),
        (". ./x.env", "P=81 &\n", "line 1"),
        (". ./x.env", "true || P=81\n", "line 1"),
        (". ./x.env", "P=${Q:=81}\n", "line 1"),
        (". ./x.env", "IFS=,\nP=81\n", "line 1"),
        (". ./x.env", "P='81\n", "never ends"),
        (". ./x.env", "P=81\r\n", "Windows"),
    ],
)
def test_what_is_not_followed_is_said(tmp_path: Path, script: str, content: str, why: str) -> None:
    command = written(tmp_path, f"{script}\nvllm serve m --port $P\n", x=content)
    assert command.args[2].value is None
    warned = [finding for finding in command.findings if finding.code == "JSD215"]
    assert [finding.severity.value for finding in warned] == ["warning"]
    assert why in warned[0].message


@pytest.mark.parametrize(
    "script",
    [
        'if [ "$1" = big ]; then . ./x.env; fi',
        '[ -n "$BIG" ] && . ./x.env',
        "load() { . ./x.env; }",
        "(. ./x.env)",
        ". ./x.env | cat",
        ". ./x.env; P=$(date)",
        ". ./x.env; unset P",
        '. ./x.env; [ "$BIG" ] && P=1',
        ". ./x.env; read -r P",
        ". ./x.env; . ./no.env",
    ],
)
def test_what_only_some_runs_read_is_not_known(tmp_path: Path, script: str) -> None:
    command = written(tmp_path, f"{script}\nvllm serve m --port $P\n", x="P=81\n")
    assert command.args[2].value is None


def test_a_text_from_nowhere_has_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.env").write_text("P=81\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command = load_recipe("-", text=". ./x.env\nvllm serve m --port $P\n").commands[0]
    assert command.args[2].value is None
    assert "JSD215" in {finding.code for finding in command.findings}


@pytest.mark.parametrize(
    "script",
    [
        "docker run vllm/vllm-openai:v0.30.0 bash -c '. ./x.env; vllm serve m --port $P'",
        "ssh board '. ./x.env; vllm serve m --port $P'",
        "cat > run.sh <<'EOF'\n. ./x.env\nvllm serve m --port $P\nEOF",
    ],
)
def test_files_of_another_place_are_not_looked_for_here(tmp_path: Path, script: str) -> None:
    command = written(tmp_path, f"{script}\n", x="P=81\n")
    assert command.args[2].value is None
    assert "out of reach" in next(finding.message for finding in command.findings if finding.code == "JSD215")


@pytest.mark.parametrize(
    "script",
    [
        "bash -c '. ./x.env; vllm serve m --port $P'",
        "cd ..\ncd box\nbash -c 'source ./x.env && exec vllm serve m --port $P'",
        "bash <<'EOF'\n. ./x.env\nvllm serve m --port $P\nEOF",
        "set -a; . ./x.env; bash -c 'vllm serve m --port $P'",
        ". ./x.env; eval 'vllm serve m --port $P'",
        '. ./x.env; bash -c "vllm serve m --port $P"',
        '. ./x.env; CMD="vllm serve m --port $P"; $CMD',
        '. ./x.env\nARGS=(--port "$P")\nvllm serve m "${ARGS[@]}"',
    ],
)
def test_texts_inside_texts(tmp_path: Path, script: str) -> None:
    command = written(tmp_path / "box", f"{script}\n", x="P=81\n")
    assert [arg.value for arg in command.args] == ["m", "--port", "81"]


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        ("$U", "0.75"),
        ('"$U"', '"0.75"'),
        ("${U:-0.9}", "0.75"),
        ('"${U}"', '"0.75"'),
    ],
)
@pytest.mark.parametrize(
    "frame",
    [
        "vllm serve Qwen/Qwen3-8B --gpu-memory-utilization {} --port 1",
        "vllm serve Qwen/Qwen3-8B --port 1 --gpu-memory-utilization={}",
        "docker run vllm/vllm-openai:v0.30.0 Qwen/Qwen3-8B --gpu-memory-utilization {} --port 1",
    ],
)
def test_the_literal_goes_where_the_variable_was_used(tmp_path: Path, use: str, expected: str, frame: str) -> None:
    script = f". ./x.env\n{frame.format(use)}\n"
    written(tmp_path, script, x="U=0.8\n")
    plan = Planner().plan(tmp_path / "s.sh", **THOR)
    assert plan.utilization.after == 0.75
    assert plan.recipe.after.startswith(f". ./x.env\n{frame.format(expected)} --speculative-config ")
    assert "JSD285" in {finding.code for finding in plan.findings}


def test_words_that_one_variable_becomes_are_followed_by_the_new_ones(tmp_path: Path) -> None:
    script = ". ./x.env\nvllm serve Qwen/Qwen3-8B $MORE\n"
    written(tmp_path, script, x='MORE="--gpu-memory-utilization 0.8 --max-model-len 8192"\n')
    plan = Planner().plan(tmp_path / "s.sh", **THOR)
    assert (plan.utilization.before, plan.utilization.after) == (0.8, 0.75)
    assert plan.recipe.after.startswith(script.rstrip("\n") + " --gpu-memory-utilization 0.75 --speculative-config ")


def test_what_cannot_be_replaced_is_to_be_typed(tmp_path: Path) -> None:
    script = '. ./x.env\nbash -c "vllm serve Qwen/Qwen3-8B $MORE"\n'
    written(tmp_path, script, x='MORE="--port 1 --gpu-memory-utilization 0.8"\n')
    plan = Planner().plan(tmp_path / "s.sh", **THOR)
    assert (plan.outcome, plan.recipe.after) == ("refuse", script)
    said = " ".join(finding.message for finding in plan.findings)
    assert "--gpu-memory-utilization 0.75" in said
    assert "--speculative-config" in said


SECRET = "Zq7wK9xT2mLp4vRb"


@pytest.mark.parametrize(
    ("content", "use"),
    [
        (f"KEY={SECRET}\n", "--api-key $KEY"),
        (f"export API_KEY='{SECRET}'\n", '--api-key="$API_KEY"'),
        (f"MORE='--api-key {SECRET} --port 1'\n", "$MORE"),
        (f"MY_TOKEN={SECRET}\n", "--middleware $MY_TOKEN"),
        (f"MY_TOKEN={SECRET}\n", "--middleware ${MY_TOKEN}x --seed $MY_TOKEN"),
        (f"HF_TOKEN={SECRET}\nset -a\nHF_HOME=/x\n", ""),
    ],
)
def test_secrets_of_a_file_are_never_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, use: str
) -> None:
    from jetson_specdec.render.plan import print_plan

    written(tmp_path, f"set -a; . ./x.env\nvllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8 {use}\n", x=content)
    plan = Planner().plan(tmp_path / "s.sh", **THOR)
    assert SECRET not in json.dumps(plan.to_json())
    print_plan(plan)
    assert SECRET not in capsys.readouterr().out
    assert SECRET not in repr(load_recipe(tmp_path / "s.sh").findings)
