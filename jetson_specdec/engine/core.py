# SPDX-License-Identifier: Apache-2.0
"""Which vLLM this is: a release, or honestly a set of releases it could be."""

from __future__ import annotations

from typing import Literal

from jetson_specdec.values import frozen

__all__ = ["Distribution", "EngineRelease", "ReleaseSource"]

Distribution = Literal["upstream", "nvidia_ai_iot", "nvcr", "dustynv", "other", "unknown"]
ReleaseSource = Literal["image_tag", "image_table", "floating_tag", "version_command", "named", "flags", "unknown"]


@frozen(kw_only=True)
class EngineRelease:
    """The vLLM that a recipe runs.

    Attributes:
        version: such as `0.32.0`, or None where it cannot be known (a floating tag is not a version).
        candidates: releases it could be, oldest first: `(version,)` when known; for a floating tag the newest known
            release of its line; empty when nothing is known.
        distribution: who built it.
        source: where the answer comes from.
        image: the image it was read from.
        floating: whether the image reference can change under the user (`latest`, `nightly`, no tag) and has no digest.
        beyond_table: the version is newer than the newest release this package knows; it is treated as that one.
        note: source of a table entry, for the reader.
    """

    version: str | None = None
    candidates: tuple[str, ...] = ()
    distribution: Distribution = "unknown"
    source: ReleaseSource = "unknown"
    image: str | None = None
    floating: bool = False
    beyond_table: bool = False
    note: str | None = None
