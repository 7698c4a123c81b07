# SPDX-License-Identifier: Apache-2.0
"""A `--config` file that the script itself writes: read there, changed there or beaten by the command line."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeError
from jetson_specdec.host import LocalHost
from jetson_specdec.recipe import ServeFlags, load_recipe, parse_recipe, plan_edit
from jetson_specdec.recipe.config_file import find_config
from jetson_specdec.recipe.core import Recipe

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="needs bash")
THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
YAML = "model: Qwen/Qwen3-8B\ngpu-memory-utilization: 0.8\nmax-model-len: 8192\n"
SPEC = {"method": "ngram", "num_speculative_tokens": 4}


def flags_of(recipe: Recipe, index: int = 0) -> ServeFlags:
    command = recipe.commands[index]
    return ServeFlags.read(command, None, find_config(recipe, command, host=LocalHost()))


WRITERS = [
    "cat > {0} <<'EOF'\n{1}EOF\n",
    "cat > {0} <<EOF\n{1}EOF\n",
    "cat <<EOF > {0}\n{1}EOF\n",
    'cat <<"END" >{0}\n{1}END\n',
    "cat >| {0} <<EOF\n{1}EOF\n",
    "tee {0} <<EOF >/dev/null\n{1}EOF\n",
    "sudo tee {0} > /dev/null << EOF\n{1}EOF\n",
    "cat <<EOF | sudo tee {0} >/dev/null\n{1}EOF\n",
    "mkdir -p /nowhere/x && cat > {0} <<EOF\n{1}EOF\n",
    "cat > {0} <<EOF\nmodel: Qwen/Qwen3-8B\nEOF\n"
    "cat >> {0} <<EOF\ngpu-memory-utilization: 0.8\nmax-model-len: 8192\nEOF\n",
]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(
    ("name", "serve"),
    [
        ("/nowhere/x/c.yaml", "vllm serve --config /nowhere/x/c.yaml --port 1"),
        ("./c.yaml", "exec vllm serve --config c.yaml"),
        ("$PWD/c.yaml", 'vllm serve --config "$PWD/c.yaml"'),
        ('"$C"', 'vllm serve --config "$C"'),
        ("/nowhere/x/c.yaml", "docker run -v /nowhere/x:/cfg:ro vllm/vllm-openai:v0.30.0 --config /cfg/c.yaml"),
        ("/nowhere/x/c.yaml", "bash -c 'vllm serve --config /nowhere/x/c.yaml'"),
    ],
)
def test_it_is_read_from_the_script(writer: str, name: str, serve: str) -> None:
    text = writer.format(name, YAML) + serve + "\n"
    flags = flags_of(parse_recipe(text))
    assert (flags.model, flags.gpu_memory_utilization, flags.max_model_len) == ("Qwen/Qwen3-8B", 0.8, 8192)
    plan = Planner().plan(text, **THOR)
    assert (plan.outcome, plan.utilization.before, plan.utilization.after) == ("eagle3", 0.8, 0.75)
    said = {finding.code for finding in plan.findings}
    assert "JSD583" in said
    assert said.isdisjoint({"JSD254", "JSD574", "JSD582"})
    again = Planner().plan(plan.recipe.after, **THOR)
    assert (again.outcome, again.utilization.before) == ("already", 0.75)
    assert plan.files == ()


def test_a_value_is_changed_where_it_is_written() -> None:
    body = "# $U of all\n" + YAML.replace("0.8", "$U   # much")
    text = f"U=0.80\ncat > /n/c.yaml <<EOF\n{body}EOF\nvllm serve --config /n/c.yaml\n"
    plan = Planner().plan(text, **THOR)
    assert plan.recipe.after.startswith(
        text.replace("gpu-memory-utilization: $U   # much", "gpu-memory-utilization: 0.75   # much").rstrip("\n")
        + " --speculative-config "
    )


def test_speculation_is_taken_out_where_it_is_written() -> None:
    body = YAML + 'speculative-config: \'{"method": "ngram", "num_speculative_tokens": 4}\'\n'
    text = f"cat > /n/c.yaml <<'EOF'\n{body}EOF\nvllm serve --config /n/c.yaml --port 1\n"
    recipe = parse_recipe(text)
    flags = flags_of(recipe)
    plan = plan_edit(recipe, recipe.commands[0], flags, remove_speculation=True)
    assert plan.text_after == f"cat > /n/c.yaml <<'EOF'\n{YAML}EOF\nvllm serve --config /n/c.yaml --port 1\n"
    planned = Planner().plan(text, **THOR)
    assert (planned.outcome, planned.existing_method) == ("already", "ngram")


def test_what_cannot_be_changed_where_it_is_written_is_beaten_by_the_command() -> None:
    added = (
        "cat > /n/c.yaml <<EOF\nmodel: Qwen/Qwen3-8B\nEOF\ncat >> /n/c.yaml <<EOF\ngpu-memory-utilization: 0.8\nEOF\n"
    )
    text = added + "vllm serve --config /n/c.yaml\n"
    plan = Planner().plan(text, **THOR)
    assert plan.recipe.after.startswith(text.rstrip("\n") + " --")
    assert "--gpu-memory-utilization 0.75" in plan.recipe.after
    assert flags_of(parse_recipe(plan.recipe.after)).gpu_memory_utilization == 0.75


def test_a_dollar_in_a_new_text_is_written_for_the_here_document() -> None:
    text = "cat > /n/c.yaml <<EOF\nmodel: org/m\nserved-model-name: a\nEOF\nvllm serve --config /n/c.yaml\n"
    recipe = parse_recipe(text)
    plan = plan_edit(recipe, recipe.commands[0], flags_of(recipe), set_flags={"served-model-name": "$a`b\\"})
    assert flags_of(parse_recipe(plan.text_after)).get("served-model-name").value == "$a`b\\"
    assert plan.text_after.count("--served-model-name") == 0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("cat > /n/c.yaml <<EOF\nport: $PORT\nEOF\n", "depends on PORT"),
        ("cat > /n/c.yaml <<EOF\nport: $(free_port)\nEOF\n", "depends on free_port"),
        ('echo "port: 1" > /n/c.yaml\n', "here-document"),
        ("cat base.yaml > /n/c.yaml\n", "here-document"),
        ("cat > /n/c.yaml <<EOF\nport: 1\nEOF\nsed -i s/1/2/ /n/c.yaml\n", "changed again"),
        ("cat > /n/c.yaml <<EOF\nport: 1\nEOF\necho more >> /n/c.yaml\n", "here-document"),
        ('if [ "$BIG" ]; then\ncat > /n/c.yaml <<EOF\nport: 1\nEOF\nfi\n', "condition"),
        ("make() {\ncat > /n/c.yaml <<EOF\nport: 1\nEOF\n}\n", "condition"),
        ('cat > /n/c.yaml <<EOF\nport: 1\nEOF\n[ "$B" ] && cat > /n/c.yaml <<EOF\nport: 2\nEOF\n', "second time"),
        ("envsubst > /n/c.yaml <<EOF\nport: 1\nEOF\n", "here-document"),
    ],
)
def test_what_is_not_known_of_a_written_file_is_said_and_nothing_is_added(script: str, why: str) -> None:
    text = f"{script}vllm serve Qwen/Qwen3-8B --config /n/c.yaml\n"
    plan = Planner().plan(text, **THOR)
    assert (plan.outcome, plan.recipe.after) == ("refuse", text)
    about = [finding for finding in plan.findings if "/n/c.yaml" in finding.message]
    assert {finding.code for finding in about} == {"JSD582"}
    assert why in about[0].message


def test_another_file_or_a_later_one_is_not_taken_for_it() -> None:
    for script in (
        "cat > /n/other.yaml <<EOF\nport: 1\nEOF\nvllm serve m --config /n/c.yaml\n",
        "vllm serve m --config /n/c.yaml\ncat > /n/c.yaml <<EOF\nport: 1\nEOF\n",
        "cat > /n/c.yaml <<EOF\nport: 1\nEOF\ndocker run vllm/vllm-openai:v0.30.0 --model m --config /n/c.yaml\n",
    ):
        config = flags_of(parse_recipe(script)).config
        assert config is not None
        assert not config.found


def test_a_condition_gives_way_to_the_file_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("port: 9\n", encoding="utf-8")
    recipe = tmp_path / "s.sh"
    recipe.write_text("[ -f c.yaml ] || cat > c.yaml <<EOF\nport: 1\nEOF\nvllm serve m --config c.yaml\n")
    assert flags_of(load_recipe(recipe)).get("port").value == "9"


PIECES = [
    *("a", "b: 1", "\n", "  ", "\t", "$X", "${X}", "${Y:-z}", "${X:+w}", "\\$", "\\\\", "\\`", '\\"', '"', "'", "\\\n"),
    *("$", "`", "#", "é", "$(true)", "$'q'", "EO", "\\n", "${Y:-\"q\"}", "{a,b}", "~", "*"),
]  # fmt: skip


@needs_bash
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["<<EOF", "<<'EOF'", "<<-EOF", "<<-'EOF'", '<< "EOF"']),
    st.lists(st.sampled_from(PIECES), max_size=10),
)
@example("<<EOF", ['\\"', "$X", "\\$", "\n", "\\\\"])
@example("<<-EOF", ["\t", "a", "\n", "\t", "\t", "$X"])
def test_the_text_is_the_one_that_bash_writes(tmp_path: Path, operator: str, pieces: list[str]) -> None:
    body = "".join(pieces)
    script = f"X='v w'\ncat > c.yaml {operator}\n{body}\nEOF\n"
    (tmp_path / "c.yaml").unlink(missing_ok=True)
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        [BASH, "-c", script], cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=60
    )
    try:
        command = parse_recipe(f"{script}vllm serve m --config c.yaml\n").commands[0]
    except RecipeError:
        return
    if done.returncode or done.stderr or not command.writes:
        return
    assert command.writes[0].text in (None, (tmp_path / "c.yaml").read_text(encoding="utf-8"))
