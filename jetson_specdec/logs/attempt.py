# SPDX-License-Identifier: Apache-2.0
"""One start of the engine as a log shows it: how far it came, with which arguments, and what went wrong on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from jetson_specdec.logs.signatures import Signature
from jetson_specdec.values import frozen

__all__ = ["PROGRESS", "Attempt", "Hit", "Proof"]

PROGRESS = ("container", "arguments", "config", "load", "kv_cache", "warmup", "serving")
"""How far a start has come, in order."""


@frozen(kw_only=True)
class Proof:
    """A line that shows something: which input, which line (from 1), and its message with secrets masked."""

    input: str
    line: int
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return `input`, `line`, `text`."""
        return {"input": self.input, "line": self.line, "text": self.text}


@frozen(kw_only=True)
class Hit:
    """A line of the table found in a log.

    Attributes:
        signature: the entry.
        order: place in the log.
        tier: the entry's, or 3 where the line itself says that it is tried again.
        values: what was read from the line.
        proof: the line.
        lines_before: the lines before it, for what they say about it.
        process: who printed it, or None.
        progress: how far the start had come.
        drafter: whether the draft was being loaded.
        started: whether the server was up.
    """

    signature: Signature
    order: int
    tier: int
    values: Mapping[str, Any]
    proof: Proof
    lines_before: tuple[str, ...] = ()
    process: str | None = None
    progress: str
    drafter: bool
    started: bool

    @property
    def before(self) -> str:
        """The lines before it as one text."""
        return "\n".join(self.lines_before)


@define(kw_only=True)
class Attempt:
    """One start, filled while a log is read.

    Attributes:
        input: which log it is in.
        time: when it began, or None.
        arguments: the arguments in force that differ from the defaults, or None where the log does not show them.
        arguments_text: the line they stand in, until `arguments` is read from it.
        version: of vLLM, or None.
        speculative_config: method, model and so on, as far as shown.
        speculates: whether speculation is on; None where the log does not tell.
        progress: how far it came (`PROGRESS`).
        drafter: the draft was being loaded; `loaded`: all weights are in.
        started: the server said so; `stopped`: someone stopped it after that.
        implied: that it had started is only known from how it ended.
        served: requests were answered.
        facts: numbers the log shows on the way.
        proofs: lines worth showing, by what they prove.
        hits: what went wrong, in order.
        moved: the place of the last line that shows it going on.
        closed: the engine said for the last time that it did not start.
        repos, statuses: hub repositories and HTTP errors, with their places.
    """

    input: str
    time: str | None = None
    arguments: dict[str, Any] | None = None
    arguments_text: str | None = None
    version: str | None = None
    speculative_config: dict[str, Any] = field(factory=dict)
    speculates: bool | None = None
    progress: str = "container"
    drafter: bool = False
    loaded: bool = False
    v2_runner: bool = False
    started: bool = False
    stopped: bool = False
    implied: bool = False
    served: bool = False
    facts: dict[str, Any] = field(factory=dict)
    proofs: dict[str, Proof] = field(factory=dict)
    hits: list[Hit] = field(factory=list)
    moved: int = 0
    closed: bool = False
    repos: list[tuple[int, str]] = field(factory=list)
    statuses: list[tuple[int, int]] = field(factory=list)
    architectures: list[str] = field(factory=list)

    def reach(self, stage: str) -> None:
        """Note that the start came as far as a stage."""
        if PROGRESS.index(stage) > PROGRESS.index(self.progress):
            self.progress = stage

    def past(self, stage: str) -> bool:
        """Whether the start came as far as a stage."""
        return PROGRESS.index(self.progress) >= PROGRESS.index(stage)

    @property
    def empty(self) -> bool:
        """Whether nothing of a start was seen."""
        return self.progress == "container" and not self.hits and self.arguments_text is None and not self.started

    def argument(self, name: str) -> Any:
        """Return an argument in force that was given, or None."""
        return (self.arguments or {}).get(name)
