# SPDX-License-Identifier: Apache-2.0
"""Work that takes several starts: claimed, so that a second one, or a clean-up in between, finds out and waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jetson_specdec.errors import OutputError, ServerError
from jetson_specdec.files import reason_of
from jetson_specdec.server.lock import locked
from jetson_specdec.server.state import Claim, claims

__all__ = ["claimed"]


@contextmanager
def claimed(folder: Path, **about: str) -> Iterator[Claim]:
    """Claim the servers of this user for as long as the block lasts.

    A program that is killed leaves its claim behind; `restore` removes it.

    Args:
        folder: of the state files; made where it is missing.
        **about: what is being done, for whoever finds the claim.

    Raises:
        ServerError: another program is at work (JSE935).
        OutputError: the claim could not be written, so nothing else could either.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OutputError("JSE007", path=str(folder), reason=reason_of(error)) from error
    with locked(folder):
        for each in claims(folder):
            raise ServerError("JSE935", pid=each.owner_pid, path=str(folder))
        claim = Claim.make(folder, **about)
    try:
        yield claim
    finally:
        claim.drop(folder)
