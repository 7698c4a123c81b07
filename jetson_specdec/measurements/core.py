# SPDX-License-Identifier: Apache-2.0
"""What was measured: the report, its runs and requests, and under which conditions.

`BenchReport` is a superset of what NVIDIA's `jetson-llm-benchmark` prints: its keys keep their spelling and place
(`runs[].tpot_ms_p50`, `throughput_tok_s`, `config.input_len`, …) and more keys stand beside them. A number that is
not known is None here and `null` in JSON, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attrs import evolve, field

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.logs.metrics import SpecMetrics

__all__ = [
    "SCHEMA_VERSION",
    "Acceptance",
    "AcceptanceState",
    "BenchConfig",
    "BenchReport",
    "Conditions",
    "RequestRecord",
    "Run",
]

SCHEMA_VERSION = 1
AcceptanceState = Literal["active", "idle", "reset", "absent", "legacy"]
_ROUNDING = 0.006
"""Tools print acceptance with two decimals."""


SIMULATED_RUNTIME = "fake-vllm"
"""`runtime` of a report that was measured with `jetson_specdec.testing.FakeVllm`."""


@frozen(kw_only=True)
class Acceptance:
    """How much of what was drafted was accepted.

    Attributes:
        rate: accepted ÷ drafted tokens, a fraction.
        mean_length: 1 + accepted ÷ drafts: tokens a verification step yields, the bonus token included.
        per_position: accepted at each draft position ÷ drafts, position 0 first; None where not known.
        state: `active`; `idle` (counters are there, nothing was drafted); `reset` (the engine restarted in between,
            numbers are those since); `absent` (no speculative figures); `legacy` (first engine generation); None when
            nobody looked.
        drafts: verification steps that had drafted tokens.
        drafted_tokens: tokens drafted.
        accepted_tokens: drafted tokens that were accepted.
        source: where it was read: `metrics`, `log`, `requests`, `bench`.
    """

    rate: float | None = None
    mean_length: float | None = None
    per_position: tuple[float, ...] | None = None
    state: AcceptanceState | None = None
    drafts: float | None = None
    drafted_tokens: float | None = None
    accepted_tokens: float | None = None
    source: str | None = None

    @property
    def impossible(self) -> str | None:
        """The name of a figure that cannot be, or None; nobody accepts more than was drafted."""
        fractions = ("rate", *(["per_position"] if self.per_position else []))
        for name in fractions:
            value = getattr(self, name)
            told = value if isinstance(value, tuple) else () if value is None else (value,)
            if not all(0 <= share <= 1 + _ROUNDING for share in told):
                return name
        for name in ("drafts", "drafted_tokens", "accepted_tokens"):
            if (getattr(self, name) or 0) < 0:
                return name
        if None not in (self.accepted_tokens, self.drafted_tokens) and self.accepted_tokens > self.drafted_tokens:  # type: ignore[operator]
            return "accepted_tokens"
        if self.mean_length is None or self.state == "legacy":
            return None
        longest = 1 + len(self.per_position) if self.per_position else float("inf")
        return None if 1 - _ROUNDING <= self.mean_length <= longest + _ROUNDING else "mean_length"

    @classmethod
    def from_metrics(cls, metrics: SpecMetrics, *, source: str = "metrics") -> Acceptance:
        """Make it from counters or log lines that `SpecMetrics` read."""
        return cls(
            rate=metrics.acceptance_rate,
            mean_length=metrics.mean_acceptance_length,
            per_position=metrics.per_position,
            state=metrics.state,
            drafts=metrics.drafts,
            drafted_tokens=metrics.drafted_tokens,
            accepted_tokens=metrics.accepted_tokens,
            source=source,
        )

    @classmethod
    def from_counts(
        cls,
        *,
        drafts: float,
        drafted_tokens: float,
        accepted_tokens: float,
        accepted_per_position: Iterable[float] | None = None,
        source: str | None = None,
    ) -> Acceptance:
        """Make it from counts; nothing drafted is `idle`, not zero acceptance."""
        active = drafts > 0 and drafted_tokens > 0
        return cls(
            rate=accepted_tokens / drafted_tokens if active else None,
            mean_length=1 + accepted_tokens / drafts if active else None,
            per_position=tuple(count / drafts for count in accepted_per_position)
            if active and accepted_per_position is not None
            else None,
            state="active" if active else "idle",
            drafts=drafts,
            drafted_tokens=drafted_tokens,
            accepted_tokens=accepted_tokens,
            source=source,
        )


@frozen(kw_only=True)
class RequestRecord:
    """One request, as the load generator saw it. Raw: nothing is derived from other requests.

    Attributes:
        concurrency: the run it belongs to.
        index: order of sending within that run, from 0.
        prompt_id: the same prompt has the same id in every run and both arms.
        category: kind of text (`code`, `chat`, …) for verdicts by category.
        start_s: seconds from the start of the run to sending.
        ttft_ms: sending to the first token.
        tpot_ms: (E2E − TTFT) ÷ (output tokens − 1); None for a single token.
        e2e_ms: sending to the last token.
        input_tokens, output_tokens: as the server counted them (`usage`).
        chunks: streamed pieces; fewer than tokens when speculation delivers several at once.
        chunk_times_ms: arrival of each piece since sending.
        ok: it completed with an answer.
        error: what went wrong, without secrets.
        finish_reason: `stop`, `length`, ….
        cached_tokens: prompt tokens that came from the prefix cache.
        token_ids: output token ids, where the server returns them.
        text_sha256: digest of the output text, to compare arms without keeping the text.
        acceptance: this request's own acceptance, where the server reports it.
    """

    concurrency: int
    index: int
    prompt_id: str | None = None
    category: str | None = None
    start_s: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    chunks: int | None = None
    chunk_times_ms: tuple[float, ...] | None = None
    ok: bool = True
    error: str | None = None
    finish_reason: str | None = None
    cached_tokens: int | None = None
    token_ids: tuple[int, ...] | None = None
    text_sha256: str | None = None
    acceptance: Acceptance | None = None


@frozen(kw_only=True)
class Run:
    """All requests at one concurrency, summed up. The first nine names are the `jetson-llm-benchmark` contract.

    Attributes:
        concurrency: requests in flight.
        ttft_ms_p50, ttft_ms_p99: time to the first token.
        itl_ms_p50, itl_ms_p99: gap between streamed pieces. With speculation a piece holds several tokens: never judge
            on it.
        tpot_ms_p50: (E2E − TTFT) ÷ (output tokens − 1), median over requests.
        throughput_tok_s: output tokens of completed requests ÷ duration.
        e2e_latency_ms_p50: sending to the last token.
        tpot_ms_p99, e2e_latency_ms_p99, and the four at p90: as above.
        duration_s: first sending to last token.
        completed, failed: requests.
        total_input_tokens, total_output_tokens: over completed requests.
        acceptance: during this run.
        preemptions: requests the scheduler threw out for lack of KV cache during this run (vLLM's counter).
        prefix_cache_queries, prefix_cache_hits: prompt tokens looked up in and found in the prefix cache.
        power_w_mean: mean power of the board during this run, where its rails can be read.
        energy_j_per_token: that power × duration ÷ output tokens.
    """

    concurrency: int
    ttft_ms_p50: float | None = None
    ttft_ms_p99: float | None = None
    itl_ms_p50: float | None = None
    itl_ms_p99: float | None = None
    tpot_ms_p50: float | None = None
    throughput_tok_s: float | None = None
    e2e_latency_ms_p50: float | None = None
    tpot_ms_p99: float | None = None
    e2e_latency_ms_p99: float | None = None
    duration_s: float | None = None
    completed: int | None = None
    failed: int | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    acceptance: Acceptance | None = None
    preemptions: float | None = None
    prefix_cache_queries: float | None = None
    prefix_cache_hits: float | None = None
    ttft_ms_p90: float | None = None
    itl_ms_p90: float | None = None
    tpot_ms_p90: float | None = None
    e2e_latency_ms_p90: float | None = None
    power_w_mean: float | None = None
    energy_j_per_token: float | None = None

    @property
    def input_tokens_per_request(self) -> float | None:
        """Mean prompt length in tokens."""
        return _per(self.total_input_tokens, self.completed)

    @property
    def output_tokens_per_request(self) -> float | None:
        """Mean answer length in tokens."""
        return _per(self.total_output_tokens, self.completed)

    @property
    def prefix_hit_rate(self) -> float | None:
        """Fraction of prompt tokens found in the prefix cache."""
        return _per(self.prefix_cache_hits, self.prefix_cache_queries)

    @property
    def measured(self) -> bool:
        """Whether it holds any figure of speed."""
        return any(value is not None for value in (self.throughput_tok_s, self.tpot_ms_p50, self.ttft_ms_p50))


@frozen(kw_only=True)
class BenchConfig:
    """What was asked of the server. The first three names are the `jetson-llm-benchmark` contract.

    Attributes:
        input_len, output_len: tokens per request as asked for; None where prompts decide.
        num_prompts: requests per run.
        dataset: name of the prompt set; `random` for random tokens.
        prompts_sha256: digest of the prompts, to prove that both arms used the same.
        temperature, seed, ignore_eos: sampling.
        warmup_requests: requests sent before measuring.
        request_rate: requests a second at most; None: as fast as answers come, or not known.
        endpoint: `chat` or `completions`.
    """

    input_len: int | None = None
    output_len: int | None = None
    num_prompts: int | None = None
    dataset: str | None = None
    prompts_sha256: str | None = None
    temperature: float | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    warmup_requests: int | None = None
    request_rate: float | None = None
    endpoint: str | None = None


@frozen(kw_only=True)
class Conditions:
    """Under which conditions the board and the server were during the measurement.

    Attributes:
        power_mode, power_mode_is_max: `nvpmodel`, name without the id.
        clocks_locked: `jetson_clocks` is on.
        throttled: the board lowered its clocks for heat, current or voltage at any time while measuring.
        temperature_c_max: hottest sensor.
        swap_growth_bytes: swap used at the end − at the start.
        memory_available_min_bytes: lowest MemAvailable seen.
        vllm_version: of the server.
        model_runner: `v1` or `v2`.
        speculative_config: in force at the server, as it was given; None when not known.
        speculation: whether the server speculates; None when not known.
        synthetic_acceptance: the server pretends acceptance (`rejection_sample_method: synthetic`).
        max_num_seqs: capacity of the server.
        prefix_caching: whether it is on.
        foreign_requests: the server answered requests of others meanwhile.
        started_at: ISO 8601, UTC.
        gpu_mhz_min, gpu_mhz_max: lowest and highest clock of the GPU seen while measuring.
        power_rail: whose power `power_w_mean` of the runs is, such as `VDD_IN`.
        gpu_processes: names of other programs that used the GPU; None where nobody could look.
        sources: field → where it was read (`jtop`, `tegrastats`, a file, `/metrics`).
    """

    power_mode: str | None = None
    power_mode_is_max: bool | None = None
    clocks_locked: bool | None = None
    throttled: bool | None = None
    temperature_c_max: float | None = None
    swap_growth_bytes: int | None = None
    memory_available_min_bytes: int | None = None
    vllm_version: str | None = None
    model_runner: str | None = None
    speculative_config: Mapping[str, Any] | None = None
    speculation: bool | None = None
    synthetic_acceptance: bool | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    foreign_requests: bool | None = None
    started_at: str | None = None
    gpu_mhz_min: float | None = None
    gpu_mhz_max: float | None = None
    power_rail: str | None = None
    gpu_processes: tuple[str, ...] | None = None
    sources: Mapping[str, str] = field(factory=dict)


def _by_concurrency(runs: Iterable[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.concurrency))


@frozen(kw_only=True)
class BenchReport:
    """One arm of a comparison: one server, measured at one or several concurrencies.

    The names down to `warnings` are the `jetson-llm-benchmark` contract.

    Attributes:
        skill: who made the report.
        runtime: `vllm`, or the engine's name.
        model: id as served.
        sku, generation, product_line, variant, l4t: the board, in the words of NVIDIA's tools.
        benchmark_mode: `container` or `native`.
        container: image of the server.
        config: what was asked.
        runs: one for each concurrency, ascending.
        warnings: texts of the tool that measured.
        acceptance: over the whole measurement.
        conditions: of board and server.
        requests: raw records, in order of runs and sending.
        findings: what the reader noticed.
        source_format: which format it was read from; `jetson_specdec` for our own.
        schema_version: of our own format.
    """

    skill: str | None = "jetson-specdec"
    runtime: str | None = None
    model: str | None = None
    sku: str | None = None
    generation: str | None = None
    product_line: str | None = None
    variant: str | None = None
    l4t: str | None = None
    benchmark_mode: str | None = None
    container: str | None = None
    config: BenchConfig = field(factory=BenchConfig)
    runs: tuple[Run, ...] = field(default=(), converter=_by_concurrency)
    warnings: tuple[str, ...] = ()
    acceptance: Acceptance | None = None
    conditions: Conditions = field(factory=Conditions)
    requests: tuple[RequestRecord, ...] = ()
    findings: tuple[Finding, ...] = ()
    source_format: str = "jetson_specdec"
    schema_version: int = SCHEMA_VERSION

    @property
    def simulated(self) -> bool:
        """Whether a fake server was measured: such figures are for trying this package out and prove nothing."""
        return self.runtime == SIMULATED_RUNTIME

    def run_at(self, concurrency: int) -> Run | None:
        """Return the run at a concurrency, or None."""
        return next((run for run in self.runs if run.concurrency == concurrency), None)

    def requests_at(self, concurrency: int) -> tuple[RequestRecord, ...]:
        """Return the raw records of the run at a concurrency, in order of sending."""
        return tuple(record for record in self.requests if record.concurrency == concurrency)

    def acceptance_at(self, concurrency: int) -> Acceptance | None:
        """Return the acceptance of one run, else of the whole measurement."""
        run = self.run_at(concurrency)
        return run.acceptance if run is not None and run.acceptance is not None else self.acceptance

    def with_findings(self, *findings: Finding) -> BenchReport:
        """Return a copy with more findings."""
        return evolve(self, findings=(*self.findings, *findings))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `bench --json`."""
        from jetson_specdec.measurements.serial import to_json

        return to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> BenchReport:
        """Read our own format, strictly.

        Args:
            data: the object, or its text.

        Raises:
            ReportError: not our format, an unknown key, or a value of the wrong type.
        """
        from jetson_specdec.measurements.serial import from_json

        return from_json(data)


def _per(amount: float | None, count: float | None) -> float | None:
    return amount / count if amount is not None and count else None
