# SPDX-License-Identifier: Apache-2.0
"""Start a recipe as it is, watch it, stop it with everything it started, and climb down when it does not fit.

Names are loaded on first use; importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.server.climbing import LadderResult, Try, climb
    from jetson_specdec.server.core import Started, Stopped
    from jetson_specdec.server.ladder import Rung, next_rung
    from jetson_specdec.server.launch import Launch, launch_of
    from jetson_specdec.server.occupants import Occupant
    from jetson_specdec.server.restoring import Restored, restore
    from jetson_specdec.server.server import Server
    from jetson_specdec.server.state import RunState, leftovers
    from jetson_specdec.server.watchdog import MemorySample, Watchdog

_HOMES = {
    "climbing": ("LadderResult", "Try", "climb"),
    "core": ("Started", "Stopped"),
    "ladder": ("Rung", "next_rung"),
    "launch": ("Launch", "launch_of"),
    "occupants": ("Occupant",),
    "restoring": ("Restored", "restore"),
    "server": ("Server",),
    "state": ("RunState", "leftovers"),
    "watchdog": ("MemorySample", "Watchdog"),
}

__all__ = [
    "LadderResult",
    "Launch",
    "MemorySample",
    "Occupant",
    "Restored",
    "RunState",
    "Rung",
    "Server",
    "Started",
    "Stopped",
    "Try",
    "Watchdog",
    "climb",
    "launch_of",
    "leftovers",
    "next_rung",
    "restore",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
