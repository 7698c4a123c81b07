# SPDX-License-Identifier: Apache-2.0
"""What this board was flashed as (`/etc/nv_boot_control.conf`)."""

from __future__ import annotations

import re

from jetson_specdec.device import identity, tables
from jetson_specdec.device.core import Evidence, Observation
from jetson_specdec.device.device_tree import observe
from jetson_specdec.host import Host

__all__ = ["BootControlDetector"]

PATH = "/etc/nv_boot_control.conf"


class BootControlDetector:
    """Reads TNSPEC and COMPATIBLE_SPEC: the module's number, where the device tree only has a kit's name."""

    name = "boot-control"
    priority = 55

    def detect(self, host: Host) -> Evidence:
        """Return family, module and chip; TNSPEC wins over COMPATIBLE_SPEC."""
        text = host.read_text(PATH, limit=64 * 1024)
        if not text:
            return Evidence()
        lines = dict(re.findall(r"^[ \t]*([A-Z_]+)[ \t=]+(\S+)", text, re.MULTILINE))
        found: list[Observation] = []
        for key in ("TNSPEC", "COMPATIBLE_SPEC"):
            proved = identity.from_tnspec(lines.get(key, ""))
            names = {observation.name for observation in found}
            found += [
                item
                for item in observe(proved, f"{PATH} ({key})", confidence="medium", module="high")
                if item.name not in names
            ]
        soc = tables.board_data()["chipids"].get(lines.get("TEGRA_CHIPID", "").casefold())
        if soc and not any(item.name == "soc" for item in found):
            source = f"{PATH} (TEGRA_CHIPID)"
            found.append(Observation(name="soc", value=soc, source=source, confidence="medium"))
            found.append(Observation(name="is_jetson", value=True, source=source, confidence="medium"))
        return Evidence(observations=tuple(found))
