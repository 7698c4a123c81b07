# SPDX-License-Identifier: Apache-2.0
"""`vllm serve` arguments for a fake server: read as vLLM reads them, refused as its argparse refuses them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jetson_specdec.errors import SpecdecError
from jetson_specdec.testing.fake_app import Settings
from jetson_specdec.testing.fake_log import VERSION

__all__ = ["ArgumentFailure", "read_arguments"]


class ArgumentFailure(SpecdecError):  # noqa: N818 - vLLM's refusal, not ours
    """The real `vllm serve` would have refused these arguments.

    Attributes:
        printed: what it prints on stderr.
    """

    exit_code = 2

    @property
    def printed(self) -> str:
        """What `vllm serve` prints."""
        return f"vllm serve: error: {self.values['reason']}"


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text)
    if match is None:
        raise ValueError(text)
    factors = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}
    return int(float(match[1]) * factors[match[2]])


_TAKEN: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--model": ("model", str),
    "--served-model-name": ("served_model_name", str),
    "--max-model-len": ("max_model_len", _size),
    "--max-num-seqs": ("max_num_seqs", int),
    "--gpu-memory-utilization": ("gpu_memory_utilization", float),
    "--api-key": ("api_key", str),
    "--host": ("host", str),
    "--port": ("port", int),
    "--tensor-parallel-size": ("tensor_parallel_size", int),
    "--per-request-spec-decode-metrics": ("per_request_spec_decode_metrics", str),
    "--ssl-certfile": ("ssl_certfile", str),
    "--ssl-keyfile": ("ssl_keyfile", str),
}
_SWITCHES = {"--enable-prefix-caching": "enable_prefix_caching", "--disable-log-stats": "disable_log_stats"}


def read_arguments(words: Sequence[str], **defaults: Any) -> Settings:
    """Read what stands after `vllm` (with or without `serve`).

    Args:
        words: arguments; a flag the fake has no use for is checked for existence and its value skipped.
        **defaults: fields of `Settings` that the arguments may override; `version` decides which flags there are.

    Raises:
        ArgumentFailure: vLLM would not accept them; `printed` is how it says so.
    """
    from jetson_specdec.engine.flags import flag_table
    from jetson_specdec.engine.release import release_from_version

    table, release = flag_table(), release_from_version(defaults.get("version", VERSION))
    values: dict[str, Any] = dict(defaults)
    shown: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    queue = list(words[1:] if words[:1] == ["serve"] or words[:1] == ("serve",) else words)
    positionals: list[str] = []
    unknown: list[str] = []
    while queue:
        word = queue.pop(0)
        match = table.resolve(word, release)
        if match.kind == "positional":
            positionals.append(word)
            continue
        if not match.known or match.kind == "retired" or match.accepted is False or match.name is None:
            unknown.append(word)
            continue
        value = match.value
        if match.takes_value:
            if not queue:
                raise _refused(f"argument {match.name}: expected one argument")
            value = queue.pop(0)
            # Flags with several values end at the next flag.
            while match.arity == "many" and queue and not queue[0].startswith("-"):
                queue.pop(0)
        elif match.arity == "optional" and value is None and queue and not queue[0].startswith("-"):
            value = queue.pop(0)
        _take(match.name, match.key, value, bool(match.negated), values, shown, spec)
    if unknown:
        raise _refused(f"unrecognized arguments: {' '.join(unknown + positionals[1:])}")
    if len(positionals) > 1:
        raise _refused(f"unrecognized arguments: {' '.join(positionals[1:])}")
    if positionals:
        values["model"] = shown["model"] = positionals[0]
    if spec:
        values["speculative_config"] = shown["speculative_config"] = spec
    return Settings(**values, non_default=shown)


def _take(
    name: str,
    key: str | None,
    value: str | None,
    negated: bool,
    values: dict[str, Any],
    shown: dict[str, Any],
    spec: dict[str, Any],
) -> None:
    if name == "--speculative-config":
        if key:
            spec[key.replace("-", "_")] = _guess(value or "")
        else:
            config = _json(value or "")
            values["speculative_config"] = shown["speculative_config"] = config
        return
    if name in ("--spec-method", "--spec-model", "--spec-tokens"):
        field = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}[name]
        spec[field] = _guess(value or "")
        return
    if name in _SWITCHES:
        values[_SWITCHES[name]] = shown[_SWITCHES[name]] = not negated
        return
    if name in _TAKEN and value is not None:
        field, convert = _TAKEN[name]
        try:
            values[field] = convert(value)
        except ValueError:
            kind = getattr(convert, "__name__", "value").strip("_")
            raise _refused(f"argument {name}: invalid {kind} value: {value!r}") from None
        if field != "api_key":
            shown[field] = values[field]


def _json(text: str) -> Any:
    if text in ("", "None", "null"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        raise _refused(
            f"argument --speculative-config/-sc: Value {text} cannot be converted to "
            "<function loads at 0x7f0000000000>."
        ) from None
    if isinstance(value, dict):
        return {str(key).replace("-", "_"): item for key, item in value.items()}
    return value


def _guess(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refused(reason: str) -> ArgumentFailure:
    return ArgumentFailure("JSE680", reason=reason)


def truth_from(text: str | None) -> dict[str, Any]:
    """Read the JSON object (or the file it names with a leading `@`) that describes a fake's truth."""
    if not text:
        return {}
    if text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    data = json.loads(text)
    if not isinstance(data, dict):
        raise _refused("the description of the fake must be a JSON object")
    return data
