# SPDX-License-Identifier: Apache-2.0
"""Saving a board for a bug report, and reading it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetson_specdec.device import detect
from jetson_specdec.device.record import ENVIRONMENT, record
from jetson_specdec.errors import OutputError
from jetson_specdec.host import LocalHost, RecordedHost

DATA = Path(__file__).parents[1] / "data" / "device"
BOARDS = sorted(path.name for path in DATA.iterdir() if path.is_dir())

SERIAL = "1421720004151"
UUID = "GPU-1b2c3d4e-aaaa-bbbb-cccc-0123456789ab"
MAC = "48:b0:2d:aa:bb:cc"
CONTAINER = "f" * 12 + "0123456789abcdef" * 3 + "0123"
SECRETS = (SERIAL, UUID[4:], MAC, CONTAINER, "lab-bench-7", "jane", "hf_abcdef", "10.1.2.3")


@pytest.fixture
def private_board(tmp_path):
    base = tmp_path / "board"
    files = {
        "proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit\0",
        "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0005\0nvidia,p3701-0005\0nvidia,tegra234\0",
        "proc/device-tree/serial-number": SERIAL + "\0",
        "etc/hostname": "lab-bench-7\n",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 41062509, EABI: aarch64, DATE: x\n",
        "proc/meminfo": "MemTotal: 64349016 kB\nMemAvailable: 60000000 kB\n",
        "proc/version": "Linux version 5.15.148-tegra (jane@lab-bench-7) #1 SMP PREEMPT\n",
        "proc/cpuinfo": f"processor : 0\nCPU implementer : 0x41\nSerial : {SERIAL}\n",
        "proc/1/cgroup": f"0::/docker/{CONTAINER}\n",
        "etc/nv_boot_control.conf": "TNSPEC 3701-500-0005-A.0-1-0-jetson-agx-orin-devkit-\n",
        "home/jane/.cache/huggingface/token": "hf_abcdef",
    }
    for path, text in files.items():
        place = base / "root" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    commands = [
        {"argv": ["nvpmodel", "-q"], "stdout": "NV Power Mode: MODE_30W\n2\n", "exit_code": 0},
        {"argv": ["nvidia-smi", "-L"], "stdout": f"GPU 0: Orin (nvgpu) (UUID: {UUID})\n", "exit_code": 0},
        {"argv": ["nvidia-smi"], "stdout": f"eth0 {MAC} 10.1.2.3 Serial Number: {SERIAL}\n", "exit_code": 0},
        {"argv": ["env"], "stdout": "HF_TOKEN=hf_abcdef", "exit_code": 0},
    ]
    environ = {
        "HF_TOKEN": "hf_abcdef",
        "L4T_VERSION": "36.4.0",
        "NVIDIA_VISIBLE_DEVICES": UUID,
        "HOSTNAME": "lab-bench-7",
    }
    (base / "commands.json").write_text(json.dumps(commands))
    (base / "env.json").write_text(json.dumps(environ))
    return RecordedHost(base)


def everything(folder):
    return "\n".join(
        str(path.relative_to(folder)) + "\n" + path.read_bytes().decode("utf-8", errors="replace")
        for path in folder.rglob("*")
        if path.is_file()
    )


def test_what_identifies_the_owner_stays_out(private_board, tmp_path):
    folder = tmp_path / "saved"
    record(private_board, folder)
    text = everything(folder)
    assert [secret for secret in SECRETS if secret in text] == []
    assert not (folder / "root/proc/device-tree/serial-number").exists()


def test_the_environment_is_a_list_of_what_is_allowed(private_board, tmp_path):
    record(private_board, tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/env.json").read_text())
    assert set(saved) == {"L4T_VERSION", "NVIDIA_VISIBLE_DEVICES"}
    assert set(saved) <= set(ENVIRONMENT)
    assert not any("TOKEN" in name or "KEY" in name for name in ENVIRONMENT)


def test_masking_does_not_change_what_the_board_is(private_board, tmp_path):
    record(private_board, tmp_path / "saved")
    assert detect(RecordedHost(tmp_path / "saved")) == detect(private_board)


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_read_back_is_the_same_board(name, tmp_path):
    host = RecordedHost(DATA / name)
    record(host, tmp_path / "saved")
    assert detect(RecordedHost(tmp_path / "saved")) == detect(host)


def test_the_files_written_are_returned(private_board, tmp_path):
    folder = tmp_path / "saved"
    written = record(private_board, folder)
    assert written == sorted(path for path in folder.rglob("*") if path.is_file())
    assert folder / "commands.json" in written
    assert folder / "root/etc/nv_tegra_release" in written


def test_a_host_named_after_its_kind_is_not_masked(private_board, tmp_path):
    (tmp_path / "board/root/etc/hostname").write_text("jetson-orin\n")
    (tmp_path / "board/env.json").write_text("{}")
    record(RecordedHost(tmp_path / "board"), tmp_path / "saved")
    assert b"Jetson AGX Orin" in (tmp_path / "saved/root/proc/device-tree/model").read_bytes()


def test_a_folder_with_something_in_it_is_refused_and_left_alone(private_board, tmp_path):
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(OutputError) as caught:
        record(private_board, folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_file_in_the_way_is_refused(private_board, tmp_path):
    (tmp_path / "saved").write_text("a file")
    with pytest.raises(OutputError):
        record(private_board, tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == "a file"


def test_an_empty_folder_and_missing_parents_are_fine(private_board, tmp_path):
    (tmp_path / "empty").mkdir()
    assert record(private_board, tmp_path / "empty")
    assert record(private_board, tmp_path / "a/b/c")


def test_nothing_is_left_behind_when_writing_fails(private_board, tmp_path, monkeypatch):
    def fails(self, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fails)
    with pytest.raises(OutputError, match="No space left"):
        record(private_board, tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["board"]


def test_this_machine_can_be_recorded(tmp_path):
    record(LocalHost(), tmp_path / "saved")
    here, there = detect(LocalHost()), detect(RecordedHost(tmp_path / "saved"))
    assert there.is_jetson == here.is_jetson
    assert there.memory_total_bytes == here.memory_total_bytes


def test_who_holds_the_gpu_is_saved_by_program_names_alone(tmp_path):
    base = tmp_path / "board"
    (base / "root").mkdir(parents=True)
    argv = ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"]
    answer = "12, /home/jane/bin/serve --api-key topsecret, 5 MiB\n7, VLLM::EngineCore, [N/A]\nNo devices, topsecret\n"
    (base / "commands.json").write_text(json.dumps([{"argv": argv, "stdout": answer, "exit_code": 0}]))
    (base / "env.json").write_text("{}")
    record(RecordedHost(base), tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "commands.json").read_text())
    assert [each["stdout"] for each in saved if each["argv"] == argv] == [
        "12, serve, 5 MiB\n7, VLLM::EngineCore, [N/A]\n"
    ]
