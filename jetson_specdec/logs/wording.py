# SPDX-License-Identifier: Apache-2.0
"""Which findings and steps say a diagnosis; the texts themselves are in the message catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jetson_specdec.findings import Finding, Step
from jetson_specdec.logs.advice import Case
from jetson_specdec.logs.causes import causes
from jetson_specdec.logs.numbers import feasible_utilization
from jetson_specdec.logs.several import Judged

__all__ = ["findings_of", "steps_of"]

_STEP = 0.05
_CEILING = 0.90
_NAMELESS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "JSD701": (("variant",), "JSD751"),
    "JSD702": (("key",), "JSD759"),
    "JSD704": (("flag",), "JSD758"),
    "JSD710": (("target_vocab", "draft_vocab"), "JSD752"),
    "JSD711": (("free_gib", "total_gib"), "JSD756"),
    "JSD713": (("max_model_len",), "JSD757"),
    "JSD722": (("repo",), "JSD753"),
    "JSD723": (("repo",), "JSD754"),
    "JSD725": (("architecture",), "JSD755"),
}
"""Finding → the names its text needs, and the finding to use where one of them is not known."""


def findings_of(case: Case, every: Sequence[Judged], total: int) -> tuple[Finding, ...]:
    """Return the cause in words, then what else was noticed."""
    verdict = case.verdict
    found = [_about(case, verdict.cause)]
    if verdict.started_ok is None:
        found = [Finding.of("JSD736", cause=verdict.cause)]
    if verdict.inner is not None:
        found.append(_about(case, verdict.inner))
    if total > 1:
        failed = [each.verdict.cause for each in every if each.verdict.started_ok is False]
        found.append(Finding.of("JSD740", attempts=total, causes=sorted(set(failed))))
    found += _memory(case)
    if case.values.get("enforce_eager") is True and verdict.started_ok is True:
        found.append(Finding.of("JSD746"))
    sizes = case.values.get("target_embedding_dim"), case.values.get("draft_embedding_dim")
    if None not in sizes and sizes[0] != sizes[1]:
        found.append(Finding.of("JSD747", target=sizes[0], draft=sizes[1]))
    if verdict.cause == "flag_unrecognized" and case.values.get("flag") == "serve":
        found.append(Finding.of("JSD748"))
    return (*found, *case.evidence.findings)


def _about(case: Case, cause: str) -> Finding:
    """Return the finding of a cause, the one without names and numbers where the log has none."""
    code = causes()[cause]["code"]
    needed, instead = _NAMELESS.get(code, ((), code))
    known = all(case.values.get(name) is not None for name in needed)
    return Finding.of(code if known else instead, **{"cause": cause, **case.values})


def _memory(case: Case) -> list[Finding]:
    evidence, values = case.evidence, case.values
    found = []
    if evidence.available_gib is not None and evidence.total_gib is not None:
        now = feasible_utilization(evidence.available_gib, evidence.total_gib)
        asked = values.get("requested_utilization")
        wants_more = case.verdict.cause in ("kv_cache_none", "kv_cache_too_small")
        if wants_more and now is not None and isinstance(asked, float) and now <= asked:
            found.append(Finding.of("JSD743", feasible=now, requested=asked))
        free = values.get("free_gib")
        if case.verdict.cause == "memory_precheck" and isinstance(free, float) and evidence.available_gib - free > 1:
            found.append(Finding.of("JSD744", available=round(evidence.available_gib, 2), free=free))
    if evidence.l4t == "36.4.7" and case.verdict.cause in ("driver_oom", "oom_load", "oom_warmup"):
        found.append(Finding.of("JSD745", l4t=evidence.l4t))
    return found


def steps_of(case: Case, remedy: str) -> tuple[Step, ...]:
    """Return the remedy in words, with its number where one is known, and what to do where it does not help."""
    if case.verdict.started_ok is True:
        return ()
    if case.verdict.started_ok is None:
        return (Step.of("diagnose-more"),)
    values: dict[str, Any] = dict(case.values)
    kind = "remedy-" + remedy.replace("_", "-")
    to = _number(case, remedy, values)
    if remedy == "none":
        kind = "diagnose-more" if case.verdict.cause == "engine_failed" else "remedy-none"
    steps = [Step.of(f"{kind}-to", to=to, now=values.get("requested_utilization")) if to is not None else Step.of(kind)]
    if remedy == "fix_quoting" and (correction := _correction(case)) is not None:
        steps[0] = Step.of("remedy-fix-quoting-to", to=correction)
    if remedy == "predownload" and values.get("repo") is not None:
        steps[0] = Step.of("remedy-predownload-to", to=values["repo"])
    if remedy == "accept_licence" and values.get("repo") is not None:
        steps[0] = Step.of("remedy-accept-licence-to", to=values["repo"])
    if case.verdict.cause == "hub_missing" and values.get("repo") is not None and remedy != "predownload":
        steps.insert(0, Step.of("check-repository", repo=values["repo"]))
    if case.speculates and case.verdict.cause not in ("hub_gated", "hub_unreachable") and remedy != "drop_speculation":
        involved = case.verdict.about_draft or case.verdict.cause in ("kv_cache_none", "oom_load", "oom_warmup")
        if involved:
            steps.append(Step.of("otherwise-drop-speculation"))
    return tuple(steps)


def _number(case: Case, remedy: str, values: Mapping[str, Any]) -> Any:
    asked = values.get("requested_utilization")
    if remedy == "lower_utilization":
        feasible = values.get("feasible_utilization")
        if isinstance(feasible, float):
            return feasible
        # The driver's peak is not bounded by the fraction: the usual step is too small for it.
        step = 2 * _STEP if case.verdict.cause in ("driver_oom", "host_oom_killed") else _STEP
        return round(asked - step, 2) if isinstance(asked, float) and asked > step else None
    if remedy == "raise_utilization":
        return round(min(asked + _STEP, _CEILING), 2) if isinstance(asked, float) and asked < _CEILING else None
    if remedy == "reduce_max_model_len":
        return values.get("feasible_max_model_len")
    if remedy == "reduce_max_num_seqs":
        return values.get("feasible_max_num_seqs")
    return None


def _correction(case: Case) -> str | None:
    from jetson_specdec.recipe.masking import redact
    from jetson_specdec.recipe.spec_text import read_spec_text, spec_json

    hit = case.verdict.hit
    text = hit.values.get("text") if hit is not None else None
    read = read_spec_text(text) if isinstance(text, str) else None
    if read is None or not read.repaired:
        return None
    return redact(f"--speculative-config '{spec_json(read.repaired)}'")[0]
