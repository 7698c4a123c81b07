# SPDX-License-Identifier: Apache-2.0
"""What a user should know about a situation whatever is decided: facts that change the gain, not the decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.planning.memory_step import default_of
from jetson_specdec.strategies.common import usual_k

if TYPE_CHECKING:
    from jetson_specdec.strategies.core import Situation

__all__ = ["about_existing", "about_flags", "about_target", "about_utilization"]


def about_target(situation: Situation) -> tuple[Finding, ...]:
    """Say what could not be learnt about the model that is served, and what kind of model it is."""
    identity, record, profile = situation.identity, situation.record, situation.profile
    found: list[Finding] = []
    if identity.id is None and identity.base is None:
        if identity.served is None and situation.flags.model_reading.state == "absent":
            found.append(Finding.of("JSD566"))
        else:
            found.append(Finding.of("JSD560", served=identity.served, looked_in=list(identity.looked_in)))
    if identity.folder is not None:
        found.append(Finding.of("JSD577", served=identity.served, folder=identity.folder))
    if identity.near_misses and identity.base is None:
        found.append(Finding.of("JSD564", served=identity.served, near=list(identity.near_misses)))
    moe = record.moe if record is not None and record.moe is not None else _profile_moe(profile)
    if moe:
        found.append(Finding.of("JSD561", target=identity.base or identity.id))
    if record is not None and record.multimodal:
        found.append(Finding.of("JSD565", target=identity.base or identity.id))
    return tuple(found)


def _profile_moe(profile: object) -> bool | None:
    moe = getattr(profile, "moe", None)
    return None if profile is None else moe is not None and moe is not False


def about_flags(situation: Situation) -> tuple[Finding, ...]:
    """Say which arguments change what speculation can gain."""
    flags = situation.flags
    found: list[Finding] = []
    if situation.config is not None and situation.config.found and situation.config.path is not None:
        found.append(Finding.of("JSD578", named=situation.config.named, path=situation.config.path))
    eager = flags.get("enforce-eager")
    if flags.enforce_eager or eager.state == "unresolved":
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
    if reading.state == "unresolved":
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

        parallel = situation.flags.tensor_parallel_size
        found += validate_config(speculation.config, situation.release, target_tensor_parallel_size=parallel)
    k, usual = speculation.num_speculative_tokens, usual_k(situation)
    if k is not None and speculation.method in ("eagle3", "draft_model") and k != usual:
        found.append(Finding.of("JSD524", k=k, usual=usual, family=situation.device.family))
    if situation.speculator_known is False and speculation.method == "eagle3":
        found.append(Finding.of("JSD543", head=speculation.model, near=list(situation.speculator_near_misses)))
    return tuple(found)
