# SPDX-License-Identifier: Apache-2.0
"""What a failed start means for a tune: try it once more, take it for an answer, or wait for a person. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetson_specdec.server.rungs import BY_HAND, about_memory

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis

__all__ = ["answers", "may_pass"]

_BY_CHANCE: Final = ("start_timeout", "engine_failed", "first_request_failed")
"""Causes that say too little to be sure that the same start would fail alike."""


def may_pass(diagnosis: Diagnosis, *, before: bool) -> bool:
    """Whether the same start may succeed a moment later.

    Args:
        diagnosis: of the start that failed.
        before: whether exactly this has started before; then the board's state is what differs.
    """
    if diagnosis.remedy == "retry":
        return True
    by_hand = diagnosis.remedy in BY_HAND
    return before and not by_hand and (about_memory(diagnosis) or diagnosis.cause in _BY_CHANCE)


def answers(diagnosis: Diagnosis) -> bool:
    """Whether a start fails because of what was asked of it (a larger k, a schedule), so that it is an answer.

    A full disk, a port in use or a missing licence is none: it says nothing about what was asked.
    """
    if diagnosis.remedy == "retry" or diagnosis.remedy in BY_HAND:
        return False
    return about_memory(diagnosis) or diagnosis.speculation_involved is not False
