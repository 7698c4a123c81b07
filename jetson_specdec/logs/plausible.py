# SPDX-License-Identifier: Apache-2.0
"""Can these counts of speculative decoding be true?"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

__all__ = ["impossible_count", "too_few_positions"]

_ROUNDING: Final = 0.02
"""Figures of a log have two or three decimals."""


def impossible_count(
    drafts: float | None, drafted: float | None, accepted: float | None, positions: tuple[float, ...] | None
) -> str | None:
    """Return the name of a count that cannot be, or None.

    Args:
        drafts: verification steps with drafted tokens.
        drafted: tokens.
        accepted: tokens.
        positions: accepted tokens at each position of a draft, the first one first.
    """
    for name, count in (("drafts", drafts), ("drafted", drafted), ("accepted", accepted)):
        if count is not None and count < 0:
            return name
    if accepted is not None and accepted > (drafted or 0.0):
        return "accepted"
    if positions is None:
        return None
    # A later token is only accepted after the one before it.
    room = _ROUNDING * (drafts or 0.0)
    falls = all(later <= earlier + room for earlier, later in pairwise(positions))
    possible = all(count >= 0 and (drafts is None or count <= drafts + room) for count in positions)
    return None if falls and possible else "per_position"


def too_few_positions(drafts: float | None, accepted: float | None, positions: tuple[float, ...] | None) -> bool:
    """Say whether more was accepted than these positions hold: some of them are missing."""
    if positions is None or drafts is None or accepted is None:
        return False
    return accepted > len(positions) * drafts * (1 + _ROUNDING)
