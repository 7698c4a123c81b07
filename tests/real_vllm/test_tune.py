# SPDX-License-Identifier: Apache-2.0
"""`tune` on the real engine: a whole one, and one that is killed in the middle."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from jsonschema import Draft202012Validator

from jetson_specdec import schemas
from jetson_specdec.gate import EXIT_CODES
from jetson_specdec.measurements import read_report

pytestmark = pytest.mark.real_vllm

PROMPTS, TOKENS = 8, 32
POLICY = """[policy]
min_pairs = {pairs}
max_pairs = {pairs}
search_launches = {pairs}
bootstrap_resamples = 500
cooldown_seconds = 10
"""


def asked(desk, *more, pairs=1):
    policy = desk.folder / "policy.toml"
    policy.write_text(POLICY.format(pairs=pairs))
    return (
        "tune", desk.recipe, *desk.board, "--policy", policy, "--prompts", desk.models / "easy.jsonl",
        "--num-prompts", PROMPTS, "--output-len", TOKENS, "--evidence", desk.folder / "evidence", "--state-dir",
        desk.state, "--start-timeout", "600", "--yes", *more,
    )  # fmt: skip


def literal_rule(pairs):
    """The contract's rule on the figures of some pairs of reports, by hand: geometric means over the pairs."""

    def ratio(concurrency, figure):
        logs = [
            math.log(getattr(on.run_at(concurrency), figure) / getattr(off.run_at(concurrency), figure))
            for off, on in pairs
        ]
        return math.exp(sum(logs) / len(logs))

    gain, eight, tpot = ratio(1, "throughput_tok_s"), ratio(8, "throughput_tok_s"), ratio(1, "tpot_ms_p50")
    if gain < 1.1 or eight < 1:
        return "disable", gain
    return ("enable" if gain >= 1.3 and tpot <= 0.8 else "marginal"), gain


@pytest.mark.parametrize("pairs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_whole_tune(desk, walk, pairs):
    """With one pair; with two, a search of two launches, and one KV pool for both arms."""
    desk.write()
    own = desk.recipe.read_bytes()
    old = desk.serve()
    # The draft from a catalogue of one's own, the target by name: neither is published anywhere.
    catalogue = desk.folder / "mine.toml"
    catalogue.write_text(
        'schema_version = 1\n[[targets]]\nid = "example/tiny"\nvocab_size = 2048\n'
        f'[[pairs]]\ntarget = "example/tiny"\ndraft = "{desk.models}/draft"\ntarget_vocab_size = 2048\n'
        "draft_vocab_size = 2048\nusable = true\n"
    )
    more = ("--pin-kv",) if pairs > 1 else ()
    wishes = ("--catalog", catalogue, "--target", "example/tiny")
    done = desk.run(*asked(desk, *wishes, *more, "--json", pairs=pairs))
    result = json.loads(done.stdout)
    Draft202012Validator(schemas.load("tune")).validate(result)
    assert result["verdict"] is not None, done.stderr
    assert done.returncode == EXIT_CODES[result["outcome"]], done.stderr

    # The old server is back: another process, the same recipe, and it answers.
    assert old.wait(60) is not None
    desk.until(desk.answers)
    assert desk.speculating() == []
    assert len(desk.complete("w7 w8", 4)) == 4
    assert desk.recipe.read_bytes() == own
    assert not list(desk.state.glob("*.json"))
    assert result["launches"] == len(list((desk.folder / "evidence" / "logs").glob("*.log")))
    desk.stop()

    # The evidence is whole, and says what is known.
    evidence = desk.folder / "evidence"
    sums = dict(reversed(line.split("  ", 1)) for line in (evidence / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(evidence)) for path in evidence.rglob("*") if path.is_file()}
    assert files - set(sums) == {"state.json", "SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((evidence / name).read_bytes()).hexdigest() == digest, name
    state = json.loads((evidence / "state.json").read_text())
    assert state["status"] == "done"
    reports = {block["index"]: read_report(evidence / block["report"]) for block in state["blocks"]}
    texts = {
        record["id"]: record["prompt"]
        for record in map(json.loads, (desk.models / "easy.jsonl").read_text().splitlines())
    }
    for block in state["blocks"]:
        report = reports[block["index"]]
        assert all(record.ok and record.output_tokens == TOKENS for record in report.requests)
        for run in report.runs:
            if block["arm"] == "off":
                assert run.acceptance is None or not run.acceptance.drafts
            if block["arm"] == "off" or block["variant"]:
                continue
            prompts = [texts[record.prompt_id] for record in report.requests_at(run.concurrency)]
            rounds, accepted, by_position = walk.expected(prompts, TOKENS, block["k"])
            assert (run.acceptance.drafts, run.acceptance.accepted_tokens) == (rounds, accepted)
            assert run.acceptance.per_position == pytest.approx([each / rounds for each in by_position])

    # Both arms had the pool that speculation leaves, where that was asked for.
    if pairs > 1:
        (pool,) = {
            page.read_text().partition('num_gpu_blocks="')[2].partition('"')[0]
            for page in (evidence / "metrics").glob("*.prom")
            if page.name[:3] != "001"  # the baseline, from which nobody knows yet
        }
        (said,) = [each["message"] for each in result["findings"] if each["code"] == "JSD969"]
        assert f"--num-gpu-blocks-override {pool}" in said

    # The verdict is that of the figures, today and any day later.
    arms, variant = {}, state["variant"]  # 1 where noise made concurrency 8 lose, so that a schedule was tried
    for block in state["blocks"]:
        # Without a pinned pool the baseline is the first pair's arm without speculation.
        first = block["role"] == "baseline" and variant == 0 and pairs == 1
        if first or (block["role"] == "pair" and block["variant"] == variant):
            arms.setdefault(block["pair"], {})[block["arm"]] = reports[block["index"]]
    spoilt = state["spoilt"].get(str(variant), [])
    usable = [(both["off"], both["on"]) for pair, both in arms.items() if len(both) == 2 and pair not in spoilt]
    assert len(usable) == result["pairs"]
    verdict = result["verdict"]
    if verdict["outcome"] != "invalid":
        literal, gain = literal_rule(usable)
        assert verdict["contract_outcome"] == literal
        assert gain > 1
    again = desk.run("tune", "--rejudge", evidence, "--json")
    assert json.loads(again.stdout) == verdict
    assert again.returncode == EXIT_CODES[verdict["outcome"]]
    stricter = desk.folder / "stricter.toml"
    stricter.write_text("[policy]\nenable_throughput_gain = 9.0\ndisable_throughput_gain = 8.9\n")
    hard = desk.run("tune", "--rejudge", evidence, "--policy", stricter, "--json")
    if verdict["outcome"] != "invalid":
        assert json.loads(hard.stdout)["contract_outcome"] == "disable"

    # The recipe to use lies beside the old one, without what served the comparison only.
    if result["outcome"] in ("enable", "enable_limited"):
        written = desk.folder / "serve.specdec.sh"
        assert result["written"] == str(written)
        assert "--speculative-config" in written.read_text()
        assert "num-gpu-blocks" not in written.read_text()
        assert result["k"] in {block["k"] for block in state["blocks"]}
    else:
        assert result["written"] is None


def test_killed_in_the_middle_then_restored(desk):
    desk.write(target="small")
    own = desk.recipe.read_bytes()
    desk.serve()
    process = desk.spawn(*asked(desk, "--draft", desk.models / "draft", "--concurrency", "1", "--json"))
    desk.until(desk.speculating, 900)
    process.kill()
    process.communicate(timeout=60)
    done = desk.json("tune", "--restore", "--state-dir", desk.state)
    assert [name for each in done["restored"] for name in each["brought_back"]] == ["vllm"]
    assert [each["failed"] for each in done["restored"]] == [[] for _ in done["restored"]]
    assert desk.speculating() == []
    desk.until(desk.answers)
    assert len(desk.complete("w7 w8", 4)) == 4
    assert desk.recipe.read_bytes() == own
    assert not list(desk.state.glob("*.json"))
    state = json.loads((desk.folder / "evidence" / "state.json").read_text())
    assert state["status"] == "running"
    assert [block["role"] for block in state["blocks"]] == ["baseline"]
