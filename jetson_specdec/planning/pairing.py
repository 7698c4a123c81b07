# SPDX-License-Identifier: Apache-2.0
"""Whether a proposed drafter fits the target, as far as their files or the catalogue tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding, Severity

if TYPE_CHECKING:
    from jetson_specdec.strategies.core import Proposal, Situation

__all__ = ["pair_findings"]


def pair_findings(situation: Situation, proposal: Proposal) -> tuple[Finding, ...]:
    """Return what speaks against the pair; a blocking one means that vLLM would not start or die at once.

    What merely could not be compared is left out: a plan is no place for a list of unknowns.
    """
    from jetson_specdec.models.profile import profile_of_drafter

    target, draft = situation.profile, profile_of_drafter(proposal.drafter)
    config = proposal.config or {}
    method = config.get("method")
    if target is None or draft is None or not isinstance(method, str):
        return ()
    from jetson_specdec.models.pair import check_pair

    flags = situation.flags
    identity = situation.identity
    report = check_pair(
        target,
        draft,
        method=method,
        release=situation.release.version,
        k=config.get("num_speculative_tokens"),
        max_model_len=flags.max_model_len if (flags.max_model_len or 0) > 0 else None,
        tensor_parallel_size=flags.tensor_parallel_size or 1,
        draft_tensor_parallel_size=config.get("draft_tensor_parallel_size"),
        trust_remote_code=flags.trust_remote_code,
        target_tokenizer=situation.tokenizers[0],
        draft_tokenizer=situation.tokenizers[1],
        target_ids=tuple(each for each in (identity.id, identity.base) if each is not None),
    )
    return tuple(finding for finding in report.findings if finding.severity is not Severity.INFO)
