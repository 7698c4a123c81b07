# SPDX-License-Identifier: Apache-2.0
"""`diagnose`: from what the engine said to why it did not start, and what to do first.

Pure: the same texts give the same answer. Rules and texts: vLLM 0.8 to 0.32 (`data/signatures.json` names a source for
each), and the table of causes in `data/causes.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jetson_specdec.logs.advice import Case, remedy_of, speculation_of
from jetson_specdec.logs.attempt import Proof
from jetson_specdec.logs.causes import causes
from jetson_specdec.logs.diagnosis import Diagnosis
from jetson_specdec.logs.evidence import Evidence, gather
from jetson_specdec.logs.numbers import values_of
from jetson_specdec.logs.refine import refine
from jetson_specdec.logs.scan import scan
from jetson_specdec.logs.several import Judged, newest, share_arguments, too_narrow
from jetson_specdec.logs.verdict import judge
from jetson_specdec.logs.wording import findings_of, steps_of

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe

__all__ = ["diagnose"]

_MOST_PROOFS = 8
_BY_DOCKER = re.compile(r"already allocated|response from daemon|failed to register layer|^docker: ")


def diagnose(
    text: str | Sequence[str],
    *,
    dmesg: str | None = None,
    meminfo: str | None = None,
    recipe: Recipe | str | None = None,
    exit_code: int | None = None,
    nv_tegra_release: str | None = None,
    target_config: Mapping[str, Any] | str | None = None,
    draft_config: Mapping[str, Any] | str | None = None,
    names: Sequence[str] | None = None,
) -> Diagnosis:
    """Say why a launch failed, or that it did not.

    Args:
        text: the log of a launch, or several logs in any order: the processes of one start, or several starts.
        dmesg: the kernel log of that time.
        meminfo: `/proc/meminfo` of that time.
        recipe: the recipe that was started.
        exit_code: how the process ended; 137 or -9 is SIGKILL.
        nv_tegra_release: the board's release file.
        target_config: `config.json` of the target.
        draft_config: `config.json` of the draft.
        names: what to call the logs in the evidence; by default `log`, or `log 1`, `log 2`, … by time.

    Returns:
        The diagnosis. No text is an error: one that says nothing gives `started_ok` None.
    """
    evidence = gather(
        dmesg=dmesg,
        meminfo=meminfo,
        recipe=recipe,
        exit_code=exit_code,
        nv_tegra_release=nv_tegra_release,
        target_config=target_config,
        draft_config=draft_config,
    )
    scanned = [scan(part, name) for part, name in _named([text] if isinstance(text, str) else list(text), names)]
    logs, total = [log for log, _ in scanned], sum(count for _, count in scanned)
    share_arguments(logs)
    judged: list[list[Judged]] = []
    for log in logs:
        found = []
        for attempt in log:
            # How the process ended and what the kernel said belong to the last start of a log.
            last = attempt is log[-1]
            verdict = judge(
                attempt,
                kernel=evidence.kernel if last else type(evidence.kernel)(),
                exit_code=exit_code if last else None,
            )
            verdict = refine(verdict, attempt)
            found.append(Judged(attempt=attempt, verdict=verdict, values=values_of(attempt, verdict, evidence)))
        judged.append(found)
    every = [each for log in judged for each in log]
    chosen = newest(judged)
    chosen = too_narrow(every, chosen, evidence) or chosen
    return _answer(chosen, evidence, every, total)


def _named(texts: list[str], names: Sequence[str] | None) -> list[tuple[str, str]]:
    """Put the logs in an order that does not depend on how they were handed over."""
    if len(texts) <= 1:
        return [((texts or [""])[0], names[0] if names else "log")]
    pairs = [
        (part, names[index] if names is not None and index < len(names) else "") for index, part in enumerate(texts)
    ]
    pairs.sort(key=lambda pair: (_begin(pair[0]), pair[0], pair[1]))
    return [(part, name or f"log {index}") for index, (part, name) in enumerate(pairs, 1)]


def _begin(text: str) -> str:
    from jetson_specdec.logs.lines import read_line

    for raw in text[:100_000].split("\n")[:200]:
        time = read_line(raw).time
        if time is not None:
            return time
    return ""


def _answer(chosen: Judged, evidence: Evidence, every: Sequence[Judged], total: int) -> Diagnosis:
    verdict = chosen.verdict
    case = Case(attempt=chosen.attempt, verdict=verdict, values=chosen.values, evidence=evidence)
    remedy = "none" if verdict.started_ok is True else remedy_of(case)
    return Diagnosis(
        started_ok=verdict.started_ok,
        stage=verdict.stage or _stage(case),
        cause=verdict.cause,
        remedy=remedy,
        speculation_involved=speculation_of(case),
        values=dict(sorted(chosen.values.items())),
        evidence=tuple(_proofs(case)),
        findings=findings_of(case, every, total),
        next_steps=steps_of(case, remedy),
        attempts=total,
    )


def _stage(case: Case) -> str:
    """Return the usual stage of the cause; of one that can strike anywhere, how far the start came."""
    usual = causes()[case.verdict.cause]["stage"]
    reached = case.attempt.progress
    if case.verdict.started_ok is None:
        return reached
    if case.verdict.cause in ("port_in_use", "disk_full"):
        hit = case.verdict.hit
        return "container" if hit is not None and _BY_DOCKER.search(hit.proof.text) is not None else usual
    if case.verdict.cause in ("driver_oom", "host_oom_killed", "watchdog_stopped", "engine_failed", "arch_unsupported"):
        if reached == "kv_cache" or (reached == "load" and case.attempt.loaded):
            # The last thing it said was that the step is done.
            return "warmup" if reached == "kv_cache" else "kv_cache"
        if reached in ("config", "warmup"):
            return reached
    return usual


def _proofs(case: Case) -> list[Proof]:
    """Return the lines worth showing, the defining one first, none twice."""
    found = [hit.proof for hit in case.verdict.hits]
    if case.verdict.kernel:
        kernel = case.evidence.kernel
        found += (kernel.killed if case.verdict.cause == "host_oom_killed" else kernel.driver)[:2]
    known = case.attempt.proofs
    wanted: tuple[str, ...] = ("started", "speculation", "drafter", "loaded", "kv_cache", "arguments")
    if case.verdict.started_ok is False:
        wanted = ("embedding", "loaded", "drafter", "arguments")
    found += [known[name] for name in wanted if name in known]
    return list(dict.fromkeys(found))[:_MOST_PROOFS]
