# SPDX-License-Identifier: Apache-2.0
"""Answers received in threads: whatever framing a server uses, the payload and the order of arrival come through."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.loadgen import Prompt, read_answer
from jetson_specdec.loadgen.client import Client
from jetson_specdec.loadgen.connection import Network
from jetson_specdec.loadgen.receiving import Unchunker

payloads = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def chunked(parts, *, extension=b"", trailers=b"", upper=False):
    sizes = [b"%X" % len(part) if upper else b"%x" % len(part) for part in parts]
    framed = b"".join(size + extension + b"\r\n" + part + b"\r\n" for size, part in zip(sizes, parts, strict=True))
    return framed + b"0\r\n" + trailers + b"\r\n"


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(
    payloads,
    st.lists(st.integers(0, 10_000), max_size=12),
    st.sampled_from([b"", b";name=value"]),
    st.sampled_from([b"", b"Took: 3 ms\r\n"]),
    st.booleans(),
)
def test_payload_does_not_depend_on_the_cuts(parts, places, extension, trailers, upper):
    framing = chunked(parts, extension=extension, trailers=trailers, upper=upper)
    unchunker = Unchunker()
    pieces = cut(framing, places)
    assert b"".join(unchunker.feed(piece) for piece in pieces) == b"".join(parts)
    assert unchunker.done


@given(payloads, st.data())
def test_a_body_that_is_cut_short_is_not_done(parts, data):
    framing = chunked(parts)
    end = data.draw(st.integers(0, len(framing) - 1))
    unchunker = Unchunker()
    assert b"".join(parts).startswith(unchunker.feed(framing[:end]))
    assert not unchunker.done


@given(payloads, st.lists(st.binary(max_size=30), max_size=6))
def test_any_bytes_are_chunks_or_a_fault_that_keeps_what_came_before(parts, pieces):
    unchunker = Unchunker()
    found = b"".join(unchunker.feed(piece) for piece in [chunked(parts)[:-5], *pieces])
    assert found.startswith(b"".join(parts))
    assert unchunker.fault is None or not unchunker.done


@pytest.mark.parametrize("header", [b"-5\r\n", b"zz\r\n", b"0x1\r\n", b"1_0\r\n", b"1" * 70_000])
def test_headers_that_are_none(header):
    unchunker = Unchunker()
    assert unchunker.feed(b"1\r\na\r\n" + header) == b"a"
    assert "chunk" in unchunker.fault
    assert unchunker.feed(b"1\r\nb\r\n0\r\n\r\n") == b""
    assert not unchunker.done


def event(text, newline=b"\n"):
    body = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "length" if text == "z" else None}]}
    return b"data: " + json.dumps(body).encode() + newline * 2


class Scripted:
    """A server that sends what it is told, one list of writes for each request; None closes the connection."""

    def __init__(self, *replies):
        self._replies = list(replies)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self.requests = 0
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.close()
        self._thread.join(10)

    def _serve(self):
        while self._replies:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while self._replies and self._read(connection):
                    self.requests += 1
                    if not self._answer(connection, self._replies.pop(0)):
                        break
        self.ended.set()

    @staticmethod
    def _read(connection):
        head = b""
        while b"\r\n\r\n" not in head:
            data = connection.recv(65536)
            if not data:
                return False
            head += data
        head, _, body = head.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        while len(body) < length:
            body += connection.recv(65536)
        return True

    @staticmethod
    def _answer(connection, writes):
        for data in writes:
            if data is None:
                return False
            if data == "wait":
                return bool(connection.recv(1))
            connection.sendall(data)
        return True


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def ask(url, *, times=1, **options):
    async def run():
        client = Client(base_url=url, connection=Network(), model="m", **options)
        await client.open()
        try:
            return [await client.send(Prompt(id="x", text="hello"), 8) for _ in range(times)]
        finally:
            await client.close()

    return asyncio.run(run())


def text_of(reception):
    answer = read_answer(reception.pieces, failure=reception.failure)
    return answer.text, answer.error


WHOLE = [event("a"), event("z"), DONE]
CRLF = [event("a", b"\r\n"), event("z", b"\r\n"), b"data: [DONE]\r\n\r\n"]


@pytest.mark.parametrize(
    "writes",
    [
        [CHUNKED, *(chunked([part])[:-5] for part in WHOLE), b"0\r\n\r\n"],
        [CHUNKED + chunked(WHOLE)],
        [CHUNKED, chunked(WHOLE)[:-3], chunked(WHOLE)[-3:]],
        [CHUNKED, chunked(WHOLE)[:-1], chunked(WHOLE)[-1:]],
        [CHUNKED, *(bytes([byte]) for byte in chunked(WHOLE))],
        [CHUNKED, *(chunked([part])[:-5] for part in CRLF), chunked([], trailers=b"Took: 3\r\n")],
        [HEAD + b"Content-Length: %d\r\n\r\n" % len(b"".join(WHOLE)), *WHOLE],
        [HEAD + b"Connection: close\r\n\r\n", *WHOLE, None],
        [b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED, chunked(WHOLE)],
    ],
    ids=["chunks", "at once", "end cut", "end cut late", "bytes", "crlf and trailers", "length", "close", "continue"],
)
def test_every_framing_gives_the_same_answer(writes):
    with Scripted(writes) as server:
        (reception,) = ask(server.url)
    assert text_of(reception) == ("az", None)
    times = [at for at, _ in reception.pieces]
    assert times == sorted(times)
    assert times[0] > 0


@pytest.mark.parametrize(
    ("writes", "said"),
    [
        ([CHUNKED, chunked([event("a")])[:-5], None], "incomplete chunked read"),
        ([CHUNKED, chunked([event("a")])[:-5], b"nonsense\r\n\r\n"], "RemoteProtocolError"),
        ([None], "Server disconnected"),
        ([b"SSH-2.0-OpenSSH\r\n"], "RemoteProtocolError"),
        ([HEAD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc"], "compressed"),
    ],
    ids=["cut short", "no chunk", "nothing", "not http", "compressed"],
)
def test_broken_answers_are_said_and_what_came_before_is_kept(writes, said):
    with Scripted(writes) as server:
        (reception,) = ask(server.url)
    text, error = text_of(reception)
    assert said in error
    assert text == ("a" if len(writes) > 1 else "")


def test_an_error_keeps_its_status_and_reason():
    body = json.dumps({"error": {"message": "no such thing", "code": 400}}).encode()
    reply = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with Scripted([reply + body]) as server:
        (reception,) = ask(server.url)
    assert reception.status == 400
    assert "no such thing" in reception.failure


def test_a_connection_is_used_again_until_the_server_closes_it():
    with Scripted([CHUNKED, chunked(WHOLE)], [CHUNKED, chunked(WHOLE), None], [CHUNKED, chunked(WHOLE)]) as server:
        receptions = ask(server.url, times=3)
        assert server.connections == 2
    assert [text_of(reception) for reception in receptions] == [("az", None)] * 3


def test_giving_up_ends_the_connection():
    async def run(url):
        client = Client(base_url=url, connection=Network(), model="m")
        await client.open()
        task = asyncio.ensure_future(client.send(Prompt(id="x", text="hello"), 8))
        while not server.requests:  # cancelled any earlier, the server would go on waiting for its request
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await client.close()

    with Scripted([CHUNKED, chunked([event("a")])[:-5], "wait"]) as server:
        asyncio.run(run(server.url))
        assert server.ended.wait(10)


def test_a_proxy_is_used_where_one_is_set(monkeypatch):
    # The proxy answers itself, so the request got there: the server's name does not exist.
    with Scripted([CHUNKED, chunked(WHOLE)]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        (reception,) = ask("http://server.invalid")
    assert text_of(reception) == ("az", None)
