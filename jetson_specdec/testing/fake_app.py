# SPDX-License-Identifier: Apache-2.0
"""What a fake server answers, whatever carries the bytes: requests in, replies out."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from attrs import Factory, define, field

from jetson_specdec.testing.fake_engine import FakeEngine, schedule_of, words_of
from jetson_specdec.testing.fake_log import VERSION, FakeLog
from jetson_specdec.testing.fake_metrics import metrics_text
from jetson_specdec.testing.truth import Fault, Truth
from jetson_specdec.values import frozen

__all__ = ["Dropped", "FakeApp", "Reply", "Settings"]

STATS_INTERVAL_S = 10.0
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 500: "Internal Server Error"}


class Dropped(Exception):  # noqa: N818
    """The connection is to be broken here; never leaves this package."""


@frozen(kw_only=True)
class Settings:
    """What `vllm serve` was told, as far as the fake cares."""

    version: str = VERSION
    model: str = "fake/model"
    served_model_name: str | None = None
    speculative_config: Mapping[str, Any] | None = None
    tensor_parallel_size: int = 1
    max_model_len: int = 8192
    max_num_seqs: int = 256
    gpu_memory_utilization: float = 0.92
    enable_prefix_caching: bool = True
    disable_log_stats: bool = False
    api_key: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    per_request_spec_decode_metrics: str = "none"
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    non_default: Mapping[str, Any] = Factory(dict)

    @property
    def name(self) -> str:
        """The model name that requests must carry."""
        return self.served_model_name or self.model


@frozen
class Reply:
    """An answer: all of it, or a stream."""

    status: int
    body: bytes | AsyncIterator[bytes]
    content_type: str = "application/json"

    @property
    def reason(self) -> str:
        """The phrase of the status line."""
        return _REASONS.get(self.status, "Error")


def _json(value: Any, status: int = 200) -> Reply:
    return Reply(status, _compact(value))


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _error(status: int, message: str, kind: str, param: str | None = None) -> Reply:
    return _json({"error": {"message": message, "type": kind, "param": param, "code": status}}, status)


@define(kw_only=True)
class _Job:
    """One generation request."""

    number: int
    chat: bool
    prompt: list[str]
    max_tokens: int
    ignore_eos: bool
    include_usage: bool
    fault: Fault | None
    created: int = Factory(lambda: int(time.time()))

    @property
    def id(self) -> str:
        return f"{'chatcmpl' if self.chat else 'cmpl'}-{self.number:08x}"


class FakeApp:
    """Answers like an OpenAI-compatible vLLM server.

    Args:
        settings: what it serves.
        truth: how fast, and how much it accepts.
        faults: number of a generation request, counted from 0 → what goes wrong with it.
        log: where lines go.
        time_scale: real seconds a simulated second takes.
        dying: writes into the log why the engine dies, where a fault lets it.
    """

    def __init__(
        self,
        settings: Settings,
        truth: Truth,
        *,
        faults: Mapping[int, Fault] | None = None,
        log: FakeLog | None = None,
        time_scale: float = 1.0,
        dying: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.faults = dict(faults or {})
        self.log = log or FakeLog()
        self._dying = dying or self.log.engine_died
        k, schedule = schedule_of(settings.speculative_config)
        self.engine = FakeEngine(
            truth,
            k=k,
            schedule=schedule,
            max_num_seqs=settings.max_num_seqs,
            prefix_caching=settings.enable_prefix_caching,
            time_scale=time_scale,
            on_step=self._after_step,
        )
        self.requests = 0
        self.bodies: list[dict[str, Any]] = []
        self.dead = False
        self.started = time.time()

    async def handle(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer one request; header names are lower case."""
        path = path.partition("?")[0]
        key = self.settings.api_key
        if key is not None and path.startswith("/v1") and headers.get("authorization") != f"Bearer {key}":
            return _json({"error": "Unauthorized"}, 401)
        if method == "GET":
            return self._get(path)
        if method == "POST":
            return await self._post(path, body)
        return _json({"detail": "Method Not Allowed"}, 405)

    def _get(self, path: str) -> Reply:
        if path in ("/health", "/ping"):
            return Reply(503 if self.dead else 200, b"", "text/plain")
        if path == "/version":
            return _json({"version": self.settings.version})
        if path == "/metrics":
            return Reply(200, metrics_text(self).encode(), "text/plain; version=1.0.0; charset=utf-8")
        if path == "/v1/models":
            card = {
                "id": self.settings.name,
                "object": "model",
                "created": int(self.started),
                "owned_by": "vllm",
                "root": self.settings.model,
                "parent": None,
                "max_model_len": self.settings.max_model_len,
            }
            return _json({"object": "list", "data": [card]})
        return _json({"detail": "Not Found"}, 404)

    async def _post(self, path: str, body: bytes) -> Reply:
        if path == "/reset_prefix_cache":
            self.engine.reset_prefix_cache()
            return Reply(200, b"", "text/plain")
        try:
            data = json.loads(body or b"{}")
        except ValueError as error:
            return _error(400, f"JSON decode error: {error}", "BadRequestError")
        if path == "/tokenize":
            words = words_of(_prompt_text(data))
            return _json(
                {"count": len(words), "max_model_len": self.settings.max_model_len, "tokens": list(range(len(words)))}
            )
        if path in ("/v1/completions", "/v1/chat/completions"):
            return await self._generate(path.endswith("chat/completions"), data)
        return _json({"detail": "Not Found"}, 404)

    async def _generate(self, chat: bool, data: dict[str, Any]) -> Reply:
        number = self.requests
        self.requests += 1
        self.bodies.append(data)
        fault = self.faults.get(number)
        if fault is not None and fault.kind == "engine_dead":
            self.dead = True
            self._dying()
            return _error(500, fault.message, "InternalServerError")
        if self.dead:
            return _error(
                503,
                "EngineCore encountered an issue. See stack trace (above) for the root cause.",
                "ServiceUnavailableError",
            )
        if fault is not None and fault.kind == "status":
            return _error(fault.status, fault.message, "InternalServerError")
        if data.get("model") not in (None, self.settings.name):
            return _error(404, f"The model `{data['model']}` does not exist.", "NotFoundError", "model")
        prompt = words_of(_prompt_text(data))
        limit = data.get("max_completion_tokens") or data.get("max_tokens")
        room = self.settings.max_model_len - len(prompt)
        max_tokens = int(limit) if limit else (room if chat else 16)
        if max_tokens > room:
            return _error(
                400,
                f"This model's maximum context length is {self.settings.max_model_len} tokens. However, you requested "
                f"{max_tokens} output tokens and your prompt contains {len(prompt)} input tokens.",
                "BadRequestError",
                "input_tokens",
            )
        stream_options = data.get("stream_options") or {}
        job = _Job(
            number=number,
            chat=chat,
            prompt=prompt,
            max_tokens=max_tokens,
            ignore_eos=bool(data.get("ignore_eos")),
            include_usage=bool(stream_options.get("include_usage")) and self.engine.truth.usage,
            fault=fault,
        )
        if data.get("stream"):
            return Reply(200, self._stream(job), "text/event-stream; charset=utf-8")
        return await self._whole(job)

    async def _whole(self, job: _Job) -> Reply:
        text, reason, made, cached = "", "length", 0, 0
        async for output, sequence in self.engine.generate(job.prompt, job.max_tokens, ignore_eos=job.ignore_eos):
            text += "".join(" " + word for word in output.words)
            reason, made, cached = output.finish_reason or reason, sequence.made, sequence.cached
        content = {"message": {"role": "assistant", "content": text}} if job.chat else {"text": text}
        reply = self._envelope(job, [{"index": 0, **content, "logprobs": None, "finish_reason": reason}])
        if self.engine.truth.usage:
            reply["usage"] = _usage(job, made, cached)
        return _json(reply)

    async def _stream(self, job: _Job) -> AsyncIterator[bytes]:
        truth, sent, made, cached = self.engine.truth, 0, 0, 0
        metrics: dict[str, Any] = {}
        role = self._event(job, {"role": "assistant", "content": ""}, None) if job.chat else None
        if role is not None and truth.early_role_chunk:
            yield role
            role = None
        async for output, sequence in self.engine.generate(job.prompt, job.max_tokens, ignore_eos=job.ignore_eos):
            if job.fault is not None and sent >= job.fault.after_chunks:
                async for piece in _break(job.fault):
                    yield piece
                return
            if role is not None:
                yield role
                role = None
            for delta, reason in self._deltas(job, output.words, made, output.finish_reason):
                yield self._event(job, delta, reason)
            sent += 1
            made, cached = sequence.made, sequence.cached
            metrics = self._own_metrics(sequence.accepted, sequence.drafts, sequence.draft_tokens)
        if job.include_usage:
            yield (
                b"data: "
                + _compact({**self._envelope(job, []), "usage": _usage(job, made, cached), **metrics})
                + b"\n\n"
            )
        yield b"data: [DONE]\n\n"

    def _deltas(
        self, job: _Job, words: tuple[str, ...], made: int, reason: str | None
    ) -> list[tuple[dict[str, Any], str | None]]:
        truth = self.engine.truth
        if not job.chat:
            return [({"text": _joined(words)}, reason)]
        thinking = words[: max(truth.reasoning_tokens - made, 0)]
        rest = words[len(thinking) :]
        parts: list[dict[str, Any]] = []
        if thinking:
            parts.append({truth.reasoning_field: _joined(thinking)})
        if rest or not thinking:
            parts.append({"content": _joined(rest)})
        return [(part, reason if part is parts[-1] else None) for part in parts]

    def _own_metrics(self, accepted: list[int], drafts: int, draft_tokens: int) -> dict[str, Any]:
        """This request's acceptance, where `--per-request-spec-decode-metrics` asks for it."""
        if self.settings.per_request_spec_decode_metrics == "none" or not self.engine.k:
            return {}
        reached = [drafts, *accepted, *([0] * (self.engine.k + 1 - len(accepted)))]
        total = sum(accepted)
        figures = {
            "mean_acceptance_length": 1.0 + total / drafts if drafts else 1.0,
            "draft_acceptance_rate": total / draft_tokens if draft_tokens else 0.0,
            "acceptance_histogram": [reached[j] - reached[j + 1] for j in range(self.engine.k + 1)],
            "num_spec_steps": drafts,
            "num_accepted_draft_tokens": total,
            "num_draft_tokens": draft_tokens,
            "num_spec_tokens": self.engine.k,
        }
        return {"metrics": {"speculative_decoding": figures}}

    def _event(self, job: _Job, delta: dict[str, Any], reason: str | None) -> bytes:
        content = {"delta": delta} if job.chat else delta
        choice = {"index": 0, **content, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        return b"data: " + _compact(self._envelope(job, [choice])) + b"\n\n"

    def _envelope(self, job: _Job, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if job.chat else "text_completion"
        return {"id": job.id, "object": kind, "created": job.created, "model": self.settings.name, "choices": choices}

    def _after_step(self, now: float) -> None:
        if now - self.log.last_stats >= STATS_INTERVAL_S:
            self.write_stats()

    def write_stats(self) -> None:
        """Write the periodic log lines now, unless log statistics are off."""
        engine = self.engine
        if not self.settings.disable_log_stats:
            self.log.stats(
                engine.now,
                engine.counts,
                running=len(engine.running),
                waiting=len(engine.waiting),
                speculating=engine.k > 0,
            )


def _joined(words: tuple[str, ...]) -> str:
    return "".join(" " + word for word in words)


def _prompt_text(data: Mapping[str, Any]) -> str:
    if "messages" not in data:
        prompt = data.get("prompt", "")
        return prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
    texts: list[str] = []
    for message in data["messages"]:
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        texts.extend(str(part.get("text", "")) for part in parts)
    return "\n".join(texts)


def _usage(job: _Job, made: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": len(job.prompt),
        "total_tokens": len(job.prompt) + made,
        "completion_tokens": made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


async def _break(fault: Fault) -> AsyncIterator[bytes]:
    if fault.kind == "hang":
        await asyncio.Event().wait()
    if fault.kind == "drop":
        raise Dropped
    if fault.kind == "error_event":
        error = {
            "error": {"message": fault.message, "type": "InternalServerError", "param": None, "code": fault.status}
        }
        yield b"data: " + _compact(error) + b"\n\n"
        yield b"data: [DONE]\n\n"
