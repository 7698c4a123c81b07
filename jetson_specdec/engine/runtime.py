# SPDX-License-Identifier: Apache-2.0
"""Is this vLLM one that can run on this board?

The rule: Thor and Orin with L4T 39 or newer run upstream vLLM 0.20 or newer; Orin with L4T 36 runs the NVIDIA-AI-IOT
image for it; nothing runs on L4T 35. What is *proved* wrong blocks, what is merely unknown warns.
"""

from __future__ import annotations

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.image import ImageRef, parse_image
from jetson_specdec.engine.release import at_least, possible_versions
from jetson_specdec.findings import Finding

__all__ = ["check_runtime", "recommended_image"]

_ORINS = ("agx_orin", "orin_nx", "orin_nano", "igx_orin")
_XAVIERS = ("agx_xavier", "xavier_nx")
_MINIMUM = "0.20"
_UPSTREAM = ("upstream", "unknown")
"""Who must bring the minimum themselves; `unknown` is a native engine."""


def _l4t_major(l4t: str | None) -> int | None:
    key = tables.release_key(l4t) if l4t else ()
    return key[0] if key else None


def recommended_image(family: str | None, l4t: str | None) -> str | None:
    """Return the image this package recommends for a board, or None where nothing fits or too little is known.

    Args:
        family: such as `thor` or `agx_orin`.
        l4t: such as `36.4.4`.
    """
    major = _l4t_major(l4t)
    key = None
    if family == "thor" or (family in _ORINS and major is not None and major >= 39):
        key = "upstream"
    elif family in _ORINS and major is not None and major >= 36:
        key = "orin_l4t_36"
    image: str | None = tables.load("images")["recommended"][key]["image"] if key else None
    return image


def check_runtime(*, family: str | None, l4t: str | None, release: EngineRelease) -> tuple[Finding, ...]:
    """Return what speaks against running a release on a board, and what is unsure about it.

    Blocking findings (topics `runtime-mismatch`, `image-too-old`, `jetpack-too-old`) are proved by the image reference
    or the version; everything else is a warning or a note (`unpinned`, `engine-release-unknown`, `newer-than-table`).

    Args:
        family: such as `thor` or `agx_orin`; None checks only what does not depend on the board.
        l4t: such as `36.4.4`, or None.
        release: the engine of the recipe.
    """
    ref = parse_image(release.image) if release.image else None
    better = recommended_image(family, l4t)
    findings = _about_release(release)
    if family == "thor":
        findings += _on_thor(release, ref, better)
    elif family in _ORINS:
        findings += _on_orin(_l4t_major(l4t), l4t, release, ref, better)
    elif family in _XAVIERS:
        findings.append(Finding.of("JSD313", family=family, l4t=l4t))
    return tuple(findings)


def _about_release(release: EngineRelease) -> list[Finding]:
    findings = []
    if release.floating:
        findings.append(Finding.of("JSD300", image=release.image))
    if release.beyond_table:
        shown = release.version or release.candidates[-1]
        findings.append(Finding.of("JSD302", version=shown, newest=tables.NEWEST_KNOWN))
    versions = possible_versions(release)
    if not versions:
        findings.append(Finding.of("JSD304" if release.image else "JSD301", image=release.image))
    elif release.version is None:
        code = "JSD303" if len(versions) == 1 else "JSD305"
        findings.append(
            Finding.of(code, image=release.image, version=versions[-1], first=versions[0], last=versions[-1])
        )
    return findings


def _too_old(release: EngineRelease) -> bool:
    """Whether a release is proved to be below the minimum: a version does that, a guess from a strange tag does not."""
    return release.distribution != "other" and at_least(release, _MINIMUM) is False


def _version(release: EngineRelease) -> str | None:
    return release.version or (release.candidates[-1] if release.candidates else None)


def _on_thor(release: EngineRelease, ref: ImageRef | None, better: str | None) -> list[Finding]:
    image, version = release.image, _version(release)
    if ref is not None and (ref.board == "orin" or ref.l4t_major in (35, 36)):
        return [Finding.of("JSD311", image=image, better=better)]
    if release.distribution in (*_UPSTREAM, "dustynv") and _too_old(release):
        code = "JSD310" if image else "JSD317"
        return [Finding.of(code, image=image, version=version, minimum=_MINIMUM, better=better)]
    if release.distribution == "other" and at_least(release, _MINIMUM) is False:
        return [Finding.of("JSD318", image=image, version=version, minimum=_MINIMUM, better=better)]
    if release.distribution == "upstream" and ref is not None and _cuda_major(ref) == 12:
        return [Finding.of("JSD319", image=image, cuda=ref.cuda, better=better)]
    if release.distribution in ("nvcr", "nvidia_ai_iot") and at_least(release, _MINIMUM) is not True:
        # Built by NVIDIA for this GPU: they carry its kernels although the upstream wheel of that release does not.
        return [Finding.of("JSD320", image=image, version=version)]
    return []


def _cuda_major(ref: ImageRef) -> int | None:
    return int(ref.cuda.partition(".")[0]) if ref.cuda else None


def _on_orin(
    major: int | None, l4t: str | None, release: EngineRelease, ref: ImageRef | None, better: str | None
) -> list[Finding]:
    if major is None:
        return [Finding.of("JSD321", image=release.image)]
    if major < 36:
        return [Finding.of("JSD313", l4t=l4t)]
    if ref is not None and ref.board == "thor":
        return [Finding.of("JSD312", image=release.image, l4t=l4t, better=better)]
    return _on_l4t_39(l4t, release, ref, better) if major >= 39 else _on_l4t_36(l4t, release, ref, better)


def _on_l4t_39(l4t: str | None, release: EngineRelease, ref: ImageRef | None, better: str | None) -> list[Finding]:
    image, version = release.image, _version(release)
    if at_least(release, _MINIMUM) is False:
        # A floating tag was such a release once; nobody knows what it is today.
        proved = _too_old(release) and release.version is not None
        code = ("JSD310" if image else "JSD317") if proved else "JSD318"
        return [Finding.of(code, image=image, version=version, minimum=_MINIMUM, better=better)]
    if ref is not None and ref.l4t_major in (35, 36):
        return [Finding.of("JSD324", image=image, built_for=ref.l4t_major, l4t=l4t, better=better)]
    if release.distribution == "nvcr":
        return [Finding.of("JSD322", image=image, better=better)]
    return []


def _on_l4t_36(l4t: str | None, release: EngineRelease, ref: ImageRef | None, better: str | None) -> list[Finding]:
    image, version = release.image, _version(release)
    if ref is not None and ((ref.l4t_major or 0) >= 38 or _cuda_major(ref) == 13):
        return [Finding.of("JSD314", image=image, l4t=l4t, better=better)]
    if release.distribution == "nvidia_ai_iot":
        return []
    if release.distribution == "nvcr" or (release.distribution == "upstream" and _is_cuda_13(release, ref)):
        return [Finding.of("JSD314", image=image, l4t=l4t, better=better)]
    if at_least(release, tables.OLDEST_KNOWN) is False:
        code = "JSD316" if release.distribution != "other" else "JSD323"
        return [Finding.of(code, image=image, version=version, better=better)]
    if ref is not None:
        return [Finding.of("JSD315", image=image, l4t=l4t, better=better)]
    return []


def _is_cuda_13(release: EngineRelease, ref: ImageRef | None) -> bool:
    """Whether an upstream image is known to hold CUDA 13: by its tag, else by its release."""
    if ref is not None and ref.cuda is not None:
        return _cuda_major(ref) == 13
    versions = possible_versions(release)
    steps = tables.table()["upstream_cuda_major"]
    return bool(versions) and all(tables.step_value(version, steps) == 13 for version in versions)
