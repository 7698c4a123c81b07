# SPDX-License-Identifier: Apache-2.0
"""What a strategy is given and what it may answer.

A strategy looks at a `Situation` and returns one value; it does no I/O and raises nothing for what it merely dislikes.
The planner asks strategies by descending `priority` and takes the first `Proposal`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from attrs import evolve, field

from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.models.core import DraftPair, Head, TargetIdentity, TargetRecord
    from jetson_specdec.models.profile import ModelProfile
    from jetson_specdec.recipe.config_file import ConfigFile
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.handover import MemTune
    from jetson_specdec.recipe.speculation import Speculation

__all__ = ["Attempt", "Download", "Proposal", "Refusal", "Situation", "Strategy"]


@frozen(kw_only=True)
class Attempt:
    """A start that was tried for this situation and failed; what it asks for is taken into account.

    Attributes:
        strategy: name of the strategy that was tried.
        model: draft or head that was tried, or None.
        cause: why it failed, in the vocabulary of launch diagnoses.
        utilization: `--gpu-memory-utilization` it was tried with, or None.
    """

    strategy: str
    model: str | None = None
    cause: str | None = None
    utilization: float | None = None


@frozen(kw_only=True)
class Situation:
    """Everything a decision rests on, read beforehand; deciding needs nothing else.

    Attributes:
        device: the board.
        release: the vLLM the recipe runs.
        recipe, command: the recipe and which of its serve commands is planned for.
        flags: what the command's arguments mean.
        speculation: the speculation that is already there.
        identity: which model is served.
        record: what the catalogue knows of it, or None.
        profile: its shape and sizes, or None.
        damaged: what is wrong with files of the target or of the named drafter that are at hand.
        heads: published drafters for it, best first.
        pairs: same-family drafts for it, best first.
        head_wanted: a head or drafter the user named (`--head`), or None.
        head_record: its catalogue entry, or None.
        draft_wanted: a draft model the user named (`--draft`), or None.
        draft_record: the catalogue's entry for this pair, or None.
        drafter_profile: shape and sizes of the named head or draft where its files are at hand, or None.
        tokenizers: `tokenizer.json` of target and draft where both are at hand; None where one is not.
        head_near_misses: known ids that look like `head_wanted`.
        speculator_near_misses: the same for the drafter that the recipe already uses.
        speculator_known: whether the drafter the recipe already uses is in the catalogue; None where there is none.
        speculator_head: the catalogue's entry for the head that the recipe already uses, or None.
        drafter_vocab: vocabulary size of the draft model that is named or already used, where the catalogue knows it.
        drafter_bytes: its weights in bf16, where the catalogue knows them.
        concurrency: requests at once the owner cares about.
        baseline: a benchmark of the recipe as it is, or None.
        baseline_simulated: whether a baseline was handed over that a fake server gave; it is not used.
        baseline_base: the model the baseline was measured with, as the catalogue knows it, or None.
        mem_tune: what `jetson-inference-mem-tune` advised, or None.
        offline: whether the recipe forbids downloads (`HF_HUB_OFFLINE` and the like).
        cached: repository id → whether it is in the model cache the recipe uses; a missing key is "not looked up".
        policy: the thresholds in force.
        attempts: starts that failed before.
    """

    device: Device
    release: EngineRelease
    recipe: Recipe
    command: ServeCommand
    flags: ServeFlags
    speculation: Speculation
    identity: TargetIdentity
    record: TargetRecord | None = None
    profile: ModelProfile | None = None
    damaged: tuple[Finding, ...] = ()
    heads: tuple[Head, ...] = ()
    pairs: tuple[DraftPair, ...] = ()
    head_wanted: str | None = None
    head_record: Head | None = None
    draft_wanted: str | None = None
    draft_record: DraftPair | None = None
    drafter_profile: ModelProfile | None = None
    tokenizers: tuple[bytes | None, bytes | None] = (None, None)
    head_near_misses: tuple[str, ...] = ()
    speculator_near_misses: tuple[str, ...] = ()
    speculator_known: bool | None = None
    speculator_head: Head | None = None
    drafter_vocab: int | None = None
    drafter_bytes: int | None = None
    concurrency: int = 1
    baseline: BenchReport | None = None
    baseline_base: str | None = None
    baseline_simulated: bool = False
    mem_tune: MemTune | None = None
    offline: bool = False
    cached: Mapping[str, bool] = field(factory=dict)
    policy: Policy = DEFAULT_POLICY
    attempts: tuple[Attempt, ...] = ()

    @property
    def config(self) -> ConfigFile | None:
        """The `--config` file of the command, or None."""
        return self.flags.config

    @property
    def model_type(self) -> str | None:
        """The target's `model_type` as vLLM's checks read it, or None."""
        if self.profile is not None and self.profile.model_type is not None:
            return self.profile.model_type
        return self.record.model_type if self.record is not None else None

    def tried(self, strategy: str, model: str | None) -> Attempt | None:
        """Return the failed attempt with this strategy and model, or None."""
        return next((a for a in self.attempts if a.strategy == strategy and a.model == model), None)


@frozen(kw_only=True)
class Download:
    """Something that would be fetched before the plan can run.

    Attributes:
        repo: repository id.
        role: `head` or `draft`.
        bytes: size of its weight files, or None.
        size_status: `published` or `computed`, or None.
        licence: or None when not known.
        gated: whether the repository asks for consent first, or None.
        cached: whether it is already in the model cache the recipe uses, or None when that was not looked up.
        revision: commit to pin, or None when not resolved.
    """

    repo: str
    role: str
    bytes: int | None = None
    size_status: str | None = None
    licence: str | None = None
    gated: bool | None = None
    cached: bool | None = None
    revision: str | None = None


@frozen(kw_only=True)
class Proposal:
    """A speculation that a strategy would add.

    Attributes:
        strategy: name of the strategy; becomes the plan's outcome.
        config: the `--speculative-config` object; None proposes to serve without speculation.
        drafter: what drafts (for the memory ledger), or None.
        downloads: what would be fetched.
        findings: why this, and what to know about it.
    """

    strategy: str
    config: Mapping[str, Any] | None = None
    drafter: Head | DraftPair | ModelProfile | None = None
    downloads: tuple[Download, ...] = ()
    findings: tuple[Finding, ...] = ()

    def with_findings(self, *more: Finding) -> Proposal:
        """Return a copy with further findings."""
        return evolve(self, findings=self.findings + more)


@frozen(kw_only=True)
class Refusal:
    """Why a strategy has nothing to offer; the next one is asked.

    Attributes:
        strategy: name of the strategy.
        reason: the finding that decides.
        findings: what else is worth telling (heads that exist but are unproven, pairs that do not fit).
    """

    strategy: str
    reason: Finding
    findings: tuple[Finding, ...] = ()


@runtime_checkable
class Strategy(Protocol):
    """One way to speculate.

    Register your own under the entry point group `jetson_specdec.strategies`, or hand it to
    `Planner(strategies=[...])`.
    """

    @property
    def name(self) -> str:
        """A short name; the plan's `outcome` when its proposal is taken."""

    @property
    def priority(self) -> int:
        """Strategies are asked from high to low: EAGLE-3 is 300, draft models 200, no speculation 0."""

    def propose(self, situation: Situation) -> Proposal | Refusal:
        """Return what to add, or why not. Must not do I/O."""


def ordered(strategies: Sequence[Strategy]) -> tuple[Strategy, ...]:
    """Return strategies in the order they are asked; equal priorities keep their given order."""
    return tuple(sorted(strategies, key=lambda strategy: -strategy.priority))
