# SPDX-License-Identifier: Apache-2.0
"""Detection on hosts that misbehave, that are alive, and that nobody thought of."""

from __future__ import annotations

import json
import sys
import types

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jetson_specdec.device import (
    DeviceTreeDetector,
    Evidence,
    JtopDetector,
    MemoryDetector,
    NvidiaSmiDetector,
    Observation,
    PowerDetector,
    default_detectors,
    detect,
    merge,
)
from jetson_specdec.host import CommandResult, RecordedHost

GIB = 2**30
TREE = "/proc/device-tree"
PATHS = (
    f"{TREE}/model",
    f"{TREE}/compatible",
    "/tmp/nv_jetson_model",
    "/etc/nv_tegra_release",
    "/etc/nv_boot_control.conf",
    "/etc/nvpmodel.conf",
    "/var/lib/nvpmodel/status",
    "/proc/meminfo",
    "/proc/version",
    "/proc/cpuinfo",
    "/proc/1/cgroup",
    "/.dockerenv",
)


class FakeHost:
    """A machine made of two dicts; it counts what is run."""

    def __init__(self, files=None, commands=None, environ=None, live=True):
        self.files = {path: data.encode() if isinstance(data, str) else data for path, data in (files or {}).items()}
        self.commands = commands or {}
        self.environ = environ or {}
        self.live = live
        self.ran = []

    def kind(self, path):
        if path in self.files:
            return "file"
        return "directory" if any(name.startswith(path + "/") for name in self.files) else "absent"

    def read_bytes(self, path, *, limit=2**24):
        data = self.files.get(path)
        return None if data is None else data[:limit]

    def read_text(self, path, *, limit=2**24):
        data = self.read_bytes(path, limit=limit)
        return None if data is None else data.decode("utf-8", errors="replace")

    def list_dir(self, path):
        return ()

    def run(self, argv, *, timeout=10.0):
        self.ran.append(tuple(argv))
        line = " ".join(argv)
        for words, output in self.commands.items():
            if line == words or line.startswith((words + " --", words + "=")):
                return CommandResult(argv=tuple(argv), stdout=output)
        return None

    def now(self):
        return 0.0


def topics(device):
    return {finding.topic for finding in device.findings}


fragments = st.sampled_from(
    [
        b"NVIDIA Jetson AGX Orin Developer Kit\0",
        b"nvidia,p3701-0005\0nvidia,tegra234\0",
        b"NVIDIA Jetson AGX Thor",
        b"# R36 (release), REVISION: 4.3, GCID: 38968081, EABI: aarch64",
        b"# R38 (release), REVISION: ",
        b"MemTotal: 64349016 kB\n",
        b"MemTotal: 99999999999999999999 kB\n",
        b"MemAvailable: 1 kB\n",
        b"TNSPEC 3767-300-0000-",
        b"TEGRA_CHIPID 0x26\n",
        b"NV Power Mode: ",
        b"RAM 1/62841MB",
        b"Orin (nvgpu), [N/A]",
        b"|   0  NVIDIA Thor     On  |",
        b"5.15.148-tegra",
        b"-l4t-r38.2.1-",
        b"pmode:0002",
        b"vendor_id : x\n",
        b"/docker/",
        b"\r\n",
    ]
)
contents = st.lists(st.one_of(fragments, st.binary(max_size=40)), max_size=5).map(b"".join)
machines = st.builds(
    FakeHost,
    files=st.dictionaries(st.sampled_from(PATHS), contents),
    commands=st.dictionaries(
        st.sampled_from(
            ["nvpmodel -q", "tegrastats", "nvidia-smi", "nvidia-smi -L", "nvidia-smi --query-gpu", "dpkg-query"]
        ),
        contents.map(lambda data: data.decode("utf-8", errors="replace")),
    ),
    environ=st.dictionaries(st.just("L4T_VERSION"), st.one_of(st.just("36.4.0"), st.text(max_size=12))),
    live=st.booleans(),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(machines)
def test_nothing_a_board_shows_breaks_detection(host):
    device = detect(host, detectors=default_detectors())
    assert "detector-failed" not in topics(device)
    json.dumps(device.to_json(), allow_nan=False)
    # Unknown is None, never zero and never empty text.
    assert all(value not in (0, "") or isinstance(value, bool) for value in device.to_json().values() if value != [])
    if device.is_jetson is not True:
        assert (device.family, device.module, device.runtime) == (None, None, "unknown")
    if device.speculation_allowed == "eagle3_and_draft":
        assert device.family in ("thor", "agx_orin", "igx_orin")
    if device.module is not None and device.memory_total_bytes is not None:
        assert device.memory_total_bytes <= 128 * GIB


@settings(max_examples=200, deadline=None)
@given(machines)
def test_the_same_board_gives_the_same_answer(host):
    detectors = default_detectors()
    first, second = detect(host, detectors=detectors), detect(host, detectors=tuple(reversed(detectors)))
    assert evolve(first, findings=()) == evolve(second, findings=())
    assert sorted(map(str, first.findings)) == sorted(map(str, second.findings))


@settings(deadline=None)
@given(
    family=st.sampled_from(["NVIDIA Jetson Orin Nano", "NVIDIA Jetson Orin NX", "NVIDIA Jetson AGX Orin"]),
    kib=st.integers(1, 300 * 2**20),
)
def test_memory_never_turns_into_a_module_it_cannot_be(family, kib):
    host = FakeHost({f"{TREE}/model": family, "/proc/meminfo": f"MemTotal: {kib} kB\n"}, live=False)
    device = detect(host)
    if device.module is not None:
        size = int(device.module.rsplit("-", 1)[1].removesuffix("gb"))
        assert 0.75 * size < kib / 2**20 <= size
    else:
        assert {"module-unknown"} <= topics(device)


@pytest.mark.parametrize(
    ("compatible", "total", "module"),
    [
        ("nvidia,p3834-0008", 122.8, "thor-t5000"),
        ("nvidia,p3834-0008", 61.4, None),
        ("nvidia,p3834-0000", 61.4, "thor-t4000"),
        ("nvidia,p3834-0000", 122.8, None),
        ("nvidia,p3701-0004", 29.8, "agx-orin-32gb"),
        ("nvidia,p3701-0004", 61.4, None),
        ("nvidia,p3701-0000", 61.4, "agx-orin-64gb"),
        ("nvidia,p3701-0000", 29.8, "agx-orin-32gb"),
        ("nvidia,p3701-0000", 45.0, None),
        ("nvidia,p3767-0004", 7.4, None),
    ],
)
def test_a_number_counts_unless_memory_contradicts_it(compatible, total, module):
    host = FakeHost(
        {f"{TREE}/compatible": compatible, "/proc/meminfo": f"MemTotal: {int(total * 2**20)} kB\n"}, live=False
    )
    device = detect(host)
    assert device.module == module
    assert ("identity-conflict" in topics(device)) is (module is None)


def test_huge_files_are_not_read_whole(tmp_path):
    root = tmp_path / "root" / "proc" / "device-tree"
    root.mkdir(parents=True)
    with (root / "model").open("wb") as file:
        file.write(b"NVIDIA Jetson AGX Orin Developer Kit\0")
        file.truncate(2**32)
    (tmp_path / "root" / "proc" / "meminfo").write_bytes(b"MemTotal: 64349016 kB\n" + b"x" * 2**22)
    device = detect(RecordedHost(tmp_path))
    assert device.module == "agx-orin-64gb"


def test_files_that_cannot_be_opened_are_as_good_as_absent(tmp_path):
    etc = tmp_path / "root" / "etc"
    etc.mkdir(parents=True)
    (etc / "nv_tegra_release").symlink_to("nv_tegra_release")  # points at itself: every access fails
    device = detect(RecordedHost(tmp_path))
    assert (device.is_jetson, device.l4t) == (None, None)


def test_a_named_board_runs_no_program_and_reads_no_file():
    host = FakeHost({"/proc/meminfo": "MemTotal: 1 kB\n"}, {"nvpmodel -q": "NV Power Mode: 15W\n0\n"})
    device = detect(host, named="agx-orin-64gb", detectors=default_detectors())
    assert host.ran == []
    assert device.power_mode is None
    assert device.memory_total_bytes is not None
    assert device.memory_total_bytes > GIB


def test_a_live_jetson_is_asked_for_its_power_mode_only():
    host = FakeHost(
        {
            f"{TREE}/compatible": "nvidia,p3701-0005\0nvidia,tegra234\0",
            "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 41062509, EABI: aarch64\n",
            "/proc/meminfo": "MemTotal: 64349016 kB\n",
        },
        {"nvpmodel -q": "NV Power Mode: MAXN\n0\n"},
    )
    device = detect(host)
    assert host.ran == [("nvpmodel", "-q")]
    assert (device.module, device.power_mode_is_max) == ("agx-orin-64gb", True)


def test_a_live_igx_kit_is_asked_for_its_gpus():
    host = FakeHost(
        {f"{TREE}/compatible": "nvidia,p3740-0002+p3701-0008\0nvidia,tegra234\0"},
        {"nvidia-smi --query-gpu": "index, name, memory.total [MiB]\n0, NVIDIA RTX A6000, 49140 MiB\n"},
    )
    device = detect(host)
    assert {"igx-kit", "dgpu-present"} <= topics(device)
    assert (device.speculation_allowed, device.runtime) == ("unknown", "unknown")


def test_tegrastats_is_never_started_on_a_live_board():
    host = FakeHost({}, {"tegrastats": "RAM 1/62841MB"})
    assert MemoryDetector().detect(host) == Evidence()
    assert host.ran == []


def test_a_live_machine_without_a_device_tree_is_no_jetson():
    host = FakeHost({"/proc/cpuinfo": "CPU implementer : 0x41\n", "/proc/version": "Linux version 6.12.1 (x@y)\n"})
    assert detect(host).is_jetson is False
    hidden = FakeHost({**host.files, "/.dockerenv": ""})
    assert detect(hidden).is_jetson is None


def test_the_handed_over_model_text_counts():
    host = FakeHost({"/tmp/nv_jetson_model": "NVIDIA Jetson AGX Thor Developer Kit\0", "/.dockerenv": ""}, live=False)
    device = detect(host)
    assert (device.family, device.sources["family"]) == ("thor", "/tmp/nv_jetson_model")


def test_the_second_place_of_the_device_tree_is_read_too():
    host = FakeHost({"/sys/firmware/devicetree/base/compatible": "nvidia,p3767-0000\0nvidia,tegra234\0"}, live=False)
    assert detect(host).family == "orin_nx"


def test_a_release_file_wins_over_the_variable_and_the_kernel():
    files = {
        "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 41062509, EABI: aarch64\n",
        "/proc/version": "Linux version 5.15.148-l4t-r36.4.3-1012 (x@y)\n",
    }
    device = detect(FakeHost(files, environ={"L4T_VERSION": "36.2.0"}, live=False))
    assert (device.l4t, device.sources["l4t"]) == ("36.4.4", "/etc/nv_tegra_release")
    assert "release-env-mismatch" in topics(device)


def test_a_detector_that_breaks_is_named_and_the_others_go_on():
    class Broken:
        name = "broken"
        priority = 1

        def detect(self, host):
            raise RuntimeError("no luck")

    host = FakeHost({f"{TREE}/model": "NVIDIA Jetson AGX Thor Developer Kit"}, live=False)
    device = detect(host, detectors=[Broken(), DeviceTreeDetector()])
    assert device.family == "thor"
    finding = next(item for item in device.findings if item.topic == "detector-failed")
    assert "broken" in finding.message
    assert "no luck" in finding.message


def test_best_confidence_wins_then_priority():
    def said(value, confidence):
        return Evidence(observations=(Observation(name="l4t", value=value, source="x", confidence=confidence),))

    evidence = [(1, said("36.4.3", "high")), (9, said("36.4.4", "medium")), (5, said("36.4.7", "high"))]
    assert merge(evidence).l4t == "36.4.7"


def test_the_columns_of_a_recorded_query_are_those_that_were_asked_for(tmp_path):
    commands = [
        {
            "argv": ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader"],
            "stdout": "81559 MiB, ACME X\n",
        }
    ]
    (tmp_path / "commands.json").write_text(json.dumps(commands))
    device = detect(RecordedHost(tmp_path))
    assert device.gpu_name == "ACME X"
    values = {key: value for finding in device.findings for key, value in finding.values.items()}
    assert values["gpu_memory_total_mib"] == 81559


def test_a_command_written_as_one_line_is_taken_apart(tmp_path):
    (tmp_path / "commands.json").write_text(json.dumps([{"argv": "nvpmodel -q", "stdout": "NV Power Mode: MAXN\n0\n"}]))
    evidence = PowerDetector().detect(RecordedHost(tmp_path))
    assert ("power_mode", "MAXN") in {(item.name, item.value) for item in evidence.observations}


def test_orin_is_not_told_from_its_gpu():
    evidence = NvidiaSmiDetector().detect(
        FakeHost({}, {"nvidia-smi": "|  0  Orin (nvgpu)   N/A  | N/A  N/A |\n"}, live=False)
    )
    assert "family" not in {item.name for item in evidence.observations}


def fake_jtop(monkeypatch, *, board=None, memory=None, mode="MAXN", error=None):
    class Service:
        def __init__(self):
            self.board, self.memory, self.nvpmodel = board, memory, types.SimpleNamespace(name=mode)

        def __enter__(self):
            if error is not None:
                raise error
            return self

        def __exit__(self, *args):
            return None

    module = types.ModuleType("jtop")
    module.jtop = Service
    monkeypatch.setitem(sys.modules, "jtop", module)


BOARD = {"hardware": {"Model": "NVIDIA Jetson Orin NX", "P-Number": "p3767-0001", "Module": "", "L4T": "36.4.3"}}


def test_jtop_tells_board_memory_and_mode(monkeypatch):
    fake_jtop(monkeypatch, board=BOARD, memory={"RAM": {"tot": 7802112}}, mode="MAXN_SUPER")
    host = FakeHost({"/run/jtop.sock": "", "/proc/version": "Linux version 5.15.148-tegra\n", "/.dockerenv": ""})
    device = detect(host)
    assert (device.module, device.l4t, device.power_mode) == ("orin-nx-8gb", "36.4.3", "MAXN_SUPER")
    assert device.memory_total_bytes == 7802112 * 1024
    assert device.sources["module"].startswith("jtop")


def test_jtop_is_not_asked_where_the_board_is_known(monkeypatch):
    fake_jtop(monkeypatch, error=AssertionError("asked"))
    host = FakeHost(
        {"/run/jtop.sock": "", f"{TREE}/compatible": "nvidia,p3701-0005\0nvidia,tegra234\0"},
    )
    assert "jtop" not in topics(detect(host))


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("The jtop.service is not active. Please run:\nsudo jtop --install-service", "JSD171"),
        ("Mismatch of Python versions between library and service", "JSD172"),
        ("Mismatch version jtop service: [4.3.2] and client: [7.2.2]. Please run:\n", "JSD173"),
        ("I can't access jtop.service.\nPlease logout or reboot this board.", "JSD174"),
        ("Authentication with jetson-stats server failed", "JSD174"),
        ("", "JSD175"),
    ],
)
def test_why_jtop_does_not_answer_is_an_info(monkeypatch, message, code):
    fake_jtop(monkeypatch, error=RuntimeError(message))
    evidence = JtopDetector().detect(FakeHost())
    assert [(finding.code, finding.severity.value) for finding in evidence.findings] == [(code, "info")]
    assert evidence.observations == ()


def test_both_versions_are_named(monkeypatch):
    fake_jtop(monkeypatch, error=RuntimeError("Mismatch version jtop service: [4.3.2] and client: [7.2.2]. x"))
    (finding,) = JtopDetector().detect(FakeHost()).findings
    assert "4.3.2" in finding.message
    assert "7.2.2" in finding.message


def test_a_missing_jtop_is_an_info(monkeypatch):
    monkeypatch.setitem(sys.modules, "jtop", None)
    (finding,) = JtopDetector().detect(FakeHost()).findings
    assert (finding.code, finding.severity.value) == ("JSD170", "info")


@pytest.mark.parametrize("board", [None, {}, {"hardware": None}, {"hardware": {"L4T": 3, "P-Number": "x"}}])
def test_jtop_may_know_nothing(monkeypatch, board):
    fake_jtop(monkeypatch, board=board, memory={"RAM": {"tot": None}}, mode=None)
    assert JtopDetector().detect(FakeHost()).observations == ()


def test_a_recording_is_never_asked_through_jtop(monkeypatch):
    fake_jtop(monkeypatch, error=AssertionError("asked"))
    assert JtopDetector().detect(FakeHost(live=False)) == Evidence()
