# SPDX-License-Identifier: Apache-2.0
"""Which word of a serve command names the model.

`vllm serve` takes it as the positional word or as `--model` (then a positional as well is refused); the positional
beats a `model:` of the `--config` file. The older `api_server` module ignores a positional word and serves vLLM's
default model instead. Source: vLLM 0.32 `utils/argparse_utils.py`, `entrypoints/launchers/api_server/entry.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Arg, ServeCommand
from jetson_specdec.recipe.occurrences import Occurrence, Walk, resolve, shown
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.recipe.flags import Reading

__all__ = ["ModelWord", "find_model"]


@frozen(kw_only=True)
class ModelWord:
    """The answer: the model's reading, where its word stands, and positionals left over."""

    reading: Reading
    index: int | None = None
    extras: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()


def _ignores_positionals(command: ServeCommand, release: EngineRelease | None) -> bool:
    if command.serve_form == "api_server":
        return True
    if command.serve_form != "image_entrypoint" or release is None or command.entrypoint is not None:
        return False
    from jetson_specdec.engine.entrypoint import entrypoint_of

    return entrypoint_of(release).kind == "api_server"


def _reading(arg: Arg) -> Reading:
    from jetson_specdec.recipe.flags import Reading

    if arg.value is None:
        return Reading(state="unresolved", text=shown(arg), origin="cli")
    return Reading(state="value", value=arg.value, text=arg.value, origin="cli")


def _swallowed(walked: Walk, args: Sequence[Arg]) -> Occurrence | None:
    """Return a `--served-model-name a MODEL` that took the model as one more name."""
    for found in walked.occurrences:
        value = found.value
        if found.name == "served-model-name" and len(found.values) > 1 and value and "/" in value:
            return found
    return None


def find_model(
    command: ServeCommand, walked: Walk, from_file: Sequence[Occurrence], release: EngineRelease | None
) -> ModelWord:
    """Find the model of a command: in its words, or where they leave it to KServe, by what surrounds them."""
    from attrs import evolve

    from jetson_specdec.recipe.flags import Reading

    word = _in_words(command, walked, from_file, release)
    named, value = command.model_named, word.reading.value
    # KServe puts what it downloads at /mnt/models.
    left_open = word.reading.state == "absent" or (isinstance(value, str) and value.rstrip("/") == "/mnt/models")
    if named is None or not left_open:
        return word
    return evolve(word, reading=Reading(state="value", value=named, text=named, origin="cli"))


def _in_words(
    command: ServeCommand, walked: Walk, from_file: Sequence[Occurrence], release: EngineRelease | None
) -> ModelWord:
    """Find the model in the words of a command.

    Args:
        command: the command.
        walked: its words, read.
        from_file: flags of its `--config` file.
        release: which vLLM, as far as known.
    """
    from jetson_specdec.recipe.flags import Reading

    args = command.args
    flags = [found for found in walked.occurrences if found.name == "model" and found.known and found.key is None]
    in_file = [found for found in from_file if found.name == "model" and found.key is None]
    positionals = [index for index in walked.positionals if not _typographic(shown(args[index]))]
    findings: list[Finding] = []
    extras: tuple[int, ...] = ()
    if _ignores_positionals(command, release):
        extras = tuple(positionals[1:])  # the first one is taken and forgotten, more are refused
        if positionals and not flags and not in_file:
            word = shown(args[positionals[0]])
            findings.append(Finding.of("JSD249", word=word))
            return ModelWord(reading=Reading(), extras=extras, findings=tuple(findings))
        positionals = []
    if flags:
        found = flags[-1]
        value = found.value
        extras = extras or tuple(positionals)
        state = "invalid" if found.missing else "unresolved" if value is None else "value"
        reading = Reading(
            state=state,  # type: ignore[arg-type]
            value=value,
            text=found.text,
            origin="cli",
            occurrence=found,
        )
        return ModelWord(reading=reading, index=found.last, extras=extras, findings=tuple(findings))
    if positionals:
        first = positionals[0]
        if not in_file and command.serve_form != "api_server" and _flag_opens(args, first):
            if "--config" in [arg.value for arg in args]:
                findings.append(Finding.of("JSD253", word=shown(args[first])))
            elif any(found.name == "served-model-name" for found in walked.occurrences):
                findings.append(Finding.of("JSD258", word=shown(args[first])))
        return ModelWord(
            reading=_reading(args[first]), index=first, extras=tuple(positionals[1:]), findings=tuple(findings)
        )
    if in_file:
        found = in_file[-1]
        reading = Reading(state="value", value=found.value, text=found.text, origin="config", occurrence=found)
        return ModelWord(reading=reading, extras=extras)
    swallowed = _swallowed(walked, args)
    if swallowed is not None:
        findings.append(Finding.of("JSD256", word=swallowed.value))
        return ModelWord(reading=Reading(), findings=tuple(findings))
    if walked.opaque:
        return ModelWord(reading=Reading(state="unresolved", text=shown(args[walked.opaque[0]]), origin="cli"))
    return ModelWord(reading=Reading(), extras=extras)


def _typographic(word: str) -> bool:
    return bool(word) and not word[0].isascii() and resolve(word).kind == "typography"


def _flag_opens(args: Sequence[Arg], index: int) -> bool:
    """Whether a flag stands where vLLM expects the model: it looks at the first word after `serve` alone."""
    return index > 0 and shown(args[0]).startswith("-")
