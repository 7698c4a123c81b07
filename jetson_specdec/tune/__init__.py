# SPDX-License-Identifier: Apache-2.0
"""The closed loop: measure without, measure with, judge, and put everything back; and watch whether it stays so.

Names are loaded on first use; importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.tune.core import BlockRecord, Offer, TuneResult, TuneSettings
    from jetson_specdec.tune.drift import WatchResult, judge_drift
    from jetson_specdec.tune.evidence import Evidence, rejudge
    from jetson_specdec.tune.putback import restore
    from jetson_specdec.tune.reference import Reference
    from jetson_specdec.tune.run import Tools, tune
    from jetson_specdec.tune.search import KStep, Probe, next_k
    from jetson_specdec.tune.watching import watch

_HOMES = {
    "core": ("BlockRecord", "Offer", "TuneResult", "TuneSettings"),
    "evidence": ("Evidence", "rejudge"),
    "putback": ("restore",),
    "reference": ("Reference",),
    "run": ("Tools", "tune"),
    "search": ("KStep", "Probe", "next_k"),
    "drift": ("WatchResult", "judge_drift"),
    "watching": ("watch",),
}

__all__ = [
    "BlockRecord",
    "Evidence",
    "KStep",
    "Offer",
    "Probe",
    "Reference",
    "Tools",
    "TuneResult",
    "TuneSettings",
    "WatchResult",
    "judge_drift",
    "next_k",
    "rejudge",
    "restore",
    "tune",
    "watch",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
