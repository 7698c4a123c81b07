# SPDX-License-Identifier: Apache-2.0
"""The room a server needs: who is taken down for it and brought back afterwards, and how that is written down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.errors import InTheWayError, OutputError, ServerError

if TYPE_CHECKING:
    from jetson_specdec.server.commands import Runner
    from jetson_specdec.server.launch import Launch
    from jetson_specdec.server.occupants import Occupant
    from jetson_specdec.server.state import RunState

__all__ = ["Room"]


class Room:
    """Makes room for one server.

    Args:
        launch: what is started.
        run_id: name of the start.
        folder: of the state files.
        runner: runs `docker` and `systemctl`.
        log_path: where the server's log is.
        grace_s: how long a polite end may take.
    """

    def __init__(
        self, launch: Launch, *, run_id: str, folder: Path, runner: Runner, log_path: Path, grace_s: float
    ) -> None:
        self.state: RunState | None = None
        self._launch, self._run_id, self._folder = launch, run_id, folder
        self._runner, self._log_path, self._grace_s = runner, log_path, grace_s

    @property
    def taken(self) -> tuple[Occupant, ...]:
        """What waits to be brought back."""
        return self.state.taken_down if self.state is not None else ()

    def make(
        self, occupants: Sequence[Occupant], *, port: int, replace: bool | Callable[[Occupant], bool] = False
    ) -> None:
        """Take down what is in the way, and write down the start that follows.

        Raises:
            InTheWayError: it was not said to replace them (JSE930), or one of them could not be brought back (JSE923).
            ServerError: one of them could not be taken down (JSE920, JSE921).
            OutputError: it could not be written down.
        """
        from jetson_specdec.server.displace import intended, take_down
        from jetson_specdec.server.interrupts import held
        from jetson_specdec.server.occupants import obstacle

        if not all(replace if isinstance(replace, bool) else replace(one) for one in occupants):
            raise InTheWayError("JSE930", occupants=tuple(occupants), who=[one.shown for one in occupants], port=port)
        for one in occupants:
            if (reason := obstacle(one)) is not None:
                raise InTheWayError("JSE923", occupants=tuple(occupants), name=one.name, reason=reason)
        self.state = self._new(self.taken)
        self.state.save(self._folder)
        for occupant in occupants:
            with held():  # half taken down is neither up nor to be brought back
                # Written down first: if we are killed in between, it is still known what stood here.
                going = intended(occupant, run_id=self._run_id, number=len(self.taken))
                self.state = evolve(self.state, taken_down=(*self.taken, going))
                self.state.save(self._folder)
                take_down(going, self._runner, grace_s=self._grace_s)

    def _new(self, taken: tuple[Occupant, ...]) -> RunState:
        from jetson_specdec.server.processes import boot_id, start_ticks
        from jetson_specdec.server.state import RunState

        return RunState(
            run_id=self._run_id,
            owner_pid=os.getpid(),
            owner_started=start_ticks(os.getpid()),
            boot=boot_id(),
            log_path=str(self._log_path),
            stop=self._launch.stop,
            after=self._launch.after,
            remove=tuple(self._launch.files),
            taken_down=taken,
        )

    def note_keeper(self, pid: int) -> None:
        """Write down who holds the server.

        Raises:
            OutputError: it could not be written.
        """
        assert self.state is not None
        self.state = evolve(self.state, keeper_pid=pid)
        self.state.save(self._folder)

    def returned(self) -> tuple[Occupant, ...]:
        """Return what was taken down and runs again, started by somebody else."""
        from jetson_specdec.server.displace import returned

        return tuple(each for each in self.taken if returned(each, self._runner))

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def ended(self, *, clean: bool, firm: bool) -> None:
        """The server has ended.

        Args:
            clean: whether it is known that nothing of it is left; else what is left is looked for.
            firm: without patience.
        """
        from jetson_specdec.server.restoring import end_marked

        if self.state is None:
            return
        if not clean:
            end_marked(self.state, self._runner, grace_s=0.0 if firm else self._grace_s)
        if not self.state.taken_down:
            self._forget()
        elif not self.state.ended:
            self.state = evolve(self.state, ended=True)
            self._try_to_save(self.state)

    def put_back(self) -> tuple[str, ...]:
        """Bring back what was taken down; return the names of what runs again.

        Raises:
            ServerError: one of them could not be started again (JSE922). What is left is tried again by `restore`.
        """
        if not self.taken or self.state is None:
            return ()
        from jetson_specdec.server.interrupts import held
        from jetson_specdec.server.lock import locked
        from jetson_specdec.server.restoring import bring_back

        with held(), locked(self._folder, wait_s=60.0):
            done, self.state = bring_back(self.state, self._runner, save=self._try_to_save, grace_s=self._grace_s)
            if self.state.taken_down:
                # From now on it is anybody's: this program may go on living and never try again.
                self.state = evolve(self.state, owner_pid=0)
                self._try_to_save(self.state)
            else:
                self._forget()
        if done.failed:
            raise ServerError("JSE922", name=done.failed[0][0], said=done.failed[0][1])
        return (*done.brought_back, *done.running)

    def leave(self, occupants: tuple[Occupant, ...]) -> tuple[str, ...]:
        """Let others run instead of what was taken down, with the same care; return their names.

        Args:
            occupants: what is to run; none: nothing, and containers that wait get their own names back.

        Raises:
            ServerError: one of them could not be started (JSE922); what was taken down is back then, as far as it could
                be.
        """
        from jetson_specdec.server.displace import intended
        from jetson_specdec.server.interrupts import held

        with held():
            before = self.taken
            if occupants:
                number = len(before)
                wanted = [intended(each, run_id=self._run_id, number=number + n) for n, each in enumerate(occupants)]
            else:
                wanted = [evolve(each, running=False) for each in before if each.rename is not None]
            state = evolve(self._new(tuple(wanted)), otherwise=before if occupants else (), ended=True)
            if not wanted:
                self._forget()
                return ()
            self._try_to_save(state)
            self.state = state
            return self.put_back()

    def _try_to_save(self, state: RunState) -> None:
        """Write down how far it is; a full disk must not keep a server from coming back."""
        with contextlib.suppress(OutputError):
            state.save(self._folder)

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            (self._folder / f"{self._run_id}.json").unlink(missing_ok=True)
        self.state = None
