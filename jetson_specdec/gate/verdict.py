# SPDX-License-Identifier: Apache-2.0
"""What the gate answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import evolve, field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.values import frozen

__all__ = ["EXIT_CODES", "CategoryVerdict", "Criterion", "CriterionState", "Lossless", "Outcome", "Verdict"]

Outcome = Literal["enable", "enable_limited", "marginal", "disable", "inconclusive", "incomplete", "invalid"]
CriterionState = Literal["met", "failed", "undecided", "not_measured"]

SCHEMA_VERSION: Final = 1
EXIT_CODES: Final[Mapping[str, int]] = {
    "enable": 0,
    "disable": 10,
    "marginal": 11,
    "inconclusive": 12,
    "incomplete": 12,
    "invalid": 13,
    "enable_limited": 14,
}


@frozen(kw_only=True)
class Criterion:
    """One figure before and after, and what was asked of it.

    Attributes:
        name: `throughput_c1`, `tpot_c1`, `throughput_c8` (the contract), `throughput_c1_floor` (below it speculation
            is switched off), `ttft_c1` (a guard, reported only), `throughput_cN`, `tpot_cN` (other concurrencies).
        before, after: tok/s or ms; geometric means over pairs. None where missing.
        change: after ÷ before − 1; None where missing or where the arms cannot be compared.
        interval: one-sided lower and upper bound of the change; None with point values only.
        threshold: the change that is needed: at least for a throughput, at most for a time.
        state: `met`, `failed`, `undecided` (noise decides), `not_measured`.
        pairs: how many pairs it rests on.
        unit: `tok/s` or `ms`.
    """

    name: str
    before: float | None = None
    after: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    threshold: float | None = None
    state: CriterionState = "not_measured"
    pairs: int = 0
    unit: str = "tok/s"


@frozen(kw_only=True)
class CategoryVerdict:
    """The same rules on the requests of one kind of text.

    Attributes:
        category: such as `code`.
        outcome: as for the whole; concurrency 8 is that of the whole, which its requests shared.
        criteria: at concurrency 1.
        requests: how many of each arm, over all pairs.
    """

    category: str
    outcome: Outcome
    criteria: tuple[Criterion, ...] = ()
    requests: int = 0


@frozen(kw_only=True)
class Lossless:
    """How far the answers of both arms agree at temperature 0.

    Attributes:
        compared: answers of the same prompt in both arms.
        identical: of those, the same from first to last token.
        token_agreement: tokens before the first difference ÷ tokens of the shorter answer, over all; None where only
            digests of the texts are known.
    """

    compared: int
    identical: int
    token_agreement: float | None = None


@frozen(kw_only=True)
class Verdict:
    """Did speculation help?

    Attributes:
        outcome: what to do, with noise taken into account.
        contract_outcome: the literal rule on point values, without margin; never `enable_limited` nor `inconclusive`.
        criteria: the figures behind it.
        reasons: why, most important first; they are among `findings`.
        findings: all that was noticed.
        next_steps: what to do now.
        categories: by kind of text, where the reports have raw records with categories.
        lossless: agreement of the answers, where both arms kept them.
        pairs: how many pairs were judged.
        more_pairs: how many more would settle an `inconclusive`, if what was seen goes on; None elsewhere and where no
            reasonable number would.
    """

    outcome: Outcome
    contract_outcome: Outcome
    criteria: tuple[Criterion, ...] = ()
    reasons: tuple[Finding, ...] = ()
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()
    categories: tuple[CategoryVerdict, ...] = field(default=())
    lossless: Lossless | None = None
    pairs: int = 0
    more_pairs: int | None = None

    @property
    def exit_code(self) -> int:
        """What `jetson-specdec gate` returns."""
        return EXIT_CODES[self.outcome]

    def criterion(self, name: str) -> Criterion | None:
        """Return a criterion by its name, or None."""
        return next((criterion for criterion in self.criteria if criterion.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `gate --json`; `reasons` are texts, their codes stand in `findings`."""
        from jetson_specdec.measurements.serial import strict_converter

        data: dict[str, Any] = strict_converter().unstructure(self)
        data["reasons"] = [finding.message for finding in self.reasons]
        return {"schema_version": SCHEMA_VERSION, **data}

    @classmethod
    def from_json(cls, data: Any) -> Verdict:
        """Read a verdict back, strictly.

        Raises:
            ReportError: not a verdict, an unknown key, or a value of the wrong type.
        """
        from jetson_specdec.errors import ReportError
        from jetson_specdec.measurements.serial import parse_json, structure_strictly

        try:
            given = dict(parse_json(data) if isinstance(data, str) else data)
            version, texts = given.pop("schema_version"), list(given.pop("reasons"))
            verdict = structure_strictly({**given, "reasons": []}, cls)
        except (TypeError, ValueError, KeyError) as error:
            raise ReportError("JSE617", reason=str(error)) from error
        if version != SCHEMA_VERSION:
            raise ReportError("JSE608", version=version, known=SCHEMA_VERSION)
        said = {finding.message: finding for finding in reversed(verdict.findings)}
        if not all(text in said for text in texts):
            raise ReportError("JSE623")
        return evolve(verdict, reasons=tuple(said[text] for text in texts))

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of a verdict."""
        from jetson_specdec.measurements.schema import schema_of

        replaced: dict[str, dict[str, Any]] = {
            "schema_version": {"const": SCHEMA_VERSION},
            "reasons": {"type": "array", "items": {"type": "string"}},
        }
        return schema_of(Verdict, title="jetson-specdec verdict", replaced=replaced)
