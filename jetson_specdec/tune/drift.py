# SPDX-License-Identifier: Apache-2.0
"""Does a server still do what the verdict rested on? Pure: a reference and two pages of counters in, an answer out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from jetson_specdec.findings import Finding, Step
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.tune.reference import Batches, Reference

__all__ = ["Observed", "WatchResult", "judge_drift", "kept_lines", "model_of", "observe", "shows_vllm"]

SCHEMA_VERSION = 1
EXIT_CODES = {"ok": 0, "unknown": 0, "drift": 30, "unreachable": 31}

_GAPS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")
"""Time between two outputs of a request, however many tokens the second has; its name since and before vLLM 0.10.2."""
_FIRSTS = "vllm:time_to_first_token_seconds_count"
_TOKENS = "vllm:generation_tokens_total"
_TPOT = "vllm:request_time_per_output_token_seconds"
_STEPS = "vllm:iteration_tokens_total_count"
_BUCKET = re.compile(r'(?:ray_)?vllm[:_]iteration_tokens_total_bucket\{(?:.*,)?le="([^"]+)"')
_PROMPTS = "vllm:prompt_tokens_total"
_CHUNK = 2048
"""Prompt tokens that a step takes at most where nothing else is said (vLLM's default on smaller boards)."""
_BORN = "process_start_time_seconds"
_KEPT = re.compile(
    rf"^(?:{_BORN}[ {{]|(?:ray_)?vllm[:_](?:spec_decode_|generation_tokens|request_success|prompt_tokens|"
    r"num_preemptions|prefix_cache_|(?:request_time_per_output_token|inter_token_latency|time_per_output_token|time_to_first_token)"
    rf"_seconds_(?:sum|count)|iteration_tokens_total_(?:sum|count))|{_BUCKET.pattern})"
)
_PROMPTS_MOST = 1 / 3
"""Where more of the steps may have read a prompt, a token's time says more of those than of decoding."""
ENOUGH_TOKENS = 1000
"""So many tokens without a single draft are no chance."""


@frozen(kw_only=True)
class Observed:
    """What happened between two looks; None where the page does not tell.

    Attributes:
        state: as in `SpecMetrics`.
        acceptance: accepted ÷ drafted tokens.
        drafts: verification rounds.
        requests: answered.
        tokens: generated.
        tpot_s: mean seconds an output token took, after the first of its request.
        load: mean requests in a step.
        prompts: prompts that were read, as a share of the steps.
        batches: how many requests shared a step, as far as the page tells.
    """

    state: str
    acceptance: float | None = None
    drafts: float | None = None
    requests: float | None = None
    tokens: float | None = None
    tpot_s: float | None = None
    load: float | None = None
    prompts: float | None = None
    batches: Batches = ()


@frozen(kw_only=True)
class WatchResult:
    """The answer of `watch`.

    Attributes:
        state: `ok`, `drift`, `unknown` (nothing to tell yet) or `unreachable`.
        observed: what was seen, or None.
        reference: what it was compared with.
        findings: why.
        next_steps: what to do.
    """

    state: Literal["ok", "drift", "unknown", "unreachable"]
    observed: Observed | None = None
    reference: Reference | None = None
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `jetson-specdec watch` returns."""
        return EXIT_CODES[self.state]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `watch --json`."""
        import attrs

        known, seen = self.reference, self.observed
        return {
            "schema_version": SCHEMA_VERSION,
            "state": self.state,
            "observed": None if seen is None else {**attrs.asdict(seen), "batches": _shown(seen.batches)},
            "reference": None
            if known is None
            else {
                "acceptance": known.acceptance,
                "tpot_s": {str(size): value for size, value in known.tpot_s.items()},
                "plain_s": {str(size): value for size, value in known.plain_s.items()},
                "source": known.source,
            },
            "findings": [finding.to_json() for finding in self.findings],
            "next_steps": [step.to_json() for step in self.next_steps],
        }


def _shown(batches: Batches) -> list[dict[str, float | None]]:
    return [
        {"fewest": fewest, "most": most if math.isfinite(most) else None, "share": share}
        for fewest, most, share in batches
    ]


def kept_lines(page: str) -> str:
    """Return the lines of a `/metrics` page that a later comparison needs."""
    return "".join(f"{line}\n" for line in page.splitlines() if _KEPT.match(line))


def shows_vllm(page: str) -> bool:
    """Whether a page is one of vLLM with its statistics: others tell nothing, nor that nothing is drafted."""
    return _sum(page, _TOKENS) is not None


def model_of(page: str) -> str | None:
    """Return the model that a page is about."""
    found = re.search(
        r'^(?:ray_)?vllm[:_]generation_tokens_total\{.*?model_name="((?:[^"\\]|\\.)*)"', page, re.MULTILINE
    )
    return found.group(1) if found is not None else None


def observe(before: str | None, after: str, *, policy: Policy = DEFAULT_POLICY) -> Observed:
    """Read what happened between two `/metrics` pages; None counts from the server's start."""
    from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics

    born = [_sum(page or "", _BORN) for page in (before, after)]
    # Counters may have passed those of the life before.
    anew = born[0] is not None and born[1] is not None and born[1] > born[0] + 1.0
    earlier = None if anew else before
    spec = SpecMetrics.delta(earlier, after, policy=policy)
    server = ServerCounters.delta(earlier, after)
    anew = anew or server.restarted or spec.state == "reset"
    earlier = None if anew else earlier
    gaps, seconds = None, None
    for name in _GAPS:
        if gaps is None:
            gaps, seconds = _delta(earlier, after, f"{name}_count"), _delta(earlier, after, f"{name}_sum")
    tokens, firsts = _delta(earlier, after, _TOKENS), _delta(earlier, after, _FIRSTS)
    steps = _delta(earlier, after, _STEPS)
    tpot = None
    if seconds and tokens and firsts is not None and tokens > firsts:
        tpot = seconds / (tokens - firsts)
    else:
        total, count = _delta(earlier, after, f"{_TPOT}_sum"), _delta(earlier, after, f"{_TPOT}_count")
        tpot = total / count if total and count else None
    # A request takes part in a step for each of its gaps; without their count, for each of its drafts.
    parts = gaps or spec.drafts
    return Observed(
        state="reset" if anew and spec.state in ("active", "idle") else spec.state,
        acceptance=spec.acceptance_rate,
        drafts=spec.drafts,
        requests=server.requests,
        tokens=tokens,
        tpot_s=tpot,
        load=parts / steps if parts and steps else None,
        prompts=firsts / steps if firsts is not None and steps else None,
        batches=_batches(earlier, after, (tokens - firsts) / gaps) if gaps and tokens and firsts is not None else (),
    )


def _delta(before: str | None, after: str, name: str) -> float | None:
    now = _sum(after, name)
    return None if now is None else now - (_sum(before or "", name) or 0.0)


def _batches(before: str | None, after: str, each: float) -> Batches:
    """Return how many requests shared a step, from the histogram of its tokens; `each` is what a request gets in one.

    Steps that read a prompt have more tokens than their requests tell: of as many as there were prompts, taken at the
    top, nothing is known.
    """
    counts = _buckets(after)
    for edge, count in _buckets(before or "").items():
        counts[edge] = counts.get(edge, 0.0) - count
    edges = sorted(counts)
    steps = [counts[edge] - (counts[edges[i - 1]] if i else 0.0) for i, edge in enumerate(edges)]
    total = sum(steps)
    if total <= 0 or min(steps) < 0 or each <= 0:
        return ()
    prompts = min((_delta(before, after, _FIRSTS) or 0.0) + (_delta(before, after, _PROMPTS) or 0.0) / _CHUNK, total)
    rows = [(1.0, math.inf, prompts / total)]
    for i in reversed(range(len(steps))):
        left_out = min(prompts, steps[i])
        steps[i] -= left_out
        prompts -= left_out
    for i, edge in enumerate(edges):
        fewest = max(edges[i - 1] / each, 1.0) if i else 1.0
        if steps[i]:
            rows.append((fewest, max(edge / each, fewest), steps[i] / total))
    return tuple(rows)


def _buckets(page: str) -> dict[float, float]:
    """Return edge → steps with at most so many tokens, over engines."""
    found: dict[float, float] = {}
    for line in page.splitlines():
        if (match := _BUCKET.match(line)) is not None:
            try:
                edge, count = float(match.group(1)), float(line.rpartition("}")[2].split()[0])
            except (ValueError, IndexError):
                continue
            found[edge] = found.get(edge, 0.0) + count
    return found


def _sum(page: str, name: str) -> float | None:
    """Add a sample over engines and models (text format of Prometheus: the value is the last word)."""
    bare = name.removeprefix("vllm:")
    pattern = rf"(?:ray_)?vllm[:_]{bare}" if bare != name else bare
    found = []
    for line in page.splitlines():
        if re.match(rf"{pattern}(?:\{{|\s)", line):
            try:
                found.append(float(line.rpartition("}")[2].split()[0] if "}" in line else line.split()[1]))
            except (ValueError, IndexError):
                continue
    values = [value for value in found if math.isfinite(value)]
    return sum(values) if values else None


def judge_drift(reference: Reference, observed: Observed, *, policy: Policy = DEFAULT_POLICY) -> WatchResult:
    """Say whether acceptance or speed fell below what the verdict rested on.

    Args:
        reference: what it rested on.
        observed: what happened between two looks.
        policy: `drift_acceptance_drop`, `drift_throughput_drop`, `drift_requests` and `min_drafts`.
    """

    def answer(state: Any, found: Sequence[Finding], steps: Sequence[Step] = ()) -> WatchResult:
        return WatchResult(
            state=state, observed=observed, reference=reference, findings=tuple(found), next_steps=tuple(steps)
        )

    found: list[Finding] = []
    if observed.state == "reset":
        found.append(Finding.of("JSD987"))
    if nothing_drafted(reference, observed):
        return answer("drift", [*found, Finding.of("JSD983")], [Step.of("tune-again")])
    drafts, requests = observed.drafts or 0.0, observed.requests
    if observed.acceptance is None or drafts < policy.min_drafts:
        return answer("unknown", [*found, Finding.of("JSD982", drafts=drafts, needed=policy.min_drafts)])
    if requests is not None and requests < policy.drift_requests:
        return answer("unknown", [*found, Finding.of("JSD952", requests=requests, needed=policy.drift_requests)])
    fell = (
        reference.acceptance is not None and observed.acceptance < reference.acceptance - policy.drift_acceptance_drop
    )
    if reference.acceptance is not None:
        rates: dict[str, Any] = {"before": reference.acceptance, "now": observed.acceptance}
        more: dict[str, Any] = {"drop": policy.drift_acceptance_drop} if fell else {"drafts": drafts}
        found.append(Finding.of("JSD980" if fell else "JSD984", **rates, **more))
    slow = _speed(reference, observed, policy)
    found.append(slow)
    slower = slow.code == "JSD981"
    if not fell and not slower:
        return answer("ok", found)
    costs = _costs(reference, observed)
    if costs:
        found.append(Finding.of("JSD951", **costs))
    return answer("drift", found, _steps(fell=fell, slower=slower, costs=bool(costs), known=bool(reference.plain_s)))


def nothing_drafted(reference: Reference, observed: Observed) -> bool:
    """Whether the server answers without drafting, although it should."""
    if observed.state == "absent":
        return True
    idle = observed.tokens is not None and observed.tokens >= ENOUGH_TOKENS and observed.drafts == 0
    return idle and not reference.may_idle


def _speed(reference: Reference, observed: Observed, policy: Policy) -> Finding:
    """Return what there is to say about the speed."""
    if observed.tpot_s is None or observed.load is None:
        return Finding.of("JSD986", reason="the server shows no time per token")
    if not reference.tpot_s:
        return Finding.of("JSD986", reason="the reference holds none")
    if (observed.prompts or 0.0) > _PROMPTS_MOST:
        return Finding.of("JSD986", reason="answers are too short: most steps read prompts as well")
    load = max(observed.load, 1.0)
    expected = reference.span(load, observed.batches)
    if expected is None:
        return Finding.of("JSD986", reason=f"{load:.0f} requests at once were never measured")
    # Speed is the inverse of the time per token.
    code = "JSD981" if expected[1] / observed.tpot_s < 1 - policy.drift_throughput_drop else "JSD988"
    before = expected[1] if code == "JSD981" else expected[0]
    return Finding.of(
        code, now=observed.tpot_s * 1e3, before=before * 1e3, load=load, drop=policy.drift_throughput_drop
    )


def _costs(reference: Reference, observed: Observed) -> dict[str, Any]:
    """Return how long a token takes now and took without speculation, where that was surely less."""
    load = max(observed.load or 1.0, 1.0)
    plain = reference.plain(load, observed.batches)
    if observed.tpot_s is None or observed.load is None or plain is None or observed.tpot_s <= plain[1]:
        return {}
    return {"now": observed.tpot_s * 1e3, "plain": plain[1] * 1e3, "load": load}


def _steps(*, fell: bool, slower: bool, costs: bool, known: bool) -> list[Step]:
    """Return what to do about a drift."""
    steps = []
    if costs:
        steps.append(Step.of("watch-off"))
    if slower:
        steps.append(Step.of("watch-board", command="jetson-specdec doctor"))
    steps.append(Step.of("tune-again"))
    if fell:
        steps.append(Step.of("watch-smaller-k"))
        if not costs and not known:
            steps.append(Step.of("watch-off"))
    return steps
