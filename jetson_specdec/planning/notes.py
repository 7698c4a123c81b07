# SPDX-License-Identifier: Apache-2.0
"""What a user should know about a situation whatever is decided: facts that change the gain, not the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.models.naming import is_repository_id
from jetson_specdec.planning.memory_step import default_of
from jetson_specdec.strategies.common import unidentified, usual_k

if TYPE_CHECKING:
    from jetson_specdec.strategies.core import Situation

__all__ = ["about_existing", "about_flags", "about_target", "about_utilization"]


def about_target(situation: Situation) -> tuple[Finding, ...]:
    """Say what could not be learnt about the model that is served, and what kind of model it is."""
    identity, record = situation.identity, situation.record
    found: list[Finding] = []
    unknown = unidentified(situation)
    if unknown is not None:
        found.append(unknown)
    if identity.folder is not None:
        found.append(Finding.of("JSD577", served=identity.served, folder=identity.folder))
    found += situation.damaged
    if "config-unreadable" in identity.remarks:
        found.append(Finding.of("JSD489", served=identity.served))
    if "third-party-copy" in identity.remarks and identity.base is not None:
        found.append(Finding.of("JSD567", served=identity.id, base=identity.base))
    if identity.near_misses and identity.base is None:
        found.append(Finding.of("JSD564", served=identity.served, near=list(identity.near_misses)))
    if _mixture_of_experts(situation):
        found.append(Finding.of("JSD561", target=identity.base or identity.id))
    if record is not None and record.multimodal:
        found.append(Finding.of("JSD565", target=identity.base or identity.id))
    return tuple(found)


def _mixture_of_experts(situation: Situation) -> bool | None:
    """Whether the target is one: by its config, else the catalogue, else its name; None where nothing tells."""
    from jetson_specdec.models.naming import says_mixture_of_experts

    identity, record, profile = situation.identity, situation.record, situation.profile
    if identity.config is not None and profile is not None:
        return profile.moe is not None
    if record is not None and record.moe is not None:
        return record.moe
    name = identity.base or identity.id
    return says_mixture_of_experts(name) if name is not None else None


def about_flags(situation: Situation) -> tuple[Finding, ...]:
    """Say which arguments change what speculation can gain."""
    flags = situation.flags
    found: list[Finding] = []
    if situation.baseline_simulated:
        found.append(Finding.of("JSD528"))
    if situation.config is not None and situation.config.found and situation.config.path is not None:
        found.append(Finding.of("JSD578", named=situation.config.named, path=situation.config.path))
    if situation.config is not None and situation.config.in_recipe and situation.config.written is not None:
        found.append(Finding.of("JSD583", named=situation.config.named, line=situation.config.written.line))
    eager = flags.get("enforce-eager")
    if flags.enforce_eager or (eager.state == "unresolved" and eager.occurrence is not None):
        found.append(Finding.of("JSD562", optional=bool(eager.occurrence and eager.occurrence.optional)))
    if flags.enable_lora:
        found.append(Finding.of("JSD563"))
    if flags.kv_cache_memory_bytes is not None:
        found.append(Finding.of("JSD516", bytes=flags.kv_cache_memory_bytes))
    if flags.tensor_parallel_size is not None and flags.tensor_parallel_size > 1:
        found.append(Finding.of("JSD580", tensor_parallel_size=flags.tensor_parallel_size))
    return tuple(found)


def about_utilization(situation: Situation) -> tuple[Finding, ...]:
    """Say where the utilisation in force comes from when the recipe does not state it."""
    reading = situation.flags.utilization
    if reading.state == "absent":
        default, assumed = default_of(situation)
        if default is None:
            return (Finding.of("JSD513"),)
        code = "JSD509" if assumed else "JSD514"
        return (Finding.of(code, default=default, release=situation.release.version),)
    unread = situation.config is not None and not situation.config.found and reading.occurrence is None
    if reading.state == "unresolved" and not unread:
        return (Finding.of("JSD515", written=reading.text),)
    return ()


def about_existing(situation: Situation) -> tuple[Finding, ...]:
    """Say how the speculation that is already there differs from what this package would start with."""
    speculation = situation.speculation
    found = [
        Finding.of(
            "JSD500",
            method=speculation.method,
            model=speculation.model,
            k=speculation.num_speculative_tokens,
            form=speculation.form,
        )
    ]
    if speculation.config is not None:
        from jetson_specdec.engine.speculative import validate_config

        parallel = situation.flags.tensor_parallel_size or 1
        found += validate_config(speculation.config, situation.release, target_tensor_parallel_size=parallel)
    found += _existing_pair(situation)
    k, usual = speculation.num_speculative_tokens, usual_k(situation)
    if k is not None and speculation.method in ("eagle3", "draft_model") and k != usual:
        found.append(Finding.of("JSD524", k=k, usual=usual, family=situation.device.family))
    if situation.speculator_known is False and speculation.method == "eagle3":
        found.append(Finding.of("JSD543", head=speculation.model, near=list(situation.speculator_near_misses)))
    return tuple(found)


def _existing_pair(situation: Situation) -> list[Finding]:
    """Say what the catalogue knows against the drafter that is already there."""
    speculation, identity, record = situation.speculation, situation.identity, situation.record
    model, head = speculation.model, situation.speculator_head
    found: list[Finding] = []
    if head is not None and identity.base is not None and head.target not in (identity.base, identity.id):
        found.append(Finding.of("JSD544", head=head.id, made_for=head.target, target=identity.base))
    vocab = record.vocab_size if record is not None else None
    if speculation.method == "draft_model" and vocab is not None and situation.drafter_vocab not in (None, vocab):
        found.append(
            Finding.of(
                "JSD526", draft=model, target=identity.base, target_vocab=vocab, draft_vocab=situation.drafter_vocab
            )
        )
    remote = model is not None and is_repository_id(model)
    if remote and situation.offline and situation.cached.get(model or "") is not True:
        found.append(Finding.of("JSD576", repo=model))
    return found
