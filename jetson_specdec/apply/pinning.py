# SPDX-License-Identifier: Apache-2.0
"""From names that move (`latest`, a branch) to ones that do not (a digest, a commit): said where it cannot be done.

`resolve_pins` asks (the local engine, the model cache, with leave the hub and the registry), `pin_plan` writes what
was found into a plan and is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve

from jetson_specdec.apply.disclosure import hub_model, is_commit
from jetson_specdec.apply.engine_image import inspect_image
from jetson_specdec.apply.environment import Hub, engine_env, hub_of
from jetson_specdec.apply.look import cache_roots, cached_commit
from jetson_specdec.errors import RecipeError
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.deployment import Deployment
    from jetson_specdec.apply.online import Online
    from jetson_specdec.host import Host
    from jetson_specdec.planning.plan import FileChange, Plan
    from jetson_specdec.recipe.edits import EditPlan

__all__ = ["Pin", "PinScope", "pin_plan", "resolve_pins"]

PinScope = Literal["none", "drafter", "all"]


@frozen(kw_only=True)
class Pin:
    """One name, and what it stands for now.

    Attributes:
        kind: `drafter`, `target` or `image`.
        name: repository id, or the image as written.
        asked: branch or tag in use.
        resolved: commit or digest, or None.
        source: `cache`, `engine`, `hub`, `registry`; None where unresolved.
        finding: what was found, or why nothing was.
    """

    kind: Literal["drafter", "target", "image"]
    name: str
    asked: str
    resolved: str | None = None
    source: str | None = None
    finding: Finding

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "kind": self.kind,
            "name": self.name,
            "asked": self.asked,
            "resolved": self.resolved,
            "source": self.source,
            "message": self.finding.message,
        }


def resolve_pins(
    deployment: Deployment, host: Host, *, scope: PinScope = "drafter", online: Online | None = None
) -> tuple[Pin, ...]:
    """Find out what the moving names of a deployment stand for.

    Args:
        deployment: the plan, read again.
        host: the machine: its container engine and its model cache.
        scope: `drafter` looks at what a plan adds, `all` at target and image too.
        online: asks hub and registry where the machine does not know; None asks nobody.
    """
    if scope == "none":
        return ()
    found = []
    config = dict(deployment.plan.speculative_config or {})
    hub = hub_of(engine_env(deployment.command, host.environ))
    drafter = hub_model(config.get("model")) if deployment.plan.changes else None
    if drafter is not None and not is_commit(config.get("revision")):
        found.append(_commit("drafter", drafter, config.get("revision"), deployment, host, hub, online))
    if scope == "drafter":
        return tuple(found)
    target = hub_model(deployment.flags.model)
    if target is not None and not is_commit(deployment.flags.revision):
        found.append(_commit("target", target, deployment.flags.revision, deployment, host, hub, online))
    if deployment.command.image is not None and "@" not in deployment.command.image:
        found.append(_digest(deployment, deployment.command.image, host, online))
    return tuple(found)


def _commit(
    kind: Literal["drafter", "target"],
    repo: str,
    revision: str | None,
    deployment: Deployment,
    host: Host,
    hub: Hub,
    online: Online | None,
) -> Pin:
    asked = revision or "main"
    if hub.service == "modelscope":
        return Pin(kind=kind, name=repo, asked=asked, finding=Finding.of("JSD825", repo=repo))
    commit, source = cached_commit(host, cache_roots(deployment, host), repo, asked), "cache"
    if commit is None and online is not None:
        facts = online.hub_facts(repo, asked, endpoint=hub.endpoint)
        commit, source = (facts.commit if facts is not None and is_commit(facts.commit) else None), "hub"
        if commit is None:
            return Pin(kind=kind, name=repo, asked=asked, finding=Finding.of("JSD824", name=repo, host=hub.host))
    if commit is None:
        return Pin(kind=kind, name=repo, asked=asked, finding=Finding.of("JSD823", repo=repo, asked=asked))
    found = Finding.of("JSD820", name=repo, asked=asked, resolved=commit, source=source)
    return Pin(kind=kind, name=repo, asked=asked, resolved=commit, source=source, finding=found)


def _digest(deployment: Deployment, image: str, host: Host, online: Online | None) -> Pin:
    asked = image.rpartition("/")[2].partition(":")[2] or "latest"
    facts = inspect_image(host, image, launcher=deployment.command.launcher)
    digest, source = (facts.digest if facts is not None else None), "engine"
    if digest is None and facts is not None and facts.present:
        return Pin(kind="image", name=image, asked=asked, finding=Finding.of("JSD822", image=image))
    if digest is None and online is not None:
        digest, source = online.image_digest(image), "registry"
        if digest is None:
            from jetson_specdec.apply.environment import registry_of

            finding = Finding.of("JSD824", name=image, host=registry_of(image)[0])
            return Pin(kind="image", name=image, asked=asked, finding=finding)
    if digest is None:
        return Pin(kind="image", name=image, asked=asked, finding=Finding.of("JSD821", image=image))
    found = Finding.of("JSD820", name=image, asked=asked, resolved=digest, source=source)
    return Pin(kind="image", name=image, asked=asked, resolved=digest, source=source, finding=found)


# ---------------------------------------------------------------------------------------------------------- rewriting


def pin_plan(deployment: Deployment, pins: Iterable[Pin]) -> Plan:
    """Write resolved pins into a plan: `revision` keys and `--revision` as plans edit them, the image as one word.

    What cannot be written safely is left and said. The plan's findings gain one for each pin.
    """
    pins = tuple(pins)
    plan = deployment.plan
    findings = [pin.finding for pin in pins]
    resolved: dict[str, Pin] = {pin.kind: pin for pin in pins if pin.resolved is not None}
    if "drafter" in resolved or "target" in resolved:
        edited = _with_revisions(deployment, resolved)
        if isinstance(edited, Finding):
            findings.append(edited)
        else:
            plan = edited
    image = resolved.get("image")
    if image is not None:
        rewritten = _with_digest(plan, deployment, image)
        if rewritten is None:
            findings.append(Finding.of("JSD826", name=image.name, resolved=image.resolved))
        else:
            # What a plan says of a moving image no longer holds.
            kept = tuple(each for each in rewritten.findings if each.topic != "unpinned")
            steps = tuple(step for step in rewritten.next_steps if step.kind != "pin-image")
            plan = evolve(rewritten, findings=kept, next_steps=steps)
    return evolve(plan, findings=(*plan.findings, *findings))


def _with_revisions(deployment: Deployment, resolved: Mapping[str, Pin]) -> Plan | Finding:
    from jetson_specdec.recipe.edits import plan_edit

    plan, config, flags = deployment.plan, None, {}
    if "drafter" in resolved:
        config = {**dict(plan.speculative_config or {}), "revision": resolved["drafter"].resolved}
    if "target" in resolved:
        flags = {"revision": str(resolved["target"].resolved)}
    try:
        edit = plan_edit(
            deployment.recipe, deployment.command, deployment.flags, set_flags=flags, speculative_config=config
        )
    except RecipeError:
        pin = next(iter(resolved.values()))
        return Finding.of("JSD826", name=pin.name, resolved=pin.resolved)
    return evolve(
        plan,
        recipe=evolve(plan.recipe, after=edit.text_after),
        files=_files(plan, edit),
        serve_args=edit.serve_args_after,
        added_args=_added(plan, config, edit),
        speculative_config=config if config is not None else plan.speculative_config,
    )


def _files(plan: Plan, edit: EditPlan) -> tuple[FileChange, ...]:
    """The other files with their first text as before and their last as after."""
    from jetson_specdec.planning.plan import FileChange

    after = {file.path: file for file in edit.files}
    kept = [
        evolve(change, after=after.pop(change.path).after) if change.path in after else change for change in plan.files
    ]
    new = [
        FileChange(path=file.path, before=file.before, after=file.after, secrets=plan.recipe.secrets)
        for file in after.values()
    ]
    return (*kept, *new)


def _added(plan: Plan, config: Mapping[str, Any] | None, edit: EditPlan) -> tuple[str, ...]:
    """The new words: an object that was added before is the one with the revision now."""
    from jetson_specdec.recipe.spec_text import spec_json

    words = list(plan.added_args)
    if config is not None and plan.speculative_config is not None:
        old = spec_json(dict(plan.speculative_config))
        words = [spec_json(dict(config)) if word == old else word for word in words]
    return (*words, *edit.added_args)


def _with_digest(plan: Plan, deployment: Deployment, pin: Pin) -> Plan | None:
    """Put a digest behind the image where it stands once in the text, and read the text again to be sure."""
    from jetson_specdec.recipe.load import load_recipe

    written = deployment.command.image
    text = plan.recipe.after
    if written is None:
        return None
    places = [match.start() for match in re.finditer(rf"(?<![\w./:@-]){re.escape(written)}(?![\w./:@-])", text)]
    places = [place for place in places if not text[text.rfind("\n", 0, place) + 1 : place].lstrip().startswith("#")]
    if len(places) != 1:
        return None
    # Older podman takes a tag or a digest, not both.
    with_tag = deployment.command.launcher != "podman"
    bare = written if with_tag else re.sub(r":[\w.-]+$", "", written)
    new = f"{bare}@{pin.resolved}"
    after = text[: places[0]] + new + text[places[0] + len(written) :]
    try:
        again = load_recipe(plan.recipe.path or "-", text=after)
        before = load_recipe(plan.recipe.path or "-", text=text)
    except RecipeError:
        return None
    index = plan.command_index
    same = len(again.commands) == len(before.commands) and all(
        [arg.value for arg in one.args] == [arg.value for arg in other.args]
        for one, other in zip(again.commands, before.commands, strict=True)
    )
    if not same or again.commands[index].image != new:
        return None
    return evolve(plan, recipe=evolve(plan.recipe, after=after))
