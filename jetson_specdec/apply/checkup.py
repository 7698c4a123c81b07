# SPDX-License-Identifier: Apache-2.0
"""The pre-flight of a board and a recipe: one row a question, each with what was found and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, field

from jetson_specdec import messages
from jetson_specdec.findings import Finding, Severity, worst
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.deployment import Deployment
    from jetson_specdec.apply.disclosure import Surroundings
    from jetson_specdec.apply.online import Online
    from jetson_specdec.device.core import Device
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.host import Host
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.planning.plan import Plan

__all__ = ["Check", "Checkup", "Subject", "doctor"]

SCHEMA_VERSION = 1
State = Literal["ok", "info", "warning", "blocking", "unknown"]


@frozen(kw_only=True)
class Check:
    """One row.

    Attributes:
        name: a short word a script can match, such as `memory`.
        values: what was found; empty where nothing could be.
        findings: what to know or do about it.
    """

    name: str
    values: Mapping[str, Any] = field(factory=dict)
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> State:
        """`ok`, the worst finding's severity, or `unknown` where nothing was found and nothing is said."""
        found = worst(self.findings)
        if found is not None:
            return found.value
        return "ok" if self.values else "unknown"

    @property
    def text(self) -> str:
        """What was found, in one line."""
        return messages.render(f"check-{self.name}" if self.values else "check-unknown", self.values)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: `name`, `state`, `text`, `values`, `findings`."""
        return {
            "name": self.name,
            "state": self.state,
            "text": self.text,
            "values": dict(self.values),
            "findings": [finding.to_json() for finding in self.findings],
        }


@frozen(kw_only=True)
class Checkup:
    """All rows.

    Attributes:
        checks: in the order to read them.
        device: the board they are about.
    """

    checks: tuple[Check, ...]
    device: Device

    @property
    def worst(self) -> Severity | None:
        """The worst severity, or None where nothing is to be said."""
        return worst(finding for check in self.checks for finding in check.findings)

    @property
    def exit_code(self) -> int:
        """0, 40 for warnings, 41 for something that blocks."""
        return {Severity.WARNING: 40, Severity.BLOCKING: 41}.get(self.worst or Severity.INFO, 0)

    def check(self, name: str) -> Check | None:
        """Return a row by its name."""
        return next((check for check in self.checks if check.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `doctor --json`."""
        found = self.worst
        return {
            "schema_version": SCHEMA_VERSION,
            "worst": None if found is None else found.value,
            "exit_code": self.exit_code,
            "checks": [check.to_json() for check in self.checks],
            "device": self.device.to_json(),
        }


@frozen(kw_only=True)
class Subject:
    """What is examined: a machine, and perhaps what is to be served on it.

    Attributes:
        host: the machine.
        device: the board.
        deployment: the planned recipe, or None.
        standing: the recipe as it is written now, or None.
        around: its caches and image, or None.
        release: the engine of the recipe, or of the one named by the user, or None.
    """

    host: Host
    device: Device
    deployment: Deployment | None = None
    standing: Deployment | None = None
    around: Surroundings | None = None
    release: EngineRelease | None = None

    @property
    def needs_docker(self) -> bool | None:
        """Whether the recipe runs in a container of the local engine; None without a recipe."""
        if self.deployment is None:
            return None
        return self.deployment.command.launcher in ("docker", "podman", "nerdctl", "jetson-containers", "compose")


def _unchanged(plan: Plan) -> Plan:
    """The plan's texts as they are now: that is what is started until something is applied."""
    files = tuple(evolve(change, after=change.before) for change in plan.files)
    return evolve(plan, recipe=evolve(plan.recipe, after=plan.recipe.before), files=files)


def doctor(
    host: Host,
    device: Device,
    *,
    plan: Plan | None = None,
    release: EngineRelease | None = None,
    online: Online | None = None,
    catalog: Catalog | None = None,
) -> Checkup:
    """Examine a machine, and where a plan is given whether it can be served there now. Changes nothing.

    Args:
        host: the machine.
        device: the board.
        plan: of the recipe that is to be served.
        release: the engine where there is no plan.
        online: looks which places on the network answer; None looks at none.
        catalog: knows which targets ask for consent.
    """
    from jetson_specdec.apply import checks_board, checks_engine, checks_memory, checks_models
    from jetson_specdec.apply.deployment import read_deployment
    from jetson_specdec.apply.look import look_around

    deployment = read_deployment(plan, host) if plan is not None else None
    subject = Subject(
        host=host,
        device=device,
        deployment=deployment,
        standing=read_deployment(_unchanged(plan), host) if plan is not None else None,
        around=look_around(deployment, host, catalog=catalog) if deployment is not None else None,
        release=plan.release if plan is not None else release,
    )
    holders = checks_board.gpu_holders(host, device.family)
    port = checks_engine.port(subject)
    busy = bool(port.findings) or checks_board.engine_runs(holders)
    found = [
        checks_board.board(subject),
        checks_board.l4t(subject),
        checks_board.power(subject),
        checks_board.clocks(subject),
        *checks_board.mig(subject),
        checks_board.holders(subject, holders),
        checks_engine.docker(subject),
        *checks_engine.image(subject),
        *checks_engine.runtime(subject),
        port,
        *checks_engine.container_name(subject),
        checks_memory.memory(subject, busy=busy),
        checks_memory.swap(subject),
        checks_models.cache(subject),
        checks_models.token(subject),
        checks_models.disk(subject),
        *checks_models.interrupted(subject),
    ]
    if online is not None:
        from jetson_specdec.apply.checks_network import network

        found += network(subject, online)
    return Checkup(checks=tuple(found), device=device)
