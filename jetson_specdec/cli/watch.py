# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec watch`: is it still what the verdict rested on?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import print_json
from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter


def watch(
    url: str,
    /,
    *,
    reference: Path,
    once: Annotated[bool, Parameter(negative="")] = False,
    interval: float = 300.0,
    state: Path | None = None,
    api_key_env: str | None = None,
    insecure: Annotated[bool, Parameter(negative="")] = False,
    policy: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Poll a server's counters; ends with 30 when acceptance or speed drifted, 31 when it cannot be reached.

    Parameters
    ----------
    url:
        Address of the server, such as http://127.0.0.1:8000.
    reference:
        Evidence folder of tune, or a benchmark report with speculation.
    once:
        Compare once and end: with --state against the look that was saved, else against one --interval earlier.
    interval:
        Seconds between looks.
    state:
        File that keeps the last look from one call to the next (systemd timers).
    api_key_env:
        Name of the environment variable with the server's key.
    insecure:
        Do not check the TLS certificate.
    policy:
        TOML file with other thresholds (drift_acceptance_drop, drift_throughput_drop, drift_requests, min_drafts).
    json:
        Print one JSON document a look.
    """
    from jetson_specdec.extensions import load_policy
    from jetson_specdec.tune.watching import fetch_metrics, reference_from, root_of
    from jetson_specdec.tune.watching import watch as look

    if interval <= 0:
        raise OptionError("JSE955", option="--interval", value=interval, reason="seconds above 0")
    key = None
    if api_key_env is not None:
        key = os.environ.get(api_key_env)
        if not key:
            raise OptionError("JSE690", name=api_key_env)
    rules = load_policy(policy)
    code = 0
    for result in look(
        lambda: fetch_metrics(url, api_key=key, verify=not insecure),
        reference_from(reference),
        policy=rules,
        interval_s=interval,
        once=once,
        state=state,
        server=root_of(url),
    ):
        code = result.exit_code
        if json:
            print_json(result.to_json())
        else:
            from jetson_specdec.render.watch import print_watch

            print_watch(result)
    return code
