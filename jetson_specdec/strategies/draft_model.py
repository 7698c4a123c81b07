# SPDX-License-Identifier: Apache-2.0
"""A small model of the same family as draft, with the identical vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.strategies.common import (
    downloads_of,
    release_reaches,
    start_k,
    unidentified,
    usual_config,
)
from jetson_specdec.strategies.core import Proposal, Refusal, Situation

if TYPE_CHECKING:
    from jetson_specdec.models.core import DraftPair

__all__ = ["DraftModelStrategy"]


class DraftModelStrategy:
    """Propose the smallest known draft of the target's family whose vocabulary is identical.

    `use_heterogeneous_vocab` is never proposed. A draft that the user names (`draft_wanted`) is used unless it is known
    not to fit.
    """

    name = "draft_model"
    priority = 200

    def propose(self, situation: Situation) -> Proposal | Refusal:
        """Return a proposal with the chosen draft, or the reason why there is none."""
        if situation.head_wanted is not None and situation.draft_wanted is None:
            return Refusal(strategy=self.name, reason=Finding.of("JSD558", wanted=situation.head_wanted))
        refused = self._method(situation)
        if refused is not None:
            return refused
        if situation.draft_wanted is not None:
            return self._wanted(situation, situation.draft_wanted)
        unknown = unidentified(situation)
        if unknown is not None:
            return Refusal(strategy=self.name, reason=unknown)
        usable = [pair for pair in situation.pairs if pair.usable and situation.tried(self.name, pair.draft) is None]
        fitting = [pair for pair in usable if release_reaches(situation.release, pair.min_vllm) is not False]
        if not fitting:
            return self._nothing(situation, usable)
        chosen, others = fitting[0], fitting[1:]
        proposal = self._with(situation, chosen.draft, chosen)
        if others:
            proposal = proposal.with_findings(
                Finding.of("JSD556", chosen=chosen.draft, others=[pair.draft for pair in others])
            )
        return proposal

    def _method(self, situation: Situation) -> Refusal | None:
        from jetson_specdec.engine.speculative import method_support

        support = method_support("draft_model", situation.release, situation.model_type)
        l4t = situation.device.l4t
        if support.state == "unsupported":
            reason = support.finding or Finding.of("JSD548", method="draft_model", since=support.since)
            return Refusal(strategy=self.name, reason=reason)
        if support.state == "unknown" and situation.device.runtime != "upstream_vllm":
            # Only where the board's own rule asks for a release that has the method can an unknown one be trusted.
            return Refusal(strategy=self.name, reason=Finding.of("JSD553", l4t=l4t, since=support.since))
        return None

    def _nothing(self, situation: Situation, usable: list[DraftPair]) -> Refusal:
        target = situation.identity.base or situation.identity.id or situation.identity.served
        if usable:
            pair = usable[0]
            return Refusal(
                strategy=self.name,
                reason=Finding.of("JSD554", draft=pair.draft, needs=pair.min_vllm, release=situation.release.version),
            )
        mismatched = [pair for pair in situation.pairs if pair.why_not == "vocab-mismatch"]
        if mismatched:
            pair = mismatched[0]
            reason = Finding.of(
                "JSD551",
                target=target,
                drafts=[each.draft for each in mismatched],
                target_vocab=pair.target_vocab_size,
                draft_vocab=pair.draft_vocab_size,
            )
            return Refusal(strategy=self.name, reason=reason)
        unfit = [pair for pair in situation.pairs if not pair.usable]
        if unfit:
            reason = Finding.of("JSD552", target=target, draft=unfit[0].draft, why=unfit[0].why_not)
            return Refusal(strategy=self.name, reason=reason)
        code = "JSD546" if situation.pairs and situation.attempts else "JSD550"
        return Refusal(strategy=self.name, reason=Finding.of(code, target=target))

    def _wanted(self, situation: Situation, wanted: str) -> Proposal | Refusal:
        pair = situation.draft_record
        if pair is None:
            unfit = self._unfit(situation, wanted)
            if unfit is not None:
                return Refusal(strategy=self.name, reason=unfit)
            proposal = self._with(situation, wanted, None)
            if situation.drafter_profile is not None:
                return proposal  # its files are at hand: the pair is checked with them
            return proposal.with_findings(Finding.of("JSD555", draft=wanted))
        if pair.why_not == "vocab-mismatch":
            reason = Finding.of(
                "JSD551",
                target=pair.target,
                drafts=[pair.draft],
                target_vocab=pair.target_vocab_size,
                draft_vocab=pair.draft_vocab_size,
            )
            return Refusal(strategy=self.name, reason=reason)
        if release_reaches(situation.release, pair.min_vllm) is False:
            reason = Finding.of("JSD554", draft=wanted, needs=pair.min_vllm, release=situation.release.version)
            return Refusal(strategy=self.name, reason=reason)
        proposal = self._with(situation, wanted, pair)
        if pair.why_not is not None:
            proposal = proposal.with_findings(
                Finding.of("JSD552", target=pair.target, draft=pair.draft, why=pair.why_not)
            )
        return proposal

    def _unfit(self, situation: Situation, wanted: str) -> Finding | None:
        """Why a draft that is no known pair cannot serve, as far as the catalogue knows both models."""
        record = situation.record
        target = situation.identity.base or situation.identity.id
        vocab = record.vocab_size if record is not None else None
        if vocab is not None and situation.drafter_vocab is not None and vocab != situation.drafter_vocab:
            return Finding.of(
                "JSD551", target=target, drafts=[wanted], target_vocab=vocab, draft_vocab=situation.drafter_vocab
            )
        size = record.weight_bytes.get("bf16") if record is not None else None
        if size is not None and situation.drafter_bytes is not None and situation.drafter_bytes >= size:
            return Finding.of("JSD552", target=target, draft=wanted, why="draft-too-large")
        return None

    def _with(self, situation: Situation, draft_id: str, pair: DraftPair | None) -> Proposal:
        k, why_k = start_k(situation)
        code = "JSD539" if pair is not None else "JSD537"
        findings = [why_k, Finding.of(code, draft=draft_id, target=situation.identity.base)]
        if pair is not None:
            findings += [Finding.of("JSD559", id=pair.draft, note=note) for note in pair.notes]
        return Proposal(
            strategy=self.name,
            config=usual_config(situation, "draft_model", draft_id, k),
            drafter=pair or situation.drafter_profile,
            downloads=downloads_of(situation, draft_id, "draft", pair),
            findings=tuple(findings),
        )
