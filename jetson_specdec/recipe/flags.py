# SPDX-License-Identifier: Apache-2.0
"""What the arguments of a serve command mean: the values in force, whoever set them and however they are spelled.

`ServeFlags.read` is pure. It follows vLLM's rules: a `--config` file comes before the command line, the last
occurrence of a flag wins, unambiguous beginnings of a flag count, underscores are dashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import ServeCommand
from jetson_specdec.recipe.numbers import human_int, parse_float
from jetson_specdec.recipe.occurrences import Occurrence, Origin, config_occurrences, shown, walk
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.recipe.config_file import ConfigFile

__all__ = ["Reading", "ServeFlags", "State"]

State = Literal["absent", "value", "unresolved", "invalid"]

# Whole numbers; those that are true may have a suffix (`8k`). vLLM 0.32 `engine/arg_utils.py`.
INTEGERS = {
    "max-model-len": True,
    "max-num-batched-tokens": True,
    "kv-cache-memory-bytes": True,
    "max-num-seqs": False,
    "tensor-parallel-size": False,
    "port": False,
}


@frozen(kw_only=True)
class Reading:
    """One flag's value in force.

    Attributes:
        state: `absent` (not in the recipe), `value`, `unresolved` (there, but its value depends on something outside
            the recipe), `invalid` (vLLM would refuse the value).
        value: typed where the accessor gives it a type, else the text; None unless `state` is `value`.
        text: the value for showing, as resolved or as written; None where absent.
        origin: `cli` or `config`; None where absent.
        occurrence: the flag as it stands; None where absent.
    """

    state: State = "absent"
    value: Any = None
    text: str | None = None
    origin: Origin | None = None
    occurrence: Occurrence | None = None

    @property
    def optional(self) -> bool:
        """Whether the flag is there depends on the environment."""
        return self.occurrence is not None and self.occurrence.optional


@frozen(kw_only=True)
class ServeFlags:
    """The flags of one serve command. Make it with `ServeFlags.read`.

    Attributes:
        command: the command that was read.
        release: the vLLM it was read for, or None.
        config: its `--config` file, or None.
        occurrences: every flag in order of precedence: the last one of a name is in force.
        model_index: index in `command.args` of the word that names the model (the positional, or the word holding
            the value of `--model`); None where it comes from the config file or is missing.
        extras: indexes of words that vLLM would not recognise (a second positional).
        opaque: indexes of words from outside the recipe (an array, an unquoted variable) that may hold any flags.
        separator: index of a bare `--`, after which vLLM reads no flags.
        unread_config: the `--config` file as named, where it could not be read: what it sets is not known.
        findings: what was noticed; a blocking one means that vLLM would not start with this text, or serves
            something else than it says.
    """

    command: ServeCommand
    release: EngineRelease | None = None
    config: ConfigFile | None = field(default=None, repr=False)
    occurrences: tuple[Occurrence, ...] = ()
    model_reading: Reading = field(factory=Reading)
    model_index: int | None = None
    extras: tuple[int, ...] = ()
    opaque: tuple[int, ...] = ()
    separator: int | None = None
    unread_config: str | None = None
    findings: tuple[Finding, ...] = ()
    _last: Mapping[str, Occurrence] = field(factory=dict, repr=False, eq=False, alias="last_by_name")

    @classmethod
    def read(
        cls, command: ServeCommand, release: EngineRelease | None = None, config: ConfigFile | None = None
    ) -> ServeFlags:
        """Interpret the arguments of a command.

        Args:
            command: as parsed from a recipe.
            release: which vLLM this is, as far as known; it decides which flags exist and what a shortened one means.
            config: the command's `--config` file (`find_config`), or None.
        """
        from jetson_specdec.recipe.config_file import config_reference
        from jetson_specdec.recipe.flag_checks import check
        from jetson_specdec.recipe.model_word import find_model

        walked = walk(command.args, release)
        from_file = tuple(config_occurrences(config, release)) if config is not None else ()
        occurrences = from_file + walked.occurrences
        last = {found.name: found for found in occurrences if found.known and found.key is None}
        model = find_model(command, walked, from_file, release)
        unread = config_reference(command) if config is None or not config.found else None
        flags = cls(
            command=command,
            release=release,
            config=config,
            occurrences=occurrences,
            model_reading=model.reading,
            model_index=model.index,
            extras=model.extras,
            opaque=walked.opaque,
            separator=walked.separator,
            unread_config=unread,
            last_by_name=last,
        )
        from attrs import evolve

        return evolve(flags, findings=(*model.findings, *check(flags)))

    # --- any flag -----------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Reading:
        """Return the value in force of a flag named with dashes (`kv-cache-dtype`), as text.

        Of a flag with several values it is the last. A boolean flag has the value `true` or `false`.
        """
        found = self._last.get(name)
        if found is None:
            if self.unread_config is not None:
                return Reading(state="unresolved", text=self.unread_config, origin="config")
            return Reading()
        if found.arity == "none" or (found.boolean and not found.values):
            text = "false" if found.negated else "true"
            return Reading(state="value", value=text, text=text, origin=found.origin, occurrence=found)
        if found.missing or not found.values:
            return Reading(state="invalid", text="", origin=found.origin, occurrence=found)
        if found.value is None:
            return Reading(state="unresolved", text=found.text, origin=found.origin, occurrence=found)
        return Reading(state="value", value=found.value, text=found.value, origin=found.origin, occurrence=found)

    def all(self, name: str) -> tuple[Occurrence, ...]:
        """Return every occurrence of a flag, dotted ones included, in order of precedence."""
        return tuple(found for found in self.occurrences if found.known and found.name == name)

    def has(self, name: str) -> bool:
        """Whether a boolean flag is on."""
        return bool(self.get(name).value == "true")

    def text_of(self, name: str) -> str | None:
        """Return a flag's value as text, or None where absent or not known."""
        value = self.get(name).value
        return value if isinstance(value, str) else None

    def number(self, name: str) -> Reading:
        """Return a flag's value as a whole number, read as vLLM reads it (`8k` is 8000, `8K` is 8192)."""
        return _typed(self.get(name), lambda text: whole_number(name, text))

    # --- the flags that matter here -----------------------------------------------------------------------------------

    @property
    def utilization(self) -> Reading:
        """`--gpu-memory-utilization` as a fraction; `invalid` outside 0 < x ≤ 1 (vLLM 0.32 `config/cache.py`).

        Not seen is `unresolved`, not `absent`, where words from outside the recipe may set it (`opaque`).
        """
        reading = _typed(self.get("gpu-memory-utilization"), _fraction)
        if reading.state == "absent" and self.opaque:
            return Reading(state="unresolved", text=shown(self.command.args[self.opaque[0]]), origin="cli")
        return reading

    @property
    def opaque_from(self) -> int | None:
        """Index of the first word from which words of the outside may follow, with the flag it stands behind."""
        if not self.opaque:
            return None
        at = min(self.opaque)
        return next((one.first for one in self.occurrences if one.origin == "cli" and one.first < at <= one.last), at)

    @property
    def gpu_memory_utilization(self) -> float | None:
        """The utilisation in the recipe, or None where it is absent or not known (see `utilization`)."""
        value = self.utilization.value
        return value if isinstance(value, float) else None

    @property
    def model(self) -> str | None:
        """The model as the engine receives it (id or path), or None where the recipe does not say."""
        value = self.model_reading.value
        return value if isinstance(value, str) else None

    @property
    def served_model_name(self) -> str | None:
        """The first name under which the API offers the model, or None."""
        found = self._last.get("served-model-name")
        return found.values[0] if found is not None and found.values else None

    @property
    def max_model_len(self) -> int | None:
        """Context length in tokens; -1 for `auto`; None where absent or not known."""
        return _int(self.number("max-model-len"))

    @property
    def max_num_seqs(self) -> int | None:
        """Sequences at once, or None."""
        return _int(self.number("max-num-seqs"))

    @property
    def max_num_batched_tokens(self) -> int | None:
        """Tokens a step, or None."""
        return _int(self.number("max-num-batched-tokens"))

    @property
    def tensor_parallel_size(self) -> int | None:
        """GPUs a model is split over, or None (vLLM: 1)."""
        return _int(self.number("tensor-parallel-size"))

    @property
    def kv_cache_memory_bytes(self) -> int | None:
        """Fixed size of the KV cache in bytes, or None."""
        return _int(self.number("kv-cache-memory-bytes"))

    @property
    def kv_cache_dtype(self) -> str | None:
        """Type of the KV cache, or None."""
        return self.text_of("kv-cache-dtype")

    @property
    def quantization(self) -> str | None:
        """Quantisation method, or None."""
        return self.text_of("quantization")

    @property
    def dtype(self) -> str | None:
        """Type of weights and activations, or None."""
        return self.text_of("dtype")

    @property
    def revision(self) -> str | None:
        """Pinned revision of the model, or None."""
        return self.text_of("revision")

    @property
    def enforce_eager(self) -> bool:
        """Whether CUDA graphs are off."""
        return self.has("enforce-eager")

    @property
    def enable_lora(self) -> bool:
        """Whether LoRA adapters are on."""
        return self.has("enable-lora")

    @property
    def trust_remote_code(self) -> bool:
        """Whether code from the model's repository may run."""
        return self.has("trust-remote-code")

    @property
    def host(self) -> str | None:
        """Address the server listens on, or None."""
        return self.text_of("host")

    @property
    def port(self) -> int | None:
        """Port the server listens on, or None (vLLM: 8000)."""
        return _int(self.number("port"))

    @property
    def api_key_present(self) -> bool:
        """Whether the server asks for a key; the key itself is never handed out."""
        return "api-key" in self._last or "VLLM_API_KEY" in self.command.env

    @property
    def config_path(self) -> str | None:
        """The `--config` file as named in the command, or None."""
        from jetson_specdec.recipe.config_file import config_reference

        return config_reference(self.command)

    def serve_args(self, redacted: bool = False) -> list[str]:
        """Return the full argument list after `serve`; words that cannot be resolved stay as written (`$PORT`).

        Args:
            redacted: mask secrets (`--api-key`, tokens).
        """
        words = [shown(arg) for arg in self.command.args]
        if redacted:
            from jetson_specdec.recipe.masking import redact_args

            return redact_args(words, self.occurrences)
        return words


def _typed(reading: Reading, convert: Any) -> Reading:
    if reading.state != "value":
        return reading
    value = convert(reading.value)
    return Reading(
        state="invalid" if value is None else "value",
        value=value,
        text=reading.text,
        origin=reading.origin,
        occurrence=reading.occurrence,
    )


def whole_number(name: str, text: str) -> int | None:
    """Return a flag's value as a whole number; None where vLLM would refuse it."""
    number: int | None
    if INTEGERS.get(name, True):
        number = human_int(text, auto=name == "max-model-len")
    else:
        try:
            number = int(text)
        except ValueError:
            return None
    if number is None or number >= 2**63:
        return None
    # -1 is `auto` for the length; no other of these flags may be negative.
    return number if number >= 0 or (name == "max-model-len" and number == -1) else None


def _fraction(text: str) -> float | None:
    number = parse_float(text)
    return number if number is not None and 0 < number <= 1 else None


def _int(reading: Reading) -> int | None:
    return reading.value if isinstance(reading.value, int) else None
