# SPDX-License-Identifier: Apache-2.0
"""Would vLLM's start check pass: free memory ≥ requested, with what each release counts as free.

Source: vLLM `v1/worker/utils.py` request_memory and `utils/mem_utils.py`, read in 0.10.2, 0.12.0, 0.20.0 and 0.32.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.version import Version

__all__ = ["AVAILABLE_SINCE", "counted_as_free", "parse_version", "passes_start_check"]

AVAILABLE_SINCE = (0, 12)
"""First release for which MemAvailable is free; before, page cache counted as used."""


def parse_version(text: str | None) -> Version | None:
    """Return a `packaging` version, or None where the text is none."""
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def counted_as_free(
    version: Version | None, available: int | None, mem_free: int | None
) -> tuple[int | None, str | None]:
    """Return what a release counts as free on a Jetson, and its name.

    From 0.12 on MemAvailable (0.12 to 0.19 for a fixed list of GPUs that holds Orin and Thor); before, CUDA's own
    figure, which counts page cache as used and is close to MemFree.
    """
    if version is None:
        return available, None
    if version.release[:2] >= AVAILABLE_SINCE:
        return available, "MemAvailable"
    return mem_free, "MemFree"


def passes_start_check(
    version: Version | None, requested: int | None, *, available: int | None, mem_free: int | None = None
) -> bool | None:
    """Say whether the start check passes; None when that cannot be known.

    Args:
        version: of vLLM, as `parse_version` returns it.
        requested: ⌈total · utilisation⌉.
        available: MemAvailable.
        mem_free: MemFree.
    """
    if requested is None:
        return None
    if available is not None and available < requested:
        return False  # no release counts more than MemAvailable as free
    free, counts = counted_as_free(version, available, mem_free)
    if free is None or counts is None:
        return None
    if counts == "MemFree":
        # CUDA's figure may lie above MemFree: only "enough" is certain.
        return True if free >= requested else None
    return free >= requested
