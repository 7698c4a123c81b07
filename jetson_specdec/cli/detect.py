# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec detect`: which board is this."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import board, open_host, print_json, tell

if TYPE_CHECKING:
    from cyclopts import Parameter


def detect(
    *,
    record: Path | None = None,
    recorded: Path | None = None,
    audit: Path | None = None,
    device: str | None = None,
    l4t: str | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Say which board this is, and how that is known.

    Parameters
    ----------
    record:
        Save what this board shows into a new folder, to attach to a bug report; serial numbers and secrets left out.
    recorded:
        Read such a folder instead of this machine.
    audit:
        Read the JSON of jetson-memory-audit or jetson-diagnostic instead.
    device:
        Describe this module instead of detecting one.
    l4t:
        L4T release of that module.
    json:
        Print as JSON.
    """
    if record is not None:
        from jetson_specdec.device.record import record as save

        written = save(open_host(recorded), record)
        tell("label-recorded", count=len(written), path=str(record))
    _, found = board(device=device, l4t=l4t, audit=audit, recorded=recorded)
    if json:
        print_json(found.to_json())
    else:
        from jetson_specdec.render.device import print_device

        print_device(found)
    return 0
