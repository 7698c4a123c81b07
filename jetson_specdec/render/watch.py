# SPDX-License-Identifier: Apache-2.0
"""One look of `watch`, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.messages import render
from jetson_specdec.render import terminal

if TYPE_CHECKING:
    from jetson_specdec.tune.drift import WatchResult

__all__ = ["print_watch"]

STYLES = {"ok": "bold green", "drift": "bold red", "unreachable": "bold red", "unknown": "bold yellow"}


def print_watch(result: WatchResult) -> None:
    """Print what one look says."""
    terminal.headline(render(f"headline-watch-{result.state}"), STYLES[result.state])
    terminal.findings(result.findings)
    if result.next_steps:
        terminal.section("Next")
        terminal.steps(result.next_steps)
