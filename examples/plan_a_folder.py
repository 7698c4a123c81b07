# SPDX-License-Identifier: Apache-2.0
"""Plan for every recipe in a folder and print one line each.

Run it as `python examples/plan_a_folder.py examples/recipes thor-t5000`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from jetson_specdec import Planner
from jetson_specdec.errors import InputError


def main(folder: str, module: str, l4t: str | None = None) -> None:
    planner = Planner()
    for path in sorted(Path(folder).iterdir()):
        try:
            plan = planner.plan(path, device=module, l4t=l4t)
        except InputError as error:
            print(f"{path.name}: {error}")
            continue
        config = plan.speculative_config or {}
        print(f"{path.name}: {plan.outcome} {config.get('model', '')} {plan.utilization.after}")


if __name__ == "__main__":
    main(*sys.argv[1:])
