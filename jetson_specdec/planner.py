# SPDX-License-Identifier: Apache-2.0
"""From a board and a recipe to a plan: `decide` (pure), and the `Planner` that reads what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import PluginError, RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host, LocalHost, OverlayHost
from jetson_specdec.planning.decide import decide
from jetson_specdec.planning.gather import Wishes, choose_command, gather
from jetson_specdec.planning.plan import Plan
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.recipe.core import Recipe
from jetson_specdec.strategies import Strategy, default_strategies, ordered

if TYPE_CHECKING:
    from jetson_specdec.device.core import Detector, Device
    from jetson_specdec.gate import Gate, Verdict
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.recipe.handover import MemTune
    from jetson_specdec.strategies import Situation

__all__ = ["Plan", "Planner", "decide"]


class Planner:
    """Plans speculation for recipes, and judges what came of it.

    Args:
        detectors: how the board is recognised; the built-in ones and registered plug-ins by default.
        strategies: what may be proposed; the built-in ones and registered plug-ins by default.
        gate: judges benchmarks; one with this policy by default.
        policy: the thresholds in force.
        catalog: heads and drafts; the packaged one by default.
        host: the machine that is read; this one by default.

    Example:
        ```python
        from jetson_specdec import Planner

        plan = Planner().plan("vllm serve Qwen/Qwen3-8B", device="thor-t5000")
        print(plan.outcome, plan.speculative_config)
        ```
    """

    def __init__(
        self,
        detectors: Sequence[Detector] | None = None,
        strategies: Sequence[Strategy] | None = None,
        gate: Gate | None = None,
        policy: Policy = DEFAULT_POLICY,
        catalog: Catalog | None = None,
        host: Host | None = None,
    ) -> None:
        self.policy = policy
        self._detectors = detectors
        self._gate = gate
        self._catalog = catalog
        self._host = host
        self._skipped: tuple[Finding, ...] = ()
        if strategies is None:
            from jetson_specdec.extensions import STRATEGIES, plugins

            others, self._skipped = plugins(STRATEGIES, ("name", "priority", "propose"))
            strategies = (*default_strategies(), *others)
        self.strategies = ordered(strategies)

    def plan(
        self,
        recipe: str | Path | Recipe,
        *,
        device: Device | str | None = None,
        l4t: str | None = None,
        command: int | None = None,
        target: str | None = None,
        head: str | None = None,
        draft: str | None = None,
        concurrency: int = 1,
        vllm_version: str | None = None,
        baseline: BenchReport | str | Path | None = None,
        mem_tune: MemTune | str | Path | None = None,
    ) -> Plan:
        """Plan for one serve command.

        Args:
            recipe: a path, the text itself (a string with white space that is no existing file), or a parsed recipe.
            device: a `Device`, a module name such as `thor-t5000`, or None to look at the host.
            l4t: release for a named module, such as `38.4.0`.
            command: which serve command, from 0, where the text holds several.
            target: model that is served, where the recipe does not tell.
            head: EAGLE-3 head to use instead of choosing one.
            draft: draft model to use instead of choosing a strategy.
            concurrency: requests at once the owner cares about.
            vllm_version: release, where the recipe does not tell.
            baseline: a benchmark of the recipe as it is (a report, or a file of a known format).
            mem_tune: the JSON of `jetson-inference-mem-tune` (parsed, or its file).

        Raises:
            InputError: what was handed over cannot be used; the subclass says which part.
        """
        situation = self.situation(
            recipe,
            device=device,
            l4t=l4t,
            command=command,
            target=target,
            head=head,
            draft=draft,
            concurrency=concurrency,
            vllm_version=vllm_version,
            baseline=baseline,
            mem_tune=mem_tune,
        )
        return self.decide(situation)

    def situation(
        self,
        recipe: str | Path | Recipe,
        *,
        device: Device | str | None = None,
        l4t: str | None = None,
        command: int | None = None,
        target: str | None = None,
        head: str | None = None,
        draft: str | None = None,
        concurrency: int = 1,
        vllm_version: str | None = None,
        baseline: BenchReport | str | Path | None = None,
        mem_tune: MemTune | str | Path | None = None,
    ) -> Situation:
        """Read everything a plan is decided on, and decide nothing; hand it to `decide`.

        Args:
            recipe: as for `plan`, like everything else.
            device: the board.
            l4t: its release.
            command: which serve command.
            target: model that is served.
            head: EAGLE-3 head to use.
            draft: draft model to use.
            concurrency: requests at once.
            vllm_version: release.
            baseline: a benchmark of the recipe as it is.
            mem_tune: the JSON of `jetson-inference-mem-tune`.

        Raises:
            InputError: what was handed over cannot be used; the subclass says which part.
        """
        wishes = Wishes(
            target=target,
            head=head,
            draft=draft,
            concurrency=concurrency,
            vllm_version=vllm_version,
            baseline=_baseline(baseline),
            mem_tune=_mem_tune(mem_tune),
        )
        host = self._open_host()
        parsed = recipe if isinstance(recipe, Recipe) else _load(recipe)
        if parsed.form == "mem_tune":
            parsed, wishes = _from_mem_tune(parsed, wishes)
        chosen = choose_command(parsed, command)
        board = self._device(device, l4t)
        if not host.live and parsed.path is not None:
            # The recipe lies on this machine although the board is a recording: look for its neighbours here.
            parsed = evolve(parsed, path=str(Path(parsed.path).absolute()))
            host = OverlayHost(host, str(Path(parsed.path or "").parent))
        return gather(parsed, chosen, device=board, host=host, catalog=self.catalog, wishes=wishes, policy=self.policy)

    def decide(self, situation: Situation) -> Plan:
        """Decide on a situation with this planner's strategies; reads nothing.

        Raises:
            PluginError: a strategy returns neither a proposal nor a refusal.
        """
        plan = decide(situation, strategies=[_Checked(strategy) for strategy in self.strategies])
        return evolve(plan, findings=(*plan.findings, *self._skipped)) if self._skipped else plan

    def judge(self, before: Any, after: Any) -> Verdict:
        """Judge a benchmark (or several) with speculation against one without; see `Gate.judge`."""
        if self._gate is None:
            from jetson_specdec.gate import Gate

            self._gate = Gate(policy=self.policy)
        return self._gate.judge(before, after)

    @property
    def catalog(self) -> Catalog:
        """The catalogue of heads and drafts in use."""
        if self._catalog is None:
            from jetson_specdec.models.catalog import Catalog

            self._catalog = Catalog.default()
        return self._catalog

    def _open_host(self) -> Host:
        if self._host is None:
            self._host = LocalHost()
        return self._host

    def _device(self, device: Device | str | None, l4t: str | None) -> Device:
        from jetson_specdec.device import Device as DeviceValue
        from jetson_specdec.device import detect

        if isinstance(device, DeviceValue):
            return device
        return detect(self._open_host(), detectors=self._detectors, named=device, l4t=l4t)


class _Checked:
    """A strategy whose answer is checked, so that a broken plug-in fails by name and not somewhere later."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self.name = strategy.name
        self.priority = strategy.priority

    def propose(self, situation: Any) -> Any:
        from jetson_specdec.extensions import STRATEGIES
        from jetson_specdec.strategies import Proposal, Refusal

        try:
            answer = self._strategy.propose(situation)
        except Exception as error:
            if type(self._strategy).__module__.startswith("jetson_specdec."):
                raise  # a fault of our own is not to be papered over
            reason = f"{type(error).__name__}: {error}"
            broken = Finding.of("JSD590", name=self.name, group=STRATEGIES, reason=reason)
            return Refusal(strategy=self.name, reason=broken)
        if not isinstance(answer, (Proposal, Refusal)):
            raise PluginError("JSE508", name=self.name, got=type(answer).__name__)
        return answer


def _load(recipe: str | Path) -> Recipe:
    from jetson_specdec.recipe.load import load_recipe

    if isinstance(recipe, str) and _is_text(recipe):
        return load_recipe("-", text=recipe)
    return load_recipe(recipe)


def _is_text(recipe: str) -> bool:
    """A string is the text itself when it could not be the name of a file, or names none and has white space."""
    if "\n" in recipe or len(recipe) > 4096 or "\0" in recipe or not recipe:
        return True
    return any(char.isspace() for char in recipe) and not Path(recipe).exists()


def _from_mem_tune(recipe: Recipe, wishes: Wishes) -> tuple[Recipe, Wishes]:
    """Turn a recommendation of jetson-inference-mem-tune into the serve command it stands for.

    Raises:
        RecipeSyntaxError: the model is not named, and the recommendation does not tell it.
    """
    import shlex

    from jetson_specdec.recipe.handover import read_mem_tune
    from jetson_specdec.recipe.shell import parse_shell

    advice = read_mem_tune(recipe.text, where=recipe.path or "the recipe")
    if wishes.target is None or recipe.commands[0].serve_form == "other":
        raise RecipeSyntaxError("JSE513", where=recipe.path or "the recipe")
    text = shlex.join(["vllm", "serve", wishes.target, *advice.launch_flags]) + "\n"
    return parse_shell(text), evolve(wishes, mem_tune=advice)


def _baseline(baseline: BenchReport | str | Path | None) -> BenchReport | None:
    if baseline is None or not isinstance(baseline, (str, Path)):
        return baseline
    from jetson_specdec.measurements import read_report

    return read_report(Path(baseline))


def _mem_tune(advice: MemTune | str | Path | None) -> MemTune | None:
    if advice is None or not isinstance(advice, (str, Path)):
        return advice
    from jetson_specdec.errors import OptionError
    from jetson_specdec.files import read_text
    from jetson_specdec.recipe.handover import read_mem_tune

    return read_mem_tune(read_text(advice, OptionError, errors="replace"), where=str(advice))
