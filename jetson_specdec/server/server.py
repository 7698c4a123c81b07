# SPDX-License-Identifier: Apache-2.0
"""`Server`: start a recipe as it is, wait until it has generated a token, stop it and everything it started."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import CommandChoiceError, InTheWayError, ServerError, StartFailed
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host, LocalHost
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.server.commands import Commands, Runner
from jetson_specdec.server.core import Started, Stopped
from jetson_specdec.server.launch import MARKER, Launch
from jetson_specdec.server.watchdog import MemorySample, Watchdog, read_memory

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.server.address import Address
    from jetson_specdec.server.occupants import Occupant
    from jetson_specdec.server.running import Kept
    from jetson_specdec.server.state import RunState

__all__ = ["Server"]


class _Failure(Exception):  # noqa: N818 - caught in this file
    """The start cannot succeed any more; `why` is `exited`, `log`, `watchdog`, `before`, `request` or `timeout`."""

    def __init__(self, why: str, detail: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.detail = detail


class Server:
    """Runs one serve command of a recipe.

    Args:
        recipe: a recipe, its text or path, or a plan (whose planned text is run; the owner's files stay as they are).
        command_index: which serve command; of a plan its own.
        host: the machine whose memory is watched.
        policy: floor of the watchdog, band in which memory counts as back.
        log_dir: folder for logs; by default `logs` beside the state files.
        state_dir: folder for state files (`jetson_specdec.server.state`).
        environ: environment to start it in; that of this process by default.
        runner: runs `docker` and `systemctl`.
        replace: whether servers that are in the way may be taken down (they are brought back by `put_back`).
        allow_sudo: whether `sudo` in the recipe may run. It is never added.
        start_timeout_s: how long a start may take; the first one may download and compile.
        request_timeout_s: how long the first completion may take.
        grace_s: how long a polite stop may take.
        back_timeout_s: how long to wait for port and memory after a stop.
        settle_s: how long a start that is known to fail may go on, so that its log is complete.

    Example:
        ```python
        from jetson_specdec.server import Server

        with Server("serve.sh") as server:
            print(server.base_url)
        ```
    """

    def __init__(
        self,
        recipe: Recipe | Plan | str | Path,
        command_index: int = 0,
        *,
        host: Host | None = None,
        policy: Policy = DEFAULT_POLICY,
        log_dir: str | Path | None = None,
        state_dir: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        runner: Runner | None = None,
        replace: bool = False,
        allow_sudo: bool = False,
        start_timeout_s: float = 1800.0,
        request_timeout_s: float = 300.0,
        grace_s: float = 20.0,
        back_timeout_s: float = 60.0,
        settle_s: float = 10.0,
    ) -> None:
        from jetson_specdec.server.state import default_state_dir

        self._environ = dict(os.environ if environ is None else environ)
        self._recipe, self._command, self._original, self._changed = _read(recipe, command_index, self._environ)
        self._host = host or LocalHost()
        self._policy = policy
        self._runner = runner or Commands(self._environ)
        self._replace, self._allow_sudo = replace, allow_sudo
        self._start_timeout_s, self._request_timeout_s = start_timeout_s, request_timeout_s
        self._grace_s, self._back_timeout_s, self._settle_s = grace_s, back_timeout_s, settle_s
        self.run_id = uuid.uuid4().hex[:12]
        self._state_dir = Path(state_dir) if state_dir is not None else default_state_dir(self._environ)
        self._log_dir = (Path(log_dir) if log_dir is not None else self._state_dir / "logs").absolute()
        self.log_path = self._log_dir / f"{self.run_id}.log"
        self._work_dir = self._log_dir / f"{self.run_id}.files"
        self.launch, self.address = self._plan_launch()
        self._kept: Kept | None = None
        self._watchdog: Watchdog | None = None
        self._state: RunState | None = None
        self._before = MemorySample()
        self._log_size, self._log_read_at, self._suspected_at = 0, 0.0, None
        self._boot_s = 0.0

    # --- what it is ---------------------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base URL."""
        return self.address.base_url

    @property
    def root_url(self) -> str:
        """Where `/health` and `/metrics` are."""
        return self.address.root_url

    @property
    def running(self) -> bool:
        """Whether anything of it runs."""
        return self._kept is not None and self._kept.alive

    @property
    def watchdog(self) -> Watchdog | None:
        """The memory watchdog of the running server."""
        return self._watchdog

    def in_the_way(self) -> tuple[Occupant, ...]:
        """Return the servers that were not started here and stand where this one belongs."""
        from jetson_specdec.server.occupants import find_occupants

        return find_occupants(self.launch, self.address, self._runner)

    def _plan_launch(self) -> tuple[Launch, Address]:
        from jetson_specdec.server.address import address_of
        from jetson_specdec.server.launch import launch_of

        flags = self._flags()
        launch = launch_of(
            self._recipe,
            self._command,
            flags,
            run_id=self.run_id,
            environ=self._environ,
            work_dir=str(self._work_dir),
            original=self._original,
            replaced_files={path: str(self._work_dir / Path(path).name) for path in self._changed},
            grace_s=self._grace_s,
            allow_sudo=self._allow_sudo,
        )
        texts = {str(self._work_dir / Path(path).name): text for path, text in self._changed.items()}
        launch = evolve(launch, files={**launch.files, **texts})
        contained = launch.kind in ("container", "compose")
        return launch, address_of(
            self._command, flags, in_container=contained, published=contained and not launch.host_network
        )

    def _flags(self) -> ServeFlags:
        from jetson_specdec.planning.gather import release_of
        from jetson_specdec.recipe.config_file import find_config
        from jetson_specdec.recipe.flags import ServeFlags

        config = find_config(self._recipe, self._command, host=LocalHost())
        return ServeFlags.read(self._command, release_of(self._command, None), config)

    # --- starting -----------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """Start it, and return once it has generated its first tokens.

        Raises:
            InTheWayError: a server that was not started here is in the way (JSE930), and `replace` was not asked for.
            ServerError: it is running already (JSE931), or what was in the way could not be taken down (JSE920, 921).
            StartFailed: it did not come up (JSE932); everything it started is gone again.
        """
        if self._kept is not None:
            raise ServerError("JSE931", base_url=self.base_url)
        self._make_room()
        self._before = read_memory(self._host)
        self._boot_s = _uptime(self._host)
        started_at = time.monotonic()
        try:
            self._spawn()
            model = self._wait()
            ready_s = time.monotonic() - started_at
            answer = self._first_completion(model)
        except _Failure as failure:
            raise self._failed(failure) from None
        except BaseException:
            self._end(firm=True)
            raise
        assert self._kept is not None
        after = read_memory(self._host)
        return Started(
            base_url=self.base_url,
            root_url=self.root_url,
            model=model,
            run_id=self.run_id,
            log_path=str(self.log_path),
            pid=self._kept.pid,
            container=self.launch.container,
            unit=self.launch.unit,
            service=self.launch.service,
            ready_s=ready_s,
            first_completion_s=time.monotonic() - started_at - ready_s,
            first_completion_tokens=answer.completion_tokens,
            available_before_bytes=self._before.available_bytes,
            available_after_bytes=after.available_bytes,
            lowest_available_bytes=self._watchdog.lowest_available_bytes if self._watchdog is not None else None,
            findings=self.launch.findings,
        )

    def _make_room(self) -> None:
        from jetson_specdec.server.occupants import take_down
        from jetson_specdec.server.state import RunState, start_ticks

        occupants = self.in_the_way()
        if occupants and not self._replace:
            shown = [f"{one.kind} {one.name}" + (f" (pid {one.pid})" if one.pid else "") for one in occupants]
            raise InTheWayError("JSE930", occupants=occupants, who=shown, port=self.address.port)
        taken = self._state.taken_down if self._state is not None else ()
        self._state = RunState(
            run_id=self.run_id,
            owner_pid=os.getpid(),
            owner_started=start_ticks(os.getpid()),
            log_path=str(self.log_path),
            stop=self.launch.stop,
            after=self.launch.after,
            remove=tuple(self.launch.files),
            taken_down=taken,
        )
        for occupant in occupants:
            # Written down first: if we are killed in between, it is still known what stood here.
            self._state = evolve(self._state, taken_down=(*self._state.taken_down, occupant))
            self._state.save(self._state_dir)
            done = take_down(occupant, self._runner, run_id=self.run_id, grace_s=self._grace_s)
            self._state = evolve(self._state, taken_down=(*self._state.taken_down[:-1], done))
            self._state.save(self._state_dir)

    def _spawn(self) -> None:
        from jetson_specdec.recipe.masking import secrets_of
        from jetson_specdec.server.running import Kept

        assert self._state is not None
        self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text in self.launch.files.items():
            _write(Path(path), text)
        argv = self.launch.argv
        if self.launch.fallback_argv and not self._complete(argv):
            argv = self.launch.fallback_argv
        environ = {**self._environ, **self.launch.environ, MARKER: self.run_id}
        self._state.save(self._state_dir)
        self._kept = Kept(
            self.launch,
            argv=argv,
            environ=environ,
            log_path=self.log_path,
            grace_s=self._grace_s,
            secrets=secrets_of(self._command),
        )
        self._state = evolve(self._state, keeper_pid=self._kept.keeper_pid)
        self._state.save(self._state_dir)
        self._watchdog = Watchdog(self._host, self._breach, policy=self._policy)
        self._watchdog.start()

    def _complete(self, argv: tuple[str, ...]) -> bool:
        """Whether the shortened text is a whole shell text (it is not inside an `if` or a function)."""
        answer = self._runner.run(["bash", "-n", *argv[1:]])
        return answer is None or answer.ok

    def _breach(self, sample: MemorySample) -> None:
        from jetson_specdec.server.running import note

        gib = 2**30
        available, floor = (sample.available_bytes or 0) / gib, self._policy.watchdog_floor_bytes / gib
        note(self.log_path, f"watchdog stopped the server: {available:.1f} GiB available, floor {floor:.1f} GiB")
        if self._kept is not None:
            self._kept.stop(firm=True)

    def _wait(self) -> str:
        from jetson_specdec.server.ready import wait_until_up

        model = wait_until_up(self.address, check=self._check, timeout_s=self._start_timeout_s)
        if model is None:
            raise _Failure("timeout")
        return model

    def _check(self) -> None:
        """Raise `_Failure` as soon as the start cannot succeed any more."""
        kept = self._kept
        assert kept is not None
        if self._watchdog is not None and self._watchdog.breach is not None:
            raise _Failure("watchdog")
        if kept.failed is not None:
            raise _Failure("before", f"{' '.join(map(str, kept.failed['argv'][:4]))}: {kept.failed['output'].strip()}")
        if not kept.alive or (kept.exited.is_set() and kept.exit_code != 0):
            raise _Failure("exited")
        if self.launch.kind == "unit" and self._unit_failed():
            raise _Failure("exited")
        if self._suspected_at is not None and time.monotonic() - self._suspected_at > self._settle_s:
            raise _Failure("log")
        self._read_on()

    def _read_on(self) -> None:
        """Look at the log where it has grown: a cause in it starts the time that is left to the process."""
        now = time.monotonic()
        size = self.log_path.stat().st_size if self.log_path.exists() else 0
        if size == self._log_size or now - self._log_read_at < 1.0 or self._suspected_at is not None:
            return
        self._log_size, self._log_read_at = size, now
        found = self._diagnose(None)
        if found.started_ok is False and found.cause not in ("none", "engine_failed"):
            self._suspected_at = now

    def _unit_failed(self) -> bool:
        control = ["systemctl", "--user"] if self.launch.user_unit else ["systemctl"]
        answer = self._runner.run([*control, "show", self.launch.unit or "", "-p", "ActiveState"])
        state = (answer.stdout if answer is not None else "").strip().rpartition("=")[2]
        return state == "failed" or (state == "inactive" and self._log_size > 0)

    def _first_completion(self, model: str) -> Any:
        from jetson_specdec.server.ready import NotReady, first_completion

        try:
            answer = first_completion(self.address, model, timeout=self._request_timeout_s)
        except NotReady as error:
            raise _Failure("request", error.reason) from None
        self._check()
        return answer

    # --- failing ------------------------------------------------------------------------------------------------------

    def _failed(self, failure: _Failure) -> StartFailed:
        """End everything, say why, and return the error."""
        from jetson_specdec.server.running import note

        kept = self._kept
        if kept is not None and failure.why in ("request", "log"):
            kept.wait_exit(self._settle_s)
        # Only an end of its own says something; what follows is ours.
        code = kept.exit_code if kept is not None and kept.exited.is_set() else None
        if failure.why == "watchdog":
            code = None
        if failure.why == "timeout":
            note(self.log_path, f"the server did not become ready in time ({self._start_timeout_s:.0f} s)")
        elif failure.why == "request":
            note(self.log_path, f"the first completion failed: {(failure.detail or '')[:300]}")
        elif failure.why == "before":
            note(self.log_path, failure.detail or "")
        self._end(firm=failure.why == "watchdog")
        diagnosis = self._refine(self._diagnose(code), failure)
        return StartFailed(
            "JSE932", diagnosis=diagnosis, log_path=str(self.log_path), cause=diagnosis.cause, remedy=diagnosis.remedy
        )

    def _diagnose(self, exit_code: int | None) -> Diagnosis:
        from jetson_specdec.logs import diagnose
        from jetson_specdec.server.running import read_log

        dmesg = self._kernel_log() if exit_code is not None else None
        return diagnose(read_log(self.log_path), exit_code=exit_code, dmesg=dmesg, recipe=self._recipe)

    def _kernel_log(self) -> str | None:
        """Return what the kernel said since the start, where it may be read."""
        answer = self._host.run(["dmesg"], timeout=5)
        if answer is None or not answer.ok:
            return None
        return "\n".join(line for line in answer.stdout.splitlines() if _stamp(line) >= self._boot_s) or None

    def _refine(self, found: Diagnosis, failure: _Failure) -> Diagnosis:
        """Say what the log alone cannot: that we stopped it, or that it answered `/health` and nothing else."""
        from jetson_specdec.logs.causes import causes

        values: dict[str, Any] = dict(found.values)
        breach = self._watchdog.breach if self._watchdog is not None else None
        if failure.why == "watchdog" and breach is not None:
            values.update(
                available_bytes=breach.available_bytes,
                floor_bytes=self._policy.watchdog_floor_bytes,
                swap_used_bytes=breach.swap_used_bytes,
                pressure_full=breach.pressure_full,
            )
            cause, stage = "watchdog_stopped", found.stage
        elif failure.why == "request" and found.started_ok is not False:
            values["reason"] = failure.detail
            cause, stage = "first_request_failed", "first_request"
        elif found.started_ok is not False or found.cause == "none":
            cause, stage = ("start_timeout" if failure.why == "timeout" else "engine_failed"), found.stage
        else:
            return found
        if found.cause == cause:
            return evolve(found, started_ok=False, values=values)
        speculates = found.speculation_involved
        remedy = "drop_speculation" if cause == "first_request_failed" and speculates else causes()[cause]["remedy"]
        return evolve(
            found,
            started_ok=False,
            stage=stage,
            cause=cause,
            remedy=remedy,
            values=values,
            findings=(Finding.of(causes()[cause]["code"], cause=cause, **values),),
            next_steps=(),
        )

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, *, put_back: bool = False) -> Stopped:
        """End it with everything it started, and wait until port and memory are back.

        Args:
            put_back: also bring back what was taken down for it.
        """
        began = time.monotonic()
        self._end(firm=False)
        stopped = self._wait_back(began)
        if put_back:
            self.put_back()
        return stopped

    def put_back(self) -> tuple[str, ...]:
        """Bring back what was taken down for it; return the names.

        Raises:
            ServerError: one of them could not be started again (JSE922); `restore` tries again.
        """
        from jetson_specdec.server.state import bring_back

        if self._state is None or not self._state.taken_down:
            return ()
        done = bring_back(self._state.taken_down, self._runner)
        missing = {name for name, _ in done.failed}
        left = tuple(one for one in self._state.taken_down if one.name in missing)
        self._state = evolve(self._state, taken_down=left)
        if left:
            self._state.save(self._state_dir)
            raise ServerError("JSE922", name=done.failed[0][0], said=done.failed[0][1])
        self._forget()
        return done.brought_back

    def _end(self, *, firm: bool) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._kept is not None:
            self._kept.stop(firm=firm)
            self._kept = None
        if self._work_dir.is_dir() and not any(self._work_dir.iterdir()):
            self._work_dir.rmdir()
        if self._state is not None and not self._state.taken_down:
            self._forget()

    def _forget(self) -> None:
        (self._state_dir / f"{self.run_id}.json").unlink(missing_ok=True)
        self._state = None

    def _wait_back(self, began: float) -> Stopped:
        from jetson_specdec.server.occupants import port_is_free

        def memory_is_back(sample: MemorySample) -> bool | None:
            if None in (self._before.available_bytes, sample.available_bytes, sample.total_bytes):
                return None
            missing = (self._before.available_bytes or 0) - (sample.available_bytes or 0)
            return missing <= self._policy.cooldown_memory_band * (sample.total_bytes or 0)

        def look() -> tuple[bool, bool | None, MemorySample]:
            sample = read_memory(self._host)
            return port_is_free(self.address.port), memory_is_back(sample), sample

        free, back, sample = _until(look, lambda seen: seen[0] and seen[1] is not False, self._back_timeout_s)
        findings = []
        if not free:
            findings.append(Finding.of("JSD910", port=self.address.port))
        if back is False:
            findings.append(
                Finding.of("JSD911", before=self._before.available_bytes, now=sample.available_bytes)
            )
        return Stopped(
            port_free=free,
            memory_back=back,
            available_bytes=sample.available_bytes,
            seconds=time.monotonic() - began,
            findings=tuple(findings),
        )

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(put_back=True)


def _until(look: Callable[[], Any], done: Callable[[Any], bool], timeout_s: float) -> Any:
    """Look until it is done or the time is over; return what was seen last."""
    until = time.monotonic() + timeout_s
    while True:
        seen = look()
        if done(seen) or time.monotonic() >= until:
            return seen
        time.sleep(0.1)


def _read(
    recipe: Recipe | Plan | str | Path, index: int, environ: Mapping[str, str]
) -> tuple[Recipe, ServeCommand, str | None, dict[str, str]]:
    """Return the recipe to run, its command, the owner's text where it differs, and other files' planned texts."""
    from jetson_specdec.recipe.core import Recipe as RecipeValue
    from jetson_specdec.recipe.load import load_recipe, parse_recipe
    from jetson_specdec.recipe.shell import parse_shell

    original: str | None = None
    files: dict[str, str] = {}
    if isinstance(recipe, (str, Path)):
        parsed = load_recipe("-", text=recipe) if _is_text(recipe) else load_recipe(recipe)
    elif isinstance(recipe, RecipeValue):
        parsed = recipe
    else:
        original, index = recipe.recipe.before, recipe.command_index
        parsed = parse_recipe(recipe.recipe.after, path=recipe.recipe.path)
        files = {change.path: change.after for change in recipe.files if change.path is not None and change.changed}
    if parsed.form == "shell":
        # It runs on this machine, so this environment is what its variables have.
        parsed = parse_shell(parsed.text, path=parsed.path, environ=environ)
    if not 0 <= index < len(parsed.commands):
        raise CommandChoiceError("JSE501", index=index, count=len(parsed.commands))
    return parsed, parsed.commands[index], original, files


def _is_text(recipe: str | Path) -> bool:
    """A string with white space that names no file is the recipe itself."""
    if not isinstance(recipe, str):
        return False
    return "\n" in recipe or (any(char.isspace() for char in recipe) and not Path(recipe).exists())


def _write(path: Path, text: str) -> None:
    """Write a file that a start needs, readable by its owner only.

    Raises:
        ServerError: it cannot be written (JSE933).
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(text)
    except OSError as error:
        raise ServerError("JSE933", path=str(path), reason=error.strerror or str(error)) from None


def _uptime(host: Host) -> float:
    """Return seconds since boot, the clock of the kernel log."""
    words = (host.read_text("/proc/uptime") or "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return 0.0


def _stamp(line: str) -> float:
    """Return the time of a kernel log line (`[ 1234.567890] …`); infinity where it has none, so that it is kept."""
    head = line.partition("]")[0].lstrip("[").strip()
    try:
        return float(head)
    except ValueError:
        return float("inf")
