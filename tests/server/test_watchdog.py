# SPDX-License-Identifier: Apache-2.0
"""Memory samples, the floor, and ending a candidate before the kernel does."""

from __future__ import annotations

import urllib.request

import pytest

from jetson_specdec import Policy
from jetson_specdec.errors import StartFailed
from jetson_specdec.logs import diagnose
from jetson_specdec.server import MemorySample, Watchdog
from jetson_specdec.server.back import memory_is_back, wait_until_back
from jetson_specdec.server.watchdog import below_floor, parse_memory

GIB = 2**30
MEMINFO = """MemTotal:       64349528 kB
MemFree:         1204416 kB
MemAvailable:    3145728 kB
SwapTotal:       8388608 kB
SwapFree:        6291456 kB
"""
PRESSURE = "some avg10=12.34 avg60=3.00 avg300=1.00 total=5\nfull avg10=4.50 avg60=1.00 avg300=0.10 total=2\n"


def test_samples_are_read_as_the_kernel_writes_them():
    assert parse_memory(MEMINFO, PRESSURE) == MemorySample(
        total_bytes=64349528 * 1024,
        available_bytes=3 * GIB,
        swap_used_bytes=2 * GIB,
        pressure_some=12.34,
        pressure_full=4.5,
    )


def test_what_the_kernel_does_not_tell_is_unknown():
    assert parse_memory(None, None) == MemorySample()
    assert parse_memory("MemTotal: x kB\n", "some avg10=?") == MemorySample()
    assert not below_floor(MemorySample())


@pytest.mark.parametrize(("available", "low"), [(GIB, False), (GIB - 1, True), (0, True)])
def test_the_floor_is_the_policys(available, low):
    assert below_floor(MemorySample(available_bytes=available), Policy(watchdog_floor_bytes=GIB)) is low


def test_a_breach_is_acted_on_once_and_extremes_are_kept(host):
    seen = []
    dog = Watchdog(host, seen.append)
    for available in (20.0, 5.0, 0.5, 0.25):
        host.available_gib = available
        dog.take()
    assert [sample.available_bytes for sample in seen] == [GIB // 2]
    assert dog.breach is seen[0]
    assert dog.lowest_available_bytes == GIB // 4
    assert dog.highest_swap_bytes == 512 * 1024
    assert dog.highest_pressure_full == 0.25


def test_a_watchdog_stops_when_told_to(host):
    with Watchdog(host, pytest.fail, interval_s=0.01) as dog:
        assert dog.breach is None
    dog.stop()


def test_a_candidate_that_takes_too_much_is_ended_and_the_diagnosis_says_so(server, port, fake, host, marked, tools):
    class Greedy(type(host)):
        """The memory runs out as soon as the engine has begun."""

        log = None

        def read_text(self, path, *, limit=1 << 20):
            if path == "/proc/meminfo" and self.log is not None and self.log.exists():
                self.available_gib = 0.5 if "non-default args" in self.log.read_text() else 50.0
            return super().read_text(path, limit=limit)

    fake(startup_s=300)
    greedy = Greedy()
    config = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 3}'"""
    one = server(f"vllm serve org/m --port {port} {config}", host=greedy)
    greedy.log = one.log_path
    with pytest.raises(StartFailed) as caught:
        one.start()
    found = caught.value.diagnosis
    assert (found.cause, found.remedy) == ("watchdog_stopped", "lower_utilization")
    assert found.values["available_bytes"] == GIB // 2
    assert found.values["floor_bytes"] == GIB
    assert not marked(one.run_id)
    assert diagnose(one.log_path.read_text()).cause == "watchdog_stopped"


def test_a_serving_candidate_is_watched_too(server, port, host, marked, tools):
    one = server(f"vllm serve org/m --port {port}")
    one.start()
    assert urllib.request.urlopen(f"{one.root_url}/health").status == 200
    host.available_gib = 0.1
    tools["until"](lambda: not marked(one.run_id))
    tools["until"](lambda: not one.running)
    assert one.watchdog.breach.available_bytes < GIB
    found = diagnose(one.log_path.read_text())
    assert found.cause == "watchdog_stopped"
    assert "jetson-specdec: watchdog stopped the server: 0.1 GiB available, floor 1.0 GiB" in one.log_path.read_text()


def test_memory_counts_as_back_within_the_policys_band():
    before = MemorySample(total_bytes=100 * GIB, available_bytes=50 * GIB)
    policy = Policy(cooldown_memory_band=0.02)
    for now, back in ((50, True), (48, True), (47, False), (60, True)):
        sample = MemorySample(total_bytes=100 * GIB, available_bytes=now * GIB)
        assert memory_is_back(before, sample, policy) is back
    assert memory_is_back(before, MemorySample(), policy) is None


def test_what_does_not_come_back_is_a_finding_not_an_error(host, port):
    before = MemorySample(total_bytes=int(61.4 * GIB), available_bytes=60 * GIB)
    done = wait_until_back(port, before, host=host, policy=Policy(), timeout_s=0.0)
    assert (done.port_free, done.memory_back) == (True, False)
    assert [finding.topic for finding in done.findings] == ["memory-not-back"]
