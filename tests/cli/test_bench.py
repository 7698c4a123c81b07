# SPDX-License-Identifier: Apache-2.0
"""`bench` as a user meets it: a server on a socket, a simulated one, files, secrets, and bad input in one line."""

from __future__ import annotations

import io
import json

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.cli import main
from jetson_specdec.loadgen.nearby import on_this_machine
from jetson_specdec.measurements import BenchReport, read_report
from jetson_specdec.testing import FakeVllm, Fault, Truth

QUICK = ["--num-prompts", "3", "--output-len", "6"]
FAST = Truth(step_ms=2, prefill_ms_per_token=0.001)
KEY = "k3y-that-nobody-may-see"
EAGLE = '{"method": "eagle3", "model": "me/head", "num_speculative_tokens": 2}'


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "JETSON_SPECDEC_FAKE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def recipe(tmp_path):
    file = tmp_path / "serve.sh"
    file.write_text(f"vllm serve me/model --max-num-seqs 4 --speculative-config '{EAGLE}'\n")
    return file


def run(capsys, *words):
    code = main([str(word) for word in ("bench", *words)])
    out, err = capsys.readouterr()
    return code, out, err


def complaint(capsys, *words):
    code, out, err = run(capsys, *words)
    assert code == 2, (code, err)
    assert out == ""
    assert len(err.splitlines()) == 1, err
    assert err.startswith("jetson-specdec: ")
    return err


# --- a server on a socket --------------------------------------------------------------------------------------------


def test_a_server_is_measured_and_the_report_saved(capsys, tmp_path):
    out_file = tmp_path / "report.json"
    with FakeVllm(truth=FAST, model="me/model") as server:
        code, out, err = run(capsys, server.base_url, *QUICK, "--out", out_file)
    assert code == 0, err
    assert out.startswith("me/model: ")
    assert "without speculation" in out
    assert "concurrency 1: 3/3 requests, 0 failed" in err
    assert "concurrency 8: 3/3 requests, 0 failed" in err
    report = read_report(out_file)
    assert [each.concurrency for each in report.runs] == [1, 8]
    assert [each.completed for each in report.runs] == [3, 3]
    assert report.config.output_len == 6
    assert "simulated" not in {finding.topic for finding in report.findings}


def test_json_follows_its_schema_and_reads_back(capsys):
    with FakeVllm(truth=FAST) as server:
        code, out, _ = run(capsys, "--base-url", server.root_url, *QUICK, "--concurrency", "1", "2", "--json")
    assert code == 0
    document = json.loads(out)
    Draft202012Validator(schemas.load("bench-report")).validate(document)
    report = BenchReport.from_json(document)
    assert [each.concurrency for each in report.runs] == [1, 2]
    assert len(document["requests"]) == 6
    for key in ("acceptance", "conditions", "requests", "schema_version", "runs", "config"):
        assert key in document


def test_the_key_comes_from_the_environment_and_is_never_shown(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_KEY", KEY)
    out_file = tmp_path / "report.json"
    with FakeVllm(truth=FAST, api_key=KEY) as server:
        assert "401" in complaint(capsys, server.base_url, *QUICK)
        code, out, err = run(capsys, server.base_url, *QUICK, "--api-key-env", "MY_KEY", "--out", out_file)
        assert code == 0, err
        assert KEY not in out + err + out_file.read_text()
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert run(capsys, server.base_url, *QUICK)[0] == 0
    assert "NOT_THERE" in complaint(capsys, "--api-key-env", "NOT_THERE")


def test_the_recipe_goes_on_record_but_not_whether_it_speculates(capsys, recipe):
    """A configuration that did not reach the engine: the server, not the recipe, says whether it speculates."""
    with FakeVllm(truth=FAST) as server:
        code, out, err = run(capsys, server.base_url, *QUICK, "--recipe", recipe, "--json")
    assert code == 0, err
    conditions = json.loads(out)["conditions"]
    assert conditions["max_num_seqs"] == 4
    assert conditions["speculative_config"] == json.loads(EAGLE)
    assert conditions["speculation"] is False
    assert conditions["sources"]["max_num_seqs"] == "recipe"


def test_failed_requests_are_told(capsys):
    faults = {number: Fault("drop", after_chunks=1) for number in range(3, 5)}
    with FakeVllm(truth=FAST, faults=faults) as server:
        code, out, err = run(capsys, server.base_url, *QUICK, "--concurrency", "1")
    assert code == 0
    assert "3/3 requests, 2 failed" in err
    assert "failed-requests" in out


def test_a_server_elsewhere_has_no_conditions_of_this_machine(capsys):
    with FakeVllm(truth=FAST) as server:
        code, out, err = run(capsys, server.base_url, *QUICK, "--concurrency", "1", "--no-local", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert [finding["topic"] for finding in document["findings"]].count("server-elsewhere") == 1
    for name in ("memory_available_min_bytes", "temperature_c_max", "swap_growth_bytes"):
        assert document["conditions"][name] is None
    assert document["variant"] is None


def test_the_board_can_be_named(capsys):
    with FakeVllm(truth=FAST) as server:
        words = ["--concurrency", "1", "--no-local", "--device", "agx-orin-64gb", "--l4t", "36.4.4", "--json"]
        code, out, err = run(capsys, server.base_url, *QUICK, *words)
    assert code == 0, err
    document = json.loads(out)
    assert (document["sku"], document["variant"], document["l4t"]) == ("orin-agx", "agx-orin-64gb", "36.4.4")


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000", True),
        ("localhost:8000/v1", True),
        ("http://[::1]:8000", True),
        ("http://0.0.0.0:8000", True),
        ("http://192.0.2.7:8000", False),
        ("https://board.example/v1", False),
    ],
)
def test_which_addresses_are_this_machine(url, here):
    assert on_this_machine(url) is here


def test_own_name_is_this_machine(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "Thor-1")
    assert on_this_machine("http://thor-1.lan:8000")
    assert not on_this_machine("http://thor-2.lan:8000")


# --- a simulated server ----------------------------------------------------------------------------------------------


def test_fake_is_labelled_everywhere(capsys, tmp_path):
    out_file = tmp_path / "fake.json"
    code, out, err = run(capsys, "--fake", *QUICK, "--out", out_file)
    assert code == 0, err
    assert out.startswith("SIMULATED")
    document = json.loads(out_file.read_text())
    assert document["runtime"] == "fake-vllm"
    assert document["warnings"][0].startswith("SIMULATED")
    assert document["findings"][0]["topic"] == "simulated"
    code, out, _ = run(capsys, "--fake", *QUICK, "--json")
    assert json.loads(out)["runtime"] == "fake-vllm"


def test_fake_serves_the_recipe_and_is_what_the_environment_says(capsys, monkeypatch, recipe):
    monkeypatch.setenv("JETSON_SPECDEC_FAKE", '{"step_ms": 10, "draft_ms": 0, "verify_ms": 0, "acceptance": [1, 1]}')
    words = ["--num-prompts", "4", "--output-len", "61", "--concurrency", "1", "--json"]
    code, out, err = run(capsys, "--fake", "--recipe", recipe, *words)
    assert code == 0, err
    document = json.loads(out)
    # Both drafts are always accepted: three tokens a step of 10 ms.
    assert document["runs"][0]["tpot_ms_p50"] == pytest.approx(10 / 3, rel=1e-3)
    assert document["acceptance"]["rate"] == 1
    assert document["model"] == "me/model"


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_prompts_of_some_kinds_of_a_file_and_random_ones(capsys, tmp_path):
    words = ["--num-prompts", "4", "--output-len", "4", "--concurrency", "1", "--fake", "--json"]
    code, out, err = run(capsys, *words, "--category", "code,maths")
    assert code == 0, err
    assert {record["category"] for record in json.loads(out)["requests"]} <= {"code", "maths"}
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"number {n} of mine", "category": "own"}) + "\n" for n in range(9)))
    code, out, err = run(capsys, *words, "--prompts", file)
    assert code == 0, err
    assert json.loads(out)["config"]["dataset"] == "mine.jsonl"
    code, out, err = run(capsys, *words, "--prompts", "random", "--input-len", "16")
    assert code == 0, err
    document = json.loads(out)
    assert document["config"]["dataset"] == "random"
    assert "random-prompts" in {finding["topic"] for finding in document["findings"]}
    assert "own" in complaint(capsys, *words, "--prompts", file, "--category", "poetry")


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ["http://127.0.0.1:1"],
        ["ftp://127.0.0.1"],
        ["http://:99999999"],
        ["http://127.0.0.1:8000", "--base-url", "http://127.0.0.1:8001"],
        ["--fake", "http://127.0.0.1:8000"],
        ["--fake", "--concurrency", "0"],
        ["--fake", "--concurrency", "one"],
        ["--fake", "--concurrency", "2,2"],
        ["--fake", "--num-prompts", "0"],
        ["--fake", "--num-prompts", "100000"],
        ["--fake", "--output-len", "-3"],
        ["--fake", "--retries", "-1"],
        ["--fake", "--api", "telepathy"],
        ["--fake", "--model", "nobody/nothing"],
        ["--fake", "--prompts", "/no/such/prompts.jsonl"],
        ["--fake", "--category", "poetry"],
        ["--fake", "--prompts", "random", "--category", "code"],
        ["--fake", "--recipe", "/no/such/recipe.sh"],
        ["--fake", "--command", "1"],
        ["--fake", "--insecure", "--ca", "/no/such/ca.pem"],
        ["--fake", "--out", "/no/such/folder/report.json"],
        ["--fake", "--out", "."],
        ["--recorded", "/no/such/folder"],
        ["https://127.0.0.1:1", "--ca", "/no/such/ca.pem"],
        ["--no-such-option"],
    ],
    ids=lambda words: " ".join(words)[:50],
)
def test_bad_options_get_one_line(capsys, words):
    complaint(capsys, *words)


def test_an_address_with_a_password_is_refused_without_repeating_it(capsys):
    assert "hunter2" not in complaint(capsys, "http://me:hunter2@127.0.0.1:8000")


def test_an_existing_file_is_only_replaced_on_request_and_found_out_before_measuring(capsys, tmp_path):
    out_file = tmp_path / "report.json"
    out_file.write_text("precious")
    assert "exists" in complaint(capsys, "http://127.0.0.1:1", "--out", out_file)
    assert out_file.read_text() == "precious"
    assert run(capsys, "--fake", *QUICK, "--out", out_file, "--force")[0] == 0
    assert json.loads(out_file.read_text())["schema_version"] == 1


def test_a_report_that_cannot_be_saved_is_printed_instead(capsys, tmp_path, monkeypatch):
    from jetson_specdec import files
    from jetson_specdec.errors import OutputError

    def full(path, text, **options):
        raise OutputError("JSE007", path=str(path), reason="No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    code, out, err = run(capsys, "--fake", *QUICK, "--out", tmp_path / "report.json")
    assert code == 2
    assert "No space left" in err
    assert len(BenchReport.from_json(json.loads(out)).requests) == 6


@pytest.mark.parametrize("text", ["{", "[]", '{"no_such": 1}', '{"faults": 3}', "@/no/such/file"])
def test_a_broken_description_of_the_fake_gets_one_line(capsys, monkeypatch, text):
    monkeypatch.setenv("JETSON_SPECDEC_FAKE", text)
    complaint(capsys, "--fake", *QUICK)


def test_arguments_that_vllm_would_refuse_get_one_line(capsys, tmp_path):
    file = tmp_path / "serve.sh"
    file.write_text("vllm serve me/model --no-such-flag 3\n")
    assert "--no-such-flag" in complaint(capsys, "--fake", "--recipe", file)


def test_the_recipe_may_come_from_stdin(capsys, monkeypatch, recipe):
    class Stdin:
        buffer = io.BytesIO(recipe.read_bytes())

    monkeypatch.setattr("sys.stdin", Stdin())
    code, out, err = run(capsys, "--fake", *QUICK, "--recipe", "-", "--json")
    assert code == 0, err
    assert json.loads(out)["conditions"]["max_num_seqs"] == 4
