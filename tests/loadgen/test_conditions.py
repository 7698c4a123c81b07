# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import sys
import types

import pytest

from jetson_specdec.host import RecordedHost
from jetson_specdec.loadgen import Benchmark, ConditionSampler
from jetson_specdec.loadgen.conditions import Timed, draw_together, mean_power
from jetson_specdec.loadgen.sampling import (
    JtopSource,
    PsutilSource,
    Sample,
    SysfsSource,
    TegrastatsSource,
    merge,
    open_sources,
)
from jetson_specdec.measurements import Conditions
from jetson_specdec.testing import FakeVllm, Truth

ORIN = (
    "11-02-2025 10:00:01 RAM 20642/62841MB (lfb 3x4MB) SWAP 12/31420MB (cached 0MB) CPU [12%@2201,off,3%@2201] "
    "EMC_FREQ 3%@3199 GR3D_FREQ 12%@[1300,1290] cpu@52.968C soc2@49.1C gpu@-256C tj@53.5C "
    "VDD_GPU_SOC 6000mW/5900mW VDD_CPU_CV 1500mW/1500mW VIN_SYS_5V0 4500mW/4400mW"
)
MEMINFO = "MemTotal: 64349512 kB\nMemAvailable: 30000000 kB\nSwapTotal: 4000000 kB\nSwapFree: 3500000 kB\n"


@pytest.fixture
def board(tmp_path):
    """Writes files below a recorded board and returns its host."""

    def make(files=None, commands=()):
        for path, text in (files or {}).items():
            target = tmp_path / "root" / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        listed = [{"argv": argv, "stdout": stdout, "exit_code": code} for argv, stdout, code in commands]
        (tmp_path / "commands.json").write_text(json.dumps(listed))
        return RecordedHost(tmp_path)

    return make


def test_files_of_a_board(board):
    hwmon, thermal = "/sys/class/hwmon/hwmon3", "/sys/class/thermal"
    host = board(
        {
            "/proc/meminfo": MEMINFO,
            f"{thermal}/thermal_zone0/temp": "48500\n",
            f"{thermal}/thermal_zone1/temp": "-256000\n",
            f"{thermal}/thermal_zone2/temp": "61250\n",
            f"{thermal}/cooling_device0/type": "pwm-fan\n",
            f"{thermal}/cooling_device0/cur_state": "3\n",
            f"{thermal}/cooling_device1/type": "gpu-throttle-alert\n",
            f"{thermal}/cooling_device1/cur_state": "1\n",
            "/sys/class/devfreq/17000000.gpu/cur_freq": "1300500000\n",
            "/sys/class/devfreq/2c60000.emc/cur_freq": "3199000000\n",
            f"{hwmon}/in1_label": "VDD_IN\n",
            f"{hwmon}/in1_input": "19000\n",
            f"{hwmon}/curr1_input": "2000\n",
            f"{hwmon}/in2_label": "VDD_CPU_GPU_CV\n",
            f"{hwmon}/in2_input": "19000\n",
            f"{hwmon}/curr2_input": "500\n",
            "/sys/class/hwmon/hwmon4/oc1_event_cnt": "2\n",
            "/sys/class/hwmon/hwmon4/oc3_event_cnt": "5\n",
        }
    )
    sample = SysfsSource(host).read()
    assert sample.temperature_c == pytest.approx(61.25)
    assert sample.gpu_mhz == pytest.approx(1300.5)
    assert (sample.power_rail, sample.power_w) == ("VDD_IN", pytest.approx(38.0))
    assert sample.throttling is True  # the fan that turns is no throttling, the alert is
    assert sample.throttle_events == 7
    assert sample.memory_available_bytes == 30000000 * 1024
    assert sample.swap_used_bytes == 500000 * 1024


def test_a_bare_board_knows_nothing(board):
    host = board()
    sample = merge([source.read() for source in open_sources(host)])
    assert sample == Sample()
    conditions = draw_together([Timed(0.0, sample), Timed(1.0, sample)])
    assert conditions == Conditions()


def test_tegrastats_of_agx_orin_sums_its_three_inputs(board):
    sample = TegrastatsSource(board(commands=[(["tegrastats"], ORIN, 0)])).read()
    assert sample.temperature_c == pytest.approx(53.5)
    assert sample.gpu_mhz == 1300
    assert sample.power_w == pytest.approx(12.0)
    assert sample.power_rail == "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0"
    assert sample.swap_used_bytes == 12 * 2**20
    assert sample.memory_available_bytes is None  # "used" counts page cache, so it says nothing about this


def test_a_single_consumer_is_not_the_board(board):
    line = "RAM 1/2MB SWAP 0/0MB CPU [1%@1] cpu@40C VDD_CPU_GPU_CV 1500mW/1500mW"
    sample = TegrastatsSource(board(commands=[(["tegrastats"], line, 0)])).read()
    assert sample.power_w is None


def test_first_source_that_knows_wins():
    merged = merge(
        [
            Sample(power_w=5.0, power_rail="VDD_IN", sources={"power_w": "jtop", "power_rail": "jtop"}),
            Sample(power_w=9.0, power_rail="VIN", gpu_mhz=800.0, sources={"gpu_mhz": "/sys", "power_w": "/sys"}),
            Sample(gpu_mhz=700.0, temperature_c=50.0, sources={"temperature_c": "psutil"}),
        ]
    )
    assert (merged.power_w, merged.power_rail, merged.gpu_mhz, merged.temperature_c) == (5.0, "VDD_IN", 800.0, 50.0)
    assert merged.sources == {"power_w": "jtop", "power_rail": "jtop", "gpu_mhz": "/sys", "temperature_c": "psutil"}


def test_drawing_together():
    samples = [
        Timed(0.0, Sample(temperature_c=40.0, swap_used_bytes=100, throttle_events=3, memory_available_bytes=900)),
        Timed(1.0, Sample(temperature_c=70.0, gpu_mhz=1300.0, throttle_events=3, memory_available_bytes=400)),
        Timed(2.0, Sample(temperature_c=60.0, gpu_mhz=612.0, swap_used_bytes=350, throttle_events=4)),
    ]
    conditions = draw_together(samples)
    assert conditions.temperature_c_max == 70.0
    assert conditions.swap_growth_bytes == 250
    assert conditions.memory_available_min_bytes == 400
    assert (conditions.gpu_mhz_min, conditions.gpu_mhz_max) == (612.0, 1300.0)
    assert conditions.throttled is True
    assert draw_together(samples[:2]).throttled is False
    assert draw_together([Timed(0.0, Sample())]).throttled is None
    known = Conditions(temperature_c_max=1.0, sources={"temperature_c_max": "elsewhere"})
    assert draw_together(samples, known).temperature_c_max == 1.0
    assert draw_together(samples, known).sources["temperature_c_max"] == "elsewhere"


def test_other_gpu_users():
    samples = [Timed(0.0, Sample(gpu_processes=("VLLM::EngineCore", "Xorg"))), Timed(1.0, Sample(gpu_processes=()))]
    assert draw_together(samples).gpu_processes == ("Xorg",)
    assert draw_together([Timed(0.0, Sample(gpu_processes=()))]).gpu_processes == ()
    assert draw_together([Timed(0.0, Sample())]).gpu_processes is None


def test_power_of_a_run():
    samples = [Timed(float(t), Sample(power_w=w, power_rail="VDD_IN")) for t, w in enumerate((10, 20, 30, 99))]
    assert mean_power(samples, 0.5, 2.5) == (25.0, "VDD_IN")
    assert mean_power(samples, 8.0, 9.0) == (None, None)


def test_power_mode_and_gpu_users_are_asked_once(board):
    host = board(
        {"/proc/meminfo": MEMINFO},
        [
            (["nvpmodel", "-q"], "NV Power Mode: MODE_30W\n2\n", 0),
            (
                ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"],
                "41, VLLM::EngineCore\n42, /usr/bin/gst-launch-1.0\n",
                0,
            ),
        ],
    )
    sampler = ConditionSampler(host, lambda: 0.0, interval_s=60)
    sampler.start()
    sampler.stop()
    conditions = sampler.conditions()
    assert (conditions.power_mode, conditions.power_mode_is_max) == ("MODE_30W", False)
    assert conditions.gpu_processes == ("gst-launch-1.0",)
    assert conditions.sources["power_mode"] == "nvpmodel -q"
    assert conditions.sources["gpu_processes"] == "nvidia-smi"
    assert len(sampler.samples) == 2


def test_the_stub_of_orin_proves_nothing(board):
    query = ["nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader"]
    sampler = ConditionSampler(board(commands=[(query, "", 0)]), lambda: 0.0, interval_s=60)
    sampler.start()
    sampler.stop()
    assert sampler.conditions().gpu_processes is None


class FakeJtop:
    """What jetson-stats 7 answers, in its units: mW, kHz, kB."""

    def __init__(self, interval):
        self.power = {"rail": {}, "tot": {"name": "VDD_IN", "power": 21500, "avg": 20000}}
        self.temperature = {
            "gpu": {"temp": 55.5, "online": True},
            "cv0": {"temp": -256, "online": False},
        }
        self.gpu = {"gpu": {"freq": {"cur": 1300500}, "status": {"load": 98.0}}}
        self.memory = {"RAM": {"tot": 1}, "SWAP": {"tot": 4000, "used": 8}}
        self.nvpmodel = "MAXN"
        self.jetson_clocks = True
        self.processes = [
            [1, "root", "I", "G", 20, "S", 1.0, 10, 900, "VLLM::EngineCore"],
            [2, "root", "I", "G", 20, "S", 1.0, 10, 50, "gnome-shell"],
            [3, "root", "I", "G", 20, "S", 1.0, 10, 0, "idle"],
        ]
        self.started = self.closed = False

    def start(self):
        self.started = True

    def close(self):
        self.closed = True


def test_jtop():
    source = JtopSource(lambda: FakeJtop(1.0))
    sample = source.read()
    assert sample.power_w == pytest.approx(21.5)
    assert sample.power_rail == "VDD_IN"
    assert sample.temperature_c == pytest.approx(55.5)
    assert sample.gpu_mhz == pytest.approx(1300.5)
    assert sample.swap_used_bytes == 8 * 1024
    assert (sample.power_mode, sample.clocks_locked) == ("MAXN", True)
    assert sample.gpu_processes == ("VLLM::EngineCore", "gnome-shell")


def test_jtop_that_breaks_is_left_out(monkeypatch):
    broken = types.ModuleType("jtop")

    def fails(interval):
        raise RuntimeError("The jtop.service is not active.")

    broken.jtop = fails
    monkeypatch.setitem(sys.modules, "jtop", broken)
    assert JtopSource.open() is None
    source = JtopSource(lambda: FakeJtop(1.0))
    source._jtop.temperature = {"gpu": {}}
    assert source.read() == Sample()


def test_a_benchmark_reports_the_board(board):
    host = board(
        {"/proc/meminfo": MEMINFO},
        [(["tegrastats"], ORIN, 0), (["nvpmodel", "-q"], "NV Power Mode: MODE_50W\n3\n", 0)],
    )
    report = Benchmark(
        "http://fake",
        connection=FakeVllm(truth=Truth(step_ms=10)).connection(),
        prompts=[f"{index} one" for index in range(20)],
        num_prompts=4,
        concurrency=1,
        output_len=20,
        host=host,
    ).run()
    assert report.conditions.temperature_c_max == pytest.approx(53.5)
    assert report.conditions.power_mode == "MODE_50W"
    assert report.conditions.memory_available_min_bytes == 30000000 * 1024
    assert "power-mode-not-max" in {finding.topic for finding in report.findings}


def test_energy_of_a_run(board):
    """The clock is virtual and the samples are not, so the run's samples are put in by hand."""
    from jetson_specdec.loadgen.benchmark import _with_power
    from jetson_specdec.measurements import Run

    sampler = ConditionSampler(board(), lambda: 0.0)
    sampler.samples = [Timed(1.0, Sample(power_w=20.0, power_rail="VDD_IN"))]
    run = _with_power(Run(concurrency=1, total_output_tokens=100), sampler, 0.5, 10.5)
    assert run.power_w_mean == 20.0
    assert run.energy_j_per_token == pytest.approx(2.0)
    assert _with_power(Run(concurrency=1), sampler, 0.5, 10.5).energy_j_per_token is None


def test_psutil_alone():
    sample = PsutilSource().read()
    assert sample.memory_available_bytes > 0
    assert sample.swap_used_bytes >= 0
    assert sample.sources["memory_available_bytes"] == "psutil"
