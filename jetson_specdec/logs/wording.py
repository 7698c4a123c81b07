# SPDX-License-Identifier: Apache-2.0
"""Which findings and steps say a diagnosis; the texts themselves are in the message catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jetson_specdec.findings import Finding, Step
from jetson_specdec.logs.advice import Case
from jetson_specdec.logs.causes import causes
from jetson_specdec.logs.masked import masked
from jetson_specdec.logs.numbers import feasible_utilization
from jetson_specdec.logs.several import Judged

__all__ = ["findings_of", "steps_of"]

_BY_DRAFT = ("kv_cache_none", "kv_cache_too_small", "oom_load", "oom_warmup")
_ALLOCATION = ("tried_gib", "free_gib", "total_gib")
_CACHE = ("model_gib", "kv_available_gib")
_STEP = 0.05
_CEILING = 0.90
_NAMELESS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "JSD762": (("exception",), "JSD735"),
    "JSD701": (("variant",), "JSD751"),
    "JSD702": (("key",), "JSD759"),
    "JSD704": (("flag",), "JSD758"),
    "JSD710": (("target_vocab", "draft_vocab"), "JSD752"),
    "JSD711": (("free_gib", "total_gib", "requested_gib", "requested_utilization"), "JSD760"),
    "JSD760": (("free_gib", "total_gib"), "JSD756"),
    "JSD713": (("max_model_len", "kv_needed_gib", "kv_available_gib"), "JSD761"),
    "JSD761": (("max_model_len",), "JSD757"),
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
    if cause == "engine_failed":
        code = "JSD762"
    if cause == "host_oom_killed" and not (case.verdict.kernel or _by_the_kernel(case)):
        code = "JSD763"
    while code in _NAMELESS and any(case.values.get(name) is None for name in _NAMELESS[code][0]):
        code = _NAMELESS[code][1]
    return Finding.of(code, **{"cause": cause, **case.values})


def _by_the_kernel(case: Case) -> bool:
    """Whether a line says that it was the kernel, or a daemon that acts for it, that killed."""
    return any(hit.signature.id == "kernel-oom" or _speaks_of_memory(hit.proof.text) for hit in case.verdict.hits)


def _speaks_of_memory(text: str) -> bool:
    return any(words in text.lower() for words in ("oom", "out of memory", "memory pressure", "badness"))


def _memory(case: Case) -> list[Finding]:
    evidence, values = case.evidence, case.values
    found = []
    cause = case.verdict.inner or case.verdict.cause
    if cause.startswith("oom_") and all(isinstance(values.get(name), float) for name in _ALLOCATION):
        found.append(Finding.of("JSD764", **{name: values[name] for name in _ALLOCATION}))
    if cause in ("kv_cache_none", "kv_cache_too_small") and all(isinstance(values.get(n), float) for n in _CACHE):
        found.append(Finding.of("JSD765", **{name: values[name] for name in _CACHE}))
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
    steps = [_remedy(case, remedy), *_further(case, remedy)]
    if case.verdict.cause == "hub_missing" and case.values.get("repo") is not None and remedy != "predownload":
        steps.insert(0, Step.of("check-repository", repo=case.values["repo"]))
    return tuple(steps)


def _remedy(case: Case, remedy: str) -> Step:
    """Return the first thing to do, as exactly as the log allows."""
    values, cause = case.values, case.verdict.cause
    kind = "remedy-" + remedy.replace("_", "-")
    repo, needed, has = (values.get(name) for name in ("repo", "needed_capability", "capability"))
    if remedy == "none":
        if isinstance(needed, int) and isinstance(has, int):
            return Step.of("remedy-other-quantisation", needed=_capability(needed), has=_capability(has))
        return Step.of("diagnose-more" if cause == "engine_failed" else "remedy-none")
    if remedy == "set_environment" and cause == "start_timeout":
        return Step.of("remedy-ready-timeout")
    to: Any = None
    if remedy == "fix_quoting":
        to = _correction(case)
    elif remedy == "fix_config":
        to = values.get("flag") or values.get("key")
    elif remedy in ("predownload", "accept_licence"):
        to = repo
    else:
        to = _number(case, remedy, values)
    return Step.of(kind) if to is None else Step.of(f"{kind}-to", to=to, now=values.get("requested_utilization"))


def _further(case: Case, remedy: str) -> list[Step]:
    """Return what else can be done, or shown."""
    cause, asked = case.verdict.cause, case.values.get("requested_utilization")
    steps = []
    room = isinstance(asked, float) and asked < min(_CEILING, _available(case))
    if cause == "kv_cache_too_small" and remedy == "reduce_max_model_len" and isinstance(asked, float) and room:
        to = round(min(asked + _STEP, _CEILING), 2)
        steps.append(Step.of("otherwise-raise-utilization", now=asked, to=to))
    if cause == "host_oom_killed" and not (case.verdict.kernel or _by_the_kernel(case)):
        steps.append(Step.of("ask-the-kernel"))
    feeds = case.verdict.about_draft or cause in _BY_DRAFT
    speculates = case.speculates or (case.speculates is None and cause == "draft_load_failed")
    if speculates and feeds and remedy != "drop_speculation" and cause not in ("hub_gated", "hub_unreachable"):
        steps.append(Step.of("otherwise-drop-speculation"))
    return steps


def _available(case: Case) -> float:
    """Return the utilisation that the memory known to be available allows; 1 where that is not known."""
    evidence = case.evidence
    if evidence.available_gib is None or evidence.total_gib is None:
        return 1.0
    return feasible_utilization(evidence.available_gib, evidence.total_gib) or 0.0


def _capability(number: Any) -> str:
    return f"{number // 10}.{number % 10}"


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
    from jetson_specdec.recipe.spec_text import read_spec_text, spec_json

    hit = case.verdict.hit
    text = hit.values.get("text") if hit is not None else None
    read = read_spec_text(text) if isinstance(text, str) else None
    if read is None or not read.repaired:
        return None
    return masked(f"--speculative-config '{spec_json(read.repaired)}'")
