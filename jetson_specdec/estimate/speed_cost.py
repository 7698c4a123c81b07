# SPDX-License-Identifier: Apache-2.0
"""What a round of speculation costs, in plain steps: a value for every k, as a range, with what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from attrs import field

from jetson_specdec.errors import OptionError
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["Basis", "CostTerm", "RoundCost", "Scenario"]

Basis = Literal["bytes", "baseline", "round", "given"]
"""`bytes`: sizes over the board's bandwidth; `baseline`: scaled to a measured step; `round`: two measured points;
`given`: the caller's own numbers."""


@frozen(kw_only=True)
class CostTerm:
    """One part of a round.

    Attributes:
        name: `target_step`, `draft_pass` (each), `verify_extra` (at the largest k), `round_overhead`.
        seconds: how long it takes, or None.
        bytes: what it reads, or None.
        source: what the number rests on.
        confidence: `high`, `medium` or `low`.
    """

    name: str
    seconds: Span | None = None
    bytes: Span | None = None
    source: str | None = None
    confidence: str = "low"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "name": self.name,
            "seconds": self.seconds.to_json() if self.seconds else None,
            "bytes": self.bytes.to_json() if self.bytes else None,
            "source": self.source,
            "confidence": self.confidence,
        }


@frozen
class Scenario:
    """One consistent choice of everything that is not known exactly.

    Attributes:
        plain: seconds of a step without speculation.
        rounds: seconds of a round with k = 1, 2, … drafted tokens.
    """

    plain: float
    rounds: tuple[float, ...]

    def relative(self, k: int) -> float:
        """Return the cost of a round in plain steps; 1 for k = 0."""
        return 1.0 if k == 0 else self.rounds[k - 1] / self.plain


@frozen(kw_only=True)
class RoundCost:
    """What rounds with k = 1 … `k_max` drafted tokens cost at one batch size.

    A speed-up compares two arms of one board, so what is uncertain in both (the bandwidth, say) partly cancels. Hence
    ranges are taken over whole scenarios and not from the ends of the parts.

    Attributes:
        batch: requests decoded together.
        k_max: largest k that is covered; 0 when nothing is known.
        middle: the scenario with every uncertain number in its middle; None when nothing is known.
        scenarios: the middle and the corners.
        basis: what it rests on.
        terms: parts, for showing.
        confidence: `high`, `medium`, `low`, or `unknown`.
        missing: words for what is not known: `target-size`, `draft-size`, `target-kv`, `bandwidth`, `constants`.
        draft_ratio: bytes a drafter pass reads ÷ bytes the target's pass reads, or None.
        draft_ratio_bf16: the same with the target's weights in 16 bits, or None.
        moe: whether the target is a mixture of experts.
        findings: what a reader should know about this estimate.
    """

    batch: int = 1
    k_max: int = 0
    middle: Scenario | None = None
    scenarios: tuple[Scenario, ...] = ()
    basis: tuple[Basis, ...] = ()
    terms: tuple[CostTerm, ...] = ()
    confidence: str = "unknown"
    missing: tuple[str, ...] = ()
    draft_ratio: float | None = None
    draft_ratio_bf16: float | None = None
    moe: bool = False
    findings: tuple[Finding, ...] = field(default=())

    @classmethod
    def given(cls, relative: Sequence[float | Span], *, plain_s: float = 1.0, batch: int = 1) -> RoundCost:
        """Take costs of a round in plain steps for k = 1, 2, … as they are known from elsewhere.

        Args:
            relative: a number or a range for each k. Ranges count as moving together: their lower ends are one
                scenario, their upper ends another.
            plain_s: seconds of a plain step.
            batch: requests decoded together.

        Raises:
            OptionError: there are none, or one is not above 0.
        """
        spans = [value if isinstance(value, Span) else Span.exact(float(value)) for value in relative]
        if not spans or any(span.low <= 0 for span in spans):
            raise OptionError("JSE432", name="relative", value=[span.low for span in spans], expected="costs above 0")
        middle = Scenario(plain_s, tuple(span.mid * plain_s for span in spans))
        low = Scenario(plain_s, tuple(span.low * plain_s for span in spans))
        high = Scenario(plain_s, tuple(span.high * plain_s for span in spans))
        return cls(
            batch=batch,
            k_max=len(spans),
            middle=middle,
            scenarios=(middle, low, high),
            basis=("given",),
            confidence="medium",
        )

    @property
    def state(self) -> Literal["known", "unknown"]:
        """Return whether there is an answer."""
        return "unknown" if self.middle is None else "known"

    @property
    def plain(self) -> Span | None:
        """Return the seconds of a step without speculation."""
        return Span.over(each.plain for each in self.scenarios) if self.scenarios else None

    def covered(self) -> Iterable[int]:
        """Return the k this value holds."""
        return range(1, self.k_max + 1)

    def seconds(self, k: int) -> Span | None:
        """Return the seconds of a round; None when unknown or k is not covered."""
        if self.middle is None or not 1 <= k <= self.k_max:
            return None
        return Span.over(each.rounds[k - 1] for each in self.scenarios)

    def relative(self, k: int) -> Span | None:
        """Return the cost of a round in plain steps; None when unknown or k is not covered."""
        if self.middle is None or not 0 <= k <= self.k_max:
            return None
        return Span.over(each.relative(k) for each in self.scenarios)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        plain = self.plain
        return {
            "state": self.state,
            "batch": self.batch,
            "basis": list(self.basis),
            "confidence": self.confidence,
            "missing": list(self.missing),
            "plain_step_s": plain.to_json() if plain else None,
            "draft_ratio": self.draft_ratio,
            "draft_ratio_bf16": self.draft_ratio_bf16,
            "rounds": [
                {"k": k, "seconds": seconds.to_json(), "relative": relative.to_json()}
                for k in self.covered()
                if (seconds := self.seconds(k)) is not None and (relative := self.relative(k)) is not None
            ],
            "terms": [term.to_json() for term in self.terms],
            "findings": [finding.to_json() for finding in self.findings],
        }
