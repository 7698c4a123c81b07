# SPDX-License-Identifier: Apache-2.0
"""`Benchmark`: how fast is this server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field

from jetson_specdec.errors import EndpointError, OptionError
from jetson_specdec.loadgen.allotment import Batch, allot
from jetson_specdec.loadgen.client import Api, Client, Reception
from jetson_specdec.loadgen.conditions import ConditionSampler, mean_power
from jetson_specdec.loadgen.connection import Connection, Network
from jetson_specdec.loadgen.notices import findings_of
from jetson_specdec.loadgen.progress import Progress, print_progress
from jetson_specdec.loadgen.prompts import Prompt, PromptSet, as_prompt_set
from jetson_specdec.loadgen.server_side import Scrape, ServerSide, pooled
from jetson_specdec.loadgen.shown import address, secrets_in
from jetson_specdec.loadgen.stream import Answer, read_answer
from jetson_specdec.loadgen.summary import summarise
from jetson_specdec.measurements import BenchConfig, BenchReport, Conditions, RequestRecord, Run
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.host import Host

__all__ = ["Benchmark"]

DEFAULT_PROMPTS_PER_RUN = 50
_SKU = {"thor": "thor", "agx_orin": "orin-agx", "orin_nx": "orin-nx", "orin_nano": "orin-nano"}


def _concurrency(values: int | Iterable[int]) -> tuple[int, ...]:
    return (values,) if isinstance(values, int) else tuple(values)


@frozen(kw_only=True)
class Benchmark:
    """A measurement of one OpenAI-compatible server; `run` (or `await run_async`) carries it out.

    Every run keeps a fixed number of requests in flight. Prompts are drawn by the seed, the same for every server, and
    none is used twice, warm-up included, so that the server's prefix cache cannot help.

    Attributes:
        base_url: such as `http://127.0.0.1:8000` or `https://board:8443/v1`.
        model: the served name; None: the first that the server lists.
        prompts: a prompt set, prompts, texts, the path of a prompt file, `random`, or None for the own set.
        concurrency: requests in flight, one run each.
        num_prompts: requests a run; None: up to 50, as many as there are different prompts for.
        output_len: most tokens of an answer.
        api: `chat` or `completions`.
        temperature: sent with every request.
        seed: of the prompt order; also sent with every request.
        ignore_eos: let answers run to `output_len` (vLLM); unnatural endings inflate acceptance.
        warmup: requests before each run, of prompts that are never measured; None: the run's concurrency, at least 2.
        input_len, vocabulary: of `random` prompts: tokens each, ids below this.
        api_key: bearer token; None: `OPENAI_API_KEY` from the environment where it is set.
        verify: check the TLS certificate; or a file with the authority that signed it.
        timeout_s: longest silence of the server, seconds.
        retries: how often a failed request is tried again; every failure stays on record.
        salt: makes all prompts new to the server's prefix cache; give both arms the same.
        allow_reuse: use prompts again when there are too few.
        reset_prefix_cache: ask the server to forget its prefix cache before each run (vLLM in development mode).
        extra_body: more keys for each request.
        known: conditions known from elsewhere, such as the server's configuration; they win over what is seen.
        device: the board, for the report.
        host: where to look for temperatures, clocks and power; None: this machine.
        sample_conditions: whether to look at all.
        progress: called after each request; None: lines on stderr where it is a terminal.
        connection: how to reach the server; None: the network.
    """

    base_url: str = field(default="http://127.0.0.1:8000", kw_only=False)
    model: str | None = None
    prompts: PromptSet | Iterable[Prompt | str] | Path | str | None = field(default=None, repr=False)
    concurrency: Sequence[int] = field(default=(1, 8), converter=_concurrency)
    num_prompts: int | None = None
    output_len: int = 128
    api: Api = "chat"
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False
    warmup: int | None = None
    input_len: int = 1024
    vocabulary: int = 32_000
    api_key: str | None = field(default=None, repr=False)
    verify: bool | str = True
    timeout_s: float = 600.0
    retries: int = 0
    salt: str | None = None
    allow_reuse: bool = False
    reset_prefix_cache: bool = False
    extra_body: Mapping[str, Any] = field(factory=dict)
    known: Conditions | None = None
    device: Device | None = None
    host: Host | None = field(default=None, repr=False)
    sample_conditions: bool = True
    progress: Callable[[Progress], None] | None = field(default=None, repr=False)
    connection: Connection = field(factory=Network, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check the options.

        Raises:
            OptionError: one is out of range, or two contradict each other.
        """
        numbers = {"output_len": self.output_len, "retries": self.retries + 1, "timeout_s": self.timeout_s}
        if self.num_prompts is not None:
            numbers["num_prompts"] = self.num_prompts
        for name, value in (*numbers.items(), *(("concurrency", value) for value in self.concurrency)):
            if value <= 0:
                raise OptionError("JSE666", name=name, value=value)
        if not self.concurrency or len(set(self.concurrency)) != len(self.concurrency):
            raise OptionError("JSE667", values=list(self.concurrency))
        if self.api not in ("chat", "completions"):
            raise OptionError("JSE668", value=self.api)

    def run(self) -> BenchReport:
        """Measure, in a thread and event loop of its own, so that it works inside a running loop (a notebook) too.

        Raises:
            EndpointError: the server cannot be reached, or answers no request.
            OptionError: the prompts do not suffice or cannot be read.
        """
        from concurrent.futures import ThreadPoolExecutor

        loop = self.connection.new_event_loop()
        task: list[asyncio.Task[BenchReport]] = []

        def work() -> BenchReport:
            asyncio.set_event_loop(loop)
            try:
                task.append(loop.create_task(self.run_async()))
                return loop.run_until_complete(task[0])
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.run_until_complete(loop.shutdown_default_executor())
                asyncio.set_event_loop(None)
                loop.close()

        with ThreadPoolExecutor(1, thread_name_prefix="jetson-specdec-bench") as pool:
            future = pool.submit(work)
            try:
                return future.result()
            except KeyboardInterrupt:
                if task:
                    loop.call_soon_threadsafe(task[0].cancel)
                raise

    async def run_async(self) -> BenchReport:
        """Measure in the running loop.

        Raises:
            EndpointError: the server cannot be reached, or answers no request.
            OptionError: the prompts do not suffice or cannot be read.
        """
        import os

        batches = self._allot()
        client = Client(
            base_url=self.base_url,
            connection=self.connection,
            api=self._api_for(batches[0].measured),
            api_key=self.api_key or os.environ.get("OPENAI_API_KEY") or None,
            verify=self.verify,
            timeout_s=self.timeout_s,
            temperature=self.temperature,
            seed=self.seed,
            ignore_eos=self.ignore_eos or batches[0].name == "random",
            extra_body=self.extra_body,
            model=self.model,
        )
        await client.open()
        sampler = self._sampler()
        try:
            await client.find_model()
            side = ServerSide(client)
            await side.look()
            if sampler is not None:
                sampler.start()
            return await self._measure(client, side, sampler, batches)
        finally:
            if sampler is not None:
                sampler.stop()
            await client.close()

    def _sampler(self) -> ConditionSampler | None:
        from jetson_specdec.host import LocalHost

        if not self.sample_conditions:
            return None
        return ConditionSampler(self.host or LocalHost(), self.connection.now)

    def _api_for(self, prompts: Sequence[Prompt]) -> Api:
        # Token ids can only be sent to the completions endpoint.
        return "completions" if any(prompt.token_ids is not None for prompt in prompts) else self.api

    def _allot(self) -> list[Batch]:
        wanted = self.num_prompts or DEFAULT_PROMPTS_PER_RUN
        warmups = [self.warmup if self.warmup is not None else max(c, 2) for c in self.concurrency]
        source = as_prompt_set(
            self.prompts,
            count=wanted * len(self.concurrency) + sum(warmups),
            input_len=self.input_len,
            vocabulary=self.vocabulary,
            seed=self.seed,
        )
        return allot(
            source.arranged(self.seed).salted(self.salt),
            dict(zip(self.concurrency, warmups, strict=True)),
            wanted=wanted,
            fewer=self.num_prompts is None,
            reuse=self.allow_reuse,
        )

    async def _measure(
        self, client: Client, side: ServerSide, sampler: ConditionSampler | None, batches: list[Batch]
    ) -> BenchReport:
        from datetime import datetime, timezone

        started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        runs: list[Run] = []
        requests: list[RequestRecord] = []
        first: Scrape | None = None
        last: Scrape | None = None
        foreign: list[bool] = []
        counted = True
        for batch in batches:
            if self.reset_prefix_cache:
                await client.reset_prefix_cache()
            failure = await self._warm_up(client, batch)
            if failure is not None and not runs:
                raise EndpointError("JSE669", url=address(self.base_url), reason=failure)
            before = await side.scrape()
            begin = self.connection.now()
            answers = await self._one_run(client, batch, begin)
            # The server's time: what this program does before the first sending and after the last byte is its own.
            begin = min(sent.reception.sent for sent in answers)
            end = max(sent.reception.ended for sent in answers)
            after = await side.scrape(finished=len(answers), since=before)
            first, last = first or before, after
            records, by_server = await self._records(client, batch, answers)
            counted = counted and by_server
            requests.extend(records)
            run = summarise(
                records, concurrency=batch.concurrency, duration_s=end - begin, **side.counts(before, after)
            )
            runs.append(_with_power(run, sampler, begin, end))
            foreign.append(side.foreign(before, after, sent=len(answers)))
        if not any(run.completed for run in runs):
            raise EndpointError("JSE669", url=address(self.base_url), reason=next(record.error for record in requests))
        known = side.conditions(self.known, first, foreign if last is not None and last.text else None)
        if sampler is not None:
            known = sampler.conditions(known)
        report = self._report(client, batches, evolve(known, started_at=known.started_at or started_at))
        report = evolve(
            report, runs=runs, requests=tuple(requests), acceptance=pooled([run.acceptance for run in runs])
        )
        return report.with_findings(
            *findings_of(
                report,
                reused=any(batch.reused for batch in batches),
                counted_by_server=counted,
                metrics=last is not None and bool(last.text),
                output_len=self.output_len,
            )
        )

    async def _warm_up(self, client: Client, batch: Batch) -> str | None:
        """Send the warm-up requests; the first one settles what the server understands.

        Returns:
            What went wrong, if none of them was answered.
        """
        if not batch.warmup:
            return None
        first, *rest = batch.warmup
        reception = await client.send(first, self.output_len)
        if reception.status in (400, 422) and client.include_usage and "stream_options" in str(reception.failure):
            client.include_usage = False
            reception = await client.send(first, self.output_len)
        others = await asyncio.gather(*(client.send(prompt, self.output_len) for prompt in rest))
        answers = [self._read(got) for got in (reception, *others)]
        return None if any(answer.ok for answer in answers) else answers[0].error

    def _read(self, reception: Reception) -> Answer:
        secrets = (self.api_key, *secrets_in(self.base_url))
        return read_answer(reception.pieces, failure=reception.failure, max_tokens=self.output_len, secrets=secrets)

    async def _one_run(self, client: Client, batch: Batch, begin: float) -> list[_Sent]:
        """Keep `concurrency` requests in flight until all prompts are answered."""
        waiting = iter(batch.measured)
        done: list[_Sent] = []
        sending = iter(range(10**9))
        show = Progress(concurrency=batch.concurrency, total=len(batch.measured))
        report = self.progress or print_progress(sys.stderr)

        async def worker() -> None:
            nonlocal show
            for prompt in waiting:
                for attempt in range(self.retries + 1):
                    index = next(sending)
                    got = await client.send(prompt, self.output_len)
                    done.append(_Sent(index=index, prompt=prompt, start_s=got.sent - begin, reception=got))
                    failed = got.failure is not None
                    if not failed or attempt == self.retries:
                        break
                show = evolve(
                    show, done=show.done + 1, failed=show.failed + failed, elapsed_s=self.connection.now() - begin
                )
                report(show)

        await asyncio.gather(*(worker() for _ in range(batch.concurrency)))
        return sorted(done, key=lambda sent: sent.index)

    async def _records(self, client: Client, batch: Batch, answers: list[_Sent]) -> tuple[list[RequestRecord], bool]:
        """Read the answers; where the server counted no tokens ask its `/tokenize`."""
        records = []
        by_server = True
        for sent in answers:
            answer = self._read(sent.reception)
            tokens = None
            if answer.ok and answer.output_tokens is None:
                by_server = False
                tokens = await client.count_tokens(answer.text)
            records.append(
                answer.record(
                    concurrency=batch.concurrency,
                    index=sent.index,
                    start_s=sent.start_s,
                    prompt_id=sent.prompt.id,
                    category=sent.prompt.category,
                    output_tokens=tokens,
                )
            )
        return records, by_server

    def _report(self, client: Client, batches: list[Batch], conditions: Conditions) -> BenchReport:
        device = self.device
        family = device.family if device is not None else None
        sku = _SKU.get(family or "")
        used = PromptSet(name=batches[0].name, prompts=tuple(prompt for batch in batches for prompt in batch.measured))
        return BenchReport(
            runtime="vllm" if conditions.vllm_version is not None else None,
            model=client.model,
            sku=sku,
            generation=sku.partition("-")[0] if sku else None,
            product_line="thor-agx" if sku == "thor" else sku,
            variant=device.module if device is not None else None,
            l4t=device.l4t if device is not None else None,
            config=BenchConfig(
                input_len=self.input_len if used.name == "random" else None,
                output_len=self.output_len,
                num_prompts=len(batches[0].measured),
                dataset=used.name,
                prompts_sha256=used.sha256(),
                temperature=self.temperature,
                seed=self.seed,
                ignore_eos=client.ignore_eos,
                warmup_requests=sum(len(batch.warmup) for batch in batches),
            ),
            conditions=conditions,
        )


@frozen(kw_only=True)
class _Sent:
    """One request and what came back."""

    index: int
    prompt: Prompt
    start_s: float
    reception: Any


def _with_power(run: Run, sampler: ConditionSampler | None, begin: float, end: float) -> Run:
    if sampler is None:
        return run
    watts, _ = mean_power(sampler.samples, begin, end)
    if watts is None:
        return run
    joules = watts * (end - begin)
    return evolve(
        run,
        power_w_mean=watts,
        energy_j_per_token=joules / run.total_output_tokens if run.total_output_tokens else None,
    )
