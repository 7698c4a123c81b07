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

from attrs import define, field

from jetson_specdec.loadgen.shown import said
from jetson_specdec.measurements import Acceptance, RequestRecord
from jetson_specdec.values import frozen

__all__ = ["Answer", "Piece", "events", "read_answer"]

Piece = tuple[float, bytes]
"""Bytes as they arrived, and when: seconds since sending."""

_CONTENT = ("reasoning", "reasoning_content", "content", "tool_calls", "function_call", "refusal", "audio")
_BROKEN_OFF = frozenset({"abort", "aborted", "error", "cancelled", "canceled", "timeout"})
"""Finish reasons of answers that were not finished."""
_SLACK_TOKENS = 16
"""So many tokens more than asked for are believed: end signs, and a last step that yields several."""
_BOM = b"\xef\xbb\xbf"


@frozen(kw_only=True)
class Answer:
    """One answer, before anything is known of the other requests.

    Attributes:
        times_s: arrival of each chunk with a token, seconds since sending.
        text: everything generated, reasoning first where it came first.
        finish_reason: as the server gave it.
        input_tokens, output_tokens, cached_tokens: the server's `usage`; None where it sent none.
        token_ids: where the server returns them.
        error: what the stream or its absence said went wrong, secrets masked.
        note: what is odd about a whole answer.
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
    note: str | None = None
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
            error=self.error or self.note,
            finish_reason=self.finish_reason,
            cached_tokens=self.cached_tokens,
            token_ids=self.token_ids,
            text_sha256=sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest() if self.text else None,
            acceptance=self.acceptance,
        )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 4)


def events(pieces: Iterable[Piece]) -> Iterator[tuple[float, bytes]]:
    r"""Yield the data of each server-sent event with the arrival of the piece that completed it.

    Events may share a piece or span several; comments, other fields and the three ends of a line (`\n`, `\r\n`, `\r`)
    are as the SSE standard has them.
    """
    for at, _, data in _named_events(pieces):
        yield at, data


def _named_events(pieces: Iterable[Piece]) -> Iterator[tuple[float, bytes, bytes]]:
    """Yield arrival, name (mostly empty) and data of each event."""
    reader = _EventReader()
    at = 0.0
    for at, piece in pieces:
        whole = reader.whole(piece)
        if whole is not None:
            for data in whole:
                yield at, b"", data
            continue
        for line in reader.lines(piece):
            event = reader.event(line)
            if event is not None:
                yield at, *event
    for event in reader.rest():
        yield at, *event


@define
class _EventReader:
    """Lines and events that have begun and are not complete."""

    buffer: bytes = b""
    half: bool = False
    data: list[bytes] = field(factory=list)
    name: bytes = b""

    def whole(self, piece: bytes) -> list[bytes] | None:
        """Return the data of a piece that is nothing but whole events of one line each, as nearly all are.

        Taking them apart line by line gives the same and costs several times as much. None: it has to be done so.
        """
        if self.buffer or self.half or self.data or self.name:
            return None
        if not (piece.startswith(b"data: ") and piece.endswith(b"\n\n")) or b"\r" in piece:
            return None
        found = piece[6:-2].split(b"\n\ndata: ")
        return found if piece.count(b"\n") == 2 * len(found) else None

    def lines(self, piece: bytes) -> Iterator[bytes]:
        """Yield lines without their ends."""
        if self.half and piece:
            piece, self.half = piece.removeprefix(b"\n"), False  # the other half of a \r\n
        if b"\r" in piece:
            self.half = piece.endswith(b"\r")
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self.buffer = (self.buffer + piece).split(b"\n")
        for line in lines:
            yield line.removeprefix(_BOM)

    def event(self, line: bytes) -> tuple[bytes, bytes] | None:
        """Take a line; returns name and data of the event that it ends."""
        if line.startswith(b"data:"):
            self.data.append(line[5:].removeprefix(b" "))
        elif line.startswith(b"event:"):
            self.name = line[6:].strip()
        elif not line:
            found = (self.name, b"\n".join(self.data)) if self.data or self.name == b"error" else None
            self.data, self.name = [], b""
            return found
        return None

    def rest(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield what is left when the stream ends."""
        for line in (self.buffer.removeprefix(_BOM), b"") if self.buffer else (b"",):
            event = self.event(line)
            if event is not None:
                yield event


def read_answer(
    pieces: Sequence[Piece],
    *,
    failure: str | None = None,
    max_tokens: int | None = None,
    secrets: Iterable[str | None] = (),
) -> Answer:
    """Read what arrived.

    Args:
        pieces: bytes and arrival times, in order.
        failure: what the client saw go wrong (connection, status, time-out); it wins over what the stream says.
        max_tokens: how many were asked for at most; a count far beyond it is not believed.
        secrets: values that must not be shown, should the server repeat them.
    """
    known = tuple(secrets)
    reader = _Reader(error=None if failure is None else said(failure, known), secrets=known)
    for at, name, data in _named_events(pieces):
        if data.strip() == b"[DONE]":
            reader.done = True
            break
        chunk = _parsed(data)
        if name == b"error":
            reader.fail(chunk if chunk is not None else data.decode("utf-8", "replace") or "an event named error")
            continue
        reader.take(at, chunk)
    return reader.answer(max_tokens)


_decode = json.JSONDecoder().raw_decode


def _parsed(data: bytes) -> Any:
    """Return the value of a JSON text, None for what is none; `json.loads`, less its preparations where they can be."""
    try:
        text = data.decode()
        chunk, end = _decode(text)
        if end == len(text):
            return chunk
    except (ValueError, RecursionError):
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


@define
class _Reader:
    """Puts chunks together; a chunk of any shape is a token, something else, or an error, never an exception."""

    error: str | None
    secrets: tuple[str | None, ...] = ()
    times: list[float] = field(factory=list)
    texts: list[str] = field(factory=list)
    token_ids: list[int] = field(factory=list)
    usage: Mapping[str, Any] = field(factory=dict)
    finish: str | None = None
    acceptance: Acceptance | None = None
    done: bool = False

    def take(self, at: float, chunk: Any) -> None:
        """Take any chunk."""
        text = _plain_text(chunk)
        if text is None:
            self._look_into(at, chunk)
        else:
            self.times.append(at)
            self.texts.append(text)

    def _look_into(self, at: float, chunk: Any) -> None:
        if not isinstance(chunk, dict) or not isinstance(chunk.get("choices") or [], list):
            self.error = self.error or "malformed chunk"
            return
        if _is_error(chunk):
            self.fail(chunk.get("error") or chunk)
            return
        self.usage = _mapping(chunk.get("usage")) or self.usage
        self.acceptance = _acceptance(chunk) or self.acceptance
        if not chunk.get("choices"):
            return
        choice = _mapping(chunk["choices"][0])
        if choice.get("error"):
            self.fail(choice["error"])
            return
        ended = choice.get("finish_reason")
        if isinstance(ended, str) and ended.lower() in _BROKEN_OFF:
            self.fail(f"finish reason {ended}")
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

    def fail(self, error: Any) -> None:
        """Keep what went wrong; the first thing counts."""
        self.error = self.error or said(_error_text(error), self.secrets)

    def answer(self, max_tokens: int | None = None) -> Answer:
        if self.error is None and not self.times:
            self.error = "no token arrived"
        # Some servers never say why they ended; one that counted the tokens has at least come to the end.
        if self.error is None and self.finish is None and not (self.done and self.usage):
            self.error = "the stream ended without a finish reason"
        told = self.usage.get("completion_tokens")
        tokens = _count(told)
        most = None if max_tokens is None else max_tokens + max(_SLACK_TOKENS, max_tokens // 10)
        believed = tokens is not None and tokens > 0 and (most is None or tokens <= most)
        return Answer(
            times_s=tuple(self.times),
            text="".join(self.texts),
            finish_reason=self.finish,
            input_tokens=_count(self.usage.get("prompt_tokens")),
            output_tokens=tokens if believed else None,
            note=None if believed or told is None else f"the server counted {str(told)[:24]} tokens, which cannot be",
            cached_tokens=_count(_mapping(self.usage.get("prompt_tokens_details")).get("cached_tokens")),
            token_ids=tuple(self.token_ids) or None,
            error=self.error,
            acceptance=self.acceptance,
        )


def _plain_text(chunk: Any) -> str | None:
    """Return the text of a chunk that says nothing else, as nearly all are; None for every other one."""
    if type(chunk) is not dict or "metrics" in chunk or "error" in chunk or "type" in chunk:
        return None
    if chunk.get("usage") is not None:
        return None
    choices = chunk.get("choices")
    if type(choices) is not list or not choices or type(choices[0]) is not dict or chunk.get("object") == "error":
        return None
    choice = choices[0]
    if choice.get("finish_reason") is not None or choice.get("token_ids") is not None or "error" in choice:
        return None
    delta = choice.get("delta")
    if delta is None:
        text = choice.get("text")
    elif type(delta) is dict and len(delta) == 1:
        text = delta.get("content")
    else:
        return None
    return text if type(text) is str else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(choice: Mapping[str, Any], delta: Mapping[str, Any] | None) -> str:
    if delta is None:
        text = choice.get("text")
        return text if isinstance(text, str) else ""
    return "".join(delta[key] for key in _CONTENT[:3] if isinstance(delta.get(key), str))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _is_error(chunk: Mapping[str, Any]) -> bool:
    """Say whether a chunk is one of the shapes in which servers tell of an error in the middle of a stream."""
    if chunk.get("error") or "error" in (chunk.get("object"), chunk.get("type")):
        return True
    # `{"message": …, "code": 500}`, `{"detail": …}`: nothing of an answer in it, but a complaint.
    return "choices" not in chunk and any(chunk.get(key) for key in ("message", "detail"))


def _error_text(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    inner = error.get("error")
    return str(error.get("message") or error.get("detail") or (inner and _error_text(inner)) or error)


def _acceptance(chunk: Mapping[str, Any]) -> Acceptance | None:
    if not _mapping(_mapping(chunk.get("metrics")).get("speculative_decoding")):
        return None
    from jetson_specdec.logs.metrics import SpecMetrics

    metrics = SpecMetrics.from_response(chunk)
    return Acceptance.from_metrics(metrics, source="requests") if metrics is not None else None
