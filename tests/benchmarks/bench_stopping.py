# SPDX-License-Identifier: Apache-2.0
"""How often does a tune err that looks after each pair and stops when the verdict is settled?

Pairs with a known truth and noise from run to run: right at the thresholds, where erring is easiest, and away from
them; with heavy tails, with a board that drifts, with both concurrencies slow in the same run. Prints one row a truth:
outcome shares and mean pairs.
"""

from __future__ import annotations

import argparse
import collections
import math
import random
import sys

from attrs import frozen

from jetson_specdec.gate import Gate, Verdict
from jetson_specdec.policy import DEFAULT_POLICY
from jetson_specdec.tune.looks import judge_looking
from jetson_specdec.tune.schedule import settled

LOOKED = ("enable", "enable_limited", "marginal", "disable", "inconclusive")


@frozen(kw_only=True)
class Truth:
    """Ratios on ÷ off of throughput at concurrency 1, TPOT at 1 and throughput at 8; which outcomes would be wrong."""

    gain: float
    tpot: float | None = None
    eight: float = 1.1
    wrong: tuple[str, ...] = ()


ON = ("enable", "enable_limited")
TRUTHS = {
    "1.30x missed by a hair": Truth(gain=1.2999, tpot=1 / 1.4, wrong=ON),
    "TPOT -20 % missed by a hair": Truth(gain=1.5, tpot=0.8001, wrong=ON),
    "c=8 below the margin by a hair": Truth(gain=1.5, eight=0.9499, wrong=("enable",)),
    "all three missed by a hair": Truth(gain=1.2999, tpot=0.8001, eight=0.9499, wrong=ON),
    "1.24x, TPOT well within": Truth(gain=1.24, tpot=0.7, eight=1.0, wrong=ON),
    "1.10x missed by a hair": Truth(gain=1.0999, wrong=(*ON, "marginal")),
    "1.0x": Truth(gain=1.0, eight=1.0, wrong=(*ON, "marginal")),
    "1.4x, c=8 at 1.05x": Truth(gain=1.4, eight=1.05, wrong=("disable", "marginal")),
    "1.5x, c=8 equal": Truth(gain=1.5, eight=1.0, wrong=("disable", "marginal")),
    "1.5x, c=8 at 0.9x": Truth(gain=1.5, eight=0.9, wrong=("enable", "marginal")),
}
KINDS = ("normal", "heavy tails", "drift", "both slow at once")


class Board:
    """Draws how much slower a block is than the truth says."""

    def __init__(self, kind: str, noise: float, chance: random.Random) -> None:
        self.kind, self.noise, self.chance, self.blocks = kind, noise, chance, 0

    def _one(self) -> float:
        drawn = self.chance.gauss(0, 1)
        if self.kind == "heavy tails":  # Student's t with 3 degrees of freedom, with the same standard deviation
            chi = sum(self.chance.gauss(0, 1) ** 2 for _ in range(3))
            drawn /= math.sqrt(chi / 3) * math.sqrt(3)
        return drawn * self.noise

    def block(self) -> tuple[float, float]:
        """How much slower, at concurrency 1 and 8."""
        self.blocks += 1
        one, eight = self._one(), self._one()
        if self.kind == "both slow at once":
            eight = 0.9 * one + math.sqrt(1 - 0.81) * eight
        if self.kind == "drift":  # half the noise more with each block, and up to ten of them
            warm = self.noise / 2 * min(self.blocks, 10)
            one, eight = one + warm, eight + warm
        return math.exp(one), math.exp(eight)


def one(truth: Truth, kind: str, noise: float, chance: random.Random) -> tuple[str, int]:
    """Add pairs until it is settled, hopeless, or they are used up, as a tune does."""
    policy, board = DEFAULT_POLICY, Board(kind, noise, chance)
    series: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("one", "tpot", "eight")}
    tpot = 1 / truth.gain if truth.tpot is None else truth.tpot

    def judge(gate: Gate) -> Verdict:
        return gate.judge_points(
            throughput_c1=series["one"], tpot_c1=series["tpot"], throughput_c8=series["eight"]
        )  # fmt: skip

    for pair in range(1, policy.max_pairs + 1):
        for arm in (0, 1) if pair % 2 else (1, 0):
            slow, slow8 = board.block()
            series["one"][arm].append(100 * (truth.gain if arm else 1) / slow)
            series["tpot"][arm].append(10 * (tpot if arm else 1) * slow)
            series["eight"][arm].append(400 * (truth.eight if arm else 1) / slow8)
        if pair < 2:
            continue
        verdict = judge_looking(judge, policy)
        if settled(verdict, pair, policy):
            return verdict.outcome, pair
        if verdict.outcome == "inconclusive" and verdict.more_pairs is None and pair >= 2 * policy.min_pairs:
            break
    return "inconclusive", pair


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100)
    options, _ = parser.parse_known_args()
    allowed = 1 - DEFAULT_POLICY.confidence_level
    # Three standard errors above what is allowed is no chance any more.
    limit = allowed + 3 * math.sqrt(allowed * (1 - allowed) / options.trials)
    missed = []
    for kind in KINDS:
        for noise in (0.02, 0.04):
            for name, truth in TRUTHS.items():
                chance = random.Random(f"{kind} {noise} {name}")
                found = [one(truth, kind, noise, chance) for _ in range(options.trials)]
                shares = collections.Counter(outcome for outcome, _ in found)
                wrong = sum(shares[outcome] for outcome in truth.wrong) / options.trials
                pairs = sum(count for _, count in found) / options.trials
                shown = ", ".join(f"{each} {shares[each] / options.trials:.1%}" for each in LOOKED if shares[each])
                print(f"{kind:18}{noise:4.0%}  {name:32}{pairs:5.1f} pairs   wrong {wrong:5.1%}   {shown}", flush=True)
                missed += [f"{kind}, {noise:.0%}, {name}: {wrong:.1%} wrong"] if wrong > limit else []
    print("missed: " + "; ".join(missed) if missed else "every aim is met")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
