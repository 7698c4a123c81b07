# SPDX-License-Identifier: Apache-2.0
"""From a slow server to a verdict, by hand: bench, plan, apply, launch, bench, gate, undo. With the real engine."""

from __future__ import annotations

import json
import math

import pytest

from jetson_specdec.gate import EXIT_CODES
from jetson_specdec.logs import diagnose
from jetson_specdec.measurements import read_report
from jetson_specdec.server.state import marked_processes

pytestmark = pytest.mark.real_vllm

PROMPTS, TOKENS, K = 8, 32, 3


def test_the_known_acceptance_is_alpha(walk):
    """What is known beforehand, without the engine: a round of k drafts yields Σ alpha^i tokens."""
    for name, alpha in walk.alpha.items():
        lengths = [1 + len_of(walk, word, K) for word in walk.cycles[name]]
        expected = sum(alpha**step for step in range(K + 1))
        # Of 1022 rounds that overlap: neighbours share words, so fewer of them count.
        spread = math.sqrt(sum((each - expected) ** 2 for each in lengths)) / len(lengths)
        assert sum(lengths) / len(lengths) == pytest.approx(expected, abs=6 * spread)


def len_of(walk, word, k):
    """Return how many drafts of a round that starts after a word are right: by looking, not by `rounds`."""
    right = 0
    while right < k and walk.draft_next[word] == walk.next[word]:
        word = walk.next[word]
        right += 1
    return right


def measure(desk, prompts, out, *more):
    words = ("--prompts", desk.models / f"{prompts}.jsonl", "--num-prompts", PROMPTS, "--output-len", TOKENS)
    desk.json("bench", desk.url, *words, "--recipe", desk.recipe, "--out", desk.folder / out, *more)
    return read_report(desk.folder / out)


def check_acceptance(walk, report, texts, concurrency):
    """What was drafted and accepted is what the walks say, token for token."""
    prompts = [texts[record.prompt_id] for record in report.requests_at(concurrency)]
    assert len(prompts) == PROMPTS
    rounds, accepted, by_position = walk.expected(prompts, TOKENS, K)
    seen = report.acceptance_at(concurrency)
    assert (seen.state, seen.drafts, seen.drafted_tokens) == ("active", rounds, rounds * K)
    assert seen.accepted_tokens == accepted
    assert seen.per_position == pytest.approx([each / rounds for each in by_position])
    assert seen.rate == pytest.approx(accepted / (rounds * K))
    assert seen.mean_length == pytest.approx(1 + accepted / rounds)


def test_by_hand_from_a_slow_server_to_a_verdict(desk, walk, server):
    desk.write()
    own = desk.recipe.read_bytes()
    texts = {
        record["id"]: record["prompt"]
        for name in walk.alpha
        for record in map(json.loads, (desk.models / f"{name}.jsonl").read_text().splitlines())
    }

    # As it is.
    desk.serve()
    prompt = texts["easy-0"]
    words, at = [], int(prompt.split()[-1][1:])
    for _ in range(12):
        at = walk.next[at]
        words.append(at)
    assert desk.complete(prompt, 12) == words
    before = measure(desk, "easy", "before.json")
    assert [run.concurrency for run in before.runs] == [1, 8]
    assert [record.output_tokens for record in before.requests] == [TOKENS] * 2 * PROMPTS
    assert before.conditions.vllm_version.startswith("0.32.0")
    assert before.conditions.speculation is False
    desk.stop()

    # What to do about it, and doing it.
    wishes = (*desk.board, "--draft", desk.models / "draft", "--baseline", desk.folder / "before.json")
    plan = desk.json("plan", desk.recipe, *wishes)
    assert plan["outcome"] == "draft_model"
    assert (plan["gpu_memory_utilization"]["before"], plan["gpu_memory_utilization"]["after"]) == (0.5, 0.45)
    assert plan["speculative_config"] == {
        "method": "draft_model",
        "model": str(desk.models / "draft"),
        "num_speculative_tokens": K,
        "draft_tensor_parallel_size": 1,
    }
    assert desk.recipe.read_bytes() == own
    applied = desk.run("apply", desk.recipe, *wishes, "--yes")
    assert applied.returncode == 0, applied.stderr
    assert desk.recipe.read_text() == plan["recipe"]["after"] != own.decode()

    # It runs.
    one = server(desk.recipe)
    started = one.start()
    assert (started.model, started.first_completion_tokens) == ("tiny", 16)
    marked = marked_processes(one.run_id)
    engines = desk.engines()
    assert sum("VLLM::" in words for words in engines.values()) >= 2, engines  # the engine core and its worker
    assert set(engines) <= set(marked)
    assert desk.complete(prompt, 12) == words  # speculation changes no answer
    after = measure(desk, "easy", "after.json")
    hard = measure(desk, "hard", "hard.json", "--concurrency", "1")
    stopped = one.stop()
    assert stopped.port_free
    assert desk.engines() == {}
    assert marked_processes(one.run_id) == []
    said = diagnose(one.log_path.read_text())
    assert (said.started_ok, said.cause) == (True, "none")

    # The acceptance is the known one.
    for concurrency in (1, 8):
        check_acceptance(walk, after, texts, concurrency)
    check_acceptance(walk, hard, texts, 1)
    easy = sum(walk.alpha["easy"] ** step for step in range(K + 1))
    assert after.acceptance_at(8).mean_length == pytest.approx(easy, rel=0.15)
    assert [record.output_tokens for record in after.requests] == [TOKENS] * 2 * PROMPTS

    # The verdict is that of the rule, worked out again from the figures.
    judged = desk.run("gate", desk.folder / "before.json", desk.folder / "after.json", "--json")
    verdict = json.loads(judged.stdout)
    assert judged.returncode == EXIT_CODES[verdict["outcome"]]
    gain = after.run_at(1).throughput_tok_s / before.run_at(1).throughput_tok_s
    eight = after.run_at(8).throughput_tok_s / before.run_at(8).throughput_tok_s
    tpot = after.run_at(1).tpot_ms_p50 / before.run_at(1).tpot_ms_p50
    assert gain > 1, "3.2 tokens a round, whose drafts cost a fraction of the target's 48 layers"
    enough = gain >= 1.3 and tpot <= 0.8
    literal = "disable" if gain < 1.1 or eight < 1 else "enable" if enough else "marginal"
    assert verdict["contract_outcome"] == literal
    changes = {criterion["name"]: criterion["change"] for criterion in verdict["criteria"]}
    assert changes["throughput_c1"] == pytest.approx(gain - 1, abs=1e-3)
    assert changes["tpot_c1"] == pytest.approx(tpot - 1, abs=1e-3)
    assert changes["throughput_c8"] == pytest.approx(eight - 1, abs=1e-3)
    told = verdict["lossless"]
    assert (told["compared"], told["identical"]) == (2 * PROMPTS, 2 * PROMPTS)

    # And back.
    assert desk.run("apply", desk.recipe, "--undo", "--yes").returncode == 0
    assert desk.recipe.read_bytes() == own
