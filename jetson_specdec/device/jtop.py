# SPDX-License-Identifier: Apache-2.0
"""What the jetson-stats service knows about this board. The only place that imports `jtop`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jetson_specdec.device import identity
from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.device_tree import observe
from jetson_specdec.device.l4t import normalize_l4t
from jetson_specdec.device.power import is_top_mode
from jetson_specdec.errors import DeviceError
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host

__all__ = ["SOCKET", "JtopDetector"]

SOCKET = "/run/jtop.sock"
SOURCE = "jtop"
_CAUSES = (
    ("mismatch of python", "JSD172"),
    ("mismatch version", "JSD173"),
    ("can't access", "JSD174"),
    ("authentication", "JSD174"),
    ("not active", "JSD171"),
)


class JtopDetector:
    """Asks the service of jetson-stats, which reads the module's EEPROM as root and answers from inside containers too.

    It is not among the detectors that planning runs: connecting takes a second, the package is AGPL-3.0 and optional,
    and its table is older than ours on most boards. `detect()` turns to it only when everything else left the module
    open and the service's socket is there. That it is missing is never more than an `info`.
    """

    name = "jtop"
    priority = 40

    def detect(self, host: Host) -> Evidence:
        """Return board, memory and power mode as the service tells them; only on the machine this runs on."""
        if not host.live:
            return Evidence()
        try:
            from jtop import jtop  # an optional extra, imported nowhere else
        except Exception:  # a broken installation must not stop detection
            return Evidence(findings=(Finding.of("JSD170"),))
        try:
            with jtop() as service:
                board: Any = service.board
                memory: Any = service.memory
                mode: Any = getattr(service.nvpmodel, "name", None)
        except Exception as error:  # its own exception class, and whatever the socket raises
            return Evidence(findings=(_why(error),))
        return Evidence(observations=tuple(_observations(board, memory, mode)))


def _why(error: Exception) -> Finding:
    text = str(error)
    lowered = text.casefold()
    code = next((code for words, code in _CAUSES if words in lowered), "JSD175")
    versions = re.findall(r"\[([\w.+-]{1,20})\]", text)
    service, client = versions[:2] if len(versions) >= 2 else (None, None)
    first = text.strip().splitlines()[0][:200] if text.strip() else type(error).__name__
    return Finding.of(code, reason=first, service=service, client=client)


def _text(values: Any, key: str) -> str | None:
    value = values.get(key) if isinstance(values, Mapping) else None
    return value.strip() if isinstance(value, str) and value.strip() else None


def _observations(board: Any, memory: Any, mode: Any) -> list[Observation]:
    hardware = board.get("hardware") if isinstance(board, Mapping) else None
    found: list[Observation] = []
    part = _text(hardware, "P-Number")
    if part:
        proved = identity.from_parts(re.findall(r"p(\d{4})-(\d{4})", part.casefold()))
        found += observe(proved, f"{SOURCE} (P-Number)", confidence="high")
    for key in ("Module", "Model"):
        text = _text(hardware, key)
        proved = identity.from_model_text(text) if text else identity.Identity()
        if proved.is_jetson:
            found += observe(proved, f"{SOURCE} ({key})", confidence="medium", module="low")
            break
    try:
        l4t = normalize_l4t(_text(hardware, "L4T") or "")
        found.append(Observation(name="l4t", value=l4t, source=SOURCE, confidence="medium"))
    except DeviceError:
        pass
    ram = memory.get("RAM") if isinstance(memory, Mapping) else None
    total = ram.get("tot") if isinstance(ram, Mapping) else None
    if isinstance(total, (int, float)) and not isinstance(total, bool) and total > 0:
        value = int(total) * 1024
        found.append(Observation(name="memory_total_bytes", value=value, source=SOURCE, confidence="medium"))
    if isinstance(mode, str) and mode.strip():
        # The service cuts a name at its first character that is no letter, digit or underscore.
        found.append(Observation(name="power_mode", value=mode.strip(), source=SOURCE, confidence="low"))
        is_max = is_top_mode(mode.strip())
        found.append(Observation(name="power_mode_is_max", value=is_max, source=SOURCE, confidence="low"))
    return found
