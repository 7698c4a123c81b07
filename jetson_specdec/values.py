# SPDX-License-Identifier: Apache-2.0
"""`frozen`: attrs' own, for the values of this package, at half the cost of a class.

attrs writes and compiles `__init__`, `__repr__`, `__eq__` and `__hash__` for every class. With more than a hundred
classes behind a plan, that compiling was the largest part of a cold start. Only `__init__` is worth it: the others are
the same for every value, and are shared here. Type checkers see `attrs.frozen` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attrs import frozen
else:
    import attrs

    def frozen(cls: type | None = None, *, eq: bool = True, repr: bool = True, **options: Any) -> Any:
        """Return `attrs.frozen` of a class, with what it compares and shows by shared rather than compiled."""

        def build(plain: type) -> type:
            own = vars(plain)
            if repr and "__repr__" not in own:
                plain.__repr__ = _shown
            if eq and "__eq__" not in own:
                plain.__eq__ = _equal
                if "__hash__" not in own:
                    plain.__hash__ = _hash
            return attrs.frozen(plain, eq=False, repr=False, **options)

        return build if cls is None else build(cls)


__all__ = ["frozen"]


@cache
def _compared(cls: Any) -> Callable[[Any], Any]:
    """Return what gets the fields by which values of a class are equal."""
    names = [field.name for field in cls.__attrs_attrs__ if field.eq]
    return attrgetter(*names) if names else type


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    compared = _compared(self.__class__)
    return compared(self) == compared(other)


def _hash(self: Any) -> int:
    return hash((self.__class__, _compared(self.__class__)(self)))


@recursive_repr("...")
def _shown(self: Any) -> str:
    parts = []
    for field in self.__attrs_attrs__:
        if field.repr:
            show = repr if field.repr is True else field.repr
            parts.append(f"{field.name}={show(getattr(self, field.name))}")
    return f"{self.__class__.__qualname__.rpartition('>.')[2]}({', '.join(parts)})"
