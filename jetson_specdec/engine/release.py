# SPDX-License-Identifier: Apache-2.0
"""Which vLLM release is this: from an image reference, a version text, or the flags a recipe uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

import attrs

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease, ReleaseSource
from jetson_specdec.engine.image import ImageRef, parse_image
from jetson_specdec.engine.tables import NEWEST_KNOWN
from jetson_specdec.errors import ReleaseError

__all__ = [
    "NEWEST_KNOWN",
    "at_least",
    "default_utilization",
    "default_utilizations",
    "from_flags",
    "possible_versions",
    "release_from_image",
    "release_from_version",
]


@lru_cache(maxsize=1)
def _version_pattern() -> re.Pattern[str]:
    # A PEP 440 version with at least one dot, on its own: not a part of a word, a path or a longer number.
    return re.compile(
        r"(?<![\w./-])v?(\d{1,4}(?:\.\d{1,6}){1,3}(?:[-_.]?(?:a|b|rc|alpha|beta|post|dev)[-_.]?\d*)*(?:\+[a-z0-9.]+)?)"
        r"(?![\w/-]|\.\d)",
        re.IGNORECASE | re.ASCII,
    )


# ---------------------------------------------------------------------------------------------------- version texts


def release_from_version(
    text: str, *, source: ReleaseSource = "version_command", image: str | None = None
) -> EngineRelease:
    """Return the release that a version text names.

    Accepts what people and programs write: `0.32.0`, `v0.20.2`, `vllm 0.11.2`, `0.20.1+cu130`, `0.15.0rc1`, a
    development version, and the whole output of `vllm --version` (its last line that holds a version counts).

    Args:
        text: the version text.
        source: where the text comes from.
        image: the image the engine runs in, where there is one.

    Raises:
        ReleaseError: no version, or several in one line (JSE301).
    """
    for line in reversed(text.splitlines()):
        found = [match.group(1) for match in _version_pattern().finditer(line.replace("==", " "))]
        if len(found) == 1:
            return _from_pep440(found[0], source=source, image=image)
        if found:
            break
    raise ReleaseError("JSE301", text=text.strip()[:80])


def _from_pep440(text: str, *, source: ReleaseSource, image: str | None) -> EngineRelease:
    from packaging.version import InvalidVersion, Version

    try:
        version = Version(text)
    except InvalidVersion:
        raise ReleaseError("JSE301", text=text[:80]) from None
    distribution = parse_image(image).distribution if image else "unknown"
    if version.release[:2] == (0, 1) and version.is_devrelease:
        # A source build without tags calls itself 0.1.dev…: that says nothing.
        return EngineRelease(distribution=distribution, source=source, image=image, note=f"development build {text}")
    public = version.public
    candidates: tuple[str, ...] = (public,)
    if version.is_devrelease:
        # Between the release before and the one it leads to.
        before = tables.rows_between(None, version.base_version)
        older = [row for row in before if tables.release_key(row) < tables.release_key(version.base_version)][-1:]
        candidates = (*older, version.base_version)
    return EngineRelease(
        version=public,
        candidates=candidates,
        distribution=distribution,
        source=source,
        image=image,
        beyond_table=tables.release_key(version.base_version) > tables.release_key(NEWEST_KNOWN),
    )


# ------------------------------------------------------------------------------------------------------------ images


def release_from_image(image: str | None) -> EngineRelease:
    """Return the release inside an image, as far as its reference tells.

    A tag that names a version is that version. `latest`, `nightly` or no tag of the upstream image count as the newest
    release this package knows. Tags of NVIDIA's images are looked up; a month between two known ones may hold any
    release between theirs. For other images a tag that looks like a vLLM version is a candidate only.

    Args:
        image: an image reference; None (native, or unknown) gives an unknown release.
    """
    if not image or not image.strip():
        return EngineRelease()
    ref = parse_image(image)
    release = {
        "upstream": _upstream,
        "nvidia_ai_iot": _tabled,
        "nvcr": _nvcr,
        "dustynv": _versioned,
    }.get(ref.distribution, _other)(ref)
    release = attrs.evolve(release, image=image, distribution=ref.distribution)
    return attrs.evolve(release, floating=False) if ref.digest else release


def _leading_version(tag: str | None) -> str | None:
    """Return the version a tag starts with: `v0.20.2-aarch64` → `0.20.2`, `0.6.6.post1-r36.4.0` → `0.6.6.post1`."""
    found = re.match(
        r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:post|rc|dev)\d+)?)(?=$|[-_+])", tag or "", re.ASCII | re.IGNORECASE
    )
    return found.group(1) if found else None


def _known(version: str) -> EngineRelease:
    return _from_pep440(version, source="image_tag", image=None)


def _upstream(ref: ImageRef) -> EngineRelease:
    version = _leading_version(ref.tag)
    if version:
        return _known(version)
    if ref.tag is None and ref.digest:
        return EngineRelease()  # a bare digest may be any release, old ones included
    words = (ref.tag or "latest").lower().split("-")
    if "latest" in words or "nightly" in words:
        # nightly-<commit> does not move, but nobody can tell its age from its name.
        commit = any(len(word) >= 7 and all(c in "0123456789abcdef" for c in word) for word in words)
        return EngineRelease(candidates=() if commit else (NEWEST_KNOWN,), source="floating_tag", floating=not commit)
    return EngineRelease(source="floating_tag", floating=True)


def _tabled(ref: ImageRef) -> EngineRelease:
    images = tables.load("images")
    entry = images["tags"].get(ref.distribution, {}).get(ref.tag or "")
    if entry is None:
        version = _leading_version(ref.tag)
        return _known(version) if version else EngineRelease(source="floating_tag", floating=True)
    note = f"{images['sources'][entry['source']]} ({entry['confidence']})"
    if "version" in entry:
        return attrs.evolve(_known(entry["version"]), source="image_table", note=note)
    candidates = tables.rows_between(entry["from"]) if "from" in entry else tuple(entry["candidates"])
    floating = bool(entry.get("floating"))
    return EngineRelease(
        candidates=candidates, source="floating_tag" if floating else "image_table", floating=floating, note=note
    )


def _nvcr(ref: ImageRef) -> EngineRelease:
    known = tables.load("images")["tags"]["nvcr"]
    if ref.tag in known:
        return _tabled(ref)
    month = re.match(r"(\d\d)\.(\d\d)(?=$|[.-])", ref.tag or "", re.ASCII)
    if not month:
        return EngineRelease(source="floating_tag", floating=True)

    def inside(tag: str) -> str:
        entry = known[tag]
        version: str = entry["version"] if "version" in entry else entry["candidates"][0]
        return version

    same = [tag for tag in known if tag[:5] == month.group(0)]
    older = [tag for tag in known if tag[:5] < month.group(0)]
    newer = [tag for tag in known if tag[:5] > month.group(0)]
    if same:
        return EngineRelease(candidates=(inside(same[0]),), source="image_table", note=f"as {same[0]}")
    if not older:
        return EngineRelease(source="image_table")
    first = tables.row_of(inside(older[-1]))
    last = inside(newer[0]) if newer else None
    note = f"between {older[-1]} and {newer[0]}" if newer else f"after {older[-1]}"
    return EngineRelease(candidates=tables.rows_between(first, last), source="image_table", note=note)


def _versioned(ref: ImageRef) -> EngineRelease:
    version = _leading_version(ref.tag)
    return _known(version) if version else EngineRelease(source="floating_tag", floating=True)


def _other(ref: ImageRef) -> EngineRelease:
    floating = ref.tag is None or "latest" in ref.tag.lower() or "nightly" in ref.tag.lower()
    version = _leading_version(ref.tag)
    # Whoever builds their own image counts in their own way: only a tag that can be a vLLM release is a hint.
    if version and "vllm" in ref.basename and (0, 2) <= tables.release_key(version)[:2] < (1,):
        newest = tables.release_key(version) > tables.release_key(NEWEST_KNOWN)
        return EngineRelease(candidates=(version,), source="image_tag", beyond_table=newest)
    return EngineRelease(source="floating_tag" if floating else "unknown", floating=floating)


# ------------------------------------------------------------------------------------------------------------- flags


def from_flags(words: Iterable[str], release: EngineRelease | None = None) -> EngineRelease:
    """Narrow an unknown release down by the flags a recipe uses.

    A flag proves a lower bound only (`--spec-method` needs 0.22): a recipe with a retired flag may simply be stale.

    Args:
        words: the argument words that start with `-`.
        release: what is known so far; anything but a wholly unknown release is returned unchanged.
    """
    from jetson_specdec.engine.flags import flag_table

    release = release or EngineRelease()
    if release.version is not None or release.candidates:
        return release
    rows = tables.rows_between()
    oldest, proof = rows[0], None
    for word in words:
        since = flag_table().first_release(word)
        if since is not None and tables.release_key(since) > tables.release_key(oldest):
            oldest, proof = since, word
    if proof is None:
        return release
    return attrs.evolve(
        release,
        candidates=tables.rows_between(oldest),
        source="flags",
        note=f"{proof.partition('=')[0]} since {oldest}",
    )


# ----------------------------------------------------------------------------------------------------------- answers


def possible_versions(release: EngineRelease) -> tuple[str, ...]:
    """Return the rows of the release table that a release may be, oldest first; empty when it may be anything.

    A release older than the table stands for itself.
    """
    seen: list[str] = []
    for candidate in release.candidates or ((release.version,) if release.version else ()):
        row = tables.row_of(candidate) or candidate
        if row not in seen:
            seen.append(row)
    return tuple(seen)


def at_least(release: EngineRelease, version: str) -> bool | None:
    """Say whether a release is `version` or newer; None when it cannot be told.

    A release candidate counts as the release it leads to.
    """
    answers = {
        tables.release_key(candidate) >= tables.release_key(version)
        for candidate in release.candidates or ((release.version,) if release.version else ())
    }
    return answers.pop() if len(answers) == 1 else None


def default_utilizations(release: EngineRelease) -> tuple[float, ...]:
    """Return every `--gpu-memory-utilization` default the release may have, ascending."""
    steps = tables.table()["default_utilization"]
    versions = possible_versions(release)
    values = {tables.step_value(version, steps) for version in versions} if versions else {value for _, value in steps}
    return tuple(sorted(values))


def default_utilization(release: EngineRelease) -> float | None:
    """Return the release's default of `--gpu-memory-utilization`, or None when it cannot be told."""
    values = default_utilizations(release)
    return values[0] if len(values) == 1 else None
