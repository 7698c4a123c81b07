# SPDX-License-Identifier: Apache-2.0
"""What a stream of bytes with arrival times says about one request.

While a request runs, the client only notes when which bytes arrived; everything here happens afterwards. Definitions
are those of `vllm bench serve` (vLLM 0.32, benchmarks/lib/endpoint_request_func.py and benchmarks/serve.py): the first
token is the first chunk with a choice, the last token the last such chunk, whether or not its text is empty. One
difference: a chat chunk that carries only the role is no token. vLLM sends it together with the first token, other
servers send it before they have begun.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from attrs import define, field, frozen

from jetson_specdec.measurements import Acceptance, RequestRecord

__all__ = ["Answer", "Piece", "events", "read_answer"]

Piece = tuple[float, bytes]
"""Bytes as they arrived, and when: seconds since sending."""

_CONTENT = ("reasoning", "reasoning_content", "content", "tool_calls", "function_call", "refusal", "audio")


@frozen(kw_only=True)
class Answer:
    """One answer, before anything is known of the other requests.

    Attributes:
        times_s: arrival of each chunk with a token, seconds since sending.
        text: everything generated, reasoning first where it came first.
        finish_reason: as the server gave it.
        input_tokens, output_tokens, cached_tokens: the server's `usage`; None where it sent none.
        token_ids: where the server returns them.
        error: what the stream or its absence said went wrong.
        acceptance: this request's own figures, where the server sends them (vLLM ≥ 0.32).
    """

    times_s: tuple[float, ...] = ()
    text: str = field(default="", repr=False)
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    token_ids: tuple[int, ...] | None = None
    error: str | None = None
    acceptance: Acceptance | None = None

    @property
    def ok(self) -> bool:
        """Whether it is a whole answer."""
        return self.error is None and bool(self.times_s)

    def record(
        self,
        *,
        concurrency: int,
        index: int,
        start_s: float,
        prompt_id: str | None,
        category: str | None,
        output_tokens: int | None = None,
    ) -> RequestRecord:
        """Return the record of this request.

        Args:
            concurrency: the run it belongs to.
            index: order of sending in it.
            start_s: seconds from the start of the run to sending.
            prompt_id: of its prompt.
            category: of its prompt.
            output_tokens: counted in another way, where the server sent no `usage`.
        """
        tokens = self.output_tokens if self.output_tokens is not None else output_tokens
        first, last = (self.times_s[0], self.times_s[-1]) if self.times_s else (None, None)
        decode = None
        if self.ok and first is not None and last is not None and tokens is not None and tokens > 1:
            decode = (last - first) / (tokens - 1)
        return RequestRecord(
            concurrency=concurrency,
            index=index,
            prompt_id=prompt_id,
            category=category,
            start_s=start_s,
            ttft_ms=_ms(first),
            tpot_ms=_ms(decode),
            e2e_ms=_ms(last) if self.ok else None,
            input_tokens=self.input_tokens,
            output_tokens=tokens,
            chunks=len(self.times_s) or None,
            chunk_times_ms=tuple(round(1000 * at, 4) for at in self.times_s) or None,
            ok=self.ok,
            error=self.error,
            finish_reason=self.finish_reason,
            cached_tokens=self.cached_tokens,
            token_ids=self.token_ids,
            text_sha256=sha256(self.text.encode()).hexdigest() if self.text else None,
            acceptance=self.acceptance,
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 4)


def events(pieces: Iterable[Piece]) -> Iterator[tuple[float, bytes]]:
    r"""Yield the data of each server-sent event with the arrival of the piece that completed it.

    Events may share a piece or span several; comments, other fields and `\r\n` are as the SSE standard has them.
    """
    buffer = b""
    data: list[bytes] = []
    at = 0.0
    for at, piece in pieces:
        buffer += piece
        # A line ends with \n, \r\n or \r; a \r at the very end may be half of a \r\n, so it waits.
        *lines, buffer = buffer.split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and data:
                yield at, b"\n".join(data)
                data = []
    line = buffer.removesuffix(b"\r")
    if line.startswith(b"data:"):
        data.append(line[5:].removeprefix(b" "))
    if data:
        yield at, b"\n".join(data)


def read_answer(pieces: Sequence[Piece], *, failure: str | None = None) -> Answer:
    """Read what arrived.

    Args:
        pieces: bytes and arrival times, in order.
        failure: what the client saw go wrong (connection, status, time-out); it wins over what the stream says.
    """
    reader = _Reader(error=failure)
    for at, data in events(pieces):
        if data.strip() == b"[DONE]":
            reader.done = True
            break
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            chunk = None
        reader.take(at, chunk)
    return reader.answer()


@define
class _Reader:
    """Puts chunks together; a chunk of any shape is a token, something else, or an error, never an exception."""

    error: str | None
    times: list[float] = field(factory=list)
    texts: list[str] = field(factory=list)
    token_ids: list[int] = field(factory=list)
    usage: Mapping[str, Any] = field(factory=dict)
    finish: str | None = None
    acceptance: Acceptance | None = None
    done: bool = False

    def take(self, at: float, chunk: Any) -> None:
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices") or [], list):
            self.error = self.error or "malformed chunk"
            return
        if chunk.get("error"):
            self.error = self.error or _error_text(chunk["error"])
            return
        self.usage = _mapping(chunk.get("usage")) or self.usage
        self.acceptance = _acceptance(chunk) or self.acceptance
        if not chunk.get("choices"):
            return
        choice = _mapping(chunk["choices"][0])
        ended = choice.get("finish_reason")
        self.finish = str(ended) if ended else self.finish
        delta = choice.get("delta")
        delta = None if delta is None else _mapping(delta)
        role_only = delta is not None and "role" in delta and not any(delta.get(key) for key in _CONTENT)
        if role_only and not ended:
            return
        self.times.append(at)
        self.texts.append(_text(choice, delta))
        ids = choice.get("token_ids")
        if isinstance(ids, list):
            self.token_ids.extend(item for item in ids if isinstance(item, int))

    def answer(self) -> Answer:
        if self.error is None and not self.times:
            self.error = "no token arrived"
        if self.error is None and not self.done and self.finish is None:
            self.error = "the stream ended without a finish reason"
        return Answer(
            times_s=tuple(self.times),
            text="".join(self.texts),
            finish_reason=self.finish,
            input_tokens=_count(self.usage.get("prompt_tokens")),
            output_tokens=_count(self.usage.get("completion_tokens")) or None,
            cached_tokens=_count(_mapping(self.usage.get("prompt_tokens_details")).get("cached_tokens")),
            token_ids=tuple(self.token_ids) or None,
            error=self.error,
            acceptance=self.acceptance,
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(choice: Mapping[str, Any], delta: Mapping[str, Any] | None) -> str:
    if delta is None:
        text = choice.get("text")
        return text if isinstance(text, str) else ""
    return "".join(delta[key] for key in _CONTENT[:3] if isinstance(delta.get(key), str))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _error_text(error: Any) -> str:
    return str(error.get("message") or error) if isinstance(error, dict) else str(error)


def _acceptance(chunk: Mapping[str, Any]) -> Acceptance | None:
    if not _mapping(_mapping(chunk.get("metrics")).get("speculative_decoding")):
        return None
    from jetson_specdec.logs.metrics import SpecMetrics

    metrics = SpecMetrics.from_response(chunk)
    return Acceptance.from_metrics(metrics, source="requests") if metrics is not None else None
