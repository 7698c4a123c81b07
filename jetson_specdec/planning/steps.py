# SPDX-License-Identifier: Apache-2.0
"""What to do next, for each outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jetson_specdec.findings import Finding, Severity, Step

if TYPE_CHECKING:
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.strategies.core import Situation

__all__ = ["for_plan", "hand_off", "typed_by_hand"]


def typed_by_hand(config: Mapping[str, Any], set_flags: Mapping[str, str], *, form: str = "shell") -> str:
    """Return the arguments to type where the text cannot be edited safely: in a Python program, keyword arguments."""
    import shlex

    if form == "python":
        given = [f"{name.replace('-', '_')}={value}" for name, value in set_flags.items()]
        return ", ".join([*given, f"speculative_config={dict(config)!r}"])
    words = [word for name, value in set_flags.items() for word in (f"--{name}", value)]
    return shlex.join([*words, "--speculative-config", json.dumps(config, separators=(",", ":"))])


def for_plan(plan: Plan, situation: Situation) -> tuple[Step, ...]:
    """Return the next steps of a plan, in the order to take them."""
    found: list[Step] = []
    topics = {finding.topic for finding in plan.findings}
    if "entrypoint-doubled" in topics:
        words = situation.command.serve_words
        found.append(Step.of("repair-entrypoint", words=" ".join(words), image=situation.command.image))
    if "unpinned" in topics:
        found.append(Step.of("pin-image", image=situation.command.image))
    if plan.outcome == "refuse":
        return (*_refused(plan, situation), *found)
    if plan.outcome == "already":
        return (*found, *_already(plan))
    if plan.outcome == "none":
        return (*_none(plan, situation), *found)
    return (*found, *_speculate(plan, situation))


def _speculate(plan: Plan, situation: Situation) -> list[Step]:
    found = []
    if situation.baseline is None:
        found.append(Step.of("measure-baseline", concurrency=[1, 8], command="jetson-specdec bench --out before.json"))
    for download in plan.downloads:
        if download.cached is True:
            continue
        if download.gated:
            found.append(Step.of("download-gated", repo=download.repo))
        kind = "download-offline" if situation.offline else "download"
        found.append(Step.of(kind, repo=download.repo, bytes=download.bytes, licence=download.licence))
    found.append(Step.of("write-plan"))
    k = (plan.speculative_config or {}).get("num_speculative_tokens")
    found.append(
        Step.of(
            "measure-after",
            concurrency=[1, 8],
            gain=situation.policy.enable_throughput_gain,
            drop=situation.policy.enable_tpot_drop,
        )
    )
    found.append(Step.of("raise-k", k=k, above=situation.policy.raise_k_above_acceptance))
    return found


def _already(plan: Plan) -> list[Step]:
    if any(finding.code == "JSD501" for finding in plan.findings):
        return [Step.of("remove-speculation")]
    return [Step.of("compare-without")]


def _none(plan: Plan, situation: Situation) -> list[Step]:
    found = []
    if any(finding.topic == "head-unproven" for finding in plan.findings):
        heads = [head.id for head in situation.heads if head.loads_in_vllm == "unknown"]
        if heads:
            found.append(Step.of("try-unproven-head", head=heads[0]))
    if any(reason.topic == "target-unidentified" for reason in plan.rejected.values()):
        return [*found, Step.of("name-target")]
    return [*found, Step.of("stay")]


def _refused(plan: Plan, situation: Situation) -> list[Step]:
    found: list[Step] = []
    blocking = [finding for finding in plan.findings if finding.severity is Severity.BLOCKING]
    topics = {finding.topic for finding in blocking}
    codes = {finding.code for finding in blocking}
    if topics & {"family-not-supported"}:
        found.append(Step.of("other-ways"))
    if codes & {"JSD503"}:
        found.append(Step.of("name-device"))
    if topics & {"near-ceiling"} or codes & {"JSD523"}:
        found.append(hand_off(situation))
    if topics & {"runtime-mismatch", "image-too-old", "jetpack-too-old"}:
        from jetson_specdec.engine.runtime import recommended_image

        image = recommended_image(situation.device.family, situation.device.l4t)
        found.append(Step.of("change-runtime" if image else "upgrade-jetpack", image=image))
    if codes & {"JSD573", "JSD579"}:
        finding = next(each for each in blocking if each.code in ("JSD573", "JSD579"))
        found.append(Step.of("type-by-hand", arguments=finding.values.get("type_instead")))
    found += [Step.of("repair-recipe", correction=text) for text in _corrections(blocking)]
    return found


def _corrections(findings: list[Finding]) -> list[str]:
    return [str(finding.values["correction"]) for finding in findings if finding.values.get("correction")]


def hand_off(situation: Situation) -> Step:
    """Return the step that hands over to NVIDIA's memory tuner, with its exact arguments."""
    from jetson_specdec.estimate.headroom import headroom

    free = situation.policy.min_free_bytes
    room = headroom(situation.device.memory_total_bytes, situation.flags.gpu_memory_utilization, situation.policy)
    target_mb = room.target_mb or free // 2**20
    workload = "vlm-server" if situation.record is not None and situation.record.multimodal else "llm-server"
    words = ["--audit", "-", "--runtime", "vllm", "--workload", workload, "--target-mb", str(target_mb)]
    return Step.of(
        "free-memory",
        needed_bytes=free,
        target_mb=target_mb,
        command="jetson-memory-audit | recommend.py " + " ".join(words),
    )
