# SPDX-License-Identifier: Apache-2.0
"""The loop of a tune: asks what is next, does it, writes it down, and puts everything back at the end."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import EndpointError
from jetson_specdec.findings import Finding, Step
from jetson_specdec.policy import Policy
from jetson_specdec.tune.arms import Arms
from jetson_specdec.tune.blocks import Tools, bench, cool_down, figures
from jetson_specdec.tune.core import BlockRecord, TuneResult, TuneSettings, probe_of
from jetson_specdec.tune.downtime import downtime
from jetson_specdec.tune.evidence import Evidence
from jetson_specdec.tune.following import NothingToProve, check_pair, look_at_baseline, make_schedule, pin
from jetson_specdec.tune.looks import judge_looking
from jetson_specdec.tune.schedule import Finish, Measure, Progress, TrySchedule, next_action, usable_pairs
from jetson_specdec.tune.starting import NotStarted, note_log, start

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict
    from jetson_specdec.server import Occupant, Server

__all__ = ["Session"]


class Session:
    """One tune in progress."""

    def __init__(
        self,
        *,
        evidence: Evidence,
        recipe: Path,
        digest: str,
        arms: Arms,
        settings: TuneSettings,
        policy: Policy,
        wishes: Mapping[str, Any],
        tools: Tools,
        tell: Callable[[str, Mapping[str, Any]], None],
        occupants: tuple[Occupant, ...],
    ) -> None:
        self.evidence, self.recipe, self.arms, self.settings = evidence, recipe, arms, settings
        self.policy, self.tools, self.tell = policy, tools, tell
        self.occupants = occupants
        self.progress = Progress(start_k=arms.config["num_speculative_tokens"], baseline_counts=not settings.pin_kv)
        self.schedule: dict[str, Any] | None = None
        self.judged_variant: int | None = None
        self.launches = 0
        self.proven = False
        self._failures = 0
        self.findings: list[Finding] = []
        self._fixed = {"recipe": str(recipe), "recipe_sha256": digest, "wishes": dict(wishes)}
        self._began: float | None = None
        self._before = 0.0
        self._first: Server | None = None
        self._server: Server | None = None
        self.memory: int | None = None
        self._judged: tuple[tuple[tuple[str, str], ...], Verdict] | None = None

    # --- where it stands ----------------------------------------------------------------------------------------------

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        from jetson_specdec.tune.evidence import progress_of

        self.progress = progress_of(state)
        self.arms = evolve(self.arms, config=state["config"], flags=state["flags"], both=state["both"])
        self.schedule = state["schedule"]
        self.launches = state["launches"]
        self.proven = state["proven"]
        self._before = state["elapsed_s"]

    def save(self, status: str, result: TuneResult | None = None) -> None:
        """Write down where it stands."""
        from jetson_specdec.server.state import start_ticks

        progress = self.progress
        self.evidence.save(
            {
                **self._fixed,
                "status": status,
                "pid": os.getpid(),
                "pid_started": start_ticks(os.getpid()),
                "settings": self.settings.to_json(),
                "policy": {rule["name"]: rule["value"] for rule in self.policy.rules()},
                "config": dict(self.arms.config),
                "flags": dict(self.arms.flags),
                "both": dict(self.arms.both),
                "schedule": self.schedule,
                "start_k": progress.start_k,
                "max_k": progress.max_k,
                "variant": progress.variant,
                "judged_variant": self.reported.variant,
                "schedule_tried": progress.schedule_tried,
                "spoilt": {str(variant): list(pairs) for variant, pairs in progress.spoilt.items()},
                "baseline_counts": progress.baseline_counts,
                "blocks": [block.to_json() for block in progress.blocks],
                "launches": self.launches,
                "proven": self.proven,
                "elapsed_s": self.elapsed,
                "result": result.to_json() if result is not None else None,
            }
        )

    @property
    def elapsed(self) -> float:
        """Seconds the server has been down."""
        return self._before + (self.tools.clock() - self._began if self._began is not None else 0.0)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self) -> TuneResult:
        """Measure until nothing is left; put everything back; return the result.

        Raises:
            OutputError: the evidence could not be written; everything is back.
        """
        from jetson_specdec.server.interrupts import close, once
        from jetson_specdec.tune.ending import finish, interrupted, not_started, nothing, put_back

        result: TuneResult | None = None
        again: tuple[Finding, ...] = ()
        resumable = False
        self._began = self.tools.clock()
        with once():
            try:
                self.save("running")
                self._opening()
                finished = self._loop()
                result = finish(self, finished)
            except NotStarted as error:
                result, resumable = not_started(self, error), error.resumable
            except NothingToProve as error:
                result = nothing(self, error)
            except KeyboardInterrupt:
                result = interrupted(self)
            finally:
                try:
                    close()
                finally:
                    # Whatever went wrong, also writing: first the board, then the report of it.
                    again = put_back(self, result)
            assert result is not None
            again = (*again, *self._changed_recipe())
            steps = result.next_steps
            if any(each.code == "JSD975" for each in again):
                steps = (Step.of("tune-restore", command="jetson-specdec tune --restore"), *steps)
            result = evolve(
                result,
                findings=(*result.findings, *again),
                next_steps=steps,
                downtime_s=self.elapsed,
                launches=self.launches,
            )
            status = "stopped" if result.reason == "time" or resumable else "done"
            self.save("interrupted" if result.outcome == "interrupted" else status, result)
        return result

    def say(self, kind: str, values: Mapping[str, Any]) -> None:
        """Tell what happens; nobody listening (a closed terminal) must not end a tune."""
        with contextlib.suppress(OSError, ValueError):
            self.tell(kind, values)

    def _changed_recipe(self) -> tuple[Finding, ...]:
        """Say so where the recipe's file is no longer what was measured; it is its owner's to change at any time."""
        try:
            same = hashlib.sha256(self.recipe.read_bytes()).hexdigest() == self._fixed["recipe_sha256"]
        except OSError:
            same = False
        return () if same else (Finding.of("JSD994", path=str(self.recipe)),)

    def _loop(self) -> Finish:
        while True:
            action = next_action(
                evolve(self.progress, elapsed_s=self.elapsed, verdict=self.verdict()),
                self.settings,
                policy=self.policy,
            )
            if isinstance(action, Finish):
                return action
            if isinstance(action, TrySchedule):
                make_schedule(self)
            else:
                self._measure(action)
            self.save("running")

    @property
    def reported(self) -> Progress:
        """What was measured, with the variant whose pairs count in the end."""
        return self.progress if self.judged_variant is None else evolve(self.progress, variant=self.judged_variant)

    def drop_schedule(self, cause: str | None) -> None:
        """Go on without the batch schedule, which cannot be measured."""
        self.findings.append(Finding.of("JSD959", cause=cause))
        self.forget_schedule()

    def forget_schedule(self) -> None:
        """Go on, or end, as if there had been none."""
        self.schedule = None
        self.progress = evolve(self.progress, variant=0)
        self._failures = 0

    def verdict(self, variant: int | None = None) -> Verdict | None:
        """Judge the usable pairs of a variant, by default of the present one."""
        progress = self.progress if variant is None else evolve(self.progress, variant=variant)
        pairs = usable_pairs(progress)
        if not pairs:
            return None
        names = tuple((off.report, on.report) for off, on in pairs.values())
        if self._judged is None or self._judged[0] != names:
            befores = [self.evidence.report(off) for off, _ in names]
            afters = [self.evidence.report(on) for _, on in names]
            self._judged = names, judge_looking(lambda gate: gate.judge(befores, afters), self.policy)
        return self._judged[1]

    # --- one block ----------------------------------------------------------------------------------------------------

    def _measure(self, action: Measure) -> None:
        began = self.tools.clock()
        number = len(self.progress.blocks) + 1
        label = "without speculation" if action.arm == "off" else f"k = {action.k}"
        self.say("tune-event-start", {"arm": label, "role": action.role})
        self.findings += cool_down(self.tools, self.policy, memory_before=self.memory)
        self._same_recipe()
        failure: EndpointError | None = None
        try:
            up = start(self, action)
            if up is None:
                return
            started, plan = up
            config = plan.speculative_config or {}
            k = config.get("num_speculative_tokens") if action.arm == "on" else None
            ready = self.tools.clock()
            self.say("tune-event-ready", {"arm": label, "seconds": ready - began})
            salt = "search" if action.role == "search" else f"v{action.variant}-p{action.pair}"
            assert self._server is not None
            report = bench(
                self.tools,
                self._server,
                started,
                plan,
                self.settings,
                concurrency=action.concurrency,
                salt=salt,
                device=plan.device,
            )
            done = self.tools.clock()
            name = f"{number:03d}-{action.arm}"
            page = self.tools.metrics(self._server)
            if page is not None:
                self.evidence.write(f"metrics/{name}.prom", page)
            self.evidence.write(f"reports/{name}.json", report.to_json())
            pin(self, action, page, started.log_path)
        except EndpointError as error:
            failure = error
        finally:
            log_path = str(self._server.log_path) if self._server is not None else None
            stopped = self._stop()
        if failure is not None:
            self._measured_badly(failure, action, label, log_path)
            return
        self._failures = 0
        block = BlockRecord(
            index=number,
            role=action.role,
            arm=action.arm,
            variant=action.variant,
            pair=action.pair,
            k=k,
            report=f"reports/{name}.json",
            probe=probe_of(report, k) if isinstance(k, int) else None,
            start_s=ready - began,
            bench_s=done - ready,
            stop_s=stopped,
            **figures(report),
        )
        note_log(self, started.log_path)
        self.progress = evolve(self.progress, blocks=(*self.progress.blocks, block))
        if block.tok_s is not None:
            self.say("tune-event-measured", {"arm": label, "tok_s": block.tok_s})
        if action.role == "baseline":
            look_at_baseline(self, report)
        check_pair(self, block)
        left = downtime(self.settings, done=self.progress.blocks, policy=self.policy)
        self.say("tune-event-left", {"minutes": left.high / 60})

    def _measured_badly(self, error: EndpointError, action: Measure, label: str, log_path: str | None) -> None:
        """Let the block be measured once more; the second time in a row ends it, with what the log says.

        Raises:
            NotStarted: it was the second time.
        """
        from jetson_specdec.logs import diagnose
        from jetson_specdec.server.running import read_log

        self._failures += 1
        found = Finding.of("JSD991", arm=label, reason=str(error))
        note_log(self, log_path)
        if self._failures < 2:
            self.findings.append(found)
            return
        said = diagnose(read_log(Path(log_path))) if log_path is not None else None
        told = () if said is None or said.cause == "none" else said.findings
        if action.variant and action.arm == "on":
            self.findings += [found, *told]
            self.drop_schedule(said.cause if said is not None else None)
            return
        raise NotStarted((found, *told), tuple(said.next_steps) if said is not None else ())

    def _same_recipe(self) -> None:
        """End it where the next start would be another recipe: services, units and config files run from their files.

        Raises:
            NotStarted: the file was changed.
        """
        if self.arms.situation.recipe.form != "shell" and (changed := self._changed_recipe()):
            raise NotStarted(changed)

    def serves(self, server: Server) -> None:
        """Note what is about to be started."""
        if self._first is None:
            self._first = server
        self._server = server

    @property
    def first(self) -> Server | None:
        """The first server that was started: it holds what was taken down."""
        return self._first

    @property
    def last_url(self) -> str | None:
        """Where the servers answered."""
        return None if self._first is None else self._first.root_url

    def end_server(self) -> None:
        """Stop what runs."""
        self._stop()

    def _stop(self) -> float:
        server = self._server
        if server is None:
            return 0.0
        began = self.tools.clock()
        stopped = server.stop()
        self._server = None  # only now: an interruption while stopping has to stop it again
        self.findings += stopped.findings
        return self.tools.clock() - began

    def _opening(self) -> None:
        """Write down what this is about, once."""
        from jetson_specdec import __version__
        from jetson_specdec.server.watchdog import read_memory

        self.memory = read_memory(self.tools.host).available_bytes if not self.occupants else None
        if self.progress.blocks:
            return
        plan = self.arms.plan
        self.evidence.write("plans/plan.json", plan.to_json())
        device = None if plan.device is None else plan.device.to_json()
        release = None if plan.release is None else plan.release.version
        self.evidence.write("environment.json", {"jetson_specdec": __version__, "vllm": release, "device": device})
