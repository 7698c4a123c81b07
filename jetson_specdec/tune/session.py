# SPDX-License-Identifier: Apache-2.0
"""The loop of a tune: asks what is next, does it, writes it down, and puts everything back at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import EndpointError, StartFailed
from jetson_specdec.findings import Finding
from jetson_specdec.gate import Gate
from jetson_specdec.policy import Policy
from jetson_specdec.tune.arms import Arms
from jetson_specdec.tune.blocks import Tools, bench, cool_down, figures
from jetson_specdec.tune.core import BlockRecord, TuneResult, TuneSettings, probe_of
from jetson_specdec.tune.downtime import downtime
from jetson_specdec.tune.evidence import Evidence
from jetson_specdec.tune.following import NothingToProve, adopt, check_pair, look_at_baseline, make_schedule, pin
from jetson_specdec.tune.schedule import Finish, Measure, Progress, TrySchedule, next_action, usable_pairs

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.server import Occupant, Server, Started
    from jetson_specdec.server.climbing import Try

__all__ = ["NotStarted", "Session"]


class NotStarted(Exception):  # noqa: N818 - how a tune ends, not a mistake
    """An arm could not be started."""

    def __init__(self, findings: tuple[Finding, ...], steps: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.findings = findings
        self.steps = steps


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
        self.launches = 0
        self.proven = False
        self._failures = 0
        self.findings: list[Finding] = []
        self._fixed = {"recipe": str(recipe), "recipe_sha256": digest, "wishes": dict(wishes)}
        self._began: float | None = None
        self._before = 0.0
        self._first: Server | None = None
        self._server: Server | None = None
        self._memory: int | None = None
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
        from jetson_specdec.tune.ending import finish, interrupted, not_started, nothing, put_back

        result: TuneResult | None = None
        again: dict[str, Any] | None = None
        self._began = self.tools.clock()
        try:
            self.save("running")
            self._opening()
            finished = self._loop()
            result = finish(self, finished)
        except NotStarted as error:
            result = not_started(self, error)
        except NothingToProve as error:
            result = nothing(self, error)
        except KeyboardInterrupt:
            result = interrupted(self)
        finally:
            # Whatever went wrong, also writing: first the board, then the report of it.
            again = put_back(self, result)
        assert result is not None
        result = evolve(
            result, findings=(*result.findings, *again["findings"]), downtime_s=self.elapsed, launches=self.launches
        )
        status = "interrupted" if result.outcome == "interrupted" else "stopped" if result.reason == "time" else "done"
        self.save(status, result)
        return result

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

    def verdict(self) -> Verdict | None:
        """Judge the usable pairs of this variant."""
        pairs = usable_pairs(self.progress)
        if not pairs:
            return None
        names = tuple((off.report, on.report) for off, on in pairs.values())
        if self._judged is None or self._judged[0] != names:
            befores = [self.evidence.report(off) for off, _ in names]
            afters = [self.evidence.report(on) for _, on in names]
            self._judged = names, Gate(policy=self.policy).judge(befores, afters)
        return self._judged[1]

    # --- one block ----------------------------------------------------------------------------------------------------

    def _measure(self, action: Measure) -> None:
        began = self.tools.clock()
        number = len(self.progress.blocks) + 1
        label = "without speculation" if action.arm == "off" else f"k = {action.k}"
        self.tell("tune-event-start", {"arm": label, "role": action.role})
        self.findings += cool_down(self.tools, self.policy, memory_before=self._memory)
        try:
            up = self._start(action)
            if up is None:
                return
            started, plan = up
            config = plan.speculative_config or {}
            k = config.get("num_speculative_tokens") if action.arm == "on" else None
            ready = self.tools.clock()
            self.tell("tune-event-ready", {"arm": label, "seconds": ready - began})
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
            self._measured_badly(error, label)
            return
        finally:
            stopped = self._stop()
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
        self._note_log(started.log_path)
        self.progress = evolve(self.progress, blocks=(*self.progress.blocks, block))
        if block.tok_s is not None:
            self.tell("tune-event-measured", {"arm": label, "tok_s": block.tok_s})
        if action.role == "baseline":
            look_at_baseline(self, report)
        check_pair(self, block)
        left = downtime(self.settings, done=self.progress.blocks, policy=self.policy)
        self.tell("tune-event-left", {"minutes": left.high / 60})

    def _measured_badly(self, error: EndpointError, label: str) -> None:
        """Let the block be measured once more; the second time in a row ends it, with what the log says.

        Raises:
            NotStarted: it was the second time.
        """
        from jetson_specdec.logs import diagnose
        from jetson_specdec.server.running import read_log

        self._failures += 1
        assert self._server is not None
        found = Finding.of("JSD991", arm=label, reason=str(error))
        self._note_log(str(self._server.log_path))
        if self._failures < 2:
            self.findings.append(found)
            return
        said = diagnose(read_log(self._server.log_path))
        told = () if said.cause == "none" else said.findings
        raise NotStarted((found, *told), tuple(said.next_steps))

    def _start(self, action: Measure) -> tuple[Started, Plan] | None:
        """Start an arm; None where a larger k of the search does not start, which is an answer too."""
        if action.arm == "off":
            plan = self.arms.off()
            try:
                return self._up(plan), plan
            except StartFailed as error:
                self._keep_try({"arm": "off", "diagnosis": error.diagnosis.to_json()}, error.log_path)
                steps = tuple(error.diagnosis.next_steps)
                found = (*error.diagnosis.findings, Finding.of("JSD929", cause=error.diagnosis.cause))
                raise NotStarted(found, steps) from None
        schedule = self.schedule if action.variant else None
        plan = self.arms.on(None if schedule else action.k, schedule)
        if not self.proven:
            return self._climb(plan)
        ran = [block.k for block in self.progress.blocks if block.k is not None]
        tries = 1 if action.role == "search" and (action.k or 0) > max(ran, default=0) else 2
        for left in reversed(range(tries)):
            try:
                return self._up(plan), plan
            except StartFailed as error:
                self._keep_try({"arm": "on", "k": action.k, "diagnosis": error.diagnosis.to_json()}, error.log_path)
                if left:
                    continue
                if tries == 1:
                    self.progress = evolve(self.progress, max_k=max(ran))
                    return None
                found = (*error.diagnosis.findings, Finding.of("JSD970", cause=error.diagnosis.cause))
                raise NotStarted(found, tuple(error.diagnosis.next_steps)) from None
        raise AssertionError("no try")

    def _climb(self, plan: Plan) -> tuple[Started, Plan]:
        """Start speculation for the first time: each failure leads to the next rung of the ladder."""
        from jetson_specdec.server import climb

        situation = evolve(self.arms.situation, policy=self.policy)
        reached = climb(situation, self._up, plan=plan, record=self._record)
        if reached.outcome != "started" or reached.plan is None or reached.started is None:
            last = next((each.diagnosis for each in reversed(reached.tries) if each.diagnosis is not None), None)
            cause = Finding.of("JSD970", cause=last.cause if last is not None else None)
            told = (cause,) if reached.outcome == "started_without" else ()
            raise NotStarted((*told, *reached.findings), reached.next_steps)
        if len(reached.tries) > 1:
            adopt(self, reached)
        self.proven = True
        return reached.started, reached.plan

    def _record(self, tried: Try) -> None:
        if tried.started is None:
            self._keep_try(tried.to_json(), tried.log_path)

    def _keep_try(self, value: Mapping[str, Any], log_path: str | None) -> None:
        self.evidence.write(f"plans/try-{self.launches:03d}.json", dict(value))
        self._note_log(log_path)

    def _note_log(self, log_path: str | None) -> None:
        if log_path is not None:
            self.evidence.note(f"logs/{Path(log_path).name}")

    def _up(self, plan: Plan) -> Started:
        self.launches += 1
        tools = self.tools
        server = tools.server(
            plan,
            plan.command_index,
            host=tools.host,
            policy=self.policy,
            log_dir=self.evidence.folder / "logs",
            state_dir=tools.state_dir,
            environ=tools.environ,
            replace=self._first is None,
            allow_sudo=self.settings.allow_sudo,
            start_timeout_s=self.settings.start_timeout_s,
            **tools.server_options,
        )
        if self._first is None:
            self._first = server
        self._server = server
        return server.start()

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

        self._memory = read_memory(self.tools.host).available_bytes if not self.occupants else None
        if self.progress.blocks:
            return
        plan = self.arms.plan
        self.evidence.write("plans/plan.json", plan.to_json())
        device = None if plan.device is None else plan.device.to_json()
        release = None if plan.release is None else plan.release.version
        self.evidence.write("environment.json", {"jetson_specdec": __version__, "vllm": release, "device": device})
