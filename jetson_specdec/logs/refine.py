# SPDX-License-Identifier: Apache-2.0
"""The cause named more exactly where its line alone does not: by its report, the release table, the hub."""

from __future__ import annotations

import re
from typing import Any

from attrs import evolve

from jetson_specdec.logs.attempt import Attempt
from jetson_specdec.logs.verdict import Verdict

__all__ = ["refine"]


def refine(verdict: Verdict, attempt: Attempt) -> Verdict:
    """Name the cause more exactly where the line alone does not."""
    hit = verdict.hit
    if hit is None:
        return verdict
    identity, values = hit.signature.id, verdict.values
    cause = verdict.cause
    if identity == "cpu-kv" and isinstance(values.get("kv_available_gib"), float) and values["kv_available_gib"] <= 0:
        cause = "kv_cache_none"
    elif identity in ("argument", "ambiguous") and "spec" in str(values.get("flag")):
        cause = "spec_config_invalid_value"
    elif identity == "spec-method-literal" and _known_method(values.get("method")):
        cause = "method_unsupported"
    elif identity in ("validation", "value-error", "model-len"):
        reports = re.findall(r"validation errors? for (\w+)", hit.before)
        about = str(values.get("reason", ""))
        if (reports and reports[-1] == "SpeculativeConfig") or "speculative" in about:
            cause = "spec_config_invalid_value"
    elif identity == "invalid-repo":
        cause = _invalid_repo(attempt, str(values.get("repo", "")))
    elif identity == "exception" and cause in ("engine_failed", "draft_load_failed") and not hit.started:
        cause = _by_place(hit.proof.text, hit.before) or cause
    return evolve(verdict, cause=cause) if cause != verdict.cause else verdict


def _by_place(text: str, before: str) -> str | None:
    """Name the cause of an error of a value by what it speaks of, or by the file that raised it, or None."""
    if re.match(r"\s*(?:ValueError|AssertionError|NotImplementedError|TypeError)\b", text) is None:
        return None
    if _names_key(text):
        return "spec_config_invalid_value"
    files = re.findall(r'File "([^"\n]+)"', before)
    place = files[-1] if files else ""
    if re.search(r"/config/speculative\.py$", place) is not None:
        return "method_unsupported" if "NotImplementedError" in text else "spec_config_invalid_value"
    if re.search(r"vllm/(?:config/\w+|config|engine/arg_utils|entrypoints/openai/cli_args)\.py$", place) is not None:
        return "flag_invalid_value"
    return "target_load_failed" if re.search(r"/transformers_utils/config\.py$", place) is not None else None


def _names_key(text: str) -> bool:
    """Whether an error of a value speaks of a key that only the speculative configuration has."""
    from jetson_specdec.engine import tables
    from jetson_specdec.engine.flags import flag_table

    words = set(re.findall(r"[a-z]\w+", text))
    keys = {key for key in tables.table()["config_keys"] if "_" in key}
    return any(flag_table().flag("--" + word) is None for word in words & keys)


def _known_method(method: Any) -> bool:
    from jetson_specdec.engine import tables

    return method in tables.table()["method_accepted"]


def _invalid_repo(attempt: Attempt, repo: str) -> str:
    """Tell a missing folder, an unknown name and a hub out of reach apart: vLLM has the same words for them."""
    tried = {hit.signature.id for hit in attempt.hits}
    if "gated" in tried:
        return "hub_gated"
    if "not-found" in tried or repo.startswith(("/", "./", "../", "~")) or repo.count("/") != 1:
        return "hub_missing"
    return "hub_unreachable"
