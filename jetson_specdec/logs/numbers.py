# SPDX-License-Identifier: Apache-2.0
"""The numbers and names of a diagnosis: what the lines say, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_DOWN, Decimal
from typing import Any

from jetson_specdec.logs.attempt import Attempt, Hit
from jetson_specdec.logs.evidence import Evidence
from jetson_specdec.logs.masked import masked
from jetson_specdec.logs.verdict import Verdict

__all__ = ["feasible_utilization", "values_of"]

_HUB = ("hub_gated", "hub_missing", "hub_unreachable")
_FROM_ARGUMENTS = {
    "gpu_memory_utilization": "requested_utilization",
    "max_model_len": "max_model_len",
    "enforce_eager": "enforce_eager",
}
_ARCHITECTURES = ("architecture_gone", "architecture_other", "architecture_alone")
_REPOSITORIES = ("named", "without", "folder", "unloadable")
_INNER = ("text", "class", "host", "type", "file", "file_listed")
_NEAR = 40
_HELD_SHARE = 0.02
"""A difference of this much of the memory is no rounding."""


def feasible_utilization(free_gib: float, total_gib: float) -> float | None:
    """Return free ÷ total, rounded down to two decimals; None where the figures make no sense."""
    if not 0 <= free_gib <= total_gib or total_gib == 0:
        return None
    # Decimal: 0.29 / 1 must stay 0.29.
    share = Decimal(str(free_gib)) / Decimal(str(total_gib))
    return float(share.quantize(Decimal("0.01"), rounding=ROUND_DOWN))


def values_of(attempt: Attempt, verdict: Verdict, evidence: Evidence) -> dict[str, Any]:
    """Return the figures and names that a remedy can use; secrets masked."""
    values: dict[str, Any] = {}
    for name, known in _FROM_ARGUMENTS.items():
        found = evidence.argument(attempt, name)
        if isinstance(found, (int, float)) and found is not False:
            values[known] = found
    for key, known in (("method", "method"), ("model", "draft"), ("num_speculative_tokens", "num_speculative_tokens")):
        found = evidence.speculative(attempt, key)
        if isinstance(found, (str, int)) and not isinstance(found, bool):
            values[known] = found
    values.update(attempt.facts)
    values.update(verdict.values)
    if attempt.version is not None:
        values.setdefault("vllm_version", attempt.version)
    if verdict.hit is not None:
        values.update(_special(attempt, verdict, verdict.hit, evidence, values))
    if verdict.inner is not None:
        values["inner_cause"] = verdict.inner
    if verdict.cause == "oom_warmup" and "num_seqs" not in values:
        asked = evidence.argument(attempt, "max_num_seqs")
        if isinstance(asked, int):
            values["num_seqs"] = asked
    if isinstance(values.get("reason"), str):
        # pydantic shows the input behind the reason; it says nothing and can hold anything.
        values["reason"] = re.sub(r"\s*\[type=.*", "", str(values["reason"]), flags=re.DOTALL).strip()
    return {name: _clean(value) for name, value in values.items() if name not in _INNER and value is not None}


def _clean(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return masked(value[:500])


def _special(
    attempt: Attempt, verdict: Verdict, hit: Hit, evidence: Evidence, values: Mapping[str, Any]
) -> dict[str, Any]:
    cause, identity = verdict.cause, hit.signature.id
    if identity in ("precheck", "cpu-kv"):
        return _feasible(values)
    if identity.startswith("spec-json"):
        return {"variant": _variant(hit.values.get("text")), "flag": "--speculative-config"}
    if identity == "unrecognized":
        return {"flag": _flag(str(hit.values.get("text", "")))}
    if identity == "spec-key":
        key = _field(hit.before)
        return {"key": key, "flag": key}
    if identity == "spec-key-init":
        return {"flag": hit.values.get("key")}
    if identity in ("validation", "spec-method-literal"):
        name = _field(hit.before)
        return (
            {"flag": name} if cause == "spec_config_invalid_value" else {"flag": name and "--" + name.replace("_", "-")}
        )
    if identity == "option-value":
        return {"flag": _option(values), "option": None}
    if cause in ("target_load_failed", "draft_load_failed"):
        return {"missing_key": values.get("missing_key") or values.get("uninitialised"), "uninitialised": None}
    if cause == "vocab_mismatch":
        read = {"target_vocab": evidence.target_vocab, "draft_vocab": evidence.draft_vocab}
        return {name: value for name, value in read.items() if name not in values and value is not None}
    if cause in _HUB:
        return _hub(attempt, hit, values)
    if cause == "arch_unsupported":
        arch = next((values[name] for name in ("arch", "arch_nvcc", "arch_llvm", "arch_ptx") if name in values), None)
        return {"arch": arch, "arch_nvcc": None, "arch_llvm": None, "arch_ptx": None}
    if cause == "model_arch_unsupported":
        name = next((values[key] for key in ("architecture", *_ARCHITECTURES) if key in values), None)
        return {"architecture": name, **dict.fromkeys(_ARCHITECTURES)}
    if cause == "image_missing":
        return {"image": values.get("image") or values.get("image_tag"), "image_tag": None}
    return {}


def _feasible(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the utilisation that would have passed the check of free memory."""
    free, total = values.get("free_gib"), values.get("total_gib")
    if not isinstance(free, float) or not isinstance(total, float):
        return {}
    share, wanted = values.get("requested_utilization"), values.get("requested_gib")
    if isinstance(share, float) and isinstance(wanted, float) and share * total - wanted > _HELD_SHARE * total:
        # Weights that another process holds count as used by this one.
        free = round(min(free + share * total - wanted, total), 4)
    return {"feasible_utilization": feasible_utilization(free, total)}


def _option(values: Mapping[str, Any]) -> str | None:
    """Return the flag that an error of a value is about."""
    reason = str(values.get("reason", ""))
    if isinstance(values.get("option"), str):
        return "--" + str(values["option"]).replace("_", "-")
    for words, flag in (
        ("trust", "--trust-remote-code"),
        ("tool call parser", "--tool-call-parser"),
        ("reasoning parser", "--reasoning-parser"),
        ("uantization method", "--quantization"),
        ("compute capability", "--dtype"),
    ):
        if words in reason:
            return flag
    return None


def _variant(text: Any) -> str | None:
    from jetson_specdec.recipe.spec_text import read_spec_text

    return read_spec_text(text).variant if isinstance(text, str) else None


def _flag(text: str) -> str | None:
    """Return the first flag among words the engine does not know, else the first word."""
    words = text.split()
    flag = next((word for word in words if word[:1] in "-–—−"), words[0] if words else None)
    return None if flag is None else flag.partition("=")[0]


def _field(before: str) -> str | None:
    """Return the field of a pydantic report: a name alone on its line, between the report's head and this line."""
    from jetson_specdec.logs.lines import read_line

    for raw in reversed(before.split("\n")[-12:]):
        text = read_line(raw).text
        if re.fullmatch(r"[A-Za-z_][\w.-]{0,80}", text) is not None:
            return text
        if re.search(r"validation errors? for \w+", text) is not None:
            break
    return None


def _hub(attempt: Attempt, hit: Hit, values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict.fromkeys(_REPOSITORIES)
    if "repo" not in values:
        named = next((values[name] for name in _REPOSITORIES if name in values), None)
        found["repo"] = named or _nearest(attempt.repos, hit.order)
    status = _nearest(attempt.statuses, hit.order)
    if status is not None:
        found["http_status"] = status
    file = values.get("file")
    if found.get("repo") is None and "repo" not in values and isinstance(file, str):
        found["repo"] = file.rpartition("/")[0] or file
    return found


def _nearest(found: list[tuple[int, Any]], order: int) -> Any:
    near = [(abs(place - order), place, value) for place, value in found if abs(place - order) <= _NEAR]
    return min(near)[2] if near else None
