# SPDX-License-Identifier: Apache-2.0
"""The whole way on a laptop: plan a sample recipe, measure it without and with the plan, judge. All of it simulated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field

from jetson_specdec.errors import OptionError
from jetson_specdec.gate import Gate, Verdict
from jetson_specdec.measurements import BenchReport
from jetson_specdec.packaged import packaged_json, packaged_text
from jetson_specdec.testing.simulated import simulated
from jetson_specdec.testing.truth import Truth
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.loadgen.progress import Progress
    from jetson_specdec.planner import Plan

__all__ = ["Demo", "demo_recipe", "demo_truth", "run_demo"]

SCHEMA_VERSION: Final = 1
MAX_PAIRS: Final = 20


@frozen(kw_only=True)
class Demo:
    """What the demonstration showed; every figure is of a fake server.

    Attributes:
        plan: for the sample recipe.
        before: reports without speculation, one a pair.
        after: reports with the plan, in the same order.
        verdict: of the gate.
        seed: of the simulated spread and of the prompts' order.
        sources: figure of the fake server → where it comes from.
    """

    plan: Plan
    before: tuple[BenchReport, ...] = field(repr=False)
    after: tuple[BenchReport, ...] = field(repr=False)
    verdict: Verdict
    seed: int = 0
    sources: dict[str, str] = field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `demo --json`."""
        return {
            "schema_version": SCHEMA_VERSION,
            "simulated": True,
            "seed": self.seed,
            "sources": dict(self.sources),
            "plan": self.plan.to_json(),
            "before": [report.to_json() for report in self.before],
            "after": [report.to_json() for report in self.after],
            "verdict": self.verdict.to_json(),
        }

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema (2020-12) of the demonstration."""
        from jetson_specdec import schemas

        reports = {"type": "array", "items": {"$ref": "#/$defs/report"}, "minItems": 1}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "jetson-specdec demonstration (simulated)",
            "type": "object",
            "additionalProperties": False,
            "required": ["schema_version", "simulated", "seed", "sources", "plan", "before", "after", "verdict"],
            "properties": {
                "schema_version": {"const": SCHEMA_VERSION},
                "simulated": {"const": True},
                "seed": {"type": "integer"},
                "sources": {"type": "object", "additionalProperties": {"type": "string"}},
                "plan": {"$ref": "#/$defs/plan"},
                "before": reports,
                "after": reports,
                "verdict": {"$ref": "#/$defs/verdict"},
            },
            # Each is a document of its own: an id keeps its inner references inside it.
            "$defs": {
                name: {"$id": f"urn:jetson-specdec:{document}", **schemas.load(document)}
                for name, document in (("plan", "plan"), ("report", "bench-report"), ("verdict", "verdict"))
            },
        }


def demo_recipe() -> str:
    """Return the sample recipe, a shell text."""
    return packaged_text("testing", "data", "demo-recipe.sh")


def demo_truth() -> Truth:
    """Return what the simulated board of the demonstration is."""
    return Truth(**_facts()["truth"])


def run_demo(*, seed: int = 0, pairs: int = 3, progress: Callable[[Progress], None] | None = None) -> Demo:
    """Plan, measure and judge the sample; nothing is read from this machine, and the same seed gives the same answer.

    The server is a `FakeVllm` that is given the arguments of the recipe and of the plan, and time is virtual, so that
    minutes of a board take seconds.

    Args:
        seed: of the simulated spread and of the prompts' order.
        pairs: how often both arms are measured, 1 to 20.
        progress: called after each request; None: lines on stderr where it is a terminal.

    Raises:
        OptionError: `pairs` is out of range.
    """
    if not 1 <= pairs <= MAX_PAIRS:
        raise OptionError("JSE644", value=pairs, most=MAX_PAIRS)
    facts = _facts()
    plan, arguments = _plan(facts)
    chance = random.Random(f"jetson-specdec demo {seed}")
    before: list[BenchReport] = []
    after: list[BenchReport] = []
    for _ in range(pairs):
        for reports, words in ((before, arguments), (after, plan.serve_args)):
            truth = _one_day(Truth(**facts["truth"]), chance, facts["run_spread"])
            reports.append(_measure(words, truth, facts, seed=seed, progress=progress))
    return Demo(
        plan=plan,
        before=tuple(before),
        after=tuple(after),
        verdict=Gate().judge(before, after),
        seed=seed,
        sources=facts["sources"],
    )


def _plan(facts: dict[str, Any]) -> tuple[Plan, tuple[str, ...]]:
    """Plan the sample as if on an empty machine: plug-ins, caches and settings of this one play no part."""
    from jetson_specdec.host import RecordedHost
    from jetson_specdec.loadgen.served import served_by
    from jetson_specdec.planner import Planner
    from jetson_specdec.recipe.load import parse_recipe
    from jetson_specdec.strategies import default_strategies

    recipe = parse_recipe(demo_recipe(), path=None)
    with TemporaryDirectory() as nothing:
        host = RecordedHost(nothing)
        planner = Planner(strategies=default_strategies(), host=host)
        plan = planner.plan(recipe, device=facts["module"], l4t=facts["l4t"])
        return plan, served_by(recipe, host=host).serve_args


def _one_day(truth: Truth, chance: random.Random, spread: float) -> Truth:
    """Vary a truth as boards vary from start to start: everything by one factor, and other noise."""
    factor = math.exp(chance.gauss(0.0, spread))
    times = ("step_ms", "batch_ms", "draft_ms", "verify_ms", "prefill_ms_per_token")
    return evolve(truth, **{name: getattr(truth, name) * factor for name in times}, seed=chance.randrange(2**31))


def _measure(
    arguments: Sequence[str],
    truth: Truth,
    facts: dict[str, Any],
    *,
    seed: int,
    progress: Callable[[Progress], None] | None,
) -> BenchReport:
    from jetson_specdec.loadgen import Benchmark
    from jetson_specdec.measurements import Conditions
    from jetson_specdec.testing.fake_vllm import FakeVllm

    server = FakeVllm(arguments, truth=truth)
    settings = server.settings
    benchmark = Benchmark(
        "http://simulated",
        num_prompts=facts["num_prompts"],
        output_len=facts["output_len"],
        seed=seed,
        known=Conditions(
            max_num_seqs=settings.max_num_seqs,
            speculative_config=settings.speculative_config,
            sources={"max_num_seqs": "recipe", "speculative_config": "recipe"},
        ),
        sample_conditions=False,  # those of this machine mean nothing here
        progress=progress,
        connection=server.connection(),
    )
    return simulated(benchmark.run())


def _facts() -> dict[str, Any]:
    facts: dict[str, Any] = packaged_json("testing", "data", "demo.json")
    return facts
