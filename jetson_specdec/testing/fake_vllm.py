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

A start can fail: because vLLM would refuse what it was given, because a `Memory` does not suffice, or because it was
told to (`start_failure`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from jetson_specdec.testing.fake_app import FakeApp, Settings
from jetson_specdec.testing.fake_failure import AFTER, FakeStartFailed, StartFailure, start_failure
from jetson_specdec.testing.fake_log import FakeLog, memory_failure
from jetson_specdec.testing.fake_server import FakeServer
from jetson_specdec.testing.truth import Fault, Memory, Truth

if TYPE_CHECKING:
    from jetson_specdec.loadgen.connection import Connection

__all__ = ["ENVIRONMENT", "FakeVllm", "main"]

ENVIRONMENT = "JETSON_SPECDEC_FAKE"
"""Variable with the JSON that describes a fake on the command line: fields of `Truth`, and

- `version`: the vLLM release it stands for;
- `memory`: fields of `Memory`; `faults`: request number → fields of `Fault`;
- `time_scale`; `startup_s`: how long it loads;
- `start_failure`: a cause, or `cause:variant`; `fails_when`: `speculating` or `plain`, where not always;
- `kernel_log`: file to which it adds what the kernel would say; `meminfo`: file it keeps like `/proc/meminfo`;
- `start_log`: file whose lines are printed instead of starting, with `exit_code`.
"""


class FakeVllm:
    """A server in a thread of its own, or (see `connection`) without any thread or socket.

    Args:
        serve_args: what stands after `vllm serve`, such as `plan.serve_args`; the port in it is taken literally.
        truth: how fast it is and how much it accepts.
        faults: number of a generation request, counted from 0 → what goes wrong with it.
        memory: what a start can run out of; None: it always fits.
        start_failure: how its start fails: a cause, `cause:variant` (`start_failures()` lists them), or a value. A way
            in which only a drafter can fail lets a server without speculation start.
        time_scale: real seconds a simulated second takes; 0.1 makes everything ten times faster than `truth` says.
        write: receives each log line.
        **settings: fields of `Settings` (`version`, `model`, `speculative_config`, `api_key`, `port`, …) as defaults
            below `serve_args`.

    Raises:
        ArgumentFailure: vLLM's argparse refuses the arguments; entering it raises `FakeStartFailed` for a start that
            fails later.
        OptionError: there is no such start failure.
    """

    def __init__(
        self,
        serve_args: Sequence[str] = (),
        *,
        truth: Truth | None = None,
        faults: Mapping[int, Fault] | None = None,
        memory: Memory | None = None,
        start_failure: str | StartFailure | None = None,
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
        self.log = FakeLog(write, pid=os.getpid(), version=self.settings.version)
        self._faults = dict(faults or {})
        self._memory = memory
        self._time_scale = time_scale
        self.failure = self._given() or self._told(start_failure)
        if self.failure is not None and self.failure.after == "started":
            self._faults[0] = Fault("engine_dead")
        self.app = self._new_app()
        self._server: FakeServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _given(self) -> StartFailure | None:
        """Return how vLLM refuses what was given; keep what it reads of it."""
        settings = self.settings
        config = settings.speculative_config
        if config is None and 0 < settings.gpu_memory_utilization <= 1 and settings.max_num_seqs > 0:
            return None
        from jetson_specdec.testing.fake_config import accepted_config, refused

        found = refused(
            config,
            version=settings.version,
            utilization=settings.gpu_memory_utilization,
            max_num_seqs=settings.max_num_seqs,
            tensor_parallel_size=settings.tensor_parallel_size,
        )
        read = None if found is not None else accepted_config(config, settings.version)
        self.settings = attrs.evolve(settings, speculative_config=read)
        return found

    def _told(self, failure: str | StartFailure | None) -> StartFailure | None:
        """Return how the start is to fail; what only a drafter can do wrong needs one."""
        told = start_failure(failure, version=self.settings.version) if isinstance(failure, str) else failure
        if told is None or (told.speculation and self.settings.speculative_config is None):
            return None
        return told

    def _new_app(self) -> FakeApp:
        return FakeApp(
            self.settings,
            self.truth,
            faults=self._faults,
            log=self.log,
            time_scale=self._time_scale,
            dying=self._die,
        )

    def _die(self) -> None:
        if self.failure is not None and self.failure.after == "started":
            self.failure.write(self.log, self._figures())
        else:
            self.log.engine_died()

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

    def prepare(self, loading: Callable[[], None] = lambda: None) -> None:
        """Write the log of a start, up to where it fails or the weights are being loaded.

        Args:
            loading: called when loading begins; may wait.

        Raises:
            FakeStartFailed: it fails; the log says what vLLM would have said.
        """
        failure = self.failure
        if failure is None and self._memory is not None and (short := self._account()[1]) is not None:
            failure = attrs.evolve(self._found(f"{short[0]}:{short[1]}"), figures=short[2])
        if failure is not None and failure.again:
            self._first_of_two()
        utilization = self._lower() if failure is not None and failure.again else None
        self._until("load" if failure is None else failure.after, loading, utilization)
        if failure is not None and failure.after != "started":
            failure.write(self.log, self._figures())
            raise FakeStartFailed(failure)

    def _until(self, last: str, loading: Callable[[], None], utilization: float | None = None) -> None:
        settings, log = self.settings, self.log
        given = dict(settings.non_default)
        if utilization is not None:
            given["gpu_memory_utilization"] = utilization
        stages: tuple[tuple[str, Callable[[], None]], ...] = (
            ("arguments", lambda: log.arguments(settings.model, given)),
            ("config", lambda: log.engine(settings.model, settings.speculative_config)),
            ("load", lambda: log.loading(settings.model)),
            *self._rest(),
        )
        if last == "started":
            last = "load"
        for stage, write in stages:
            if AFTER.index(stage) <= AFTER.index(last):
                write()
                if stage == "load":
                    loading()

    def _rest(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """Return the stages behind loading, and what each writes."""
        memory, log, kv = self._memory or Memory(), self.log, self._kv_gib()
        weights = memory.model_gib + (memory.draft_gib if self._drafts else 0.0)
        tokens = int(kv * 2**30 / memory.kv_bytes_per_token)
        return (
            *((("draft", log.drafting),) if self._drafts else ()),
            ("loaded", lambda: log.weights(weights)),
            ("kv_cache", lambda: log.kv_cache(kv)),
            ("warmup", lambda: log.kv_tokens(tokens, self.settings.max_model_len)),
        )

    def _first_of_two(self) -> None:
        """Write the start that a script lets follow by another one."""
        self._until("config", lambda: None)
        free = (self._memory or Memory()).total_gib * self._lower()
        figures = {"free_gib": f"{free:.2f}"}
        attrs.evolve(self._found("memory_precheck"), figures=figures).write(self.log, self._figures())

    def _lower(self) -> float:
        return math.floor(self.settings.gpu_memory_utilization * 100 - 2 + 1e-9) / 100

    def _found(self, name: str) -> StartFailure:
        found = start_failure(name, version=self.settings.version)
        assert found is not None
        return found

    def announce(self, port: int) -> None:
        """Write the rest of the start, with the port that is open."""
        for _, write in self._rest():
            write()
        self.log.up(self.settings.host, port)

    @property
    def _drafts(self) -> bool:
        return bool((self.settings.speculative_config or {}).get("model"))

    def _account(self) -> tuple[float, tuple[str, str, Mapping[str, Any]] | None]:
        return memory_failure(
            self._memory or Memory(),
            utilization=self.settings.gpu_memory_utilization,
            draft=self._drafts,
            max_model_len=self.settings.max_model_len,
        )

    def _kv_gib(self) -> float:
        left, settings = self._account()[0], self.settings
        memory = self._memory or Memory()
        if self.failure is not None and self.failure.cause == "kv_cache_too_small":
            # Half of what one request needs, where it was told to run short.
            return settings.max_model_len * memory.kv_bytes_per_token / 2**31
        return left if self._memory is not None else max(left, 8.0)

    def _figures(self) -> dict[str, Any]:
        """Return what the texts of failures are filled in with."""
        settings, memory = self.settings, self._memory or Memory()
        config = settings.speculative_config or {}
        requested = memory.total_gib * settings.gpu_memory_utilization
        kv = self._kv_gib()
        given = settings.non_default.get("speculative_config")
        return {
            "model": settings.model,
            "draft": config.get("model"),
            "method": config.get("method"),
            "k": config.get("num_speculative_tokens"),
            "config": json.dumps(given),
            "unquoted": json.dumps(given).replace('"', ""),
            "utilization": f"{settings.gpu_memory_utilization:g}",
            "total_gib": f"{memory.total_gib:.2f}",
            "free_gib": f"{memory.free_gib if memory.free_gib < requested else 0.8 * requested:.2f}",
            "requested_gib": f"{requested:.2f}",
            "peak_gib": "1.16",
            "left_gib": "0.79",
            "max_model_len": settings.max_model_len,
            "needed_gib": f"{settings.max_model_len * memory.kv_bytes_per_token / 2**30:.2f}",
            "kv_gib": f"{kv:.2f}",
            "fits": int(kv * 2**30 / memory.kv_bytes_per_token),
            "seqs": settings.max_num_seqs,
            "port": settings.port,
            "container": "llm",
            "image": f"vllm/vllm-openai:v{settings.version}",
            "site": "/usr/local/lib/python3.12/dist-packages/vllm",
        }

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


def main(argv: Sequence[str] | None = None) -> int:
    """Stand in for `vllm serve`; returns the exit code."""
    from jetson_specdec.testing import fake_process

    return fake_process.main(argv)


if __name__ == "__main__":
    sys.exit(main())
