# SPDX-License-Identifier: Apache-2.0
"""`tune --restore`: after a tune was killed, end what it left running and bring the old server back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding, Step

if TYPE_CHECKING:
    from jetson_specdec.server import Restored
    from jetson_specdec.server.commands import Runner

__all__ = ["findings_of", "restore", "unfinished"]


def restore(state_dir: str | Path | None = None, *, runner: Runner | None = None) -> tuple[Restored, ...]:
    """End what killed tunes left behind, and bring back what they had taken down.

    Nothing is touched that was not started or taken down by this package.

    Args:
        state_dir: where started servers are written down; None: the usual place.
        runner: runs `docker` and `systemctl`.

    Raises:
        ServerError: a tune is at work (JSE935); nothing was touched.
    """
    from jetson_specdec.server.restoring import restore as bring_back

    return bring_back(state_dir, runner=runner)


def findings_of(restored: tuple[Restored, ...]) -> tuple[Finding, ...]:
    """Return what to say about it."""
    found = []
    for each in restored:
        if each.unreadable is not None:
            found.append(Finding.of("JSD996", path=each.path, reason=each.unreadable))
        if each.brought_back:
            found.append(Finding.of("JSD974", names=list(each.brought_back)))
        if each.running:
            found.append(Finding.of("JSD997", names=list(each.running)))
        for name, reason in each.failed:
            if each.path is None:
                found.append(Finding.of("JSD975", name=name, reason=reason))
            else:
                found.append(Finding.of("JSD998", name=name, reason=reason, path=each.path))
    return tuple(found)


def unfinished(state_dir: str | Path | None = None) -> tuple[Step, ...]:
    """Return how killed tunes can go on; asked before `restore`, which forgets them."""
    from jetson_specdec.errors import ReportError
    from jetson_specdec.server.state import default_state_dir, read_states
    from jetson_specdec.tune.evidence import Evidence

    folder = Path(state_dir) if state_dir is not None else default_state_dir()
    steps = []
    for claim in read_states(folder)[1]:
        recipe, evidence = claim.about.get("recipe"), claim.about.get("evidence")
        if claim.living or recipe is None or evidence is None:
            continue
        try:
            over = Evidence(evidence).state()["status"] == "done"
        except (ReportError, KeyError):
            continue
        if not over:
            steps.append(resume_step(recipe, evidence))
    return tuple(steps)


def resume_step(recipe: str, folder: str) -> Step:
    """Return how a tune goes on from its evidence."""
    return Step.of("tune-resume", command=f"jetson-specdec tune {shlex.quote(recipe)} --resume {shlex.quote(folder)}")
