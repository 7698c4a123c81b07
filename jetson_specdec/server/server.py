# SPDX-License-Identifier: Apache-2.0
"""`Server`: start a recipe as it is, wait until it has generated a token, stop it and everything it started."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import ServerError, StartFailed
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host, LocalHost
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.server.back import wait_until_back
from jetson_specdec.server.commands import Commands, Runner
from jetson_specdec.server.core import Started, Stopped
from jetson_specdec.server.failure import Failure, kernel_log, note_failure, refine, uptime
from jetson_specdec.server.launch import CONTAINER_PROGRAMS, KEEP_ENVIRON, MARKER, Launch
from jetson_specdec.server.opening import open_recipe, write_private
from jetson_specdec.server.others import other_servers
from jetson_specdec.server.room import Room
from jetson_specdec.server.vigil import Vigil
from jetson_specdec.server.watchdog import MemorySample, Watchdog, read_memory

if TYPE_CHECKING:
    from jetson_specdec.logs import Diagnosis
    from jetson_specdec.planning.plan import Plan
    from jetson_specdec.recipe.core import Recipe
    from jetson_specdec.server.address import Address
    from jetson_specdec.server.occupants import Occupant
    from jetson_specdec.server.running import Kept

__all__ = ["Server"]


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
        replace: whether servers that are in the way may be taken down (they are brought back by `put_back`), or a
            function that says so of each.
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
        replace: bool | Callable[[Occupant], bool] = False,
        allow_sudo: bool = False,
        start_timeout_s: float = 1800.0,
        request_timeout_s: float = 300.0,
        grace_s: float = 20.0,
        back_timeout_s: float = 60.0,
        settle_s: float = 10.0,
    ) -> None:
        from jetson_specdec.server.state import default_state_dir

        self._environ = dict(os.environ if environ is None else environ)
        self._opened = open_recipe(recipe, command_index, self._environ)
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
        self._room = Room(
            self.launch,
            run_id=self.run_id,
            folder=self._state_dir,
            runner=self._runner,
            log_path=self.log_path,
            grace_s=grace_s,
        )
        self._kept: Kept | None = None
        self._watchdog: Watchdog | None = None
        self._before = MemorySample()
        self._vigil: Vigil | None = None
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
        from jetson_specdec.server.rerun import with_rerun

        found = find_occupants(self.launch, self.address, self._runner)
        return tuple(
            with_rerun(
                each,
                self._opened,
                mark=f"{self.run_id}.{len(self._room.taken) + number}",
                environ=self._environ,
                allow_sudo=self._allow_sudo,
            )
            for number, each in enumerate(found)
        )

    @property
    def taken_down(self) -> tuple[Occupant, ...]:
        """What was ended for this one and is not back yet."""
        return self._room.taken

    def left_running(
        self, path: str, *, environ: Mapping[str, str] | None = None, output: str | None = None
    ) -> Occupant | None:
        """Return this recipe as a server that stays (see `leave`); None where that takes more than starting it.

        Args:
            path: the file that holds its text.
            environ: environment to start it in; that of this server by default.
            output: file for what a native process prints.
        """
        from jetson_specdec.server.rerun import left_running

        return left_running(
            self._opened,
            evolve(self.launch, argv=self._argv()),
            self.address,
            path=path,
            mark=f"{self.run_id}.left",
            environ=self._environ if environ is None else environ,
            allow_sudo=self._allow_sudo,
            output=output,
        )

    def returned(self) -> tuple[Occupant, ...]:
        """Return the servers that were taken down for this one and run again, started by somebody else."""
        return self._room.returned()

    def _plan_launch(self) -> tuple[Launch, Address]:
        from jetson_specdec.server.address import address_of
        from jetson_specdec.server.launch import launch_of

        opened = self._opened
        copies = {path: str(self._work_dir / Path(path).name) for path in opened.files}
        launch = launch_of(
            opened.recipe,
            opened.command,
            opened.flags,
            run_id=self.run_id,
            environ=self._environ,
            work_dir=str(self._work_dir),
            original=opened.original,
            replaced_files=copies,
            grace_s=self._grace_s,
            allow_sudo=self._allow_sudo,
        )
        launch = evolve(launch, files={**launch.files, **{copies[path]: text for path, text in opened.files.items()}})
        contained = launch.kind in ("container", "compose") or opened.command.launcher in CONTAINER_PROGRAMS
        published = contained and not launch.host_network
        return launch, address_of(opened.command, opened.flags, in_container=contained, published=published)

    # --- starting -----------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """Start it, and return once it has generated its first tokens.

        Raises:
            InTheWayError: a server that was not started here is in the way and `replace` was not asked for (JSE930), or
                it could not be brought back afterwards (JSE923).
            OutputError: the state file could not be written; nothing was touched, or what was is brought back.
            ServerError: it is running already (JSE931), or what was in the way could not be taken down (JSE920, 921).
            StartFailed: it did not come up (JSE932); everything it started is gone again. What was taken down for it
                stays down until `put_back` (a `with` block does that by itself).
        """
        if self._kept is not None:
            raise ServerError("JSE931", base_url=self.base_url)
        self._room.make(self.in_the_way(), port=self.address.port, replace=self._replace)
        others = other_servers(self.run_id)
        self._before = read_memory(self._host)
        self._boot_s = uptime(self._host)
        started_at = time.monotonic()
        try:
            self._spawn()
            model = self._wait()
            ready_s = time.monotonic() - started_at
            tokens = self._first_completion(model)
        except Failure as failure:
            raise self._failed(failure, others) from None
        except BaseException:
            self._end(firm=True)
            raise
        kept: Any = self._kept
        after = read_memory(self._host)
        return Started(
            base_url=self.base_url,
            root_url=self.root_url,
            model=model,
            run_id=self.run_id,
            log_path=str(self.log_path),
            pid=kept.pid,
            container=self.launch.container,
            unit=self.launch.unit,
            service=self.launch.service,
            ready_s=ready_s,
            first_completion_s=time.monotonic() - started_at - ready_s,
            first_completion_tokens=tokens,
            available_before_bytes=self._before.available_bytes,
            available_after_bytes=after.available_bytes,
            lowest_available_bytes=self._watchdog.lowest_available_bytes if self._watchdog is not None else None,
            findings=(*self.launch.findings, *others),
        )

    def _spawn(self) -> None:
        from jetson_specdec.recipe.secret_places import secrets_in
        from jetson_specdec.server.interrupts import held
        from jetson_specdec.server.running import Kept

        self._log_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path, text in self.launch.files.items():
            write_private(Path(path), text)
        environ = {**self._environ, **self.launch.environ, MARKER: self.run_id, KEEP_ENVIRON: "1"}
        with held():  # a keeper that nobody knows of would go on
            self._kept = Kept(
                self.launch,
                argv=self._argv(),
                environ=environ,
                log_path=self.log_path,
                grace_s=self._grace_s,
                secrets=secrets_in(self._opened.recipe),
            )
            self._room.note_keeper(self._kept.keeper_pid)
        self._watchdog = Watchdog(self._host, self._breach, policy=self._policy)
        self._watchdog.start()
        self._vigil = Vigil(
            self._kept,
            self._watchdog,
            launch=self.launch,
            runner=self._runner,
            log_path=self.log_path,
            diagnose=lambda: self._diagnose(None),
            settle_s=self._settle_s,
        )

    def _argv(self) -> tuple[str, ...]:
        """Return what is run: the shortened text where it is a whole shell text (not inside an `if` or a function)."""
        launch = self.launch
        if not launch.fallback_argv:
            return launch.argv
        answer = self._runner.run(["bash", "-n", *launch.argv[1:]])
        return launch.argv if answer is None or answer.ok else launch.fallback_argv

    def _breach(self, sample: MemorySample) -> None:
        from jetson_specdec.messages import bytes_text
        from jetson_specdec.server.running import note

        available = bytes_text(sample.available_bytes or 0, "gib")
        floor = bytes_text(self._policy.watchdog_floor_bytes, "gib")
        note(self.log_path, f"watchdog stopped the server: {available} available, floor {floor}")
        if self._kept is not None:
            self._kept.stop(firm=True)

    def _wait(self) -> str:
        """Wait until it answers; return the served name."""
        from jetson_specdec.server.ready import wait_until_up

        vigil: Any = self._vigil
        model = wait_until_up(self.address, check=vigil.check, timeout_s=self._start_timeout_s)
        if model is None:
            raise Failure("timeout")
        return model

    def _first_completion(self, model: str) -> int:
        """Return how many tokens the first completion has."""
        from jetson_specdec.server.ready import NotReady, first_completion

        vigil: Any = self._vigil
        try:
            answer = first_completion(self.address, model, timeout=self._request_timeout_s)
        except NotReady as error:
            raise Failure("request", error.reason) from None
        vigil.check()
        return answer.completion_tokens

    # --- failing ------------------------------------------------------------------------------------------------------

    def _failed(self, failure: Failure, others: tuple[Finding, ...]) -> StartFailed:
        """End everything, say why, and return the error."""
        kept = self._kept
        if kept is not None and failure.why in ("request", "log"):
            kept.wait_exit(self._settle_s)
        # Only an end of its own says something; what follows is ours.
        code = kept.exit_code if kept is not None and kept.exited.is_set() else None
        if failure.why == "watchdog":
            code = None
        note_failure(self.log_path, failure, self._start_timeout_s)
        self._end(firm=failure.why == "watchdog")
        diagnosis = refine(
            self._diagnose(code),
            failure,
            speculates=self._opened.speculates,
            contained=self.launch.kind in ("container", "compose"),
            exit_code=code,
            breach=self._watchdog.breach if self._watchdog is not None else None,
            policy=self._policy,
            timeout_s=self._start_timeout_s,
        )
        diagnosis = evolve(diagnosis, findings=(*diagnosis.findings, *others))
        return StartFailed(
            "JSE932", diagnosis=diagnosis, log_path=str(self.log_path), cause=diagnosis.cause, remedy=diagnosis.remedy
        )

    def _diagnose(self, exit_code: int | None) -> Diagnosis:
        from jetson_specdec.logs import diagnose
        from jetson_specdec.server.running import read_log

        dmesg = kernel_log(self._host, self._boot_s) if exit_code not in (None, 0) else None
        text = read_log(self.log_path)
        return diagnose(text, exit_code=exit_code, dmesg=dmesg, recipe=self._opened.recipe)

    # --- stopping -----------------------------------------------------------------------------------------------------

    def stop(self, *, put_back: bool = False) -> Stopped:
        """End it with everything it started, and wait until port and memory are back.

        Args:
            put_back: also bring back what was taken down for it.
        """
        began = time.monotonic()
        self._end(firm=False)
        stopped = wait_until_back(
            self.address.port, self._before, host=self._host, policy=self._policy, timeout_s=self._back_timeout_s
        )
        stopped = evolve(stopped, seconds=time.monotonic() - began)
        if put_back:
            self.put_back()
        return stopped

    def put_back(self) -> tuple[str, ...]:
        """Bring back what was taken down for it; return the names of what runs again.

        Raises:
            ServerError: one of them could not be started again (JSE922); `restore` tries again.
        """
        return self._room.put_back()

    def leave(self, occupants: tuple[Occupant, ...] = ()) -> tuple[str, ...]:
        """Let others run instead of what was taken down; return their names.

        Args:
            occupants: what is to run; none: nothing, and containers that wait get their own names back.

        Raises:
            ServerError: one of them could not be started (JSE922); what was taken down is back then.
        """
        return self._room.leave(occupants)

    def _end(self, *, firm: bool) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        clean = True
        if self._kept is not None:
            self._kept.stop(firm=firm)
            clean = self._kept.clean  # a keeper that was killed could not end what it held
        self._room.ended(clean=clean, firm=firm)
        self._kept = None
        with contextlib.suppress(OSError):
            if self._work_dir.is_dir() and not any(self._work_dir.iterdir()):
                self._work_dir.rmdir()

    def __enter__(self) -> Server:
        try:
            self.start()
        except BaseException:
            self.put_back()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(put_back=True)
