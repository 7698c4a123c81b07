# SPDX-License-Identifier: Apache-2.0
"""What a container image reference says: its parts, who built it, for which board and CUDA.

A reference is `[registry[:port]/]path[:tag][@digest]`. Mirrors put their own name in front
(`m.daocloud.io/docker.io/…`), so a repository is recognised by the end of its path.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import Distribution
from jetson_specdec.values import frozen

__all__ = ["ImageRef", "parse_image"]


@frozen(kw_only=True)
class ImageRef:
    """The parts of an image reference.

    Attributes:
        name: registry and path, lower case.
        tag: the tag as written, or None.
        digest: `sha256:…`, or None.
        distribution: who built it; `other` for any image that is not in the table.
        board: the Jetson it is built for where the tag says so.
        l4t_major: the L4T generation in the tag (`r36.4` → 36), or None.
        cuda: the CUDA in the tag (`cu126` → `12.6`, `cu130` → `13.0`), or None.
    """

    name: str
    tag: str | None = None
    digest: str | None = None
    distribution: Distribution = "other"
    board: Literal["thor", "orin"] | None = None
    l4t_major: int | None = None
    cuda: str | None = None

    @property
    def basename(self) -> str:
        """The last part of the path."""
        return self.name.rpartition("/")[2]


def _distribution(name: str) -> Distribution:
    for entry in tables.load("images")["repositories"]:
        if any(name == match or name.endswith("/" + match) for match in entry["match"]):
            found: Distribution = entry["distribution"]
            return found
    return "other"


def _parts(tag: str) -> list[str]:
    return tag.lower().replace("_", "-").split("-")


def _number(text: str) -> str | None:
    """Return text when it is plain ASCII digits."""
    return text if text.isascii() and text.isdigit() else None


def _l4t_major(tag: str) -> int | None:
    for part in _parts(tag):
        if part[:1] == "r" and (major := _number(part[1:].partition(".")[0])) and len(major) == 2:
            return int(major)
    return None


def _cuda(tag: str) -> str | None:
    for part in _parts(tag):
        digits = part[2:].replace(".", "") if part.startswith("cu") else ""
        if _number(digits) and len(digits) in (2, 3):
            return f"{digits[:2]}.{digits[2:]}" if len(digits) == 3 else digits
    return None


def _board(tag: str) -> Literal["thor", "orin"] | None:
    if "thor" in tag.lower():
        return "thor"
    return "orin" if "orin" in tag.lower() or _l4t_major(tag) in (35, 36) else None


@lru_cache(maxsize=64)
def parse_image(image: str) -> ImageRef:
    """Take an image reference apart; never fails, whatever the text."""
    text, _, digest = image.strip().partition("@")
    head, slash, last = text.rpartition("/")
    last, colon, tag = last.partition(":")
    name = (head + slash + last).lower()
    tag_text = tag if colon and tag else None
    if digest and not tag_text:
        known = tables.load("images")["digests"].get(digest)
        tag_text = known["tag"] if known and known["distribution"] == _distribution(name) else None
    return ImageRef(
        name=name,
        tag=tag_text,
        digest=digest or None,
        distribution=_distribution(name),
        board=_board(tag_text) if tag_text else None,
        l4t_major=_l4t_major(tag_text) if tag_text else None,
        cuda=_cuda(tag_text) if tag_text else None,
    )
