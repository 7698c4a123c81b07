# SPDX-License-Identifier: Apache-2.0
"""Looking around a deployment before it is disclosed: model caches, the image, opt-out files. All through the host."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jetson_specdec.apply.disclosure import Surroundings, hub_model
from jetson_specdec.apply.engine_image import inspect_image
from jetson_specdec.apply.environment import engine_env, hub_of

if TYPE_CHECKING:
    from jetson_specdec.apply.deployment import Deployment
    from jetson_specdec.apply.online import HubFacts, Online
    from jetson_specdec.host import Host
    from jetson_specdec.models.catalog import Catalog

__all__ = ["cache_is_kept", "cache_roots", "cached_commit", "look_around", "models_of", "snapshot_folder"]

IN_CONTAINER = "/root/.cache/huggingface/hub"
"""Where an engine that runs as root keeps its models when nothing else is said."""
OPT_OUT = ".config/vllm/do_not_track"


def models_of(deployment: Deployment) -> tuple[str, ...]:
    """Return the repositories a deployment needs: drafters, then the target."""
    names = [download.repo for download in deployment.plan.downloads]
    target = hub_model(deployment.flags.model)
    return tuple(dict.fromkeys([*names, *([target] if target else [])]))


def cache_roots(deployment: Deployment, host: Host) -> tuple[str, ...]:
    """Return the folders on this machine that the recipe's model cache may be in."""
    from jetson_specdec.models.local import cache_folder

    command = deployment.command
    inside = _named_cache(deployment, host)
    if not deployment.in_container:
        # A unit runs as a user of its own: without a folder in its environment its cache is not known.
        place = inside or (cache_folder(host) if command.launcher == "native" else None)
        return (place,) if place else ()
    wanted = PurePosixPath(inside or IN_CONTAINER)
    found: list[str] = []
    fitting = [mount for mount in command.mounts if mount.host and wanted.is_relative_to(mount.container)]
    for mount in sorted(fitting, key=lambda mount: -len(mount.container))[:1]:
        place = _on_host(mount.host or "", deployment, host)
        if place is not None:
            found.append((PurePosixPath(place) / wanted.relative_to(mount.container)).as_posix())
    return tuple(found)


def _named_cache(deployment: Deployment, host: Host) -> str | None:
    """The cache folder that the engine's environment names, as the engine sees it."""
    env = engine_env(deployment.command, host.environ)
    named = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    return named or (f"{env['HF_HOME']}/hub" if env.get("HF_HOME") else None)


def cache_is_kept(deployment: Deployment, host: Host) -> bool:
    """Whether what the engine downloads outlives its container: a folder or a named volume holds it."""
    if not deployment.in_container:
        return True
    wanted = PurePosixPath(_named_cache(deployment, host) or IN_CONTAINER)
    return any(wanted.is_relative_to(mount.container) for mount in deployment.command.mounts)


def _on_host(path: str, deployment: Deployment, host: Host) -> str | None:
    home = host.environ.get("HOME")
    for mark in ("${HOME}", "$HOME", "~"):
        if path == mark or path.startswith(mark + "/"):
            if not home:
                return None
            path = home + path[len(mark) :]
    if "$" in path or path.startswith("~"):
        return None
    if not path.startswith("/"):
        folder = PurePosixPath(deployment.plan.recipe.path or "").parent
        if not folder.is_absolute():
            return None
        path = (folder / path).as_posix()
    return path


def snapshot_folder(host: Host, roots: tuple[str, ...], repo: str) -> str | None:
    """Return a repository's folder in a model cache, or None."""
    for root in roots:
        folder = f"{root.rstrip('/')}/models--{repo.replace('/', '--')}"
        if host.kind(folder) == "directory":
            return folder
    return None


def cached_commit(host: Host, roots: tuple[str, ...], repo: str, revision: str | None = None) -> str | None:
    """Return the commit that a branch had when it was downloaded, where its snapshot is still in the cache."""
    from jetson_specdec.apply.disclosure import is_commit

    folder = snapshot_folder(host, roots, repo)
    if folder is None:
        return None
    commit = (host.read_text(f"{folder}/refs/{revision or 'main'}", limit=256) or "").strip()
    return commit if is_commit(commit) and commit in host.list_dir(f"{folder}/snapshots") else None


def _is_cached(host: Host, roots: tuple[str, ...], repo: str) -> bool | None:
    if not any(host.kind(root) == "directory" for root in roots):
        return None
    folder = snapshot_folder(host, roots, repo)
    return folder is not None and bool(host.list_dir(f"{folder}/snapshots"))


def look_around(
    deployment: Deployment, host: Host, *, online: Online | None = None, catalog: Catalog | None = None
) -> Surroundings:
    """Gather what a disclosure rests on.

    Args:
        deployment: the plan, read again.
        host: the machine.
        online: asks the hub for sizes, licences and gates; None asks nobody.
        catalog: knows whether a target is gated.
    """
    command = deployment.command
    roots = cache_roots(deployment, host)
    hub = hub_of(engine_env(command, host.environ))
    cached = {repo: state for repo in models_of(deployment) if (state := _is_cached(host, roots, repo)) is not None}
    said: dict[str, HubFacts] = {}
    if online is not None and hub.service == "huggingface":
        for repo in models_of(deployment):
            facts = online.hub_facts(repo, None, endpoint=hub.endpoint)
            if facts is not None:
                said[repo] = facts
    record = catalog.target(deployment.plan.target) if catalog is not None and deployment.plan.target else None
    image = command.image
    opt_out: bool | None = None
    if command.launcher == "native" and host.environ.get("HOME"):
        opt_out = host.kind(f"{host.environ['HOME']}/{OPT_OUT}") == "file"
    return Surroundings(
        environ=host.environ,
        cached=cached,
        image=inspect_image(host, image, launcher=command.launcher) if image else None,
        do_not_track=opt_out,
        hub=said,
        target_gated=record.gated if record is not None else None,
    )
