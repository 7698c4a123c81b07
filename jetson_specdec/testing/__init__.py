# SPDX-License-Identifier: Apache-2.0
"""Fakes for our tests and our users' tests: a server with known truth, a recorded board, a clock that jumps."""

from __future__ import annotations

from typing import Any

__all__ = ["FakeVllm", "Fault", "Memory", "RecordedHost", "Truth", "VirtualTimeLoop"]

_HOMES = {
    "FakeVllm": "jetson_specdec.testing.fake_vllm",
    "Fault": "jetson_specdec.testing.truth",
    "Memory": "jetson_specdec.testing.truth",
    "RecordedHost": "jetson_specdec.host",
    "Truth": "jetson_specdec.testing.truth",
    "VirtualTimeLoop": "jetson_specdec.testing.virtual_time",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
