# SPDX-License-Identifier: Apache-2.0
"""Which drafters a tune may go to when the planned one does not start: what is shown before a yes, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.findings import Finding
from jetson_specdec.planning.decide import decide
from jetson_specdec.strategies import Attempt

if TYPE_CHECKING:
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.strategies import Situation
    from jetson_specdec.strategies.core import Download

__all__ = ["agreed_drafters", "other_drafters"]


def other_drafters(situation: Situation, plan: Plan) -> tuple[Download, ...]:
    """Return what would be fetched for the drafters that the ladder can try after a plan's own, in their order.

    None where the recipe speculates already or its owner named the drafter; one behind a licence click is left out.
    """
    wished = situation.head_wanted or situation.draft_wanted
    if plan.speculative_config is None or situation.speculation.active or wished is not None:
        return ()
    found: list[Download] = []
    attempts = list(situation.attempts)
    while len(attempts) - len(situation.attempts) < situation.policy.ladder_tries - 1:
        model = (plan.speculative_config or {}).get("model")
        attempts.append(Attempt(strategy=plan.outcome, model=model, cause="draft_load_failed"))
        plan = decide(evolve(situation, attempts=tuple(attempts)))
        if plan.speculative_config is None or (plan.speculative_config or {}).get("model") == model:
            break
        found += [each for each in plan.downloads if each.cached is True or not each.gated]
    return tuple(found)


def agreed_drafters(situation: Situation, plan: Plan) -> tuple[Situation, tuple[Finding, ...]]:
    """Return a situation that knows no other drafters than those which are shown, and what shows them."""
    others = other_drafters(situation, plan)
    allowed = {(plan.speculative_config or {}).get("model"), *(each.repo for each in others)}
    narrowed = evolve(
        situation,
        heads=tuple(head for head in situation.heads if head.id in allowed),
        pairs=tuple(pair for pair in situation.pairs if pair.draft in allowed),
    )
    shown = [
        Finding.of("JSD940", repo=each.repo, bytes=each.bytes, licence=each.licence, cached=each.cached)
        for each in others
    ]
    return narrowed, tuple(shown)
