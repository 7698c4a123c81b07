# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 around a `FakeApp`, on asyncio streams: enough for any client, and cheap."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Any, cast

from jetson_specdec.testing.fake_app import Dropped, FakeApp, Reply

__all__ = ["FakeServer"]

MAX_HEAD_BYTES = 2**16


class FakeServer:
    """Serves an app on a port; several connections, kept alive, with chunked streams."""

    def __init__(self, app: FakeApp) -> None:
        self.app = app
        self.port = app.settings.port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Bind the port (0: any free one) and accept connections.

        Raises:
            OSError: the port is in use.
        """
        settings = self.app.settings
        context = None
        if settings.ssl_certfile:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile)
        self._server = await asyncio.start_server(
            self._accept, settings.host, settings.port, limit=MAX_HEAD_BYTES, ssl=context
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop accepting, break what is open, stop the engine."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self.app.engine.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._connections.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client went away, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the server closes
        finally:
            self._connections.discard(task)
            with contextlib.suppress(ConnectionError, RuntimeError):
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be closed."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        request, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = request.split(" ", 2)
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        body = await reader.readexactly(int(headers.get("content-length") or 0))
        reply = await self.app.handle(method, path, headers, body)
        peer = writer.get_extra_info("peername") or ("?", 0)
        self.app.log.access(f"{peer[0]}:{peer[1]}", method, path, reply.status, reply.reason)
        if isinstance(reply.body, bytes):
            writer.write(_head(reply, f"content-length: {len(reply.body)}") + reply.body)
            await writer.drain()
        elif not await self._stream(reply, reply.body, reader, writer):
            return False
        return headers.get("connection", "").lower() != "close"

    async def _stream(
        self, reply: Reply, body: AsyncIterator[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        writer.write(_head(reply, "transfer-encoding: chunked"))
        try:
            async for piece in body:
                if reader.at_eof():  # the client hung up: the engine must stop working for it
                    return False
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
        except Dropped:
            writer.transport.abort()
            return False
        finally:
            await cast(Any, body).aclose()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


def _head(reply: Reply, length: str) -> bytes:
    return (
        f"HTTP/1.1 {reply.status} {reply.reason}\r\nserver: uvicorn\r\ncontent-type: {reply.content_type}\r\n{length}"
        "\r\n\r\n"
    ).encode("latin-1")
