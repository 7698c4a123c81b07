# SPDX-License-Identifier: Apache-2.0
"""A verdict's figures, reasons and next steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jetson_specdec.findings import Finding, Step
from jetson_specdec.gate.evidence import Quantity
from jetson_specdec.gate.notes import Context, losing_concurrencies
from jetson_specdec.gate.rules import at_least, at_most, judged, states
from jetson_specdec.gate.verdict import Criterion, CriterionState, Outcome
from jetson_specdec.policy import Policy

__all__ = ["criteria", "reasons", "steps"]


def criteria(quantities: Mapping[str, Quantity], policy: Policy, *, eight_applies: bool) -> tuple[Criterion, ...]:
    """Return the contract's criteria, measured or not, the guard, and other concurrencies.

    There TPOT is shown only where throughput is missing.
    """
    margin = policy.equivalence_margin if judged(quantities) else 0.0
    found = states(quantities, policy, margin=margin)
    shown = [
        _criterion(quantities, "throughput_c1", policy.enable_throughput_gain, found.gain),
        _criterion(quantities, "tpot_c1", -policy.enable_tpot_drop, found.tpot),
    ]
    if eight_applies:
        # `or 0.0` turns −0.0 into 0.0.
        shown.append(_criterion(quantities, "throughput_c8", -margin or 0.0, found.eight))
    shown.append(
        _criterion(
            quantities, "throughput_c1", policy.disable_throughput_gain, found.floor, named="throughput_c1_floor"
        )
    )
    guard = at_most(quantities.get("ttft_c1"), 1 + policy.ttft_guard_rise)
    shown.append(_criterion(quantities, "ttft_c1", policy.ttft_guard_rise, guard))
    for quantity in sorted(quantities.values(), key=lambda quantity: (quantity.concurrency, quantity.name)):
        if quantity.concurrency == 1 or quantity.key == "throughput_c8" or quantity.name == "ttft":
            continue
        if quantity.name == "throughput":
            shown.append(_criterion(quantities, quantity.key, -margin or 0.0, at_least(quantity, 1 - margin)))
        elif f"throughput_c{quantity.concurrency}" not in quantities:
            shown.append(_criterion(quantities, quantity.key, margin, at_most(quantity, 1 + margin)))
    return tuple(shown)


def _criterion(
    quantities: Mapping[str, Quantity], key: str, threshold: float, state: CriterionState, *, named: str | None = None
) -> Criterion:
    unit = "tok/s" if key.startswith("throughput") else "ms"
    quantity = quantities.get(key)
    if quantity is None:
        return Criterion(name=named or key, threshold=threshold, unit=unit)
    interval = None
    if quantity.bounds is not None and quantity.low is not None and quantity.high is not None:
        interval = (quantity.low - 1, quantity.high - 1)
    return Criterion(
        name=named or key,
        before=quantity.before,
        after=quantity.after,
        change=None if quantity.ratio is None else quantity.ratio - 1,
        interval=interval,
        threshold=threshold,
        state=state,
        pairs=quantity.pairs,
        unit=unit,
    )


def reasons(
    result: Outcome,
    contract: Outcome,
    quantities: Mapping[str, Quantity],
    policy: Policy,
    *,
    more: int | None,
    eight_applies: bool,
) -> Iterator[Finding]:
    """Return why, most important first."""
    margin = policy.equivalence_margin if judged(quantities) else 0.0
    found = states(quantities, policy, margin=margin)
    gain, tpot, eight = (_change(quantities, key) for key in ("throughput_c1", "tpot_c1", "throughput_c8"))
    lost = losing_concurrencies(quantities, policy)
    if result == "enable":
        if eight_applies:
            yield Finding.of("JSD640", gain=gain, tpot=tpot, eight=eight)
        else:
            yield Finding.of("JSD638", gain=gain, tpot=tpot)
    if found.floor == "failed":
        yield Finding.of("JSD641", gain=gain, needed=policy.disable_throughput_gain)
    if found.eight == "failed" and eight_applies:
        yield Finding.of("JSD642", change=eight)
    if result == "enable_limited":
        yield Finding.of("JSD648", concurrencies=list(lost))
    elif lost and lost != (8,):
        yield Finding.of("JSD649", concurrencies=[concurrency for concurrency in lost if concurrency != 8])
    if result in ("marginal", "disable") and found.gain == "failed" and found.floor != "failed":
        yield Finding.of(
            "JSD646", gain=gain, floor=policy.disable_throughput_gain, needed=policy.enable_throughput_gain
        )
    if result in ("marginal", "disable", "incomplete") and found.tpot == "failed":
        yield Finding.of("JSD647", change=tpot, needed=policy.enable_tpot_drop)
    if result == "incomplete":
        yield Finding.of("JSD639", missing=_absent(quantities, eight_applies))
    if result == "inconclusive":
        names = ["throughput_c1_floor"] if found.floor == "undecided" else []
        names += ["throughput_c1"] if found.gain == "undecided" else []
        names += ["tpot_c1"] if found.tpot == "undecided" else []
        names += ["throughput_c8"] if found.eight == "undecided" and eight_applies else []
        if more is None:
            yield Finding.of("JSD634", names=names, limit=policy.max_pairs)
        else:
            yield Finding.of("JSD633", names=names, more=more)
    if contract != result:
        yield Finding.of("JSD667", contract=contract, outcome=result)


def _change(quantities: Mapping[str, Quantity], key: str) -> float | None:
    quantity = quantities.get(key)
    return None if quantity is None or quantity.ratio is None else quantity.ratio - 1


def _absent(quantities: Mapping[str, Quantity], eight_applies: bool) -> list[str]:
    needed = ["throughput_c1", "tpot_c1"] + (["throughput_c8"] if eight_applies else [])
    return [key for key in needed if _change(quantities, key) is None]


def steps(
    result: Outcome,
    quantities: Mapping[str, Quantity],
    context: Context,
    policy: Policy,
    findings: Sequence[Finding],
    *,
    more: int | None,
) -> tuple[Step, ...]:
    """Return what to do now."""
    codes = {finding.code for finding in findings}
    listed: list[Step] = []
    if result == "invalid":
        listed.append(Step.of("gate-repeat", topics=_topics(findings)))
    if codes & {"JSD602", "JSD610", "JSD625"}:
        listed.append(Step.of("gate-server-log"))
    if result == "enable":
        listed.append(Step.of("gate-keep"))
    absent = _absent(quantities, context.eight_applies)
    if absent and result in ("incomplete", "marginal"):
        listed.append(Step.of("gate-measure", missing=absent))
    if result == "inconclusive":
        listed.append(Step.of("gate-more-pairs", more=more) if more else Step.of("gate-treat-as-off"))
    lost = losing_concurrencies(quantities, policy)
    if result == "enable_limited" or (lost and result == "disable" and not context.has_schedule):
        first = min(lost)
        listed.append(Step.of("gate-batch-schedule", first=first, k=context.k))
    if "JSD643" in codes:
        listed.append(Step.of("gate-more-kv"))
    if "JSD662" in codes:
        listed.append(Step.of("gate-smaller-k", k=context.k))
    elif result == "marginal":
        listed.append(Step.of("gate-other-settings"))
    if result == "disable":
        listed.append(Step.of("remove-speculation"))
    elif result == "marginal":
        listed.append(Step.of("gate-default-off"))
    return tuple(listed)


def _topics(findings: Sequence[Finding]) -> list[str]:
    return list(dict.fromkeys(finding.topic for finding in findings if finding.severity == "blocking"))
