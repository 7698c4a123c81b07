# SPDX-License-Identifier: Apache-2.0
"""How many tokens to draft at which batch size, where speculation pays at small batches and costs at large ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed_acceptance import AcceptanceCurve
from jetson_specdec.estimate.speed_choice import choose_k
from jetson_specdec.estimate.speed_cost import RoundCost
from jetson_specdec.estimate.speed_gain import Prediction, predict
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["BatchSchedule", "ScheduleEntry", "ScheduleState", "batch_schedule"]

_KEY = "num_speculative_tokens_per_batch_size"

ScheduleState = Literal["schedule", "not_needed", "never_pays", "unsupported", "unknown"]


@frozen(kw_only=True)
class ScheduleEntry:
    """One range of batch sizes.

    Attributes:
        first, last: batch sizes, both included.
        k: drafted tokens; 0 is none.
        batch: the batch size that decided.
        prediction: there; None for k = 0.
    """

    first: int
    last: int
    k: int
    batch: int
    prediction: Prediction | None = None


@frozen(kw_only=True)
class BatchSchedule:
    """A schedule, or why there is none.

    Attributes:
        state: `schedule`; `not_needed` (one k for all batches); `never_pays`; `unsupported` by the release; `unknown`
            (cost or acceptance are missing).
        entries: ranges of batch sizes, ascending, without gaps from 1.
        config: keys for the speculative configuration, or None.
        release_supports: whether the release has the key; None when it cannot be told.
        findings: reasons, one for each range.
    """

    state: ScheduleState
    entries: tuple[ScheduleEntry, ...] = ()
    config: Mapping[str, Any] | None = None
    release_supports: bool | None = None
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "state": self.state,
            "entries": [
                {
                    "first": entry.first,
                    "last": entry.last,
                    "k": entry.k,
                    "batch": entry.batch,
                    "prediction": entry.prediction.to_json() if entry.prediction else None,
                }
                for entry in self.entries
            ],
            "config": dict(self.config) if self.config is not None else None,
            "release_supports": self.release_supports,
            "findings": [finding.to_json() for finding in self.findings],
        }


def batch_schedule(
    costs: Mapping[int, RoundCost],
    acceptance: AcceptanceCurve | Mapping[int, AcceptanceCurve] | None,
    *,
    release: EngineRelease | None,
    ran_k: int,
    max_num_seqs: int,
    policy: Policy = DEFAULT_POLICY,
    proved: Mapping[int, int] | None = None,
    surely: bool = False,
) -> BatchSchedule:
    """Return how many tokens to draft by batch size.

    Each batch size that was estimated (or measured) gets the k `choose_k` gives it, 0 where the estimate says
    slower. Sizes between two of them get the smaller k of the larger size, and sizes past the last one that of the
    last one: what nobody looked at is treated as the more loaded case. k never rises with the batch.

    Args:
        costs: batch size → cost of its rounds; 1 and the largest concurrency in use at least.
        acceptance: of all batches, or by batch size; it does not depend on the batch unless it was measured so.
        release: who will read it; the key exists from one release on.
        ran_k: the k that ran, or would be started with; no entry is above what `choose_k` permits.
        max_num_seqs: last batch size to cover (`--max-num-seqs`).
        policy: thresholds.
        proved: k by batch size where measuring has decided it already.
        surely: draft only where every scenario has it pay; by default where the middle does.

    Raises:
        OptionError: no costs, or a batch size below 1 (`JSE432`).
    """
    sizes = sorted(size for size in costs if size <= max_num_seqs)
    if not sizes or sizes[0] < 1:
        raise OptionError("JSE432", name="costs", value=sorted(costs), expected="batch sizes from 1 to max_num_seqs")
    picked: list[tuple[int, int, Prediction | None]] = []
    for size in sizes:
        curve = acceptance.get(size) if isinstance(acceptance, Mapping) else acceptance
        choice = choose_k(costs[size], curve, ran_k=ran_k, policy=policy)
        if choice.state == "unknown" or (choice.k is None and choice.state != "none"):
            return BatchSchedule(state="unknown", findings=choice.findings)
        # Slower in its middle already counts as losing here: switching off costs nothing.
        chosen = choice.k if choice.k is not None and choice.estimates[choice.k] >= 1 else 0
        chosen = min(chosen, picked[-1][1]) if picked else chosen
        if surely and chosen and ((found := predict(costs[size], curve, chosen)) is None or found.speedup.low < 1):
            chosen = 0
        chosen = (proved or {}).get(size, chosen)
        picked.append((size, chosen, predict(costs[size], curve, chosen) if chosen else None))
    entries = _merge(picked, max_num_seqs)
    supports = _supports(release)
    if all(entry.k == 0 for entry in entries):
        return BatchSchedule(state="never_pays", entries=entries, release_supports=supports)
    if len(entries) == 1:
        return BatchSchedule(
            state="not_needed",
            entries=entries,
            release_supports=supports,
            findings=(Finding.of("JSD443", k=entries[0].k, last=max_num_seqs),),
        )  # fmt: skip
    reasons = tuple(_reason(entry) for entry in entries)
    if supports is False:
        lacking = Finding.of("JSD442", release=release.version if release else None, since=_since())
        return BatchSchedule(
            state="unsupported", entries=entries, release_supports=False, findings=(lacking, *reasons)
        )  # fmt: skip
    config = {
        "num_speculative_tokens": max(entry.k for entry in entries),
        _KEY: [[entry.first, entry.last, entry.k] for entry in entries],
    }
    return BatchSchedule(
        state="schedule", entries=entries, config=config, release_supports=supports, findings=reasons
    )  # fmt: skip


def _merge(picked: list[tuple[int, int, Prediction | None]], last: int) -> tuple[ScheduleEntry, ...]:
    entries: list[ScheduleEntry] = []
    first = 1
    for index, (size, k, prediction) in enumerate(picked):
        end = last if index == len(picked) - 1 else size
        if entries and entries[-1].k == k:
            first = entries.pop().first
        entries.append(ScheduleEntry(first=first, last=end, k=k, batch=size, prediction=prediction))
        first = end + 1
    return tuple(entries)


def _reason(entry: ScheduleEntry) -> Finding:
    speedup = entry.prediction.speedup if entry.prediction else None
    return Finding.of(
        "JSD441", first=entry.first, last=entry.last, k=entry.k, batch=entry.batch,
        low=speedup.low if speedup else None, high=speedup.high if speedup else None,
    )  # fmt: skip


def _supports(release: EngineRelease | None) -> bool | None:
    """Say whether a release has the key; None for an unknown one."""
    if release is None:
        return None
    from jetson_specdec.engine.speculative import config_keys

    keys = config_keys(release)
    return None if keys is None else _KEY in keys


def _since() -> str | None:
    from jetson_specdec.engine import tables

    ranges = tables.table()["config_keys"].get(_KEY)
    return ranges[0][0] if ranges else None
