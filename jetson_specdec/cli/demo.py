# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec demo`: plan, measure and judge a sample on any laptop, with a simulated server."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import print_json, tell
from jetson_specdec.errors import OptionError
from jetson_specdec.files import reason_of

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.testing.demo import Demo


def demo(
    *,
    seed: int = 0,
    pairs: int = 3,
    out: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Plan, measure and judge a sample recipe with a simulated server: nothing is downloaded, nothing is changed.

    Parameters
    ----------
    seed:
        Of the simulated spread; the same seed gives the same answer.
    pairs:
        How often the server is measured without and with speculation.
    out:
        New or empty folder for the recipes, the reports and the verdict.
    json:
        Print everything as JSON.
    """
    from jetson_specdec.testing.demo import run_demo

    if out is not None:
        _empty_folder(out)
    made = run_demo(seed=seed, pairs=pairs)
    if out is not None:
        _save(made, out)
    if json:
        print_json(made.to_json())
        return 0
    from jetson_specdec.render.demo import print_demo

    print_demo(made)
    return 0


def _empty_folder(out: Path) -> None:
    """Make sure of the folder before anything takes time.

    Raises:
        OptionError: it cannot be made, or holds something.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = any(out.iterdir())
    except OSError as error:
        raise OptionError("JSE520", path=str(out), reason=reason_of(error)) from error
    if used:
        raise OptionError("JSE521", path=str(out))


def _save(made: Demo, out: Path) -> None:
    from jetson_specdec.files import write_atomic

    files = {"serve.sh": made.plan.recipe.before, "serve.planned.sh": made.plan.recipe.after}
    for arm, reports in (("before", made.before), ("after", made.after)):
        for number, report in enumerate(reports, 1):
            files[f"{arm}-{number}.json"] = dumps(report.to_json(), indent=2, ensure_ascii=False) + "\n"
    files["verdict.json"] = dumps(made.verdict.to_json(), indent=2, ensure_ascii=False) + "\n"
    for name, text in files.items():
        write_atomic(out / name, text)
    tell("label-wrote-files", count=len(files), path=str(out))
