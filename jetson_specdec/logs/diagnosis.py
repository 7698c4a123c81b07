# SPDX-License-Identifier: Apache-2.0
"""The answer of `diagnose`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.logs.attempt import Proof
from jetson_specdec.values import frozen

__all__ = ["SCHEMA_VERSION", "Diagnosis"]

SCHEMA_VERSION = 1


@frozen(kw_only=True)
class Diagnosis:
    """Why a server did not start, or that it did.

    Attributes:
        started_ok: startup complete and no fatal line after it; None where the log cannot tell.
        stage: where it ended: `container`, `download`, `arguments`, `config`, `load`, `kv_cache`, `warmup`,
            `first_request` or `serving`.
        cause: the cause, such as `kv_cache_none`; `none` for a start that succeeded, `engine_failed` for an unknown
            one. Out of memory after the weights are in is `oom_warmup`, whatever the stage.
        remedy: the first thing to do, such as `raise_utilization`; `none` where nothing in the recipe helps.
        speculation_involved: whether speculation causes or feeds the failure; False where the recipe fails alike
            without it; None where the log does not tell. Of a start that succeeded: whether it speculates.
        values: numbers and names from the log, by name: sizes in GiB (`…_gib`), utilisations as fractions.
        evidence: the lines that prove it, the defining one first; secrets masked.
        findings: the cause in words, and what else was noticed.
        next_steps: the remedy in words, with the numbers that are known.
        attempts: how many starts the logs show.
    """

    started_ok: bool | None
    stage: str
    cause: str
    remedy: str
    speculation_involved: bool | None
    values: Mapping[str, Any] = field(factory=dict)
    evidence: tuple[Proof, ...] = ()
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()
    attempts: int = 1

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `diagnose --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "started_ok": self.started_ok,
            "stage": self.stage,
            "cause": self.cause,
            "remedy": self.remedy,
            "speculation_involved": self.speculation_involved,
            "values": dict(self.values),
            "evidence": [proof.to_json() for proof in self.evidence],
            "findings": [finding.to_json() for finding in self.findings],
            "next_steps": [step.to_json() for step in self.next_steps],
            "attempts": self.attempts,
        }

    @classmethod
    def from_json(cls, data: Any) -> Diagnosis:
        """Read a diagnosis back, strictly.

        Args:
            data: the object, or its text.

        Raises:
            ReportError: not a diagnosis, an unknown key, or a value of the wrong type.
        """
        import json

        from jetson_specdec.errors import ReportError
        from jetson_specdec.measurements.serial import structure_strictly

        try:
            given = dict(json.loads(data) if isinstance(data, str) else data)
            version = given.pop("schema_version")
            found = structure_strictly(given, cls)
        except (TypeError, ValueError, KeyError) as error:
            raise ReportError("JSE700", reason=str(error)) from error
        if version != SCHEMA_VERSION:
            raise ReportError("JSE701", version=version, known=SCHEMA_VERSION)
        return found
