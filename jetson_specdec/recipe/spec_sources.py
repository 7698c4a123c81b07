# SPDX-License-Identifier: Apache-2.0
"""Which words of a command set its speculation, and which of them are in force.

Order of strength in vLLM 0.32 (`utils/argparse_utils.py`, `engine/arg_utils.py`): a dotted `--speculative-config.KEY`
replaces a JSON `--speculative-config` entirely, the command line replaces the `--config` file, and
`--spec-method/-model/-tokens` fill in keys (and refuse keys that are there).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.occurrences import Occurrence, shown
from jetson_specdec.recipe.spec_text import SpecText, read_spec_text
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["DEPENDENT_FLAGS", "SpecForm", "SpecSource", "remnants", "source_in_force", "speculative_occurrences"]

SpecForm = Literal["json", "dotted", "shorthand", "legacy", "config_file", "implicit"]

_JSON_FLAG = "speculative-config"
_SHORTHAND = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
# Flags of vLLM before 0.8.3 and what they became (vLLM PR #14434, #15466).
_LEGACY = {
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
    "speculative-model-quantization": "quantization",
    "speculative-disable-by-batch-size": "disable_by_batch_size",
    "speculative-disable-mqa-scorer": "disable_mqa_scorer",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
    "spec-decoding-acceptance-method": "acceptance_method",
    "typical-acceptance-sampler-posterior-threshold": "posterior_threshold",
    "typical-acceptance-sampler-posterior-alpha": "posterior_alpha",
    "disable-logprobs-during-spec-decoding": "disable_logprobs",
}
_NUMBERS = frozenset({"num_speculative_tokens", "draft_tensor_parallel_size", "max_model_len", "disable_by_batch_size"})
_TEXT_KEYS = frozenset({"model", "method", "revision", "code_revision", "quantization"})
_UNKNOWN = "<unknown>"
# Needs speculation to be on (vLLM 0.32 `config/vllm.py`), so it goes when speculation goes.
DEPENDENT_FLAGS = ("per-request-spec-decode-metrics",)


@frozen(kw_only=True)
class SpecSource:
    """The words that set the configuration in force, before it is judged."""

    form: SpecForm
    text: SpecText | None = None
    config: Mapping[str, Any] | None = None
    reference: str | None = None


def speculative_occurrences(flags: ServeFlags) -> list[Occurrence]:
    """Return every flag that has a part in speculation, in force or not."""
    return [found for found in flags.occurrences if _concerns(found)]


def _concerns(found: Occurrence) -> bool:
    if found.name in _SHORTHAND or found.name == _JSON_FLAG:
        return found.known
    # A release that no longer has the old flags still shows them in a recipe.
    return _legacy_key(found) is not None


def _legacy_key(found: Occurrence) -> str | None:
    if found.match not in ("exact", "alias", "retired", "unknown"):
        return None
    return _LEGACY.get(found.name) or _LEGACY.get(found.spelled.lstrip("-").replace("_", "-"))


def source_in_force(flags: ServeFlags, occurrences: list[Occurrence]) -> tuple[SpecSource | None, list[Finding]]:
    """Return the words in force (None: there are none) and what was noticed about the others."""
    notes: list[Finding] = []
    dotted = [found for found in occurrences if found.name == _JSON_FLAG and found.key is not None]
    whole = [found for found in occurrences if found.name == _JSON_FLAG and found.key is None]
    short = [found for found in occurrences if found.name in _SHORTHAND]
    legacy = [found for found in occurrences if found.name not in _SHORTHAND and found.name != _JSON_FLAG]
    source: SpecSource | None = None
    for found in whole:
        # vLLM reads every JSON, also one that a later one or a dotted key replaces.
        read = _whole(flags, found)
        if read.text is not None and read.text.variant not in (None, "not_an_object"):
            return read, notes
    if dotted:
        if whole:
            notes.append(Finding.of("JSD266"))
        source = _dotted(dotted, notes)
    elif whole:
        source = _whole(flags, whole[-1])
        if whole[-1].origin == "cli" and any(found.origin == "config" for found in whole):
            notes.append(Finding.of("JSD273"))
    if short:
        source = _with_shorthand(source, short, notes)
    elif source is None and legacy:
        source = _from_words("legacy", legacy)
    if source is not None and any(found.origin == "config" for found in (dotted or whole[-1:] or short)):
        notes.append(Finding.of("JSD260", path=flags.config.path or flags.config.named if flags.config else None))
    return source, notes


def _whole(flags: ServeFlags, found: Occurrence) -> SpecSource:
    form: SpecForm = "config_file" if found.origin == "config" or "yaml" in flags.command.wrapped_in else "json"
    entry = found.entry
    if entry is not None and isinstance(entry.value, dict):
        config = {str(key).replace("-", "_"): value for key, value in entry.value.items()}
        return SpecSource(form=form, config=config)
    if found.missing:
        return SpecSource(form=form, text=SpecText(variant="invalid_json", reason="no value"))
    raw = ""
    following: tuple[str, ...] = ()
    if found.origin == "cli" and "yaml" not in flags.command.wrapped_in:
        written = flags.command.args[found.last].raw
        raw = written.partition("=")[2] if found.inline else written
        following = tuple(shown(flags.command.args[at]) for at in _behind(flags, found))
    if found.value is None and not raw.startswith("{"):
        return SpecSource(form=form, reference=found.text, config=_partly(found.text))
    return SpecSource(form=form, text=read_spec_text(found.value, raw=raw, following=following))


def _behind(flags: ServeFlags, found: Occurrence) -> tuple[int, ...]:
    """Return the indexes of words behind a flag that belong to no flag."""
    stray = {*flags.extras, flags.model_index}
    end = found.last + 1
    while end < len(flags.command.args) and end in stray:
        end += 1
    return tuple(range(found.last + 1, end))


def remnants(flags: ServeFlags) -> frozenset[int]:
    """Return the indexes of words that are what is left of a speculative configuration the shell took apart."""
    left: set[int] = set()
    for found in flags.all(_JSON_FLAG):
        if found.key is None and found.origin == "cli" and (behind := _behind(flags, found)):
            source = _whole(flags, found)
            if source.text is not None and source.text.variant not in (None, "not_an_object"):
                left.update(behind)
    return frozenset(left)


def _partly(text: str) -> Mapping[str, Any]:
    """Read a JSON text with variables in it; the keys whose values depend on them are left out."""
    import json
    import re

    plain = text.replace('\\"', '"')
    if not plain.lstrip().startswith("{"):
        return {}
    reference = r"\$(?:\w+|\{[^}]*\})"
    plain = re.sub(rf"(?<=[:,\[\s])({reference})", f'"{_UNKNOWN}"', plain)
    plain = re.sub(reference, _UNKNOWN, plain)
    try:
        config = json.loads(plain)
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    return {str(key).replace("-", "_"): value for key, value in config.items() if _UNKNOWN not in json.dumps(value)}


def _dotted(dotted: list[Occurrence], notes: list[Finding]) -> SpecSource:
    from jetson_specdec.recipe.numbers import guess_value

    groups: dict[str, dict[str, Any]] = {}
    reference: str | None = None
    for found in dotted:
        head = found.spelled.replace("_", "-")
        group = groups.setdefault(head, {})
        value = found.value
        if value is None and found.values:
            reference = found.text
            continue
        if value is None:
            continue
        key, plus = (found.key or "").removesuffix("+"), (found.key or "").endswith("+")
        typed: Any = [guess_value(item) for item in value.split(",")] if plus else guess_value(value)
        first, *rest = key.split(".")
        first = first.replace("-", "_")
        if first in _TEXT_KEYS and not rest and not isinstance(typed, str) and typed is not None:
            notes.append(Finding.of("JSD270", key=first, value=value, read_as=str(typed)))
        node = group
        for name in (first, *rest)[:-1]:
            below = node.setdefault(name, {})
            if not isinstance(below, dict):
                below = node[name] = {}
            node = below
        node[rest[-1] if rest else first] = typed
    # Each spelling of the flag is put back as one JSON argument, in order: the last one is in force.
    config = groups[list(groups)[-1]] if groups else {}
    return SpecSource(form="dotted", config=config, reference=reference)


def _from_words(form: SpecForm, found: list[Occurrence]) -> SpecSource:
    config: dict[str, Any] = {}
    reference: str | None = None
    for one in found:
        key = _SHORTHAND.get(one.name) or _legacy_key(one) or one.name
        if one.value is None:
            reference = one.text or reference
            continue
        config[key] = _number(one.value) if key in _NUMBERS else one.value
    return SpecSource(form=form, config=config, reference=reference)


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _with_shorthand(source: SpecSource | None, short: list[Occurrence], notes: list[Finding]) -> SpecSource:
    words = _from_words("shorthand", short)
    if source is None or (source.text is not None and source.text.off):
        return words
    base = source.config if source.text is None else source.text.config
    if base is None:
        return source
    for one in short:
        key = _SHORTHAND[one.name]
        if key in base:
            notes.append(Finding.of("JSD267", flag=f"--{one.name}", key=key))
    return SpecSource(form=source.form, config={**base, **(words.config or {})}, reference=words.reference)
