# SPDX-License-Identifier: Apache-2.0
"""Can speculation pay on this board with this pair: round cost, break-even, prediction, choice of k, batch schedule.

Pure functions of values; nothing here reads a board, a server or a network. How well they agree with published
measurements, and where they do not, is in `docs/speed.md`.
"""

from __future__ import annotations

from jetson_specdec.estimate.speed_acceptance import (
    AcceptanceCurve,
    AcceptanceKind,
    expected_tokens,
    iid_rate,
    published_curves,
)
from jetson_specdec.estimate.speed_calibration import (
    Calibration,
    MeasuredRound,
    calibrate,
    calibrate_report,
    calibrate_round,
)
from jetson_specdec.estimate.speed_choice import KChoice, choose_k
from jetson_specdec.estimate.speed_constants import Board, SpeedConstants, constants_for
from jetson_specdec.estimate.speed_cost import CostTerm, RoundCost, Scenario
from jetson_specdec.estimate.speed_gain import (
    BreakEven,
    BreakEvenRow,
    Prediction,
    break_even,
    needed_speedup,
    predict,
    throughput_ratio,
)
from jetson_specdec.estimate.speed_model import drafter_passes, round_cost
from jetson_specdec.estimate.speed_outlook import SpeedOutlook, outlook
from jetson_specdec.estimate.speed_reads import PassReads, draft_reads, target_reads
from jetson_specdec.estimate.speed_schedule import BatchSchedule, ScheduleEntry, batch_schedule
from jetson_specdec.estimate.speed_span import Span

__all__ = [
    "AcceptanceCurve",
    "AcceptanceKind",
    "BatchSchedule",
    "Board",
    "BreakEven",
    "BreakEvenRow",
    "Calibration",
    "CostTerm",
    "KChoice",
    "MeasuredRound",
    "PassReads",
    "Prediction",
    "RoundCost",
    "Scenario",
    "ScheduleEntry",
    "Span",
    "SpeedConstants",
    "SpeedOutlook",
    "batch_schedule",
    "break_even",
    "calibrate",
    "calibrate_report",
    "calibrate_round",
    "choose_k",
    "constants_for",
    "draft_reads",
    "drafter_passes",
    "expected_tokens",
    "iid_rate",
    "needed_speedup",
    "outlook",
    "predict",
    "published_curves",
    "round_cost",
    "target_reads",
    "throughput_ratio",
]
