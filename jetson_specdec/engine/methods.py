# SPDX-License-Identifier: Apache-2.0
"""Which speculation a vLLM release can do: methods, and targets of EAGLE-3."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from jetson_specdec.engine import tables
from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.release import at_least, possible_versions
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["Support", "eagle3_target", "infer_method", "is_mtp", "method_support", "normalise_method"]

State = Literal["supported", "unsupported", "unknown"]


@frozen(kw_only=True)
class Support:
    """Whether a release can run a method (for a target).

    Attributes:
        method: the method, normalised.
        state: `unknown` where the possible releases disagree or nobody has looked.
        since: first listed release that can, after any gap; None where no listed one can.
        gap: (first, last) releases that accept the word and then refuse to start, or None.
        finding: why not, or why it is not sure; None when supported.
    """

    method: str
    state: State
    since: str | None = None
    gap: tuple[str, str] | None = None
    finding: Finding | None = None


# ----------------------------------------------------------------------------------------------------------- methods


def is_mtp(method: str) -> bool:
    """Say whether a method is multi-token prediction under any of its names (`mtp`, `qwen3_5_mtp`, …)."""
    return method == "mtp" or (method.endswith("_mtp") and method in tables.table()["method_accepted"])


def normalise_method(method: str, release: EngineRelease | None = None) -> str:
    """Return a method as vLLM will understand it.

    From 0.11 on every MTP name is rewritten to `mtp`; before, the specific name is needed. `[ngram]` is `ngram`.

    Args:
        method: the method as written.
        release: an unknown one, or one that may be on either side, counts as new.
    """
    if method == "[ngram]":
        return "ngram"
    new = at_least(release, tables.table()["mtp_rewritten_since"]) if release else None
    return "mtp" if is_mtp(method) and new is not False else method


def infer_method(model: str | None, model_type: str | None = None) -> str | None:
    """Return the method vLLM settles on when `method` is left out.

    It looks for words in the draft's path, then at the `model_type` of the draft's config. What it does not recognise
    is taken for an ordinary draft model without a word.

    Args:
        model: the `model` key.
        model_type: `model_type` in the draft's `config.json`, where known.

    Returns:
        The method, or None without a model (vLLM then needs `method`).
    """
    if not model:
        return None
    if model in ("ngram", "[ngram]"):
        return "ngram"
    path = model.lower()
    for word, method in (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark")):
        if word in path:
            return method
    if model_type in ("medusa", "mlp_speculator"):
        return model_type
    return "mtp" if model_type is not None and is_mtp(model_type) else "draft_model"


@lru_cache(maxsize=512)
def method_support(method: str, release: EngineRelease, model_type: str | None = None) -> Support:
    """Say whether a release can speculate with a method.

    For EAGLE-3 the target's `model_type` decides as well: up to 0.21 vLLM compares it with a list (a substring test),
    and in every release the target's model class must hand out its inner states.

    Args:
        method: the method as written.
        release: the release, or the set of releases it may be.
        model_type: `model_type` of the target's (text) config; None leaves that question out.
    """
    name = normalise_method(method, release)
    data = tables.table()
    usable, accepted = data["method_usable"], data["method_accepted"]
    versions = possible_versions(release)
    shown = release.version or "/".join(versions) or None
    if name not in accepted:
        finding = Finding.of("JSD330", method=method, known=sorted(accepted))
        return Support(method=name, state="unsupported", finding=finding)
    ranges = usable.get(name, [])
    since = ranges[-1][0] if ranges else None
    gap = _gap(ranges)
    if not versions:
        return Support(method=name, state="unknown", since=since, gap=gap, finding=Finding.of("JSD333", method=name))
    can = {version for version in versions if tables.in_ranges(version, ranges)}
    if not can:
        in_gap = gap is not None and all(tables.in_ranges(version, [gap]) for version in versions)
        last = ranges[-1][1] if ranges else None
        gone = last is not None and all(tables.release_key(v) > tables.release_key(last) for v in versions)
        code = "JSD331" if in_gap else "JSD336" if gone or not ranges else "JSD332"
        finding = Finding.of(code, method=name, release=shown, since=since, first=gap and gap[0], last=gap and gap[1])
        return Support(method=name, state="unsupported", since=since, gap=gap, finding=finding)
    if len(can) < len(versions):
        finding = Finding.of("JSD334", method=name, releases=[v for v in versions if v not in can], since=since)
        return Support(method=name, state="unknown", since=since, gap=gap, finding=finding)
    if name == "eagle3" and model_type is not None:
        return _eagle3_target(model_type, versions, shown)
    return Support(method=name, state="supported", since=since, gap=gap)


def _gap(ranges: list[list[str | None]]) -> tuple[str, str] | None:
    """Return the releases between two usable ranges, as `(first, last)` of the listed ones."""
    if len(ranges) < 2 or ranges[-2][1] is None or ranges[-1][0] is None:
        return None
    rows = tables.rows_between(ranges[-2][1], ranges[-1][0])[1:-1]
    return (rows[0], rows[-1]) if rows else None


@lru_cache(maxsize=4096)
def eagle3_target(model_type: str, version: str) -> bool | None:
    """Say whether one listed release runs EAGLE-3 on targets of a `model_type`; None where nobody has looked."""
    data = tables.table()
    allowed = [word for word, ranges in data["eagle3_allow_list"].items() if tables.in_ranges(version, ranges)]
    if allowed and not any(word in model_type for word in allowed):
        return False
    ranges = data["eagle3_targets"].get(model_type)
    return None if ranges is None else tables.in_ranges(version, ranges)


def _eagle3_target(model_type: str, versions: tuple[str, ...], shown: str | None) -> Support:
    answers = {version: eagle3_target(model_type, version) for version in versions}
    rows = tables.rows_between()
    able = [row for row in rows if eagle3_target(model_type, row)]
    since = able[0] if able else None
    if all(answers.values()):
        return Support(method="eagle3", state="supported", since=since)
    if all(answer is False for answer in answers.values()):
        code = "JSD340" if since else "JSD341"
        finding = Finding.of(code, model_type=model_type, release=shown, since=since)
        return Support(method="eagle3", state="unsupported", since=since, finding=finding)
    unsure = [version for version, answer in answers.items() if not answer]
    finding = Finding.of("JSD342", model_type=model_type, releases=unsure, since=since)
    return Support(method="eagle3", state="unknown", since=since, finding=finding)
