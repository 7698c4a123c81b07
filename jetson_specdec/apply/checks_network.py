# SPDX-License-Identifier: Apache-2.0
"""Which places on the network answer, and what to do in mainland China where they do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.checkup import Check
from jetson_specdec.apply.environment import engine_env, hub_of, registry_of
from jetson_specdec.findings import Finding, Severity
from jetson_specdec.packaged import packaged_json

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Subject
    from jetson_specdec.apply.online import Online, Reach

__all__ = ["network", "places"]


def places(subject: Subject) -> list[dict[str, Any]]:
    """Return the places to look at: those everybody needs, and the mirror in `HF_ENDPOINT`.

    Each has `name`, `label`, `url`, `finding` (code where it does not answer) and `needed` (by this recipe).
    """
    deployment = subject.deployment
    env = engine_env(deployment.command, subject.host.environ) if deployment is not None else dict(subject.host.environ)
    hub = hub_of(env)
    needed = _needed(subject, hub.service if hub.official or hub.service == "modelscope" else "mirror")
    found = [dict(each) for each in packaged_json("apply", "data", "places.json")["places"]]
    if not hub.official:
        mirror = {"name": "mirror", "label": hub.host, "url": hub.endpoint + "/", "finding": "JSD884"}
        found.insert(1, mirror)
    return [{**each, "needed": each["name"] in needed} for each in found]


def _needed(subject: Subject, hub: str) -> set[str]:
    deployment, around = subject.deployment, subject.around
    if deployment is None or around is None:
        return {hub}
    from jetson_specdec.apply.disclosure import disclose

    fetches = disclose(deployment, around).fetches
    needed = {hub} if any(each.kind != "image" and each.cached is not True for each in fetches) else set()
    image = deployment.command.image
    if image is not None and (around.image is None or not around.image.present):
        needed.add(registry_of(image)[0])
    return needed


def network(subject: Subject, online: Online) -> list[Check]:
    """Look at all places at the same time."""
    from concurrent.futures import ThreadPoolExecutor

    wanted = places(subject)
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        answers = list(pool.map(lambda place: online.reach(place["url"]), wanted))
    return [_row(place, answer) for place, answer in zip(wanted, answers, strict=True)]


def _row(place: dict[str, Any], answer: Reach) -> Check:
    values = {
        "label": place["label"],
        "place": place["name"],
        "answers": "yes" if answer.answers else "no",
        "status": answer.status,
        "reason": answer.reason,
        "needed": place["needed"],
    }
    if answer.answers:
        return Check(name="network", values=values)
    severity = Severity.WARNING if place["needed"] else Severity.INFO
    finding = Finding.of(
        place["finding"], severity=severity, label=place["label"], reason=answer.reason or answer.status
    )
    return Check(name="network", values=values, findings=(finding,))
