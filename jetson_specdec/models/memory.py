# SPDX-License-Identifier: Apache-2.0
"""How many bytes a catalogued model's weights take in a precision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jetson_specdec.models.core import TargetRecord

__all__ = ["weights_of"]

# Precisions that take the same bytes as one the catalogue has a size for: same bits, scales of the same granularity.
_SAME_SIZE: Final[Mapping[str, str]] = {"int8": "fp8", "fp16": "bf16"}


def weights_of(target: TargetRecord, precision: str | None) -> int | None:
    """Return the bytes of a target's weights in a precision, or None where the catalogue has no number for it.

    Args:
        target: the base model's record.
        precision: of the served copy; None stands for the base repository's own.
    """
    wanted = precision or target.native_precision or "bf16"
    return target.weight_bytes.get(_SAME_SIZE.get(wanted, wanted))
