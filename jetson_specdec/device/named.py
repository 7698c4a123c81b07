# SPDX-License-Identifier: Apache-2.0
"""A board that is not at hand, given by name (`--device thor-t5000 --l4t 38.4.0`)."""

from __future__ import annotations

import re

from jetson_specdec.device import tables
from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.l4t import normalize_l4t
from jetson_specdec.errors import DeviceError
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host

__all__ = ["NamedDetector", "known_names", "resolve_name"]

SOURCE = "named"
_NOISE = r"\b(nvidia|jetson|modules?|series|board|super)\b"
_ALIASES = {
    "agx thor developer kit": "thor-t5000",
    "agx thor devkit": "thor-t5000",
    "thor developer kit": "thor-t5000",
    "thor devkit": "thor-t5000",
    "orin nano developer kit": "orin-nano-8gb",
    "orin nano devkit": "orin-nano-8gb",
    "agx thor": "thor",
    "agx orin developer kit": "agx_orin",
    "agx orin devkit": "agx_orin",
    "orin agx": "agx_orin",
    "igx": "igx-orin",
    "igx orin developer kit": "igx-orin",
    "xavier agx": "agx_xavier",
}
"""How people write what the table calls otherwise. Only kits that come with one module name a module."""


def known_names() -> tuple[str, ...]:
    """Return the names `resolve_name` takes as they are: modules, then families."""
    return tuple(dict.fromkeys([*tables.modules(), *(key.replace("_", "-") for key in tables.families())]))


def resolve_name(name: str) -> tuple[str | None, str]:
    """Return `(module, family)` for a name; the module is None where the name fits several of a family.

    Case, `_`, spaces, the words NVIDIA, Jetson and Super, and NVIDIA's own order (`orin-agx-64gb`) do not matter.

    Raises:
        DeviceError: the name fits nothing.
    """
    words = re.sub(_NOISE, " ", re.sub(r"[^a-z0-9]+", " ", name.casefold()))
    text = re.sub(r"(\d) gb\b", r"\1gb", " ".join(words.split()))
    text = re.sub(r"^orin agx\b", "agx orin", text)
    text = re.sub(r"^(?:agx )?(?:thor )?(?=t\d000$)", "thor ", text)
    text = re.sub(r"^(.*) (developer kit|devkit)(.*\d+gb.*)$|^(.*\d+gb) (developer kit|devkit)$", _without_kit, text)
    text = re.sub(r"^(agx orin|orin nx|orin nano) (\d+)$", r"\1 \2gb", text)
    key = _ALIASES.get(text, text.replace(" ", "-"))
    entry = tables.module(key)
    if entry is not None:
        # An IGX kit is its own family, and no module of a Jetson.
        return entry.key, entry.family
    family = key.replace("-", "_")
    if tables.family(family):
        return None, family
    import difflib

    known = known_names()
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    if near:
        raise DeviceError("JSE112", name=name, known=list(known), nearest=near[0])
    raise DeviceError("JSE117", name=name, known=list(known))


def _without_kit(found: re.Match[str]) -> str:
    return f"{found[1]}{found[3]}" if found[1] else str(found[4])


class NamedDetector:
    """Says what a name says; the host is not looked at, and no program is run.

    MemTotal is the smallest one seen on boards with that module (a fact of the table, not of a board at hand); it stays
    unknown where the table has none.

    Args:
        module: a module or family, as `resolve_name` takes it, or None.
        l4t: an L4T release, as `normalize_l4t` takes it, or None.

    Raises:
        DeviceError: the name or the release is none.
    """

    name = "named"
    priority = 100

    def __init__(self, module: str | None, l4t: str | None = None) -> None:
        self._resolved = resolve_name(module) if module is not None else None
        self._l4t = normalize_l4t(l4t) if l4t is not None else None

    def detect(self, host: Host) -> Evidence:
        """Return module, family, release and the memory seen on such boards."""
        found: list[Observation] = []
        findings: list[Finding] = []
        if self._resolved is not None:
            module, family = self._resolved
            found.append(Observation(name="is_jetson", value=True, source=SOURCE))
            found.append(Observation(name="family", value=family, source=SOURCE))
            entry = tables.module(module)
            if entry is not None:
                found.append(Observation(name="module", value=entry.key, source=SOURCE))
                if entry.announced_only:
                    findings.append(Finding.of("JSD115", module=entry.key))
                if entry.mem_total_kib_seen:
                    total = entry.mem_total_kib_seen[0] * 1024
                    source = "device table (MemTotal seen on such boards)"
                    found.append(
                        Observation(name="memory_total_bytes", value=total, source=source, confidence="medium")
                    )
                    findings.append(Finding.of("JSD122", module=entry.key, total=total))
        if self._l4t is not None:
            found.append(Observation(name="l4t", value=self._l4t, source=SOURCE))
        return Evidence(observations=tuple(found), findings=tuple(findings))
