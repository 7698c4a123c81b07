# SPDX-License-Identifier: Apache-2.0
"""One block: cool down, start an arm, measure it, stop it. All effects of a measurement are here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.host import Host, LocalHost
from jetson_specdec.policy import Policy
from jetson_specdec.tune.core import TuneSettings, mean_tpot_s
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.loadgen.sampling import Sample
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Server, Started

__all__ = ["Tools", "bench", "cool_down", "kv_pool", "metrics_text"]


def _server(recipe: Any, index: int, **options: Any) -> Server:
    from jetson_specdec.server import Server

    return Server(recipe, index, **options)


def _benchmark(url: str, **options: Any) -> BenchReport:
    from jetson_specdec.loadgen import Benchmark

    report: BenchReport = Benchmark(url, **options).run()
    return report


def metrics_text(server: Server) -> str | None:
    """Return the server's `/metrics` page, or None where it shows none."""
    from jetson_specdec.server.ready import NotReady, _request

    try:
        return _request(server.address, "/metrics", timeout=10.0).decode("utf-8", errors="replace")
    except NotReady:
        return None


@frozen(kw_only=True)
class Tools:
    """What a tune acts through; tests hand in their own.

    Attributes:
        host: the machine.
        server: makes a `Server` for a plan.
        benchmark: measures an address.
        metrics: reads a server's `/metrics`.
        clock: seconds, only going forward.
        sleep: waits.
        environ: environment of the servers; None: that of this process.
        state_dir: where started servers are written down; None: the usual place.
        back_wait_s: how long to look whether the old server answers again.
        server_options: more options of `Server`.
    """

    host: Host = field(factory=LocalHost)
    server: Callable[..., Server] = _server
    benchmark: Callable[..., BenchReport] = _benchmark
    metrics: Callable[[Server], str | None] = metrics_text
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    state_dir: str | Path | None = None
    back_wait_s: float = 15.0
    server_options: Mapping[str, Any] = field(factory=dict)


def cool_down(tools: Tools, policy: Policy, *, memory_before: int | None) -> tuple[Finding, ...]:
    """Wait until the board is cool enough and its memory is back, at most `cooldown_seconds`.

    Args:
        tools: host, clock and waiting.
        policy: the bands.
        memory_before: MemAvailable before the first start, or None.
    """
    from jetson_specdec.loadgen.sampling import merge, open_sources
    from jetson_specdec.server.watchdog import read_memory

    began = tools.clock()
    sources = open_sources(tools.host)
    try:
        while True:
            sample: Sample = merge([source.read() for source in sources])
            memory = read_memory(tools.host)
            hot = sample.temperature_c is not None and sample.temperature_c > policy.cooldown_temperature_c
            short = (
                memory_before is not None
                and memory.available_bytes is not None
                and memory.total_bytes is not None
                and memory_before - memory.available_bytes > policy.cooldown_memory_band * memory.total_bytes
            )
            waited = tools.clock() - began
            if not hot and not short:
                return ()
            if waited >= policy.cooldown_seconds:
                said = Finding.of(
                    "JSD966",
                    seconds=waited,
                    temperature=sample.temperature_c,
                    limit=policy.cooldown_temperature_c,
                    available=memory.available_bytes,
                )
                return (said,)
            tools.sleep(min(2.0, max(policy.cooldown_seconds - waited, 0.05)))
    finally:
        for source in sources:
            source.close()


def bench(
    tools: Tools,
    server: Server,
    started: Started,
    plan: Plan,
    settings: TuneSettings,
    *,
    concurrency: tuple[int, ...],
    salt: str,
    device: Device | None,
) -> BenchReport:
    """Measure a server that runs.

    Raises:
        EndpointError: it answers no request.
        OptionError: the prompts do not suffice or cannot be read.
    """
    from jetson_specdec.loadgen.served import served_by
    from jetson_specdec.recipe.load import load_recipe

    served = served_by(load_recipe(plan.recipe.path or "-", text=plan.recipe.after), command=plan.command_index)
    prompts: Any = settings.prompts
    if prompts is not None and prompts != "random":
        prompts = Path(prompts)
    return tools.benchmark(
        started.base_url,
        model=started.model,
        prompts=prompts,
        concurrency=concurrency,
        num_prompts=settings.num_prompts,
        output_len=settings.output_len,
        api=settings.api,
        ignore_eos=settings.ignore_eos,
        seed=settings.seed,
        salt=salt,
        api_key=server.address.api_key,
        verify=server.address.scheme != "https",
        known=served.conditions,
        device=device,
        host=tools.host,
    )


def kv_pool(page: str | None, log_path: str) -> tuple[int, int | None] | None:
    """Return how many blocks of KV cache a server has and how many tokens fit into them; None where it does not tell.

    Tokens in a block are the engine's choice (16 on most GPUs, 128 on a CPU, other numbers for some attention
    backends), so they are never assumed: a pool of another size could be larger than the memory.

    Args:
        page: its `/metrics`.
        log_path: its log, which tells the tokens where the page does not tell the blocks.
    """
    from jetson_specdec.loadgen.server_side import _label
    from jetson_specdec.logs import diagnose
    from jetson_specdec.server.running import read_log

    def told(name: str) -> int | None:
        value = _label(page or "", "vllm:cache_config_info", name)
        return int(value) if value is not None and value.isdigit() and int(value) > 0 else None

    blocks, size, tokens = told("num_gpu_blocks"), told("block_size"), told("kv_cache_size_tokens")
    if tokens is None:
        logged = diagnose(read_log(Path(log_path))).values.get("kv_cache_tokens")
        tokens = logged if isinstance(logged, int) and logged > 0 else None
    if blocks is None and size is not None and tokens is not None:
        blocks = tokens // size
    return None if not blocks else (blocks, tokens)


def figures(report: BenchReport) -> dict[str, Any]:
    """Return what a block's record keeps of its report."""
    run = report.run_at(1)
    return {"tpot_s": mean_tpot_s(report), "tok_s": run.throughput_tok_s if run is not None else None}
