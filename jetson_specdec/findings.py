# SPDX-License-Identifier: Apache-2.0
"""Why something was decided (`Finding`), and what to do next (`Step`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from attrs import field

from jetson_specdec import messages
from jetson_specdec.values import frozen

__all__ = ["Finding", "Severity", "Step", "blocking", "most_severe_first", "worst"]


class Severity(str, Enum):
    """How much a finding weighs."""

    INFO = "info"
    WARNING = "warning"
    BLOCKING = "blocking"

    def __str__(self) -> str:
        return self.value


_ORDER = {Severity.INFO: 0, Severity.WARNING: 1, Severity.BLOCKING: 2}


@frozen(kw_only=True)
class Finding:
    """One reason, warning or obstacle, as data.

    Attributes:
        code: `JSD` and three digits; stable, never reused.
        topic: a short word a script can match, such as `near-ceiling`.
        severity: `info`, `warning` or `blocking`.
        values: what the text is rendered from; JSON values.
        source: where the rule or fact comes from (design rule, vLLM file and release, URL), or None.
    """

    code: str
    topic: str
    severity: Severity
    values: Mapping[str, Any] = field(factory=dict)
    source: str | None = None

    @classmethod
    def of(cls, code: str, *, severity: Severity | None = None, source: str | None = None, **values: Any) -> Finding:
        """Make a finding of a catalogued code; topic, severity and source come from the catalogue unless given.

        Raises:
            KeyError: the code is not in the catalogue.
        """
        info = messages.code_info(code)
        return cls(
            code=code,
            topic=info["topic"],
            severity=severity or Severity(info["severity"]),
            values=values,
            source=source or info.get("source"),
        )

    @property
    def message(self) -> str:
        """The English text."""
        return messages.render(self.code, self.values)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `code`, `topic`, `severity`, `message`, `values`, `source`."""
        return {
            "code": self.code,
            "topic": self.topic,
            "severity": self.severity.value,
            "message": self.message,
            "values": dict(self.values),
            "source": self.source,
        }


@frozen(kw_only=True)
class Step:
    """Something to do next, as data.

    Attributes:
        kind: a key of the step catalogue, such as `benchmark` or `pin-image`.
        values: what the text is rendered from; JSON values.
        command: a command line a person can paste, where there is one.
    """

    kind: str
    values: Mapping[str, Any] = field(factory=dict)
    command: str | None = None

    @classmethod
    def of(cls, kind: str, *, command: str | None = None, **values: Any) -> Step:
        """Make a step from its kind and values."""
        return cls(kind=kind, values=values, command=command)

    @property
    def text(self) -> str:
        """The English text."""
        return messages.render(self.kind, self.values)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `kind`, `text`, `values`, `command`."""
        return {"kind": self.kind, "text": self.text, "values": dict(self.values), "command": self.command}


def blocking(findings: Iterable[Finding]) -> bool:
    """Say whether any of the findings is an obstacle."""
    return any(finding.severity is Severity.BLOCKING for finding in findings)


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with obstacles first, then warnings, then remarks; equal ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: -_ORDER[finding.severity]))


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Return the highest severity among findings, or None when there are none."""
    return max((finding.severity for finding in findings), key=_ORDER.__getitem__, default=None)
