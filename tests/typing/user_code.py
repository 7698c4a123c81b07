# SPDX-License-Identifier: Apache-2.0
"""How a user's code type-checks: checked by mypy --strict, never run."""

from __future__ import annotations

from pathlib import Path

from jetson_specdec import (
    Benchmark,
    BenchReport,
    Device,
    Eagle3Strategy,
    Finding,
    Gate,
    NoSpec,
    Plan,
    Planner,
    Policy,
    Proposal,
    Refusal,
    Situation,
    Strategy,
    Verdict,
    detect,
    read_report,
)
from jetson_specdec.testing import FakeVllm


class Mine:
    name = "mine"
    priority = 50

    def propose(self, situation: Situation) -> Proposal | Refusal:
        if situation.concurrency > 4:
            return Refusal(strategy=self.name, reason=Finding.of("JSD530", concurrency=situation.concurrency, limit=4))
        return Proposal(strategy=self.name, config={"method": "ngram", "num_speculative_tokens": 2})


def use() -> str:
    board: Device = detect()
    strategies: list[Strategy] = [Eagle3Strategy(), Mine(), NoSpec()]
    planner = Planner(strategies=strategies, policy=Policy(start_k_thor=4))
    plan: Plan = planner.plan(Path("serve.sh"), device=board, concurrency=2)
    total: int | None = board.memory_total_bytes
    messages: list[str] = [finding.message for finding in plan.findings]
    return f"{plan.outcome} {total} {messages} {plan.recipe.after}"


def judge() -> float | None:
    after: BenchReport = Benchmark("http://127.0.0.1:8000", concurrency=(1, 8)).run()
    verdict: Verdict = Gate(policy=Policy(min_pairs=1)).judge(read_report(Path("before.json")), after)
    gain = verdict.criterion("throughput_c1")
    return None if gain is None else gain.change


def simulate() -> str:
    with FakeVllm(["serve", "m"]) as server:
        address: str = server.base_url
    return address
