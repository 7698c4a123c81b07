# SPDX-License-Identifier: Apache-2.0
"""What `vllm bench serve` prints, one result block or several.

Lines come and go between releases (failed requests since 0.12, peaks since 0.11, the speculative block since 0.14): a
line that is not there is unknown. Times are milliseconds, rates of acceptance percentages. The peak throughput counts
streamed pieces and is not read.
"""

from __future__ import annotations

import re
from typing import Any, Final

from attrs import evolve

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import Acceptance, BenchConfig, BenchReport, Conditions, Run
from jetson_specdec.measurements.readers.base import count, endpoint_kind, number, positive

__all__ = ["VllmBenchStdoutReader"]

_HEADER: Final = "Serving Benchmark Result"
_SPECULATIVE: Final = "Speculative Decoding"
_NUMBER: Final = r"(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d*)?(?:e[+-]?\d+)?|nan|inf"
"""As Python prints them; a comma for decimals would be read wrongly, so such a figure is missing."""
_TIME: Final = r"^\s*\[?\d{4}-\d\d-\d\d[T ][\d:.,]{1,20}(?:Z|[+-]\d\d:?\d\d)?\]?\s(?:(?:stdout|stderr)\s[FP]\s)?"
_ARGUMENTS: Final = "Namespace("
_LONGEST_LINE: Final = 20_000
_LATENCIES: Final = (
    ("ttft_ms_p50", "TTFT", 50),
    ("ttft_ms_p99", "TTFT", 99),
    ("itl_ms_p50", "ITL", 50),
    ("itl_ms_p99", "ITL", 99),
    ("tpot_ms_p50", "TPOT", 50),
    ("tpot_ms_p99", "TPOT", 99),
    ("e2e_latency_ms_p50", "E2EL", 50),
    ("e2e_latency_ms_p99", "E2EL", 99),
)


class VllmBenchStdoutReader:
    """Reads the text output of vLLM's own benchmark."""

    name = "vllm_bench_stdout"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether it holds a result block, or at least the speculative part of one."""
        return data is None and (_HEADER in text or ("Acceptance length:" in text and _SPECULATIVE in text))

    def read(self, text: str, data: Any, where: str) -> BenchReport:
        """Return the report; what stands before the first block tells the arguments, where it was kept.

        Raises:
            ReportError: no block, a block without its concurrency, or two with the same.
        """
        before, *blocks = text.split(_HEADER)
        if not blocks:
            raise ReportError("JSE605", where=where, format=self.name)
        runs: list[Run] = []
        all_figures = [_figures(block) for block in blocks]
        for figures in all_figures:
            concurrency = count(figures.get("maximum request concurrency"))
            if not concurrency and len(blocks) == 1:
                concurrency = _whole_argument(before, "max_concurrency")
            if not concurrency:
                raise ReportError("JSE613", where=where)
            if any(run.concurrency == concurrency for run in runs):
                raise ReportError("JSE606", where=where, concurrency=concurrency)
            runs.append(_run(figures, concurrency))
        acceptances = [run.acceptance for run in runs if run.acceptance is not None]
        dead = [run.concurrency for run in runs if not run.measured]
        return BenchReport(
            skill=None,
            runtime="vllm",
            model=_text_argument(before, "model"),
            # The arguments of the first run are not those of the others.
            config=evolve(
                _config(before) if len(blocks) == 1 else evolve(_config(before), num_prompts=None),
                request_rate=_request_rate(all_figures),
            ),
            runs=tuple(runs),
            acceptance=acceptances[0] if len(acceptances) == len(runs) == 1 else None,
            conditions=Conditions(
                speculation=True if any(acceptance.state == "active" for acceptance in acceptances) else None
            ),
            findings=(Finding.of("JSD602", concurrencies=dead),) if dead else (),
            source_format=self.name,
        )


def _figures(block: str) -> dict[str, float | None]:
    """Return label → number; labels in lower case, the first of a label counts; None where it cannot be read."""
    from jetson_specdec.logs.lines import read_line

    figures: dict[str, float | None] = {}
    for raw in block.splitlines():
        # A time in front looks like the head of a journal's line once a label with a colon follows.
        line = read_line(re.sub(_TIME, "", raw[:_LONGEST_LINE])).text
        before, colon, value = line.rpartition(":")
        if not colon or not value[:1].isspace():
            continue
        # What stands before the label: names of processes and containers, marks of quotes and tables.
        label = " ".join(re.split(r"[:|>#]| - ", before)[-1].lower().split()).lstrip("0123456789.,- ")
        if label:
            read = re.fullmatch(_NUMBER, value.strip())
            figures.setdefault(label, number(float(read[0].replace(",", ""))) if read is not None else None)
    return figures


def _request_rate(blocks: list[dict[str, float | None]]) -> float | None:
    rates = [rate for figures in blocks if (rate := positive(figures.get("request rate configured (rps)")))]
    return min(rates, default=None)


def _run(figures: dict[str, float | None], concurrency: int) -> Run:
    latencies: dict[str, Any] = {}
    for field, short, percentile in _LATENCIES:
        labels = [f"p{percentile} {short} (ms)"] + ([f"median {short} (ms)"] if percentile == 50 else [])
        latencies[field] = next(
            (positive(figures[label.lower()]) for label in labels if label.lower() in figures), None
        )
    return Run(
        concurrency=concurrency,
        **latencies,
        throughput_tok_s=positive(figures.get("output token throughput (tok/s)")),
        duration_s=positive(figures.get("benchmark duration (s)")),
        completed=count(figures.get("successful requests")),
        failed=count(figures.get("failed requests")),
        total_input_tokens=count(figures.get("total input tokens")) or None,
        total_output_tokens=count(figures.get("total generated tokens")) or None,
        acceptance=_acceptance(figures),
    )


def _acceptance(figures: dict[str, float | None]) -> Acceptance | None:
    drafts, drafted = figures.get("drafts"), figures.get("draft tokens")
    accepted = figures.get("accepted tokens")
    rates: list[float] = []
    while (percent := figures.get(f"position {len(rates)}")) is not None:
        rates.append(percent / 100)
    if drafts is not None and drafted is not None and accepted is not None:
        return Acceptance.from_counts(
            drafts=drafts,
            drafted_tokens=drafted,
            accepted_tokens=accepted,
            accepted_per_position=[rate * drafts for rate in rates] if rates else None,
            source="bench",
        )
    percent, length = figures.get("acceptance rate (%)"), figures.get("acceptance length")
    if percent is None and length is None:
        return None
    return Acceptance(
        rate=None if percent is None else percent / 100,
        mean_length=length,
        per_position=tuple(rates) or None,
        state="active",
        source="bench",
    )


def _arguments(before: str) -> str:
    """Return the line with which the program repeats its arguments, from there on."""
    start = before.find(_ARGUMENTS)
    return "" if start < 0 else before[start : start + _LONGEST_LINE].split("\n", 1)[0]


def _text_argument(before: str, name: str) -> str | None:
    found = re.search(rf"\b{name}='([^']*)'", _arguments(before))
    return found[1] if found else None


def _number_argument(before: str, name: str) -> float | None:
    found = re.search(rf"\b{name}=(\d+(?:\.\d*)?)(?=[,)\s]|$)", _arguments(before))
    return number(float(found[1])) if found else None


def _whole_argument(before: str, name: str) -> int | None:
    return count(_number_argument(before, name))


def _config(before: str) -> BenchConfig:
    dataset = _text_argument(before, "dataset_name")
    random = dataset == "random"
    eos = re.search(r"\bignore_eos=(True|False)", _arguments(before))
    return BenchConfig(
        input_len=_whole_argument(before, "random_input_len") if random else None,
        output_len=_whole_argument(before, "random_output_len") if random else None,
        num_prompts=_whole_argument(before, "num_prompts"),
        dataset=dataset,
        temperature=_number_argument(before, "temperature"),
        seed=_whole_argument(before, "seed"),
        # The random data set always forces it (vLLM 0.32, benchmarks/serve.py).
        ignore_eos=True if random else (eos[1] == "True" if eos else None),
        warmup_requests=_whole_argument(before, "num_warmups"),
        endpoint=endpoint_kind(_text_argument(before, "endpoint") or _text_argument(before, "backend")),
    )
