# SPDX-License-Identifier: Apache-2.0
"""What to do next in a tune, given everything that was measured so far. Pure: the same state gives the same action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from attrs import field

from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.core import ArmName, BlockRecord, Role, TuneSettings
from jetson_specdec.tune.search import KStep, Probe, next_k
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict

__all__ = ["Action", "Finish", "Measure", "Progress", "TrySchedule", "next_action", "settled", "usable_pairs"]

_TIME_SLACK = 1.1
"""A block is expected to take a tenth longer than those before it."""


@frozen(kw_only=True)
class Measure:
    """Start one arm and measure it.

    Attributes:
        role, arm, variant, pair, k: as in `BlockRecord`.
        concurrency: requests in flight.
    """

    role: Role
    arm: ArmName
    variant: int = 0
    pair: int | None = None
    k: int | None = None
    concurrency: tuple[int, ...] = (1, 8)


@frozen
class TrySchedule:
    """Only a higher concurrency loses: make a batch schedule and prove that instead."""


@frozen(kw_only=True)
class Finish:
    """Nothing is left to measure.

    Attributes:
        reason: `settled`, `pairs` (used up), `hopeless` (more would not settle it), `time`, `spoilt` (pairs that cannot
            be compared) or `search` (the launches of the search showed no figures).
        needed_s: for `time`: how long the next part would have taken.
    """

    reason: Literal["settled", "pairs", "hopeless", "time", "spoilt", "search"]
    needed_s: float | None = None


Action = Measure | TrySchedule | Finish


@frozen(kw_only=True)
class Progress:
    """Everything that was measured so far.

    Attributes:
        blocks: in order.
        start_k: where the search for k starts.
        elapsed_s: since the server went down.
        variant: 0, or 1 once a batch schedule is tried.
        schedule_tried: whether a schedule was made, or found impossible.
        spoilt: pairs that cannot be compared, by variant.
        verdict: over the usable pairs of this variant; None before the first.
        baseline_counts: the baseline is the first pair's OFF block (not when the KV pool is pinned afterwards).
        max_k: largest k that starts, where a larger one did not; None where none failed.
    """

    blocks: tuple[BlockRecord, ...] = ()
    start_k: int = 3
    elapsed_s: float = 0.0
    variant: int = 0
    schedule_tried: bool = False
    spoilt: Mapping[int, tuple[int, ...]] = field(factory=dict)
    verdict: Verdict | None = None
    baseline_counts: bool = True
    max_k: int | None = None

    @property
    def baseline(self) -> BlockRecord | None:
        """The baseline."""
        return next((block for block in self.blocks if block.role == "baseline"), None)

    def step(self, policy: Policy) -> KStep | None:
        """Return the state of the search for k; None where what was measured shows no speed or no acceptance."""
        base = self.baseline
        searches = [block for block in self.blocks if block.role == "search"]
        probes = [block.probe for block in searches if block.probe is not None]
        if len(probes) < len(searches) or base is None or base.tpot_s is None:
            return None
        return _searched(base.tpot_s, tuple(probes), self.start_k, policy, self.max_k)


@lru_cache(maxsize=8)
def _searched(plain_s: float, probes: tuple[Probe, ...], start_k: int, policy: Policy, max_k: int | None) -> KStep:
    """Asked for again after each block; the answer stays the same until the next launch of the search."""
    return next_k(plain_s, probes, start_k=start_k, policy=policy, max_k=max_k)


def usable_pairs(progress: Progress) -> dict[int, tuple[BlockRecord, BlockRecord]]:
    """Return the pairs of this variant that have both arms and can be compared: number → (off, on)."""
    found = {block.key: block for block in progress.blocks if block.role == "pair"}
    base = progress.baseline
    if progress.baseline_counts and base is not None:
        found.setdefault((0, 1, "off"), base)
    left_out = progress.spoilt.get(progress.variant, ())
    pairs = {}
    for variant, pair, arm in found:
        if variant == progress.variant and arm == "on" and pair is not None and pair not in left_out:
            off = found.get((variant, pair, "off"))
            if off is not None:
                pairs[pair] = (off, found[(variant, pair, "on")])
    return dict(sorted(pairs.items()))


def settled(verdict: Verdict | None, pairs: int, policy: Policy, *, variant: int = 0) -> bool:
    """Whether further pairs are not needed.

    Switching on, and anything in between, takes `min_pairs`: one pair does not show how much runs differ. Switching
    off is the safe side: a single pair settles it where speculation is slower beyond the noise of its requests. Where
    only concurrency 8 loses and the gain of single requests is not yet known, a few more show whether a batch schedule
    is worth trying; with one there is nothing left to try.
    """
    if verdict is None or pairs == 0:
        return False
    if verdict.outcome == "disable":
        gain = verdict.criterion("throughput_c1")
        slower = gain is not None and gain.interval is not None and gain.interval[1] < 0
        open_yet = not variant and pairs < 2 * policy.min_pairs and _only_eight(verdict)
        return slower or (pairs >= policy.min_pairs and not open_yet)
    if verdict.outcome in ("inconclusive", "invalid"):
        return False
    return pairs >= policy.min_pairs


def _only_eight(verdict: Verdict) -> bool:
    """Whether concurrency 8 loses while the criteria at concurrency 1 may still be met."""
    names = ("throughput_c1", "tpot_c1", "throughput_c1_floor", "throughput_c8")
    states = [criterion.state if (criterion := verdict.criterion(name)) else None for name in names]
    return states[3] == "failed" and "failed" not in states[:3] and "undecided" in states[:3]


def next_action(progress: Progress, settings: TuneSettings, *, policy: Policy = DEFAULT_POLICY) -> Action:
    """Return what to do next.

    The baseline comes first, then the search for k, then pairs: OFF before ON in odd pairs, ON before OFF in even
    ones, so that what changes slowly (heat, memory) weighs on both arms alike.
    """
    if progress.baseline is None:
        return Measure(role="baseline", arm="off", pair=1, concurrency=settings.concurrency)
    step = progress.step(policy)
    if step is None:
        return Finish(reason="search")
    if step.action == "probe":
        return _in_time(Measure(role="search", arm="on", k=step.k, concurrency=(1,)), 1, progress, settings)
    pairs = usable_pairs(progress)
    half = _half(progress, settings, step.k)
    if half is not None:
        return _in_time(half, 1, progress, settings)
    verdict = progress.verdict
    if settled(verdict, len(pairs), policy, variant=progress.variant):
        assert verdict is not None
        if verdict.outcome == "enable_limited" and progress.variant == 0 and not progress.schedule_tried:
            return TrySchedule()
        return Finish(reason="settled")
    spoilt = progress.spoilt.get(progress.variant, ())
    if len(spoilt) > policy.max_spoilt_pairs:
        return Finish(reason="spoilt")
    if len(pairs) >= policy.max_pairs:
        return Finish(reason="pairs")
    # Judged from few pairs the spread is itself uncertain, so twice the least number has to agree.
    enough = len(pairs) >= 2 * policy.min_pairs
    if verdict is not None and verdict.outcome == "inconclusive" and verdict.more_pairs is None and enough:
        return Finish(reason="hopeless")
    number = _next_number(progress)
    arms = _order(number)
    first = Measure(
        role="pair",
        arm=arms[0],
        variant=progress.variant,
        pair=number,
        k=step.k if arms[0] == "on" else None,
        concurrency=settings.concurrency,
    )
    return _in_time(first, 2, progress, settings)


def _order(pair: int) -> tuple[ArmName, ArmName]:
    return ("off", "on") if pair % 2 else ("on", "off")


def _numbers(progress: Progress) -> dict[int, set[ArmName]]:
    found: dict[int, set[ArmName]] = {}
    for block in progress.blocks:
        if block.role == "pair" and block.variant == progress.variant and block.pair is not None:
            found.setdefault(block.pair, set()).add(block.arm)
    if progress.baseline_counts and progress.variant == 0 and progress.baseline is not None:
        found.setdefault(1, set()).add("off")
    return found


def _half(progress: Progress, settings: TuneSettings, k: int) -> Measure | None:
    """Return the missing half of a pair that was begun."""
    for number, arms in sorted(_numbers(progress).items()):
        missing = [arm for arm in _order(number) if arm not in arms]
        if missing and number not in progress.spoilt.get(progress.variant, ()):
            return Measure(
                role="pair",
                arm=missing[0],
                variant=progress.variant,
                pair=number,
                k=k if missing[0] == "on" else None,
                concurrency=settings.concurrency,
            )
    return None


def _next_number(progress: Progress) -> int:
    return max(_numbers(progress), default=0) + 1


def _in_time(action: Measure, blocks: int, progress: Progress, settings: TuneSettings) -> Action:
    """Return the action, or the end where it would not be over in time."""
    if settings.max_time_s is None:
        return action
    needed = blocks * _expected(action, progress.blocks) * _TIME_SLACK
    if progress.elapsed_s + needed > settings.max_time_s:
        return Finish(reason="time", needed_s=needed)
    return action


def _expected(action: Measure, blocks: Sequence[BlockRecord]) -> float:
    """Return how long a block takes: as the longest of its kind so far."""
    alike = [block.seconds for block in blocks if (block.role == "search") == (action.role == "search")]
    return max(alike or [block.seconds for block in blocks], default=0.0)
