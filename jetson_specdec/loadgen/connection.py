# SPDX-License-Identifier: Apache-2.0
"""How a benchmark reaches its server, and by which clock it measures."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

__all__ = ["Connection", "Network"]


class Connection(Protocol):
    """A way to a server; `FakeVllm.connection()` is one that needs no network and no waiting."""

    def http_client(self, *, verify: Any, timeout: float) -> Any:
        """Return an HTTP client for `openai.AsyncOpenAI(http_client=…)`."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop for `Benchmark.run`."""

    def now(self) -> float:
        """Seconds on a clock that only goes forward."""


class Network:
    """The network and the machine's clock."""

    def http_client(self, *, verify: Any, timeout: float) -> Any:
        """Return a client that receives answers cheaply; where a proxy is set, the one `openai` itself would use."""
        from urllib.request import getproxies

        if getproxies().keys() & {"http", "https", "all"}:
            from openai import DefaultAsyncHttpxClient

            return DefaultAsyncHttpxClient(verify=verify, timeout=timeout)
        from jetson_specdec.loadgen.receiving import streaming_client

        return streaming_client(verify=verify, timeout=timeout, now=self.now)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a plain loop."""
        return asyncio.new_event_loop()

    def now(self) -> float:
        """Return the performance counter."""
        return time.perf_counter()
