# SPDX-License-Identifier: Apache-2.0
"""Reports of NVIDIA's `jetson-llm-benchmark` skill (vLLM, llama.cpp and Ollama variants).

The tool writes 0.0 for whatever it did not find and ends with exit code 0, so every zero is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import BenchConfig, BenchReport, Conditions, Run
from jetson_specdec.measurements.readers.base import count, dig, number, positive, text

__all__ = ["JetsonLlmBenchmarkReader"]

_FIGURES: Final = (
    "ttft_ms_p50",
    "ttft_ms_p99",
    "itl_ms_p50",
    "itl_ms_p99",
    "tpot_ms_p50",
    "throughput_tok_s",
    "e2e_latency_ms_p50",
)
_POWER_MODE = r"nvpmodel is (?P<name>\S+)(?: \(id \d+\))?"
_IDENTITY: Final = (
    "skill",
    "runtime",
    "model",
    "sku",
    "generation",
    "product_line",
    "variant",
    "l4t",
    "benchmark_mode",
    "container",
)


class JetsonLlmBenchmarkReader:
    """Reads what `bench_vllm.sh` and its siblings print."""

    name = "jetson_llm_benchmark"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether it is this tool's JSON object: `runs` (or `metrics`) beside its `skill` or `config`."""
        if not isinstance(data, Mapping) or "schema_version" in data:
            return False
        has_figures = isinstance(data.get("runs"), list) or isinstance(data.get("metrics"), Mapping)
        named = data.get("skill") == "jetson-llm-benchmark"
        return has_figures and (
            named or (isinstance(data.get("runs"), list) and isinstance(data.get("config"), Mapping))
        )

    def read(self, text_: str, data: Any, where: str) -> BenchReport:
        """Return the report; zeros become None, with a finding.

        Raises:
            ReportError: it has no run with a concurrency.
        """
        listed = data.get("runs")
        entries = listed if isinstance(listed, list) else [{"concurrency": 1, **data["metrics"]}]
        runs: list[Run] = []
        zeros: list[str] = []
        for entry in entries:
            concurrency = count(dig(entry, "concurrency"))
            if not concurrency:
                continue
            if any(run.concurrency == concurrency for run in runs):
                raise ReportError("JSE606", where=where, concurrency=concurrency)
            figures: dict[str, Any] = {name: positive(entry.get(name)) for name in _FIGURES}
            runs.append(Run(concurrency=concurrency, **figures))
            zeros += [f"{name} (c={concurrency})" for name in _FIGURES if number(entry.get(name)) == 0]
        if not runs:
            raise ReportError("JSE605", where=where, format=self.name)
        said = data.get("warnings")
        said = [said] if isinstance(said, str) else said
        warnings = tuple(item for item in said if isinstance(item, str)) if isinstance(said, list) else ()
        findings = [Finding.of("JSD601", fields=zeros, count=len(zeros))] if zeros else []
        dead = [run.concurrency for run in runs if not run.measured]
        if dead:
            findings.append(Finding.of("JSD602", concurrencies=dead))
        config = data.get("config")
        identity: dict[str, Any] = {name: text(data.get(name)) for name in _IDENTITY}
        return BenchReport(
            **identity,
            config=BenchConfig(
                input_len=count(dig(config, "input_len")),
                output_len=count(dig(config, "output_len")),
                num_prompts=count(dig(config, "num_prompts")),
                # Its vLLM script always uses vllm bench serve's random data set.
                dataset="random" if text(data.get("runtime")) == "vllm" else None,
            ),
            runs=tuple(runs),
            warnings=warnings,
            conditions=_conditions(warnings),
            findings=tuple(findings),
            source_format=self.name,
        )


def _conditions(warnings: tuple[str, ...]) -> Conditions:
    """Read the power mode from the tool's own warning; without one it is unknown (not "the best")."""
    for warning in warnings:
        found = re.search(_POWER_MODE, warning)
        if found:
            name = found["name"]
            return Conditions(power_mode=name, power_mode_is_max=name.upper().startswith("MAXN"))
    return Conditions()
