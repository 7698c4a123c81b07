# SPDX-License-Identifier: Apache-2.0
"""The number spellings vLLM accepts on its command line."""

from __future__ import annotations

import json
import math
from typing import Any, Final

__all__ = ["guess_value", "human_int", "parse_float"]

_FACTORS: Final = {
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1024**power for power, letter in enumerate("KMGT", 1)},
}


def human_int(text: str, *, auto: bool = False) -> int | None:
    """Read `8192`, `8k` (8000), `8K` (8192), `25.6k` (25600); None where vLLM would refuse the text.

    Args:
        text: the word the engine receives.
        auto: whether `auto` and `-1` are allowed and mean -1 (`--max-model-len`).

    Source: vLLM 0.32 `utils/argparse_utils.py`: small letters are powers of 1000 and may have decimals, capital
    letters are powers of 1024 and may not.
    """
    text = text.strip()
    if auto and (text == "-1" or text.lower() == "auto"):
        return -1
    suffix, number = text[-1:], text[:-1]
    if suffix not in _FACTORS:
        try:
            return int(text)
        except ValueError:
            return None
    if suffix.isupper():
        return int(number) * _FACTORS[suffix] if number.isdecimal() else None
    whole, dot, part = number.partition(".")
    if not whole.isdecimal() or (dot and not part.isdecimal()):
        return None
    return int(float(number) * _FACTORS[suffix])


def parse_float(text: str) -> float | None:
    """Read a number as Python's `float` does; None for what is no finite number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def guess_value(text: str) -> Any:
    """Give a dotted value (`--speculative-config.KEY VALUE`) the type vLLM guesses: JSON, then `4k`, then text.

    Source: vLLM 0.32 `utils/argparse_utils.py`; a revision such as `123456` becomes a number here, as it does there.
    """
    try:
        return json.loads(text)
    except ValueError:
        number = human_int(text)
        return text if number is None else number
