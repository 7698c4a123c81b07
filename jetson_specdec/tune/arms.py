# SPDX-License-Identifier: Apache-2.0
"""The two arms of a comparison as plans of the same recipe. Pure: the owner's text is never written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field

from jetson_specdec.findings import Finding
from jetson_specdec.planning.plan import FileChange, Plan, UtilizationChange
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.workflow import Prepared
    from jetson_specdec.host import Host
    from jetson_specdec.server import Occupant
    from jetson_specdec.strategies import Situation

__all__ = ["Arms", "belongs", "draft_visible", "result_path"]

_UTILIZATION = "gpu-memory-utilization"


@frozen(kw_only=True)
class Arms:
    """What is compared.

    Attributes:
        situation: what the recipe is.
        plan: what was planned for it; `already` where it speculates.
        config: the speculative configuration of the ON arm.
        flags: flags (dashes) that the ON arm sets, the memory step among them.
        both: flags that both arms set (a pinned KV pool).
    """

    situation: Situation
    plan: Plan
    config: Mapping[str, Any]
    flags: Mapping[str, str] = field(factory=dict)
    both: Mapping[str, str] = field(factory=dict)

    def off(self) -> Plan:
        """Return the recipe without speculation: as it is, or with its own speculation taken out."""
        return self._made(None, self.both)

    def on(self, k: int | None, schedule: Mapping[str, Any] | None = None, *, pinned: bool = True) -> Plan:
        """Return the recipe with speculation.

        Args:
            k: drafted tokens; None: as the configuration says.
            schedule: keys of a batch schedule.
            pinned: with the flags of both arms; the result that is handed over has none of them.
        """
        return self._made(self.config_at(k, schedule), {**self.flags, **(self.both if pinned else {})})

    def result_off(self) -> Plan:
        """Return the recipe without speculation, to be handed over."""
        return self._made(None, {})

    def config_at(self, k: int | None, schedule: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the speculative configuration with this k."""
        config = dict(self.config)
        if k is not None:
            config["num_speculative_tokens"] = k
        return {**config, **(schedule or {})}

    def _made(self, config: Mapping[str, Any] | None, flags: Mapping[str, str]) -> Plan:
        """Edit the owner's text.

        Raises:
            UneditableError: it cannot be changed safely.
        """
        from jetson_specdec.recipe.edits import plan_edit

        here = self.situation
        active = here.speculation.active
        edit = plan_edit(
            here.recipe,
            here.command,
            here.flags,
            speculation=here.speculation,
            set_flags=flags,
            speculative_config=config,
            remove_speculation=config is None and active,
        )
        secrets = self.plan.recipe.secrets
        before = here.flags.gpu_memory_utilization
        after = float(flags[_UTILIZATION]) if _UTILIZATION in flags else before
        if config is None:
            outcome = "none"
        else:
            outcome = self.plan.outcome if self.plan.outcome != "already" else str(config.get("method") or "already")
        return evolve(
            self.plan,
            outcome=outcome,
            recipe=FileChange(path=here.recipe.path, before=here.recipe.text, after=edit.text_after, secrets=secrets),
            files=tuple(
                FileChange(path=each.path, before=each.before, after=each.after, secrets=secrets) for each in edit.files
            ),
            serve_args=edit.serve_args_after,
            added_args=edit.added_args,
            speculative_config=config,
            utilization=UtilizationChange(before=before, after=after, default=self.plan.utilization.default),
            memory=None,
            basis=None,
        )


def flags_of(plan: Plan) -> dict[str, str]:
    """Return the flags besides speculation that a plan sets."""
    use = plan.utilization
    if plan.outcome == "already" or use.after is None or use.after == use.before:
        return {}
    return {_UTILIZATION: f"{use.after:g}"}


def belongs(occupant: Occupant, situation: Situation) -> bool:
    """Whether a server that is in the way is this recipe's own: by its name, or because it serves the same model."""
    if occupant.kind in ("service", "unit") or occupant.holds == "name":
        return True
    names = {situation.flags.model, situation.identity.id} - {None}
    words = " ".join(occupant.argv) or occupant.command or ""
    if occupant.kind == "container" and situation.command.image is not None:
        return (occupant.command or "") == situation.command.image
    return any(name is not None and name in words for name in names)


def draft_visible(prepared: Prepared, situation: Situation, host: Host) -> tuple[Finding, ...]:
    """Say whether the drafter can be found where the server runs: mounts, offline flags, cache."""
    from jetson_specdec.apply.look import cache_roots
    from jetson_specdec.findings import Severity

    model = (prepared.plan.speculative_config or {}).get("model")
    if not isinstance(model, str):
        return ()
    contained = prepared.deployment.in_container
    if model.startswith("/"):
        place: str | None = model
        if contained:
            mounts = [each for each in situation.command.mounts if Path(model).is_relative_to(each.container)]
            best = max(mounts, key=lambda each: len(each.container), default=None)
            if best is None:
                return (_unseen(model, "no mount holds this path", Severity.BLOCKING),)
            place = None if best.host is None else f"{best.host}/{Path(model).relative_to(best.container)}"
        if place is not None and "$" not in place and host.kind(place) == "absent":
            return (_unseen(model, f"{place} does not exist", Severity.BLOCKING),)
        return ()
    told = prepared.disclosure
    cached = next((each.cached for each in told.fetches if each.name == model), None)
    if told.hub.offline and cached is False:
        return (_unseen(model, "downloads are forbidden, and the model cache does not hold it", Severity.BLOCKING),)
    if contained and not cache_roots(prepared.deployment, host):
        return (_unseen(model, "no mount holds the model cache, so each start downloads it again", Severity.WARNING),)
    return ()


def _unseen(draft: str, reason: str, severity: Any) -> Finding:
    return Finding.of("JSD979", severity=severity, draft=draft, reason=reason)


def result_path(recipe: Path, text: str) -> Path:
    """Return where a result goes: beside the recipe, under a name that is free or already holds this text."""
    for number in range(1, 1000):
        infix = "specdec" if number == 1 else f"specdec-{number}"
        path = recipe.with_name(f"{recipe.stem}.{infix}{recipe.suffix}")
        try:
            if path.read_bytes() == text.encode("utf-8", errors="surrogateescape"):
                return path
        except OSError:
            if not path.exists():
                return path
    raise AssertionError("a thousand results")
