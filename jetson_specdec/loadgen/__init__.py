# SPDX-License-Identifier: Apache-2.0
"""How fast is this server: a load generator for any OpenAI-compatible endpoint, prompts, and the board's conditions."""

from __future__ import annotations

from typing import Any

__all__ = [
    "Benchmark",
    "ConditionSampler",
    "Connection",
    "Progress",
    "Prompt",
    "PromptSet",
    "load_prompts",
    "own_prompts",
    "random_prompts",
    "read_answer",
    "summarise",
]

_HOMES = {
    "Benchmark": "benchmark",
    "ConditionSampler": "conditions",
    "Connection": "connection",
    "Progress": "progress",
    "Prompt": "prompts",
    "PromptSet": "prompts",
    "load_prompts": "prompts",
    "own_prompts": "prompts",
    "random_prompts": "prompts",
    "read_answer": "stream",
    "summarise": "summary",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
