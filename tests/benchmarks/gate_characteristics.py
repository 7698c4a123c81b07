# SPDX-License-Identifier: Apache-2.0
"""How often the gate errs: simulated pairs with a known truth and known noise from run to run.

    python tests/benchmarks/gate_characteristics.py [trials]

Every run of an arm is multiplied by its own lognormal factor, at concurrency 1 the same one for throughput and TPOT.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter

from jetson_specdec import Gate

NOISE = (0.02, 0.04)
PAIRS = (3, 5, 8, 12)
TRUTHS = {
    # name: (gain at concurrency 1, at concurrency 8)
    "1.24 at c=1, 1.05 at c=8: must not enable": (1.24, 1.05),
    "1.50 at c=1, 1.00 at c=8: must not disable": (1.50, 1.00),
    "1.50 at c=1, 1.05 at c=8: should enable": (1.50, 1.05),
    "1.50 at c=1, 1.15 at c=8: should enable": (1.50, 1.15),
}


def outcomes(one: float, eight: float, *, noise: float, pairs: int, trials: int, seed: int = 0) -> Counter[str]:
    """Judge simulated sets of pairs and count what comes out."""
    chance = random.Random(f"{one} {eight} {noise} {pairs} {seed}")
    gate = Gate()
    found: Counter[str] = Counter()
    for _ in range(trials):
        runs = [[math.exp(chance.gauss(0, noise)) for _ in range(4)] for _ in range(pairs)]
        verdict = gate.judge_points(
            throughput_c1=([20 * run[0] for run in runs], [20 * one * run[1] for run in runs]),
            tpot_c1=([50 / run[0] for run in runs], [50 / one / run[1] for run in runs]),
            throughput_c8=([100 * run[2] for run in runs], [100 * eight * run[3] for run in runs]),
        )
        found[verdict.outcome] += 1
    return found


def main(trials: int = 1000) -> None:
    for name, (one, eight) in TRUTHS.items():
        print(name)
        for noise in NOISE:
            for pairs in PAIRS:
                found = outcomes(one, eight, noise=noise, pairs=pairs, trials=trials)
                shares = "  ".join(f"{outcome} {count / trials:.1%}" for outcome, count in found.most_common())
                print(f"  noise {noise:.0%}  {pairs:2d} pairs  {shares}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
