# SPDX-License-Identifier: Apache-2.0
"""`FakeVllm`: an OpenAI-compatible server whose every figure is known beforehand.

```python
with FakeVllm(truth=Truth(step_ms=10, acceptance=(0.8, 0.6, 0.5))) as server:
    report = Benchmark(server.base_url, model=server.model).run()
```

On the command line it stands in for `vllm serve`; what it is comes from the environment, so that a recipe runs
unchanged:

```console
$ JETSON_SPECDEC_FAKE='{"step_ms": 10}' python -m jetson_specdec.testing.fake_vllm serve MODEL --port 8000
```
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from jetson_specdec.errors import SpecdecError
from jetson_specdec.testing.fake_app import FakeApp, Settings
from jetson_specdec.testing.fake_log import FakeLog, memory_failure
from jetson_specdec.testing.fake_server import FakeServer
from jetson_specdec.testing.truth import Fault, Memory, Truth

if TYPE_CHECKING:
    from jetson_specdec.loadgen.connection import Connection

__all__ = ["ENVIRONMENT", "FakeVllm", "main"]

ENVIRONMENT = "JETSON_SPECDEC_FAKE"
"""Variable with the JSON that describes a fake on the command line: fields of `Truth`, `memory` with those of
`Memory`, `faults` (request number → fields of `Fault`), `time_scale`, `startup_s`, `start_log` (file whose lines are
printed instead of starting) with `exit_code`."""


class FakeVllm:
    """A server in a thread of its own, or (see `connection`) without any thread or socket.

    Args:
        serve_args: what stands after `vllm serve`, such as `plan.serve_args`; the port in it is taken literally.
        truth: how fast it is and how much it accepts.
        faults: number of a generation request, counted from 0 → what goes wrong with it.
        memory: what a start can run out of; None: it always fits.
        time_scale: real seconds a simulated second takes; 0.1 makes everything ten times faster than `truth` says.
        write: receives each log line.
        **settings: fields of `Settings` (`model`, `speculative_config`, `api_key`, `port`, …) as defaults below
            `serve_args`.

    Raises:
        SpecdecError: the arguments are such as vLLM refuses; entering it raises the same for a start that fails.
    """

    def __init__(
        self,
        serve_args: Sequence[str] = (),
        *,
        truth: Truth | None = None,
        faults: Mapping[int, Fault] | None = None,
        memory: Memory | None = None,
        time_scale: float = 1.0,
        write: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        if serve_args:
            from jetson_specdec.testing.fake_args import read_arguments

            self.settings = read_arguments(list(serve_args), **settings)
        else:
            self.settings = Settings(**settings)
        self.truth = truth or Truth()
        self.log = FakeLog(write, pid=os.getpid())
        self._faults = faults
        self._memory = memory
        self._time_scale = time_scale
        self.app = self._new_app()
        self._server: FakeServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _new_app(self) -> FakeApp:
        return FakeApp(self.settings, self.truth, faults=self._faults, log=self.log, time_scale=self._time_scale)

    @property
    def model(self) -> str:
        """The name it serves the model under."""
        return self.settings.name

    @property
    def k(self) -> int:
        """Drafted tokens a step, 0 without speculation."""
        return self.app.engine.k

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._server.port if self._server is not None else self.settings.port

    @property
    def root_url(self) -> str:
        """Where `/health` and `/metrics` are."""
        host = "127.0.0.1" if self.settings.host in ("0.0.0.0", "::") else self.settings.host
        return f"{'https' if self.settings.ssl_certfile else 'http'}://{host}:{self.port}"

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return self.root_url + "/v1"

    def expected_tpot_ms(self, *, concurrency: int = 1) -> float:
        """Return the time per output token that long answers at a concurrency show."""
        batch = min(concurrency, self.settings.max_num_seqs)
        return self.truth.tpot_ms(k=self.app.engine.k_at(batch), batch=batch)

    def change(self, **truth: Any) -> None:
        """Change the truth of the running server, such as `step_ms` for a drift."""
        self.truth = attrs.evolve(self.truth, **truth)
        self.app.engine.truth = self.truth

    def connection(self) -> Connection:
        """Return a way to this server's behaviour without sockets and without waiting (see `VirtualTimeLoop`).

        Each call starts with a fresh engine.
        """
        from jetson_specdec.testing.in_process import InProcess

        self.app = self._new_app()
        return InProcess(self.app)

    def prepare(self) -> None:
        """Write the log of a start, up to where the engine is loaded.

        Raises:
            SpecdecError: the memory does not suffice; the log says what vLLM would have said.
        """
        settings = self.settings
        self.log.opening(settings.model, settings.non_default, settings.speculative_config)
        _, failure = self._account()
        if failure is not None and self._memory is not None:
            self.log.failed(*failure)
            raise SpecdecError("JSE681", reason=failure[1])

    def announce(self, port: int) -> None:
        """Write the rest of the start, with the port that is open."""
        kv_gib, _ = self._account()
        self.log.loaded(
            self._memory or Memory(),
            draft=self._drafts,
            kv_gib=kv_gib if self._memory is not None else max(kv_gib, 8.0),
            max_model_len=self.settings.max_model_len,
            host=self.settings.host,
            port=port,
        )

    @property
    def _drafts(self) -> bool:
        return bool((self.settings.speculative_config or {}).get("model"))

    def _account(self) -> tuple[float, tuple[str, str] | None]:
        return memory_failure(
            self._memory or Memory(),
            utilization=self.settings.gpu_memory_utilization,
            draft=self._drafts,
            max_model_len=self.settings.max_model_len,
        )

    def __enter__(self) -> FakeVllm:
        self.prepare()
        self._loop = asyncio.new_event_loop()
        self._server = FakeServer(self.app)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-vllm", daemon=True)
        self._thread.start()
        try:
            self._call(self._server.start())
        except BaseException:
            self._stop()
            raise
        self.announce(self.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()
        self.log.stopped()

    def _call(self, coroutine: Any) -> Any:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _stop(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        assert self._server is not None
        self._call(self._server.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


async def _serve(server: FakeServer, startup_s: float, announce: Callable[[int], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if startup_s:
        await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=startup_s)
    if not stop.is_set():
        await server.start()
        announce(server.port)
        ticker = asyncio.ensure_future(_tick(server.app))
        await stop.wait()
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
    await server.close()


async def _tick(app: FakeApp) -> None:
    """Write the figures of the last steps, as vLLM does even when no step follows."""
    while True:
        await asyncio.sleep(10 * app.engine.time_scale)
        if app.engine.now > app.log.last_stats:
            app.write_stats()


def main(argv: Sequence[str] | None = None) -> int:
    """Stand in for `vllm serve`; returns the exit code."""
    from jetson_specdec.testing.fake_args import ArgumentFailure, truth_from

    def write(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["--version"], ["-v"]):
        write("0.32.0\n")
        return 0
    try:
        extra = truth_from(os.environ.get(ENVIRONMENT))
        memory = extra.pop("memory", None)
        faults = {int(number): Fault(**fault) for number, fault in extra.pop("faults", {}).items()}
        scale, startup = float(extra.pop("time_scale", 1.0)), float(extra.pop("startup_s", 0.0))
        start_log, exit_code = extra.pop("start_log", None), int(extra.pop("exit_code", 1))
        fake = FakeVllm(
            words,
            truth=Truth(**extra),
            memory=Memory(**memory) if memory is not None else None,
            faults=faults,
            time_scale=scale,
            write=write,
            host="0.0.0.0",
            port=8000,
        )
    except ArgumentFailure as error:
        sys.stderr.write(error.printed + "\n")
        return error.exit_code
    if start_log is not None:
        with open(start_log, encoding="utf-8") as file:  # noqa: PTH123 - a path as given
            write(file.read())
        return exit_code
    try:
        fake.prepare()
    except SpecdecError:
        return 1
    try:
        asyncio.run(_serve(FakeServer(fake.app), startup, fake.announce))
    except OSError as error:
        fake.log.raw(f"OSError: {error}")
        return 1
    fake.log.stopped()
    return 0


if __name__ == "__main__":
    sys.exit(main())
