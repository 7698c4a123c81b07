# SPDX-License-Identifier: Apache-2.0
"""The answer: what to serve with, what it costs, and every reason."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
from attrs import field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.estimate.memory import MemoryLedger
    from jetson_specdec.estimate.speed_outlook import SpeedOutlook
    from jetson_specdec.strategies.core import Download, Proposal, Situation

__all__ = ["CommandSummary", "FileChange", "Plan", "UtilizationChange", "unified_diff"]

SCHEMA_VERSION = 1


@frozen(kw_only=True)
class UtilizationChange:
    """`--gpu-memory-utilization` in the recipe and in the plan.

    Attributes:
        before: the value written in the recipe; None where the flag is absent or cannot be resolved.
        after: the value the planned recipe states; equal to `before` where nothing is changed.
        default: the engine's own default where the flag is absent and the release is known.
    """

    before: float | None = None
    after: float | None = None
    default: float | None = None


@frozen(kw_only=True)
class FileChange:
    """A text before and after; equal where nothing changes. Holds secrets literally: print `to_json`, not this."""

    path: str | None
    before: str
    after: str
    secrets: tuple[str, ...] = field(factory=tuple, repr=False)

    @property
    def changed(self) -> bool:
        """Whether there is anything to write."""
        return self.before != self.after

    def masked(self) -> tuple[str, str, bool]:
        """Return both texts with secrets masked, and whether anything was."""
        from jetson_specdec.recipe.masking import redact

        before, hid_before = redact(self.before, self.secrets)
        after, hid_after = redact(self.after, self.secrets)
        return before, after, hid_before or hid_after

    @property
    def diff(self) -> str:
        """A unified diff with secrets masked; empty where nothing changes."""
        before, after, _ = self.masked()
        return unified_diff(before, after, self.path or "recipe")


@frozen(kw_only=True)
class CommandSummary:
    """One serve command of a text that holds several."""

    index: int
    line: int
    engine: str
    serve_form: str
    image: str | None
    target: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return attrs.asdict(self)


@frozen(kw_only=True)
class Plan:
    """What was decided for one serve command, with everything needed to act on it.

    Attributes:
        outcome: `eagle3`, `draft_model`, another strategy's name, `none`, `already` or `refuse`.
        target: the model served, or None where it cannot be told.
        serve_args: every argument after `serve` in the planned recipe; words that only the environment can resolve
            stand as written. May hold secrets: `to_json` masks them.
        added_args: the arguments that are new.
        speculative_config: the object that is added; for `already` the one in force.
        utilization: the memory step.
        recipe: the recipe's text before and after.
        files: other files that the plan changes (a `--config` YAML).
        rejected: strategy → why it was not taken.
        memory: what the two arms need and leave, or None where too little is known.
        downloads: what would be fetched.
        findings: every reason and warning, most severe first.
        next_steps: what to do now, in order.
        commands: the serve commands of the text.
        command_index: which of them this plan is for.
        device, release: what the decision rests on.
        serve_form, editable, already_speculative, existing_method: how the recipe was read.
        basis: the situation and the proposal that was taken, from which `speed` is worked out when it is asked for.
    """

    outcome: str
    target: str | None
    recipe: FileChange
    serve_args: tuple[str, ...] = ()
    added_args: tuple[str, ...] = ()
    speculative_config: Mapping[str, Any] | None = None
    utilization: UtilizationChange = UtilizationChange()
    files: tuple[FileChange, ...] = ()
    rejected: Mapping[str, Finding] = field(factory=dict)
    memory: MemoryLedger | None = None
    downloads: tuple[Download, ...] = ()
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()
    commands: tuple[CommandSummary, ...] = ()
    command_index: int = 0
    device: Device | None = None
    release: EngineRelease | None = None
    serve_form: str = "vllm_serve"
    editable: bool = True
    already_speculative: bool = False
    existing_method: str | None = None
    basis: tuple[Situation, Proposal] | None = field(default=None, repr=False, eq=False)

    @cached_property
    def speed(self) -> SpeedOutlook | None:
        """Tokens per round needed at each k, and a range where acceptance is published; None without a drafter."""
        if self.basis is None:
            return None
        from jetson_specdec.planning.outlook import speed_outlook

        return speed_outlook(*self.basis)

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The texts that this plan would change."""
        return tuple(change for change in (self.recipe, *self.files) if change.changed)

    def has(self, topic: str) -> bool:
        """Say whether a finding with this topic is among the reasons."""
        return any(finding.topic == topic for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `plan --json`, secrets masked."""
        from jetson_specdec.recipe.masking import redact

        before, after, hidden = self.recipe.masked()
        serve_args = []
        for word in self.serve_args:
            masked, hit = redact(word, self.recipe.secrets)
            serve_args.append(masked)
            hidden = hidden or hit
        return {
            "schema_version": SCHEMA_VERSION,
            "outcome": self.outcome,
            "target": self.target,
            "serve_args": serve_args,
            "added_args": list(self.added_args),
            "speculative_config": None if self.speculative_config is None else dict(self.speculative_config),
            "gpu_memory_utilization": attrs.asdict(self.utilization),
            "recipe": {
                "path": self.recipe.path,
                "before": before,
                "after": after,
                "diff": self.recipe.diff,
                "redacted": hidden,
            },
            "files": [_file_json(change) for change in self.files],
            "rejected": _hidden({name: each.message for name, each in self.rejected.items()}, self.recipe.secrets),
            "memory": None if self.memory is None else self.memory.to_json(),
            "speed": None if self.speed is None else self.speed.to_json(),
            "downloads": [attrs.asdict(download) for download in self.downloads],
            "findings": _hidden([finding.to_json() for finding in self.findings], self.recipe.secrets),
            "commands": [command.to_json() for command in self.commands],
            "command_index": self.command_index,
            "serve_form": self.serve_form,
            "editable": self.editable,
            "already_speculative": self.already_speculative,
            "existing_method": self.existing_method,
            "device": None if self.device is None else self.device.to_json(),
            "engine": None if self.release is None else attrs.asdict(self.release),
            "next_steps": [step.to_json() for step in self.next_steps],
        }


def _hidden(value: Any, secrets: tuple[str, ...]) -> Any:
    """Mask secrets in every text of a JSON value: a message may quote a bad value, and that may be one."""
    from jetson_specdec.recipe.masking import redact

    if isinstance(value, str):
        return redact(value, secrets)[0]
    if isinstance(value, dict):
        return {name: _hidden(each, secrets) for name, each in value.items()}
    return [_hidden(each, secrets) for each in value] if isinstance(value, list) else value


def _file_json(change: FileChange) -> dict[str, Any]:
    before, after, hidden = change.masked()
    return {"path": change.path, "before": before, "after": after, "diff": change.diff, "redacted": hidden}


def unified_diff(before: str, after: str, name: str) -> str:
    """Return a unified diff of two texts, empty where they are equal."""
    if before == after:
        return ""
    from difflib import unified_diff as lines_of

    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    lines = lines_of(old, new, f"{name} (now)", f"{name} (planned)", n=2)
    return "".join(each if each.endswith("\n") else f"{each}\n\\ No newline at end of file\n" for each in lines)
