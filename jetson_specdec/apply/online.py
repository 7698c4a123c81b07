# SPDX-License-Identifier: Apache-2.0
"""The only place where this room talks to hub, registry and mirrors. Nothing here sends a token or a password."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from jetson_specdec.apply.environment import registry_of
from jetson_specdec.values import frozen

__all__ = ["HttpOnline", "HubFacts", "Online", "Reach"]

_MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


@frozen(kw_only=True)
class HubFacts:
    """What a hub says of a repository.

    Attributes:
        commit: of the revision that was asked for.
        bytes: all weight files together, or None.
        licence: or None.
        gated: whether it asks for consent, or None.
        custom_code: whether the repository holds Python files, or None.
    """

    commit: str | None = None
    bytes: int | None = None
    licence: str | None = None
    gated: bool | None = None
    custom_code: bool | None = None


@frozen(kw_only=True)
class Reach:
    """Whether a place on the network answers.

    Attributes:
        status: HTTP status, or None where there was no answer.
        reason: kind of the failure, or None.
    """

    status: int | None = None
    reason: str | None = None

    @property
    def answers(self) -> bool:
        """Whether it answered as such a place does; 401 asks for a login, which is an answer."""
        return self.status is not None and self.status < 500 and self.status != 407


@runtime_checkable
class Online(Protocol):
    """What may be asked over the network. Answers None, and never raises, for what it does not get."""

    def hub_facts(self, repo: str, revision: str | None, *, endpoint: str) -> HubFacts | None:
        """Ask a Hugging Face endpoint about a repository."""

    def image_digest(self, image: str) -> str | None:
        """Ask an image's registry for the digest its tag has now."""

    def reach(self, url: str) -> Reach:
        """See whether an address answers."""


class HttpOnline:
    """Asks over HTTP, anonymously, through the proxies of the environment.

    Args:
        timeout: seconds for one request.
    """

    def __init__(self, timeout: float = 8.0) -> None:
        self._timeout = timeout

    def hub_facts(self, repo: str, revision: str | None, *, endpoint: str) -> HubFacts | None:
        """Ask a Hugging Face endpoint about a repository; without a token, which public metadata does not need."""
        from huggingface_hub import HfApi

        try:
            info = HfApi(endpoint=endpoint, token=False).model_info(
                repo, revision=revision, timeout=self._timeout, files_metadata=True
            )
        except Exception:  # the library's errors have no common root beside Exception, and none of them decides here
            return None
        files = info.siblings or []
        weights = [file.size for file in files if file.rfilename.endswith((".safetensors", ".bin", ".gguf"))]
        data: Any = info.card_data
        card = data.to_dict() if data is not None else {}
        return HubFacts(
            commit=info.sha,
            bytes=sum(size for size in weights if size) if weights and all(weights) else None,
            licence=_licence(card),
            gated=None if info.gated is None else bool(info.gated),
            custom_code=any(file.rfilename.endswith(".py") for file in files) if files else None,
        )

    def image_digest(self, image: str) -> str | None:
        """Ask the registry for the digest of a tag (OCI distribution specification 1.1, pull)."""
        registry, path = registry_of(image)
        host = "registry-1.docker.io" if registry == "docker.io" else registry
        name = image.strip().partition("@")[0].rpartition("/")[2]
        tag = name.partition(":")[2] or "latest"
        # Docker itself talks plain HTTP to registries of this machine only.
        scheme = "http" if host.partition(":")[0] in ("127.0.0.1", "localhost") else "https"
        url = f"{scheme}://{host}/v2/{path}/manifests/{tag}"
        status, headers, _ = self._ask(url, {"Accept": _MANIFESTS}, method="HEAD")
        if status == 401:
            token = self._anonymous(headers.get("www-authenticate", ""), path)
            if token is None:
                return None
            accept = {"Accept": _MANIFESTS, "Authorization": f"Bearer {token}"}
            status, headers, _ = self._ask(url, accept, method="HEAD")
        digest = headers.get("docker-content-digest", "")
        return digest if status == 200 and digest.startswith("sha256:") else None

    def reach(self, url: str) -> Reach:
        """See whether an address answers."""
        status, _, reason = self._ask(url, {}, method="GET")
        return Reach(status=status, reason=None if status is not None else reason)

    def _anonymous(self, challenge: str, path: str) -> str | None:
        """Get the token that a registry gives to everybody (distribution token authentication)."""
        import re
        from urllib.parse import urlencode

        scheme, _, rest = challenge.partition(" ")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
        realm = fields.get("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            return None
        query = {"scope": fields.get("scope") or f"repository:{path}:pull"}
        if fields.get("service"):
            query["service"] = fields["service"]
        status, _, body = self._ask(f"{realm}?{urlencode(query)}", {}, method="GET")
        if status != 200:
            return None
        try:
            data = json.loads(body)
        except ValueError:
            return None
        token = data.get("token") or data.get("access_token") if isinstance(data, dict) else None
        return token if isinstance(token, str) else None

    def _ask(self, url: str, headers: Mapping[str, str], *, method: str) -> tuple[int | None, dict[str, str], str]:
        """Return status, headers (lower case) and body or the kind of failure; redirects are not followed."""
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class Stay(HTTPRedirectHandler):
            def redirect_request(self, *_: Any) -> None:
                return None

        if not url.startswith(("http://", "https://")):
            return None, {}, "no-http-address"  # urllib would open local files too
        try:
            request = Request(url, headers={"User-Agent": "jetson-specdec", **headers}, method=method)
            with build_opener(Stay).open(request, timeout=self._timeout) as answer:
                body = answer.read(1 << 20).decode("utf-8", errors="replace")
                return answer.status, _lower(answer.headers), body
        except HTTPError as error:
            with error:
                return error.code, _lower(error.headers), ""
        except URLError as error:
            reason = error.reason
            return None, {}, type(reason).__name__ if isinstance(reason, Exception) else "URLError"
        except (OSError, HTTPException, ValueError) as error:
            return None, {}, type(error).__name__


def _lower(headers: Any) -> dict[str, str]:
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _licence(card: Mapping[str, Any]) -> str | None:
    """`license: other` says nothing by itself; its name does."""
    named = card.get("license")
    if named in (None, "other", "unknown"):
        named = card.get("license_name") or named
    return str(named) if named else None
