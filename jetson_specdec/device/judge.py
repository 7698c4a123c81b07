# SPDX-License-Identifier: Apache-2.0
"""What the user should know about a board: findings on what it is, and on its release. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jetson_specdec.device import tables
from jetson_specdec.device.core import Device
from jetson_specdec.findings import Finding, Severity

__all__ = ["board_findings", "release_findings"]

_INFERRED = ("/proc/", "environment")
"""Sources of a release that say it by the way."""


def board_findings(device: Device, context: Mapping[str, Any]) -> list[Finding]:
    """Return findings on family, module, memory, GPU and container.

    Args:
        device: the board, findings still empty.
        context: `generation`, `older` (name of a family before Xavier), `model_text`, `discrete` (a GPU with memory of
            its own) and `l4t_observation`; None where unknown.
    """
    findings: list[Finding] = []
    generation = context["generation"]
    family = tables.family(device.family)
    if device.is_jetson is None:
        findings.append(Finding.of("JSD107"))
    elif family is None:
        older = context["older"]
        if generation in ("xavier", "older"):
            findings.append(Finding.of("JSD151", name=older or context["model_text"] or generation))
        else:
            findings.append(Finding.of("JSD111", generation=generation))
        if context["model_text"] and "igx" in str(context["model_text"]).casefold():
            findings.append(Finding.of("JSD106", name=context["model_text"]))
    elif family.key == "igx_orin":
        findings.append(Finding.of("JSD106", name=family.name))
    elif family.generation == "xavier":
        findings.append(Finding.of("JSD151", name=family.name))
    else:
        if device.module is None:
            members = [item.key for item in tables.modules().values() if _usual(item, family.key)]
            findings.append(Finding.of("JSD110", name=family.name, modules=members))
        if device.speculation_allowed == "no":
            findings.append(Finding.of("JSD150", name=family.name))
        if "igx" in str(context["model_text"] or "").casefold():
            findings.append(Finding.of("JSD106", name=context["model_text"]))
    discrete = context["discrete"]
    if discrete is not None:
        findings.append(Finding.of("JSD105", **discrete))
    if device.memory_total_bytes is None:
        findings.append(Finding.of("JSD120"))
    if device.in_container:
        severity = Severity.INFO if device.module is not None and device.l4t is not None else Severity.WARNING
        findings.append(Finding.of("JSD160", severity=severity))
    return findings


def _usual(entry: tables.Module, family: str) -> bool:
    return entry.family == family and not entry.announced_only


def release_findings(device: Device, context: Mapping[str, Any]) -> list[Finding]:
    """Return findings on the L4T release: unknown, inferred, too old, with a known problem, not made for this chip."""
    told = context["l4t_observation"]
    generation = context["generation"]
    if device.l4t is None or told is None:
        if not device.is_jetson:
            return []
        # On Thor the release decides nothing here; on an Orin it decides the runtime.
        severity = Severity.INFO if generation == "thor" else Severity.WARNING
        return [Finding.of("JSD130", severity=severity)]
    findings: list[Finding] = []
    if told.source.startswith(_INFERRED):
        findings.append(Finding.of("JSD131", l4t=device.l4t, where=told.source))
    made_for = tables.l4t_generations(device.l4t)
    if generation and made_for and generation not in made_for:
        findings.append(Finding.of("JSD114", l4t=device.l4t, where=told.source, generation=generation))
    if int(device.l4t.split(".")[0]) <= 35:
        findings.append(Finding.of("JSD134", l4t=device.l4t, jetpack=device.jetpack))
    if tables.release_facts(device.l4t).get("problem") == "large-allocation-bug":
        findings.append(Finding.of("JSD135", l4t=device.l4t))
    if device.jetpack is None:
        findings.append(Finding.of("JSD136", l4t=device.l4t))
    return findings
