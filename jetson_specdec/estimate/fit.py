# SPDX-License-Identifier: Apache-2.0
"""How every known drafter of a target would fit on a board: memory, context, and what it must yield."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.estimate.speed_outlook import SpeedOutlook
    from jetson_specdec.estimate.step import StepChoice
    from jetson_specdec.models.core import DraftPair, Head, TargetRecord
    from jetson_specdec.models.profile import ModelProfile

__all__ = ["DraftFit", "draft_fits"]


@frozen(kw_only=True)
class DraftFit:
    """One drafter on one board.

    Attributes:
        drafter: repository id.
        method: vLLM's method name.
        k: the number of drafted tokens this is worked out for.
        step: what becomes of the utilisation, and the ledger of both arms.
        outlook: break-even, and a range where acceptance is published.
    """

    drafter: str
    method: str
    k: int
    step: StepChoice
    outlook: SpeedOutlook

    @property
    def fits(self) -> bool | None:
        """Whether the server would have room for one full sequence; None when too little is known."""
        return {"full": True, "reduced": True, "none_fits": False}.get(self.step.state)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        ledger = self.step.ledger
        return {
            "drafter": self.drafter,
            "method": self.method,
            "k": self.k,
            "fits": self.fits,
            "utilization": self.step.utilization,
            "kv_tokens": ledger.kv_tokens,
            "tokens_lost": ledger.tokens_lost,
            "memory": ledger.to_json(),
            "speed": self.outlook.to_json(),
        }


def draft_fits(
    target: ModelProfile | None,
    drafters: Iterable[Head | DraftPair],
    device: Device,
    *,
    k: int,
    utilization: float,
    release_version: str | None = None,
    record: TargetRecord | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[DraftFit, ...]:
    """Work out the fit of several drafters for one target. Pure.

    Args:
        target: shape and sizes of what is served; None where they are not known.
        drafters: heads and pairs of the catalogue.
        device: the board; a memory total it does not know leaves the memory side unknown.
        k: number of drafted tokens.
        utilization: `--gpu-memory-utilization` before the memory step.
        release_version: vLLM release, or None.
        record: the target's catalogue entry.
        max_model_len: `--max-model-len`; the target's own where not given.
        max_num_seqs: `--max-num-seqs`, or None.
        policy: the thresholds in force.
    """
    from jetson_specdec.estimate.speed import Board, outlook
    from jetson_specdec.estimate.step import choose_step
    from jetson_specdec.models.core import DraftPair

    found = []
    for drafter in drafters:
        pair = isinstance(drafter, DraftPair)
        method = "draft_model" if isinstance(drafter, DraftPair) else drafter.method
        parallel = not pair and bool(getattr(drafter, "extra_config", {}).get("parallel_drafting"))
        step = choose_step(
            policy=policy,
            utilization=utilization,
            device_total_bytes=device.memory_total_bytes,
            available_bytes=device.memory_available_bytes,
            release_version=release_version,
            target=target,
            draft=drafter,
            k=k,
            method=method,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
        )
        speed = outlook(
            target, drafter, Board.of(device), k=k, method=method, parallel=parallel, record=record, policy=policy
        )
        name = drafter.draft if isinstance(drafter, DraftPair) else drafter.id
        found.append(DraftFit(drafter=name, method=method, k=k, step=step, outlook=speed))
    return tuple(found)
