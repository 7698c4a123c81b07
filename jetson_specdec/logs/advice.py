# SPDX-License-Identifier: Apache-2.0
"""What to do first, and whether speculation has to do with it: pure rules over a verdict and its numbers.

One remedy, in the right direction: the pre-check wants less utilisation, an empty KV cache wants more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from jetson_specdec.logs.attempt import Attempt
from jetson_specdec.logs.causes import MEMORY, causes
from jetson_specdec.logs.evidence import Evidence
from jetson_specdec.logs.verdict import Verdict
from jetson_specdec.values import frozen

__all__ = ["Case", "remedy_of", "speculation_of"]

_DRAFT_NAME: Final = re.compile(r"eagle|specul|draft|dflash|dspark|medusa|[-_.]mtp\b", re.IGNORECASE)
_DRAFT_CLASS: Final = re.compile(r"Eagle|MTP|DFlash|DSpark|Medusa|Draft|Speculator|NextN")
_DRAFTING: Final = re.compile(r"\bdrafter\b|\bdraft[_ ]model|speculative|spec_decode")
_TINY_SHARE = 0.15
"""A feasible utilisation below this means that something else holds the memory."""
_PADDING_SHARE = 0.01
"""Vocabularies that differ by less are the same tokenizer, padded differently."""
_LARGE_ALLOCATION_BUG = "36.4.7"
_READ_UP_TO = "0.32.0"
"""The newest release whose sources the tables rest on: of a newer one nothing better can be promised."""


@frozen(kw_only=True)
class Case:
    """All there is to decide on: the start, what became of it, its numbers, and what is known beside the log."""

    attempt: Attempt
    verdict: Verdict
    values: Mapping[str, Any]
    evidence: Evidence

    @property
    def speculates(self) -> bool | None:
        """Whether speculation is on; None: not known."""
        return self.evidence.speculation(self.attempt)

    @property
    def draft(self) -> str | None:
        """The draft or head, or None."""
        found = self.evidence.speculative(self.attempt, "model")
        return found if isinstance(found, str) else None

    @property
    def target(self) -> str | None:
        """The model served, or None."""
        found = self.evidence.argument(self.attempt, "model")
        return found if isinstance(found, str) else None

    @property
    def newest(self) -> bool:
        """Whether no release is known that would do better than the running one."""
        from jetson_specdec.engine.release import at_least

        release = self.evidence.release(self.attempt)
        return release is not None and at_least(release, _READ_UP_TO) is True

    def newer_with(self, releases: list[str]) -> bool:
        """Whether one of these releases is newer than the running one (any, where that is not known)."""
        from jetson_specdec.engine.tables import release_key

        release = self.evidence.release(self.attempt)
        if release is None or release.version is None:
            return bool(releases)
        return any(release_key(each) > release_key(release.version) for each in releases)

    def is_draft(self, repo: Any) -> bool | None:
        """Whether a repository or folder is the draft; None: cannot be told."""
        if not isinstance(repo, str):
            return None
        plain = repo.rstrip("/")
        if self.draft is not None and (
            plain == self.draft.rstrip("/") or plain.startswith(self.draft.rstrip("/") + "/")
        ):
            return True
        if self.target is not None and plain == self.target.rstrip("/"):
            return False
        if _DRAFT_NAME.search(plain) is not None:
            return True
        return False if self.target is None or self.speculates is not True else None


# ---------------------------------------------------------------------------------------------------------- speculation


def speculation_of(case: Case) -> bool | None:
    """Whether speculation causes or feeds the failure; False where the recipe fails alike without it; None: unknown."""
    verdict, on = case.verdict, case.speculates
    if verdict.started_ok is not False:
        return on if verdict.started_ok else None
    hit, cause = verdict.hit, verdict.cause
    if cause.startswith("spec_config") or cause in ("draft_load_failed", "vocab_mismatch", "method_unsupported"):
        return True
    if hit is not None and hit.signature.speculation:
        return True
    if cause in MEMORY:
        return on is True
    return _SPECULATION.get(cause, _no)(case)


def _no(case: Case) -> bool | None:
    return False


def _by_words(case: Case) -> bool | None:
    words = " ".join(str(case.values.get(name, "")) for name in ("flag", "reason", "package"))
    return re.search(r"spec(?!ific|ified|ify|ial)|suffix decoding|arctic", words, re.IGNORECASE) is not None


def _host_killed(case: Case) -> bool | None:
    if case.speculates is not True:
        return False
    if case.attempt.progress == "load" and not case.attempt.loaded and not case.attempt.drafter:
        # The target is still being loaded, or a runner that does not say when the draft's turn comes.
        return None if case.attempt.v2_runner else False
    return True


def _oom_load(case: Case) -> bool | None:
    if case.verdict.about_draft:
        return True
    return None if case.speculates and case.attempt.v2_runner else False


def _hub(case: Case) -> bool | None:
    return case.is_draft(case.values.get("repo")) if case.values.get("repo") is not None else case.speculates and None


def _architecture(case: Case) -> bool | None:
    name = case.values.get("architecture")
    reports = re.findall(r"validation errors? for (\w+)", case.verdict.hit.before) if case.verdict.hit else []
    kind = str(case.values.get("model_type", ""))
    named = (isinstance(name, str) and _DRAFT_CLASS.search(name) is not None) or _DRAFT_NAME.search(kind) is not None
    return "SpeculativeConfig" in reports[-1:] or named


def _kernels(case: Case) -> bool | None:
    hit = case.verdict.hit
    said = "" if hit is None else hit.proof.text
    return case.verdict.about_draft or re.search(r"\bMTP\b|[Ee]agle|specul", said) is not None


def _unknown(case: Case) -> bool | None:
    hit = case.verdict.hit
    if case.verdict.about_draft or (hit is not None and _DRAFTING.search(hit.proof.text) is not None):
        return True
    return False if case.speculates is False else None


_SPECULATION: Final[Mapping[str, Callable[[Case], bool | None]]] = {
    "flag_unrecognized": _by_words,
    "flag_invalid_value": _by_words,
    "package_missing": _by_words,
    "host_oom_killed": _host_killed,
    "oom_load": _oom_load,
    "hub_gated": _hub,
    "hub_missing": _hub,
    "hub_unreachable": _hub,
    "model_arch_unsupported": _architecture,
    "arch_unsupported": _kernels,
    "target_unsupported": lambda case: True,
    "start_timeout": _unknown,
    "engine_failed": _unknown,
    "first_request_failed": lambda case: True if case.verdict.about_draft else case.speculates,
}


# -------------------------------------------------------------------------------------------------------------- remedy


def remedy_of(case: Case) -> str:
    """Return the one thing to do first."""
    cause = case.verdict.inner or case.verdict.cause
    if case.verdict.started_ok is None and cause == "engine_failed":
        return "none"
    rule = _RULES.get(cause)
    found = rule(case) if rule is not None else None
    if found is not None:
        return found
    hit = case.verdict.hit
    if hit is not None and hit.signature.remedy is not None:
        return hit.signature.remedy
    return causes()[cause]["remedy"]


def _unknown_key(case: Case) -> str | None:
    from jetson_specdec.engine import tables

    key = str(case.values.get("key", "")).replace("-", "_")
    ranges = tables.table()["config_keys"].get(key)
    rows = [row for row in tables.rows_between() if ranges is not None and tables.in_ranges(row, ranges)]
    newest = tables.rows_between()[-1]
    return "upgrade_runtime" if newest in rows and case.newer_with(rows) and not case.newest else None


def _unrecognized(case: Case) -> str | None:
    from jetson_specdec.engine.flags import flag_table

    flag = case.values.get("flag")
    if not isinstance(flag, str) or not flag.startswith("--"):
        return None
    first = flag_table().first_release(flag)
    return "upgrade_runtime" if first is not None and _lives(flag) and case.newer_with([first]) else None


def _lives(flag: str) -> bool:
    """Whether every release since the first one has the flag: who misses one that was withdrawn has to do without."""
    from jetson_specdec.engine import tables
    from jetson_specdec.engine.flags import flag_table

    name = "--" + flag.lstrip("-").replace("_", "-")
    has = [name in flag_table().options(row) for row in tables.rows_between()]
    return True in has and all(has[has.index(True) :])


def _flag_value(case: Case) -> str | None:
    return "fix_quoting" if "cannot be converted to" in str(case.values.get("reason", "")) else None


def _target(case: Case) -> str | None:
    from jetson_specdec.engine import tables
    from jetson_specdec.engine.methods import eagle3_target

    model_type = case.values.get("model_type")
    if not isinstance(model_type, str):
        return None
    able = [row for row in tables.rows_between() if eagle3_target(model_type, row)]
    return "upgrade_runtime" if case.newer_with(able) else None


def _draft_load(case: Case) -> str | None:
    hit = case.verdict.hit
    if hit is not None and hit.signature.remedy is not None:
        return hit.signature.remedy
    if case.values.get("method") == "draft_model" and case.draft is not None:
        files = "" if hit is None else hit.before
        if re.search(r"eagle", case.draft, re.IGNORECASE) and re.search(r'File "[^"\n]*eagle', files):
            # vLLM takes the file names as a hint: a plain draft in a folder called "eagle" is read as a head.
            return "fix_config"
    return "drop_speculation" if case.newest else None


def _vocabulary(case: Case) -> str | None:
    target, draft = case.values.get("target_vocab"), case.values.get("draft_vocab")
    if isinstance(target, int) and isinstance(draft, int) and target > 0:
        padded = target % 64 == 0 and draft % 64 == 0 and abs(target - draft) <= target * _PADDING_SHARE
        if padded:
            # The small models of such a family all have the other size.
            return "drop_speculation"
    return None


def _precheck(case: Case) -> str | None:
    free, wanted = case.values.get("free_gib"), case.values.get("requested_gib")
    available = case.evidence.available_gib
    if (
        available is not None
        and isinstance(free, float)
        and isinstance(wanted, float)
        and available - free > 1
        and available >= wanted
    ):
        # Older engines count the page cache as used.
        return "drop_caches"
    feasible = case.values.get("feasible_utilization")
    return "free_memory" if isinstance(feasible, float) and feasible < _TINY_SHARE else None


def _kv_small(case: Case) -> str | None:
    feasible = case.values.get("feasible_max_model_len")
    return "raise_utilization" if isinstance(feasible, int) and feasible < 1 else None


def _does_not_fit(case: Case) -> str | None:
    return "drop_speculation" if case.speculates else None


def _memory_load(case: Case) -> str | None:
    hit = case.verdict.hit
    if hit is not None and hit.signature.remedy is not None:
        return hit.signature.remedy
    if case.verdict.about_draft:
        return "smaller_draft" if case.values.get("method") == "draft_model" else "drop_speculation"
    return None


def _driver(case: Case) -> str | None:
    return "upgrade_runtime" if case.evidence.l4t == _LARGE_ALLOCATION_BUG else None


def _missing(case: Case) -> str | None:
    hit = case.verdict.hit
    tried = {each.signature.id for each in case.attempt.hits}
    if hit is None or (hit.signature.remedy is not None and "not-found" not in tried):
        return None
    repo = case.values.get("repo")
    if isinstance(repo, str) and repo.startswith(("/", ".", "~")):
        return "predownload"
    return "drop_speculation" if case.is_draft(repo) else "fix_config"


def _unreachable(case: Case) -> str | None:
    hit = case.verdict.hit
    return None if hit is not None and hit.signature.remedy is not None else "predownload"


def _architecture_remedy(case: Case) -> str | None:
    if "last_release" in case.values:
        return "change_image"
    if case.newest:
        return "drop_speculation" if _architecture(case) else "none"
    return None


def _mismatch(case: Case) -> str | None:
    major = (case.evidence.l4t or "").partition(".")[0]
    return "upgrade_runtime" if major.isdecimal() and int(major) <= 35 else None


def _first_request(case: Case) -> str | None:
    hit = case.verdict.hit
    if hit is not None and hit.signature.remedy is not None:
        return hit.signature.remedy
    if not case.speculates and not case.verdict.about_draft:
        return None
    sizes = case.values.get("target_embedding_dim"), case.values.get("draft_embedding_dim")
    return "other_draft" if None not in sizes and sizes[0] != sizes[1] else "drop_speculation"


def _engine(case: Case) -> str | None:
    # An unknown failure of a speculative start: the recipe without speculation is the next thing to try.
    return "drop_speculation" if case.speculates or _unknown(case) else None


_RULES: Final[Mapping[str, Callable[[Case], str | None]]] = {
    "spec_config_unknown_key": _unknown_key,
    "flag_unrecognized": _unrecognized,
    "flag_invalid_value": _flag_value,
    "target_unsupported": _target,
    "draft_load_failed": _draft_load,
    "vocab_mismatch": _vocabulary,
    "memory_precheck": _precheck,
    "kv_cache_too_small": _kv_small,
    "does_not_fit": _does_not_fit,
    "oom_load": _memory_load,
    "driver_oom": _driver,
    "hub_missing": _missing,
    "hub_unreachable": _unreachable,
    "model_arch_unsupported": _architecture_remedy,
    "runtime_mismatch": _mismatch,
    "first_request_failed": _first_request,
    "engine_failed": _engine,
}
