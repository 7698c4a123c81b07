# SPDX-License-Identifier: Apache-2.0
"""A client's requests handed straight to a `FakeApp`, in the client's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any, cast

from jetson_specdec.testing.fake_app import Dropped, FakeApp, Reply
from jetson_specdec.testing.virtual_time import VirtualTimeLoop

__all__ = ["InProcess"]


class InProcess:
    """A `Connection` to an app: no socket, and time by the clock of the running loop."""

    def __init__(self, app: FakeApp) -> None:
        self.app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop in which nobody waits."""
        return VirtualTimeLoop()

    def now(self) -> float:
        """Return the time of the loop the client was made in; 0 before that."""
        return self._loop.time() if self._loop is not None else 0.0

    def http_client(self, *, verify: Any, timeout: float) -> Any:
        """Return a client whose transport is the app; `verify` has no meaning here."""
        from openai import DefaultAsyncHttpxClient

        self._loop = asyncio.get_running_loop()
        # openai moved from httpx to httpx2: use whichever its client is made of.
        library = import_module(DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])
        return DefaultAsyncHttpxClient(transport=_transport(library, self.app), timeout=timeout)


def _transport(library: Any, app: FakeApp) -> Any:
    base_stream = library.AsyncByteStream

    class Stream(base_stream):  # type: ignore[misc, valid-type]
        def __init__(self, body: AsyncIterator[bytes]) -> None:
            self._body = body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                async for piece in self._body:
                    yield piece
            except Dropped:
                raise library.RemoteProtocolError(
                    "peer closed connection without sending complete message body (incomplete chunked read)"
                ) from None

        async def aclose(self) -> None:
            await cast(Any, self._body).aclose()

    class Transport(library.AsyncBaseTransport):  # type: ignore[misc]
        async def handle_async_request(self, request: Any) -> Any:
            body = await request.aread()
            headers = {name.lower(): value for name, value in request.headers.items()}
            reply: Reply = await app.handle(request.method, request.url.raw_path.decode("ascii"), headers, body)
            given = {"content-type": reply.content_type}
            if isinstance(reply.body, bytes):
                return library.Response(reply.status, headers=given, content=reply.body)
            return library.Response(reply.status, headers=given, stream=Stream(reply.body))

    return Transport()
