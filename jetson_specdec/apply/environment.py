# SPDX-License-Identifier: Apache-2.0
"""What the engine's environment decides: where models and images come from, which telemetry is on. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from jetson_specdec.models.local import is_offline
from jetson_specdec.packaged import packaged_json
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import ServeCommand

__all__ = ["OFFICIAL_HUB", "Hub", "Telemetry", "engine_env", "hub_of", "is_official", "registry_of", "telemetry_of"]

OFFICIAL_HUB = "https://huggingface.co"
MODELSCOPE = "www.modelscope.cn"
_TRUE = ("1", "true", "yes", "on")
_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


@lru_cache(maxsize=4)
def _data(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = packaged_json("apply", "data", f"{name}.json")
    return found


def engine_env(command: ServeCommand, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the environment that reaches the engine; None where a value cannot be known.

    A native command inherits the shell's environment; a container or a unit has only what its recipe gives it, where
    `-e NAME` without a value takes the shell's.
    """
    given = {name: environ.get(name) if value is None else value for name, value in command.env.items()}
    return {**environ, **given} if command.launcher == "native" else dict(given)


@frozen(kw_only=True)
class Hub:
    """Where models come from.

    Attributes:
        service: `huggingface` or `modelscope`.
        endpoint: URL without credentials.
        host: its host name.
        official: whether it is the service's own host.
        offline: whether downloads are forbidden.
        token: whether a token is in the environment (its value is never kept).
        sends_token: whether a token would be sent without being asked for.
        xet: whether files may be fetched from the Xet hosts beside the endpoint.
    """

    service: Literal["huggingface", "modelscope"]
    endpoint: str
    host: str
    official: bool
    offline: bool = False
    token: bool = False
    sends_token: bool = False
    xet: bool = True


def is_official(endpoint: str) -> bool:
    """Whether an endpoint is Hugging Face's own."""
    host = _place(endpoint)[0].partition(":")[0]
    return host in ("huggingface.co", "hf.co") or host.endswith(".huggingface.co")


def _place(address: str) -> tuple[str, str, str]:
    """Return host (with its port), scheme and path of an address as people write them; credentials are left out."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address if "//" in address else f"//{address}")
        host, port = parts.hostname or "", parts.port
    except ValueError:  # a port that is no number, half an IPv6 address
        return "", "https", ""
    return (host if port is None else f"{host}:{port}"), parts.scheme or "https", parts.path


def hub_of(env: Mapping[str, str | None]) -> Hub:
    """Return where models come from under an environment.

    `HF_ENDPOINT` as huggingface_hub 2.4.0 reads it (a trailing slash does not count); `VLLM_USE_MODELSCOPE` is for the
    whole process: target and drafter.
    """
    offline = is_offline(env)
    if (env.get("VLLM_USE_MODELSCOPE") or "").lower() in ("1", "true"):
        host = env.get("MODELSCOPE_DOMAIN") or MODELSCOPE
        return Hub(
            service="modelscope",
            endpoint=f"https://{host}",
            host=host,
            official=host == MODELSCOPE,
            offline=offline,
            token=bool(env.get("MODELSCOPE_API_TOKEN")),
        )
    endpoint = (env.get("HF_ENDPOINT") or OFFICIAL_HUB).rstrip("/")
    place, scheme, path = _place(endpoint)
    token = any(env.get(name) for name in _TOKENS)
    return Hub(
        service="huggingface",
        endpoint=f"{scheme}://{place}{path}",
        host=place,
        official=is_official(endpoint),
        offline=offline,
        token=token,
        sends_token=token and not _on(env, "HF_HUB_DISABLE_IMPLICIT_TOKEN"),
        xet=not _on(env, "HF_HUB_DISABLE_XET"),
    )


def _on(env: Mapping[str, str | None], name: str) -> bool:
    return (env.get(name) or "").lower() in _TRUE


def registry_of(image: str) -> tuple[str, str]:
    """Return registry host and repository path of an image reference, by Docker's own rule.

    The first part is a registry when it has a dot or a colon, or is `localhost`; else it is Docker Hub, where a bare
    name stands below `library/`.
    """
    name = image.strip().partition("@")[0]
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        registry, path = first, rest
    else:
        registry, path = "docker.io", name
    head, _, last = path.rpartition("/")
    last = last.partition(":")[0]
    path = f"{head}/{last}" if head else last
    if registry in ("docker.io", "index.docker.io"):
        return "docker.io", path if "/" in path else f"library/{path}"
    return registry, path


@frozen(kw_only=True)
class Telemetry:
    """Something that is sent without being asked for.

    Attributes:
        name: what it is.
        destination: host it goes to.
        state: `on`, `off`, or `unknown` (a switch whose value cannot be read here).
        switched_by: the variable or file that switches it off, where it is off.
        switch: what to set to switch it off.
        source: where this is known from.
    """

    name: str
    destination: str
    state: Literal["on", "off", "unknown"]
    switched_by: str | None = None
    switch: str
    source: str


def telemetry_of(env: Mapping[str, str | None], *, do_not_track: bool | None = None) -> tuple[Telemetry, ...]:
    """Return what would be sent under an environment.

    Args:
        env: the engine's environment; a name with None is set to something unknown.
        do_not_track: whether vLLM's opt-out file is there; None where that cannot be seen (inside a container).
    """
    data = _data("telemetry")
    found = []
    for item in data["items"]:
        host = _place(env.get(item["destination_variable"]) or "")[0]
        by = next((name for name, values in item["off"].items() if (env.get(name) or "").lower() in values), None)
        if by is None and item["off_file"] and do_not_track:
            by = f"~/{item['off_file']}"
        unclear = any(name in env and env[name] is None for name in item["off"])
        state: Literal["on", "off", "unknown"] = "off" if by else "unknown" if unclear else "on"
        found.append(
            Telemetry(
                name=item["name"],
                destination=host or item["destination"] or "huggingface.co",
                state=state,
                switched_by=by,
                switch=item["switch"],
                source=data["sources"][item["source"]],
            )
        )
    return tuple(found)
