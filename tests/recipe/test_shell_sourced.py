# SPDX-License-Identifier: Apache-2.0
"""Files that a script reads: their values count as they do for bash, and an edit never touches them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jetson_specdec.recipe import load_recipe
from jetson_specdec.recipe.core import ServeCommand

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
@settings(max_examples=3000, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    if any("JSD215" == finding.code for finding in command.findings):
        return  # a file that is not followed: nothing is promised, and the plan says so
    if all(arg.value is not None and not arg.optional for arg in command.args):
        assert [arg.value for arg in command.args] == args
    for mine, theirs in zip(command.args[:2], args, strict=False):
        assert mine.value in (None, theirs) or mine.optional
    for name in {"A", "B", "C"} & set(command.env):
        value = command.env[name]
        assert value is None or exported.get(name) == value, name
