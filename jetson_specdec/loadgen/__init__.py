# SPDX-License-Identifier: Apache-2.0
"""How fast is this server: a load generator for any OpenAI-compatible endpoint, prompts, and the board's conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetson_specdec.lazy import lazy

if TYPE_CHECKING:
    from jetson_specdec.loadgen.benchmark import Benchmark
    from jetson_specdec.loadgen.conditions import ConditionSampler
    from jetson_specdec.loadgen.connection import Connection
    from jetson_specdec.loadgen.progress import Progress
    from jetson_specdec.loadgen.prompts import Prompt, PromptSet, load_prompts, own_prompts, random_prompts
    from jetson_specdec.loadgen.stream import read_answer
    from jetson_specdec.loadgen.summary import summarise

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
    "benchmark": ("Benchmark",),
    "conditions": ("ConditionSampler",),
    "connection": ("Connection",),
    "progress": ("Progress",),
    "prompts": ("Prompt", "PromptSet", "load_prompts", "own_prompts", "random_prompts"),
    "stream": ("read_answer",),
    "summary": ("summarise",),
}

__getattr__, __dir__ = lazy(__name__, _HOMES)
