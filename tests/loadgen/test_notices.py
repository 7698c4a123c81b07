# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import io

import pytest
from attrs import evolve

from jetson_specdec.loadgen import Progress
from jetson_specdec.loadgen.notices import findings_of
from jetson_specdec.loadgen.progress import print_progress
from jetson_specdec.measurements import BenchConfig, BenchReport, Conditions, RequestRecord, Run
from jetson_specdec.messages import explain

GOOD = BenchReport(
    config=BenchConfig(temperature=0.0, dataset="jetson-specdec"),
    runs=(Run(concurrency=1, completed=2, failed=0, prefix_cache_queries=100.0, prefix_cache_hits=2.0),),
    requests=tuple(
        RequestRecord(concurrency=1, index=index, output_tokens=9, finish_reason=reason)
        for index, reason in enumerate(("stop", "length"))
    ),
    conditions=Conditions(power_mode="MAXN", power_mode_is_max=True, throttled=False, swap_growth_bytes=0),
)
USUAL = {"reused": False, "counted_by_server": True, "metrics": True, "output_len": 64}


def conditions(**values):
    return evolve(GOOD, conditions=evolve(GOOD.conditions, **values))


FAILED = RequestRecord(concurrency=1, index=2, ok=False, error="ReadError")


@pytest.mark.parametrize(
    ("report", "options", "topic", "part"),
    [
        (GOOD, {}, None, None),
        (GOOD, {"reused": True}, "prompts-reused", "more than once"),
        (GOOD, {"counted_by_server": False}, "usage-missing", "/tokenize counted"),
        (
            evolve(GOOD, requests=(evolve(GOOD.requests[0], output_tokens=None), GOOD.requests[1])),
            {"counted_by_server": False},
            "usage-missing",
            "how many tokens 1 answer had is unknown",
        ),
        (GOOD, {"metrics": False}, "no-counters", "no /metrics page"),
        (evolve(GOOD, config=evolve(GOOD.config, dataset="random")), {}, "random-prompts", "real text"),
        (evolve(GOOD, config=evolve(GOOD.config, temperature=0.7)), {}, "temperature-not-zero", "0.7"),
        (
            evolve(GOOD, runs=(evolve(GOOD.runs[0], failed=1),), requests=(*GOOD.requests, FAILED)),
            {},
            "failed-requests",
            "1 of 3 requests at concurrency 1 failed (ReadError)",
        ),
        (evolve(GOOD, runs=(evolve(GOOD.runs[0], prefix_cache_hits=30.0),)), {}, "prefix-cache-hits", "30 %"),
        (
            evolve(GOOD, requests=tuple(evolve(r, finish_reason="stop") for r in GOOD.requests)),
            {},
            "early-stop",
            "9 tokens on average (64 were allowed)",
        ),
        (conditions(foreign_requests=True), {}, "foreign-requests", "of others"),
        (conditions(throttled=True, temperature_c_max=97.5), {}, "throttled", "97.5 °C"),
        (conditions(power_mode="30W", power_mode_is_max=False), {}, "power-mode-not-max", "30W"),
        (conditions(gpu_processes=("Xorg", "gst")), {}, "gpu-shared", "Xorg, gst"),
        (conditions(gpu_processes=()), {}, None, None),
        (conditions(swap_growth_bytes=2**30), {}, "swap-growth", "1.0 GiB"),
    ],
)
def test_each_notice(report, options, topic, part):
    found = findings_of(report, **{**USUAL, **options})
    assert [finding.topic for finding in found] == ([topic] if topic else [])
    for finding in found:
        assert part in finding.message
        assert "unknown" not in finding.message.replace("had is unknown", "").replace("are unknown", "")
        assert explain(finding.code)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal_only():
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        show = print_progress(stream)
        show(Progress(concurrency=8, total=2, done=1, elapsed_s=3.2))
        show(Progress(concurrency=8, total=2, done=2, failed=1, elapsed_s=6.0))
    assert pipe.getvalue() == ""
    assert terminal.getvalue().split("\r")[1:] == [
        "concurrency 8: 1/2 requests, 0 failed, 3 s",
        "concurrency 8: 2/2 requests, 1 failed, 6 s\n",
    ]
