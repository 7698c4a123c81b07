# SPDX-License-Identifier: Apache-2.0
"""What an image runs by itself before the words of the recipe are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.release import possible_versions
from jetson_specdec.values import frozen

__all__ = ["Entrypoint", "EntrypointKind", "entrypoint_of"]

EntrypointKind = Literal["vllm_serve", "api_server", "none", "unknown"]


@frozen(kw_only=True)
class Entrypoint:
    """The entrypoint of an image.

    Attributes:
        kind: `vllm_serve`, `api_server`, `none` (the words run as written), or `unknown`.
        words: the entrypoint's own words; empty for `none` and `unknown`.
        possible: the kinds it may be; one item where `kind` is known, empty where nobody can say.
        source: where that is from, or None.
        confidence: `documented`, `reported` or `unverified`; None where there is no answer.
    """

    kind: EntrypointKind
    words: tuple[str, ...] = ()
    possible: tuple[EntrypointKind, ...] = ()
    source: str | None = None
    confidence: str | None = None


def entrypoint_of(release: EngineRelease) -> Entrypoint:
    """Return the entrypoint of the image a release was read from.

    Without an image (a native engine) there is none. An image nobody has looked at is `unknown`.
    """
    if release.image is None:
        return Entrypoint(kind="none", possible=("none",))
    images = tables.load("images")
    rule = images["entrypoints"].get(release.distribution)
    if rule is None:
        return Entrypoint(kind="unknown")
    if "steps" not in rule:
        return _entrypoint(images, rule["kind"], rule)
    versions = possible_versions(release)
    found = [_step(rule, version) for version in versions]
    kinds = {kind for step in found for kind in step.get("possible", [step["kind"]])}
    if len(kinds) == 1:
        return _entrypoint(images, kinds.pop(), found[-1])
    both: tuple[EntrypointKind, ...] = ("api_server", "vllm_serve")
    possible = tuple(kind for kind in both if not versions or kind in kinds)
    return Entrypoint(kind="unknown", possible=possible, confidence="unverified")


def _step(rule: dict[str, Any], version: str) -> dict[str, Any]:
    key = tables.release_key(version)
    for step in rule["steps"]:
        after = "since" not in step or tables.release_key(step["since"]) <= key
        before = "until" not in step or key <= tables.release_key(step["until"])
        if after and before:
            found: dict[str, Any] = step
            return found
    between: dict[str, Any] = rule["between"]
    return between


def _entrypoint(images: Mapping[str, Any], kind: EntrypointKind, entry: Mapping[str, Any]) -> Entrypoint:
    return Entrypoint(
        kind=kind,
        words=tuple(images["entrypoint_words"].get(kind, ())),
        possible=(kind,),
        source=images["sources"].get(entry.get("source")),
        confidence=entry.get("confidence"),
    )
