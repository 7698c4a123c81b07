# SPDX-License-Identifier: Apache-2.0
"""How fast this package starts and plans, side by side in one run.

    python tests/benchmarks/bench_start.py [--rounds 15]

Reports the median of interleaved rounds: bare Python, `import jetson_specdec`, a cold `jetson-specdec plan` of a docker
recipe (into a pipe, as on a terminal, as JSON), where that time goes, and plans per second in one process. Aims: import
≤ 40 ms over bare Python, cold plan ≤ 350 ms on two cores, ≥ 300 plans a second. Wall time grows with whatever else
runs; CPU time, of the same runs, hardly does. Bytecode is cached as an installation has it, in a folder of this run.
"""

from __future__ import annotations

import argparse
import os
import resource
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


def run_ms(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU time of a program, in ms."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, check=True, env=env)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def plans_per_second(seconds: float) -> float:
    from jetson_specdec import Planner

    planner = Planner()
    planner.plan(RECIPE, device="thor-t5000", l4t="38.4.0")
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        planner.plan(RECIPE, device="thor-t5000", l4t="38.4.0")
        count += 1
    return count / (time.perf_counter() - start)


def slowest_imports(argv: list[str], env: dict[str, str], count: int = 12) -> list[tuple[float, str]]:
    """Self time in ms of the modules a cold plan imports, slowest first."""
    words = [sys.executable, "-X", "importtime", *argv]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=env)
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
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env.pop("FORCE_COLOR", None)
        terminal = {**env, "FORCE_COLOR": "1"}
        rows: dict[str, tuple[list[str], dict[str, str]]] = {
            "bare Python": (["-c", "pass"], env),
            "import jetson_specdec": (["-c", "import jetson_specdec"], env),
            "jetson-specdec --version": (["-m", "jetson_specdec", "--version"], env),
            "jetson-specdec plan --help": (["-m", "jetson_specdec", "plan", "--help"], env),
            "jetson-specdec plan": (plan, env),
            "… as on a terminal": (plan, terminal),
            "jetson-specdec plan --json": ([*plan, "--json"], env),
        }
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for number in range(options.rounds + 1):
            for name, (words, environ) in rows.items():
                taken = run_ms([sys.executable, *words], environ)
                if number:  # the first round writes the bytecode
                    times[name].append(taken)
        bare = statistics.median(wall for wall, _ in times["bare Python"])
        version, load = sys.version.split()[0], os.getloadavg()[0]
        print(f"Python {version}, median of {options.rounds} interleaved rounds, load {load:.1f}")
        print(f"{'':28}{'median':>10}{'fastest':>10}{'over bare':>11}{'CPU time':>10}")
        for name, values in times.items():
            walls, cpus = zip(*values, strict=True)
            middle = statistics.median(walls)
            print(
                f"{name:28}{middle:7.0f} ms{min(walls):7.0f} ms{middle - bare:8.0f} ms{statistics.median(cpus):7.0f} ms"
            )
        print(f"plans per second in one process: {plans_per_second(options.seconds):.0f}")
        print("where the imports of a cold plan go (self time by package, ms):")
        for cost, name in slowest_imports(plan, env):
            print(f"  {cost:6.1f}  {name}")


if __name__ == "__main__":
    main()
