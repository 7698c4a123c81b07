# SPDX-License-Identifier: Apache-2.0
"""A `FakeVllm` as a process: described by its environment, ended by signals or by what goes wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jetson_specdec.testing.fake_app import FakeApp
from jetson_specdec.testing.fake_failure import FakeStartFailed, StartFailure, start_failure, strikes, usage
from jetson_specdec.testing.fake_log import VERSION
from jetson_specdec.testing.fake_server import FakeServer
from jetson_specdec.testing.fake_vllm import ENVIRONMENT, FakeVllm
from jetson_specdec.testing.truth import Fault, Memory, Truth

__all__ = ["main"]

LOW_KIB = 64 * 1024
"""What is left of the memory when `memory_falls`, far below every floor."""


async def _serve(server: FakeServer, startup_s: float, announce: Callable[[int], None]) -> bool:
    """Serve until told to stop, or until the engine has died; return whether it died."""
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
        watcher = asyncio.ensure_future(_until_dead(server.app, stop))
        await stop.wait()
        for task in (ticker, watcher):
            task.cancel()
        await asyncio.gather(ticker, watcher, return_exceptions=True)
    await server.close()
    return server.app.dead


async def _tick(app: FakeApp) -> None:
    """Write the figures of the last steps, as vLLM does even when no step follows."""
    while True:
        await asyncio.sleep(10 * app.engine.time_scale)
        if app.engine.now > app.log.last_stats:
            app.write_stats()


async def _until_dead(app: FakeApp, stop: asyncio.Event) -> None:
    """End a server whose engine has died soon after it has said so, with exit code 0, as vLLM does."""
    while not app.dead:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    stop.set()


def main(argv: Sequence[str] | None = None) -> int:
    """Stand in for `vllm serve`; returns the exit code."""
    from jetson_specdec.testing.fake_args import ArgumentFailure, truth_from

    def write(line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    words = list(sys.argv[1:] if argv is None else argv)
    try:
        known = truth_from(os.environ.get(ENVIRONMENT))
        told = {name: known.pop(name, None) for name in ("kernel_log", "meminfo", "start_log", "fails_when")}
        scale, startup = float(known.pop("time_scale", 1.0)), float(known.pop("startup_s", 0.0))
        exit_code, failure = int(known.pop("exit_code", 1)), known.pop("start_failure", None)
        more = {"version": known.pop("version")} if "version" in known else {}
        if words[:1] in (["--version"], ["-v"]):
            write(f"{more.get('version', VERSION)}\n")
            return 0
        memory = known.pop("memory", None)
        faults = {int(number): Fault(**fault) for number, fault in known.pop("faults", {}).items()}
        fake = FakeVllm(
            words,
            truth=Truth(**known),
            memory=Memory(**memory) if memory is not None else None,
            faults=faults,
            start_failure=_of_this_start(failure, told["fails_when"], words, **more),
            time_scale=scale,
            write=write,
            host="0.0.0.0",
            port=8000,
            **more,
        )
    except ArgumentFailure as error:
        sys.stderr.write(usage(str(error.values["reason"])) + "\n")
        return error.exit_code
    if told["start_log"] is not None:
        write(Path(told["start_log"]).read_text(encoding="utf-8"))
        return exit_code
    if told["meminfo"] is not None:
        _fill(Path(told["meminfo"]))
    try:
        fake.prepare(lambda: time.sleep(startup) if fake.failure is not None and startup else None)
    except FakeStartFailed as error:
        return _end(fake, error.failure, told)
    try:
        died = asyncio.run(_serve(FakeServer(fake.app), startup, fake.announce))
    except OSError as error:
        fake.log.raw(f"OSError: {error}")
        return 1
    fake.log.stopped(by_itself=died)
    return 0


def _of_this_start(name: str | None, when: str | None, words: Sequence[str], **more: Any) -> StartFailure | None:
    """Return the failure that this start is told to have; what docker says is docker's to say."""
    if name is None or not strikes(when, words):
        return None
    found = start_failure(name, **more)
    return None if found is None or found.frame == "docker" else found


def _end(fake: FakeVllm, failure: StartFailure, told: Mapping[str, Any]) -> int:
    """End as the failure says."""
    if failure.kernel and told["kernel_log"] is not None:
        _tell_kernel(Path(told["kernel_log"]), failure, fake.log.pid)
    if failure.memory_falls and told["meminfo"] is not None:
        for share in (0.5, 0.25, 0.1, 0.0):
            time.sleep(0.05)
            _fill(Path(told["meminfo"]), share)
    # The first V1 engines end themselves when their core has failed.
    own = failure.frame == "engine" and not fake.log.since(0, 9)
    if failure.end == "kill" or own:
        os.kill(os.getpid(), signal.SIGKILL)
    while failure.exit_code is None:
        signal.pause()
    return failure.exit_code


def _tell_kernel(path: Path, failure: StartFailure, pid: int) -> None:
    lines = failure.filled({"pid": pid, "core_pid": pid + 1})["kernel"]
    with contextlib.suppress(OSError):
        stamp = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"[{stamp:12.6f}] {line}\n" for line in lines)


def _fill(path: Path, share: float = 0.85) -> None:
    """Write a memory of which a share is available; its size stays as it was in the file."""
    total = 64_000_000
    with contextlib.suppress(OSError, ValueError, IndexError):
        total = int(path.read_text(encoding="ascii").partition("MemTotal:")[2].split()[0])
    text = (
        f"MemTotal: {total} kB\nMemAvailable: {max(int(total * share), LOW_KIB)} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="ascii")
    new.replace(path)
