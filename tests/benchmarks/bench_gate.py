# SPDX-License-Identifier: Apache-2.0
"""How often the gate errs: simulated pairs with a known truth and known noise from run to run.

    python tests/benchmarks/bench_gate.py [--trials 2000] [--report-trials 100]

Every run is slowed or sped up by its own lognormal factor; at concurrency 1 it is the same one for throughput and
TPOT. Aims, at 2 % and 4 % noise: wrongly enabled at a true 1.24× in at most 1 %, an unchanged concurrency 8 called
slower in at most 5 %, enabled at a true 1.5× in at least 95 %, with the pairs that takes. Each is shown for fixed
numbers of pairs, for looking after each pair as `tune` does (whose stopping makes errors more likely), and for whole
reports with raw records, whose requests are resampled too. Ends with 1 where an aim is missed.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Iterator

from attrs import frozen

from jetson_specdec.gate import Gate, Verdict
from jetson_specdec.measurements import BenchConfig, BenchReport, Conditions, RequestRecord, Run
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.looks import judge_looking
from jetson_specdec.tune.schedule import settled

NOISES = (0.02, 0.04)
PAIRS = (3, 5, 8, 12, DEFAULT_POLICY.max_pairs)
REQUESTS, TOKENS = 24, 128


@frozen(kw_only=True)
class Truth:
    """What speculation really does: factors of throughput and TPOT at concurrency 1, of throughput at 8."""

    gain: float
    tpot: float
    eight: float


# TPOT well inside its threshold, so that the gain alone decides whether to enable: the hardest case.
WEAK = Truth(gain=1.24, tpot=0.70, eight=1.0)
STRONG = Truth(gain=1.5, tpot=1 / 1.5, eight=1.0)


def called_slower(verdict: Verdict) -> bool:
    criterion = verdict.criterion("throughput_c8")
    return criterion is not None and criterion.state == "failed"


class Points:
    """Pairs as plain figures."""

    def __init__(self, truth: Truth, noise: float, chance: random.Random) -> None:
        self._truth, self._noise, self._chance = truth, noise, chance
        self.series: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("one", "tpot", "eight")}

    def add(self) -> None:
        truth = self._truth
        for arm, (gain, tpot, eight) in enumerate(((1.0, 1.0, 1.0), (truth.gain, truth.tpot, truth.eight))):
            one, other = (math.exp(self._chance.gauss(0, self._noise)) for _ in range(2))
            for name, value in (("one", 20 * gain * one), ("tpot", 50 * tpot / one), ("eight", 100 * eight * other)):
                self.series[name][arm].append(value)

    def judge(self, policy: Policy = DEFAULT_POLICY) -> Verdict:
        return Gate(policy=policy).judge_points(
            throughput_c1=self.series["one"], tpot_c1=self.series["tpot"], throughput_c8=self.series["eight"]
        )

    def looked(self) -> Verdict:
        return judge_looking(lambda gate: self.judge(gate.policy), DEFAULT_POLICY)


def fixed(truth: Truth, noise: float, pairs: int, seed: object) -> Verdict:
    points = Points(truth, noise, random.Random(f"{truth} {noise} {pairs} {seed}"))
    for _ in range(pairs):
        points.add()
    return points.judge()


def stopping(truth: Truth, noise: float, seed: object) -> tuple[Verdict, int]:
    """Look after each pair, and stop when it is settled or the pairs are used up."""
    points = Points(truth, noise, random.Random(f"{truth} {noise} {seed}"))
    for pairs in range(1, DEFAULT_POLICY.max_pairs + 1):
        points.add()
        verdict = points.looked()
        if pairs > 1 and settled(verdict, pairs, DEFAULT_POLICY):
            break
    return verdict, pairs


def report(truth: Truth, noise: float, chance: random.Random, spread: list[float], *, on: bool) -> BenchReport:
    """One run of both concurrencies with raw records; prompts differ by `spread`, the same in every run."""
    runs, records = [], []
    for concurrency in (1, 8):
        slower = math.exp(chance.gauss(0, noise))
        factor = 1.0 if not on else truth.tpot if concurrency == 1 else 1 / truth.eight
        own = []
        for index, prompt in enumerate(spread):
            tpot = 50.0 * concurrency**0.5 * factor * slower * prompt * math.exp(chance.gauss(0, 0.02))
            # The rest of the time is such that throughput gains as the truth says.
            whole = TOKENS * tpot * (1.0 if not on or concurrency > 1 else 1 / truth.gain / truth.tpot)
            own.append(
                RequestRecord(
                    concurrency=concurrency,
                    index=index,
                    prompt_id=f"p{index}",
                    ttft_ms=80.0,
                    tpot_ms=tpot,
                    e2e_ms=whole,
                    input_tokens=64,
                    output_tokens=TOKENS,
                )
            )
        seconds = sum(record.e2e_ms or 0.0 for record in own) / 1000 / concurrency
        runs.append(
            Run(
                concurrency=concurrency,
                throughput_tok_s=len(own) * TOKENS / seconds,
                tpot_ms_p50=statistics.median(record.tpot_ms or 0.0 for record in own),
                ttft_ms_p50=80.0,
                completed=len(own),
                failed=0,
            )
        )
        records += own
    return BenchReport(
        model="org/target",
        config=BenchConfig(num_prompts=REQUESTS, temperature=0.0),
        conditions=Conditions(speculation=on),
        runs=tuple(runs),
        requests=tuple(records),
    )


def by_reports(truth: Truth, noise: float, pairs: int, seed: object) -> Verdict:
    chance = random.Random(f"{truth} {noise} {pairs} {seed} reports")
    spread = [math.exp(chance.gauss(0, 0.10)) for _ in range(REQUESTS)]
    arms = [[report(truth, noise, chance, spread, on=on) for on in (False, True)] for _ in range(pairs)]
    gate = Gate(policy=Policy(bootstrap_resamples=500))
    return gate.judge([before for before, _ in arms], [after for _, after in arms])


def shares(trials: int, one: Callable[[Truth, int], Verdict]) -> tuple[float, float, float]:
    """Return how often it is enabled wrongly, called slower wrongly, and enabled rightly."""
    weak = [one(WEAK, seed) for seed in range(trials)]
    strong = [one(STRONG, seed) for seed in range(trials)]
    return (
        sum(verdict.outcome == "enable" for verdict in weak) / trials,
        sum(map(called_slower, strong)) / trials,
        sum(verdict.outcome == "enable" for verdict in strong) / trials,
    )


def looking(noise: float, trials: int) -> tuple[str, tuple[float, float, float]]:
    """Return the row of stopping when settled."""
    taken: list[int] = []

    def one(truth: Truth, seed: int) -> Verdict:
        verdict, pairs = stopping(truth, noise, seed)
        taken.extend([pairs] if truth is STRONG else [])
        return verdict

    found = shares(trials, one)
    most = sorted(taken)[math.ceil(0.95 * len(taken)) - 1]
    return f"stopping: mean {statistics.mean(taken):.1f}, 95 % by {most}", found


def rows_of(noise: float, trials: int, report_trials: int) -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Yield name and shares of each way to judge."""
    for pairs in PAIRS:
        yield f"{pairs} pairs", shares(trials, lambda truth, seed, n=pairs: fixed(truth, noise, n, seed))
    yield looking(noise, trials)
    last = PAIRS[-1]
    yield f"{last} pairs, raw records", shares(report_trials, lambda t, seed: by_reports(t, noise, last, seed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--report-trials", type=int, default=100)
    options, _ = parser.parse_known_args()
    policy = DEFAULT_POLICY
    print(
        f"margin {policy.equivalence_margin:.0%}, level {policy.confidence_level:.0%}, {policy.min_pairs} to "
        f"{policy.max_pairs} pairs; {options.trials} trials a row, {options.report_trials} with raw records"
    )
    print(f"noise   {'':32}{'1.24x enabled':>15}{'same called slower':>20}{'1.5x enabled':>14}")
    missed = []
    for noise in NOISES:
        enough = []
        for name, (weak, slower, strong) in rows_of(noise, options.trials, options.report_trials):
            print(f"{noise:5.0%}   {name:32}{weak:15.1%}{slower:20.1%}{strong:14.1%}", flush=True)
            missed += [f"{noise:.0%}, {name}: wrongly enabled"] if weak > 0.01 else []
            missed += [f"{noise:.0%}, {name}: wrongly called slower"] if slower > 0.05 else []
            enough += [name] if strong >= 0.95 else []
        missed += [] if enough else [f"{noise:.0%}: never enabled in 95 %"]
    print("missed: " + "; ".join(missed) if missed else "every aim is met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
