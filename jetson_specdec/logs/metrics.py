# SPDX-License-Identifier: Apache-2.0
"""How much of what was drafted was accepted, from `/metrics` pages, log lines or a response.

Names and meaning of the counters and log lines: vLLM 0.8 to 0.32, `v1/spec_decode/metrics.py`; of the first engine
generation: vLLM 0.4 to 0.8, `spec_decode/metrics.py`. A mean acceptance length always counts the bonus token here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from attrs import evolve, field

from jetson_specdec.findings import Finding
from jetson_specdec.logs.plausible import impossible_count, too_few_positions
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["ServerCounters", "SpecMetrics", "SpecState"]

SpecState = Literal["active", "idle", "reset", "absent", "legacy"]

_DRAFTS: Final = "vllm:spec_decode_num_drafts_total"
_DRAFTED: Final = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED: Final = "vllm:spec_decode_num_accepted_tokens_total"
_PER_POSITION: Final = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_LEGACY: Final = (
    "vllm:spec_decode_draft_acceptance_rate",
    "vllm:spec_decode_efficiency",
    "vllm:spec_decode_num_emitted_tokens_total",
)
_LEGACY_LINE: Final = "Speculative metrics: "
_SERVER: Final = {
    "preemptions": "vllm:num_preemptions_total",
    "prefix_cache_queries": "vllm:prefix_cache_queries_total",
    "prefix_cache_hits": "vllm:prefix_cache_hits_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "generation_tokens": "vllm:generation_tokens_total",
    "requests": "vllm:request_success_total",
}
_Series = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@frozen(kw_only=True)
class SpecMetrics:
    """What was drafted and accepted over some time.

    Attributes:
        acceptance_rate: accepted ÷ drafted tokens, a fraction; None where nothing was drafted.
        mean_acceptance_length: 1 + accepted ÷ drafts.
        per_position: accepted at each position ÷ drafts, position 0 first.
        state: `active`; `idle` (nothing drafted); `reset` (the engine restarted: numbers since then); `absent` (no
            speculative figures); `legacy` (first engine generation, whose acceptance counts every position by itself).
        drafts: verification steps with drafted tokens; None where it cannot be told.
        drafted_tokens, accepted_tokens: counts.
        accepted_per_position: counts.
        findings: what to be careful about.
    """

    acceptance_rate: float | None = None
    mean_acceptance_length: float | None = None
    per_position: tuple[float, ...] | None = None
    state: SpecState = "absent"
    drafts: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None
    findings: tuple[Finding, ...] = field(default=())

    @classmethod
    def delta(cls, before_text: str | None, after_text: str, *, policy: Policy = DEFAULT_POLICY) -> SpecMetrics:
        """Read two scrapes of `/metrics` and return what happened in between, summed over engines and models.

        Args:
            before_text: the first scrape; None or without such counters counts from the engine's start.
            after_text: the second one.
            policy: when drafts are too few to tell.
        """
        before, after = _series(before_text or ""), _series(after_text)
        names = {name for name, _ in after}
        legacy = _DRAFTS not in names and any(name in names for name in _LEGACY)
        if not legacy and not {_DRAFTS, _DRAFTED} & names:
            return cls(findings=(Finding.of("JSD683"),))
        changes, was_reset = _changes(before, after)
        drafted, accepted = _sum(changes, _DRAFTED), _sum(changes, _ACCEPTED)
        if legacy:
            found = _legacy(drafted, accepted, drafts=None, emitted=None, policy=policy)
            gauges = [value for (name, _), value in after.items() if name == _LEGACY[0]]
            if drafted is None and len(gauges) == 1:
                # Only the gauge is there: it is of the engine's last interval.
                found = evolve(found, acceptance_rate=gauges[0])
            return found
        metrics = _of_counts(_sum(changes, _DRAFTS), drafted, accepted, _positions(changes), policy)
        if was_reset:
            metrics = evolve(metrics, state="reset", findings=(Finding.of("JSD684"), *metrics.findings))
        return metrics

    @classmethod
    def from_log(cls, text: str, *, policy: Policy = DEFAULT_POLICY) -> SpecMetrics:
        """Pool the speculative lines of a server log.

        Each line counts its own interval, so counts are added, never the printed percentages averaged; lines without
        drafts (`nan`) say nothing. First-generation lines count from the start, so the last one stands.
        """
        intervals = list(_intervals(text))
        if not intervals:
            return _legacy_log(text, policy)
        counted = [interval for interval in intervals if interval.drafted > 0]
        if not counted:
            return cls(state="idle", drafts=0.0, drafted_tokens=0.0, accepted_tokens=0.0)
        drafts = None
        if all(interval.drafts is not None for interval in counted):
            drafts = sum(interval.drafts or 0.0 for interval in counted)
        positions: tuple[float, ...] | None = None
        if drafts is not None and all(interval.rates for interval in counted):
            longest = max(len(interval.rates) for interval in counted)
            positions = tuple(
                sum(
                    interval.rates[index] * (interval.drafts or 0.0)
                    for interval in counted
                    if index < len(interval.rates)
                )
                for index in range(longest)
            )
        metrics = _of_counts(
            drafts,
            sum(interval.drafted for interval in counted),
            sum(interval.accepted for interval in counted),
            positions,
            policy,
        )
        without = sum(interval.without_bonus for interval in counted)
        if without:
            metrics = evolve(metrics, findings=(*metrics.findings, Finding.of("JSD685", lines=without)))
        return metrics

    @classmethod
    def from_response(cls, payload: Any) -> SpecMetrics | None:
        """Read the `metrics.speculative_decoding` object of one response (vLLM ≥ 0.32); None where there is none.

        Args:
            payload: the response body, its `metrics`, or the object itself.
        """
        for key in ("metrics", "speculative_decoding"):
            if isinstance(payload, Mapping) and key in payload:
                payload = payload[key]
        if not isinstance(payload, Mapping) or "num_draft_tokens" not in payload:
            return None
        histogram = payload.get("acceptance_histogram")
        positions = None
        if isinstance(histogram, list) and all(isinstance(item, int) for item in histogram):
            positions = tuple(float(sum(histogram[index + 1 :])) for index in range(len(histogram) - 1))
        counts = [payload.get(key) for key in ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")]
        if not all(isinstance(count, int) and not isinstance(count, bool) for count in counts):
            return None
        steps, drafted, accepted = (float(count) for count in counts if count is not None)
        # One request alone always has few drafts; that is for whoever pools them to say.
        found = _of_counts(steps, drafted, accepted, positions, DEFAULT_POLICY)
        return None if found.state == "reset" else evolve(found, findings=())

    @property
    def speculating(self) -> bool | None:
        """Whether tokens were drafted; None where these figures cannot tell (`absent`)."""
        return None if self.state == "absent" else bool(self.drafted_tokens)


@frozen(kw_only=True)
class ServerCounters:
    """Other counters of the server over a run; None where the page lacks them.

    Attributes:
        preemptions: requests thrown out for lack of KV cache.
        prefix_cache_queries, prefix_cache_hits: prompt tokens looked up, found.
        prompt_tokens, generation_tokens: tokens.
        requests: finished requests, of whoever sent them.
        restarted: a counter went back, so the numbers are those since the restart.
    """

    preemptions: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    requests: float | None = None
    restarted: bool = False

    @classmethod
    def delta(cls, before_text: str | None, after_text: str) -> ServerCounters:
        """Read two scrapes of `/metrics`; without the first the counts are since the engine's start."""
        before, after = _series(before_text or ""), _series(after_text)
        changes, restarted = _changes(before, after)
        sums = {key: _sum(changes, name) for key, name in _SERVER.items()}
        return cls(**sums, restarted=restarted)


def _of_counts(
    drafts: float | None,
    drafted: float | None,
    accepted: float | None,
    positions: tuple[float, ...] | None,
    policy: Policy,
) -> SpecMetrics:
    wrong = impossible_count(drafts, drafted, accepted, positions)
    if wrong is not None:
        # Counters that went back unseen, or of several servers: nothing can be told from them.
        return SpecMetrics(
            state="reset",
            drafts=drafts,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            findings=(Finding.of("JSD680", name=wrong, drafts=drafts, drafted=drafted, accepted=accepted),),
        )
    if not drafted or drafts == 0:
        return SpecMetrics(state="idle", drafts=0.0, drafted_tokens=0.0, accepted_tokens=0.0)
    findings = []
    if too_few_positions(drafts, accepted, positions):
        positions = None
        findings.append(Finding.of("JSD680", name="per_position", drafts=drafts, drafted=drafted, accepted=accepted))
    if accepted == 0:
        findings.append(Finding.of("JSD681", drafted=drafted))
    if drafts is not None and drafts < policy.min_drafts:
        findings.append(Finding.of("JSD682", drafts=round(drafts), needed=policy.min_drafts))
    return SpecMetrics(
        acceptance_rate=None if accepted is None else accepted / drafted,
        mean_acceptance_length=None if accepted is None or drafts is None else 1 + accepted / drafts,
        per_position=None if positions is None or drafts is None else tuple(count / drafts for count in positions),
        state="active",
        drafts=drafts,
        drafted_tokens=drafted,
        accepted_tokens=accepted,
        accepted_per_position=positions,
        findings=tuple(findings),
    )


# --- /metrics --------------------------------------------------------------------------------------------------------


def _series(text: str) -> _Series:
    """Return (sample name, labels) → value of vLLM's counters and of the times they were created."""
    from prometheus_client.parser import text_string_to_metric_families

    wanted = ("vllm:spec_decode_", *(name.removesuffix("_total") for name in _SERVER.values()))
    counters = {name.removesuffix("_total"): name for name in (_DRAFTS, _DRAFTED, _ACCEPTED, _PER_POSITION)}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for raw in text.splitlines():
        # Ray Serve and some relabelling write `ray_vllm_…` or `vllm_…`; OpenMetrics pages may leave `_total` out.
        line = re.sub(r"^[\ufeff \t]*(?:ray_)?vllm[:_]", "vllm:", raw)
        if not line.startswith(wanted):
            continue
        try:
            samples = [sample for family in text_string_to_metric_families(line + "\n") for sample in family.samples]
        except (ValueError, KeyError, IndexError):  # a line cut off in transfer
            continue
        for sample in samples:
            if math.isfinite(sample.value):
                name = counters.get(sample.name, sample.name)
                found[name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def _engine(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple(label for label in labels if label[0] in ("engine", "model_name"))


def _restarted(before: _Series, after: _Series) -> set[tuple[tuple[str, str], ...]]:
    """Return the engines that restarted in between: a counter went back, is gone, or was created anew."""
    found = set()
    for (name, labels), value in before.items():
        now = after.get((name, labels))
        if name.endswith("_created"):
            anew = now is not None and now > value + 1.0
        else:
            anew = name.endswith("_total") and (now < value if now is not None else value > 0 and _has(after, name))
        if anew:
            found.add(_engine(labels))
    return found


def _has(series: _Series, name: str) -> bool:
    return any(known == name for known, _ in series)


def _changes(before: _Series, after: _Series) -> tuple[_Series, bool]:
    """Return what was counted in between, and whether an engine restarted; its counts are those since then."""
    restarted = _restarted(before, after)
    changes = {
        key: value if _engine(key[1]) in restarted else value - before.get(key, 0.0)
        for key, value in after.items()
        if key[0].endswith("_total")
    }
    return changes, bool(restarted)


def _sum(series: _Series, name: str) -> float | None:
    values = [value for (known, _), value in series.items() if known == name]
    return sum(values) if values else None


def _positions(series: _Series) -> tuple[float, ...] | None:
    sums: dict[int, float] = {}
    # One engine's positions say nothing of the drafts of all.
    drafting = {_engine(labels) for (name, labels), value in series.items() if name == _DRAFTS and value}
    if not drafting <= {_engine(labels) for name, labels in series if name == _PER_POSITION}:
        return None
    for (name, labels), value in series.items():
        position = dict(labels).get("position", "")
        if name == _PER_POSITION and position.isdecimal() and len(position) < 4:
            sums[int(position)] = sums.get(int(position), 0.0) + value
    return tuple(sums.get(index, 0.0) for index in range(max(sums) + 1)) if sums else None


# --- logs ------------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class _Interval:
    accepted: float
    drafted: float
    drafts: float | None
    rates: tuple[float, ...]
    without_bonus: bool = False


def _intervals(text: str) -> Iterator[_Interval]:
    for line in re.findall(r"SpecDecoding metrics:(.*)", text):
        accepted = re.search(r"\bAccepted: (\d+) tokens", line)
        drafted = re.search(r"\bDrafted: (\d+) tokens", line)
        if accepted is None or drafted is None:
            continue
        found = re.search(r"Per-position acceptance rate: ([\d., na]+)", line)
        rates = tuple(_numbers(found[1].split(","))) if found else ()
        length = re.search(r"Mean acceptance length: (\d+\.\d+)", line)
        yield _interval(float(accepted[1]), float(drafted[1]), rates, float(length[1]) if length else None)


def _numbers(words: Iterable[str]) -> Iterator[float]:
    for word in words:
        if re.fullmatch(r"\d+\.\d+", word.strip()):
            yield float(word)


_ROUNDING: Final = 0.0051
"""Printed lengths have two decimals."""


def _interval(accepted: float, drafted: float, rates: tuple[float, ...], length: float | None) -> _Interval:
    """Find how many drafts there were: the line does not say.

    Every draft has one token for each printed position, unless a batch schedule drafts fewer; then the printed length
    tells. Some early releases print that length without the bonus token.
    """
    drafts = drafted / len(rates) if rates else None
    without_bonus = False
    if drafts and length is not None:
        ratio = accepted / drafts
        without_bonus = abs(ratio - length) <= _ROUNDING
        if not without_bonus and abs(1 + ratio - length) > _ROUNDING and accepted > 0:
            without_bonus = abs(sum(rates) - length) < abs(sum(rates) + 1 - length)
            extra = length if without_bonus else length - 1
            drafts = accepted / extra if extra > 0 else drafts
    elif length is not None and length > 1 and accepted > 0:
        drafts = accepted / (length - 1)
    return _Interval(accepted=accepted, drafted=drafted, drafts=drafts, rates=rates, without_bonus=without_bonus)


def _legacy_log(text: str, policy: Policy) -> SpecMetrics:
    told = [line.rpartition(_LEGACY_LINE)[2] for line in text.splitlines() if _LEGACY_LINE in line]
    pattern = (
        r"Number of speculative tokens: (\d+), Number of accepted tokens: (\d+), "
        r"Number of draft tokens: (\d+), Number of emitted tokens: (\d+)"
    )
    lines = [found.groups() for line in told if (found := re.search(pattern, line)) is not None]
    if not lines:
        return SpecMetrics()
    k, accepted, drafted, emitted = (float(figure) for figure in lines[-1])
    drafts = drafted / k if k else None
    return _legacy(drafted, accepted, drafts=drafts, emitted=emitted, policy=policy)


def _legacy(
    drafted: float | None, accepted: float | None, *, drafts: float | None, emitted: float | None, policy: Policy
) -> SpecMetrics:
    """First generation: `accepted` counts positions behind a rejected one too, so the length follows from `emitted`."""
    metrics = _of_counts(drafts, drafted, accepted, None, policy)
    possible = metrics.state != "reset"
    length = emitted / drafts if possible and drafts and emitted is not None else None
    return evolve(
        metrics,
        state="legacy",
        mean_acceptance_length=length,
        findings=(*metrics.findings, Finding.of("JSD686")),
    )
