# SPDX-License-Identifier: Apache-2.0
"""The log of a fake server, in the words and the layout of the vLLM release it stands for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jetson_specdec.testing.fake_engine import Counts
from jetson_specdec.testing.truth import Memory

__all__ = ["VERSION", "FakeLog", "memory_failure"]

VERSION = "0.32.0"
"""The release a fake stands for unless told otherwise."""

_ROUTES = (
    ("/health", "GET"),
    ("/metrics", "GET"),
    ("/version", "GET"),
    ("/tokenize", "POST"),
    ("/v1/models", "GET"),
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
)
_LAST_WORDS = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


class FakeLog:
    """Writes lines and keeps them.

    Process names in front of lines came with 0.10; figures of the KV cache moved into one line with 0.28; the first V1
    engines (0.8) end themselves by SIGKILL when their core fails.

    Args:
        write: receives every line with its newline.
        pid: shown as the API server's; the engine core's is the next.
        version: the release whose layout is written.
    """

    def __init__(self, write: Callable[[str], None] | None = None, *, pid: int = 1, version: str = VERSION) -> None:
        from jetson_specdec.engine.tables import release_key

        self._write = write or (lambda _line: None)
        self.pid = pid
        self.version = version
        self._key = release_key(version)
        self.lines: list[str] = []
        self._last = (0.0, Counts())

    @property
    def text(self) -> str:
        """Everything written so far."""
        return "".join(self.lines)

    def since(self, *release: int) -> bool:
        """Whether the release is this one or a later one."""
        return self._key >= release

    def raw(self, line: str) -> None:
        """Write a line as it is."""
        self.lines.append(line + "\n")
        self._write(line + "\n")

    @property
    def api_name(self) -> str:
        """What stands in front of the API server's lines."""
        return f"(APIServer pid={self.pid}) " if self.since(0, 10) else ""

    @property
    def core_name(self) -> str:
        """What stands in front of the engine core's lines."""
        if not self.since(0, 10):
            return ""
        number = "" if self.since(0, 21) else "_DP0" if self.since(0, 10, 2) else "_0"
        return f"(EngineCore{number} pid={self.pid + 1}) "

    def api(self, where: str, message: str, level: str = "INFO") -> None:
        """Write a line of the API server."""
        self.raw(f"{self.api_name}{level} {time.strftime('%m-%d %H:%M:%S')} [{where}] {message}")

    def core(self, where: str, message: str, level: str = "INFO") -> None:
        """Write a line of the engine core."""
        self.raw(f"{self.core_name}{level} {time.strftime('%m-%d %H:%M:%S')} [{where}] {message}")

    # --- a start, stage by stage --------------------------------------------------------------------------------------

    def arguments(self, model: str, non_default: Mapping[str, Any]) -> None:
        """Write what the API server says first."""
        if self.since(0, 25):
            self.api("api_utils.py:327", f"vLLM server version {self.version}, serving model {model}")
        else:
            self.api("api_server.py:1896", f"vLLM API server version {self.version}")
        self.api("api_utils.py:286", f"non-default args: {dict(non_default)!r}")

    def engine(self, model: str, config: Mapping[str, Any] | None) -> None:
        """Write how the engine core begins, once the configuration is accepted."""
        self.api("model.py:733", "Resolved architecture: LlamaForCausalLM")
        speculative = "None"
        if config:
            speculative = (
                f"SpeculativeConfig(method={config.get('method')!r}, model={config.get('model')!r}, "
                f"num_spec_tokens={config.get('num_speculative_tokens')})"
            )
        self.core(
            "core.py:133",
            f"Initializing a V1 LLM engine (v{self.version}) with config: model={model!r}, "
            f"speculative_config={speculative}, tokenizer={model!r}, dtype=torch.bfloat16",
        )

    def loading(self, model: str) -> None:
        """Write that the target's weights are being loaded."""
        if self.since(0, 32):
            self.core("gpu_worker.py:518", "Using V2 Model Runner")
        else:
            self.core("gpu_model_runner.py:2007", f"Starting to load model {model}...")
        self.raw("Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]")

    def drafting(self) -> None:
        """Write that the draft's weights are being loaded."""
        self.core("default_loader.py:501", "Loading weights took 2.61 seconds")
        if self.since(0, 32):
            self.core("eagle3_utils.py:30", "Using Eagle3 auxiliary layers from model: (2, 18, 33)")
        else:
            self.core("gpu_model_runner.py:5071", "Loading drafter model...")

    def weights(self, gib: float) -> None:
        """Write that all weights are in."""
        word = " memory" if self.since(0, 19) else ""
        self.core("model_runner.py:430", f"Model loading took {gib:.2f} GiB{word} and 3.204112 seconds")

    def kv_cache(self, gib: float) -> None:
        """Write what is left for the KV cache."""
        self.core("gpu_worker.py:760", f"Available KV cache memory: {gib:.2f} GiB")

    def kv_tokens(self, tokens: int, max_model_len: int) -> None:
        """Write how many tokens that holds."""
        size = f"GPU KV cache size: {tokens:,} tokens"
        most = f"Maximum concurrency for {max_model_len:,} tokens per request: {tokens / max_model_len:.2f}x"
        if self.since(0, 28):
            self.core("kv_cache_utils.py:2327", f"{size}, {most}")
        else:
            self.core("kv_cache_utils.py:864", size)
            self.core("kv_cache_utils.py:868", most)

    def up(self, host: str, port: int) -> None:
        """Write the rest of a start, up to a server that answers."""
        self.core("model_runner.py:1128", "Graph capturing finished in 4 secs, took 0.31 GiB")
        self.core("core.py:402", "init engine (profile, create kv cache, warmup model) took 9.87 s")
        server = "vLLM server" if self.since(0, 25) else "vLLM API server 0"
        self.api("entry.py:140", f"Starting {server} on http://{host}:{port}")
        self.api("launcher.py:186", "Available routes are:")
        for route, methods in _ROUTES:
            self.api("launcher.py:195", f"Route: {route}, Methods: {methods}")
        self.raw(f"INFO:     Started server process [{self.pid}]")
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

    # --- how it ends --------------------------------------------------------------------------------------------------

    def engine_failed(self, lines: Sequence[str]) -> None:
        """Write an engine that could not start: a traceback of the engine core, then the API server's last words."""
        self.core("core.py:1510", "EngineCore failed to start.", "ERROR")
        self.core("core.py:1510", "Traceback (most recent call last):", "ERROR")
        for line in lines:
            self.core("core.py:1510", line, "ERROR")
        if self.since(0, 9):
            self.raw(self.api_name + _LAST_WORDS)
        else:
            text = "Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue."
            self.api("core_client.py:269", text, "CRITICAL")

    def api_failed(self, lines: Sequence[str]) -> None:
        """Write a traceback of the API server itself, in front of which newer releases print no process."""
        name = "" if self.since(0, 21) else self.api_name
        for line in ("Traceback (most recent call last):", *lines):
            self.raw(f"{name}{line}".rstrip())

    def engine_died(self, lines: Sequence[str] = ()) -> None:
        """Write an engine that died while serving."""
        self.core("core.py:1512", "EngineCore encountered a fatal error.", "ERROR")
        if lines:
            self.core("core.py:1512", "Traceback (most recent call last):", "ERROR")
        for line in lines:
            self.core("core.py:1512", line, "ERROR")
        self.api(
            "async_llm.py:714",
            "AsyncLLM output_handler failed. vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
            "encountered an issue. See stack trace (above) for the root cause.",
            "ERROR",
        )

    def stopped(self, *, by_itself: bool = False) -> None:
        """Write an orderly end, or that of a server whose engine has died."""
        if not by_itself:
            self.api("launcher.py:254", "[shutdown] API server: shutdown triggered")
        self.raw("INFO:     Shutting down")
        self.raw("INFO:     Waiting for application shutdown.")
        self.raw("INFO:     Application shutdown complete.")


def memory_failure(
    memory: Memory, *, utilization: float, draft: bool, max_model_len: int
) -> tuple[float, tuple[str, str, Mapping[str, Any]] | None]:
    """Account for memory as vLLM does at start.

    Returns:
        GiB left for the KV cache, and with which failure (cause, variant, its figures) vLLM would give up, or None.
    """
    requested = memory.total_gib * utilization
    if memory.free_gib < requested:
        return 0.0, ("memory_precheck", "free", {})
    weights = memory.model_gib + (memory.draft_gib if draft else 0.0)
    for variant, loaded in (("target", memory.model_gib), ("draft", weights)):
        if loaded + memory.load_peak_gib > memory.free_gib:
            left = max(memory.free_gib - loaded, 0.0)
            return 0.0, ("oom_load", variant, {"peak_gib": f"{memory.load_peak_gib:.2f}", "left_gib": f"{left:.2f}"})
    left = requested - weights - memory.activations_gib
    if left <= 0:
        return left, ("kv_cache_none", "none", {})
    if max_model_len * memory.kv_bytes_per_token / 2**30 > left:
        return left, ("kv_cache_too_small", "one_request", {})
    return left, None
