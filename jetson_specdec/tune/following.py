# SPDX-License-Identifier: Apache-2.0
"""What follows from a block that was measured: is the pair usable, is there anything to prove, what is pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.findings import Finding
from jetson_specdec.gate import Gate
from jetson_specdec.tune.blocks import kv_pool
from jetson_specdec.tune.schedule import Measure, usable_pairs

if TYPE_CHECKING:
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import LadderResult
    from jetson_specdec.tune.core import BlockRecord
    from jetson_specdec.tune.session import Session

__all__ = ["NothingToProve", "adopt", "check_pair", "look_at_baseline", "make_schedule", "pin"]


class NothingToProve(Exception):  # noqa: N818 - how a tune ends, not a mistake
    """The baseline shows that speculation is not the answer.

    Attributes:
        plan: what is decided with that baseline.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan


def look_at_baseline(session: Session, baseline: BenchReport) -> None:
    """End it where the baseline says that decoding is too small a share of the time to gain from."""
    from jetson_specdec.planning.decide import decide

    if session.arms.plan.outcome == "already":
        return
    again = decide(evolve(session.arms.situation, baseline=baseline, policy=session.policy))
    if again.outcome == "none" and again.has("ttft-bound"):
        raise NothingToProve(again)


def check_pair(session: Session, block: BlockRecord) -> None:
    """Set a pair aside whose arms cannot be compared; else tell how it stands."""
    if block.pair is None or block.variant != session.progress.variant:
        return
    both = usable_pairs(session.progress).get(block.pair)
    if both is None:
        return
    alone = Gate(policy=session.policy).judge(*(session.evidence.report(each.report) for each in both))
    if alone.outcome == "invalid":
        variant = session.progress.variant
        spoilt = (*session.progress.spoilt.get(variant, ()), block.pair)
        session.progress = evolve(session.progress, spoilt={**session.progress.spoilt, variant: spoilt})
        reason = alone.reasons[0].message if alone.reasons else None
        session.findings.append(Finding.of("JSD965", pair=block.pair, reason=reason))
        return
    verdict = session.verdict()
    if verdict is not None:
        session.tell("tune-event-verdict", {"pairs": verdict.pairs, "outcome": verdict.outcome})


def pin(session: Session, action: Measure, page: str | None, log_path: str) -> None:
    """Take the pool of the first start with speculation for both arms."""
    if not session.settings.pin_kv or action.role != "search" or session.arms.both:
        return
    pool = kv_pool(page, log_path)
    if pool is None:
        session.findings.append(Finding.of("JSD978"))
        session.progress = evolve(session.progress, baseline_counts=True)
        session.settings = evolve(session.settings, pin_kv=False)
        return
    blocks, tokens = pool
    session.arms = evolve(session.arms, both={"num-gpu-blocks-override": str(blocks)})
    session.findings.append(Finding.of("JSD969", tokens=tokens, blocks=blocks))


def make_schedule(session: Session) -> None:
    """Make a batch schedule from the pairs so far and prove that from now on, or say why there is none."""
    from jetson_specdec.tune.batches import schedule_from

    pairs = usable_pairs(session.progress)
    reports = [(session.evidence.report(off.report), session.evidence.report(on.report)) for off, on in pairs.values()]
    step = session.progress.step(session.policy)
    assert step is not None
    made = schedule_from(reports, step.k, session.arms.situation, session.policy)
    session.progress = evolve(session.progress, schedule_tried=True)
    if isinstance(made, Finding):
        session.findings.append(made)
        return
    session.schedule = made
    session.progress = evolve(session.progress, variant=1)


def adopt(session: Session, reached: LadderResult) -> None:
    """Go on with what started: its configuration and the flags the ladder changed."""
    assert reached.plan is not None
    last = reached.tries[-1].setting
    flags = dict(session.arms.flags)
    for name, value in (
        ("gpu-memory-utilization", last.utilization),
        ("max-model-len", last.max_model_len),
        ("max-num-seqs", last.max_num_seqs),
    ):
        if value is not None and value != getattr(reached.tries[0].setting, name.replace("-", "_"), value):
            flags[name] = f"{value:g}" if isinstance(value, float) else str(value)
    if last.utilization is not None and last.utilization != reached.tries[0].setting.utilization:
        flags["gpu-memory-utilization"] = f"{last.utilization:g}"
    config = dict(reached.plan.speculative_config or {})
    session.arms = evolve(session.arms, config=config, flags=flags)
    k = config.get("num_speculative_tokens")
    if isinstance(k, int) and k < session.progress.start_k:
        session.progress = evolve(session.progress, start_k=k, max_k=k)
    shown = ", ".join(f"{name} {value}" for name, value in flags.items())
    model = config.get("model")
    setting = f"{model}, k = {k}" + (f", {shown}" if shown else "")
    session.findings.append(Finding.of("JSD968", tries=len(reached.tries), setting=setting))
