# SPDX-License-Identifier: Apache-2.0
"""Decide, apply and prove speculative decoding for vLLM on NVIDIA Jetson.

Names are loaded on first use, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jetson_specdec import errors
    from jetson_specdec.device import Device, detect
    from jetson_specdec.device.core import Detector, Evidence, Observation
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.findings import Finding, Severity, Step
    from jetson_specdec.gate import Gate, Verdict
    from jetson_specdec.host import Host, LocalHost, RecordedHost
    from jetson_specdec.loadgen.benchmark import Benchmark
    from jetson_specdec.logs.diagnosis import Diagnosis
    from jetson_specdec.logs.launch import diagnose
    from jetson_specdec.logs.metrics import SpecMetrics
    from jetson_specdec.measurements import BenchReport, read_report
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.models.core import DraftPair, Head
    from jetson_specdec.planner import Plan, Planner, decide
    from jetson_specdec.policy import Policy
    from jetson_specdec.recipe.core import Recipe
    from jetson_specdec.recipe.load import load_recipe
    from jetson_specdec.strategies import (
        DraftModelStrategy,
        Eagle3Strategy,
        NoSpec,
        Proposal,
        Refusal,
        Situation,
        Strategy,
    )

_HOMES = {
    "BenchReport": "measurements",
    "Benchmark": "loadgen.benchmark",
    "Catalog": "models.catalog",
    "Detector": "device.core",
    "Device": "device",
    "Diagnosis": "logs.diagnosis",
    "DraftModelStrategy": "strategies",
    "DraftPair": "models.core",
    "Eagle3Strategy": "strategies",
    "EngineRelease": "engine.core",
    "Evidence": "device.core",
    "Finding": "findings",
    "Gate": "gate",
    "Head": "models.core",
    "Host": "host",
    "LocalHost": "host",
    "NoSpec": "strategies",
    "Observation": "device.core",
    "Plan": "planner",
    "Planner": "planner",
    "Policy": "policy",
    "Proposal": "strategies",
    "Recipe": "recipe.core",
    "RecordedHost": "host",
    "Refusal": "strategies",
    "Severity": "findings",
    "Situation": "strategies",
    "SpecMetrics": "logs.metrics",
    "Step": "findings",
    "Strategy": "strategies",
    "Verdict": "gate",
    "decide": "planner",
    "detect": "device",
    "diagnose": "logs.launch",
    "load_recipe": "recipe.load",
    "read_report": "measurements",
}

__all__ = [
    "BenchReport",
    "Benchmark",
    "Catalog",
    "Detector",
    "Device",
    "Diagnosis",
    "DraftModelStrategy",
    "DraftPair",
    "Eagle3Strategy",
    "EngineRelease",
    "Evidence",
    "Finding",
    "Gate",
    "Head",
    "Host",
    "LocalHost",
    "NoSpec",
    "Observation",
    "Plan",
    "Planner",
    "Policy",
    "Proposal",
    "Recipe",
    "RecordedHost",
    "Refusal",
    "Severity",
    "Situation",
    "SpecMetrics",
    "Step",
    "Strategy",
    "Verdict",
    "__version__",
    "decide",
    "detect",
    "diagnose",
    "errors",
    "load_recipe",
    "read_report",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("jetson-specdec")
    from importlib import import_module

    if name == "errors":
        return import_module("jetson_specdec.errors")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"jetson_specdec.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
