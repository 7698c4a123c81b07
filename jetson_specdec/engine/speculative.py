# SPDX-License-Identifier: Apache-2.0
"""What a vLLM release makes of a `--speculative-config`: its keys, and what it would reject or silently ignore."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.methods import (
    Support,
    eagle3_target,
    infer_method,
    is_mtp,
    method_support,
    normalise_method,
)
from jetson_specdec.engine.release import at_least, possible_versions
from jetson_specdec.findings import Finding, Severity

__all__ = [
    "Support",
    "config_keys",
    "eagle3_target",
    "infer_method",
    "is_mtp",
    "keys_every_candidate_accepts",
    "method_support",
    "normalise_method",
    "unknown_key_behaviour",
    "unknown_keys",
    "validate_config",
]

_NO_DRAFT_MODEL = ("ngram", "ngram_gpu", "suffix", "mtp", "dspark", "extract_hidden_states")
"""Methods whose `model` may be left out."""
_OWN_DRAFTS = ("ngram", "ngram_gpu", "suffix", "custom_class", "extract_hidden_states")
"""Methods for which no draft model is loaded, so that some checks of it never happen."""
_NEEDS_K = ("eagle", "eagle3", "draft_model", "ngram", "ngram_gpu")
_TEXTS = ("model", "method", "revision", "code_revision", "quantization")
_WHOLE = ("draft_tensor_parallel_size", "max_model_len", "prompt_lookup_max", "prompt_lookup_min", "dspark_draft_topk")
_BOOLEANS = ("true", "false", "1", "0", "1.0", "0.0", "yes", "no", "on", "off", "t", "f", "y", "n")
"""What pydantic takes for a truth value."""
_FLAGS = (
    "enforce_eager",
    "disable_padded_drafter_batch",
    "parallel_drafting",
    "use_local_argmax_reduction",
    "use_heterogeneous_vocab",
    "disable_eagle_block_drop",
    "enable_adaptive_verification",
)


# -------------------------------------------------------------------------------------------------------------- keys


@lru_cache(maxsize=64)
def _row_keys(row: str) -> frozenset[str]:
    return frozenset(name for name, ranges in tables.table()["config_keys"].items() if tables.in_ranges(row, ranges))


def config_keys(release: EngineRelease) -> frozenset[str] | None:
    """Return the keys of `--speculative-config` that every possible release knows; None for an unknown release."""
    versions = possible_versions(release)
    if not versions:
        return None
    return frozenset.intersection(*(_row_keys(version) for version in versions))


def _key(name: str) -> str:
    # vLLM rewrites dashes in the keys of the JSON.
    return name.replace("-", "_")


def unknown_keys(config: Mapping[str, Any], release: EngineRelease) -> tuple[str, ...]:
    """Return the keys that some possible release lacks, as written; an unknown release counts as the newest known."""
    keys = config_keys(release)
    if keys is None:
        keys = _row_keys(tables.NEWEST_KNOWN)
    return tuple(name for name in config if _key(name) not in keys)


def unknown_key_behaviour(release: EngineRelease) -> Literal["rejected", "ignored"] | None:
    """Say what a release does with keys it does not know; None where the possible releases differ."""
    steps = tables.table()["unknown_keys"]
    versions = possible_versions(release) or (tables.NEWEST_KNOWN,)
    answers = {tables.step_value(version, steps) for version in versions}
    return answers.pop() if len(answers) == 1 else None


def keys_every_candidate_accepts(config: Mapping[str, Any], release: EngineRelease) -> dict[str, Any]:
    """Return the part of a configuration that every possible release knows.

    For an unknown release: the keys that every listed release knows.
    """
    keys = config_keys(release)
    if keys is None:
        keys = frozenset.intersection(*(_row_keys(row) for row in tables.rows_between()))
    return {name: value for name, value in config.items() if _key(name) in keys}


# -------------------------------------------------------------------------------------------------------- validation


def validate_config(
    config: Mapping[str, Any], release: EngineRelease, *, target_tensor_parallel_size: int | None = None
) -> list[Finding]:
    """Return what vLLM would reject in a speculative configuration, or accept and not do.

    Only what can be told from the text: files are not looked at. Blocking findings are sure for every possible
    release; what depends on the release is a warning.

    Args:
        config: the configuration as parsed from JSON.
        release: who will read it; an unknown release counts as the newest known, with warnings instead of blocks.
        target_tensor_parallel_size: the recipe's tensor parallel size, where known.
    """
    values = {_key(str(name)): value for name, value in config.items()}
    findings = _check_keys(config, release)
    findings += _check_types(values)
    method = _effective_method(values, release, findings)
    findings += _check_tokens(values, method)
    findings += _check_method_keys(values, method, release)
    if "tensor_parallel_size" in values and at_least(release, "0.15") is not False:
        findings.append(Finding.of("JSD363"))
    draft_tp = _whole(values.get("draft_tensor_parallel_size"))
    if draft_tp is not None and target_tensor_parallel_size and draft_tp not in (1, target_tensor_parallel_size):
        findings.append(Finding.of("JSD364", value=draft_tp, target=target_tensor_parallel_size))
    return findings


def _check_keys(config: Mapping[str, Any], release: EngineRelease) -> list[Finding]:
    data = tables.table()
    behaviour = unknown_key_behaviour(release)
    versions = possible_versions(release)
    rows = versions or (tables.NEWEST_KNOWN,)
    findings = []
    for name in unknown_keys(config, release):
        key = _key(name)
        if key == "tensor_parallel_size":
            continue
        flag = data["not_config_keys"].get(key)
        replacement = data["config_key_replacements"].get(key)
        ranges = data["config_keys"].get(key)
        somewhere = any(tables.in_ranges(row, ranges) for row in rows) if ranges else False
        shown = release.version or "/".join(versions) or None
        if behaviour == "ignored" and not somewhere:
            code = "JSD351"
        elif flag:
            code = "JSD355"
        elif replacement:
            code = "JSD354"
        else:
            code = "JSD352" if ranges else "JSD350"
        sure = bool(versions) and not somewhere and behaviour == "rejected"
        # A key that no release ever had is wrong in an unknown release, too.
        severity = Severity.BLOCKING if sure or (ranges is None and behaviour == "rejected") else Severity.WARNING
        since, last = (ranges[0][0], ranges[-1][1]) if ranges else (None, None)
        findings.append(
            Finding.of(
                code,
                severity=severity,
                key=name,
                release=shown,
                since=since,
                last=last,
                flag=flag,
                replacement=replacement,
                near=None if ranges else _near_key(key, rows[-1]),
            )
        )
    return findings


def _near_key(key: str, row: str) -> str | None:
    from difflib import get_close_matches

    near = get_close_matches(key, sorted(_row_keys(row)), n=1, cutoff=0.8)
    return near[0] if near else None


def _whole(value: Any) -> int | None:
    """Return a whole number as pydantic reads it (`"3"`, `3.0` and 3 are equal), or None."""
    if isinstance(value, str):
        text = value.strip()
        digits = text.lstrip("+-")
        return int(text) if digits.isascii() and digits.isdigit() and len(text) < 20 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, int) else None


def _check_types(values: Mapping[str, Any]) -> list[Finding]:
    findings = []
    for key, value in values.items():
        if value is None:
            continue
        if key in _TEXTS and not isinstance(value, str):
            findings.append(Finding.of("JSD366", key=key, value=repr(value), expected="a text in quotes"))
        elif key in _WHOLE and ((number := _whole(value)) is None or number < 1):
            findings.append(Finding.of("JSD366", key=key, value=repr(value), expected="a whole number from 1"))
        elif key in _FLAGS and str(value).lower() not in _BOOLEANS:
            findings.append(Finding.of("JSD366", key=key, value=repr(value), expected="true or false"))
    return findings


def _effective_method(values: Mapping[str, Any], release: EngineRelease, findings: list[Finding]) -> str | None:
    """Return the method vLLM would run, and note what is odd about how it is named."""
    method, model = values.get("method"), values.get("model")
    model = model if isinstance(model, str) and model else None
    if method is None:
        inferred = infer_method(model)
        if inferred is not None and inferred != "ngram":
            findings.append(Finding.of("JSD370", model=model, method=inferred))
        return inferred
    if not isinstance(method, str):
        return None
    support = method_support(method, release)
    if support.finding is not None:
        findings.append(support.finding)
    if is_mtp(method) and method != "mtp" and at_least(release, tables.table()["mtp_rewritten_since"]) is not False:
        findings.append(Finding.of("JSD371", method=method))
    name = normalise_method(method, release)
    if name in ("draft_model", "mtp") and model is not None:
        inferred = infer_method(model)
        if inferred not in ("draft_model", "ngram", name):
            # Only eagle, eagle3, dflash and dspark keep the method they are given; the others are decided by the path.
            findings.append(Finding.of("JSD375", method=method, model=model, inferred=inferred))
            return inferred
    return name


def _check_tokens(values: Mapping[str, Any], method: str | None) -> list[Finding]:
    k, model = values.get("num_speculative_tokens"), values.get("model")
    if k is None:
        needed = method in _NEEDS_K or (method == "mtp" and model is None)
        return [Finding.of("JSD360", method=method)] if needed else []
    number = _whole(k)
    if number is None or number < 1:
        return [Finding.of("JSD361", value=repr(k))]
    if model is None and method not in _NO_DRAFT_MODEL:
        return [Finding.of("JSD362", method=method)]
    return []


def _check_method_keys(values: Mapping[str, Any], method: str | None, release: EngineRelease) -> list[Finding]:
    findings = []
    low, high = _whole(values.get("prompt_lookup_min")), _whole(values.get("prompt_lookup_max"))
    if method in ("ngram", "ngram_gpu") and low is not None and high is not None and low > high:
        findings.append(Finding.of("JSD365", low=low, high=high))
    if values.get("use_heterogeneous_vocab") is True and method not in ("draft_model", None):
        findings.append(Finding.of("JSD367", method=method))
    if values.get("dspark_draft_topk") is not None and method not in ("dspark", None, *_OWN_DRAFTS):
        findings.append(Finding.of("JSD368", method=method))
    if method == "suffix":
        findings.append(Finding.of("JSD374"))
    if values.get("disable_by_batch_size") is not None and at_least(release, "0.10") is not False:
        findings.append(Finding.of("JSD376"))
    for key, steps in (
        ("rejection_sample_method", tables.table()["rejection_sample_methods"]),
        ("draft_sample_method", tables.table()["draft_sample_methods"]),
    ):
        findings += _check_choice(values, key, steps, release)
    if values.get("rejection_sample_method") == "synthetic" or any(name.startswith("synthetic_") for name in values):
        findings.append(Finding.of("JSD369"))
    schedule = values.get("num_speculative_tokens_per_batch_size")
    problem = None if schedule is None else _schedule_problem(schedule)
    if problem:
        findings.append(Finding.of(problem, value=repr(schedule)))
    return findings


def _check_choice(values: Mapping[str, Any], key: str, steps: list[list[Any]], release: EngineRelease) -> list[Finding]:
    if values.get(key) is None:
        return []
    rows = possible_versions(release) or (tables.NEWEST_KNOWN,)
    # Releases without the key are the business of the key check.
    choices = [found for row in rows if (found := tables.step_value(row, steps)) is not None]
    wrong = [row_choices for row_choices in choices if values[key] not in row_choices]
    if not wrong:
        return []
    severity = Severity.BLOCKING if len(wrong) == len(rows) and possible_versions(release) else Severity.WARNING
    return [Finding.of("JSD373", severity=severity, key=key, value=repr(values[key]), choices=wrong[-1])]


def _schedule_problem(schedule: Any) -> str | None:
    """Return the code of what is wrong with a batch schedule `[[start, end, k], …]`, or None."""
    if not isinstance(schedule, (list, tuple)) or not schedule:
        return "JSD377"
    entries: list[tuple[int, int, int]] = []
    for entry in schedule:
        if not isinstance(entry, (list, tuple)) or len(entry) != 3:
            return "JSD377"
        start, end, k = (_whole(item) for item in entry)
        if start is None or end is None or k is None or not 1 <= start <= end or k < 0:
            return "JSD377"
        entries.append((start, end, k))
    entries.sort()
    if any(later[0] <= earlier[1] for earlier, later in pairwise(entries)):
        return "JSD378"
    return "JSD379" if entries[0][0] != 1 else None
