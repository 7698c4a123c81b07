# SPDX-License-Identifier: Apache-2.0
"""What the local container engine knows of an image: its digest, and the vLLM inside. Asked through the host."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.environment import registry_of
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.host import Host

__all__ = ["ImageFacts", "ask_version", "inspect_image", "parse_inspect", "program_of"]

INSIDE = "import importlib.metadata as m; print('vllm', m.version('vllm'))"
"""Reads the version without importing the engine: no GPU needed, a second instead of a minute."""


@frozen(kw_only=True)
class ImageFacts:
    """An image as the local engine sees it.

    Attributes:
        present: whether it is there.
        digest: `sha256:…` under which this repository's registry knows it; None for one that was built here.
        version: the vLLM inside as its labels or environment name it, or None.
        version_from: the label or variable that said so, or None.
        architecture: such as `arm64`, or None.
        size_bytes: unpacked, or None.
    """

    present: bool
    digest: str | None = None
    version: str | None = None
    version_from: str | None = None
    architecture: str | None = None
    size_bytes: int | None = None


def program_of(launcher: str) -> str:
    """Return the program that knows a launcher's images."""
    return launcher if launcher in ("podman", "nerdctl") else "docker"


def inspect_image(host: Host, image: str, *, launcher: str = "docker") -> ImageFacts | None:
    """Ask the local engine about an image; None where it does not answer (not installed, no rights, not running)."""
    done = host.run((program_of(launcher), "image", "inspect", image), timeout=20.0)
    if done is None:
        return None
    if not done.ok:
        said = done.stderr.lower()
        return ImageFacts(present=False) if "no such image" in said or "not known" in said else None
    return parse_inspect(done.stdout, image)


def parse_inspect(text: str, image: str) -> ImageFacts | None:
    """Read the answer to `docker image inspect`; None where it is none."""
    try:
        data = json.loads(text)
        entry: Mapping[str, Any] = data[0] if isinstance(data, list) else data
        config = entry.get("Config") or {}
        labels = {str(name): str(value) for name, value in (config.get("Labels") or {}).items()}
        environ = dict(str(item).partition("=")[::2] for item in config.get("Env") or ())
        version, origin = _version(labels, environ)
        size = entry.get("Size")
        return ImageFacts(
            present=True,
            digest=_digest(entry.get("RepoDigests") or (), image),
            version=version,
            version_from=origin,
            architecture=entry.get("Architecture") or None,
            size_bytes=size if isinstance(size, int) and size > 0 else None,
        )
    except (ValueError, LookupError, AttributeError, TypeError):
        return None


def _digest(digests: Any, image: str) -> str | None:
    """An image pulled under another name has that registry's digest, which this name need not have."""
    wanted = registry_of(image)
    for text in digests:
        name, _, digest = str(text).partition("@")
        if registry_of(name) == wanted and digest.startswith("sha256:"):
            return digest
    return None


def _version(labels: Mapping[str, str], environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    named = [(f"label {name}", value) for name, value in labels.items() if _about_vllm(name)]
    titles = ("org.opencontainers.image.title", "org.opencontainers.image.source")
    # Images inherit the labels of their base: `image.version` of an Ubuntu base is Ubuntu's.
    if any("vllm" in labels.get(name, "").lower() for name in titles):
        named += [("label org.opencontainers.image.version", labels.get("org.opencontainers.image.version", ""))]
    named += [(f"variable {name}", value) for name, value in environ.items() if name == "VLLM_VERSION"]
    for origin, text in named:
        version = _release(text)
        if version is not None:
            return version, origin
    return None, None


def _about_vllm(name: str) -> bool:
    lower = name.lower()
    return "vllm" in lower and "version" in lower


def _release(text: str) -> str | None:
    from jetson_specdec.engine.release import release_from_version
    from jetson_specdec.errors import ReleaseError

    try:
        return release_from_version(text).version
    except ReleaseError:
        return None


def ask_version(host: Host, image: str, *, launcher: str = "docker") -> str | None:
    """Start a local image just long enough to say which vLLM it holds; None where it does not say.

    Nothing is pulled, and the container has no network. First Python's package metadata is read, then
    `vllm --version` is run.
    """
    program = program_of(launcher)
    base = (program, "run", "--rm", "--pull", "never", "--network", "none")
    for words, patience in ((("python3", image, "-c", INSIDE), 60.0), (("vllm", image, "--version"), 240.0)):
        done = host.run((*base, "--entrypoint", *words), timeout=patience)
        if done is None or not done.ok:
            continue
        version = _release(done.stdout)
        if version is not None:
            return version
    return None
