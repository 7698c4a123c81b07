# SPDX-License-Identifier: Apache-2.0
"""Taking over what `jetson-inference-mem-tune` recommends.

Its JSON (NVIDIA/skills @7149a88, `recommend.py`): `sku`, `variant`, `l4t_version`, `mem_total_gb`, `runtime`,
`rationale`, `launch_flags`, `alternatives`, `notes`. Any value may be missing; unknown ones are ignored.
"""

from __future__ import annotations

import json
from typing import Any

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.core import Arg, Recipe, ServeCommand
from jetson_specdec.recipe.flags import ServeFlags
from jetson_specdec.values import frozen

__all__ = ["MemTune", "mem_tune_recipe", "read_mem_tune"]


@frozen(kw_only=True)
class MemTune:
    """A recommendation of `jetson-inference-mem-tune`.

    Attributes:
        runtime: `vllm`, `sglang`, `llama-cpp`, `tensorrt-edge`, or None.
        launch_flags: the flags as it prints them.
        gpu_memory_utilization, max_model_len, max_num_seqs, enable_prefix_caching: read from them; None where absent.
        sku, variant, l4t_version, mem_total_gib: the board it was made for.
        rationale: its reasons.
        notes: its notes.
        other_vllm_flags: where another runtime is recommended and vLLM is among the alternatives, vLLM's flags.
    """

    runtime: str | None = None
    launch_flags: tuple[str, ...] = ()
    gpu_memory_utilization: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool | None = None
    sku: str | None = None
    variant: str | None = None
    l4t_version: str | None = None
    mem_total_gib: float | None = None
    rationale: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    other_vllm_flags: tuple[str, ...] = ()


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _known(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in ("", "unknown") else None


def _launch_flags(value: Any) -> tuple[str, ...]:
    """Return flags as words: a list of `--flag=value`, one text with all of them, or a mapping."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, dict):
        return tuple(
            f"--{key.lstrip('-')}" if item is True else f"--{key.lstrip('-')}={item}" for key, item in value.items()
        )
    return tuple(word for item in _texts(value) for word in item.split())


def _vllm_alternative(value: Any) -> tuple[str, ...]:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item.get("runtime") == "vllm":
            return _launch_flags(item.get("launch_flags"))
    return ()


def _args(words: tuple[str, ...]) -> tuple[Arg, ...]:
    return tuple(Arg(value=word, raw=word, start=0, end=0) for word in words)


def _document(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecipeSyntaxError("JSE229", where=where, reason=f"it is no JSON ({error})") from None
    if not isinstance(data, dict):
        raise RecipeSyntaxError("JSE229", where=where, reason="it is no JSON object")
    if "launch_flags" not in data:
        raise RecipeSyntaxError("JSE229", where=where, reason="it has no launch_flags")
    return data


def read_mem_tune(text: str, *, where: str = "the mem-tune file") -> MemTune:
    """Read a recommendation; unknown keys and odd values are passed over.

    Raises:
        RecipeSyntaxError: the text is no JSON object with `launch_flags`.
    """
    data = _document(text, where)
    words = _launch_flags(data.get("launch_flags"))
    runtime = _known(data.get("runtime"))
    other = _vllm_alternative(data.get("alternatives")) if runtime != "vllm" else ()
    flags = ServeFlags.read(
        ServeCommand(index=0, serve_form="other", args=_args(words if runtime != "vllm" or words else other))
    )
    total = data.get("mem_total_gb")
    return MemTune(
        runtime=runtime,
        launch_flags=words,
        gpu_memory_utilization=flags.gpu_memory_utilization,
        max_model_len=flags.max_model_len,
        max_num_seqs=flags.max_num_seqs,
        enable_prefix_caching=flags.get("enable-prefix-caching").value == "true" or None,
        sku=_known(data.get("sku")),
        variant=_known(data.get("variant")),
        l4t_version=_known(data.get("l4t_version")),
        mem_total_gib=float(total) if isinstance(total, (int, float)) and not isinstance(total, bool) else None,
        rationale=_texts(data.get("rationale")),
        notes=_texts(data.get("notes")),
        other_vllm_flags=other,
    )


def mem_tune_recipe(text: str, *, path: str | None = None) -> Recipe:
    """Return a recommendation in the shape of a recipe: flags without a model, which cannot be edited.

    Raises:
        RecipeSyntaxError: as `read_mem_tune`.
    """
    tuned = read_mem_tune(text, where=path or "the mem-tune file")
    command = ServeCommand(
        index=0,
        serve_form="vllm_serve" if tuned.runtime in ("vllm", None) else "other",
        engine={"llama-cpp": "llama.cpp", "tensorrt-edge": "tensorrt-edge-llm"}.get(
            tuned.runtime or "vllm", tuned.runtime or "vllm"
        ),
        args=_args(tuned.launch_flags),
        end=len(text),
        blocked=Finding.of("JSD290"),
    )
    return Recipe(text=text, form="mem_tune", path=path, commands=(command,))
