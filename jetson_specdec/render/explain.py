# SPDX-License-Identifier: Apache-2.0
"""Codes and thresholds, for a person."""

from __future__ import annotations

from typing import Any

from jetson_specdec.render import terminal

__all__ = ["print_explanations"]


def print_explanations(findings: list[dict[str, Any]], thresholds: list[dict[str, Any]], *, long: bool) -> None:
    """Print findings and thresholds; with `long`, each with its whole text."""
    if not long:
        terminal.table(
            ["code", "topic", "severity"], [[each["code"], each["topic"], each["severity"]] for each in findings]
        )
        terminal.section("Thresholds")
        terminal.table(
            ["name", "value", "source"],
            [[each["name"], str(each["value"]), f"{each['source']} ({each['confidence']})"] for each in thresholds],
        )
        return
    for each in findings:
        terminal.headline(f"{each['code']}  {each['topic']}  ({each['severity']})")
        terminal.console().print(f"  {each['message']}")
        if each["explain"]:
            terminal.console().print(f"  {each['explain']}")
        if each["source"]:
            terminal.console().print(f"  Source: {each['source']}", style="dim")
    for rule in thresholds:
        terminal.headline(f"{rule['name']} = {rule['value']}")
        terminal.line(f"  default {rule['default']}, allowed {rule['low']} to {rule['high']}")
        terminal.line(f"  Source: {rule['source']} ({rule['confidence']})", "dim")
