# SPDX-License-Identifier: Apache-2.0
"""Kinds of failure, several messages of each: an answer must not hang on one wording, one wrapper or one collector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jetson_specdec.logs import diagnose
from jetson_specdec.logs.lines import read_line

DATA = json.loads((Path(__file__).parents[1] / "data" / "logs" / "kinds.json").read_text(encoding="utf-8"))
FAILURES = [
    pytest.param(case, id=f"{kind}-{number}")
    for kind, cases in DATA["failures"].items()
    for number, case in enumerate(cases)
]
UP = "(APIServer pid=1) INFO:     Application startup complete.\n"
SERVED = '(APIServer pid=1) INFO:     10.1.1.2:5000 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
NO_CACHE = (
    "(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1108] ValueError: No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization`.\n"
)


@pytest.mark.parametrize("case", FAILURES)
def test_a_kind(case):
    found = diagnose("\n".join(case["text"]))
    assert (found.started_ok, found.cause, found.remedy) == (False, case["cause"], case["remedy"])
    assert {name: found.values.get(name) for name in case["values"]} == case["values"]
    assert found.evidence
    assert found.next_steps


@pytest.mark.parametrize("case", FAILURES)
def test_the_same_lines_before_a_start_that_came_up_are_history(case):
    later = UP.replace("APIServer pid=1", "APIServer pid=9") + SERVED
    found = diagnose("\n".join(case["text"]) + "\n" + later)
    assert (found.started_ok, found.cause, found.remedy) == (True, "none", "none")


@pytest.mark.parametrize("name", sorted(DATA["speculation"]))
def test_whether_speculation_has_to_do_with_it(name):
    case = DATA["speculation"][name]
    assert diagnose("\n".join(case["text"])).speculation_involved is case["speculation"]


def test_a_server_that_speculates_says_so_after_its_first_counters():
    counters = (
        "(APIServer pid=1) INFO 05-06 07:08:00 [loggers.py:1] Engine 000: Avg generation throughput: 40.0 tokens/s\n"
        "(APIServer pid=1) INFO 05-06 07:08:00 [metrics.py:1] SpecDecoding metrics: Mean acceptance length: 2.25\n"
    )
    died = "(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] EngineCore encountered a fatal error.\n"
    found = diagnose(counters + died)
    assert (found.cause, found.remedy, found.stage) == ("engine_failed", "drop_speculation", "serving")
    assert diagnose(counters).speculation_involved is True


@pytest.mark.parametrize("name", sorted(DATA["stops"]))
def test_a_server_that_somebody_stopped_has_not_failed(name):
    stop = "\n".join(DATA["stops"][name])
    found = diagnose(UP + SERVED + stop)
    assert (found.started_ok, found.cause, found.remedy) == (True, "none", "none")
    died = (
        "(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] EngineCore encountered a fatal error.\n"
        "(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] RuntimeError: CUDA error: unspecified launch failure\n"
    )
    assert diagnose(UP + SERVED + died + stop).started_ok is False


KNOWN = {
    "docker desktop": "2027-02-11 08:00:01.735 | ",
    "a table of a supervisor": "2027-02-11 08:00:01 | ERROR | stderr | ",
    "what is left of a column": "  | [2027-02-11T08:00:01Z] ",
    "torch": "[rank0]: ",
    "a German board": "Mär 11 08:00:01 board vllm[71]: ",
    "a French board": "févr. 11 08:00:01 board vllm[71]: ",
    "a Chinese board": "3月 11 08:00:01 board vllm[71]: ",
    "journald in full": "Thu 2027-02-11 08:00:01 UTC board vllm[71]: ",
    "journald in seconds": "1802332801.123456 board vllm[71]: ",
}
UNKNOWN = {
    "a numbered search": "  Line 118: ",
    "a quotation": "> ",
    "a job of a cluster": "[2027-02-11T08:00:01+08:00] llm-8b-7f9c >> ",
    "stern": "llm-0 vllm ",
}


@pytest.mark.parametrize("prefix", [*KNOWN.values(), *UNKNOWN.values()], ids=[*KNOWN, *UNKNOWN])
def test_a_prefix_ends_where_the_line_of_the_engine_begins(prefix):
    texts = [
        "(EngineCore pid=5) ERROR 02-11 08:00:01 [core.py:1] message",
        "ERROR 02-11 08:00:01 [core.py:1] message",
        "INFO 02-11 08:00:01 engine.py:366] message",
    ]
    if prefix in KNOWN.values():
        texts.append("ValueError: message")
    for text in texts:
        plain, wrapped = read_line(text), read_line(prefix + text)
        assert plain.text.endswith("message")
        assert (wrapped.text, wrapped.level, wrapped.process) == (plain.text, plain.level, plain.process)


def test_lines_that_lost_their_time_or_their_number():
    assert read_line("(EngineCore) ERROR [core.py:1] message").text == "message"
    assert read_line("(Worker_PP0_TP1) INFO [gpu_worker.py:647] message").level == "INFO"
    assert read_line("(not a process) message").text == "(not a process) message"


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE", "line"])
def test_lines_that_a_collector_wrote_as_json(key):
    for body in (NO_CACHE, UP.replace("Application startup complete.", "Waiting.") + NO_CACHE):
        assert diagnose(json.dumps({key: body, "stream": "stderr"})).cause == "kv_cache_none"


@pytest.mark.parametrize("word", ["Getötet", "Tué", "Убито", "已杀死", "強制終了", "죽었음"])
def test_a_shell_of_another_language_in_escaped_json(word):
    lines = [
        "Loading safetensors checkpoint shards: 50% Completed | 1/2",
        f"start.sh: line 7:   41 {word}      vllm serve m",
    ]
    text = "\n".join(json.dumps({"log": line + "\n", "stream": "stderr"}) for line in lines)
    assert "\\u" in text
    assert diagnose(text).cause == diagnose("\n".join(lines)).cause == "host_oom_killed"


def test_a_log_that_lost_its_line_ends():
    lines = (
        "(EngineCore pid=41) INFO 05-06 07:08:01 [x.py:1] Model loading took 19.61 GiB memory and 7.1 seconds",
        "(EngineCore pid=41) ERROR 05-06 07:08:02 [core.py:1] EngineCore failed to start.",
        "(EngineCore pid=41) ERROR 05-06 07:08:02 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 2.00 GiB.",
    )
    apart, together = diagnose("\n".join(lines)), diagnose(" ".join(lines))
    assert (together.cause, together.remedy) == (apart.cause, apart.remedy) == ("oom_warmup", "lower_utilization")
    assert (together.values["model_gib"], together.values["tried_gib"]) == (19.61, 2.0)


def test_a_message_goes_on_in_its_own_process():
    said = (
        ("TP0", "ValueError: To serve at least one request with the model's max seq len (4096),"),
        ("TP1", "(9.9 GiB KV cache is needed, which is larger than the available KV cache memory (0.1 GiB)."),
        ("TP0", "(1.5 GiB KV cache is needed, which is larger than the available KV cache memory (1.25 GiB)."),
        ("TP0", "Based on the available memory, the estimated maximum model length is 3200."),
    )
    found = diagnose("\n".join(f"(Worker_{who} pid=1) ERROR 05-06 07:08:09 [x.py:1] {text}" for who, text in said))
    assert found.cause == "kv_cache_too_small"
    assert (found.values["kv_needed_gib"], found.values["feasible_max_model_len"]) == (1.5, 3200)


KV_SMALL = "\n".join(DATA["kv_small"])
MEMINFO = "MemTotal: 64000000 kB\nMemFree: 1000 kB\nMemAvailable: %d kB\n"


def kinds(found):
    return [step.kind for step in found.next_steps]


def test_what_else_helps_a_cache_that_is_too_small():
    assert kinds(diagnose(KV_SMALL)) == ["remedy-reduce-max-model-len-to", "otherwise-raise-utilization"]
    spec = ", 'speculative_config': {'method': 'eagle3', 'model': 'org/head', 'num_speculative_tokens': 3}}"
    assert kinds(diagnose(KV_SMALL.replace("}", spec, 1)))[-1] == "otherwise-drop-speculation"
    # More utilisation is no way out where that much memory is not there.
    assert "otherwise-raise-utilization" not in kinds(diagnose(KV_SMALL, meminfo=MEMINFO % 40_000_000))
    assert "otherwise-raise-utilization" in kinds(diagnose(KV_SMALL, meminfo=MEMINFO % 60_000_000))


def test_a_kill_is_the_kernel_s_only_where_something_says_so():
    loading = "(EngineCore pid=41) INFO 05-06 07:08:01 [x.py:1] Starting to load model org/m...\n"
    killed = "[ 981.2] Out of memory: Killed process 2210 (VLLM::EngineCor) total-vm:1kB, anon-rss:1kB\n"
    assumed = diagnose(loading + "Killed\n")
    assert (assumed.findings[0].code, kinds(assumed)[-1]) == ("JSD763", "ask-the-kernel")
    for proved in (
        diagnose(loading, dmesg=killed),
        diagnose(loading + killed),
        diagnose(loading + '"OOMKilled": true\n'),
        diagnose(loading + "vllm.service: A process of this unit has been killed by the OOM killer.\n"),
    ):
        assert (proved.findings[0].code, "ask-the-kernel" in kinds(proved)) == ("JSD718", False)


@pytest.mark.parametrize("case", DATA["numbers"], ids=lambda case: case["code"])
def test_the_finding_has_the_numbers_of_the_log(case):
    found = diagnose("(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] " + case["text"])
    message = next(finding.message for finding in found.findings if finding.code == case["code"])
    assert all(number in message for number in case["holds"])


@pytest.mark.parametrize("case", DATA["steps"], ids=lambda case: case["kind"])
def test_a_step_names_what_it_is_about(case):
    step = diagnose(case["text"]).next_steps[0]
    assert step.kind == case["kind"]
    assert case["holds"] in step.text


def healthy(noise=None):
    """A start that came up, with noise at one of its stages."""
    lines = []
    for stage in ("load", "warm", "up"):
        lines += DATA["healthy"][stage]
        if noise is not None and noise["at"] == stage:
            lines += noise["lines"]
    return lines


@pytest.mark.parametrize("name", sorted(DATA["noise"]))
def test_a_start_that_came_up_has_not_failed_whatever_it_said(name):
    lines = healthy(DATA["noise"][name])
    found = diagnose("\n".join(lines))
    assert (found.started_ok, found.cause, found.remedy, found.stage) == (True, "none", "none", "serving")
    # However the beginning or the end of the log was lost, it shows no failure.
    for cut in range(1, len(lines)):
        assert diagnose("\n".join(lines[cut:])).started_ok is True or cut > lines.index(DATA["healthy"]["up"][-1])
        assert diagnose("\n".join(lines[cut:])).started_ok is not False


@pytest.mark.parametrize("name", sorted(DATA["noise"]))
def test_noise_does_not_hide_what_really_happened(name):
    noise = DATA["noise"][name]
    if noise["at"] != "up":
        lines = healthy(noise)
        lines[lines.index(DATA["healthy"]["up"][0]) :] = NO_CACHE.split("\n")
        assert diagnose("\n".join(lines)).cause == "kv_cache_none"


def test_a_log_whose_beginning_is_missing_still_shows_a_server_that_was_up():
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    lines = (
        f"(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] {oom}",
        "(EngineCore pid=41) ERROR 05-06 07:08:09 [core.py:1] EngineCore encountered a fatal error.",
        "(APIServer pid=1) vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        '(APIServer pid=1) INFO:     10.0.0.2:1 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error',
        '(APIServer pid=1) INFO:     10.0.0.2:1 - "GET /metrics HTTP/1.1" 200 OK',
    )
    for text in ("\n".join(lines), "\n".join([lines[1], lines[0], *lines[2:]])):
        found = diagnose(text)
        assert (found.started_ok, found.cause, found.stage) == (False, "oom_warmup", "serving")


def test_the_driver_has_the_last_word_only_at_the_end():
    noise = DATA["noise"]["the driver complains and goes on"]["lines"]
    loading = DATA["healthy"]["load"]
    assert diagnose("\n".join([*loading, *noise])).cause == "driver_oom"
    going_on = diagnose("\n".join([*loading, *noise, *DATA["healthy"]["warm"]]))
    assert going_on.started_ok is None


@pytest.mark.parametrize("number", range(len(DATA["secrets"])))
def test_no_secret_of_a_line_reaches_the_answer(number):
    text = DATA["secrets"][number]
    found = diagnose(text, dmesg=f"[1.0] nvmap_alloc failed {text}")
    assert "swordfish-77" not in json.dumps(found.to_json())
    assert found.evidence
