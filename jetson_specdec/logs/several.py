# SPDX-License-Identifier: Apache-2.0
"""From many starts to one answer: the newest one, or that two failed values leave nothing between them.

Logs may come in any order. They are put in order by their own times; where those are missing, a failure counts as
later than a start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from jetson_specdec.logs.attempt import Attempt, Hit
from jetson_specdec.logs.evidence import Evidence
from jetson_specdec.logs.verdict import Verdict
from jetson_specdec.values import frozen

__all__ = ["Judged", "newest", "share_arguments", "too_narrow"]

_LOW: Final = ("kv_cache_none", "kv_cache_too_small")
_HIGH: Final = ("memory_precheck", "oom_load", "oom_warmup", "driver_oom", "host_oom_killed", "watchdog_stopped")
_STEP: Final = 0.011
"""Utilisations are written with two decimals: nothing lies between neighbours."""


@frozen(kw_only=True)
class Judged:
    """A start and what became of it."""

    attempt: Attempt
    verdict: Verdict
    values: Mapping[str, Any]


def share_arguments(logs: Sequence[Sequence[Attempt]]) -> None:
    """Give the arguments of the only start that shows them to those of other logs that show none.

    The processes of one start often write to different files.
    """
    known = [(index, each) for index, log in enumerate(logs) for each in log if each.arguments is not None]
    if len(known) != 1 or len(logs) < 2:
        return
    home, donor = known[0]
    for index, log in enumerate(logs):
        for attempt in log:
            if index != home and attempt.arguments is None:
                attempt.arguments = donor.arguments
                attempt.version = attempt.version or donor.version
                attempt.speculative_config = {**donor.speculative_config, **attempt.speculative_config}
                if attempt.speculates is None:
                    attempt.speculates = donor.speculates


def newest(logs: Sequence[Sequence[Judged]]) -> Judged:
    """Return the start that the answer is about: the newest one that says something."""
    times = [_time(log) for log in logs]
    ordered = all(time is not None for time in times) and len({_kind(time) for time in times}) == 1
    judged = [each for log in logs for each in log]
    if not ordered and len(logs) > 1:
        # A stable sort: failures after starts, the order within a log kept.
        judged = sorted(judged, key=lambda each: each.verdict.started_ok is False)
    failed = [index for index, each in enumerate(judged) if each.verdict.started_ok is False]
    started = [index for index, each in enumerate(judged) if each.verdict.started_ok is True]
    if started and (not failed or started[-1] > failed[-1]):
        return judged[started[-1]]
    if failed:
        later = [index for index in failed if not started or index > started[-1]]
        return judged[next((index for index in reversed(later) if judged[index].verdict.specific), later[-1])]
    return next((each for each in reversed(judged) if each.verdict.specific), judged[-1])


def _time(log: Sequence[Judged]) -> str | None:
    return next((each.attempt.time for each in log if each.attempt.time is not None), None)


def _kind(time: str | None) -> int:
    return len((time or "").partition(".")[0])


def too_narrow(judged: Sequence[Judged], chosen: Judged, evidence: Evidence) -> Judged | None:
    """Return the answer `does_not_fit` where one value left too little for the cache and the next was too much.

    Args:
        judged: all starts.
        chosen: the one the answer is about so far.
        evidence: what is known beside the logs.
    """
    if chosen.verdict.cause not in (*_LOW, *_HIGH):
        return None
    same = [each for each in judged if _comparable(each, chosen, evidence)]
    low = [each for each in same if each.verdict.cause in _LOW and _tried(each) is not None]
    high = [each for each in same if each.verdict.cause in _HIGH and _ceiling(each) is not None]
    if not low or not high:
        return None
    lowest, highest = max(low, key=lambda each: _tried(each) or 0), min(high, key=lambda each: _ceiling(each) or 0)
    floor, ceiling = _tried(lowest), _ceiling(highest)
    if floor is None or ceiling is None or ceiling - floor >= _STEP:
        return None
    hits: tuple[Hit, ...] = (*highest.verdict.hits[:2], *lowest.verdict.hits[:2])
    values = {**lowest.values, **highest.values, "failed_low_utilization": floor}
    return Judged(
        attempt=chosen.attempt,
        verdict=evolve(chosen.verdict, cause="does_not_fit", stage=None, hits=hits, inner=None),
        values=values,
    )


def _comparable(one: Judged, other: Judged, evidence: Evidence) -> bool:
    pairs = (
        (evidence.argument(one.attempt, "model"), evidence.argument(other.attempt, "model")),
        (evidence.speculation(one.attempt), evidence.speculation(other.attempt)),
    )
    return all(left is None or right is None or left == right for left, right in pairs)


def _tried(judged: Judged) -> float | None:
    value = judged.values.get("requested_utilization")
    return value if isinstance(value, float) and 0 < value <= 1 else None


def _ceiling(judged: Judged) -> float | None:
    """Return the first utilisation known to be too much: one above what was free, or the one that failed."""
    feasible = judged.values.get("feasible_utilization")
    if judged.verdict.cause == "memory_precheck" and isinstance(feasible, float):
        return feasible + 0.01
    return _tried(judged)
