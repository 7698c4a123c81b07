# SPDX-License-Identifier: Apache-2.0
"""How L4T releases are written: the release file, the kernel's name, what people type."""

from __future__ import annotations

import re

from jetson_specdec.errors import DeviceError
from jetson_specdec.values import frozen

__all__ = ["ReleaseFile", "from_kernel", "normalize_l4t", "parse_release_file"]

_FIRST_L4T = 19
"""Majors below are JetPack numbers (1 to 7) or nothing; the oldest public L4T for a Jetson is 19."""
_STUB_WORDS = ("generated", "placeholder", "dummy", "stub", "fake", "synthetic", "created by", "docker build")


@frozen(kw_only=True)
class ReleaseFile:
    """What `/etc/nv_tegra_release` says.

    Attributes:
        l4t: such as `36.4.7`.
        stub: whether an image build wrote the file: then it says what the image was made for, not what the board runs.
    """

    l4t: str
    stub: bool


def _padded(major: str, rest: str) -> str:
    parts = [major, *rest.split(".")]
    return ".".join((*(str(int(part)) for part in parts), "0", "0")[:3])


def normalize_l4t(text: str) -> str:
    """Return a release people typed (`36.4.7`, `R36.4.7`, `r38.4`, `L4T 36.4`) with three numbers.

    Raises:
        DeviceError: the text is no L4T release (a JetPack number, say).
    """
    found = re.fullmatch(r"\s*(?:l4t[\s_-]*)?r?\s*(\d{1,2})\.(\d{1,2}(?:\.\d{1,2})?)\s*", text, re.IGNORECASE)
    if found is None or int(found[1]) < _FIRST_L4T:
        raise DeviceError("JSE113", text=text)
    return _padded(found[1], found[2])


def parse_release_file(text: str) -> ReleaseFile | None:
    """Read `/etc/nv_tegra_release`; None where no line names a release.

    The date is never read: R39 prints a 12-hour clock. A file that a board's own package wrote carries a build number
    (GCID) and more; one that an image build wrote to satisfy an installer has the two version fields only, a GCID of
    zeros, or says that it is generated.
    """
    found = re.search(
        r"^[ \t]*(?:#[ \t]*)?R[ \t]*(\d{1,2})[ \t]*\(release\)[ \t]*,"
        r"[ \t]*REVISION:[ \t]*(\d{1,2}(?:\.\d{1,2})?)\b([^\r\n]*)",
        text,
        re.MULTILINE | re.IGNORECASE,
    )
    if found is None:
        return None
    rest = found[3]
    gcid = re.search(r"GCID:[ \t]*(\d+)", rest, re.IGNORECASE)
    number = gcid[1] if gcid else ""
    real = len(number) >= 6 and len(set(number)) > 1 and "EABI" in rest.upper()
    real = real and not re.search(r"BOARD:[ \t]*(?:ci|docker|container|none|unknown)\b", rest, re.IGNORECASE)
    lowered = text.casefold()
    return ReleaseFile(l4t=_padded(found[1], found[2]), stub=not real or any(word in lowered for word in _STUB_WORDS))


def from_kernel(text: str) -> str | None:
    """Return the release in a kernel's name (`6.8.12-l4t-r38.2.1-…`, as Yocto images name theirs), or None."""
    found = re.search(r"-l4t-r(\d{1,2})\.(\d{1,2}(?:\.\d{1,2})?)(?![\d.]*\d)", text)
    return _padded(found[1], found[2]) if found and int(found[1]) >= _FIRST_L4T else None
