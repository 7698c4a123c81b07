# SPDX-License-Identifier: Apache-2.0
"""Atomic writing: all or nothing, links and permissions kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jetson_specdec.errors import OptionError, OutputError, PolicyError
from jetson_specdec.files import read_text, reason_of, write_atomic


def leftovers(folder):
    return [entry.name for entry in folder.iterdir() if entry.name.startswith(".")]


def test_new_text_replaces_old_and_keeps_its_permissions(tmp_path):
    target = tmp_path / "serve.sh"
    target.write_text("old")
    target.chmod(0o750)
    write_atomic(target, "new\r\nline\udcff")
    assert target.read_bytes() == b"new\r\nline\xff"
    assert target.stat().st_mode & 0o777 == 0o750
    assert not leftovers(tmp_path)


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real.sh", tmp_path / "link.sh"
    real.write_text("old")
    link.symlink_to(real)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_existing_files_can_be_protected(tmp_path):
    target = tmp_path / "serve.sh"
    write_atomic(target, "first", overwrite=False)
    with pytest.raises(OutputError, match="exists"):
        write_atomic(target, "second", overwrite=False)
    assert target.read_text() == "first"
    assert not leftovers(tmp_path)


@pytest.mark.parametrize("missing", ["nothing", "O_TMPFILE", "links to open files"])
def test_a_new_file_has_no_name_before_it_is_whole(tmp_path, monkeypatch, missing):
    """Looked at when its bytes are on disk: a process that is killed then leaves nothing beside it."""
    genuine, link, seen = os.fsync, os.link, []

    def look(handle):
        seen.append([entry.name for entry in tmp_path.iterdir()])
        genuine(handle)

    def refuse(source, target, **options):
        if str(source).startswith("/proc/"):
            raise OSError(18, "Invalid cross-device link")
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", look)
    if missing == "O_TMPFILE":
        monkeypatch.delattr(os, "O_TMPFILE")
    elif missing != "nothing":
        monkeypatch.setattr(os, "link", refuse)
    target = tmp_path / "serve.sh"
    write_atomic(target, "text\udcff", mode=0o640, overwrite=False)
    assert target.read_bytes() == b"text\xff"
    assert target.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["serve.sh"]
    if missing == "nothing":
        assert seen == [[]]


def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch):
    target = tmp_path / "serve.sh"
    target.write_text("old")

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert not leftovers(tmp_path)


def test_a_missing_folder_is_one_clear_error(tmp_path):
    with pytest.raises(OutputError, match="nothing was changed") as caught:
        write_atomic(tmp_path / "no" / "such" / "file", "x")
    assert caught.value.exit_code == 2
    assert not Path(tmp_path / "no").exists()


def test_a_new_file_follows_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "new", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o640


def test_reading_says_which_file_and_why(tmp_path):
    path = tmp_path / "own.toml"
    path.write_bytes("Größe\n".encode())
    assert read_text(path, PolicyError) == "Größe\n"
    with pytest.raises(PolicyError) as absent:
        read_text(tmp_path / "absent", PolicyError)
    assert absent.value.code == "JSE005"
    assert str(absent.value) == f"cannot read {tmp_path / 'absent'}: No such file or directory."
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="utf-8"):
        read_text(path, OptionError)
    assert read_text(path, OptionError, errors="replace") == "\ufffd"


def test_the_reason_is_the_systems_or_the_errors_own():
    assert reason_of(PermissionError(13, "Permission denied", "/a")) == "Permission denied"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"
