# SPDX-License-Identifier: Apache-2.0
"""Did speculation help? One pair of reports, many pairs, or plain numbers in, a verdict out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding, Severity, blocking
from jetson_specdec.gate.evidence import Pair, Quantity, QuantityName, of_points, of_reports
from jetson_specdec.gate.identity import k_of, method_of
from jetson_specdec.gate.lossless import lossless
from jetson_specdec.gate.notes import (
    Context,
    context_of,
    losing_concurrencies,
    notes,
    preemption_cause,
)
from jetson_specdec.gate.rules import contract_outcome, more_pairs, outcome
from jetson_specdec.gate.shown import criteria, reasons, steps
from jetson_specdec.gate.validity import validity
from jetson_specdec.gate.verdict import CategoryVerdict, Lossless, Outcome, Verdict
from jetson_specdec.measurements.core import BenchReport
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["Gate", "Points", "Reports"]

Reports = BenchReport | Sequence[BenchReport]
"""One report, or one for each pair."""
Points = float | Sequence[float] | None
"""One figure, repeated ones, or None where it was not measured."""


@frozen
class Gate:
    """Judges whether speculation should stay on.

    Pure: the same reports and policy always give the same verdict, so that saved files can be judged again.

    Args:
        policy: the thresholds.
    """

    policy: Policy = field(default=DEFAULT_POLICY, kw_only=True)

    def judge(self, before: Reports | None, after: Reports | None) -> Verdict:
        """Judge reports without (`before`) and with speculation (`after`).

        Args:
            before: a report, or one for each pair in order; None where there is none.
            after: likewise, as many.

        Returns:
            The verdict: `invalid` where the arms cannot be compared, `incomplete` where one is missing.

        Raises:
            ReportError: the arms have different numbers of reports, or none at all was handed over.
        """
        befores, afters = _listed(before), _listed(after)
        if not befores and not afters:
            raise ReportError("JSE611")
        if befores and afters and len(befores) != len(afters):
            raise ReportError("JSE615", before=len(befores), after=len(afters))
        empty = BenchReport(skill=None)
        lone = not befores or not afters
        pairs: list[Pair] = list(zip(befores or [empty] * len(afters), afters or [empty] * len(befores), strict=True))
        context = context_of(pairs)
        told = [finding for pair in pairs for report in pair for finding in report.findings]
        held = [
            finding
            for finding in validity(pairs, self.policy)
            # The arm that nobody handed over is missing, it did not fail.
            if not (
                lone and finding.code == "JSD625" and finding.values["arm"] == ("before" if not befores else "after")
            )
        ]
        quantities = of_reports(pairs, self.policy)
        answers = lossless(pairs)
        if blocking(held):
            return self._invalid(quantities, context, held, told, pairs, answers)
        return self._decide(quantities, context, [*held, *told], pairs, answers)

    def judge_points(
        self,
        *,
        throughput_c1: tuple[Points, Points] | None = None,
        tpot_c1: tuple[Points, Points] | None = None,
        throughput_c8: tuple[Points, Points] | None = None,
        ttft_c1: tuple[Points, Points] | None = None,
        throughput: Mapping[int, tuple[Points, Points]] | None = None,
        tpot: Mapping[int, tuple[Points, Points]] | None = None,
        target: str | None = None,
        moe: bool | None = None,
        method: str | None = None,
        k: int | None = None,
        label: str | None = None,
        max_num_seqs: int | None = None,
        spread: float | None = None,
    ) -> Verdict:
        """Judge plain numbers, such as a table that somebody published.

        Args:
            throughput_c1: (before, after) in tok/s at concurrency 1. Each is a number or repeated ones: equally many
                are pairs in order, unequally many two independent series.
            tpot_c1: likewise, median time per output token in ms.
            throughput_c8: likewise, tok/s at concurrency 8.
            ttft_c1: likewise, median time to the first token in ms.
            throughput: concurrency → (before, after) in tok/s, for other concurrencies.
            tpot: concurrency → (before, after) in ms, for other concurrencies.
            target: model id.
            moe: whether it is a mixture of experts, where known otherwise.
            method: such as `eagle3`, `draft_model`, `ngram`.
            k: num_speculative_tokens.
            label: how the table calls the setting, such as `n-gram k=4`; method and k are read from it.
            max_num_seqs: capacity of the server.
            spread: how much a single figure is known to vary from run to run (standard deviation as a fraction); with
                it single figures get an interval too.

        Raises:
            ReportError: a figure, or the spread, is not a number above zero.
        """
        asked: list[tuple[QuantityName, int, tuple[Points, Points] | None]] = [
            ("throughput", 1, throughput_c1),
            ("tpot", 1, tpot_c1),
            ("throughput", 8, throughput_c8),
            ("ttft", 1, ttft_c1),
            *(("throughput", concurrency, pair) for concurrency, pair in (throughput or {}).items()),
            *(("tpot", concurrency, pair) for concurrency, pair in (tpot or {}).items()),
        ]
        known_spread = next(iter(_figures("spread", spread)), None)
        quantities = {}
        for name, concurrency, pair in asked:
            before, after = (_figures(f"{name}_c{concurrency}", points) for points in pair or (None, None))
            if before or after:
                quantity = of_points(name, concurrency, before, after, self.policy, spread=known_spread)
                quantities[quantity.key] = quantity
        context = Context(
            model=target,
            method=method or method_of(None, label),
            k=k if k is not None else k_of(None, label),
            moe=moe,
            max_num_seqs=max_num_seqs,
        )
        return self._decide(quantities, context, [], (), None)

    def _decide(
        self,
        quantities: Mapping[str, Quantity],
        context: Context,
        known: Sequence[Finding],
        pairs: Sequence[Pair],
        answers: Lossless | None,
    ) -> Verdict:
        policy = self.policy
        how: dict[str, bool] = {"eight_applies": context.eight_applies, "has_schedule": context.has_schedule}
        result = outcome(quantities, policy, **how)
        contract = contract_outcome(quantities, policy, eight_applies=context.eight_applies)
        more = more_pairs(quantities, policy, **how) if result == "inconclusive" else None
        why = list(reasons(result, contract, quantities, policy, more=more, eight_applies=context.eight_applies))
        lost = losing_concurrencies(quantities, policy)
        if lost and (8 not in lost or context.eight_applies):
            why.append(preemption_cause(pairs, 8 if 8 in lost else lost[0]))
        found = [*why, *known, *notes(quantities, context, policy, pairs, answers)]
        return Verdict(
            outcome=result,
            contract_outcome=contract,
            criteria=criteria(quantities, policy, eight_applies=context.eight_applies),
            reasons=tuple(why),
            findings=tuple(_distinct(found)),
            next_steps=steps(result, quantities, context, policy, found, more=more),
            categories=self._categories(pairs, quantities, how),
            lossless=answers,
            pairs=max((quantity.pairs for quantity in quantities.values()), default=0),
            more_pairs=more,
        )

    def _invalid(
        self,
        quantities: Mapping[str, Quantity],
        context: Context,
        held: Sequence[Finding],
        told: Sequence[Finding],
        pairs: Sequence[Pair],
        answers: Lossless | None,
    ) -> Verdict:
        """Name what spoils the comparison and report no gain."""
        why = [finding for finding in held if finding.severity is Severity.BLOCKING]
        shown = [
            evolve(criterion, change=None, interval=None, state="not_measured")
            for criterion in criteria(quantities, self.policy, eight_applies=context.eight_applies)
        ]
        noted = [note for note in notes(quantities, context, self.policy, pairs, answers) if note.code not in _GAINS]
        found = [*why, *held, *told, *noted]
        return Verdict(
            outcome="invalid",
            contract_outcome="invalid",
            criteria=tuple(shown),
            reasons=tuple(why),
            findings=tuple(_distinct(found)),
            next_steps=steps("invalid", quantities, context, self.policy, found, more=None),
            lossless=answers,
            pairs=len(pairs),
        )

    def _categories(
        self, pairs: Sequence[Pair], quantities: Mapping[str, Quantity], how: Mapping[str, Any]
    ) -> tuple[CategoryVerdict, ...]:
        names = sorted(
            {record.category for pair in pairs for report in pair for record in report.requests if record.category}
        )
        verdicts = []
        for name in names if len(names) > 1 else ():
            own = {
                key: quantity
                for key, quantity in of_reports(pairs, self.policy, category=name).items()
                if quantity.concurrency == 1
            }
            # Requests of all kinds ran side by side there, so concurrency 8 is that of the whole.
            shared = {key: quantity for key, quantity in quantities.items() if quantity.concurrency != 1}
            result: Outcome = outcome({**own, **shared}, self.policy, **how)
            verdicts.append(
                CategoryVerdict(
                    category=name,
                    outcome=result,
                    criteria=tuple(
                        criterion
                        for criterion in criteria(own, self.policy, eight_applies=how["eight_applies"])
                        if criterion.name.endswith("_c1")
                    ),
                    requests=sum(
                        record.category == name and record.concurrency == 1
                        for _, after in pairs
                        for record in after.requests
                    ),
                )
            )
        return tuple(verdicts)


_GAINS = frozenset({"JSD630", "JSD631", "JSD632", "JSD635", "JSD656", "JSD662", "JSD663"})
"""Notes that speak about gains, which an invalid comparison has none of."""


def _listed(reports: Reports | None) -> list[BenchReport]:
    if reports is None:
        return []
    return [reports] if isinstance(reports, BenchReport) else list(reports)


def _figures(name: str, points: Points) -> list[float]:
    """Return figures as a list; None is none."""
    if points is None:
        return []
    values: list[Any] = list(points) if isinstance(points, Sequence) else [points]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            raise ReportError("JSE616", name=name, value=value)
    return [float(value) for value in values]


def _distinct(findings: Sequence[Finding]) -> list[Finding]:
    seen: list[Finding] = []
    for finding in findings:
        if finding not in seen:
            seen.append(finding)
    return seen
