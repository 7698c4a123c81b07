# SPDX-License-Identifier: Apache-2.0
import json

import attrs
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements import (
    Acceptance,
    BenchConfig,
    BenchReport,
    Conditions,
    RequestRecord,
    Run,
    decode_share,
    merge_reports,
    read_report,
)
from jetson_specdec.measurements.serial import schema

number = st.none() | st.floats(0, 1e9, allow_nan=False)
whole = st.none() | st.integers(0, 10**9)
text = st.none() | st.text(max_size=12)
acceptances = st.none() | st.builds(
    Acceptance,
    rate=st.none() | st.floats(0, 1),
    mean_length=st.none() | st.floats(1, 5),
    per_position=st.none() | st.lists(st.floats(0, 1), min_size=4, max_size=8).map(tuple),
    state=st.sampled_from([None, "active", "idle", "reset", "absent", "legacy"]),
    drafts=number,
    source=text,
)
records = st.builds(
    RequestRecord,
    concurrency=st.integers(1, 64),
    index=st.integers(0, 1000),
    prompt_id=text,
    category=text,
    ttft_ms=number,
    output_tokens=whole,
    ok=st.booleans(),
    token_ids=st.none() | st.lists(st.integers(0, 10**6), max_size=5).map(tuple),
    acceptance=acceptances,
)
run_lists = st.lists(
    st.builds(
        Run,
        concurrency=st.integers(1, 64),
        ttft_ms_p50=number,
        tpot_ms_p50=number,
        throughput_tok_s=number,
        completed=whole,
        acceptance=acceptances,
    ),
    max_size=4,
    unique_by=lambda run: run.concurrency,
)
reports = st.builds(
    BenchReport,
    model=text,
    variant=text,
    config=st.builds(BenchConfig, input_len=whole, temperature=number, ignore_eos=st.none() | st.booleans()),
    runs=run_lists.map(tuple),
    warnings=st.lists(st.text(max_size=10), max_size=3).map(tuple),
    acceptance=acceptances,
    conditions=st.builds(
        Conditions,
        power_mode=text,
        throttled=st.none() | st.booleans(),
        speculative_config=st.none() | st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5)),
    ),
    requests=st.lists(records, max_size=4).map(tuple),
    findings=st.just(()) | st.just((Finding.of("JSD602", concurrencies=[8]),)),
)


SCHEMA = jsonschema.Draft202012Validator(schema())


@given(reports)
@settings(max_examples=40)
def test_round_trip_through_text(report):
    text = json.dumps(report.to_json(), allow_nan=False)
    assert BenchReport.from_json(text) == report
    assert read_report(text) == report
    assert list(SCHEMA.iter_errors(json.loads(text))) == []


def small():
    return BenchReport(model="org/m", runs=(Run(concurrency=1, throughput_tok_s=10.0),)).to_json()


def test_the_contract_keys_stand_where_jetson_llm_benchmark_puts_them():
    data = small()
    for key in (
        "skill", "runtime", "model", "sku", "generation", "product_line", "variant", "l4t", "benchmark_mode",
        "container", "config", "runs", "warnings", "acceptance", "conditions", "requests", "schema_version",
    ):  # fmt: skip
        assert key in data
    assert {"input_len", "output_len", "num_prompts"} <= set(data["config"])
    run = data["runs"][0]
    assert run["throughput_tok_s"] == 10.0
    # A missing number is null, never 0.
    for key in ("ttft_ms_p50", "ttft_ms_p99", "itl_ms_p50", "itl_ms_p99", "tpot_ms_p50", "e2e_latency_ms_p50"):
        assert run[key] is None


def test_schema_names_every_field():
    document = schema()
    jsonschema.Draft202012Validator.check_schema(document)
    assert set(document["properties"]) == {field.name for field in attrs.fields(BenchReport)}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**small(), "surprise": 1}, document)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.update(surprise=1),
        lambda data: data["runs"][0].update(throughput_tok_s="10"),
        lambda data: data["runs"][0].update(concurrency=1.0),
        lambda data: data["runs"][0].update(concurrency=True),
        lambda data: data["runs"].append(dict(data["runs"][0])),
        lambda data: data.update(schema_version=2),
        lambda data: data.update(schema_version=True),
        lambda data: data.pop("schema_version"),
        lambda data: data.update(runs="none"),
        lambda data: data.update(findings=[{"code": "JSD602"}]),
        lambda data: data["conditions"].update(speculative_config=[]),
        lambda data: data["conditions"].update(throttled=1),
    ],
)
def test_own_format_is_read_strictly_and_refused_in_one_line(spoil):
    data = small()
    spoil(data)
    with pytest.raises(ReportError) as caught:
        BenchReport.from_json(data)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "{", "[1", "nonsense", "null", '{"runs": []}', "\x00"])
def test_own_format_refuses_other_texts(text):
    with pytest.raises(ReportError):
        BenchReport.from_json(text)


def test_decode_share_uses_the_measured_end_to_end_time():
    run = Run(
        concurrency=1, ttft_ms_p50=500.0, tpot_ms_p50=20.0, e2e_latency_ms_p50=2000.0, completed=10,
        total_output_tokens=510,
    )  # fmt: skip
    # n = 51: 50 · 20 ms = 1000 ms of 2000 ms.
    assert decode_share(BenchReport(runs=(run,))) == pytest.approx(0.5)
    # Missing: TTFT + decoding = 1500 ms.
    assert decode_share(BenchReport(runs=(attrs.evolve(run, e2e_latency_ms_p50=None),))) == pytest.approx(1000 / 1500)
    # A median answer much shorter than the mean one must not give more than the whole.
    assert decode_share(BenchReport(runs=(attrs.evolve(run, e2e_latency_ms_p50=900.0),))) == pytest.approx(1000 / 1500)


@pytest.mark.parametrize(
    "run",
    [
        Run(concurrency=8, ttft_ms_p50=500.0, tpot_ms_p50=20.0),
        Run(concurrency=1, ttft_ms_p50=500.0),
        Run(concurrency=1, tpot_ms_p50=20.0),
    ],
)
def test_decode_share_is_unknown_without_its_figures(run):
    assert decode_share(BenchReport(config=BenchConfig(output_len=64), runs=(run,))) is None
    assert decode_share(BenchReport(runs=(Run(concurrency=1, ttft_ms_p50=1.0, tpot_ms_p50=1.0),))) is None


def test_merge_joins_concurrencies_and_fills_gaps():
    one = BenchReport(model="org/m", config=BenchConfig(seed=1), runs=(Run(concurrency=8),))
    two = BenchReport(model="org/m", l4t="38.4.0", config=BenchConfig(dataset="ours"), runs=(Run(concurrency=1),))
    merged = merge_reports([one, two])
    assert [run.concurrency for run in merged.runs] == [1, 8]
    assert (merged.l4t, merged.config.seed, merged.config.dataset) == ("38.4.0", 1, "ours")


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([], "JSE611"),
        ([BenchReport(runs=(Run(concurrency=1),)), BenchReport(runs=(Run(concurrency=1),))], "JSE606"),
        ([BenchReport(model="a"), BenchReport(model="b")], "JSE612"),
    ],
)
def test_merge_refuses_what_is_not_one_arm(reports, code):
    with pytest.raises(ReportError) as caught:
        merge_reports(reports)
    assert caught.value.code == code


def test_merge_keeps_settings_that_agree_and_conditions_that_held_once():
    one = BenchReport(
        config=BenchConfig(num_prompts=100, seed=1),
        conditions=Conditions(throttled=True, swap_growth_bytes=5, memory_available_min_bytes=7),
        runs=(Run(concurrency=8),),
    )
    two = BenchReport(
        config=BenchConfig(num_prompts=20, seed=1),
        conditions=Conditions(throttled=False, swap_growth_bytes=9, memory_available_min_bytes=8),
        runs=(Run(concurrency=1),),
        acceptance=Acceptance(state="active", rate=0.5),
    )
    merged = merge_reports([one, two])
    assert (merged.config.num_prompts, merged.config.seed) == (None, 1)
    conditions = merged.conditions
    assert (conditions.throttled, conditions.swap_growth_bytes, conditions.memory_available_min_bytes) == (True, 9, 7)
    assert (merged.run_at(1).acceptance.rate, merged.run_at(8).acceptance, merged.acceptance) == (0.5, None, None)


def test_acceptance_from_counts():
    found = Acceptance.from_counts(
        drafts=100, drafted_tokens=300, accepted_tokens=150, accepted_per_position=(80, 50, 20)
    )
    assert (found.rate, found.mean_length, found.per_position, found.state) == (0.5, 2.5, (0.8, 0.5, 0.2), "active")
    assert Acceptance.from_counts(drafts=0, drafted_tokens=0, accepted_tokens=0).state == "idle"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda data: data["runs"][0].update(throughput_tok_s=-28.0), "runs[0].throughput_tok_s"),
        (lambda data: data["runs"][0].update(concurrency=-1), "runs[0].concurrency"),
        (lambda data: data["runs"][0].update(concurrency=0), "runs[0].concurrency"),
        (lambda data: data["requests"][0].update(tpot_ms=-5.0), "requests[0].tpot_ms"),
        (lambda data: data["requests"][0].update(chunk_times_ms=[1.0, -2.0]), "requests[0].chunk_times_ms"),
        (lambda data: data["config"].update(output_len=-1), "config.output_len"),
        (lambda data: data.update(acceptance=ACCEPTED | {"rate": 80.0}), "acceptance.rate"),
        (lambda data: data.update(acceptance=ACCEPTED | {"per_position": [2.0]}), "acceptance.per_position"),
        (lambda data: data.update(acceptance=ACCEPTED | {"mean_length": 9.0}), "acceptance.mean_length"),
        (lambda data: data["runs"][0].update(acceptance=ACCEPTED | {"accepted_tokens": 900.0}),
         "runs[0].acceptance.accepted_tokens"),
    ],
)  # fmt: skip
def test_figures_that_no_measurement_gives_are_refused(change, place):
    run = Run(concurrency=1, throughput_tok_s=20.0, tpot_ms_p50=50.0)
    record = RequestRecord(concurrency=1, index=0, start_s=-0.001, tpot_ms=50.0, chunk_times_ms=(1.0,))
    data = json.loads(json.dumps(BenchReport(runs=(run,), requests=(record,)).to_json()))
    assert BenchReport.from_json(data).runs == (run,)
    change(data)
    with pytest.raises(ReportError) as caught:
        BenchReport.from_json(data)
    assert (caught.value.code, caught.value.values["place"]) == ("JSE624", place)


ACCEPTED = {
    "rate": 0.5, "mean_length": 2.0, "per_position": [0.7, 0.3], "state": "active", "drafts": 100.0,
    "drafted_tokens": 200.0, "accepted_tokens": 100.0, "source": "metrics",
}  # fmt: skip


def test_figures_at_the_edge_are_read():
    for rate, length, positions in ((0.0, 1.0, [0.0, 0.0]), (1.0, 3.0, [1.0, 1.0])):
        figures = ACCEPTED | {"rate": rate, "mean_length": length, "per_position": positions, "accepted_tokens": None}
        data = BenchReport(runs=(Run(concurrency=1),)).to_json() | {"acceptance": figures}
        assert BenchReport.from_json(data).acceptance.rate == rate
