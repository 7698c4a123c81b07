# SPDX-License-Identifier: Apache-2.0
"""Does a drafter fit its target? Checked without a GPU and before anything is downloaded or restarted.

vLLM checks little of this by itself (vocabulary sizes of `draft_model`, the tensor-parallel size): the rest it loads,
and then drafts badly or dies at the first request. Each finding says which of the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jetson_specdec.findings import Finding, Severity, worst
from jetson_specdec.models.profile import ModelProfile
from jetson_specdec.values import frozen

__all__ = ["PairReport", "PairState", "check_pair", "tokenizers_equal"]

PairState = Literal["ok", "bad_guess", "refused", "unknown"]
_KNOWN_METHODS = (
    "draft_model", "eagle", "eagle3", "dflash", "dspark", "mtp", "medusa", "mlp_speculator", "ngram", "ngram_gpu",
    "suffix",
)  # fmt: skip
_HIDDEN_STATE_METHODS = ("eagle3", "eagle", "dflash", "dspark")
_MAX_K = 128
"""`MAX_SPEC_LEN` of vLLM 0.32 `v1/sample/rejection_sampler.py`: with 129 the engine dies at the first request."""


@frozen(kw_only=True)
class PairReport:
    """What is known about a target and its drafter.

    Attributes:
        state: `refused` (vLLM does not start, or dies at the first request), `bad_guess` (it serves, but the drafts are
            poor or end early), `unknown` (too little could be compared), `ok`.
        findings: one for each thing that is wrong, unknown or worth knowing.
        draft_max_len: tokens up to which the drafter was made to draft; None when unknown or not limited.
        tokenizers_equal: whether both tokenizers are the same; None when not compared.
        vocab_equal: whether both vocabulary sizes are; None when not compared.
    """

    state: PairState
    findings: tuple[Finding, ...] = ()
    draft_max_len: int | None = None
    tokenizers_equal: bool | None = None
    vocab_equal: bool | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the pair, unknowns left aside."""
        return self.state in ("ok", "unknown")


def tokenizers_equal(target: bytes | None, draft: bytes | None) -> bool | None:
    """Compare two `tokenizer.json`: same bytes, or same vocabulary, merges and added tokens; None without both.

    Padding, truncation and chat templates do not count: they do not change which id a piece of text has.
    """
    if target is None or draft is None:
        return None
    import hashlib

    if hashlib.sha256(target).digest() == hashlib.sha256(draft).digest():
        return True
    first, second = _essence(target), _essence(draft)
    return None if first is None or second is None else first == second


def _essence(data: bytes) -> dict[str, Any] | None:
    import json

    try:
        content = json.loads(data)
        model = content["model"]
        added = {str(token["content"]): int(token["id"]) for token in content.get("added_tokens") or []}
        listed = model.get("merges") or []
        merges = [" ".join(merge) if isinstance(merge, list) else merge for merge in listed]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None
    return {
        "type": model.get("type"),
        "vocab": model.get("vocab"),
        "merges": merges,
        "added": added,
        "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"),
    }


def check_pair(
    target: ModelProfile,
    draft: ModelProfile,
    *,
    method: str,
    release: str | None = None,
    k: int | None = None,
    max_model_len: int | None = None,
    tensor_parallel_size: int = 1,
    draft_tensor_parallel_size: int | None = 1,
    trust_remote_code: bool | None = False,
    target_tokenizer: bytes | None = None,
    draft_tokenizer: bytes | None = None,
    target_ids: tuple[str, ...] = (),
    supported: bool | None = None,
    min_release: str | None = None,
) -> PairReport:
    """Check a target and a drafter.

    Args:
        target: what is served.
        draft: the head or draft model.
        method: vLLM's name: `eagle3`, `draft_model`, …
        release: vLLM's version, or None.
        k: `num_speculative_tokens`.
        max_model_len: the recipe's `--max-model-len`; None is the target's own.
        tensor_parallel_size: of the target.
        draft_tensor_parallel_size: of the drafter; None where the config leaves it to vLLM.
        trust_remote_code: whether the recipe passes `--trust-remote-code`; None when that is not known.
        target_tokenizer: content of the target's `tokenizer.json`.
        draft_tokenizer: content of the draft's.
        target_ids: further ids the target is known by (the base of a quantised copy).
        supported: what the engine table says about this method for this target in this release.
        min_release: first release that loads the drafter (of its catalogue entry).
    """
    from_hidden_states = method in _HIDDEN_STATE_METHODS
    findings: list[Finding] = []
    findings += _releases(target, draft, method, release, supported, min_release)
    findings += _kind(draft, method)
    if method not in _KNOWN_METHODS:
        findings.append(Finding.of("JSD487", method=method))
    if k is not None and k < 1:
        findings.append(Finding.of("JSD486", k=k))
    if k is not None and k > _MAX_K:
        findings.append(Finding.of("JSD467", k=k, limit=_MAX_K))
    if method == "draft_model":
        findings += _smaller(target, draft)
    vocab_equal, vocabulary = _vocabulary(target, draft, method, release)
    findings += vocabulary
    same, tokens = _tokenizers(method, vocab_equal, target_tokenizer, draft_tokenizer)
    findings += tokens
    if from_hidden_states:
        findings += _hidden_states(target, draft)
        findings += _made_for(target, draft, target_ids)
    limit, lengths = _lengths(target, draft, method, release, max_model_len)
    findings += lengths
    if draft_tensor_parallel_size not in (None, 1, tensor_parallel_size):
        findings.append(Finding.of("JSD455", draft_tp=draft_tensor_parallel_size, target_tp=tensor_parallel_size))
    elif method == "draft_model" and draft_tensor_parallel_size not in (None, tensor_parallel_size):
        findings.append(Finding.of("JSD465", draft_tp=draft_tensor_parallel_size, target_tp=tensor_parallel_size))
    findings += _inheritance(target, draft, trust_remote_code)
    return PairReport(
        state=_state(findings), findings=tuple(findings), draft_max_len=limit, tokenizers_equal=same,
        vocab_equal=vocab_equal,
    )  # fmt: skip


def _state(findings: list[Finding]) -> PairState:
    level = worst(findings)
    if level is Severity.BLOCKING:
        return "refused"
    if any(finding.severity is Severity.WARNING and finding.topic != "not-compared" for finding in findings):
        return "bad_guess"
    return "unknown" if any(finding.topic == "not-compared" for finding in findings) else "ok"


def _version(text: str | None) -> Any:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(text) if text else None
    except InvalidVersion:
        return None


def _releases(
    target: ModelProfile, draft: ModelProfile, method: str, release: str | None, supported: bool | None,
    min_release: str | None,
) -> list[Finding]:  # fmt: skip
    version, least = _version(release), _version(min_release)
    if version is None:
        return []
    if method == "draft_model" and (0, 10) <= version.release[:2] < (0, 15):
        return [Finding.of("JSD459", release=release)]
    if method == "draft_model" and target.multimodal and version.release[:2] == (0, 15):
        return [Finding.of("JSD466", release=release, id=target.id)]
    if supported is False:
        return [Finding.of("JSD460", release=release, method=method, id=target.id, model_type=target.model_type)]
    if least is not None and version < least:
        return [Finding.of("JSD468", release=release, min_release=min_release, id=draft.id)]
    return []


def _kind(draft: ModelProfile, method: str) -> list[Finding]:
    """A head is not a model and a model is no head; and vLLM reads the method out of paths."""
    is_head = draft.draft is not None
    known = draft.draft is not None or draft.architecture is not None
    found: list[Finding] = []
    if method == "draft_model" and is_head:
        found.append(Finding.of("JSD464", id=draft.id, kind="head", method=method))
    elif method in ("eagle3", "eagle") and known and not is_head:
        found.append(Finding.of("JSD464", id=draft.id, kind="model", method=method))
    if method == "draft_model" and draft.id and not is_head:
        words = [word for word in ("eagle-", "eagle3", "dflash", "dspark") if word in draft.id.lower()]
        if words:
            found.append(Finding.of("JSD469", id=draft.id, word=words[0]))
    return found


def _smaller(target: ModelProfile, draft: ModelProfile) -> list[Finding]:
    """A draft model as large as its target makes a round slower than as many plain steps."""
    same = target.id is not None and target.id == draft.id
    sizes = target.weight_bytes, draft.weight_bytes
    if same or (sizes[0] is not None and sizes[1] is not None and sizes[1] >= sizes[0]):
        return [Finding.of("JSD485", id=draft.id, target_bytes=sizes[0], draft_bytes=sizes[1])]
    return []


def _vocabulary(
    target: ModelProfile, draft: ModelProfile, method: str, release: str | None
) -> tuple[bool | None, list[Finding]]:
    first, second = target.vocab_size, draft.vocab_size
    if method == "draft_model":
        if first is None or second is None:
            return None, [Finding.of("JSD462", what="vocab_size", id=draft.id if second is None else target.id)]
        if first != second:
            return False, [Finding.of("JSD450", target_vocab=first, draft_vocab=second, release=release)]
        return True, []
    own = draft.draft.draft_vocab_size if draft.draft else None
    if own is not None and first is not None and own > first:
        return False, [Finding.of("JSD456", target_vocab=first, draft_vocab=own)]
    if method not in _HIDDEN_STATE_METHODS or draft.draft is None or first is None or second is None:
        return None, []
    # A head's config states the vocabulary of the target it was made for; another one means another target.
    if first != second and second != own:
        return False, [Finding.of("JSD448", target_vocab=first, head_vocab=second)]
    return (True if first == second else None), []


def _tokenizers(
    method: str, vocab_equal: bool | None, target: bytes | None, draft: bytes | None
) -> tuple[bool | None, list[Finding]]:
    if method != "draft_model" or vocab_equal is False:
        return None, []
    same = tokenizers_equal(target, draft)
    if same is None:
        return None, [Finding.of("JSD462", what="tokenizer.json", id=None)]
    return same, [Finding.of("JSD463")] if same else [Finding.of("JSD451")]


def _hidden_states(target: ModelProfile, draft: ModelProfile) -> list[Finding]:
    said = draft.draft
    reads = (said.target_hidden_size if said else None) or draft.hidden_size
    found: list[Finding] = []
    if reads is None or target.hidden_size is None:
        found.append(Finding.of("JSD462", what="hidden_size", id=draft.id if reads is None else target.id))
    elif reads != target.hidden_size:
        found.append(Finding.of("JSD452", target_hidden=target.hidden_size, draft_hidden=reads))
    layers = said.aux_layers if said else None
    if layers and target.layers is not None and max(layers) > target.layers:
        found.append(Finding.of("JSD461", layers=list(layers), target_layers=target.layers))
    elif not layers and target.layers is not None and said is not None and said.method == "eagle3":
        default = [2, target.layers // 2, target.layers - 3]
        found.append(Finding.of("JSD476", layers=default, target_layers=target.layers))
    return found


def _made_for(target: ModelProfile, draft: ModelProfile, target_ids: tuple[str, ...]) -> list[Finding]:
    verifier = draft.draft.verifier if draft.draft else None
    known = {_plain(name) for name in (target.id, *target_ids) if name}
    if verifier is None:
        return [Finding.of("JSD462", what="verifier", id=draft.id)]
    if known and _plain(verifier) not in known:
        return [Finding.of("JSD453", verifier=verifier, target=target.id)]
    return []


def _plain(name: str) -> str:
    return name.rstrip("/").lower().rsplit("/", 1)[-1]


def _lengths(
    target: ModelProfile, draft: ModelProfile, method: str, release: str | None, max_model_len: int | None
) -> tuple[int | None, list[Finding]]:
    """How far the drafter drafts, and what vLLM does beyond (0.32 `config/speculative.py` and its runners)."""
    limit, served = draft.max_position_embeddings, max_model_len or target.max_position_embeddings
    if limit is None:
        return None, [Finding.of("JSD462", what="max_position_embeddings", id=draft.id)]
    if served is None or limit >= served:
        return limit, []
    values: Mapping[str, Any] = {"draft_len": limit, "served_len": served, "release": release}
    if method == "draft_model":
        return limit, [Finding.of("JSD454", **values)]
    version = _version(release)
    if version is not None and version.release[:2] < (0, 28):
        # Before 0.28 nothing widens the head's rotary table: positions beyond it are read out of bounds.
        return limit, [Finding.of("JSD477", **values)]
    return limit, [Finding.of("JSD457", **values)]


def _inheritance(target: ModelProfile, draft: ModelProfile, trust_remote_code: bool | None) -> list[Finding]:
    found: list[Finding] = []
    if draft.remote_code and trust_remote_code is False:
        found.append(Finding.of("JSD478", id=draft.id))
    elif draft.remote_code:
        found.append(Finding.of("JSD479", id=draft.id))
    if target.dtype and draft.dtype and target.dtype != draft.dtype:
        found.append(Finding.of("JSD480", target_dtype=target.dtype, draft_dtype=draft.dtype))
    target_quantized, draft_quantized = target.quantization is not None, draft.quantization is not None
    if target_quantized != draft_quantized:
        found.append(
            Finding.of("JSD458", target_precision=target.precision, draft_precision=draft.precision, id=draft.id)
        )
    return found
