# SPDX-License-Identifier: Apache-2.0
"""Which speculation, if any: the `Strategy` protocol and the built-in strategies."""

from jetson_specdec.strategies.core import Attempt, Download, Proposal, Refusal, Situation, Strategy, ordered
from jetson_specdec.strategies.draft_model import DraftModelStrategy
from jetson_specdec.strategies.eagle3 import Eagle3Strategy
from jetson_specdec.strategies.nospec import NoSpec

__all__ = [
    "Attempt",
    "Download",
    "DraftModelStrategy",
    "Eagle3Strategy",
    "NoSpec",
    "Proposal",
    "Refusal",
    "Situation",
    "Strategy",
    "default_strategies",
    "ordered",
]


def default_strategies() -> tuple[Strategy, ...]:
    """Return the built-in strategies, highest priority first."""
    return (Eagle3Strategy(), DraftModelStrategy(), NoSpec())
