# SPDX-License-Identifier: Apache-2.0
"""How fast this package starts and plans, side by side in one run.

    python tests/benchmarks/bench_start.py [--rounds 15]

Reports the median of interleaved rounds: bare Python, `import jetson_specdec`, a cold `jetson-specdec plan` of a docker
recipe, where that time goes, and plans per second in one process. Aims: import ≤ 40 ms over bare Python, cold plan
≤ 350 ms on two cores, ≥ 300 plans a second.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = """docker run --rm --runtime nvidia --network host \\
  -v "$HOME/.cache/huggingface:/root/.cache/huggingface" \\
  vllm/vllm-openai:v0.32.0 \\
  --model meta-llama/Llama-3.1-8B-Instruct \\
  --max-model-len 8192 \\
  --gpu-memory-utilization 0.75   # the desktop needs the rest
"""
BOARD = ["--device", "thor-t5000", "--l4t", "38.4.0"]


def wall_ms(argv: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def plans_per_second(seconds: float) -> float:
    from jetson_specdec import Planner

    planner = Planner()
    planner.plan(RECIPE, device="thor-t5000", l4t="38.4.0")
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        planner.plan(RECIPE, device="thor-t5000", l4t="38.4.0")
        count += 1
    return count / (time.perf_counter() - start)


def slowest_imports(argv: list[str], count: int = 12) -> list[tuple[float, str]]:
    """Self time in ms of the modules a cold plan imports, slowest first."""
    done = subprocess.run([sys.executable, "-X", "importtime", *argv], capture_output=True, text=True, check=True)
    rows = []
    for line in done.stderr.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if len(parts) == 3 and parts[0].strip().isdigit():
            rows.append((int(parts[0]) / 1000, parts[2].strip()))
    packages: dict[str, float] = {}
    for cost, name in rows:
        top = name.split(".")[0]
        packages[top] = packages.get(top, 0.0) + cost
    return sorted(((cost, name) for name, cost in packages.items()), reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "serve.sh"
        recipe.write_text(RECIPE)
        plan = ["-m", "jetson_specdec", "plan", str(recipe), *BOARD]
        rows: dict[str, list[str]] = {
            "bare Python": ["-c", "pass"],
            "import jetson_specdec": ["-c", "import jetson_specdec"],
            "jetson-specdec --version": ["-m", "jetson_specdec", "--version"],
            "jetson-specdec plan": plan,
            "jetson-specdec plan --json": [*plan, "--json"],
        }
        times: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(options.rounds):
            for name, words in rows.items():
                times[name].append(wall_ms([sys.executable, *words]))
        bare = statistics.median(times["bare Python"])
        print(f"Python {sys.version.split()[0]}, median of {options.rounds} interleaved rounds")
        print(f"{'':28}{'median':>10}{'fastest':>10}{'over bare':>11}")
        for name, values in times.items():
            middle = statistics.median(values)
            print(f"{name:28}{middle:7.0f} ms{min(values):7.0f} ms{middle - bare:8.0f} ms")
        print(f"plans per second in one process: {plans_per_second(options.seconds):.0f}")
        print("where the imports of a cold plan go (self time by package, ms):")
        for cost, name in slowest_imports(plan):
            print(f"  {cost:6.1f}  {name}")


if __name__ == "__main__":
    main()
