# SPDX-License-Identifier: Apache-2.0
"""Fakes for our tests and our users' tests: a server with known truth, a recorded board, a clock that jumps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.host import RecordedHost
from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.testing.fake_failure import FakeStartFailed, start_failures
    from jetson_specdec.testing.fake_vllm import FakeVllm
    from jetson_specdec.testing.truth import Fault, Memory, Truth
    from jetson_specdec.testing.virtual_time import VirtualTimeLoop

__all__ = [
    "FakeStartFailed",
    "FakeVllm",
    "Fault",
    "Memory",
    "RecordedHost",
    "Truth",
    "VirtualTimeLoop",
    "start_failures",
]

_HOMES = {
    "fake_failure": ("FakeStartFailed", "start_failures"),
    "fake_vllm": ("FakeVllm",),
    "truth": ("Fault", "Memory", "Truth"),
    "virtual_time": ("VirtualTimeLoop",),
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
