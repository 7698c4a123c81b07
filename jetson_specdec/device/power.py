# SPDX-License-Identifier: Apache-2.0
"""In which power mode this board runs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jetson_specdec.device.core import Confidence, Evidence, Observation
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host

__all__ = ["PowerDetector", "is_top_mode", "parse_nvpmodel", "parse_nvpmodel_conf"]

COMMAND = ("nvpmodel", "-q")
STATUS = "/var/lib/nvpmodel/status"
CONF = "/etc/nvpmodel.conf"
_LIMIT = 256 * 1024


def is_top_mode(name: str) -> bool:
    """Say whether a mode's name is that of a top mode: `MAXN` or `MAXN_…`."""
    return name == "MAXN" or name.startswith("MAXN_")


def parse_nvpmodel(text: str) -> str | None:
    """Return the mode's name from `nvpmodel -q`, or None where it prints none."""
    found = re.search(r"^[ \t]*NV Power Mode:[ \t]*(\S[^\r\n]*)", text, re.MULTILINE)
    return found[1].strip()[:64] if found else None


def parse_nvpmodel_conf(text: str) -> dict[int, str]:
    """Return the modes of `/etc/nvpmodel.conf`, id → name."""
    pairs = re.findall(r"^[ \t]*<[ \t]*POWER_MODEL[ \t]+ID=(\d{1,3})[ \t]+NAME=([^\s>]+)", text, re.MULTILINE)
    return {int(number): name for number, name in pairs}


def _top(modes: Mapping[int, str]) -> tuple[int, str] | None:
    """The id of a top mode differs by board (0 on AGX, 2 on Orin Nano Super): read, never assumed."""
    tops = [(number, name) for number, name in modes.items() if is_top_mode(name)]
    return max(tops, key=lambda item: item[1].startswith("MAXN_"), default=None)


class PowerDetector:
    """Asks `nvpmodel -q`; where that is not there, reads the mode's id and looks its name up in the configuration."""

    name = "power"
    priority = 46

    def detect(self, host: Host) -> Evidence:
        """Return the mode and whether it is a top mode."""
        done = host.run(COMMAND, timeout=5.0)
        name = parse_nvpmodel(done.stdout) if done is not None else None
        source = " ".join(COMMAND)
        modes = parse_nvpmodel_conf(host.read_text(CONF, limit=_LIMIT) or "")
        confidence: Confidence = "high"
        if name is None:
            status = re.search(r"\bpmode:0*(\d{1,4})\b", host.read_text(STATUS, limit=4096) or "")
            name = modes.get(int(status[1])) if status else None
            source, confidence = f"{STATUS}, {CONF}", "medium"
        if name is None:
            return Evidence()
        is_max = is_top_mode(name)
        values: dict[str, object] = {"power_mode": name, "power_mode_is_max": is_max}
        found = (
            Observation(name="is_jetson", value=True, source=source, confidence="medium"),
            *(Observation(name=key, value=told, source=source, confidence=confidence) for key, told in values.items()),
        )
        if is_max:
            return Evidence(observations=found)
        top = _top(modes)
        finding = (
            Finding.of("JSD140", mode=name, top_mode=top[1], command=f"sudo nvpmodel -m {top[0]}")
            if top
            else Finding.of("JSD141", mode=name, conf=CONF)
        )
        return Evidence(observations=found, findings=(finding,))
