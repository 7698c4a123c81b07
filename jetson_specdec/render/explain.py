# SPDX-License-Identifier: Apache-2.0
"""Codes and thresholds, for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jetson_specdec.render import terminal

__all__ = ["print_explanations"]


def _readable(template: str) -> str:
    """Show what stands in for a value by its name alone: `{free_bytes:gib}` as ‹free bytes›."""
    import re

    return re.sub(r"\{(\w+)[^}]*\}", lambda match: f"‹{match[1].replace('_', ' ')}›", template)


def _shown(name: str) -> Callable[[float], str]:
    return (lambda value: str(terminal.bytes_text(value))) if name.endswith("_bytes") else str


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
        terminal.console().print(f"  {_readable(each['message'])}")
        if each["explain"]:
            terminal.console().print(f"  {_readable(each['explain'])}")
        if each["source"]:
            terminal.console().print(f"  Source: {each['source']}", style="dim")
    for rule in thresholds:
        shown = _shown(rule["name"])
        terminal.headline(f"{rule['name']} = {shown(rule['value'])}")
        terminal.line(f"  default {shown(rule['default'])}, allowed {shown(rule['low'])} to {shown(rule['high'])}")
        terminal.line(f"  Source: {rule['source']} ({rule['confidence']})", "dim")
