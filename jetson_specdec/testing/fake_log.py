# SPDX-License-Identifier: Apache-2.0
"""The log of a fake server, in the words vLLM 0.32 prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from jetson_specdec.testing.fake_engine import Counts
from jetson_specdec.testing.truth import Memory

__all__ = ["FakeLog", "memory_failure"]

_ROUTES = (
    ("/health", "GET"),
    ("/metrics", "GET"),
    ("/version", "GET"),
    ("/tokenize", "POST"),
    ("/v1/models", "GET"),
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
)


class FakeLog:
    """Writes lines and keeps them.

    Args:
        write: receives every line with its newline.
        pid: shown as the API server's; the engine core's is the next.
    """

    def __init__(self, write: Callable[[str], None] | None = None, *, pid: int = 1) -> None:
        self._write = write or (lambda _line: None)
        self._pid = pid
        self.lines: list[str] = []
        self._last = (0.0, Counts())

    @property
    def text(self) -> str:
        """Everything written so far."""
        return "".join(self.lines)

    def raw(self, line: str) -> None:
        """Write a line as it is."""
        self.lines.append(line + "\n")
        self._write(line + "\n")

    def api(self, where: str, message: str, level: str = "INFO") -> None:
        """Write a line of the API server."""
        self.raw(f"(APIServer pid={self._pid}) {level} {time.strftime('%m-%d %H:%M:%S')} [{where}] {message}")

    def core(self, where: str, message: str, level: str = "INFO") -> None:
        """Write a line of the engine core."""
        self.raw(f"(EngineCore pid={self._pid + 1}) {level} {time.strftime('%m-%d %H:%M:%S')} [{where}] {message}")

    def opening(self, model: str, non_default: Mapping[str, Any], config: Mapping[str, Any] | None) -> None:
        """Write what precedes loading."""
        self.api("api_utils.py:327", f"vLLM server version 0.32.0, serving model {model}")
        self.api("api_utils.py:286", f"non-default args: {dict(non_default)!r}")
        self.api("model.py:733", "Resolved architecture: LlamaForCausalLM")
        speculative = "None"
        if config:
            speculative = (
                f"SpeculativeConfig(method={config.get('method')!r}, model={config.get('model')!r}, "
                f"num_spec_tokens={config.get('num_speculative_tokens')})"
            )
        self.core(
            "core.py:133",
            f"Initializing a V1 LLM engine (v0.32.0) with config: model={model!r}, "
            f"speculative_config={speculative}, tokenizer={model!r}, dtype=torch.bfloat16",
        )
        self.core("gpu_worker.py:518", "Using V2 Model Runner")

    def loaded(self, memory: Memory, *, draft: bool, kv_gib: float, max_model_len: int, host: str, port: int) -> None:
        """Write what follows loading, up to a server that answers."""
        weights = memory.model_gib + (memory.draft_gib if draft else 0.0)
        tokens = int(kv_gib * 2**30 / memory.kv_bytes_per_token)
        self.core("model_runner.py:430", f"Model loading took {weights:.2f} GiB memory and 3.204112 seconds")
        self.core("gpu_worker.py:760", f"Available KV cache memory: {kv_gib:.2f} GiB")
        self.core(
            "kv_cache_utils.py:2327",
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {max_model_len:,} tokens per request: "
            f"{tokens / max_model_len:.2f}x",
        )
        self.core("model_runner.py:1128", "Graph capturing finished in 4 secs, took 0.31 GiB")
        self.core("core.py:402", "init engine (profile, create kv cache, warmup model) took 9.87 s")
        self.api("entry.py:140", f"Starting vLLM server on http://{host}:{port}")
        self.api("launcher.py:186", "Available routes are:")
        for route, methods in _ROUTES:
            self.api("launcher.py:195", f"Route: {route}, Methods: {methods}")
        self.raw(f"INFO:     Started server process [{self._pid}]")
        self.raw("INFO:     Waiting for application startup.")
        self.raw("INFO:     Application startup complete.")

    def access(self, peer: str, method: str, path: str, status: int, reason: str) -> None:
        """Write one request, as uvicorn does."""
        self.raw(f'INFO:     {peer} - "{method} {path} HTTP/1.1" {status} {reason}')

    def stats(self, now: float, counts: Counts, *, running: int, waiting: int, speculating: bool) -> None:
        """Write the periodic figures of the time since the last ones; `now` is engine time in seconds."""
        since, old = self._last
        seconds = max(now - since, 1e-9)
        queries, hits = counts.prefix_queries, counts.prefix_hits
        self.api(
            "loggers.py:335",
            f"Engine 000: Avg prompt throughput: {(counts.prompt_tokens - old.prompt_tokens) / seconds:.1f} tokens/s, "
            f"Avg generation throughput: {(counts.generation_tokens - old.generation_tokens) / seconds:.1f} tokens/s, "
            f"Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {running * 0.4:.1f}%, "
            f"Prefix cache hit rate: {100 * hits / queries if queries else 0.0:.1f}%",
        )
        drafts = counts.drafts - old.drafts
        if speculating and drafts:
            accepted = counts.accepted_tokens - old.accepted_tokens
            drafted = counts.draft_tokens - old.draft_tokens
            before = old.accepted_per_position + [0] * len(counts.accepted_per_position)
            rates = [(new - was) / drafts for new, was in zip(counts.accepted_per_position, before, strict=False)]
            self.api(
                "metrics.py:120",
                f"SpecDecoding metrics: Mean acceptance length: {1 + accepted / drafts:.2f}, "
                f"Accepted throughput: {accepted / seconds:.2f} tokens/s, "
                f"Drafted throughput: {drafted / seconds:.2f} tokens/s, Accepted: {accepted} tokens, "
                f"Drafted: {drafted} tokens, Per-position acceptance rate: "
                f"{', '.join(f'{rate:.3f}' for rate in rates)}, "
                f"Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%",
            )
        self._last = (
            now,
            Counts(
                drafts=counts.drafts,
                draft_tokens=counts.draft_tokens,
                accepted_tokens=counts.accepted_tokens,
                accepted_per_position=list(counts.accepted_per_position),
                prompt_tokens=counts.prompt_tokens,
                generation_tokens=counts.generation_tokens,
            ),
        )

    @property
    def last_stats(self) -> float:
        """Engine time of the last periodic figures, seconds."""
        return self._last[0]

    def failed(self, kind: str, message: str) -> None:
        """Write an engine that could not start: the cause in the engine core, then the wrapper."""
        self.core("core.py:1510", "EngineCore failed to start.", "ERROR")
        self.core("core.py:1510", "Traceback (most recent call last):", "ERROR")
        self.core("core.py:1510", f"{kind}: {message}", "ERROR")
        self.raw(
            f"(APIServer pid={self._pid}) RuntimeError: Engine core initialization failed. See root cause above. "
            "Failed core proc(s): {}"
        )

    def engine_died(self) -> None:
        """Write an engine that died while serving."""
        self.core("core.py:1512", "EngineCore encountered a fatal error.", "ERROR")
        self.api(
            "async_llm.py:714",
            "AsyncLLM output_handler failed. vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
            "encountered an issue. See stack trace (above) for the root cause.",
            "ERROR",
        )

    def stopped(self) -> None:
        """Write an orderly end."""
        self.api("launcher.py:254", "[shutdown] API server: shutdown triggered")
        self.raw("INFO:     Shutting down")
        self.raw("INFO:     Waiting for application shutdown.")
        self.raw("INFO:     Application shutdown complete.")


def memory_failure(
    memory: Memory, *, utilization: float, draft: bool, max_model_len: int
) -> tuple[float, tuple[str, str] | None]:
    """Account for memory as vLLM does at start.

    Returns:
        GiB left for the KV cache, and the exception (class, message) with which vLLM would give up, or None.
    """
    requested = memory.total_gib * utilization
    if memory.free_gib < requested:
        return 0.0, (
            "ValueError",
            f"Free memory on device cuda:0 ({memory.free_gib:.2f}/{memory.total_gib:.2f} GiB) on startup is less than "
            f"desired GPU memory utilization ({utilization:g}, {requested:.2f} GiB). Decrease GPU memory utilization "
            "or reduce GPU memory used by other processes.",
        )
    weights = memory.model_gib + (memory.draft_gib if draft else 0.0)
    if weights + memory.load_peak_gib > memory.free_gib:
        free = max(memory.free_gib - weights, 0.0)
        return 0.0, (
            "torch.OutOfMemoryError",
            f"CUDA out of memory. Tried to allocate {memory.load_peak_gib:.2f} GiB. GPU 0 has a total capacity of "
            f"{memory.total_gib:.2f} GiB of which {free:.2f} GiB is free.",
        )
    left = requested - weights - memory.activations_gib
    if left <= 0:
        return left, (
            "ValueError",
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
            "engine.",
        )
    needed = max_model_len * memory.kv_bytes_per_token / 2**30
    if needed > left:
        fits = int(left * 2**30 / memory.kv_bytes_per_token)
        return left, (
            "ValueError",
            f"To serve at least one request with the model's max seq len ({max_model_len}), ({needed:.2f} GiB KV cache "
            f"is needed, which is larger than the available KV cache memory ({left:.2f} GiB). Based on the available "
            f"memory, the estimated maximum model length is {fits}. Try increasing `gpu_memory_utilization` or "
            "decreasing `max_model_len` when initializing the engine.",
        )
    return left, None
