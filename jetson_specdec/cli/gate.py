# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec gate`: did speculation help?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import print_json
from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.measurements import BenchReport


def gate(
    *reports: str,
    before: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    after: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    policy: Path | None = None,
    report_format: Annotated[str | None, Parameter(name="--format")] = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Judge benchmarks with speculation against benchmarks without; the exit code is the verdict.

    0 enable, 10 disable, 11 marginal, 12 inconclusive or incomplete, 13 invalid, 14 enable_limited.

    Parameters
    ----------
    reports:
        Reports in pairs: BEFORE AFTER, then BEFORE AFTER of the next pair. Files of one arm that hold other
        concurrencies are joined with commas: c1.json,c8.json.
    before:
        Reports without speculation, one a pair; instead of the pairs.
    after:
        Reports with speculation, in the same order.
    policy:
        TOML file with other thresholds.
    report_format:
        Format of the files, where it is not recognised.
    json:
        Print the verdict as JSON.
    """
    from jetson_specdec.extensions import load_policy
    from jetson_specdec.gate import Gate

    rules = load_policy(policy)
    befores, afters = _arms(reports, before or [], after or [])
    verdict = Gate(policy=rules).judge(
        [_read(name, report_format) for name in befores], [_read(name, report_format) for name in afters]
    )
    if json:
        print_json(verdict.to_json())
    else:
        from jetson_specdec.render.gate import print_verdict

        print_verdict(verdict)
    return verdict.exit_code


def _arms(reports: tuple[str, ...], before: list[str], after: list[str]) -> tuple[list[str], list[str]]:
    if reports and (before or after):
        option = "--before" if before else "--after"
        raise OptionError("JSE642", option=option)
    if len(reports) % 2:
        raise OptionError("JSE691", count=len(reports))
    return ([*reports[::2]], [*reports[1::2]]) if reports else (before, after)


def _read(name: str, report_format: str | None) -> BenchReport:
    """Read a report, or several files of one arm joined with commas."""
    from jetson_specdec.measurements import read_report

    parts = [part for part in name.split(",") if part]
    if len(parts) > 1 and not Path(name).exists():
        return read_report([Path(part) for part in parts], format=report_format)
    return read_report(Path(name), format=report_format)
