# SPDX-License-Identifier: Apache-2.0
"""Does a server still do what the verdict rested on? Pure: a reference and two pages of counters in, an answer out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.measurements import BenchReport

__all__ = ["Observed", "Reference", "WatchResult", "judge_drift", "observe"]

SCHEMA_VERSION = 1
EXIT_CODES = {"ok": 0, "unknown": 0, "drift": 30, "unreachable": 31}

_TPOT = "vllm:request_time_per_output_token_seconds"
_STEPS = "vllm:iteration_tokens_total_count"
_KEPT = re.compile(
    r"^(?:ray_)?vllm[:_](?:spec_decode_|generation_tokens|request_success|prompt_tokens|num_preemptions|prefix_cache_|"
    r"request_time_per_output_token_seconds_(?:sum|count)|iteration_tokens_total_(?:sum|count))"
)


@frozen(kw_only=True)
class Reference:
    """What the verdict rested on.

    Attributes:
        acceptance: acceptance rate of the arm with speculation, or None.
        tpot_s: concurrency → mean seconds an output token took.
        source: where it comes from.
    """

    acceptance: float | None = None
    tpot_s: Mapping[int, float] = field(factory=dict)
    source: str | None = None

    @classmethod
    def of_reports(cls, reports: Sequence[BenchReport], *, source: str | None = None) -> Reference:
        """Draw the reports of the arm with speculation together."""
        from jetson_specdec.tune.core import mean_tpot_s

        drafted = accepted = 0.0
        rates = []
        times: dict[int, list[float]] = {}
        for report in reports:
            seen = report.acceptance
            if seen is not None and seen.drafted_tokens and seen.accepted_tokens is not None:
                drafted += seen.drafted_tokens
                accepted += seen.accepted_tokens
            elif seen is not None and seen.rate is not None:
                rates.append(seen.rate)
            for run in report.runs:
                value = mean_tpot_s(report, run.concurrency)
                if value is not None:
                    times.setdefault(run.concurrency, []).append(value)
        rate = accepted / drafted if drafted else sum(rates) / len(rates) if rates else None
        return cls(
            acceptance=rate,
            tpot_s={size: sum(values) / len(values) for size, values in sorted(times.items())},
            source=source,
        )

    def tpot_at(self, load: float) -> float | None:
        """Return the expected time per token with so many requests at once; None beyond what was measured."""
        sizes = sorted(self.tpot_s)
        if not sizes or load > sizes[-1] * 1.05:
            return None
        if load <= sizes[0]:
            return self.tpot_s[sizes[0]]
        above = next((size for size in sizes if size >= load), sizes[-1])
        below = max(size for size in sizes if size <= load)
        if above == below:
            return self.tpot_s[above]
        share = (load - below) / (above - below)
        return self.tpot_s[below] + share * (self.tpot_s[above] - self.tpot_s[below])


@frozen(kw_only=True)
class Observed:
    """What happened between two looks; None where the page does not tell.

    Attributes:
        state: as in `SpecMetrics`.
        acceptance: accepted ÷ drafted tokens.
        drafts: verification rounds.
        requests: answered.
        tpot_s: mean seconds an output token took.
        load: mean requests in a step.
    """

    state: str
    acceptance: float | None = None
    drafts: float | None = None
    requests: float | None = None
    tpot_s: float | None = None
    load: float | None = None


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

        known = self.reference
        return {
            "schema_version": SCHEMA_VERSION,
            "state": self.state,
            "observed": None if self.observed is None else attrs.asdict(self.observed),
            "reference": None
            if known is None
            else {
                "acceptance": known.acceptance,
                "tpot_s": {str(size): value for size, value in known.tpot_s.items()},
                "source": known.source,
            },
            "findings": [finding.to_json() for finding in self.findings],
            "next_steps": [step.to_json() for step in self.next_steps],
        }


def kept_lines(page: str) -> str:
    """Return the lines of a `/metrics` page that a later comparison needs."""
    return "".join(f"{line}\n" for line in page.splitlines() if _KEPT.match(line))


def observe(before: str | None, after: str, *, policy: Policy = DEFAULT_POLICY) -> Observed:
    """Read what happened between two `/metrics` pages; None counts from the server's start."""
    from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics

    spec = SpecMetrics.delta(before, after, policy=policy)
    server = ServerCounters.delta(before, after)
    earlier = None if spec.state == "reset" or server.restarted else before
    total = _delta(earlier, after, f"{_TPOT}_sum")
    count = _delta(earlier, after, f"{_TPOT}_count")
    steps = _delta(earlier, after, _STEPS)
    return Observed(
        state="reset" if server.restarted and spec.state == "active" else spec.state,
        acceptance=spec.acceptance_rate,
        drafts=spec.drafts,
        requests=server.requests,
        tpot_s=total / count if total and count else None,
        load=spec.drafts / steps if spec.drafts and steps else None,
    )


def _delta(before: str | None, after: str, name: str) -> float | None:
    now = _sum(after, name)
    return None if now is None else now - (_sum(before or "", name) or 0.0)


def _sum(page: str, name: str) -> float | None:
    """Add a sample over engines and models (text format of Prometheus: the value is the last word)."""
    bare = name.removeprefix("vllm:")
    found = []
    for line in page.splitlines():
        if re.match(rf"(?:ray_)?vllm[:_]{bare}(?:\{{|\s)", line):
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
        policy: `drift_acceptance_drop`, `drift_throughput_drop` and `min_drafts`.
    """

    def answer(state: Any, found: Sequence[Finding], steps: Sequence[Step] = ()) -> WatchResult:
        return WatchResult(
            state=state, observed=observed, reference=reference, findings=tuple(found), next_steps=tuple(steps)
        )

    found: list[Finding] = []
    if observed.state == "reset":
        found.append(Finding.of("JSD987"))
    if observed.state == "absent":
        return answer("drift", [*found, Finding.of("JSD983")], [Step.of("tune-again")])
    drafts = observed.drafts or 0.0
    if observed.acceptance is None or drafts < policy.min_drafts:
        return answer("unknown", [*found, Finding.of("JSD982", drafts=drafts, needed=policy.min_drafts)])
    steps: list[Step] = []
    drifted = False
    rates: dict[str, Any] = {"before": reference.acceptance, "now": observed.acceptance}
    if reference.acceptance is not None:
        if observed.acceptance < reference.acceptance - policy.drift_acceptance_drop:
            drifted = True
            found.append(Finding.of("JSD980", drop=policy.drift_acceptance_drop, **rates))
            steps += [Step.of("tune-again"), Step.of("watch-smaller-k"), Step.of("watch-off")]
        else:
            found.append(Finding.of("JSD984", drafts=drafts, **rates))
    slow = _speed(reference, observed, policy)
    found.append(slow)
    if slow.code == "JSD981":
        drifted = True
        steps.append(Step.of("watch-board", command="jetson-specdec doctor"))
        if not any(step.kind == "tune-again" for step in steps):
            steps.append(Step.of("tune-again"))
    return answer("drift" if drifted else "ok", found, steps)


def _speed(reference: Reference, observed: Observed, policy: Policy) -> Finding:
    """Return what there is to say about the speed."""
    if observed.tpot_s is None or observed.load is None:
        return Finding.of("JSD986", reason="the server shows no time per token")
    if not reference.tpot_s:
        return Finding.of("JSD986", reason="the reference holds none")
    load = max(observed.load, 1.0)
    expected = reference.tpot_at(load)
    if expected is None:
        return Finding.of("JSD986", reason=f"{load:.0f} requests at once were never measured")
    # Speed is the inverse of the time per token.
    code = "JSD981" if expected / observed.tpot_s < 1 - policy.drift_throughput_drop else "JSD988"
    return Finding.of(
        code, now=observed.tpot_s * 1e3, before=expected * 1e3, load=load, drop=policy.drift_throughput_drop
    )
