# SPDX-License-Identifier: Apache-2.0
"""A range of a number: what is known of it is that it lies between two ends."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field

from jetson_specdec.errors import OptionError
from jetson_specdec.values import frozen

__all__ = ["Span"]


@frozen
class Span:
    """A closed range; a known number has equal ends.

    Attributes:
        low, high: the ends, finite or not, `low <= high`.

    Raises:
        OptionError: the ends are not numbers in order (`JSE432`).
    """

    low: float
    high: float = field()

    @high.validator
    def _in_order(self, _: object, high: float) -> None:
        if not self.low <= high:
            raise OptionError("JSE432", name="range", value=[self.low, high], expected="two numbers in ascending order")

    @classmethod
    def exact(cls, value: float) -> Span:
        """Return the range of one known number."""
        return cls(value, value)

    @classmethod
    def over(cls, values: Iterable[float]) -> Span:
        """Return the smallest range that holds all values.

        Raises:
            ValueError: there are none.
        """
        found = tuple(values)
        return cls(min(found), max(found))

    @property
    def mid(self) -> float:
        """Return the middle."""
        return (self.low + self.high) / 2

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def scaled(self, factor: float) -> Span:
        """Return the range times a number that is not negative."""
        return Span(self.low * factor, self.high * factor)

    def ends(self) -> tuple[float, ...]:
        """Return both ends, or the one number."""
        return (self.low,) if self.low == self.high else (self.low, self.high)

    def to_json(self) -> dict[str, float]:
        """Return `{low, high}`, rounded to six significant digits."""
        return {"low": float(f"{self.low:.6g}"), "high": float(f"{self.high:.6g}")}
