# SPDX-License-Identifier: Apache-2.0
"""Changing files: all or none, a backup of each, and a way back from every point."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.apply import apply_changes, find_manifests, undo
from jetson_specdec.errors import ApplyError, OutputError
from jetson_specdec.planning.plan import FileChange

NOON = 1_893_499_200.0  # 2030-01-01T12:00:00Z
STAMP = "20300101T120000Z"


def text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


def change(path: Path, after: bytes, **more) -> FileChange:
    return FileChange(path=str(path), before=text(path.read_bytes()), after=text(after), **more)


def apply(path: Path, *changes: FileChange, now: float = NOON, **more):
    return apply_changes(path, changes, now=now, outcome="eagle3", **more)


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".specdec-" in path.name)


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "serve.sh"
    file.write_bytes(b"vllm serve a/b\r\n# caf\xe9\n")
    file.chmod(0o754)
    return file


def test_a_change_is_written_with_backup_manifest_and_baseline(recipe, tmp_path):
    report = tmp_path / "report.json"
    report.write_text('{"runs": []}')
    before, after = recipe.read_bytes(), b"vllm serve a/b --speculative-config x\r\n# caf\xe9\n"
    done = apply(recipe, change(recipe, after), baseline=report)
    assert recipe.read_bytes() == after
    assert recipe.stat().st_mode & 0o7777 == 0o754
    assert beside(tmp_path) == [f"serve.sh.specdec-{STAMP}.{kind}" for kind in ("bak", "baseline", "manifest")]
    backup = tmp_path / f"serve.sh.specdec-{STAMP}.bak"
    assert backup.read_bytes() == before
    assert backup.stat().st_mode & 0o7777 == 0o754
    assert (tmp_path / done.baseline).read_text() == '{"runs": []}'
    document = json.loads(done.path.read_text())
    Draft202012Validator(schemas.load("apply-manifest")).validate(document)
    assert document["state"] == "applied"
    assert document["files"][0]["before_sha256"] == hashlib.sha256(before).hexdigest()
    assert document["files"][0]["after_sha256"] == hashlib.sha256(after).hexdigest()


def test_undo_restores_every_byte_and_can_be_told_from_an_apply(recipe):
    before = recipe.read_bytes()
    apply(recipe, change(recipe, b"new\n"))
    done = undo(recipe, now=NOON + 60)
    assert recipe.read_bytes() == before
    assert done.restored == (recipe,)
    assert [manifest.state for manifest in find_manifests(recipe)] == ["undone"]
    with pytest.raises(ApplyError, match="nothing to undo"):
        undo(recipe, now=NOON + 61)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_any_bytes_survive_there_and_back(tmp_path, before, after):
    file = tmp_path / "any"
    file.write_bytes(before)
    apply(file, change(file, after))
    assert file.read_bytes() == after
    undo(file, now=NOON)
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "secrets", "mode"),
    [
        (b"docker run -e HF_TOKEN=hf_abcdefghijkl image\n", (), 0o600),
        (b"vllm serve a/b --served-model-name open-sesame\n", ("open-sesame",), 0o600),
        (b"docker run -e HF_TOKEN=$HF_TOKEN image\n", (), 0o644),
    ],
)
def test_a_backup_with_secrets_is_for_its_owner_only(tmp_path, content, secrets, mode):
    file = tmp_path / "serve.sh"
    file.write_bytes(content)
    file.chmod(0o644)
    apply(file, change(file, content + b"# more\n", secrets=secrets))
    assert (tmp_path / f"serve.sh.specdec-{STAMP}.bak").stat().st_mode & 0o777 == mode
    assert file.stat().st_mode & 0o777 == 0o644
    manifest = (tmp_path / f"serve.sh.specdec-{STAMP}.manifest").read_text()
    assert "hf_abc" not in manifest
    assert "sesame" not in manifest


def test_a_symbolic_link_stays_one_and_finds_its_way_back(tmp_path):
    real = tmp_path / "real" / "serve.sh"
    real.parent.mkdir()
    real.write_text("old\n")
    link = tmp_path / "link.sh"
    link.symlink_to(real)
    apply(link, change(link, b"new\n"))
    assert link.is_symlink()
    assert real.read_text() == "new\n"
    assert beside(tmp_path) == []
    assert len(beside(real.parent)) == 2
    undo(link, now=NOON)
    assert real.read_text() == "old\n"


def test_names_beside_a_recipe_are_not_picked_up_by_tools_that_read_folders(recipe, tmp_path):
    report = tmp_path / "r.json"
    report.write_text("{}")
    apply(recipe, change(recipe, b"x"), baseline=report)
    assert not [
        name for name in beside(tmp_path) if name.endswith((".json", ".yaml", ".yml", ".service", ".sh", ".conf"))
    ]


def test_a_file_that_changed_since_the_plan_is_left_alone(recipe, tmp_path):
    planned = change(recipe, b"new\n")
    recipe.write_bytes(b"edited meanwhile\n")
    with pytest.raises(ApplyError, match="changed or removed") as error:
        apply(recipe, planned)
    assert error.value.code == "JSE803"
    assert error.value.exit_code == 2
    assert recipe.read_bytes() == b"edited meanwhile\n"
    assert beside(tmp_path) == []
    recipe.unlink()
    with pytest.raises(ApplyError):
        apply(recipe, planned)
    assert not recipe.exists()


def test_two_applies_in_one_second_are_undone_one_after_the_other(recipe):
    first = recipe.read_bytes()
    apply(recipe, change(recipe, b"second\n"))
    done = apply(recipe, change(recipe, b"third\n"))
    assert done.stamp == f"{STAMP}-2"
    undo(recipe, now=NOON)
    assert recipe.read_bytes() == b"second\n"
    undo(recipe, now=NOON)
    assert recipe.read_bytes() == first


def test_ten_applies_in_one_second_keep_their_order(recipe):
    for number in range(11):
        apply(recipe, change(recipe, str(number).encode()))
    assert [manifest.stamp for manifest in find_manifests(recipe)][-1] == f"{STAMP}-11"
    undo(recipe, now=NOON)
    assert recipe.read_bytes() == b"9"


# ------------------------------------------------------------------------------------------------------------ failures


@pytest.fixture
def pair(tmp_path):
    script, config = tmp_path / "serve.sh", tmp_path / "etc" / "vllm.yaml"
    config.parent.mkdir()
    script.write_text("vllm serve --config etc/vllm.yaml\n")
    config.write_text("model: a/b\n")
    return script, config


def test_several_files_change_together_and_go_back_together(pair):
    script, config = pair
    apply(script, change(script, b"s2\n"), change(config, b"c2\n"))
    assert (script.read_text(), config.read_text()) == ("s2\n", "c2\n")
    assert beside(config.parent) == [f"vllm.yaml.specdec-{STAMP}.bak"]
    undo(script, now=NOON)
    assert (script.read_text(), config.read_text()) == ("vllm serve --config etc/vllm.yaml\n", "model: a/b\n")


@pytest.mark.parametrize("failing", range(1, 7))
def test_a_write_that_fails_leaves_everything_as_it_was(pair, monkeypatch, failing):
    from jetson_specdec.apply import manifest, transaction

    script, config = pair
    before = script.read_bytes(), config.read_bytes()
    real, count = transaction.write_atomic, [0]

    def write(path, *args, **kwargs):
        count[0] += 1
        if count[0] == failing:
            raise OutputError("JSE007", path=str(path), reason="No space left on device")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(transaction, "write_atomic", write)
    monkeypatch.setattr(manifest, "write_atomic", write)
    planned = change(script, b"s2\n"), change(config, b"c2\n")
    with pytest.raises(OutputError, match="No space left"):
        apply(script, *planned)
    assert (script.read_bytes(), config.read_bytes()) == before
    assert beside(script.parent) + beside(config.parent) == []
    monkeypatch.undo()
    apply(script, *planned)
    assert script.read_text() == "s2\n"


CRASH = """
    import os, sys
    from jetson_specdec.apply import manifest, transaction
    from jetson_specdec.planning.plan import FileChange
    real, count = transaction.write_atomic, [0]
    def write(path, *args, **kwargs):
        count[0] += 1
        if count[0] == int(sys.argv[3]):
            os._exit(9)
        return real(path, *args, **kwargs)
    transaction.write_atomic = manifest.write_atomic = write
    paths = sys.argv[1:3]
    changes = [FileChange(path=path, before=open(path).read(), after="new\\n") for path in paths]
    transaction.apply_changes(paths[0], changes, now=1893499200.0, outcome="eagle3")
"""


def crashed(pair, step: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CRASH), *map(str, pair), str(step)],
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return done.returncode


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 6])
def test_after_a_crash_at_any_step_everything_can_be_taken_back(pair, step):
    """1, 2: backups; 3: manifest; 4, 5: the files; 6: the manifest's last word."""
    script, config = pair
    before = script.read_bytes(), config.read_bytes()
    assert crashed(pair, step) == 9
    pending = [manifest.state for manifest in find_manifests(script)]
    if step <= 3:
        assert pending == []
        assert (script.read_bytes(), config.read_bytes()) == before
        return
    assert pending == ["pending"]
    with pytest.raises(ApplyError, match="interrupted") as error:
        apply(script, change(script, b"other\n"))
    assert error.value.code == "JSE805"
    undo(script, now=NOON)
    assert (script.read_bytes(), config.read_bytes()) == before
    apply(script, change(script, b"other\n"), now=NOON + 1)
    assert script.read_bytes() == b"other\n"


def test_without_a_crash_the_same_program_applies(pair):
    assert crashed(pair, 99) == 0
    assert [manifest.state for manifest in find_manifests(pair[0])] == ["applied"]


def test_another_apply_at_work_is_not_disturbed(recipe, tmp_path):
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ApplyError, match="another apply") as error:
            apply(recipe, change(recipe, b"new\n"))
        assert error.value.code == "JSE804"
        assert beside(tmp_path) == []
    finally:
        os.close(handle)
    apply(recipe, change(recipe, b"new\n"))
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ApplyError, match="another apply"):
            undo(recipe, now=NOON)
    finally:
        os.close(handle)
    assert recipe.read_bytes() == b"new\n"


def test_of_many_applies_at_once_exactly_one_wins(pair):
    # Every process reads the old text first and waits for the word; who comes late finds a lock or another text.
    script = textwrap.dedent(CRASH).replace("before=open(path).read()", "before=before[path]")
    read_first = "before = {path: open(path).read() for path in paths}; print(flush=True); sys.stdin.readline()"
    script = script.replace("changes = [", f"{read_first}\nchanges = [")
    command = [sys.executable, "-c", script, *map(str, pair), "99"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
        for _ in range(4)
    ]
    for each in running:
        each.stdout.readline()
    for each in running:
        each.stdin.write(b"go\n")
        each.stdin.flush()
    codes = []
    for each in running:
        each.communicate()
        codes.append(each.returncode)
    assert sorted(codes) == [0, 1, 1, 1]
    assert [manifest.state for manifest in find_manifests(pair[0])] == ["applied"]
    assert pair[0].read_text() == "new\n"


# ---------------------------------------------------------------------------------------------------------------- undo


def test_undo_refuses_what_was_edited_since_unless_forced(pair):
    script, config = pair
    apply(script, change(script, b"s2\n"), change(config, b"c2\n"))
    config.write_text("edited by hand\n")
    with pytest.raises(ApplyError, match=r"vllm\.yaml was changed") as error:
        undo(script, now=NOON)
    assert error.value.code == "JSE807"
    assert (script.read_text(), config.read_text()) == ("s2\n", "edited by hand\n")
    done = undo(script, now=NOON + 5, force=True)
    assert config.read_text() == "model: a/b\n"
    assert [path.read_text() for path in done.kept] == ["edited by hand\n"]


def test_undo_brings_a_removed_file_back_only_when_forced(recipe):
    before = recipe.read_bytes()
    apply(recipe, change(recipe, b"new\n"))
    recipe.unlink()
    with pytest.raises(ApplyError, match="changed"):
        undo(recipe, now=NOON)
    undo(recipe, now=NOON, force=True)
    assert recipe.read_bytes() == before
    assert recipe.stat().st_mode & 0o777 == 0o754


@pytest.mark.parametrize("damage", ["missing", "other"])
def test_a_damaged_backup_is_never_written(recipe, tmp_path, damage):
    apply(recipe, change(recipe, b"new\n"))
    backup = tmp_path / f"serve.sh.specdec-{STAMP}.bak"
    backup.unlink()
    if damage == "other":
        backup.write_bytes(b"rm -rf /\n")
    for force in (False, True):
        with pytest.raises(ApplyError, match="missing or damaged") as error:
            undo(recipe, now=NOON, force=force)
        assert error.value.code == "JSE808"
    assert recipe.read_bytes() == b"new\n"


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"state": "maybe", "schema_version": 1}', '{"state": 3}'])
def test_a_damaged_manifest_is_named(recipe, content):
    done = apply(recipe, change(recipe, b"new\n"))
    done.path.write_text(content)
    with pytest.raises(ApplyError, match="cannot be read") as error:
        undo(recipe, now=NOON)
    assert error.value.code == "JSE812"


def test_undo_that_fails_half_way_changes_nothing(pair, monkeypatch):
    from jetson_specdec.apply import transaction

    script, config = pair
    apply(script, change(script, b"s2\n"), change(config, b"c2\n"))
    real, count = transaction.write_atomic, [0]

    def write(path, *args, **kwargs):
        count[0] += 1
        if count[0] == 2:
            raise OutputError("JSE007", path=str(path), reason="Read-only file system")
        return real(path, *args, **kwargs)

    monkeypatch.setattr(transaction, "write_atomic", write)
    with pytest.raises(OutputError):
        undo(script, now=NOON)
    assert (script.read_text(), config.read_text()) == ("s2\n", "c2\n")
    monkeypatch.undo()
    undo(script, now=NOON)
    assert config.read_text() == "model: a/b\n"


def test_a_folder_that_was_moved_can_still_be_undone(pair, tmp_path):
    script, config = pair
    before = script.read_bytes(), config.read_bytes()
    apply(script, change(script, b"s2\n"), change(config, b"c2\n"))
    moved = tmp_path.with_name(tmp_path.name + "-moved")
    tmp_path.rename(moved)
    undo(moved / "serve.sh", now=NOON)
    assert ((moved / "serve.sh").read_bytes(), (moved / "etc" / "vllm.yaml").read_bytes()) == before
    moved.rename(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
def test_with_sudo_files_and_backups_still_belong_to_the_recipes_owner(recipe, tmp_path):
    os.chown(recipe, 1234, 2345)
    apply(recipe, change(recipe, b"new\n"))
    owners = {(path.stat().st_uid, path.stat().st_gid) for path in [recipe, *map(tmp_path.joinpath, beside(tmp_path))]}
    assert owners == {(1234, 2345)}
    assert recipe.stat().st_mode & 0o7777 == 0o754


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_write_protected_is_left_alone(tmp_path, what):
    file = tmp_path / "deploy" / "serve.sh"
    file.parent.mkdir()
    file.write_text("old\n")
    planned = change(file, b"new\n")
    protected = file if what == "file" else file.parent
    protected.chmod(0o444 if what == "file" else 0o555)
    try:
        with pytest.raises(ApplyError, match="not writable") as error:
            apply(file, planned)
        assert error.value.code == "JSE811"
        assert file.read_text() == "old\n"
        assert beside(file.parent) == []
    finally:
        protected.chmod(0o755)
