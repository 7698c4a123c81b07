# SPDX-License-Identifier: Apache-2.0
"""A board, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.messages import bytes_text, render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device

__all__ = ["device_line", "print_device"]

FIELDS = ("family", "module", "l4t", "jetpack", "power_mode", "gpu_name")


def device_line(device: Device) -> str:
    """Return a board in one line: module, release, memory, power mode."""
    parts = [device.module or device.family or ("not a Jetson" if device.is_jetson is False else "unknown board")]
    if device.l4t:
        parts.append(f"L4T {device.l4t}" + (f" (JetPack {device.jetpack})" if device.jetpack else ""))
    if device.memory_total_bytes:
        parts.append(bytes_text(device.memory_total_bytes, "gib"))
    if device.power_mode:
        parts.append(device.power_mode)
    return ", ".join(parts)


def print_device(device: Device) -> None:
    """Print what is known of a board, where each field comes from, and what to know about it."""
    terminal.headline(device_line(device))
    rows = []
    for name in FIELDS:
        value = getattr(device, name)
        rows.append([name, value, device.sources.get(name), device.confidence.get(name)])
    for name in ("memory_total_bytes", "memory_available_bytes"):
        text = terminal.bytes_text(getattr(device, name))
        rows.append([name, text, device.sources.get(name), device.confidence.get(name)])
    terminal.section("What it is")
    terminal.table(["field", "value", "read from", "sure"], rows)
    terminal.section("What follows")
    terminal.line(f"  speculation: {render(f'label-allowed-{device.speculation_allowed}')}")
    terminal.line(f"  runtime:     {render(f'label-runtime-{device.runtime}')}")
    if device.findings:
        terminal.section("To know")
        terminal.findings(device.findings)
