# SPDX-License-Identifier: Apache-2.0
"""Serve without speculation: the answer when nothing else fits."""

from __future__ import annotations

from jetson_specdec.findings import Finding
from jetson_specdec.strategies.common import unidentified
from jetson_specdec.strategies.core import Proposal, Refusal, Situation

__all__ = ["NoSpec"]


class NoSpec:
    """Propose to leave the recipe as it is. A real strategy, so that "no" is a decision like any other."""

    name = "none"
    priority = 0

    def propose(self, situation: Situation) -> Proposal | Refusal:
        """Return a proposal without a speculative config; never refuses."""
        if unidentified(situation) is not None:
            return Proposal(strategy=self.name)  # what is missing for a decision is said already
        return Proposal(strategy=self.name, findings=(Finding.of("JSD538", target=situation.identity.served),))
