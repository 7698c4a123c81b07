# SPDX-License-Identifier: Apache-2.0
"""What stands in the way before any strategy is asked: broken text, board, runtime, ceiling, workload.

Each check is a pure function of a `Situation` that returns findings. A blocking one refuses the plan; those of
`workload` that carry the topic of an outcome "none" end it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding, Severity

if TYPE_CHECKING:
    from jetson_specdec.recipe.config_file import ConfigFile
    from jetson_specdec.strategies.core import Situation

__all__ = ["board", "broken", "ceiling", "doubled_entrypoint", "runtime", "unread_config", "workload"]

ALLOWED_FAMILIES = ("thor", "agx_orin", "igx_orin")


def broken(situation: Situation) -> tuple[Finding, ...]:
    """Return what must be repaired before anything else can be said."""
    command = situation.command
    if command.serve_form == "other" and situation.recipe.form != "python":
        return (Finding.of("JSD571", engine=command.engine, line=command.line),)
    found = [*situation.recipe.findings, *command.findings, *situation.flags.findings, *situation.speculation.findings]
    if situation.config is not None and not situation.config.found:
        found = [finding for finding in found if finding.code != "JSD254"]  # the same, said of the flags alone
        found.append(unread_config(situation.config))
    return tuple(found)


def unread_config(config: ConfigFile, severity: Severity | None = None) -> Finding:
    """Return why nothing is known of a `--config` file."""
    if config.written is not None:
        written = config.written
        return Finding.of("JSD582", severity=severity, path=config.named, line=written.line, why=written.why)
    return Finding.of("JSD574", severity=severity, path=config.named, looked_in=list(config.looked_in))


def board(situation: Situation) -> tuple[Finding, ...]:
    """Return whether this board may speculate at all."""
    device = situation.device
    family, module = device.family, device.module
    told = {finding.topic: finding for finding in device.findings if finding.severity is Severity.BLOCKING}
    if device.is_jetson is False:
        return (told.get("not-a-jetson") or Finding.of("JSD505"),)
    if family is None:
        return (Finding.of("JSD503"),)
    if family not in ALLOWED_FAMILIES:
        return (told.get("family-not-supported") or Finding.of("JSD502", family=family, module=module or family),)
    if family == "igx_orin":
        if any(finding.topic == "dgpu-present" for finding in device.findings):
            return (Finding.of("JSD504"),)
        return (Finding.of("JSD506"),)
    return ()


def runtime(situation: Situation) -> tuple[Finding, ...]:
    """Return whether this vLLM can run on this board and release."""
    from jetson_specdec.engine.runtime import check_runtime

    return check_runtime(family=situation.device.family, l4t=situation.device.l4t, release=situation.release)


def ceiling(situation: Situation) -> tuple[Finding, ...]:
    """Return whether the utilisation leaves the system the memory it needs."""
    policy, device = situation.policy, situation.device
    reading = situation.flags.utilization
    advised = situation.mem_tune.gpu_memory_utilization if situation.mem_tune is not None else None
    value = reading.value if reading.state == "value" else None
    if value is None and reading.state == "absent" and advised is not None:
        value = advised
    if value is None:
        return ()
    total = device.memory_total_bytes
    outside = None if total is None else int(total * (1 - value))
    values = {
        "utilization": value,
        "limit": policy.ceiling_utilization,
        "outside_bytes": outside,
        "needed_bytes": policy.min_free_bytes,
        "total_bytes": total,
    }
    if reading.state == "value" and value > policy.ceiling_utilization:
        return (Finding.of("JSD510", **values),)
    if advised is not None and value >= policy.ceiling_utilization and value == advised:
        return (Finding.of("JSD512", **values),)
    if outside is not None and outside < policy.min_free_bytes:
        return (Finding.of("JSD511", **values),)
    return ()


def workload(situation: Situation) -> tuple[Finding, ...]:
    """Return whether the way this server is used lets speculation pay.

    Findings with severity `blocking` mean the outcome "none": nothing is wrong, speculation just cannot pay.
    """
    policy, flags = situation.policy, situation.flags
    found: list[Finding] = []
    if situation.concurrency >= policy.none_from_concurrency:
        found.append(Finding.of("JSD530", concurrency=situation.concurrency, limit=policy.none_from_concurrency))
    elif situation.concurrency > policy.max_concurrency:
        found.append(Finding.of("JSD531", concurrency=situation.concurrency, limit=policy.max_concurrency))
    if flags.max_num_seqs is not None and flags.max_num_seqs >= policy.none_from_concurrency:
        found.append(Finding.of("JSD532", max_num_seqs=flags.max_num_seqs))
    found += _decode_share(situation)
    return tuple(found)


def _decode_share(situation: Situation) -> list[Finding]:
    if situation.baseline is None:
        return []
    from jetson_specdec.measurements import decode_share
    from jetson_specdec.measurements.coherence import speed_contradicts_time

    policy, share = situation.policy, decode_share(situation.baseline)
    measured, base = situation.baseline_base, situation.identity.base
    if measured is not None and base is not None and measured != base:
        # Times of another model say nothing about this one, so nothing is decided on them.
        return [Finding.of("JSD529", measured=situation.baseline.model, served=situation.identity.id or base)]
    wrong = speed_contradicts_time(situation.baseline)
    if wrong is not None:
        # The same words as the gate's, but a plan without a baseline is a plan all the same.
        shown = {"arm": "baseline", "concurrency": wrong.concurrency, **wrong.values}
        return [Finding.of(wrong.code, severity=Severity.WARNING, **shown), Finding.of("JSD535")]
    if share is None:
        return [Finding.of("JSD535")]
    if share < policy.decode_share_none:
        return [Finding.of("JSD533", share=share, limit=policy.decode_share_none)]
    if share < policy.decode_share_warning:
        return [Finding.of("JSD534", share=share, limit=policy.decode_share_warning)]
    return [Finding.of("JSD536", share=share)]


def doubled_entrypoint(situation: Situation) -> tuple[Finding, ...]:
    """Return what the image's own entrypoint makes of the words after it."""
    command = situation.command
    if command.image is None or command.entrypoint is not None or situation.release.image is None:
        return ()
    if command.launcher not in ("docker", "podman", "nerdctl", "compose", "kubernetes", "systemd"):
        return ()
    from jetson_specdec.engine.entrypoint import entrypoint_of

    entry = entrypoint_of(situation.release)
    engines = ("vllm_serve", "api_server")
    certain = entry.kind in engines or (
        entry.kind == "unknown" and bool(entry.possible) and all(kind in engines for kind in entry.possible)
    )
    if not certain:
        return ()
    words = list(command.serve_words)
    if words:
        return (Finding.of("JSD570", image=command.image, entrypoint=list(entry.words) or None, words=" ".join(words)),)
    model = situation.flags.model_reading
    positional = model.occurrence is not None and model.occurrence.spelled == ""
    if positional and "api_server" in (entry.kind, *entry.possible):
        return (Finding.of("JSD575", image=command.image, model=situation.flags.model),)
    return ()


def as_warning(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return findings with what would block lowered to a warning, for outcomes that change nothing."""
    from attrs import evolve

    return tuple(
        evolve(finding, severity=Severity.WARNING) if finding.severity is Severity.BLOCKING else finding
        for finding in findings
    )
