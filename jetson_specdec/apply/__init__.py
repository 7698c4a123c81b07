# SPDX-License-Identifier: Apache-2.0
"""Changing a deployment with care: disclosure, pinning, backup, atomic replace, undo; and `doctor` before that.

Names are loaded on first use; importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Check, Checkup, doctor
    from jetson_specdec.apply.deployment import Deployment, read_deployment
    from jetson_specdec.apply.disclosure import Disclosure, Fetch, Listener, Surroundings, disclose
    from jetson_specdec.apply.environment import Hub, Telemetry, hub_of, telemetry_of
    from jetson_specdec.apply.look import look_around
    from jetson_specdec.apply.manifest import Manifest, find_manifests
    from jetson_specdec.apply.online import HttpOnline, HubFacts, Online, Reach
    from jetson_specdec.apply.pinning import Pin, pin_plan, resolve_pins
    from jetson_specdec.apply.transaction import Undone, apply_changes, undo
    from jetson_specdec.apply.workflow import Prepared, carry_out, prepare

_HOMES = {
    "checkup": ("Check", "Checkup", "doctor"),
    "deployment": ("Deployment", "read_deployment"),
    "disclosure": ("Disclosure", "Fetch", "Listener", "Surroundings", "disclose"),
    "environment": ("Hub", "Telemetry", "hub_of", "telemetry_of"),
    "look": ("look_around",),
    "manifest": ("Manifest", "find_manifests"),
    "online": ("HttpOnline", "HubFacts", "Online", "Reach"),
    "pinning": ("Pin", "pin_plan", "resolve_pins"),
    "transaction": ("Undone", "apply_changes", "undo"),
    "workflow": ("Prepared", "carry_out", "prepare"),
}

__all__ = [
    "Check",
    "Checkup",
    "Deployment",
    "Disclosure",
    "Fetch",
    "HttpOnline",
    "Hub",
    "HubFacts",
    "Listener",
    "Manifest",
    "Online",
    "Pin",
    "Prepared",
    "Reach",
    "Surroundings",
    "Telemetry",
    "Undone",
    "apply_changes",
    "carry_out",
    "disclose",
    "doctor",
    "find_manifests",
    "hub_of",
    "look_around",
    "pin_plan",
    "prepare",
    "read_deployment",
    "resolve_pins",
    "telemetry_of",
    "undo",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
