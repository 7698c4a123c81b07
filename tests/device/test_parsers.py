# SPDX-License-Identifier: Apache-2.0
"""The texts that boards print, one format at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.device import identity, normalize_l4t, parse_meminfo, parse_tegrastats
from jetson_specdec.device.l4t import from_kernel, parse_release_file
from jetson_specdec.device.nvidia_smi import Gpu, parse_csv, parse_list, parse_table
from jetson_specdec.device.power import is_top_mode, parse_nvpmodel, parse_nvpmodel_conf
from jetson_specdec.errors import DeviceError

REAL = "GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025"


@pytest.mark.parametrize(
    ("text", "l4t", "stub"),
    [
        (f"# R36 (release), REVISION: 4.3, {REAL}\n", "36.4.3", False),
        (f"R36 (release), REVISION: 4.3, {REAL}", "36.4.3", False),
        (f"# R38 (release), REVISION: 2, {REAL}\r\n", "38.2.0", False),
        (f"\n\n# R39 (release), REVISION: 2.0, {REAL.replace('01:49:37', '01:49:37 PM')}\n", "39.2.0", False),
        ("# R35 (release), REVISION: 4.1\n", "35.4.1", True),
        ("# R36 (release), REVISION: 4.3, GCID: 00000000, BOARD: generic, EABI: aarch64, DATE: -\n", "36.4.3", True),
        (f"# R36 (release), REVISION: 4.3, {REAL}\n# generated while building the image\n", "36.4.3", True),
    ],
)
def test_release_files(text, l4t, stub):
    read = parse_release_file(text)
    assert read is not None
    assert (read.l4t, read.stub) == (l4t, stub)


@pytest.mark.parametrize("text", ["", "R36", "# R (release), REVISION: 4.3", "VERSION=36.4.3", "\x00\x00"])
def test_texts_that_are_no_release_file(text):
    assert parse_release_file(text) is None


@pytest.mark.parametrize(
    ("kernel", "l4t"),
    [
        ("Linux version 6.8.12-l4t-r38.4.0-1012.4-g0123abc (x@y)", "38.4.0"),
        ("5.15.148-l4t-r36.4-1012.4+g9", "36.4.0"),
        ("Linux version 5.15.148-tegra (x@y)", None),
        ("Linux version 6.8.0-45-generic (x@y)", None),
    ],
)
def test_releases_in_kernel_names(kernel, l4t):
    assert from_kernel(kernel) == l4t


@pytest.mark.parametrize(
    ("typed", "l4t"),
    [
        ("36.4.7", "36.4.7"),
        ("R36.4.7", "36.4.7"),
        ("r38.4", "38.4.0"),
        (" L4T 39.2 ", "39.2.0"),
        ("l4t-r36.5", "36.5.0"),
    ],
)
def test_releases_as_typed(typed, l4t):
    assert normalize_l4t(typed) == l4t


@pytest.mark.parametrize("typed", ["", "6.2.1", "36", "36.x", "36.4.7.1", "-36.4", "jetpack 6.2", "36.4.7\nrm"])
def test_texts_that_are_no_release(typed):
    with pytest.raises(DeviceError) as caught:
        normalize_l4t(typed)
    assert repr(typed) in str(caught.value)


@given(major=st.integers(19, 99), minor=st.integers(0, 99), patch=st.integers(0, 99))
def test_a_normal_release_stays_as_it_is(major, minor, patch):
    text = f"{major}.{minor}.{patch}"
    assert normalize_l4t(text) == text
    assert normalize_l4t(f"R{text}") == text
    release = f"# R{major} (release), REVISION: {minor}.{patch}, {REAL}"
    read = parse_release_file(release)
    assert read is not None
    assert (read.l4t, read.stub) == (text, False)


@given(st.text())
def test_readers_take_any_text(text):
    parse_release_file(text)
    from_kernel(text)
    parse_meminfo(text)
    parse_tegrastats(text)
    parse_nvpmodel(text)
    parse_nvpmodel_conf(text)
    parse_table(text)
    parse_list(text)
    parse_csv(text)
    identity.from_model_text(text)
    identity.from_compatible([text])
    identity.from_tnspec(text)


@given(st.text(alphabet="0123456789/MBRAMSWPGECUFQ%@[], -_.:()x", max_size=200))
def test_tegrastats_takes_any_line_of_its_own_letters(text):
    stats = parse_tegrastats("RAM 1/2MB " + text)
    assert stats is not None
    assert stats.ram_total_mib is not None


def test_tegrastats_of_orin():
    stats = parse_tegrastats(
        "01-02-2026 10:00:00 RAM 929/7620MB (lfb 5x4MB) SWAP 3/3810MB (cached 1MB) CPU [10%@1510,off,3%@1510] "
        "EMC_FREQ 3%@3199 GR3D_FREQ 41%@[1007,1008] cpu@52.968C GPU@-256C tj@53C "
        "VDD_IN 5210mW/5100mW VDD_CPU_GPU_CV 900mW/880mW"
    )
    assert stats is not None
    assert (stats.ram_used_mib, stats.ram_total_mib) == (929, 7620)
    assert (stats.swap_used_mib, stats.swap_total_mib) == (3, 3810)
    assert stats.cpu_load_percent == (10, None, 3)
    assert (stats.gpu_load_percent, stats.gpu_mhz) == (41, (1007, 1008))
    assert (stats.emc_load_percent, stats.emc_mhz) == (3, 3199)
    assert stats.temperatures_c == {"cpu": 52.968, "tj": 53.0}
    assert stats.power_mw == {"VDD_IN": 5210, "VDD_CPU_GPU_CV": 900}


def test_tegrastats_of_thor_has_clocks_but_no_load():
    stats = parse_tegrastats("RAM 100/125772MB GR3D_FREQ @[314,314,314] VDD_GPU 1mW/2mW/3mW")
    assert stats is not None
    assert (stats.gpu_load_percent, stats.gpu_mhz) == (None, (314, 314, 314))
    assert stats.power_mw == {"VDD_GPU": 1}
    assert stats.swap_total_mib is None


def test_tegrastats_without_root_has_a_load_but_no_clock():
    stats = parse_tegrastats("RAM 1/30536MB EMC_FREQ 0% GR3D_FREQ 0% \nRAM 2/30536MB GR3D_FREQ 5%\ncut off RAM 3/30")
    assert stats is not None
    assert (stats.ram_used_mib, stats.gpu_load_percent, stats.gpu_mhz) == (2, 5, ())


def test_meminfo_in_bytes():
    sizes = parse_meminfo("MemTotal:  2048 kB\nMemAvailable: 1024 kB\nHugePages_Total:  0\nMemFree: x kB\n")
    assert sizes == {"MemTotal": 2048 * 1024, "MemAvailable": 1024 * 1024}


def test_a_total_of_zero_is_unknown():
    assert "MemTotal" not in parse_meminfo("MemTotal: 0 kB\n")


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("NV Power Mode: MAXN\n0\n", "MAXN"),
        ("NV Fan Mode:cool\nNV Power Mode: MODE_15W_DESKTOP\n7\n", "MODE_15W_DESKTOP"),
        ("NVPM WARN: power mode is not set\n", None),
        ("NV Power Mode:\n", None),
    ],
)
def test_power_modes(text, mode):
    assert parse_nvpmodel(text) == mode


@pytest.mark.parametrize(
    ("mode", "top"), [("MAXN", True), ("MAXN_SUPER", True), ("MAXNX", False), ("MODE_50W", False), ("25W", False)]
)
def test_top_modes(mode, top):
    assert is_top_mode(mode) is top


def test_old_tables_cut_names_and_processes_are_no_gpus():
    table = (
        "|   0  GeForce RTX 208...  Off  | 00000000:01:00.0 Off |                  N/A |\n"
        "| 30%   30C    P8    20W / 250W |     12MiB / 11019MiB |      0%      Default |\n"
        "| Processes: |\n"
        "|    0   N/A  N/A      1234      G   /usr/bin/x    4MiB |\n"
    )
    assert parse_table(table) == (Gpu(name="GeForce RTX 208...", memory_total_mib=11019),)


def test_lists_name_gpus_and_not_their_slices():
    text = "GPU 0: NVIDIA A30 (UUID: GPU-1)\n  MIG 1g.6gb Device 0: (UUID: MIG-2)\nGPU 1: NVIDIA Thor (UUID: GPU-3)\n"
    assert [gpu.name for gpu in parse_list(text)] == ["NVIDIA A30", "NVIDIA Thor"]


@pytest.mark.parametrize(
    ("text", "columns", "gpu"),
    [
        ("name, memory.total [MiB]\nNVIDIA L4, 23034 MiB\n", (), Gpu(name="NVIDIA L4", memory_total_mib=23034)),
        ("24564, NVIDIA X 1\n", ("memory.total", "name"), Gpu(name="NVIDIA X 1", memory_total_mib=24564)),
        ("Orin (nvgpu), [N/A], [N/A]\n", (), Gpu(name="Orin (nvgpu)")),
        ("0, NVIDIA Thor, [N/A], 595.78\n", (), Gpu(name="NVIDIA Thor")),
        ("Orin (nvgpu), [N/A]\n", ("memory.total", "name", "uuid"), Gpu(name="Orin (nvgpu)")),
        # Without columns a number next to a name is not known to be its memory.
        ("NVIDIA X 1, 24564\n", (), Gpu(name="NVIDIA X 1")),
    ],
)
def test_csv_answers(text, columns, gpu):
    assert parse_csv(text, columns) == (gpu,)


@pytest.mark.parametrize(
    "text",
    ["", "\n", "No devices were found\n", "[N/A], [N/A]\n", "NVIDIA-SMI has failed because it could not communicate\n"],
)
def test_csv_answers_without_a_gpu(text):
    assert parse_csv(text) == ()


@pytest.mark.parametrize(
    ("text", "family", "module"),
    [
        ("NVIDIA Jetson AGX Orin 64GB Developer Kit", "agx_orin", "agx-orin-64gb"),
        ("nvidia jetson agx orin developer kit", "agx_orin", None),
        ("NVIDIA Jetson OrinNX 8 GB", "orin_nx", "orin-nx-8gb"),
        ("Jetson AGX Orin Industrial", "agx_orin", "agx-orin-industrial"),
        ("NVIDIA Jetson T4000", "thor", "thor-t4000"),
        ("NVIDIA Jetson Thor Developer Kit", "thor", None),
        ("NVIDIA Jetson Xavier NX Developer Kit", "xavier_nx", None),
        ("NVIDIA IGX Orin Developer Kit", "igx_orin", None),
        ("Jetson Orin", None, None),
    ],
)
def test_model_texts(text, family, module):
    found = identity.from_model_text(text)
    assert (found.is_jetson, found.family, found.module) == (True, family, module)


@pytest.mark.parametrize(
    "text", ["Raspberry Pi 4 Model B", "NVIDIA DRIVE AGX Orin", "NVIDIA DGX Spark", "linux,dummy-virt"]
)
def test_model_texts_of_other_machines(text):
    found = identity.from_model_text(text)
    assert (found.is_jetson, found.certain) == (False, True)


@pytest.mark.parametrize(
    ("spec", "family", "module"),
    [
        ("3767-300-0005-X.1-1-1-jetson-orin-nano-devkit-", "orin_nano", "orin-nano-8gb"),
        ("3767-300-0000-H.2-1-0-some-carrier-", "orin_nx", "orin-nx-16gb"),
        ("3701-300-0000--1--jetson-agx-orin-devkit-", "agx_orin", None),
        ("3701-500-0005-A.0-1-0-some-agx-carrier-00-", "agx_orin", "agx-orin-64gb"),
        ("3834-0008-400--1--jetson-agx-thor-devkit-", "thor", "thor-t5000"),
        ("3834--0008--1--jetson-agx-thor-devkit-", "thor", "thor-t5000"),
        ("-----jetson-agx-thor-t4000-", "thor", "thor-t4000"),
        ("2888-400-0004-M.0-1-2-jetson-xavier-x-", "agx_xavier", None),
    ],
)
def test_flash_specifications(spec, family, module):
    found = identity.from_tnspec(spec)
    assert (found.family, found.module) == (family, module)
