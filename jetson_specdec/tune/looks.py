# SPDX-License-Identifier: Apache-2.0
"""Judging after each pair and stopping when it is settled, without erring more often than the level says. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.gate import Gate
from jetson_specdec.policy import Policy

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict

__all__ = ["judge_looking", "level_of_a_look"]

_SPENT = 2.7
"""How fast looking spends certainty, by the logarithm of last ÷ first look. Fitted by simulation, so that all looks
together keep the level for 3 to 40 pairs and levels of 90 to 99 % (tests/benchmarks/bench_stopping.py)."""


def level_of_a_look(policy: Policy) -> float:
    """Return the level of each bound when it is looked at after every pair from `min_pairs` to `max_pairs`.

    A bound that is right 95 times in 100 when it is looked at once is crossed more often by a series that is looked at
    until it is (Armitage, McPherson & Rowe 1969); the same stricter level at each look makes up for it (Pocock 1977).
    """
    looks = math.log(policy.max_pairs / policy.min_pairs)
    return min(1 - (1 - policy.confidence_level) / (1 + _SPENT * looks), 0.9999)


def judge_looking(judge: Callable[[Gate], Verdict], policy: Policy) -> Verdict:
    """Judge pairs that were looked at one after the other.

    Switching off is the safe side and needs no more than the usual level; whatever would switch on, or say that it is
    in between, has to hold at the stricter one.

    Args:
        judge: judges with a gate.
        policy: thresholds.
    """
    plain = judge(Gate(policy=policy))
    if plain.outcome in ("disable", "invalid", "incomplete"):
        return plain
    return judge(Gate(policy=evolve(policy, confidence_level=level_of_a_look(policy))))
