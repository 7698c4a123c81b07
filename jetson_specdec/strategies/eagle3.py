# SPDX-License-Identifier: Apache-2.0
"""EAGLE-3: use a head that was published for exactly this target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_specdec.findings import Finding
from jetson_specdec.strategies.common import downloads_of, release_reaches, start_k, unidentified, usual_config
from jetson_specdec.strategies.core import Proposal, Refusal, Situation

if TYPE_CHECKING:
    from jetson_specdec.models.core import Head

__all__ = ["Eagle3Strategy"]


class Eagle3Strategy:
    """Propose the best published EAGLE-3 head for the target.

    Only heads that somebody showed or documented to load in vLLM are chosen by themselves; the others are named, and
    used when the user asks for one (`head_wanted`).
    """

    name = "eagle3"
    priority = 300

    def propose(self, situation: Situation) -> Proposal | Refusal:
        """Return a proposal with the chosen head, or the reason why there is none."""
        if situation.draft_wanted is not None and situation.head_wanted is None:
            return Refusal(strategy=self.name, reason=Finding.of("JSD558", wanted=situation.draft_wanted))
        wanted = situation.head_wanted
        if wanted is not None:
            return self._wanted(situation, wanted)
        return self._best(situation)

    def _best(self, situation: Situation) -> Proposal | Refusal:
        unknown = unidentified(situation)
        if unknown is not None:
            return Refusal(strategy=self.name, reason=unknown)
        base = situation.identity.base
        proven, unproven, too_new = [], [], []
        for head in situation.heads:
            if head.loads_in_vllm == "unknown" or not head.id_verified:
                unproven.append(head)
            elif release_reaches(situation.release, head.min_vllm) is False:
                too_new.append(head)
            elif situation.tried(self.name, head.id) is None:
                proven.append(head)
        named = _named(unproven, too_new)
        if not proven:
            if too_new:
                newest = too_new[0]
                reason = Finding.of(
                    "JSD542", head=newest.id, needs=newest.min_vllm, release=_release_text(situation), target=base
                )
                return Refusal(strategy=self.name, reason=reason, findings=named)
            served = situation.identity.id or situation.identity.served
            code = "JSD546" if situation.attempts and situation.heads else "JSD540"
            return Refusal(strategy=self.name, reason=Finding.of(code, target=base or served), findings=named)
        chosen, others = proven[0], proven[1:]
        proposal = self._with(situation, chosen.id, chosen)
        if isinstance(proposal, Refusal) or not (others or named):
            return proposal
        if others:
            proposal = proposal.with_findings(
                Finding.of("JSD545", chosen=chosen.id, others=[head.id for head in others])
            )
        return proposal.with_findings(*named)

    def _wanted(self, situation: Situation, wanted: str) -> Proposal | Refusal:
        record, base = situation.head_record, situation.identity.base
        if record is None:
            proposal = self._with(situation, wanted, None)
            unknown = Finding.of("JSD543", head=wanted, near=list(situation.head_near_misses))
            if isinstance(proposal, Refusal):
                return Refusal(strategy=self.name, reason=proposal.reason, findings=(unknown, *proposal.findings))
            return proposal.with_findings(unknown)
        if record.method != "eagle3":
            reason = Finding.of("JSD547", head=wanted, method=record.method)
            return Refusal(strategy=self.name, reason=reason)
        if base is not None and record.target not in (base, situation.identity.id):
            reason = Finding.of("JSD544", head=wanted, made_for=record.target, target=base)
            return Refusal(strategy=self.name, reason=reason)
        if release_reaches(situation.release, record.min_vllm) is False:
            reason = Finding.of(
                "JSD542", head=wanted, needs=record.min_vllm, release=_release_text(situation), target=base
            )
            return Refusal(strategy=self.name, reason=reason)
        proposal = self._with(situation, wanted, record)
        if isinstance(proposal, Proposal) and record.loads_in_vllm == "unknown":
            return proposal.with_findings(Finding.of("JSD541", heads=[record.id], severity=None))
        return proposal

    def _with(self, situation: Situation, head_id: str, head: Head | None) -> Proposal | Refusal:
        from jetson_specdec.engine.speculative import method_support

        support = method_support("eagle3", situation.release, situation.model_type)
        if support.state == "unsupported":
            reason = support.finding or Finding.of("JSD548", method="eagle3", since=support.since)
            return Refusal(strategy=self.name, reason=reason)
        k, why_k = start_k(situation)
        extra: dict[str, Any] = dict(head.extra_config) if head is not None else {}
        findings = [why_k]
        if support.finding is not None:
            findings.append(support.finding)
        if head is not None:
            findings.append(
                Finding.of(
                    "JSD549",
                    head=head.id,
                    target=situation.identity.base,
                    loads=head.loads_in_vllm,
                    licence=head.licence,
                    sources=list(head.sources),
                )
            )
            findings += [Finding.of("JSD559", id=head.id, note=note) for note in head.notes]
        return Proposal(
            strategy=self.name,
            config=usual_config(situation, "eagle3", head_id, k, extra),
            drafter=head or situation.drafter_profile,
            downloads=downloads_of(situation, head_id, "head", head),
            findings=tuple(findings),
        )


def _named(unproven: list[Head], too_new: list[Head]) -> tuple[Finding, ...]:
    findings = []
    if unproven:
        findings.append(Finding.of("JSD541", heads=[head.id for head in unproven]))
    findings += [Finding.of("JSD557", head=head.id, needs=head.min_vllm) for head in too_new]
    return tuple(findings)


def _release_text(situation: Situation) -> str | None:
    return situation.release.version or (situation.release.candidates[-1] if situation.release.candidates else None)
