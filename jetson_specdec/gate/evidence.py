# SPDX-License-Identifier: Apache-2.0
"""From reports to ratios: which figures both arms have, and how sure each is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import evolve, field

from jetson_specdec.gate.statistics import (
    Bounds,
    RequestSample,
    known_spread,
    over_pairs,
    over_requests,
    unpaired,
    wider,
)
from jetson_specdec.measurements.core import BenchReport, RequestRecord, Run
from jetson_specdec.policy import Policy
from jetson_specdec.values import frozen

__all__ = ["Pair", "Quantity", "QuantityName", "of_points", "of_reports"]

Pair = tuple[BenchReport, BenchReport]
QuantityName = Literal["throughput", "tpot", "ttft"]
_MOST = 700.0
_FIELDS: Mapping[QuantityName, str] = {
    "throughput": "throughput_tok_s",
    "tpot": "tpot_ms_p50",
    "ttft": "ttft_ms_p50",
}


@frozen(kw_only=True)
class Quantity:
    """One figure of both arms at one concurrency.

    Attributes:
        name: which.
        concurrency: where.
        before, after: geometric means over pairs; None where an arm lacks it.
        log_ratio: mean logarithm of after ÷ before; None where an arm lacks it.
        bounds: how sure that is; None with point values only.
        from_pairs, from_requests: what `bounds` was made of (the wider of both).
        pairs: pairs that have it.
        missing_pairs: pairs that lack it although others have it.
    """

    name: QuantityName
    concurrency: int
    before: float | None = None
    after: float | None = None
    log_ratio: float | None = None
    bounds: Bounds | None = None
    from_pairs: Bounds | None = None
    from_requests: Bounds | None = None
    pairs: int = 0
    missing_pairs: int = 0
    samples: tuple[RequestSample, ...] = field(default=(), repr=False)

    @property
    def key(self) -> str:
        """The name of its criterion."""
        return f"{self.name}_c{self.concurrency}"

    @property
    def ratio(self) -> float | None:
        """After ÷ before."""
        return None if self.log_ratio is None else _exp(self.log_ratio)

    @property
    def low(self) -> float | None:
        """Lower bound of the ratio, or the ratio itself."""
        return self.ratio if self.bounds is None else _exp(self.bounds.low)

    @property
    def high(self) -> float | None:
        """Upper bound of the ratio, or the ratio itself."""
        return self.ratio if self.bounds is None else _exp(self.bounds.high)


def of_reports(pairs: Sequence[Pair], policy: Policy, *, category: str | None = None) -> dict[str, Quantity]:
    """Return every figure that at least one arm has, by criterion name.

    Args:
        pairs: (before, after).
        policy: level and number of resamples.
        category: only requests of this category count; figures then come from the raw records alone.
    """
    found: dict[str, Quantity] = {}
    concurrencies = sorted({run.concurrency for pair in pairs for report in pair for run in report.runs})
    for concurrency in concurrencies:
        for name in _FIELDS:
            quantity = _quantity(pairs, name, concurrency, policy, category)
            if quantity is not None:
                found[quantity.key] = quantity
    return found


def of_points(
    name: QuantityName,
    concurrency: int,
    before: Sequence[float],
    after: Sequence[float],
    policy: Policy,
    *,
    spread: float | None = None,
) -> Quantity:
    """Return a figure from plain numbers; equally many of both arms are pairs, else two independent series.

    `spread` is the standard deviation of a single figure, as a fraction, where it is known from elsewhere.
    """
    if not before or not after:
        return Quantity(
            name=name,
            concurrency=concurrency,
            before=_geometric(before),
            after=_geometric(after),
        )
    mean_before, mean_after = _log_mean(before), _log_mean(after)
    if len(before) == len(after):
        bounds = over_pairs(
            [math.log(a) - math.log(b) for b, a in zip(before, after, strict=True)], policy.confidence_level
        )
    else:
        bounds = unpaired(before, after, policy.confidence_level)
    if bounds is None and spread is not None:
        bounds = known_spread(mean_after - mean_before, spread, policy.confidence_level)
    return Quantity(
        name=name,
        concurrency=concurrency,
        before=math.exp(mean_before),
        after=math.exp(mean_after),
        log_ratio=mean_after - mean_before,
        bounds=bounds,
        from_pairs=bounds,
        pairs=min(len(before), len(after)),
    )


def _quantity(
    pairs: Sequence[Pair], name: QuantityName, concurrency: int, policy: Policy, category: str | None
) -> Quantity | None:
    befores: list[float] = []
    afters: list[float] = []
    samples: list[RequestSample] = []
    lone_before: list[float] = []
    lone_after: list[float] = []
    for before, after in pairs:
        sample = _sample(before, after, name, concurrency, category)
        values = [_value(report, name, concurrency, category) for report in (before, after)]
        if values[0] is not None and values[1] is not None:
            befores.append(values[0])
            afters.append(values[1])
            samples += [sample] if sample is not None else []
        else:
            lone_before += [values[0]] if values[0] is not None else []
            lone_after += [values[1]] if values[1] is not None else []
    if not befores:
        if not lone_before and not lone_after:
            return None
        return (
            of_points(name, concurrency, lone_before, [], policy)
            if lone_before
            else of_points(name, concurrency, [], lone_after, policy)
        )
    quantity = of_points(name, concurrency, befores, afters, policy)
    requests = None
    if len(samples) == len(befores) and quantity.log_ratio is not None:
        requests = over_requests(samples, quantity.log_ratio, policy.confidence_level, policy.bootstrap_resamples)
    return evolve(
        quantity,
        bounds=wider(quantity.from_pairs, requests),
        from_requests=requests,
        missing_pairs=len(pairs) - len(befores),
        samples=tuple(samples),
    )


def _value(report: BenchReport, name: QuantityName, concurrency: int, category: str | None) -> float | None:
    run: Run | None = report.run_at(concurrency)
    if category is None:
        value: float | None = None if run is None else getattr(run, _FIELDS[name])
        return value if value is not None and value > 0 else None
    records = _usable(report, name, concurrency, category)
    if not records:
        return None
    if name == "throughput":
        seconds = math.fsum(record.e2e_ms or 0.0 for record in records) / 1000
        return sum(record.output_tokens or 0 for record in records) / seconds
    values = sorted(_of_record(record, name) for record in records)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def _of_record(record: RequestRecord, name: QuantityName) -> float:
    return (record.tpot_ms if name == "tpot" else record.ttft_ms) or 0.0


def _usable(
    report: BenchReport, name: QuantityName, concurrency: int, category: str | None
) -> tuple[RequestRecord, ...]:
    def has(record: RequestRecord) -> bool:
        if name == "throughput":
            return bool(record.e2e_ms and record.e2e_ms > 0 and record.output_tokens)
        return _of_record(record, name) > 0

    return tuple(
        record
        for record in report.requests_at(concurrency)
        if record.ok and has(record) and (category is None or record.category == category)
    )


def _sample(
    before: BenchReport, after: BenchReport, name: QuantityName, concurrency: int, category: str | None
) -> RequestSample | None:
    """Return the requests that a figure rests on, or None where an arm kept none."""
    records = [_usable(report, name, concurrency, category) for report in (before, after)]
    if not all(records):
        return None
    ids = [[record.prompt_id for record in arm] for arm in records]
    matched = ids[0] == ids[1] and None not in ids[0]
    unique = None not in ids[0] and len(set(ids[0])) == len(ids[0]) == len(ids[1])
    if not matched and unique and set(ids[0]) == set(ids[1]):
        # The same prompts in another order: sort both alike, so that they can be drawn together.
        place = {prompt: index for index, prompt in enumerate(ids[0])}
        records[1] = tuple(sorted(records[1], key=lambda record: place[record.prompt_id]))
        matched = True
    if name == "throughput":
        values = [tuple((record.e2e_ms or 0.0) / 1000 for record in arm) for arm in records]
        weights = [tuple(float(record.output_tokens or 0) for record in arm) for arm in records]
        return RequestSample(
            before=values[0],
            after=values[1],
            before_weights=weights[0],
            after_weights=weights[1],
            matched=matched,
            block=concurrency,
        )
    values = [tuple(_of_record(record, name) for record in arm) for arm in records]
    return RequestSample(before=values[0], after=values[1], matched=matched, block=concurrency)


def _exp(logarithm: float) -> float:
    """Return the exponential, without overflow: figures of a broken report may be hundreds of powers of ten apart."""
    return math.exp(max(-_MOST, min(_MOST, logarithm)))


def _log_mean(values: Sequence[float]) -> float:
    return math.fsum(math.log(value) for value in values) / len(values)


def _geometric(values: Sequence[float]) -> float | None:
    return math.exp(_log_mean(values)) if values else None
