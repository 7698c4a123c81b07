# SPDX-License-Identifier: Apache-2.0
"""The model cache, the token, and room on the disk for what has to be fetched."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.checkup import Check
from jetson_specdec.findings import Finding

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Subject
    from jetson_specdec.apply.disclosure import Disclosure
    from jetson_specdec.host import Host

__all__ = ["cache", "disk", "free_bytes", "interrupted", "token"]

SPARE = 10 * 2**30
"""Less than this left after the downloads is worth a warning: logs, compiled kernels and the next image need room."""


def _disclosure(subject: Subject) -> Disclosure | None:
    if subject.deployment is None or subject.around is None:
        return None
    from jetson_specdec.apply.disclosure import disclose

    return disclose(subject.deployment, subject.around)


def _roots(subject: Subject) -> tuple[str, ...]:
    if subject.deployment is not None:
        from jetson_specdec.apply.look import cache_roots

        return cache_roots(subject.deployment, subject.host)
    from jetson_specdec.models.local import cache_folder

    place = cache_folder(subject.host)
    return (place,) if place else ()


def cache(subject: Subject) -> Check:
    """Where the model cache is, and what of the recipe is in it."""
    from jetson_specdec.apply.look import cache_is_kept

    roots, told = _roots(subject), _disclosure(subject)
    deployment = subject.deployment
    if not roots:
        fetched = [each.name for each in told.fetches if each.kind != "image"] if told is not None else []
        lost = deployment is not None and bool(fetched) and not cache_is_kept(deployment, subject.host)
        return Check(name="cache", findings=(Finding.of("JSD872", repos=fetched),) if lost else ())
    present = any(subject.host.kind(root) == "directory" for root in roots)
    models = [each for each in told.fetches if each.kind != "image"] if told is not None else []
    missing = [each.name for each in models if each.cached is False or not present]
    values = {
        "folder": roots[0],
        "present": "yes" if present else "no",
        "cached": [each.name for each in models if each.cached],
        "missing": missing,
    }
    findings: tuple[Finding, ...] = ()
    if missing and told is not None:
        findings = (Finding.of("JSD871" if told.hub.offline else "JSD870", repos=missing, host=told.hub.host),)
    return Check(name="cache", values=values, findings=findings)


def token(subject: Subject) -> Check:
    """Whether a Hugging Face token is at hand where one is needed, and whom it would be sent to. Never its value."""
    from jetson_specdec.apply.environment import engine_env, hub_of

    host, deployment = subject.host, subject.deployment
    env = engine_env(deployment.command, host.environ) if deployment is not None else dict(host.environ)
    hub = hub_of(env)
    files = [str(PurePosixPath(root).parent / "token") for root in _roots(subject)]
    if deployment is None or not deployment.in_container:
        named = env.get("HF_TOKEN_PATH")
        files = [named] if named else files
    stored = any(host.kind(path) == "file" for path in files)
    where = "environment" if hub.token else "file" if stored else "none"
    findings = []
    told = _disclosure(subject)
    gated = [each.name for each in told.fetches if each.gated and each.cached is not True] if told is not None else []
    if gated and where == "none":
        findings.append(Finding.of("JSD874", repos=gated))
    if where != "none" and not hub.official and not hub.offline and (hub.sends_token or stored):
        findings.append(Finding.of("JSD802", host=hub.host))
    return Check(name="token", values={"where": where, "endpoint": hub.endpoint}, findings=tuple(findings))


# -------------------------------------------------------------------------------------------------------------- disk


def free_bytes(host: Host, path: str) -> tuple[int, str] | None:
    """Return what is free on a path's file system, and where that is mounted; None where it cannot be told."""
    place = PurePosixPath(path)
    while host.live and host.kind(str(place)) != "directory" and place != place.parent:
        place = place.parent
    done = host.run(("df", "-Pk", str(place)), timeout=10.0)
    if done is None or not done.ok:
        return None
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    row = next((cells for cells in rows if len(cells) >= 6 and cells[3].isdigit()), None)
    return None if row is None else (int(row[3]) * 1024, " ".join(row[5:]))


def disk(subject: Subject) -> Check:
    """Whether the file system of the model cache has room for what has to be fetched."""
    roots, told = _roots(subject), _disclosure(subject)
    found = free_bytes(subject.host, roots[0]) if roots else None
    if found is None:
        return Check(name="disk")
    free, mount = found
    fetched = [each for each in told.fetches if each.kind != "image" and each.cached is not True] if told else []
    needed = sum(each.bytes or 0 for each in fetched)
    unknown = [each.name for each in fetched if each.bytes is None]
    values: dict[str, Any] = {"free": free, "mount": mount, "needed": needed if fetched and not unknown else None}
    findings = []
    if needed > free:
        findings.append(Finding.of("JSD875", needed=needed, free=free, mount=mount))
    elif free - needed < SPARE:
        findings.append(Finding.of("JSD876", left=free - needed, mount=mount))
    if unknown:
        findings.append(Finding.of("JSD877", repos=unknown))
    return Check(name="disk", values=values, findings=tuple(findings))


def interrupted(subject: Subject) -> tuple[Check, ...]:
    """Whether an apply of this recipe was interrupted; a row only where one was."""
    path = subject.deployment.plan.recipe.path if subject.deployment is not None else None
    if path is None:
        return ()
    import os

    from jetson_specdec.apply.manifest import find_manifests
    from jetson_specdec.errors import ApplyError

    try:
        pending = [each for each in find_manifests(Path(os.path.realpath(path))) if each.state == "pending"]
    except ApplyError as error:
        return (Check(name="apply", findings=(Finding.of("JSD879", reason=str(error), path=path),)),)
    if not pending:
        return ()
    finding = Finding.of("JSD878", path=path, manifest=str(pending[-1].path))
    return (Check(name="apply", values={"state": "pending"}, findings=(finding,)),)
