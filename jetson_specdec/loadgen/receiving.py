# SPDX-License-Identifier: Apache-2.0
"""How streamed answers are received: each by a blocking thread that notes what arrived when, and nothing else.

The `openai` client asks through `streaming_client` below. Its own way to the server spends several times as much
processor time on every token: it wakes an event loop, a task and half a dozen generators, and parses each piece of
HTTP as it arrives (tests/benchmarks/bench_client_cost.py). A thread that sleeps in the kernel wakes for one call and
goes back; the rest is done when the answer is complete. A busy event loop, such as a notebook's, does not delay the
times either.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from select import POLLIN, poll
from typing import Any, Final

from attrs import define, field

from jetson_specdec.loadgen.stream import Piece

__all__ = ["ARRIVALS", "Arrivals", "Unchunker", "http_library", "streaming_client"]

ARRIVALS: Final = "jetson_specdec_arrivals"
"""Key of a response's extensions under which its `Arrivals` are."""

_READ_BYTES: Final = 2**16
_MOST_AT_ONCE: Final = 4096
_LAST_WORDS_S: Final = 5.0
_LONGEST_LINE: Final = 2**16
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,15}")
_CUT_OFF: Final = "peer closed connection without sending complete message body (incomplete chunked read)"


def http_library() -> Any:
    """Return the module that the `openai` client is made of: httpx, or its successor httpx2."""
    from openai import DefaultAsyncHttpxClient

    return import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])


@define
class Unchunker:
    """Takes the chunked framing of HTTP/1.1 (RFC 9112, section 7.1) off a body, in whatever pieces it comes.

    Attributes:
        done: whether the last chunk and its trailers have come.
        fault: why these bytes are no chunks; the payload before that is given out all the same.
    """

    done: bool = False
    fault: str | None = None
    _left: int = 0
    _line: bytes = b""
    _trailers: bool = False

    def feed(self, data: bytes) -> bytes:
        """Return the payload in these bytes."""
        data, self._line = self._line + data, b""
        payload = b""
        at = 0
        while not self.done and self.fault is None:
            if self._left:
                part = data[at : at + self._left]
                payload = payload + part if payload else part
                at += len(part)
                self._left -= len(part)
                if self._left:
                    break
            end = data.find(b"\r\n", at)
            if end < 0:
                self._line = data[at:]
                if len(self._line) > _LONGEST_LINE:
                    self.fault = "chunk header too long"
                break
            line = data[at:end]
            at = end + 2
            if self._trailers:
                self.done = not line
            elif line:  # an empty one ends the chunk before
                digits = line.partition(b";")[0].strip()
                if _CHUNK_SIZE.fullmatch(digits):
                    self._left = int(digits, 16)
                    self._trailers = self._left == 0
                else:
                    self.fault = "not a chunk size: " + repr(bytes(digits[:20]))
        return payload


@define
class Arrivals:
    """What arrived when; times are by the clock of the benchmark.

    Attributes:
        sent: when the request was handed to the kernel.
        pieces: payload and seconds since sending; complete once the body has been read, or has failed.
    """

    sent: float = 0.0
    pieces: list[Piece] = field(factory=list, repr=False)


@define(eq=False)
class _Exchange:
    """One request and its answer; `work` runs in a thread, everything else in the loop."""

    transport: _Receiver
    request: Any
    body: bytes
    loop: asyncio.AbstractEventLoop
    head: asyncio.Future[tuple[int, list[tuple[bytes, bytes]]]]
    over: asyncio.Future[None]
    arrivals: Arrivals = field(factory=Arrivals)
    last: float = 0.0
    _raw: list[Piece] = field(factory=list)
    _connection: http.client.HTTPConnection | None = None
    _aborted: bool = False

    # --- in a thread -------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Send, receive, and say so to the loop."""
        failure: Exception | None = None
        try:
            self._connection = self.transport.connect(self.request)
            keep = self._exchange(self._connection)
            if keep and not self._aborted:
                self.transport.keep(self.request, self._connection)
                self._connection = None
        except Exception as error:  # what a thread does not hand over is lost
            failure = self._translated(error)
        finally:
            if self._connection is not None:
                self._connection.close()
        self._tell(self.over, None, failure)

    def _exchange(self, connection: http.client.HTTPConnection) -> bool:
        """Return whether the connection can be used again."""
        request, now = self.request, self.transport.now
        connection.putrequest(
            request.method, request.url.raw_path.decode("ascii"), skip_host=True, skip_accept_encoding=True
        )
        for name, value in request.headers.raw:
            if name.lower() not in (b"accept-encoding", b"transfer-encoding"):
                connection.putheader(name, value)
        connection.putheader("Accept-Encoding", "identity")
        self.arrivals.sent = self.last = now()
        connection.endheaders(self.body)
        response = connection.getresponse()
        try:
            self.last = now()
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
            self._tell(self.head, (response.status, headers), None)
            if response.headers.get("content-encoding", "identity").lower() != "identity":
                raise http.client.HTTPException("the answer is compressed, although that was not asked for")
            if response.chunked:
                self._receive_chunks(response.fp.read1, connection.sock.recv)
            else:
                while data := response.read1(_READ_BYTES):
                    self.last = now()
                    self.arrivals.pieces.append((self.last - self.arrivals.sent, data))
            return not response.will_close
        finally:
            response.close()

    def _receive_chunks(self, first: Callable[[int], bytes], further: Callable[[int], bytes]) -> None:
        """Note raw bytes, and look into them only where they could be the end.

        Args:
            first: reads what came along with the head, or else the next bytes.
            further: reads on, without a buffer in between.
        """
        now, note, unchunker = self.transport.now, self._raw.append, Unchunker()
        try:
            data = first(_READ_BYTES)
            while data:
                self.last = at = now()
                note((at, data))
                if (data.endswith(b"\r\n\r\n") or len(data) < 4) and self._unpack(unchunker):
                    return
                data = further(_READ_BYTES)
        except OSError:
            self._unpack(unchunker)  # what came before is kept
            raise
        self._unpack(unchunker)
        raise http.client.IncompleteRead(b"")

    def _unpack(self, unchunker: Unchunker) -> bool:
        """Bring the pieces up to what has arrived; returns whether the last chunk is among them.

        Raises:
            http.client.HTTPException: these are no chunks.
        """
        for at, data in self._raw:
            payload = unchunker.feed(data)
            if payload:
                self.arrivals.pieces.append((at - self.arrivals.sent, payload))
        self._raw.clear()
        if unchunker.fault is not None:
            raise http.client.HTTPException(unchunker.fault)
        return unchunker.done

    def _translated(self, error: Exception) -> Exception:
        """Return the error of the HTTP library that means the same."""
        library = self.transport.library
        text = str(error)
        kind = library.ReadError
        if isinstance(error, library.TransportError):
            same: Exception = error
            return same
        if isinstance(error, http.client.RemoteDisconnected):
            kind, text = library.RemoteProtocolError, "Server disconnected without sending a response."
        elif isinstance(error, http.client.IncompleteRead):
            kind, text = library.RemoteProtocolError, _CUT_OFF
        elif isinstance(error, (http.client.HTTPException, ValueError)):  # http.client's own checks raise both
            kind = library.RemoteProtocolError
        translated: Exception = kind(text)
        translated.__cause__ = error
        return translated

    def _tell(self, future: asyncio.Future[Any], value: Any, failure: Exception | None) -> None:
        def settle() -> None:
            for waiting in (self.head, future) if failure is not None else (future,):
                if waiting.done():
                    continue
                if failure is None:
                    waiting.set_result(value)
                else:
                    waiting.set_exception(failure)
                    waiting.exception()  # nobody may be left to look at it

        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(settle)

    # --- in the loop -------------------------------------------------------------------------------------------------

    async def wait_for(self, future: asyncio.Future[Any]) -> Any:
        """Wait until the thread has got so far, unless the server is silent for too long."""
        limit = self.request.extensions.get("timeout", {}).get("read")
        self.last = self.last or self.transport.now()
        left = limit
        try:
            while not (await asyncio.wait({future}, timeout=left))[0]:
                left = self.last + limit - self.transport.now()
                if left <= 0:
                    self.abort()
                    await asyncio.wait({self.over}, timeout=_LAST_WORDS_S)
                    raise self.transport.library.ReadTimeout(f"no byte for {limit:g} s")
        except asyncio.CancelledError:
            self.abort()
            raise
        return future.result()

    async def body_bytes(self) -> bytes:
        """Wait for the end and return the payload."""
        await self.wait_for(self.over)
        return b"".join(data for _, data in self.arrivals.pieces)

    def abort(self) -> None:
        """Wake the thread out of its call; it closes the connection."""
        self._aborted = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None and not self.over.done():
            with contextlib.suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not the one of TLS, which would say goodbye first


@define(eq=False)
class _Receiver:
    """Connections and threads."""

    library: Any
    now: Callable[[], float]
    context: ssl.SSLContext | None
    _idle: dict[tuple[str, str, int], list[http.client.HTTPConnection]] = field(factory=dict)
    _threads: ThreadPoolExecutor | None = None
    _running: set[_Exchange] = field(factory=set)

    def connect(self, request: Any) -> http.client.HTTPConnection:
        """Return a connection that was left open, or a new one; called in a thread."""
        waiting = self._idle.get(_origin(request), [])
        while waiting:
            kept = waiting.pop()
            if not _readable(kept.sock):
                return kept
            kept.close()  # the server has closed it
        scheme, host, port = _origin(request)
        limit = request.extensions.get("timeout", {}).get("connect")
        connection = (
            http.client.HTTPSConnection(host, port, timeout=limit, context=self.context)
            if scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=limit)
        )
        try:
            connection.connect()
            # Without a limit each read is one call instead of two; the loop watches the time.
            connection.sock.settimeout(None)
        except TimeoutError as error:
            connection.close()
            raise self.library.ConnectTimeout(str(error)) from error
        except OSError as error:
            connection.close()
            raise self.library.ConnectError(str(error)) from error
        return connection

    def keep(self, request: Any, connection: http.client.HTTPConnection) -> None:
        """Leave a connection open for the next request."""
        self._idle.setdefault(_origin(request), []).append(connection)

    async def send(self, request: Any) -> _Exchange:
        """Start an exchange and wait for the head of its answer."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_AT_ONCE, thread_name_prefix="jetson-specdec-stream")
        exchange = _Exchange(
            self, request, await request.aread(), loop, head=loop.create_future(), over=loop.create_future()
        )
        self._running.add(exchange)
        exchange.over.add_done_callback(lambda _: self._running.discard(exchange))
        self._threads.submit(exchange.work)
        await exchange.wait_for(exchange.head)
        return exchange

    async def close(self) -> None:
        """End what runs and close what is open."""
        running = set(self._running)
        for exchange in running:
            exchange.abort()
        if running:
            await asyncio.wait({exchange.over for exchange in running}, timeout=_LAST_WORDS_S)
        for connections in self._idle.values():
            while connections:
                connections.pop().close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)


def _origin(request: Any) -> tuple[str, str, int]:
    scheme = request.url.scheme
    return scheme, request.url.host, request.url.port or (443 if scheme == "https" else 80)


def _readable(sock: socket.socket | None) -> bool:
    """Say whether an idle connection has something to say, which can only be its end."""
    if sock is None:
        return True
    watch = poll()
    watch.register(sock, POLLIN)
    return bool(watch.poll(0))


def streaming_client(*, verify: Any, timeout: float, now: Callable[[], float]) -> Any:
    """Return a client for `openai.AsyncOpenAI(http_client=…)` that receives answers to prompts in threads.

    Every other request goes the usual way.

    Args:
        verify: check certificates; or an SSL context.
        timeout: longest silence, seconds.
        now: the clock.
    """
    from openai import DefaultAsyncHttpxClient

    library = http_library()
    context = verify if isinstance(verify, ssl.SSLContext) else library.create_ssl_context(verify=verify)
    receiver = _Receiver(library, now, context)
    usual = library.AsyncHTTPTransport(verify=context)
    byte_stream, transport = library.AsyncByteStream, library.AsyncBaseTransport

    class Body(byte_stream):  # type: ignore[misc, valid-type]
        def __init__(self, exchange: _Exchange) -> None:
            self._exchange = exchange

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield await self._exchange.body_bytes()

        async def aclose(self) -> None:
            self._exchange.abort()

    class Transport(transport):  # type: ignore[misc, valid-type]
        async def handle_async_request(self, request: Any) -> Any:
            if not request.url.path.endswith("/completions"):
                return await usual.handle_async_request(request)
            exchange = await receiver.send(request)
            status, headers = exchange.head.result()
            return library.Response(
                status, headers=headers, stream=Body(exchange), extensions={ARRIVALS: exchange.arrivals}
            )

        async def aclose(self) -> None:
            await receiver.close()
            await usual.aclose()

    return DefaultAsyncHttpxClient(transport=Transport(), timeout=timeout)
