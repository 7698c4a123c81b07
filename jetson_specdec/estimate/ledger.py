# SPDX-License-Identifier: Apache-2.0
"""The values of a memory ledger: one line per consumer, one arm without and one with speculation."""

from __future__ import annotations

from typing import Any, Literal

import attrs

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["ArmLedger", "ArmState", "LineConfidence", "MemoryLedger", "MemoryLine"]

LineConfidence = Literal["high", "medium", "low", "unknown"]
ArmState = Literal["fits", "start_check_fails", "kv_cache_none", "kv_cache_too_small", "unknown"]


@frozen(kw_only=True)
class MemoryLine:
    """One consumer of memory.

    Attributes:
        name: `target_weights`, `draft_weights`, `activations`, `cuda_graphs`, `kv_cache`, `recurrent_state`,
            `lookahead`.
        bytes: None when unknown, never 0 for that.
        inside: what it is taken from: `budget` (utilisation), `kv_cache` (already in that line) or `device` (on top of
            the budget).
        basis: how the number came about.
        source: where it comes from.
        confidence: `high` (file headers, settings), `medium` (formula, catalogue), `low` (allowance), `unknown`.
    """

    name: str
    bytes: int | None
    inside: Literal["budget", "kv_cache", "device"] = "budget"
    basis: str
    source: str
    confidence: LineConfidence


@frozen(kw_only=True)
class ArmLedger:
    """One way to serve: `off` without, `on` with speculation.

    Attributes:
        name: `off` or `on`.
        utilization: `--gpu-memory-utilization`.
        lines: the consumers.
        budget_bytes: ⌈MemTotal · utilisation⌉, which vLLM calls requested.
        free_bytes: what counts as free for this release's start check, or None.
        free_counts: `MemAvailable`, `MemFree` or None.
        starts: whether free ≥ requested; None when one of them is unknown.
        kv_available_bytes: what is left for the KV cache (negative when the rest does not even fit).
        kv_bytes_per_token: layers that keep all tokens, target and drafter.
        kv_tokens: as vLLM would log "KV cache size".
        full_sequences: of the full length, at once.
        needed_bytes: KV cache of one full sequence.
        longest: longest sequence that fits, at most `max_model_len`.
        max_model_len: the length this was computed for.
        state: what the start would come to, as far as these numbers go.
        confidence: the lowest of the lines that count.
        missing: inputs that were unknown and kept something from being computed.
    """

    name: Literal["off", "on"]
    utilization: float | None
    lines: tuple[MemoryLine, ...]
    budget_bytes: int | None = None
    free_bytes: int | None = None
    free_counts: str | None = None
    starts: bool | None = None
    kv_available_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_tokens: int | None = None
    full_sequences: float | None = None
    needed_bytes: int | None = None
    longest: int | None = None
    max_model_len: int | None = None
    state: ArmState = "unknown"
    confidence: LineConfidence = "unknown"
    missing: tuple[str, ...] = ()

    @property
    def kv_fits(self) -> bool | None:
        """Whether one full sequence has room; None when unknown. The start check is not part of it."""
        if self.kv_available_bytes is not None and self.kv_available_bytes <= 0:
            return False
        if self.longest is None or self.max_model_len is None:
            return None
        return self.longest >= self.max_model_len

    def line(self, name: str) -> MemoryLine | None:
        """Return a line by name."""
        return next((line for line in self.lines if line.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return attrs.asdict(self)


@frozen(kw_only=True)
class MemoryLedger:
    """Both arms and what speculation costs.

    Attributes:
        off: serving as the recipe does.
        on: with the drafter, at its utilisation; None where nothing drafts.
        tokens_lost: KV tokens of `off` − `on`.
        tokens_lost_to_draft: part of it that the drafter takes at the same utilisation.
        tokens_lost_to_step: part of it that lowering the utilisation takes.
        findings: what is worth saying about it.
    """

    off: ArmLedger
    on: ArmLedger | None = None
    tokens_lost: int | None = None
    tokens_lost_to_draft: int | None = None
    tokens_lost_to_step: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def arm(self) -> ArmLedger:
        """The arm that would run: `on` where there is one."""
        return self.on or self.off

    @property
    def kv_tokens(self) -> int | None:
        """KV tokens of the arm that would run."""
        return self.arm.kv_tokens

    @property
    def full_sequences(self) -> float | None:
        """Full sequences of the arm that would run."""
        return self.arm.full_sequences

    @property
    def starts(self) -> bool | None:
        """Start check of the arm that would run."""
        return self.arm.starts

    @property
    def state(self) -> ArmState:
        """State of the arm that would run."""
        return self.arm.state

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "off": self.off.to_json(),
            "on": self.on.to_json() if self.on else None,
            "tokens_lost": self.tokens_lost,
            "tokens_lost_to_draft": self.tokens_lost_to_draft,
            "tokens_lost_to_step": self.tokens_lost_to_step,
            "findings": [finding.to_json() for finding in self.findings],
        }
