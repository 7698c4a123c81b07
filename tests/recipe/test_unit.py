# SPDX-License-Identifier: Apache-2.0
"""systemd units, read and changed; where systemd is installed, its own reader has the last word.

`systemd --test` prints the command lines of units as it loaded them: quotes, escapes, continuation lines and `%%` are
done, variables are not yet replaced. The rules for variables (systemd.service(5)) are applied here by hand.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeSyntaxError, UneditableError
from jetson_specdec.recipe import AppendArgs, RemoveArgs, ReplaceArg, ServeFlags, load_recipe, parse_recipe, plan_edit
from jetson_specdec.recipe.core import Mount, Recipe
from jetson_specdec.recipe.forms_embedded import edit_embedded

DATA = Path(__file__).parent.parent / "data" / "recipe"
CONFIG = {"method": "eagle3", "model": "a/b", "num_speculative_tokens": 5}
JSON = json.dumps(CONFIG, separators=(",", ":"))
SYSTEMD = next((path for path in ("/lib/systemd/systemd", "/usr/lib/systemd/systemd") if Path(path).exists()), None)


def unit(line: str, more: str = "") -> Recipe:
    return parse_recipe(f"[Service]\n{more}ExecStart={line}\nRestart=always\n")


def values(recipe: Recipe) -> list[str | None]:
    return [arg.value for arg in recipe.commands[0].args]


def loaded(text: str, folder: Path) -> list[list[str]] | None:
    """The command lines of a unit as systemd loads them, or None where it cannot be asked."""
    if SYSTEMD is None:
        return None
    units = folder / "units"
    units.mkdir(exist_ok=True)
    file = units / "asked.service"
    # several commands are allowed for oneshot services only, and those may not be restarted always
    file.write_text(text.replace("[Service]\n", "[Service]\nType=oneshot\n", 1).replace("Restart=always\n", ""))
    command = [SYSTEMD, "--test", "--user", "--unit=asked.service", "--log-target=console", "--no-pager"]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            return None
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
        for path in (folder, units, file):
            os.chown(path, 65534, 65534)
        for parent in folder.parents:
            if not parent.stat().st_mode & 0o001:
                return None
    env = {
        "XDG_RUNTIME_DIR": str(folder),
        "HOME": str(folder),
        "SYSTEMD_UNIT_PATH": f"{units}:",
        "PATH": os.environ["PATH"],
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    part = re.search(r"-> Unit asked\.service:\n(.*?)(?=\n\t?-> Unit |\Z)", done.stdout, re.DOTALL)
    if part is None:
        return None
    found = []
    for line in re.findall(r"Command Line: (.*)", part[1]):
        pairs = re.findall(r'"((?:\\.|[^"\\])*)"|(\S+)', line)
        found.append([bare or re.sub(r"\\(.)", r"\1", quoted) for quoted, bare in pairs])
    return found


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # a path that another user can enter: systemd does not run its test as root
    path = Path("/var/tmp") / f"unit-test-{os.getpid()}"
    path.mkdir(exist_ok=True)
    if not loaded("[Service]\nExecStart=/bin/true\n", path):
        shutil.rmtree(path, ignore_errors=True)
        pytest.skip("systemd is not there, or does not run its test here")
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_native_unit() -> None:
    recipe = load_recipe(DATA / "native.service")
    command = recipe.commands[0]
    assert recipe.form == "unit"
    assert (command.launcher, command.serve_form, command.image) == ("systemd", "vllm_serve", None)
    assert values(recipe) == [
        *("Qwen/Qwen3-8B", "--gpu-memory-utilization", "0.8", "--max-model-len", "8192"),
        *("--enforce-eager", "--port", "8000", "--hf-overrides", '{"note": "100%", "sign": "$"}'),
    ]
    assert command.workdir == "/srv/llm"
    assert command.args[0].resolved_from == ("MODEL",)
    assert [finding.code for finding in command.findings] == ["JSD201"]
    assert recipe.text[command.start : command.end].startswith("ExecStart=/srv/venv")


def test_docker_in_a_unit() -> None:
    command = load_recipe(DATA / "docker.service").commands[0]
    assert (command.launcher, command.image) == ("docker", "vllm/vllm-openai:v0.20.0")
    assert command.mounts == (Mount(host="/srv/hub", container="/root/.cache/huggingface"),)
    assert dict(command.env) == {"HF_TOKEN": None}
    assert command.ports == ("8000:8000",)


def test_drop_in_and_quadlet() -> None:
    drop_in = load_recipe(DATA / "drop-in.conf")
    assert drop_in.commands[0].wrapped_in == ("bash -c",)
    assert values(drop_in)[-1] == "8000"
    quadlet = load_recipe(DATA / "quadlet.container").commands[0]
    assert (quadlet.launcher, quadlet.serve_form) == ("podman", "image_entrypoint")
    assert quadlet.image == "docker.io/vllm/vllm-openai:v0.20.0"


def test_an_empty_assignment_resets() -> None:
    text = "[Service]\nExecStart=/v/vllm serve a\nExecStart=\nExecStart=/v/vllm serve b\n"
    assert values(parse_recipe(text)) == ["b"]
    two = parse_recipe("[Service]\nType=oneshot\nExecStart=/v/vllm serve a ; /v/vllm serve b\n")
    assert [[arg.value for arg in command.args] for command in two.commands] == [["a"], ["b"]]


def test_environment_files(tmp_path: Path) -> None:
    (tmp_path / "llm.env").write_text("# site\nMODEL=Qwen/Qwen3-8B\nEXTRA='--port 8123'\n")
    file = tmp_path / "x.service"
    file.write_text(
        "[Service]\nEnvironment=MODEL=other\nEnvironmentFile=llm.env\nEnvironmentFile=-gone.env\n"
        "ExecStart=/v/vllm serve ${MODEL} $EXTRA --dtype $WHAT\n"
    )
    recipe = load_recipe(file)
    assert values(recipe) == ["Qwen/Qwen3-8B", "--port", "8123", "--dtype", None]
    assert recipe.commands[0].args[-1].splices
    assert "JSD237" in {finding.code for finding in recipe.commands[0].findings}
    # words out of one variable cannot be changed one by one, what stands beside them can
    with pytest.raises(UneditableError):
        edit_embedded(recipe, 0, [ReplaceArg(index=2, value="9")])
    after = edit_embedded(recipe, 0, [ReplaceArg(index=0, value="m"), AppendArgs(values=("--seed", "1"))])
    assert "serve m $EXTRA --dtype $WHAT --seed 1\n" in after


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (r"-/v/vllm serve m", ["m"]),
        (r"@/v/vllm other-name serve m", ["m"]),
        (r"/v/vllm serve 'a b' \"c d\"", ["a b", '"c', 'd"']),
        (r'/v/vllm serve "a \"b\" \x41\n"', ['a "b" A\n']),
        (r"/v/vllm serve a\sb %% %n $$x", ["a b", "%", None, "$x"]),
        (r":/v/vllm serve $$x ${Y}", ["$$x", "${Y}"]),
        (r"/v/vllm serve a$B", ["a$B"]),
        (r"/v/vllm serve 'x'y", ["xy"]),
    ],
)
def test_systemd_reads_words_its_own_way(line: str, expected: list[str | None]) -> None:
    assert values(unit(line)) == expected


def test_what_systemd_does_not_do_is_said() -> None:
    shell = unit("/v/vllm serve m > /var/log/x 2>&1")
    assert [finding.code for finding in shell.commands[0].findings] == ["JSD231", "JSD231"]
    blank = unit("/v/vllm serve m \\ \n --port 1")
    assert "JSD204" in {finding.code for finding in blank.commands[0].findings}
    quote = unit("/v/vllm serve 'm")
    assert "JSD230" in {finding.code for finding in quote.commands[0].findings}


def test_a_unit_that_starts_a_script_is_declined_in_one_line() -> None:
    with pytest.raises(RecipeSyntaxError, match=r"/srv/run\.sh") as caught:
        unit("/srv/run.sh")
    assert caught.value.code == "JSE240"


def test_edits_keep_lines_and_comments() -> None:
    recipe = load_recipe(DATA / "native.service")
    plan = plan_edit(
        recipe,
        recipe.commands[0],
        ServeFlags.read(recipe.commands[0]),
        set_flags={"gpu-memory-utilization": "0.75"},
        speculative_config=CONFIG,
    )
    before, after = recipe.text.splitlines(), plan.text_after.splitlines()
    assert after[10] == "    --gpu-memory-utilization 0.75 \\"
    assert after[13] == before[13] + " \\"
    assert after[14] == f"    --speculative-config '{JSON}'"
    assert [*after[:10], *after[11:13], *after[15:]] == [*before[:10], *before[11:13], *before[14:]]
    removed = edit_embedded(recipe, 0, [RemoveArgs(first=1, last=2)])
    assert "--gpu-memory" not in removed
    assert "    # the answer has to fit\n" in removed


def test_a_plan_and_its_repetition() -> None:
    for name in ("docker.service", "drop-in.conf", "quadlet.container"):
        plan = Planner().plan(DATA / name, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
        assert plan.outcome == "eagle3", name
        again = Planner().plan(plan.recipe.after, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
        assert again.outcome == "already"
        assert again.recipe.after == plan.recipe.after


def test_words_of_the_outside_keep_the_last_word() -> None:
    recipe = unit("/v/vllm serve ${MODEL} \\\n  --port 8000 \\\n  $OPTIONS")
    flags = ServeFlags.read(recipe.commands[0])
    after = plan_edit(recipe, recipe.commands[0], flags, speculative_config=CONFIG).text_after
    added = f"  --speculative-config '{JSON}' \\\n"
    assert after == recipe.text.replace("  $OPTIONS", added + "  $OPTIONS")


def test_secrets_stay_out() -> None:
    text = (
        "[Service]\nEnvironment=HF_TOKEN=not-for-others VLLM_API_KEY=nor-this-one\n"
        "ExecStart=/v/vllm serve Qwen/Qwen3-8B --api-key $VLLM_API_KEY\n"
    )
    plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0", vllm_version="0.20.0")
    shown = json.dumps(plan.to_json())
    assert "not-for-others" not in shown
    assert "nor-this-one" not in shown


def test_systemd_itself_agrees(folder: Path) -> None:
    for name in ("native.service", "docker.service", "drop-in.conf"):
        recipe = load_recipe(DATA / name)
        words = loaded(recipe.text, folder)
        assert words
        plan = plan_edit(recipe, recipe.commands[0], ServeFlags.read(recipe.commands[0]), speculative_config=CONFIG)
        after = loaded(plan.text_after, folder)
        serve = 1 if name == "docker.service" else 0  # behind ExecStartPre
        expected = [list(line) for line in words]
        if name == "drop-in.conf":  # one word is the script
            expected[serve][-1] += f" --speculative-config '{JSON}'"
        else:
            expected[serve] += ["--speculative-config", JSON]
        assert after == expected


WORD = st.one_of(
    st.sampled_from(
        ["0.8", "a b", JSON, "it's", '"', "$HOME", "${X}", "$$", "100%", "%n", "\\", "\\x41", ";", "#", "-"]
    ),
    st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc", "Cs", "Zs")), max_size=12),
)


@settings(max_examples=15)
@given(words=st.lists(WORD, min_size=2, max_size=8))
def test_systemd_reads_what_was_written(words: list[str], folder: Path) -> None:
    recipe = unit("/bin/bash -c true ; /v/vllm serve m --x 'old'")
    text = edit_embedded(recipe, 0, [ReplaceArg(index=2, value=words[0]), AppendArgs(values=tuple(words[1:]))])
    found = loaded(text, folder)
    assert found, text
    # What is left for start time: `$$` is a dollar sign (systemd.service(5)); no other dollar sign may be left.
    assert [word.replace("$$", "$") for word in found[-1]] == ["/v/vllm", "serve", "m", "--x", *words]
    assert not any(re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", word) for word in found[-1])


@settings(max_examples=150)
@given(words=st.lists(WORD, min_size=1, max_size=6), lines=st.booleans())
def test_written_words_are_read_again(words: list[str], lines: bool) -> None:
    glue = " \\\n   " if lines else " "
    recipe = unit(f"/v/vllm serve m{glue}--dtype auto")
    text = edit_embedded(recipe, 0, [ReplaceArg(index=2, value=words[0]), AppendArgs(values=tuple(words[1:]))])
    assert values(parse_recipe(text)) == ["m", "--dtype", *words]
    assert text.startswith(f"[Service]\nExecStart=/v/vllm serve m{glue}--dtype ")
    assert text.endswith("\nRestart=always\n")
