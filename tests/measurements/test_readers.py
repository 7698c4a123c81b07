# SPDX-License-Identifier: Apache-2.0
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import ReportError
from jetson_specdec.extensions import load_plugins
from jetson_specdec.measurements import BenchReport, Run, read_report, reader_names

STDOUT = """\
Namespace(subparser='bench', dataset_name='random', num_prompts=12, random_input_len=256, random_output_len=32, \
max_concurrency=4, model='org/target', num_warmups=3, seed=7, temperature=0.0, ignore_eos=False)
============ Serving Benchmark Result ============
Successful requests:                     12
Failed requests:                         0
Maximum request concurrency:             4
Benchmark duration (s):                  8.00
Total input tokens:                      3072
Total generated tokens:                  384
Output token throughput (tok/s):         48.00
Peak output token throughput (tok/s):    12.00
---------------Time to First Token----------------
Mean TTFT (ms):                          101.00
Median TTFT (ms):                        99.50
P99 TTFT (ms):                           140.25
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          33.00
Median TPOT (ms):                        31.75
P99 TPOT (ms):                           44.00
---------------Inter-token Latency----------------
Median ITL (ms):                         70.10
P99 ITL (ms):                            90.00
----------------End-to-end Latency----------------
Median E2EL (ms):                        1083.75
---------------Speculative Decoding---------------
Acceptance rate (%):                     40.00
Acceptance length:                       1.80
Drafts:                                  200
Draft tokens:                            400
Accepted tokens:                         160
Per-position acceptance (%):
  Position 0:                            55.00
  Position 1:                            25.00
==================================================
"""

RESULT = {
    "backend": "openai", "model_id": "org/target", "num_prompts": 2, "max_concurrency": 1, "duration": 4.0,
    "completed": 2, "failed": 0, "total_input_tokens": 40, "total_output_tokens": 40, "output_throughput": 10.0,
    "median_ttft_ms": 90.0, "median_tpot_ms": 95.0, "p99_tpot_ms": 99.0, "median_itl_ms": 95.0, "p50_e2el_ms": 1895.0,
    "ttfts": [0.1, 0.08], "itls": [[0.2, 0.2], [0.05] * 19], "input_lens": [20, 20], "output_lens": [5, 20],
    "start_times": [100.0, 102.5], "errors": ["", ""],
}  # fmt: skip

WRAPPER = {
    "skill": "jetson-llm-benchmark", "runtime": "vllm", "model": "org/target", "sku": "thor", "generation": "thor",
    "product_line": "thor-agx", "variant": "thor-t5000", "l4t": "38.4.0", "benchmark_mode": "native", "container": "",
    "config": {"input_len": 2048, "output_len": 128, "num_prompts": 50},
    "runs": [
        {"concurrency": 1, "ttft_ms_p50": 40.0, "ttft_ms_p99": 0.0, "itl_ms_p50": 20.0, "itl_ms_p99": 0.0,
         "tpot_ms_p50": 20.5, "throughput_tok_s": 47.0, "e2e_latency_ms_p50": 0.0},
    ],
    "warnings": ["nvpmodel is MODE_30W (id 2); MAXN/MAXN_* preferred for comparable results"],
}  # fmt: skip

GUIDELLM = {
    "args": {"data": ["prompt_tokens=10,output_tokens=20"], "model": "org/target"},
    "benchmarks": [
        {"config": {"strategy": {"type_": kind, **more}}, "duration": 9.0,
         "metrics": {
             "request_totals": {"successful": 6, "errored": 0},
             "time_to_first_token_ms": {"successful": {"median": 51.0, "percentiles": {"p99": 77.0}}},
             "inter_token_latency_ms": {"successful": {"median": 8.5}},
             "time_per_output_token_ms": {"successful": {"median": 11.0}},
             "output_tokens_per_second": {"successful": {"mean": 88.0}, "total": {"mean": 1.0}},
             "request_latency": {"successful": {"median": 1.25}},
             "prompt_token_count": {"successful": {"mean": 10.0}},
             "output_token_count": {"successful": {"total_sum": 120.0}},
         },
         "requests": {"successful": [
             {"request_start_time": 11.0, "request_latency": 1.5, "time_to_first_token_ms": 50.0,
              "inter_token_latency_ms": 8.0, "prompt_tokens": 10, "output_tokens": 20},
             {"request_start_time": 10.0, "request_latency": 1.0, "time_to_first_token_ms": 52.0,
              "inter_token_latency_ms": 9.0, "prompt_tokens": 10, "output_tokens": 20},
         ]}}
        for kind, more in (("synchronous", {}), ("concurrent", {"streams": 8}), ("constant", {"rate": 3}))
    ],
}  # fmt: skip

AIPERF = {
    "input_config": {"endpoint": {"model_names": ["org/target"]}, "loadgen": {"concurrency": 2, "request_count": 10}},
    "request_count": {"unit": "requests", "avg": 9.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 60.0},
    "time_to_first_token": {"unit": "sec", "p50": 0.125},
    "inter_token_latency": {"unit": "ms", "p50": 12.0, "p99": 18.0},
    "inter_chunk_latency": {"unit": "ms", "p50": 30.0},
    "request_latency": {"unit": "us", "p50": 1_500_000.0},
    "output_sequence_length": {"unit": "tokens", "avg": 100.0},
}


def test_text_output_of_the_engines_benchmark():
    report = read_report(STDOUT)
    assert report.source_format == "vllm_bench_stdout"
    assert (report.model, report.config.dataset, report.config.seed) == ("org/target", "random", 7)
    assert (report.config.temperature, report.config.ignore_eos, report.config.warmup_requests) == (0.0, True, 3)
    run = report.run_at(4)
    assert (run.throughput_tok_s, run.tpot_ms_p50, run.tpot_ms_p99, run.ttft_ms_p50) == (48.0, 31.75, 44.0, 99.5)
    assert (run.e2e_latency_ms_p50, run.itl_ms_p50) == (1083.75, 70.1)
    assert (run.completed, run.failed, run.input_tokens_per_request, run.output_tokens_per_request) == (12, 0, 256, 32)
    assert (run.acceptance.rate, run.acceptance.mean_length) == (0.4, 1.8)
    assert run.acceptance.per_position == pytest.approx((0.55, 0.25))


def test_old_layout_lacks_lines_and_that_is_unknown_not_zero():
    old = STDOUT.replace("Failed requests:                         0\n", "")
    old = old[: old.index("---------------Speculative")]
    run = read_report(old).run_at(4)
    assert (run.failed, run.acceptance) == (None, None)


def test_two_blocks_are_two_runs_and_the_same_concurrency_twice_is_refused():
    other = STDOUT.replace("concurrency:             4", "concurrency:             8")
    assert [run.concurrency for run in read_report(STDOUT + other).runs] == [4, 8]
    with pytest.raises(ReportError) as caught:
        read_report(STDOUT + STDOUT)
    assert caught.value.code == "JSE606"


def test_result_file_with_raw_lists():
    report = read_report(json.dumps(RESULT))
    assert report.source_format == "vllm_bench_json"
    assert report.run_at(1).e2e_latency_ms_p50 == 1895.0
    first, second = report.requests
    # 100 ms + 400 ms; five tokens came in three pieces: 400 ms ÷ 4.
    assert (first.e2e_ms, first.tpot_ms, first.chunks) == (pytest.approx(500.0), pytest.approx(100.0), 3)
    assert (second.start_s, second.tpot_ms) == (2.5, pytest.approx(50.0))


def test_result_file_with_percentages_of_acceptance():
    counts = {"spec_decode_num_drafts": 50, "spec_decode_draft_tokens": 100, "spec_decode_accepted_tokens": 60}
    rates = {"spec_decode_acceptance_rate": 60.0, "spec_decode_per_position_acceptance_rates": [0.7, 0.5]}
    acceptance = read_report(json.dumps({**RESULT, **counts, **rates})).run_at(1).acceptance
    assert (acceptance.rate, acceptance.mean_length, acceptance.per_position) == (0.6, 2.2, (0.7, 0.5))
    assert read_report(json.dumps({**RESULT, **rates})).run_at(1).acceptance.rate == 0.6
    idle = dict.fromkeys(counts, 0)
    assert read_report(json.dumps({**RESULT, **idle})).run_at(1).acceptance.state == "idle"


def test_result_file_with_several_runs_and_with_failures():
    other = {**RESULT, "max_concurrency": 8, "completed": 1}
    del other["failed"]
    for text in (json.dumps([RESULT, other]), json.dumps(RESULT) + "\n" + json.dumps(other)):
        report = read_report(text)
        assert [run.concurrency for run in report.runs] == [1, 8]
        assert report.run_at(8).failed == 1


def test_nan_is_missing():
    text = json.dumps(RESULT).replace('"median_tpot_ms": 95.0', '"median_tpot_ms": NaN')
    assert read_report(text).run_at(1).tpot_ms_p50 is None


def test_wrapper_zeros_are_missing():
    dead = {**WRAPPER["runs"][0], "concurrency": 8}
    dead.update({key: 0.0 for key in dead if key != "concurrency"})
    report = read_report(json.dumps({**WRAPPER, "runs": [*WRAPPER["runs"], dead]}))
    assert report.source_format == "jetson_llm_benchmark"
    assert report.run_at(1).e2e_latency_ms_p50 is None
    assert report.run_at(1).throughput_tok_s == 47.0
    assert not report.run_at(8).measured
    assert [finding.topic for finding in report.findings] == ["zero-is-missing", "run-empty"]
    assert (report.conditions.power_mode, report.conditions.power_mode_is_max) == ("MODE_30W", False)
    assert (report.variant, report.container, report.config.input_len) == ("thor-t5000", None, 2048)


def test_wrapper_siblings_have_metrics_instead_of_runs():
    sibling = {key: value for key, value in WRAPPER.items() if key != "runs"}
    sibling.update(runtime="ollama", metrics={"throughput_tok_s": 11.0})
    assert read_report(json.dumps(sibling)).run_at(1).throughput_tok_s == 11.0


def test_guidellm_reads_the_successful_section_and_the_right_tpot():
    report = read_report(json.dumps(GUIDELLM))
    assert report.source_format == "guidellm"
    assert [run.concurrency for run in report.runs] == [1, 8]
    run = report.run_at(8)
    assert (run.tpot_ms_p50, run.throughput_tok_s, run.e2e_latency_ms_p50) == (8.5, 88.0, 1250.0)
    assert (run.ttft_ms_p99, run.total_input_tokens, run.total_output_tokens) == (77.0, 60, 120)
    assert report.config.dataset == "random"
    first = report.requests_at(1)[0]
    assert (first.start_s, first.e2e_ms, first.tpot_ms) == (0.0, 1000.0, 9.0)


def test_guidellm_errors_disagreeing_take_the_higher_count():
    data = json.loads(json.dumps(GUIDELLM))
    data["benchmarks"][0]["scheduler_state"] = {"errored_requests": 4, "successful_requests": 6}
    data["benchmarks"][0]["metrics"]["request_totals"]["errored"] = 3
    assert read_report(json.dumps(data)).run_at(1).failed == 4


def test_aiperf_reads_units_and_counts_what_is_missing_as_failed():
    report = read_report(json.dumps(AIPERF))
    assert report.source_format == "aiperf"
    run = report.run_at(2)
    assert (run.ttft_ms_p50, run.tpot_ms_p50, run.itl_ms_p50, run.e2e_latency_ms_p50) == (125.0, 12.0, 30.0, 1500.0)
    assert (run.throughput_tok_s, run.completed, run.failed, run.total_output_tokens) == (60.0, 9, 1, 900)


def test_predecessor_of_aiperf_says_its_concurrency_elsewhere():
    data = {**AIPERF, "input_config": {"perf_analyzer": {"stimulus": {"concurrency": 16}}, "model_names": ["org/t"]}}
    report = read_report(json.dumps(data))
    assert (report.runs[0].concurrency, report.model) == (16, "org/t")


def test_aiperf_records_are_no_report():
    line = {"metadata": {"session_num": 0}, "metrics": {"inter_token_latency": {"value": 5.0, "unit": "ms"}}}
    with pytest.raises(ReportError) as caught:
        read_report(json.dumps(line) + "\n" + json.dumps(line) + "\n")
    assert caught.value.code == "JSE614"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", "JSE603"),
        ("{}\n", "JSE602"),
        ("[]\n", "JSE602"),
        ("hello\nworld\n", "JSE602"),
        ("-----Speculative Decoding----\nAcceptance length:   1.5\n", "JSE605"),
        (json.dumps({key: value for key, value in RESULT.items() if key != "max_concurrency"}), "JSE613"),
        (json.dumps({**WRAPPER, "runs": []}), "JSE605"),
        (json.dumps({**AIPERF, "input_config": {}}), "JSE613"),
        (json.dumps({"benchmarks": [GUIDELLM["benchmarks"][2]]}), "JSE613"),
        ("[" * 100_000, "JSE603"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(text, code):
    with pytest.raises(ReportError) as caught:
        read_report(text)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_files(tmp_path):
    path = tmp_path / "report with a misleading name.csv"
    path.write_text(json.dumps(AIPERF), encoding="utf-8")
    assert read_report(path).source_format == "aiperf"
    assert read_report(str(path)).source_format == "aiperf"
    path.write_text(STDOUT, encoding="utf-16")
    assert read_report(path).source_format == "vllm_bench_stdout"
    path.write_text("\ufeff" + json.dumps(RESULT), encoding="utf-8")
    assert read_report(path).source_format == "vllm_bench_json"
    path.write_bytes(b"")
    for place, code in ((path, "JSE619"), (tmp_path, "JSE601"), (tmp_path / "absent", "JSE601")):
        with pytest.raises(ReportError) as caught:
            read_report(place)
        assert caught.value.code == code
        assert str(place) in str(caught.value)


def test_several_files_are_one_arm(tmp_path):
    for concurrency in (8, 1):
        data = {**AIPERF, "input_config": {**AIPERF["input_config"], "loadgen": {"concurrency": concurrency}}}
        (tmp_path / f"c{concurrency}.json").write_text(json.dumps(data), encoding="utf-8")
    report = read_report([tmp_path / "c8.json", tmp_path / "c1.json"])
    assert [run.concurrency for run in report.runs] == [1, 8]


def test_a_named_format_must_fit():
    assert read_report(json.dumps(AIPERF), format="aiperf").source_format == "aiperf"
    with pytest.raises(ReportError) as caught:
        read_report(json.dumps(AIPERF), format="guidellm")
    assert caught.value.code == "JSE609"
    with pytest.raises(ReportError) as caught:
        read_report(json.dumps(AIPERF), format="other")
    assert caught.value.code == "JSE604"


class OtherReader:
    name = "other"

    def recognises(self, text, data):
        return text.startswith("other ")

    def read(self, text, data, where):
        if "broken" in text:
            raise ZeroDivisionError("oops")
        return BenchReport(runs=(Run(concurrency=1, throughput_tok_s=float(text.split()[1])),), source_format="other")


class RaisingReader(OtherReader):
    name = "raising"

    def recognises(self, text, data):
        raise RuntimeError("cannot look")


@pytest.fixture
def plugins(monkeypatch):
    def point(name, load):
        return SimpleNamespace(name=name, load=load)

    def fail():
        raise ImportError("no such module")

    points = [
        point("a-missing", fail),
        point("b-not-a-reader", lambda: object()),
        point("c-raising", lambda: RaisingReader),
        point("d-other", lambda: OtherReader),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


@pytest.mark.usefixtures("plugins")
def test_third_party_reader_is_found_and_broken_ones_are_named():
    report = read_report("other 12.5\n")
    assert report.run_at(1).throughput_tok_s == 12.5
    assert [finding.values["name"] for finding in report.findings] == ["a-missing", "b-not-a-reader", "raising"]
    assert reader_names()[-1] == "other"
    assert read_report("other 1\n", format="other").source_format == "other"
    # Ours are asked first and never load them.
    assert read_report(STDOUT).findings == ()
    with pytest.raises(ReportError) as caught:
        read_report("other broken\n")
    assert caught.value.code == "JSE610"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([RESULT, WRAPPER, GUIDELLM, AIPERF]), st.data())
def test_no_value_of_another_tool_breaks_a_reader(original, data):
    spoiled = json.loads(json.dumps(original))
    place = spoiled
    while isinstance(place, (dict, list)) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(json_values)
            break
        place = place[key]
    refused = ""
    try:
        report = read_report(json.dumps(spoiled))
        assert BenchReport.from_json(json.dumps(report.to_json(), allow_nan=False)) == report
    except ReportError as error:
        refused = str(error)
    assert "\n" not in refused


# --- texts as they come out of terminals, containers and other locales ------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        lambda line: f"\x1b[32m{line}\x1b[0m",
        lambda line: line.replace(":  ", ":\x1b[0m  ", 1),
        lambda line: f"bench-1  | {line}",
        lambda line: f"2026-01-02T03:04:05.678901234Z {line}",
        lambda line: f"[2026-01-02 03:04:05] {line}",
        lambda line: f"2026-01-02T03:04:05Z stdout F {line}",
        lambda line: f"2026-01-02 03:04:05,678 - INFO - {line}",
        lambda line: f"Jan 02 03:04:05 board bench[17]: {line}",
        lambda line: f"> {line}",
        lambda line: f"  # {line}\r",
        lambda line: json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-02T03:04:05Z"}),
    ],
)
def test_what_stands_around_a_line_changes_nothing(wrap):
    arguments, block = STDOUT.split("\n", 1)
    wrapped = "\n".join([arguments, *map(wrap, block.splitlines())])
    assert read_report(wrapped) == read_report(STDOUT)


@pytest.mark.parametrize("figure", ["48,00", "1.234,50", "4..8", "4,8", "0.48.0", "-48.00", "48.00 tok", "x"])
def test_a_figure_in_another_notation_is_missing_not_misread(figure):
    run = read_report(STDOUT.replace("48.00", figure, 1)).run_at(4)
    assert (run.throughput_tok_s, run.tpot_ms_p50) == (None, 31.75)


@pytest.mark.parametrize(("figure", "value"), [("1,048.50", 1048.5), ("4.8e+01", 48.0), ("48.", 48.0), ("48", 48.0)])
def test_notations_of_python_are_read(figure, value):
    assert read_report(STDOUT.replace("48.00", figure, 1)).run_at(4).throughput_tok_s == value


@pytest.mark.parametrize("line", ["vLLM version: 0.20.1", "Host: 127.0.0.1", "Elapsed: 1..2", "Labels: a: b:"])
def test_other_lines_after_the_block_are_ignored(line):
    assert read_report(STDOUT + line + "\n") == read_report(STDOUT)


@pytest.mark.parametrize(
    "flood", ["Namespace(" * 200_000, "A" + "(" * 2_000_000, "model='" * 200_000, "A: " * 500_000, "- " * 500_000]
)
def test_hostile_texts_are_read_in_passing(flood):
    for text in (f"{flood}\n{STDOUT}", f"{STDOUT}{flood}\n"):
        assert read_report(text).run_at(4).throughput_tok_s == 48.0


@pytest.mark.parametrize("warnings", [5, None, {"a": 1}, [1, {}], "one", ["one", 2]])
def test_warnings_of_any_shape_are_no_error(warnings):
    report = read_report(json.dumps(WRAPPER | {"warnings": warnings}))
    assert report.warnings == (("one",) if warnings in ("one", ["one", 2]) else ())


def test_load_and_endpoint_are_read():
    slow = read_report(json.dumps(RESULT | {"request_rate": 0.5, "backend": "openai-chat"}))
    assert (slow.config.request_rate, slow.config.endpoint) == (0.5, "chat")
    fast = read_report(json.dumps(RESULT | {"request_rate": "inf"}))
    assert (fast.config.request_rate, fast.config.endpoint) == (None, "completions")
    printed = STDOUT.replace("Benchmark duration", "Request rate configured (RPS):           0.25\nBenchmark duration")
    assert read_report(printed).config.request_rate == 0.25
