# SPDX-License-Identifier: Apache-2.0
"""How many tokens a round yields: from measured, published or assumed acceptance, never from an invented one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.measurements.core import Acceptance
    from jetson_specdec.models.core import AcceptanceRecord

__all__ = ["AcceptanceCurve", "AcceptanceKind", "expected_tokens", "iid_rate", "published_curves"]

AcceptanceKind = Literal["measured", "published", "assumed"]
"""`measured`: on this server; `published`: on other texts, mostly another machine; `assumed`: a caller's own figure."""


def expected_tokens(acceptance: float | Sequence[float], k: int) -> float:
    """Return the expected tokens of one round with k drafted tokens, the target's own included.

    Args:
        acceptance: one rate α that every drafted token is accepted with if those before it were (then the answer is
            (1 − α^(k+1)) ÷ (1 − α), Leviathan et al. 2023), or the unconditional rate of each position (then it is
            1 + their sum up to k).
        k: drafted tokens, from 0.

    Raises:
        OptionError: a rate outside 0 to 1 (`JSE431`), or fewer positions than k (`JSE430`).
    """
    if k < 0:
        raise OptionError("JSE432", name="k", value=k, expected="a whole number from 0")
    if isinstance(acceptance, (int, float)):
        rate = _rate(acceptance)
        return float(k + 1) if rate == 1 else (1 - rate ** (k + 1)) / (1 - rate)
    rates = [_rate(value) for value in acceptance]
    if len(rates) < k:
        raise OptionError("JSE430", k=k, positions=len(rates))
    return 1 + sum(rates[:k])


def _rate(value: float) -> float:
    if isinstance(value, bool) or not 0 <= value <= 1:
        raise OptionError("JSE431", value=value)
    return float(value)


def iid_rate(mean_length: float, k: int) -> float:
    """Return the rate α with which `expected_tokens(α, k)` is a mean acceptance length.

    Raises:
        OptionError: a length that k drafted tokens cannot have (`JSE432`).
    """
    if k < 1 or not 1 <= mean_length <= k + 1:
        raise OptionError("JSE432", name="mean_length", value=mean_length, expected=f"1 to {k + 1}")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_tokens(middle, k) < mean_length:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@frozen(kw_only=True)
class AcceptanceCurve:
    """What is known of one drafter's acceptance on one kind of text.

    Attributes:
        kind: whose figure it is.
        per_position: unconditional acceptance of each position, or None.
        mean_length: mean acceptance length at `k`, the target's own token counted, or None.
        k: drafted tokens it was measured with; the number of positions where those are known.
        rate: the assumed i.i.d. rate, or None.
        label: data set or text, as published.
        source: where it was published or measured.
    """

    kind: AcceptanceKind
    per_position: tuple[float, ...] | None = None
    mean_length: float | None = None
    k: int | None = None
    rate: float | None = None
    label: str | None = None
    source: str | None = None

    @classmethod
    def of_positions(
        cls, rates: Sequence[float], *, kind: AcceptanceKind, label: str | None = None, source: str | None = None
    ) -> AcceptanceCurve:
        """Take the unconditional rates of the positions 1, 2, ….

        Raises:
            OptionError: there are none, or a rate is not within 0 to 1.
        """
        found = tuple(_rate(rate) for rate in rates)
        if not found:
            raise OptionError("JSE430", k=1, positions=0)
        return cls(
            kind=kind, per_position=found, mean_length=1 + sum(found), k=len(found), label=label, source=source
        )  # fmt: skip

    @classmethod
    def of_length(
        cls,
        mean_length: float,
        k: int,
        *,
        kind: AcceptanceKind,
        label: str | None = None,
        source: str | None = None,
    ) -> AcceptanceCurve:
        """Take a mean acceptance length at one k; what smaller k yield is then a range.

        Raises:
            OptionError: a length that k drafted tokens cannot have.
        """
        iid_rate(mean_length, k)
        return cls(kind=kind, mean_length=mean_length, k=k, label=label, source=source)

    @classmethod
    def measured(cls, acceptance: Acceptance | None, k: int) -> AcceptanceCurve | None:
        """Take what a run with k drafted tokens measured; None when it holds no usable figure.

        Positions past k are left out: with a batch schedule they exist and say nothing.
        """
        if acceptance is None or acceptance.state not in (None, "active", "reset"):
            return None
        positions = acceptance.per_position
        if positions is not None and len(positions) >= k >= 1:
            return cls.of_positions(positions[:k], kind="measured", source=acceptance.source)
        length = acceptance.mean_length
        if length is None and acceptance.rate is not None:
            length = 1 + acceptance.rate * k
        if length is None or not 1 <= length <= k + 1:
            return None
        return cls.of_length(length, k, kind="measured", source=acceptance.source)

    def tokens(self, k: int) -> Span | None:
        """Return the tokens of a round with k drafted tokens; None when nothing is known.

        Exact at the positions that are known. From a mean length alone, smaller k lie between the i.i.d. curve through
        it (right when the chance of the next token does not fall along the chain; real heads start better) and all of
        its tokens. Past what was measured: between no more tokens at all and the last chance continued.
        """
        if k < 0:
            return None
        if self.rate is not None:
            return Span.exact(expected_tokens(self.rate, k))
        if self.per_position is not None:
            return self._from_positions(self.per_position, k)
        if self.mean_length is None or self.k is None:
            return None
        alpha = iid_rate(self.mean_length, self.k)
        if k == self.k:
            return Span.exact(self.mean_length)
        if k < self.k:
            return Span(expected_tokens(alpha, k), min(self.mean_length, k + 1))
        return Span(self.mean_length, self.mean_length + expected_tokens(alpha, k) - expected_tokens(alpha, self.k))

    @staticmethod
    def _from_positions(rates: tuple[float, ...], k: int) -> Span:
        if k <= len(rates):
            return Span.exact(expected_tokens(rates, k))
        known = 1 + sum(rates)
        before = rates[-2] if len(rates) > 1 else 1.0
        chance = min(rates[-1] / before, 1.0) if before > 0 else 0.0
        more, last = 0.0, rates[-1]
        for _ in range(k - len(rates)):
            last *= chance
            more += last
        return Span(known, known + more)

    def rate_at(self, k: int) -> Span | None:
        """Return the acceptance rate (accepted ÷ drafted tokens) with k drafted tokens."""
        tokens = self.tokens(k)
        return None if tokens is None or k < 1 else Span((tokens.low - 1) / k, (tokens.high - 1) / k)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "label": self.label,
            "k": self.k,
            "mean_length": self.mean_length,
            "per_position": None if self.per_position is None else list(self.per_position),
            "rate": self.rate,
            "source": self.source,
        }


def published_curves(records: Iterable[AcceptanceRecord]) -> tuple[AcceptanceCurve, ...]:
    """Return one curve a data set from published records, the best known ones first.

    Mean lengths of one data set at k = 1, 2, … give its positions (each is the difference to the one before). A record
    that does not say its k is left out: its length cannot be placed on a curve.
    """
    curves: list[AcceptanceCurve] = []
    lengths: dict[tuple[str, str | None], dict[int, float]] = {}
    for record in records:
        if record.per_position:
            curves.append(
                AcceptanceCurve.of_positions(
                    record.per_position, kind="published", label=record.benchmark, source=record.source
                )
            )
        elif record.mean_length is not None and record.num_speculative_tokens is not None:
            known = lengths.setdefault((record.benchmark, record.source), {})
            known[record.num_speculative_tokens] = record.mean_length
    for (label, source), known in lengths.items():
        curves += _from_lengths(known, label, source)
    return tuple(sorted(curves, key=lambda curve: curve.per_position is None))


def _from_lengths(known: dict[int, float], label: str, source: str | None) -> list[AcceptanceCurve]:
    whole = max(known)
    chain = [1.0, *(known.get(k, 0.0) for k in range(1, whole + 1))]
    rates = [round(chain[k] - chain[k - 1], 6) for k in range(1, whole + 1)]
    if all(k in known for k in range(1, whole + 1)) and all(0 <= rate <= 1 for rate in rates):
        return [AcceptanceCurve.of_positions(rates, kind="published", label=label, source=source)]
    return [
        AcceptanceCurve.of_length(length, k, kind="published", label=label, source=source)
        for k, length in sorted(known.items())
        if 1 <= length <= k + 1
    ]
