# SPDX-License-Identifier: Apache-2.0
"""What speculation a recipe has now, in whichever of vLLM's spellings.

`spec_sources` says which words are in force; here they are judged. A model that is itself a speculators
repository speculates without any flag.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve

from jetson_specdec.findings import Finding, Severity
from jetson_specdec.recipe.spec_sources import SpecForm, SpecSource, source_in_force, speculative_occurrences
from jetson_specdec.recipe.spec_text import SpecText, spec_json
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["SpecForm", "SpecState", "Speculation", "read_speculation"]

SpecState = Literal["none", "present", "by_reference", "implicit", "broken"]

OUR_METHODS = ("eagle3", "draft_model")


@frozen(kw_only=True)
class Speculation:
    """The speculation of one serve command.

    Attributes:
        state: `none`; `present`; `by_reference` (given, but its value is outside the recipe); `implicit` (the model is
            a speculators repository); `broken` (vLLM cannot read it: see `findings` for what to type).
        form: how it is written; None where there is none.
        method: as written, or as vLLM infers it; None where not known.
        method_inferred: the recipe leaves `method` out.
        model: the draft or head, or None.
        num_speculative_tokens: k, or None where not known.
        config: the configuration in force, keys with underscores; None where there is none or it is not known.
        target: for `implicit`, the model that is really served, where known.
        args: indexes of the words that make up every form of it, in force or not.
        in_config: keys of the `--config` file that hold it, as written.
        variant: for `broken`, what happened to the text (see `SpecText.variant`).
        correction: for `broken`, the argument to write instead, where it can be told.
        findings: what was noticed.
    """

    state: SpecState = "none"
    form: SpecForm | None = None
    method: str | None = None
    method_inferred: bool = False
    model: str | None = None
    num_speculative_tokens: int | None = None
    config: Mapping[str, Any] | None = None
    target: str | None = None
    args: tuple[int, ...] = ()
    in_config: tuple[str, ...] = ()
    variant: str | None = None
    correction: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the recipe speculates (or means to, through a value that is not in it)."""
        return self.state in ("present", "by_reference", "implicit")

    @property
    def draft_tensor_parallel_size(self) -> int | None:
        """GPUs the draft is split over, or None."""
        value = (self.config or {}).get("draft_tensor_parallel_size")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def revision(self) -> str | None:
        """Pinned revision of the draft, or None."""
        value = (self.config or {}).get("revision")
        return value if isinstance(value, str) else None


def read_speculation(
    flags: ServeFlags,
    *,
    verifier_of: Callable[[str], str | None] | None = None,
    target_config: Mapping[str, Any] | None = None,
) -> Speculation:
    """Say whether and how a command speculates.

    Args:
        flags: its flags.
        verifier_of: looks up the target of a speculators repository (a catalogue does this); None: unknown.
        target_config: `config.json` of the model where it is a local folder, for its `speculators_config`.
    """
    if flags.command.engine != "vllm":
        return Speculation()
    occurrences = speculative_occurrences(flags)
    places = Speculation(
        args=tuple(at for found in occurrences if found.origin == "cli" for at in range(found.first, found.last + 1)),
        in_config=tuple(found.spelled for found in occurrences if found.origin == "config"),
    )
    source, notes = source_in_force(flags, occurrences)
    implicit = _implicit(flags, verifier_of, target_config)
    if source is None:
        return evolve(implicit, args=places.args, in_config=places.in_config) if implicit is not None else places
    found = _judge(flags, source, evolve(places, form=source.form, findings=tuple(notes)))
    if found.state == "present":
        wrong = _rejected(flags, found, implicit is not None)
        # what is sure replaces what was a mere warning
        told = any(one.topic == "unknown-spec-keys" for one in wrong)
        kept = [one for one in found.findings if not (told and one.code == "JSD263")]
        found = evolve(found, findings=(*kept, *wrong))
    if implicit is not None and found.state == "present":
        return _merged(found, implicit)
    return found


def _judge(flags: ServeFlags, source: SpecSource, so_far: Speculation) -> Speculation:
    """Turn the words in force into a verdict with its findings."""
    text = source.text
    if text is not None and text.off:
        return evolve(so_far, form=None)
    if text is not None and text.variant is not None:
        return _broken(flags, so_far, text)
    if source.reference is not None:
        partly = source.config or {}
        return evolve(
            so_far,
            state="by_reference",
            method=_text(partly.get("method")),
            model=_text(partly.get("model")),
            num_speculative_tokens=_count(partly.get("num_speculative_tokens")),
            findings=(*so_far.findings, Finding.of("JSD261", reference=source.reference)),
        )
    config = text.config if text is not None else source.config
    return _present(flags, config or {}, so_far)


def _present(flags: ServeFlags, config: Mapping[str, Any], so_far: Speculation) -> Speculation:
    from jetson_specdec.engine.speculative import infer_method

    model, method = _text(config.get("model")), _text(config.get("method"))
    findings = list(so_far.findings)
    inferred = method is None
    if inferred:
        method = infer_method(model) if model is not None else None
        if method is not None:
            findings.append(Finding.of("JSD268", method=method, model=model))
        elif model is None:
            findings.append(Finding.of("JSD269"))
    findings.extend(_unknown_keys(flags, config))
    if method is not None and method not in OUR_METHODS:
        findings.append(Finding.of("JSD264", method=method))
    return evolve(
        so_far,
        state="present",
        method=method,
        method_inferred=inferred,
        model=model,
        num_speculative_tokens=_count(config.get("num_speculative_tokens")),
        config=dict(config),
        findings=tuple(findings),
    )


# What a repository that speculates by itself brings along, so that its absence is no fault.
_BROUGHT_ALONG = ("JSD360", "JSD362")


def _rejected(flags: ServeFlags, found: Speculation, implicit: bool) -> list[Finding]:
    """Return why vLLM would not start with this configuration, where that is sure."""
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.engine.speculative import validate_config

    if any(one.severity is Severity.BLOCKING for one in found.findings):
        return []
    release = flags.release or EngineRelease()
    parallel = flags.tensor_parallel_size or 1
    wrong = [
        one
        for one in validate_config(found.config or {}, release, target_tensor_parallel_size=parallel)
        if one.severity is Severity.BLOCKING and not (implicit and one.code in _BROUGHT_ALONG)
    ]
    if release.version is None:
        # keys and methods come and go with releases; a value that is none is wrong in all of them
        wrong = [one for one in wrong if one.topic == "spec-config-invalid" and one.code != "JSD363"]
    return wrong


def _unknown_keys(flags: ServeFlags, config: Mapping[str, Any]) -> list[Finding]:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.engine.release import NEWEST_KNOWN, release_from_version
    from jetson_specdec.engine.speculative import unknown_keys

    release = flags.release or EngineRelease()
    unknown = tuple(unknown_keys(config, release))
    if release.version is not None:
        return [Finding.of("JSD263", keys=list(unknown), release=release.version)] if unknown else []
    newest = [key for key in unknown_keys(config, release_from_version(NEWEST_KNOWN)) if key not in unknown]
    findings = []
    if unknown:
        findings.append(Finding.of("JSD263", keys=list(unknown), release=None))
    if newest:
        # The release is not known: the keys may be right for the one that runs.
        findings.append(Finding.of("JSD263", severity=Severity.WARNING, keys=newest, release=NEWEST_KNOWN))
    return findings


def _broken(flags: ServeFlags, so_far: Speculation, text: SpecText) -> Speculation:
    plain = spec_json(text.repaired) if text.repaired else None
    correction = f"--speculative-config '{plain}'" if plain else None
    wrapped = [layer for layer in flags.command.wrapped_in if layer not in ("yaml", "heredoc")]
    what = _VARIANTS[text.variant or "invalid_json"]
    if text.variant == "typographic_quotes":
        finding = Finding.of("JSD275" if correction else "JSD276", variant=what, correction=correction)
    elif wrapped and plain:
        # Inside another layer of quotes the plain correction would break again.
        finding = Finding.of("JSD279", variant=what, layer=wrapped[-1], text=plain)
    else:
        finding = Finding.of("JSD265" if correction else "JSD274", variant=what, correction=correction)
    repaired = text.repaired or {}
    return evolve(
        so_far,
        state="broken",
        method=_text(repaired.get("method")),
        model=_text(repaired.get("model")),
        num_speculative_tokens=_count(repaired.get("num_speculative_tokens")),
        variant=text.variant,
        correction=correction,
        findings=(*so_far.findings, finding),
    )


# What happened, as a phrase of the findings JSD265 and JSD274.
_VARIANTS = {
    "literal_single_quotes": "single quotes reach the engine as part of the text",
    "inner_quotes_lost": "the shell took the double quotes inside the JSON away",
    "split_by_brace_expansion": "the JSON stands without quotes and the shell splits it at its commas",
    "split_by_blanks": "the shell splits it at its blanks",
    "double_braces": "the braces are doubled",
    "every_character_escaped": "backslashes reach the engine as part of the text",
    "single_quoted_keys": "keys and texts stand in single quotes, JSON wants double quotes",
    "typographic_quotes": "it has typographic quotation marks",
    "not_an_object": "it is no JSON object",
    "invalid_json": "it is no valid JSON",
}


def _implicit(
    flags: ServeFlags, verifier_of: Callable[[str], str | None] | None, target_config: Mapping[str, Any] | None
) -> Speculation | None:
    model = flags.model
    inside = (target_config or {}).get("speculators_config")
    if isinstance(inside, dict):
        return _from_speculators(model, inside)
    if model is None:
        return None
    name = model.rstrip("/").rpartition("/")[2]
    _, mark, suffix = name.partition("-speculator.")
    if not mark:
        return None
    suffix = suffix.partition("-")[0].partition(".")[0]
    # Names of speculators repositories end in the algorithm; these two are served under another name.
    method = {"peagle": "eagle3", "dflash2": "dflash"}.get(suffix, suffix) or None
    target = verifier_of(model) if verifier_of is not None else None
    return Speculation(
        state="implicit",
        form="implicit",
        method=method,
        model=model,
        target=target,
        findings=_implicit_findings(model, method, target),
    )


def _implicit_findings(model: str | None, method: str | None, target: str | None) -> tuple[Finding, ...]:
    known = target is not None
    found = [Finding.of("JSD262", model=model, target=target) if known else Finding.of("JSD277", model=model)]
    if method is not None and method not in OUR_METHODS:
        found.append(Finding.of("JSD264", method=method))
    return tuple(found)


def _from_speculators(model: str | None, inside: Mapping[str, Any]) -> Speculation:
    """Read `speculators_config` of a local config.json, as vLLM's `transformers_utils/config.py` does."""
    verifier = inside.get("verifier")
    target = _text(verifier.get("name_or_path")) if isinstance(verifier, dict) else None
    algorithm = _text(inside.get("algorithm"))
    proposals = inside.get("proposal_methods")
    first = proposals[0] if isinstance(proposals, list) and proposals and isinstance(proposals[0], dict) else {}
    method = {"peagle": "eagle3", "dflash2": "dflash"}.get(algorithm or "", algorithm)
    return Speculation(
        state="implicit",
        form="implicit",
        method=method,
        model=model,
        target=target,
        num_speculative_tokens=_count(first.get("speculative_tokens")),
        findings=_implicit_findings(model, method, target),
    )


def _merged(found: Speculation, implicit: Speculation) -> Speculation:
    """A speculators target with a configuration of its own: method and model are the repository's, k the user's."""
    return evolve(
        found,
        state="implicit",
        form="implicit",
        method=implicit.method or found.method,
        method_inferred=False,
        model=implicit.model,
        target=implicit.target,
        findings=(
            *implicit.findings,
            *(one for one in found.findings if one.code not in ("JSD264", "JSD268", "JSD269")),
        ),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 2**63 or value % 1:
        return None  # NaN and the infinities are no count either
    return int(value)
