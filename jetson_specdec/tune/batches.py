# SPDX-License-Identifier: Apache-2.0
"""A batch schedule from measured pairs: draft less, or nothing, where many requests share the server. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jetson_specdec.findings import Finding
from jetson_specdec.policy import Policy
from jetson_specdec.tune.core import mean_tpot_s

if TYPE_CHECKING:
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.strategies import Situation

__all__ = ["schedule_from"]

_SEQS = 256
"""vLLM's default capacity where the recipe says nothing (0.32 `config/scheduler.py`)."""


def schedule_from(
    pairs: Sequence[tuple[BenchReport, BenchReport]], k: int, situation: Situation, policy: Policy
) -> dict[str, Any] | Finding:
    """Return the keys of a schedule, or why there is none.

    Args:
        pairs: reports without and with speculation.
        k: drafted tokens of the latter.
        situation: release and capacity of the server.
        policy: thresholds.
    """
    from jetson_specdec.estimate.speed import (
        AcceptanceCurve,
        Board,
        batch_schedule,
        calibrate,
        calibrate_round,
        round_cost,
    )

    sizes = sorted({run.concurrency for _, on in pairs for run in on.runs})
    curve = AcceptanceCurve.measured(pairs[-1][1].acceptance_at(1), k)
    costs = {}
    for size in sizes:
        offs = [value for off, _ in pairs if (value := mean_tpot_s(off, size)) is not None]
        ons = [value for _, on in pairs if (value := mean_tpot_s(on, size)) is not None]
        lengths = [
            acceptance.mean_length
            for _, on in pairs
            if (acceptance := on.acceptance_at(size)) is not None and acceptance.mean_length is not None
        ]
        if not (offs and ons and lengths):
            continue
        known = calibrate(baseline_tpot_ms=1e3 * sum(offs) / len(offs), batch=size)
        length = min(max(sum(lengths) / len(lengths), 1.0), k + 1.0)
        known = calibrate_round(known, tpot_on_ms=1e3 * sum(ons) / len(ons), k=k, mean_length=length, batch=size)
        board = Board(bandwidth_gb_s=None)
        costs[size] = round_cost(situation.profile, None, board, k, batch=size, calibration=known)
    if curve is None or 1 not in costs:
        return Finding.of("JSD967", reason="speed or acceptance are missing")
    capacity = situation.flags.max_num_seqs or _SEQS
    # What is doubtful at a size that lost as a whole is left off: a schedule that loses again costs many launches.
    made = batch_schedule(
        costs,
        curve,
        release=situation.release,
        ran_k=k,
        max_num_seqs=capacity,
        policy=policy,
        proved={1: k},
        surely=True,
    )
    if made.state == "schedule" and made.config is not None and made.release_supports is not False:
        return dict(made.config)
    reasons = {
        "not_needed": "one k is best at every batch size that was measured",
        "never_pays": "no batch size gains",
        "unsupported": f"vLLM {situation.release.version} reads none",
        "schedule": f"vLLM {situation.release.version} reads none",
    }
    return Finding.of("JSD967", reason=reasons.get(made.state, "speed or acceptance are missing"))
