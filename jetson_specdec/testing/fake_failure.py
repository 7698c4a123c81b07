# SPDX-License-Identifier: Apache-2.0
"""Starts that fail, by the name of their cause: what the real thing prints, when, and how the process ends.

```python
FakeVllm(["org/m"], start_failure="kv_cache_none")        # or "oom_load:draft", a cause with one of its variants
```

The texts are data (`data/start_failures.json`, with their sources); the layout around them is the release's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from string import Template
from typing import Any, Final, Literal

from attrs import field

from jetson_specdec.errors import OptionError, SpecdecError
from jetson_specdec.packaged import packaged_json
from jetson_specdec.testing.fake_log import VERSION, FakeLog
from jetson_specdec.values import frozen

__all__ = ["AFTER", "FakeStartFailed", "StartFailure", "start_failure", "start_failures", "strikes"]

AFTER: Final = ("nothing", "arguments", "config", "load", "draft", "loaded", "kv_cache", "warmup", "started")
"""How far the log of a start can get before it fails."""
Frame = Literal["usage", "config", "engine", "request", "raw", "docker"]
KILLED: Final = 137
"""What a shell says of a process that was ended by SIGKILL."""


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@frozen(kw_only=True)
class StartFailure:
    """One way in which a start fails.

    Attributes:
        cause: as `diagnose` names it.
        variant: which of the ways of this cause.
        after: how far the log of a healthy start gets (`AFTER`).
        frame: how the lines are wrapped; `docker` where no server is started at all.
        lines: what is printed; names after a dollar sign are filled in.
        before: lines in front of the frame, as they are.
        kernel: what the kernel log says.
        end: exit code, `kill` (SIGKILL) or `hang`.
        speculation: whether only a start that speculates can fail like this.
        again: whether a script starts it once more with another value, in the same log.
        memory_falls: whether MemAvailable falls meanwhile.
        figures: values that are known better than by default.
        source: where the text comes from.
    """

    cause: str
    variant: str
    after: str
    frame: Frame
    lines: tuple[str, ...] = field(converter=_texts)
    before: tuple[str, ...] = field(default=(), converter=_texts)
    kernel: tuple[str, ...] = field(default=(), converter=_texts)
    end: int | Literal["kill", "hang"] = 1
    speculation: bool = False
    again: bool = False
    memory_falls: bool = False
    figures: Mapping[str, Any] = field(factory=dict)
    source: str = ""

    @property
    def exit_code(self) -> int | None:
        """How the process ends, as a shell says it; None where it does not end by itself."""
        return KILLED if self.end == "kill" else None if self.end == "hang" else self.end

    @property
    def reason(self) -> str:
        """The line that says most."""
        return self.lines[-1].strip() if self.lines else f"{self.cause}: {self.variant}"

    def reaches(self, stage: str) -> bool:
        """Whether the start gets as far as a stage of `AFTER`."""
        return AFTER.index(self.after) >= AFTER.index(stage)

    def filled(self, values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
        """Return `lines`, `before` and `kernel` with the names filled in."""
        known = {**values, **self.figures}
        return {
            name: tuple(Template(line).safe_substitute(known) for line in getattr(self, name))
            for name in ("lines", "before", "kernel")
        }

    def write(self, log: FakeLog, values: Mapping[str, Any]) -> None:
        """Write the end of a start into a log."""
        known = {"api_": log.api_name, "pid": log.pid, "core_pid": log.pid + 1, **values}
        text = self.filled(known)
        for line in text["before"]:
            log.raw(line)
        if self.frame == "engine":
            log.engine_failed(text["lines"])
        elif self.frame == "config":
            log.api_failed(text["lines"])
        elif self.frame == "request":
            log.engine_died(text["lines"])
        else:
            for line in text["lines"]:
                log.raw({"usage": usage, "docker": refused_by_docker}.get(self.frame, str)(line))


def strikes(when: str | None, words: Sequence[str]) -> bool:
    """Whether a failure is meant for a start: `speculating`, `plain`, or any (None), by the words of its command."""
    if when is None:
        return True
    return (when == "speculating") is any("spec" in word.partition("=")[0] for word in words if word.startswith("-"))


class FakeStartFailed(SpecdecError):  # noqa: N818 - what the fake did, not a mistake
    """The fake server did not start, as it was told to or because of what it was given; its log says why.

    Attributes:
        failure: which one.
    """

    def __init__(self, failure: StartFailure, reason: str | None = None) -> None:
        super().__init__("JSE681", reason=reason or failure.reason)
        self.failure = failure


def usage(reason: str) -> str:
    """Return what `vllm serve` prints for arguments it refuses."""
    return f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {reason}"


def refused_by_docker(reason: str) -> str:
    """Return what `docker run` prints where the daemon refuses."""
    return f"docker: Error response from daemon: {reason}\n\nRun 'docker run --help' for more information"


@lru_cache(maxsize=1)
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(packaged_json("testing", "data", "start_failures.json")["failures"])


def start_failures() -> dict[str, tuple[str, ...]]:
    """Return every cause a fake can show, with its variants; the first one is taken where only the cause is named."""
    found: dict[str, dict[str, None]] = {}
    for row in _rows():
        found.setdefault(row["cause"], {})[row["variant"]] = None
    return {"none": (), **{cause: tuple(variants) for cause, variants in found.items()}}


def start_failure(name: str, *, version: str = VERSION, docker: bool = False) -> StartFailure | None:
    """Return a failure by its name; None for `none`, a start that succeeds.

    Args:
        name: a cause, or `cause:variant`.
        version: the release that fails.
        docker: whether a failure of docker itself is meant where the cause knows both.

    Raises:
        OptionError: there is no such cause or variant, or no start of that release can show it.
    """
    from jetson_specdec.engine.tables import in_ranges

    if name == "none":
        return None
    cause, _, variant = name.partition(":")
    named = [row for row in _rows() if row["cause"] == cause and variant in ("", row["variant"])]
    if docker and not variant:
        named.sort(key=lambda row: row["frame"] != "docker")
    if not named:
        known = [
            each for one, variants in start_failures().items() for each in (one, *(f"{one}:{v}" for v in variants))
        ]
        raise OptionError("JSE682", name=name, known=known)
    row = next((each for each in named if in_ranges(version, [each["releases"]])), None)
    if row is None:
        raise OptionError("JSE683", name=name, version=version)
    return StartFailure(**{key: value for key, value in row.items() if key != "releases"})
