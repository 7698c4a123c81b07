# SPDX-License-Identifier: Apache-2.0
"""Which board a text names: device-tree strings, part numbers, flash specifications. Pure text, no host."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jetson_specdec.device import tables
from jetson_specdec.values import frozen

__all__ = ["Identity", "from_compatible", "from_model_text", "from_tnspec", "read_string"]

_FOREIGN = (
    "raspberry",
    "rockchip",
    "radxa",
    "orange pi",
    "banana pi",
    "hardkernel",
    "odroid",
    "khadas",
    "pine64",
    "beagle",
    "qualcomm",
    "allwinner",
    "amlogic",
    "nxp",
    "freescale",
    "apple",
    "starfive",
    "dummy virt",
    "nintendo",
    "shield",
    "pixel",
    "dgx",
)


@frozen(kw_only=True)
class Identity:
    """What one text proves.

    Attributes:
        is_jetson: True or False where the text tells, else None.
        certain: False where `is_jetson` False only means that the text names nothing known, and where a chip alone
            speaks for a Jetson (other makers use it too).
        family, module, soc: keys of the board table, or None.
        older: name of a family before Xavier, or None.
    """

    is_jetson: bool | None = None
    certain: bool = True
    family: str | None = None
    module: str | None = None
    soc: str | None = None
    older: str | None = None


def read_string(data: bytes | None, *, limit: int = 200) -> str | None:
    """Return the first NUL-terminated text of device-tree bytes without control characters.

    None when none is left, or when it is no text (undecodable bytes).
    """
    if not data:
        return None
    text = data.split(b"\0", 1)[0].decode("utf-8", errors="replace")
    if "\N{REPLACEMENT CHARACTER}" in text:
        return None
    text = "".join(char for char in text if char.isprintable()).strip()
    return text[:limit] or None


def from_model_text(text: str) -> Identity:
    """Read a model name (device tree, `jtop`, an audit file). Third-party carriers keep the reference kit's text."""
    words = " " + re.sub(r"[^a-z0-9]+", " ", text.casefold()).strip() + " "
    nvidia = any(word in words for word in (" nvidia ", " jetson ", " agx "))
    if " drive " in words and " jetson " not in words and nvidia:
        return Identity(is_jetson=False)
    if " igx " in words:
        return Identity(is_jetson=True, family=None if " thor " in words else "igx_orin")
    found = re.search(r" t(5000|4000|3000|2000) ", words)
    if nvidia and (" thor " in words or found):
        return Identity(is_jetson=True, family="thor", module=f"thor-t{found[1]}" if found else None, soc="tegra264")
    if re.search(r" orin(nx|nano)? ", words):
        return _orin(words)
    if (" xavier " in words and nvidia) or " jetson xavier " in words:
        return Identity(is_jetson=True, family="xavier_nx" if " nx " in words else "agx_xavier", soc="tegra194")
    if words.strip() in ("jetson agx", "nvidia jetson agx"):
        return Identity(is_jetson=True, family="agx_xavier", soc="tegra194")
    if nvidia:
        for entry in tables.board_data()["older_families"]:
            if any(f" {word} " in words for word in entry["words"]) and " dgx " not in words:
                return Identity(is_jetson=True, older=entry["name"])
    if " jetson " in words:
        return Identity(is_jetson=True)
    return Identity(is_jetson=False, certain=any(name in words for name in _FOREIGN))


def _orin(words: str) -> Identity:
    if re.search(r" orin ?nano\b", words):
        family = "orin_nano"
    elif re.search(r" orin ?nx\b| nx orin ", words):
        family = "orin_nx"
    elif re.search(r" agx orin\b| orin agx ", words):
        family = "agx_orin"
    else:
        return Identity(is_jetson=True, soc="tegra234")
    module = None
    if family == "agx_orin" and " industrial " in words:
        module = "agx-orin-industrial"
    elif size := re.search(r" (\d{1,2}) ?gb? ", words):
        key = f"{family.replace('_', '-')}-{size[1]}gb"
        module = key if tables.module(key) else None
    return Identity(is_jetson=True, family=family, module=module, soc="tegra234")


def from_compatible(entries: Iterable[str]) -> Identity:
    """Read the strings of `/proc/device-tree/compatible`: carrier and module numbers, then the chip."""
    texts = [entry.casefold() for entry in entries if re.fullmatch(r"[\w.+-]+,[\w.,+-]+", entry, re.ASCII)]
    if not texts:
        return Identity()
    joined = " ".join(texts)
    soc = next((name for name in tables.board_data()["socs"] if f"nvidia,{name}" in joined), None)
    parts = re.findall(r"\bp(\d{4})-(\d{4})", joined)
    found = from_parts(parts)
    if soc is None and found.is_jetson is None:
        return Identity(is_jetson=False)
    family = found.family
    if family is None and soc is not None and tables.board_data()["socs"][soc] == "thor":
        family = "thor"
    return Identity(
        is_jetson=True,
        certain=found.is_jetson is not None,
        family=family,
        module=found.module,
        soc=soc or found.soc,
        older=found.older,
    )


def from_parts(parts: Iterable[tuple[str, str]]) -> Identity:
    """Read board numbers (`("3701", "0005")`), carriers among them. Numbers of several modules settle none of them."""
    numbers = list(parts)
    if any(board == "3740" for board, _ in numbers) or ("3701", "0002") in numbers:
        return Identity(is_jetson=True, family="igx_orin", soc="tegra234")
    named = {f"p{board}-{sku}" for board, sku in numbers}
    matches = [entry for entry in tables.modules().values() if named & set(entry.part_numbers)]
    if matches:
        families = {entry.family for entry in matches}
        return Identity(
            is_jetson=True,
            family=families.pop() if len(families) == 1 else None,
            module=matches[0].key if len(matches) == 1 else None,
            soc=matches[0].soc,
        )
    boards = {f"p{board}" for board, _ in numbers}
    for entry in tables.families().values():
        if boards & set(entry.parts):
            return Identity(is_jetson=True, family=entry.key)
    if "p3767" in boards:
        return Identity(is_jetson=True, soc="tegra234")
    for older in tables.board_data()["older_families"]:
        if boards & set(older["parts"]):
            return Identity(is_jetson=True, older=older["name"])
    return Identity()


def from_tnspec(text: str) -> Identity:
    """Read a TNSPEC or COMPATIBLE_SPEC value (`3767-300-0005-S.1-1-1-jetson-orin-nano-devkit-super-`).

    The first number is the board; the module is the four-digit number among the next two. The flash target's name is
    read where the numbers are missing.
    """
    lowered = text.casefold().strip()
    found = re.match(r"(\d{4})-([^-]*)-([^-]*)-?", lowered)
    parts: list[tuple[str, str]] = []
    if found:
        sku = next((item for item in (found[2], found[3]) if re.fullmatch(r"\d{4}", item)), "")
        parts.append((found[1], sku))
    identity = from_parts(parts)
    target = re.sub(r"^[\d.]*", "", lowered)
    for entry in tables.modules().values():
        if identity.module is None and any(re.search(rf"{board}(?!-[a-z])", target) for board in entry.tnspec_boards):
            return Identity(is_jetson=True, family=entry.family, module=entry.key, soc=entry.soc)
    if "igx" in target or "holoscan" in target:
        return Identity(is_jetson=True, family="igx_orin", soc="tegra234")
    if identity.is_jetson is None and re.search(r"jetson|orin|thor|xavier", target):
        named = from_model_text(re.sub(r"^[^a-z]*", "", target))
        return named if named.is_jetson else Identity()
    return identity
