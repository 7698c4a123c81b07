# SPDX-License-Identifier: Apache-2.0
"""Measurements of a fake server, labelled so that nobody can take them for a board's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from attrs import evolve

from jetson_specdec.errors import OptionError, SpecdecError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements import BenchReport
from jetson_specdec.measurements.core import SIMULATED_RUNTIME
from jetson_specdec.testing.fake_args import truth_from
from jetson_specdec.testing.fake_vllm import ENVIRONMENT, FakeVllm
from jetson_specdec.testing.truth import Fault, Truth

__all__ = ["RUNTIME", "embedded_server", "simulated"]

RUNTIME: Final = SIMULATED_RUNTIME
"""`BenchReport.runtime` of a simulation; the gate refuses to compare it with another engine's report."""

_OF_A_PROCESS: Final = ("memory", "time_scale", "startup_s", "start_log", "exit_code")


def simulated(report: BenchReport) -> BenchReport:
    """Return a report of a fake server with its label: in `runtime`, `warnings` and `findings`."""
    label = Finding.of("JSD697")
    return evolve(
        report,
        runtime=RUNTIME,
        warnings=(label.message, *report.warnings),
        findings=(label, *report.findings),
    )


def embedded_server(serve_args: Sequence[str] = (), *, truth: Truth | None = None) -> FakeVllm:
    """Return a fake server that is not started; ask it through `connection()`.

    Args:
        serve_args: what stands after `vllm serve`.
        truth: what it is; the variable `JETSON_SPECDEC_FAKE` (fields of `Truth`, and `faults`) wins over it.

    Raises:
        OptionError: the variable describes no truth.
        ArgumentFailure: vLLM would refuse the arguments.
    """
    text = os.environ.get(ENVIRONMENT)
    try:
        given = {name: value for name, value in truth_from(text).items() if name not in _OF_A_PROCESS}
        faults = {int(number): Fault(**fault) for number, fault in given.pop("faults", {}).items()}
        known = Truth(**given) if given else truth
        return FakeVllm(serve_args, truth=known, faults=faults)
    except SpecdecError:  # vLLM would refuse the arguments; the error says why
        raise
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise OptionError("JSE643", name=ENVIRONMENT, value=text, reason=str(error)) from error
