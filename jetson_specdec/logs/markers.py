# SPDX-License-Identifier: Apache-2.0
"""The lines of a healthy start: how far it came, its arguments, its numbers.

Source of the texts: vLLM 0.6 to 0.32, `entrypoints/`, `v1/engine/core.py`, `v1/worker/gpu_worker.py`,
`v1/worker/gpu_model_runner.py`, `v1/core/kv_cache_utils.py`, and their predecessors of the first engine generation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from jetson_specdec.logs.attempt import Attempt, Proof
from jetson_specdec.logs.lines import Line

__all__ = ["anchors", "begins_attempt", "finish", "read_marker"]

_BEGIN = ("server version", "non-default args:", "args: Namespace(", "█     █     █▄")
_DRAFTER = (
    "Loading drafter model",
    "Loading draft model",
    "Using Eagle3 auxiliary layers",
    "Using auxiliary layers from",
    "Assuming the EAGLE head shares",
    "Detected EAGLE model",
)
_STARTED = ("Application startup complete", "Uvicorn running on")
_STOPPED = (
    "API server: shutdown triggered",
    "trigger received signal",
    "Shutting down",
    "eceived SIGTERM",
    "eceived shutdown signal",
    "State 'stop-sigterm' timed out",
    ": Stopping ",
    "^C",
    "KeyboardInterrupt",
    "Terminating on signal",
)
_STAGES = {
    "Resolved architecture:": "config",
    "LLM engine (v": "config",
    "Starting to load model": "load",
    "Loading safetensors checkpoint shards": "load",
    "Loading weights took": "load",
    "Available KV cache memory": "kv_cache",
    "KV cache size:": "kv_cache",
    "# GPU blocks:": "kv_cache",
    "Maximum concurrency for": "kv_cache",
    "Capturing CUDA graph": "warmup",
    "Capturing the model for CUDA graphs": "warmup",
    "Capturing cudagraphs": "warmup",
    "Graph capturing finished": "warmup",
    "init engine (profile": "warmup",
    "Starting vLLM": "warmup",
}
_OTHERS = (
    "speculative_config=",
    "Model loading took",
    "oading model weights took",
    "Using V2 Model Runner",
    "model weights take",
    "Client Error",
    "Server Error",
    "/resolve/",
    "/api/models/",
    "huggingface.co/",
    "hf-mirror.com/",
    "Max retries exceeded with url",
    "HTTP/1.1",
    "SpecDecoding metrics:",
    "Avg generation throughput:",
    "embedding dim (",
    "version ",
)


@lru_cache(maxsize=1)
def anchors() -> tuple[str, ...]:
    """Return the texts by which such lines are found."""
    return (*_BEGIN, *_DRAFTER, *_STARTED, *_STOPPED, *_STAGES, *_OTHERS)


def begins_attempt(line: Line, current: Attempt) -> bool:
    """Whether a line belongs to a further start than the current one."""
    if not any(text in line.text for text in _BEGIN):
        return False
    if "non-default args:" in line.text or "args: Namespace(" in line.text:
        return current.arguments_text is not None or current.past("load") or bool(current.hits) or current.started
    return current.past("arguments") and (
        current.arguments_text is not None or current.past("config") or bool(current.hits) or current.started
    )


def read_marker(line: Line, attempt: Attempt, order: int, proof: Callable[[], Proof]) -> None:
    """Note what a line tells about the start. `proof` makes the line showable when it is worth it."""
    text = line.text
    if line.time is not None and attempt.time is None:
        attempt.time = line.time
    if "Error" in text or "/" in text:
        _hub(text, attempt, order)
    if line.level not in ("ERROR", "CRITICAL"):
        before = attempt.progress
        _progress(line, attempt, proof)
        if attempt.progress != before or attempt.loaded:
            attempt.moved = order


def finish(attempt: Attempt) -> None:
    """Read the arguments of a start that is kept; of a log with thousands of starts most are not."""
    if attempt.arguments_text is not None and attempt.arguments is None:
        attempt.arguments = _arguments(attempt.arguments_text)
        _speculation(attempt, attempt.arguments.get("speculative_config"), shown=True)


def _progress(line: Line, attempt: Attempt, proof: Callable[[], Proof]) -> None:
    text = line.text
    if any(mark in text for mark in _BEGIN):
        attempt.reach("arguments")
    if (found := _search(_VERSION, text)) is not None:
        attempt.version = attempt.version or next(value for value in found.groups() if value)
    if "non-default args:" in text or "args: Namespace(" in text:
        attempt.arguments_text = text
        attempt.proofs.setdefault("arguments", proof())
    elif "speculative_config=" in text:
        _engine_config(text, attempt, proof)
    for mark, stage in _STAGES.items():
        if mark in text:
            attempt.reach(stage)
    if "Resolved architecture:" in text:
        attempt.architectures.append(text.rpartition(": ")[2].strip())
    if any(mark in text for mark in _DRAFTER):
        attempt.reach("load")
        attempt.drafter, attempt.speculates = True, True
        attempt.proofs.setdefault("drafter", proof())
    if "Using V2 Model Runner" in text:
        attempt.v2_runner = True
    if (found := _search(_LOADED, text)) is not None:
        size = float(found["size"])
        # The first engine generation prints GB where it means GiB; two decimals are what can be said.
        attempt.facts["model_gib"] = size if found["unit"] == "GiB" else round(size, 2)
        attempt.loaded = True
        attempt.reach("load")
        attempt.proofs["loaded"] = proof()
    _kv(text, attempt, proof)
    _serving(line, attempt, proof)


def _kv(text: str, attempt: Attempt, proof: Callable[[], Proof]) -> None:
    if (found := _search(r"Available KV cache memory: (-?[\d.]+) GiB", text)) is not None:
        attempt.facts["kv_available_gib"] = round(float(found[1]), 4)
    if (found := _search(r"KV cache size: ([\d,]+) tokens", text)) is not None:
        attempt.facts["kv_cache_tokens"] = int(found[1].replace(",", "")[:18] or 0)
        attempt.proofs.setdefault("kv_cache", proof())
    if (
        found := _search(r"embedding dim \((\d{1,9})\) differs from draft embedding dim \((\d{1,9})\)", text)
    ) is not None:
        attempt.facts["target_embedding_dim"], attempt.facts["draft_embedding_dim"] = int(found[1]), int(found[2])
        attempt.proofs["embedding"] = proof()


def _serving(line: Line, attempt: Attempt, proof: Callable[[], Proof]) -> None:
    text = line.text
    if any(mark in text for mark in _STARTED):
        attempt.started, attempt.stopped = True, False
        attempt.reach("serving")
        attempt.proofs["started"] = proof()
    elif any(mark in text for mark in _STOPPED) or text.startswith("Stopping "):
        attempt.stopped = True
    elif "HTTP/1.1" in text:
        if (found := _search(r'"(?:GET|POST) \S+ HTTP/1\.1" ([2-4]\d\d)\b', text)) is not None:
            # A refusal, too, is an answer of a server that is up.
            attempt.reach("serving")
            if not attempt.started:
                attempt.started = True
                attempt.proofs["started"] = proof()
            attempt.served = attempt.served or (found[1] == "200" and '"POST /' in text)
    elif "SpecDecoding metrics:" in text or _search(r"Avg generation throughput: (?!0\.0 )[\d.]+", text) is not None:
        # An engine that generates has started, whatever part of its log this is.
        attempt.served = True
        attempt.reach("serving")
        if "SpecDecoding" in text:
            attempt.speculates = True
        if not attempt.started:
            attempt.started = True
            attempt.proofs["started"] = proof()


def _engine_config(text: str, attempt: Attempt, proof: Callable[[], Proof]) -> None:
    found = _search(r"speculative_config=SpeculativeConfig\(([^)]*)\)", text)
    if found is not None:
        shown: dict[str, Any] = dict(re.findall(r"(\w+)='?([^',)]*)'?", found[1]))
        shown = {name: value for name, value in shown.items() if value != "None"}
        if shown.get("num_spec_tokens", "").isdecimal():
            shown["num_speculative_tokens"] = int(shown.pop("num_spec_tokens")[:9])
        _speculation(attempt, shown, shown=True)
        attempt.proofs.setdefault("speculation", proof())
    elif "speculative_config=None" in text:
        _speculation(attempt, None, shown=True)


def _speculation(attempt: Attempt, config: Any, *, shown: bool) -> None:
    if isinstance(config, dict) and config:
        attempt.speculates = True
        attempt.speculative_config = {**attempt.speculative_config, **config}
    elif config is not None and config != {}:
        # Given, but not as an object: the engine will say what it thinks of it.
        attempt.speculates = True
    elif shown and attempt.speculates is None:
        attempt.speculates = False


def _arguments(text: str) -> dict[str, Any]:
    """Read the dictionary of arguments; of one that Python cannot read, the plain entries."""
    start = text.find("{")
    if start >= 0:
        try:
            value = ast.literal_eval(text[start:].strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = None
        if isinstance(value, dict):
            return {str(key): item for key, item in value.items()}
    found: dict[str, Any] = {}
    for name, value in re.findall(
        r"'?(\b[a-z]\w{2,60})'?[:=] ?('[^']{0,500}'|None|True|False|-?[\d.]{1,20})(?=[,)}])", text
    ):
        try:
            found.setdefault(name, ast.literal_eval(value))
        except (ValueError, SyntaxError):
            continue
    if found.get("speculative_model") is not None:
        found["speculative_config"] = {"model": found["speculative_model"]}
    return {name: value for name, value in found.items() if value is not None}


def _hub(text: str, attempt: Attempt, order: int) -> None:
    status = _search(r"\b([45]\d\d) (?:Client|Server) Error\b", text)
    if status is not None:
        attempt.statuses.append((order, int(status[1])))
    if "://" in text or "with url: /" in text:
        for found in _compiled(_REPO).finditer(text):
            name = found["repo"].rstrip(".")
            if not name.startswith(("docs/", "settings/", "api/", "spaces/", "blog/", "papers/")):
                attempt.repos.append((order, name))


_VERSION = (
    r"(?:vLLM (?:API )?server version v?(\d[\w.+-]*)|LLM engine \(v(\d[^)\s]*)\)|█.{0,200}\bversion (\d[\w.+-]*)\s*$)"
)
_LOADED = r"(?:Model loading took|oading model weights took|model weights take) (?P<size>\d+(?:\.\d+)?) ?(?P<unit>Gi?B)"
_REPO = (
    r"(?:https?://[^/\s'\"]{1,200}(?:\.co|\.com|\.cn|:\d+)|with url: )/(?:api/(?:resolve-cache/)?models/)?"
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?=/(?:resolve|tree|revision|raw|blob|refs)\b|/?:?(?:[\s'\"),;?]|$))"
)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _search(pattern: str, text: str) -> re.Match[str] | None:
    return _compiled(pattern).search(text)
