# SPDX-License-Identifier: Apache-2.0
"""What the built-in strategies share: where to start with k, the config object, what would be downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jetson_specdec.findings import Finding
from jetson_specdec.models.naming import is_path
from jetson_specdec.strategies.core import Download, Situation

if TYPE_CHECKING:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.models.core import DraftPair, Head

__all__ = ["downloads_of", "release_reaches", "start_k", "unidentified", "usual_config", "usual_k"]


def unidentified(situation: Situation) -> Finding | None:
    """Return why the target is not known (so that nothing can be said on what drafts for it), or None where it is."""
    identity = situation.identity
    if identity.id is not None or identity.base is not None:
        return None
    reading = situation.flags.model_reading
    unread = situation.flags.unread_config
    if identity.served is None and reading.state == "absent" and unread is None:
        return Finding.of("JSD566")
    served = identity.served or reading.text or unread or "the recipe"
    return Finding.of("JSD560", served=served, looked_in=list(identity.looked_in))


def usual_k(situation: Situation) -> int:
    """Return the k that this family of boards starts with, whatever the method."""
    policy = situation.policy
    return policy.start_k_thor if situation.device.family == "thor" else policy.start_k_agx_orin


def start_k(situation: Situation) -> tuple[int, Finding]:
    """Return k to start with, and the finding that says why."""
    k = usual_k(situation)
    return k, Finding.of(
        "JSD520", k=k, family=situation.device.family, raise_above=situation.policy.raise_k_above_acceptance
    )


def usual_config(
    situation: Situation, method: str, model: str, k: int, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the `--speculative-config` object, with only keys that every possible release accepts."""
    from jetson_specdec.engine.speculative import keys_every_candidate_accepts

    tensor_parallel = situation.flags.tensor_parallel_size
    draft_tp = situation.policy.draft_tensor_parallel_size
    if method == "draft_model" and tensor_parallel is not None and tensor_parallel > 1:
        # vLLM's own rule for draft_model: both must be equal (0.32.0 v1/spec_decode/draft_model.py:63-78).
        draft_tp = tensor_parallel
    config: dict[str, Any] = {
        "method": method,
        "model": model,
        "num_speculative_tokens": k,
        "draft_tensor_parallel_size": draft_tp,
        **(extra or {}),
    }
    return keys_every_candidate_accepts(config, situation.release)


def release_reaches(release: EngineRelease, minimum: str | None) -> bool | None:
    """Say whether the release is at least `minimum`; None where either is unknown."""
    if minimum is None:
        return None
    from jetson_specdec.engine.release import at_least

    return at_least(release, minimum)


def downloads_of(situation: Situation, repo: str, role: str, entry: Head | DraftPair | None) -> tuple[Download, ...]:
    """Return what fetching a head or draft means, by its catalogue entry; a folder is not fetched."""
    if situation.drafter_profile is not None or is_path(repo):
        return ()
    return (
        Download(
            repo=repo,
            role=role,
            bytes=entry.download_bytes if entry is not None else None,
            size_status=entry.size_status if entry is not None else None,
            licence=entry.licence if entry is not None else None,
            gated=entry.gated if entry is not None else None,
            cached=situation.cached.get(repo),
        ),
    )
