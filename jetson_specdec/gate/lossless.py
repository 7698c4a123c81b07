# SPDX-License-Identifier: Apache-2.0
"""Did speculation change the answers? At temperature 0 it should not, up to rounding."""

from __future__ import annotations

from collections.abc import Sequence

from jetson_specdec.gate.evidence import Pair
from jetson_specdec.gate.verdict import Lossless
from jetson_specdec.measurements.core import BenchReport, RequestRecord

__all__ = ["lossless"]


def lossless(pairs: Sequence[Pair]) -> Lossless | None:
    """Compare answers to the same prompt at the same concurrency, over all pairs; None where that cannot be done.

    Both arms must have been asked at temperature 0 and have kept token ids, or at least digests of the texts.
    """
    compared = identical = agreeing = shorter = 0
    with_tokens = True
    for before, after in pairs:
        if before.config.temperature != 0 or after.config.temperature != 0:
            continue
        answers = _answers(after)
        for key, one in _answers(before).items():
            other = answers.get(key)
            if other is None:
                continue
            if one.token_ids is not None and other.token_ids is not None:
                same = _common(one.token_ids, other.token_ids)
                agreeing += same
                shorter += min(len(one.token_ids), len(other.token_ids))
                equal = one.token_ids == other.token_ids
            elif one.text_sha256 is not None and other.text_sha256 is not None:
                with_tokens = False
                equal = one.text_sha256 == other.text_sha256
            else:
                continue
            compared += 1
            identical += equal
    if not compared:
        return None
    agreement = agreeing / shorter if with_tokens and shorter else None
    return Lossless(compared=compared, identical=identical, token_agreement=agreement)


def _answers(report: BenchReport) -> dict[tuple[int, str], RequestRecord]:
    """Return the first answer to each prompt at each concurrency."""
    found: dict[tuple[int, str], RequestRecord] = {}
    for record in report.requests:
        if record.ok and record.prompt_id is not None:
            found.setdefault((record.concurrency, record.prompt_id), record)
    return found


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many leading tokens are the same."""
    for index, (one, other) in enumerate(zip(first, second)):  # noqa: B905  (lengths may differ)
        if one != other:
            return index
    return min(len(first), len(second))
