# SPDX-License-Identifier: Apache-2.0
"""What the device tree calls this board."""

from __future__ import annotations

from jetson_specdec.device import identity
from jetson_specdec.device.core import Confidence, Evidence, Observation
from jetson_specdec.host import Host

__all__ = ["DeviceTreeDetector", "observe"]

TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
HANDED_OVER = "/tmp/nv_jetson_model"
"""Where container launchers copy the host's model text; a directory when the source of that mount did not exist."""
_LIMIT = 64 * 1024


def observe(
    found: identity.Identity, source: str, *, confidence: Confidence, module: Confidence | None = None
) -> list[Observation]:
    """Turn what a text proved into observations.

    Args:
        found: what it proved.
        source: where the text stands.
        confidence: of everything but the module.
        module: of the module; as the rest where None.
    """
    values = {
        "is_jetson": found.is_jetson,
        "family": found.family,
        "module": found.module,
        "soc": found.soc,
        "older_family": found.older,
    }
    return [
        Observation(
            name=name,
            value=value,
            source=source,
            confidence=_confidence(found, module if name == "module" and module is not None else confidence),
        )
        for name, value in values.items()
        if value is not None
    ]


def _confidence(found: identity.Identity, confidence: Confidence) -> Confidence:
    if found.certain:
        return confidence
    return "medium" if found.is_jetson else "low"


class DeviceTreeDetector:
    """Reads `model` and `compatible`; the second wins: third-party carriers keep the reference kit's model text.

    That the files exist proves nothing: every board with a device tree has them.
    """

    name = "device-tree"
    priority = 60

    def detect(self, host: Host) -> Evidence:
        """Return family, module, chip and whether it is a Jetson, as far as the strings prove them."""
        found: list[Observation] = []
        for tree in TREES:
            data = host.read_bytes(f"{tree}/compatible", limit=_LIMIT)
            entries = [part.decode("utf-8", errors="replace").strip() for part in (data or b"").split(b"\0")]
            proved = identity.from_compatible(entries)
            if proved.is_jetson is not None:
                found += observe(proved, f"{tree}/compatible", confidence="high")
                break
        for path in (*(f"{tree}/model" for tree in TREES), HANDED_OVER):
            text = identity.read_string(host.read_bytes(path, limit=_LIMIT))
            if text is not None:
                found.append(Observation(name="model_text", value=text, source=path))
                proved = identity.from_model_text(text)
                found += observe(proved, path, confidence="high" if proved.is_jetson is False else "medium")
                break
        return Evidence(observations=tuple(found))
