# SPDX-License-Identifier: Apache-2.0
"""How often does a tune err that looks after each pair and stops when the verdict is settled?

Pairs with a known truth and known noise from run to run; prints one row a truth: outcome shares and mean pairs.
"""

from __future__ import annotations

import collections
import random
import sys

from jetson_specdec.gate import Gate
from jetson_specdec.policy import DEFAULT_POLICY
from jetson_specdec.tune.schedule import settled

TRUTHS = {
    "1.24x at c=1, c=8 equal": (1.24, 1.0),
    "1.5x at c=1, c=8 equal": (1.5, 1.0),
    "1.5x at c=1, c=8 at 1.05x": (1.5, 1.05),
    "1.5x at c=1, c=8 at 0.9x": (1.5, 0.9),
    "1.0x at c=1, c=8 equal": (1.0, 1.0),
}


def one(draw: random.Random, gain: float, eight: float, noise: float) -> tuple[str, int]:
    """Add pairs until it is settled, or they are used up."""
    before, after = collections.defaultdict(list), collections.defaultdict(list)
    for pair in range(1, DEFAULT_POLICY.max_pairs + 1):
        for name, ratio in (("t1", gain), ("p1", 1 / gain), ("t8", eight)):
            before[name].append(100.0 * (1 + draw.gauss(0, noise)))
            after[name].append(100.0 * ratio * (1 + draw.gauss(0, noise)))
        if pair < 2:
            continue
        verdict = Gate().judge_points(
            throughput_c1=(before["t1"], after["t1"]),
            tpot_c1=(before["p1"], after["p1"]),
            throughput_c8=(before["t8"], after["t8"]),
        )
        if settled(verdict, pair, DEFAULT_POLICY):
            return verdict.outcome, pair
        if pair >= 2 * DEFAULT_POLICY.min_pairs and verdict.more_pairs is None:
            return "inconclusive", pair
    return "inconclusive", DEFAULT_POLICY.max_pairs


def main(trials: int) -> None:
    """Print the table."""
    for noise in (0.02, 0.04):
        for name, (gain, eight) in TRUTHS.items():
            draw = random.Random(1)
            found = [one(draw, gain, eight, noise) for _ in range(trials)]
            shares = collections.Counter(outcome for outcome, _ in found)
            pairs = sum(count for _, count in found) / trials
            shown = ", ".join(f"{outcome} {100 * count / trials:.1f} %" for outcome, count in shares.most_common())
            print(f"noise {noise:.0%}  {name:28}  {pairs:4.1f} pairs  {shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
