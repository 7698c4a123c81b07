# SPDX-License-Identifier: Apache-2.0
"""The closed loop: measure without, measure with, judge, and put everything back; and watch whether it stays so.

Names are loaded on first use; importing this package is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetson_specdec.tune.core import BlockRecord, Offer, TuneResult, TuneSettings
    from jetson_specdec.tune.drift import Reference, WatchResult, judge_drift
    from jetson_specdec.tune.evidence import Evidence, rejudge
    from jetson_specdec.tune.putback import restore
    from jetson_specdec.tune.run import Tools, tune
    from jetson_specdec.tune.search import KStep, Probe, next_k
    from jetson_specdec.tune.watching import watch

_HOMES = {
    "core": ("BlockRecord", "Offer", "TuneResult", "TuneSettings"),
    "evidence": ("Evidence", "rejudge"),
    "putback": ("restore",),
    "run": ("Tools", "tune"),
    "search": ("KStep", "Probe", "next_k"),
    "drift": ("Reference", "WatchResult", "judge_drift"),
    "watching": ("watch",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
