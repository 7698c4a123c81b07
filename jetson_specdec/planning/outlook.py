# SPDX-License-Identifier: Apache-2.0
"""What a plan can say about speed before anything ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetson_specdec.estimate.speed_outlook import SpeedOutlook
    from jetson_specdec.strategies.core import Proposal, Situation

__all__ = ["speed_outlook"]


def speed_outlook(situation: Situation, proposal: Proposal) -> SpeedOutlook | None:
    """Return break-even and range for a proposal; None where it drafts with no model (n-gram and the like).

    Pure. With a baseline of the recipe as it is, its TPOT calibrates the estimate.
    """
    config = proposal.config or {}
    k = config.get("num_speculative_tokens")
    if proposal.drafter is None or not isinstance(k, int) or k < 1:
        return None
    from jetson_specdec.estimate.speed_constants import Board
    from jetson_specdec.estimate.speed_outlook import outlook

    calibration = share = None
    if situation.baseline is not None:
        from jetson_specdec.estimate.speed_calibration import calibrate_report
        from jetson_specdec.measurements import decode_share
        from jetson_specdec.measurements.coherence import speed_contradicts_time

        if speed_contradicts_time(situation.baseline) is None:
            calibration, share = calibrate_report(situation.baseline), decode_share(situation.baseline)
    return outlook(
        situation.profile,
        proposal.drafter,
        Board.of(situation.device),
        k=k,
        method=str(config.get("method")),
        parallel=bool(config.get("parallel_drafting")),
        record=situation.record,
        calibration=calibration,
        decode_share=share,
        concurrency=situation.concurrency,
        kv_dtype=situation.flags.kv_cache_dtype or "auto",
        policy=situation.policy,
    )
