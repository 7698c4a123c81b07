# SPDX-License-Identifier: Apache-2.0
"""What a release makes of a configuration that argparse let through: the refusals of vLLM's configuration classes.

Which keys, values and methods a release takes comes from the tables of `jetson_specdec.engine`; the words are vLLM's
(`config/speculative.py`, `config/cache.py`, `engine/arg_utils.py`, pydantic). Files are not looked at: whether a draft
exists and fits its target is asked for by name (`start_failure`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import evolve

from jetson_specdec.testing.fake_failure import StartFailure

__all__ = ["accepted_config", "refused"]

_SITE = "/usr/local/lib/python3.12/dist-packages/vllm"
_HEAD = "pydantic_core._pydantic_core.ValidationError: 1 validation error for {}"
_MORE = "    For further information visit https://errors.pydantic.dev/2.12/v/{}"


def refused(
    config: Any, *, version: str, utilization: float, max_num_seqs: int, tensor_parallel_size: int = 1
) -> StartFailure | None:
    """Return with which failure a release refuses a configuration, or None where it takes it.

    Args:
        config: `--speculative-config` as parsed; None without.
        version: the release.
        utilization: `--gpu-memory-utilization`.
        max_num_seqs: `--max-num-seqs`.
        tensor_parallel_size: of the target.
    """
    if not 0 < utilization <= 1:
        said = ("less than or equal to 1", "less_than_equal") if utilization > 1 else ("greater than 0", "greater_than")
        return _report("CacheConfig", "gpu_memory_utilization", f"Input should be {said[0]}", said[1], utilization)
    if max_num_seqs < 1:
        said = ("greater than or equal to 1", "greater_than_equal")
        return _report("SchedulerConfig", "max_num_seqs", f"Input should be {said[0]}", said[1], max_num_seqs)
    if config is None:
        return None
    if not isinstance(config, Mapping):
        kind = type(config).__name__
        where = f'  File "{_SITE}/engine/arg_utils.py", line 2086, in create_speculative_config'
        return _raw("spec_config_invalid_value", where, f"AttributeError: {kind!r} object has no attribute 'items'")
    from jetson_specdec.engine.release import release_from_version
    from jetson_specdec.engine.speculative import validate_config
    from jetson_specdec.findings import Severity

    release = release_from_version(version)
    for finding in validate_config(config, release, target_tensor_parallel_size=tensor_parallel_size):
        if finding.severity is Severity.BLOCKING and (words := _WORDS.get(finding.code)) is not None:
            return words(dict(config), finding.values, version)
    if config.get("method") == "suffix":
        text = "Arctic Inference is required for suffix decoding. Install via `pip install arctic-inference==0.1.1`."
        return _raw("package_missing", f"ImportError: {text}")
    return None


def accepted_config(config: Mapping[str, Any] | None, version: str) -> Mapping[str, Any] | None:
    """Return the part of a configuration that a release reads; others it ignores without a word (0.9 to 0.15)."""
    if config is None:
        return None
    from jetson_specdec.engine.release import release_from_version
    from jetson_specdec.engine.speculative import unknown_keys

    unknown = unknown_keys(config, release_from_version(version))
    return {key: value for key, value in config.items() if key not in unknown}


# --- the words --------------------------------------------------------------------------------------------------------


def _report(about: str, name: str | None, text: str, kind: str, value: Any) -> StartFailure:
    cause = "flag_invalid_value"
    if about == "SpeculativeConfig":
        cause = "spec_config_unknown_key" if kind == "unexpected_keyword_argument" else "spec_config_invalid_value"
    shown = f"  {text} [type={kind}, input_value={value!r}, input_type={type(value).__name__}]"
    return _raw(cause, _HEAD.format(about), *([name] if name else []), shown, _MORE.format(kind))


def _value_error(text: str, config: Mapping[str, Any]) -> StartFailure:
    shown = f"  Value error, {text} [type=value_error, input_value=ArgsKwargs((), {config!r}), input_type=ArgsKwargs]"
    return _raw("spec_config_invalid_value", _HEAD.format("SpeculativeConfig"), shown, _MORE.format("value_error"))


def _raw(cause: str, *lines: str) -> StartFailure:
    # A dollar sign of the given texts is none of ours to fill in.
    return StartFailure(
        cause=cause,
        variant="given",
        after="arguments",
        frame="config",
        lines=tuple(line.replace("$", "$$") for line in lines),
        end=1,
        speculation=cause != "flag_invalid_value",
    )


def _unknown(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    from jetson_specdec.engine.tables import release_key

    key = str(values["key"]).replace("-", "_")
    if release_key(version) < (0, 9):
        text = f"TypeError: SpeculativeConfig.__init__() got an unexpected keyword argument {key!r}"
        return _raw("spec_config_unknown_key", text)
    value = config.get(str(values["key"]), config.get(key))
    return _report("SpeculativeConfig", key, "Unexpected keyword argument", "unexpected_keyword_argument", value)


def _method(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    from jetson_specdec.engine.tables import in_ranges, table

    method = config.get("method")
    words = [name for name, ranges in table()["method_accepted"].items() if in_ranges(version, ranges)]
    if method in words:
        # Accepted as a word, and nothing behind it.
        where = f'  File "{_SITE}/v1/worker/gpu/spec_decode/__init__.py", line 86, in init_speculator'
        return _in_engine("method_unsupported", where, f"NotImplementedError: {method} is not supported yet.")
    known = " or ".join([", ".join(map(repr, words[:-1])), repr(words[-1])])
    found = _report("SpeculativeConfig", "method", f"Input should be {known}", "literal_error", method)
    elsewhere = method in table()["method_accepted"]
    return evolve(found, cause="method_unsupported") if elsewhere else found


def _no_draft_model(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    from jetson_specdec.engine.tables import release_key

    last = "deepseek_mtp" if release_key(version) < (0, 11) else "mtp"
    text = (
        "Speculative decoding with draft model is not supported yet. Please consider using other speculative decoding"
    )
    text = f"NotImplementedError: {text} methods such as ngram, medusa, eagle, or {last}."
    return _raw("method_unsupported", text)


def _no_k(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    if config.get("model") is not None:
        text = "A speculative model was provided, but `num_speculative_tokens` was not provided"
    else:
        text = "num_speculative_tokens must be provided with speculative model unless the draft model config contains "
        text += "an n_predict parameter."
    return _value_error(text, config)


def _bad_k(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    value = config.get("num_speculative_tokens")
    if isinstance(value, str):
        text, kind = "Input should be a valid integer, unable to parse string as an integer", "int_parsing"
    elif isinstance(value, float):
        text, kind = "Input should be a valid integer, got a number with a fractional part", "int_from_float"
    else:
        text, kind = "Input should be greater than 0", "greater_than"
    return _report("SpeculativeConfig", "num_speculative_tokens", text, kind, value)


def _no_model(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    from jetson_specdec.engine.tables import release_key

    but = "" if release_key(version) < (0, 12) else "but "
    return _value_error(f"num_speculative_tokens was provided {but}without speculative model.", config)


def _type(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    key = str(values["key"])
    name, kind = {
        "a text in quotes": ("a valid string", "string_type"),
        "true or false": ("a valid boolean", "bool_type"),
    }.get(str(values["expected"]), ("greater than or equal to 1", "greater_than_equal"))
    return _report("SpeculativeConfig", key, f"Input should be {name}", kind, config.get(key))


def _choice(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    key, known = str(values["key"]), " or ".join(repr(each) for each in values["choices"])
    return _report("SpeculativeConfig", key, f"Input should be {known}", "literal_error", config.get(key))


def _said(text: str) -> Callable[[dict[str, Any], Mapping[str, Any], str], StartFailure]:
    return lambda config, values, version: _value_error(text.format(**{**config, **values}), config)


def _schedule(config: dict[str, Any], values: Mapping[str, Any], version: str) -> StartFailure:
    text = "ValueError: The first batch-size range must start at 1 and ranges must not overlap."
    return _in_engine("spec_config_invalid_value", text)


def _in_engine(cause: str, *lines: str) -> StartFailure:
    return StartFailure(cause=cause, variant="given", after="config", frame="engine", lines=lines, speculation=True)


_WORDS: Final[Mapping[str, Callable[[dict[str, Any], Mapping[str, Any], str], StartFailure]]] = {
    **dict.fromkeys(("JSD350", "JSD352", "JSD354", "JSD355"), _unknown),
    **dict.fromkeys(("JSD330", "JSD332", "JSD336"), _method),
    "JSD331": _no_draft_model,
    "JSD360": _no_k,
    "JSD361": _bad_k,
    "JSD362": _no_model,
    "JSD363": _said(
        "'tensor_parallel_size' is not a valid argument in the speculative_config. Please pass "
        "'draft_tensor_parallel_size' instead."
    ),
    "JSD364": _said(
        "speculative_draft_tensor_parallel_size={draft_tensor_parallel_size} cannot be other value than 1 or target "
        "model tensor_parallel_size"
    ),
    "JSD365": _said("prompt_lookup_min={low} must be <= prompt_lookup_max={high}"),
    "JSD366": _type,
    "JSD367": _said("use_heterogeneous_vocab only works with method='draft_model'"),
    "JSD368": _said("dspark_draft_topk is only supported by DSpark"),
    "JSD373": _choice,
    **dict.fromkeys(("JSD377", "JSD378", "JSD379"), _schedule),
}
