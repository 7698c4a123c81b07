# SPDX-License-Identifier: Apache-2.0
"""The values of a tune: what was asked, what each block measured, what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import field

from jetson_specdec.findings import Finding, Step
from jetson_specdec.tune.search import Probe
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.disclosure import Disclosure
    from jetson_specdec.gate import Verdict
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Occupant
    from jetson_specdec.tune.downtime import Downtime

__all__ = ["SCHEMA_VERSION", "ArmName", "BlockRecord", "Leave", "Offer", "Role", "TuneResult", "TuneSettings"]

SCHEMA_VERSION = 1
ArmName = Literal["off", "on"]
Role = Literal["baseline", "search", "pair"]
Leave = Literal["original", "result", "stopped"]
EXIT_NO_START = 15
EXIT_NONE, EXIT_REFUSED = 20, 21


def _with_one(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({1, *values}))


@frozen(kw_only=True)
class TuneSettings:
    """What was asked for; kept in the evidence, so that a tune that is resumed goes on alike.

    Attributes:
        concurrency: requests in flight, one run each; 1 is always among them.
        num_prompts: requests a run; None: what the benchmark takes by itself.
        output_len: most tokens of an answer.
        prompts: prompt file, `random`, or None for the own set.
        api: `chat` or `completions`.
        ignore_eos: let answers run to their full length.
        seed: of the order of prompts.
        max_time_s: no new measurement starts when it would end after this many seconds; None: no limit.
        pin_kv: give both arms the same KV pool.
        leave: what runs afterwards: `original` (if it ran before), `result` or `stopped`.
        replace: whether a server that is not this recipe's may be taken down as well.
        allow_sudo: whether `sudo` in the recipe may run.
        start_timeout_s: how long a start may take.
    """

    concurrency: tuple[int, ...] = field(default=(1, 8), converter=_with_one)
    num_prompts: int | None = None
    output_len: int = 128
    prompts: str | None = None
    api: Literal["chat", "completions"] = "chat"
    ignore_eos: bool = False
    seed: int = 0
    max_time_s: float | None = None
    pin_kv: bool = False
    leave: Leave = "original"
    replace: bool = False
    allow_sudo: bool = False
    start_timeout_s: float = 1800.0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {**attrs.asdict(self), "concurrency": list(self.concurrency)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TuneSettings:
        """Read them back."""
        return cls(**{**data, "concurrency": tuple(data["concurrency"])})


@frozen(kw_only=True)
class BlockRecord:
    """One start of one arm and what was measured on it.

    Attributes:
        index: order of measuring, from 1.
        role: `baseline`, `search` (finding k) or `pair` (proving).
        arm: `off` or `on`.
        variant: 0, or 1 with a batch schedule.
        pair: which pair, from 1; None for a launch of the search.
        k: drafted tokens; None without speculation.
        report: name of its report in the evidence.
        tpot_s: mean seconds an output token took at concurrency 1.
        probe: what it says about k; None without speculation.
        start_s, bench_s, stop_s: how long it took.
        tok_s: throughput at concurrency 1.
    """

    index: int
    role: Role
    arm: ArmName
    variant: int = 0
    pair: int | None = None
    k: int | None = None
    report: str
    tpot_s: float | None = None
    probe: Probe | None = None
    start_s: float = 0.0
    bench_s: float = 0.0
    stop_s: float = 0.0
    tok_s: float | None = None

    @property
    def seconds(self) -> float:
        """How long all of it took."""
        return self.start_s + self.bench_s + self.stop_s

    @property
    def key(self) -> tuple[int, int | None, ArmName]:
        """What it is a measurement of."""
        return self.variant, self.pair, self.arm

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> BlockRecord:
        """Read it back."""
        values = dict(data)
        if values.get("probe") is not None:
            probe = dict(values["probe"])
            if probe.get("per_position") is not None:
                probe["per_position"] = tuple(probe["per_position"])
            values["probe"] = Probe(**probe)
        return cls(**values)


@frozen(kw_only=True)
class Offer:
    """What a person agrees to before anything is touched.

    Attributes:
        plan: what would be proved.
        disclosure: downloads, whose code runs, open ports.
        downtime: how long the server will be down.
        occupants: servers that are taken down for it.
        evidence: folder of the evidence.
        findings: what to think about first.
    """

    plan: Plan
    disclosure: Disclosure | None
    downtime: Downtime
    occupants: tuple[Occupant, ...]
    evidence: str
    findings: tuple[Finding, ...] = ()


@frozen(kw_only=True)
class TuneResult:
    """What came out.

    Attributes:
        outcome: the verdict's outcome, or `not_started` (a server could not be started), `none` or `refuse` (the plan
            has nothing to prove), `interrupted`.
        reason: why it ended: `settled`, `pairs`, `time`, `spoilt`, `start`, `plan`, `loses`.
        verdict: over all usable pairs; None where none was measured.
        k: drafted tokens that were compared, or None.
        recipe: path of the recipe to use from now on.
        written: path of a new recipe, or None where the old one is the one to use.
        evidence: folder of the evidence, or None.
        speculative_config: what the result speculates with; None without.
        launches: starts of a server, those that failed included.
        search_launches: starts with speculation to find k.
        pairs: usable pairs.
        downtime_s: how long the owner's server was down.
        findings: why, and what was noticed.
        next_steps: what to do now.
    """

    outcome: str
    reason: str
    verdict: Verdict | None = None
    k: int | None = None
    recipe: str
    written: str | None = None
    evidence: str | None = None
    speculative_config: Mapping[str, Any] | None = None
    launches: int = 0
    search_launches: int = 0
    pairs: int = 0
    downtime_s: float | None = None
    findings: tuple[Finding, ...] = ()
    next_steps: tuple[Step, ...] = ()

    @property
    def exit_code(self) -> int:
        """What `jetson-specdec tune` returns."""
        codes = {"not_started": EXIT_NO_START, "none": EXIT_NONE, "refuse": EXIT_REFUSED, "interrupted": 130}
        if self.outcome in codes:
            return codes[self.outcome]
        from jetson_specdec.gate import EXIT_CODES

        return EXIT_CODES[self.outcome]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `tune --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "outcome": self.outcome,
            "reason": self.reason,
            "verdict": None if self.verdict is None else self.verdict.to_json(),
            "k": self.k,
            "recipe": self.recipe,
            "written": self.written,
            "evidence": self.evidence,
            "speculative_config": None if self.speculative_config is None else dict(self.speculative_config),
            "launches": self.launches,
            "search_launches": self.search_launches,
            "pairs": self.pairs,
            "downtime_s": self.downtime_s,
            "findings": [finding.to_json() for finding in self.findings],
            "next_steps": [step.to_json() for step in self.next_steps],
        }


def mean_tpot_s(report: BenchReport, concurrency: int = 1) -> float | None:
    """Return mean seconds an output token took: decode time ÷ tokens over all requests, else the median TPOT.

    The mean is what a round costs times how many there were; a median of requests is neither.
    """
    seconds = tokens = 0.0
    for record in report.requests_at(concurrency):
        if record.ok and record.e2e_ms is not None and record.ttft_ms is not None and (record.output_tokens or 0) > 1:
            seconds += (record.e2e_ms - record.ttft_ms) / 1e3
            tokens += (record.output_tokens or 0) - 1
    if tokens and seconds > 0:
        return seconds / tokens
    run = report.run_at(concurrency)
    return run.tpot_ms_p50 / 1e3 if run is not None and run.tpot_ms_p50 else None


def probe_of(report: BenchReport, k: int, concurrency: int = 1) -> Probe | None:
    """Return what a report says about k; None where it shows no acceptance or no speed."""
    tpot, acceptance = mean_tpot_s(report, concurrency), report.acceptance_at(concurrency)
    if tpot is None or acceptance is None or acceptance.mean_length is None or acceptance.state not in (None, "active"):
        return None
    return Probe(
        k=k,
        tpot_s=tpot,
        tokens=min(max(acceptance.mean_length, 1.0), k + 1.0),
        per_position=acceptance.per_position,
        drafts=acceptance.drafts,
    )
