# SPDX-License-Identifier: Apache-2.0
"""What a person is told before anything is written: downloads, whose code runs, open ports, telemetry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import field

from jetson_specdec.apply.environment import Hub, Telemetry, engine_env, hub_of, registry_of, telemetry_of
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.deployment import Deployment
    from jetson_specdec.apply.engine_image import ImageFacts
    from jetson_specdec.apply.online import HubFacts

__all__ = ["Disclosure", "Fetch", "Listener", "Surroundings", "disclose", "hub_model", "is_commit"]

DEFAULT_PORT = 8000
_LOOPBACK = ("127.0.0.1", "::1", "[::1]", "localhost")
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
VOCABULARY = "TIKTOKEN_ENCODINGS_BASE"
_PLACES = ("HF_ENDPOINT", "VLLM_USE_MODELSCOPE")


@frozen(kw_only=True)
class Surroundings:
    """What was looked up around a plan; an empty one is "nothing looked up".

    Attributes:
        environ: the environment of the shell that would start the recipe.
        cached: repository id → whether the model cache that the recipe uses holds it.
        image: what the local engine knows of the image, or None where it did not answer.
        do_not_track: whether vLLM's opt-out file is there; None where that cannot be seen.
        hub: repository id → what the hub said, where it was asked.
        target_gated: whether the target's repository asks for consent, or None.
    """

    environ: Mapping[str, str] = field(factory=dict)
    cached: Mapping[str, bool] = field(factory=dict)
    image: ImageFacts | None = None
    do_not_track: bool | None = None
    hub: Mapping[str, HubFacts] = field(factory=dict)
    target_gated: bool | None = None


@frozen(kw_only=True)
class Fetch:
    """Something that is fetched at the next start unless it is already there.

    Attributes:
        kind: `drafter`, `target` or `image`.
        name: repository id or image.
        revision: commit, branch or digest that is asked for; None is the default branch or the tag.
        pinned: whether that revision cannot move.
        bytes: size of the weight files, or None.
        licence: or None when not known.
        gated: whether the repository asks for consent first, or None.
        cached: whether it is already here, or None when that cannot be seen.
        host: where it comes from.
    """

    kind: Literal["drafter", "target", "image"]
    name: str
    revision: str | None = None
    pinned: bool = False
    bytes: int | None = None
    licence: str | None = None
    gated: bool | None = None
    cached: bool | None = None
    host: str | None = None


@frozen(kw_only=True)
class Listener:
    """A port that the server opens.

    Attributes:
        address: on this machine; `*` is every interface.
        port: as written; None where it depends on something outside the recipe.
        reach: `loopback`, `network`, `container` (only other containers), or `unknown`.
        key: whether requests need a key; None where that cannot be told.
    """

    address: str
    port: str | None
    reach: Literal["loopback", "network", "container", "unknown"]
    key: bool | None


@frozen(kw_only=True)
class Disclosure:
    """Everything a yes or no rests on.

    Attributes:
        fetches: what is downloaded, or would be were it not here.
        hub: where models come from.
        remote_code: whether Python from the model repositories would run.
        listeners: ports that are opened.
        telemetry: what is sent by itself, and its switch.
        findings: what to think about first.
    """

    fetches: tuple[Fetch, ...]
    hub: Hub
    remote_code: bool
    listeners: tuple[Listener, ...]
    telemetry: tuple[Telemetry, ...]
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, part of `apply --json`."""
        return {
            "fetches": [attrs.asdict(each) for each in self.fetches],
            "hub": attrs.asdict(self.hub),
            "remote_code": self.remote_code,
            "listeners": [attrs.asdict(each) for each in self.listeners],
            "telemetry": [attrs.asdict(each) for each in self.telemetry],
            "findings": [finding.to_json() for finding in self.findings],
        }


def hub_model(name: str | None) -> str | None:
    """Return a model word when it is a repository id, None for paths, object stores and unresolved words."""
    if not name or name.startswith(("/", ".", "~")) or "$" in name or "://" in name or name.count("/") > 1:
        return None
    return name


def disclose(deployment: Deployment, around: Surroundings) -> Disclosure:
    """Return what applying a plan brings about.

    Args:
        deployment: the plan, read again.
        around: environment, caches and images as they were looked up.
    """
    env = engine_env(deployment.command, around.environ)
    hub = hub_of(env)
    fetches = (*_models(deployment, around, hub), *_image(deployment, around))
    listeners = _listeners(deployment)
    remote_code = deployment.flags.trust_remote_code
    found = Disclosure(
        fetches=fetches,
        hub=hub,
        remote_code=remote_code,
        listeners=listeners,
        telemetry=telemetry_of(env, do_not_track=around.do_not_track),
    )
    return attrs.evolve(found, findings=tuple(_findings(found, deployment, around)))


def is_commit(revision: str | None) -> bool:
    """Whether a revision is a full commit id."""
    return revision is not None and len(revision) == 40 and all(char in "0123456789abcdef" for char in revision.lower())


def _models(deployment: Deployment, around: Surroundings, hub: Hub) -> list[Fetch]:
    plan, config = deployment.plan, dict(deployment.plan.speculative_config or {})
    found = []
    for download in plan.downloads:
        revision = config.get("revision") if config.get("model") == download.repo else None
        facts = around.hub.get(download.repo)
        cached = around.cached.get(download.repo, download.cached)
        found.append(
            Fetch(
                kind="drafter",
                name=download.repo,
                revision=revision or download.revision,
                pinned=is_commit(revision),
                bytes=download.bytes if download.bytes is not None or facts is None else facts.bytes,
                licence=download.licence or (facts.licence if facts else None),
                gated=download.gated if download.gated is not None or facts is None else facts.gated,
                cached=cached,
                host=hub.host,
            )
        )
    target = hub_model(deployment.flags.model)
    if target is not None:
        facts = around.hub.get(target)
        found.append(
            Fetch(
                kind="target",
                name=target,
                revision=deployment.flags.revision,
                pinned=is_commit(deployment.flags.revision),
                bytes=facts.bytes if facts else None,
                licence=facts.licence if facts else None,
                gated=facts.gated if facts else around.target_gated,
                cached=around.cached.get(target),
                host=hub.host,
            )
        )
    return found


def _image(deployment: Deployment, around: Surroundings) -> list[Fetch]:
    image = deployment.command.image
    if image is None:
        return []
    name, _, digest = image.partition("@")
    return [
        Fetch(
            kind="image",
            name=name,
            revision=digest or None,
            pinned=bool(digest),
            cached=around.image.present if around.image is not None else None,
            host=registry_of(image)[0],
        )
    ]


# ------------------------------------------------------------------------------------------------------------- ports


def _listeners(deployment: Deployment) -> tuple[Listener, ...]:
    flags, command = deployment.flags, deployment.command
    reading = flags.get("port")
    port = str(DEFAULT_PORT) if reading.state == "absent" else reading.value
    key = _asks_for_key(deployment)
    if command.ports:
        return tuple(_published(text, key) for text in command.ports)
    # vLLM binds every interface where --host is not given.
    host = flags.get("host")
    address = "*" if host.state == "absent" or host.value in ("0.0.0.0", "::") else host.value
    if not deployment.in_container or deployment.container.network == "host":
        if address is None:
            return (Listener(address=host.text or "*", port=port, reach="unknown", key=key),)
        reach: Literal["loopback", "network"] = "loopback" if address in _LOOPBACK else "network"
        return (Listener(address=address, port=port, reach=reach, key=key),)
    if command.launcher == "kubernetes":
        return (Listener(address="*", port=port, reach="unknown", key=key),)
    return (Listener(address="*", port=port, reach="container", key=key),)


def _published(text: str, key: bool | None) -> Listener:
    """Read `[ip:][hostPort:]containerPort[/protocol]`; without an address Docker publishes on every interface."""
    words = text.partition("/")[0]
    address, port = "*", None
    if words.startswith("["):
        inside, _, rest = words[1:].partition("]")
        address, port = inside, rest.lstrip(":").partition(":")[0]
    else:
        parts = words.split(":")
        if len(parts) == 3:
            address, port = parts[0], parts[1]
        elif len(parts) == 2:
            port = parts[0]
    if "$" in text:
        return Listener(address=address, port=text, reach="unknown", key=key)
    if address in ("0.0.0.0", "::", ""):
        address = "*"
    reach: Literal["loopback", "network"] = "loopback" if address in _LOOPBACK else "network"
    return Listener(address=address, port=port or None, reach=reach, key=key)


def _asks_for_key(deployment: Deployment) -> bool | None:
    flags = deployment.flags
    reading = flags.get("api-key")
    if reading.state == "unresolved" and reading.origin == "config":
        return None
    return flags.api_key_present


# ---------------------------------------------------------------------------------------------------------- findings


def _findings(found: Disclosure, deployment: Deployment, around: Surroundings) -> list[Finding]:
    findings = _about_code(found, deployment)
    for each in found.listeners:
        if each.reach == "network" and each.key is False:
            findings.append(Finding.of("JSD801", address=each.address, port=each.port))
    findings += _about_hub(found, deployment, around)
    for fetch in found.fetches:
        here = fetch.cached is True
        if fetch.gated and not here:
            findings.append(Finding.of("JSD804", repo=fetch.name, token=found.hub.token))
        if fetch.kind == "drafter" and fetch.licence is None:
            findings.append(Finding.of("JSD807", repo=fetch.name))
        if fetch.kind == "drafter" and fetch.bytes is None and not here:
            findings.append(Finding.of("JSD808", repo=fetch.name))
    return findings


def _about_code(found: Disclosure, deployment: Deployment) -> list[Finding]:
    if not found.remote_code:
        return []
    repos = [fetch.name for fetch in found.fetches if fetch.kind != "image"]
    config = dict(deployment.plan.speculative_config or {})
    pinned = is_commit(deployment.flags.text_of("code-revision")) and is_commit(config.get("code_revision"))
    return [Finding.of("JSD800", repos=repos, pinned=pinned)]


def _about_hub(found: Disclosure, deployment: Deployment, around: Surroundings) -> list[Finding]:
    hub, env = found.hub, deployment.command.env
    findings = []
    to_fetch = [fetch.name for fetch in found.fetches if fetch.kind != "image" and fetch.cached is not True]
    if not hub.official and hub.sends_token and not hub.offline:
        findings.append(Finding.of("JSD802", host=hub.host))
    if not hub.official and hub.service == "huggingface" and hub.xet and to_fetch and not hub.offline:
        findings.append(Finding.of("JSD810", host=hub.host))
    engine = engine_env(deployment.command, around.environ)
    if "gpt-oss" in (deployment.plan.target or "").lower() and not engine.get(VOCABULARY):
        findings.append(Finding.of("JSD815", variable=VOCABULARY))
    if hub.service == "modelscope" and to_fetch:
        drafters = [fetch.name for fetch in found.fetches if fetch.kind == "drafter"]
        findings.append(Finding.of("JSD805", repos=drafters))
    if deployment.command.launcher != "native":
        launcher = deployment.command.launcher
        kept_back = [name for name in _PLACES if around.environ.get(name) and name not in env]
        findings += [Finding.of("JSD803", name=name, launcher=launcher, host=hub.host) for name in kept_back]
    if deployment.in_container:
        literal = [name for name in _TOKENS if env.get(name) and _literal(deployment, name)]
        if literal:
            findings.append(Finding.of("JSD809", names=literal))
    return findings


def _literal(deployment: Deployment, name: str) -> bool:
    """Whether a variable's value stands in the recipe itself."""
    value = deployment.command.env.get(name)
    return bool(value) and str(value) in deployment.plan.recipe.after
