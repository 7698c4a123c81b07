# SPDX-License-Identifier: Apache-2.0
"""Sessions for tests, lint, types, docs, fuzzing and benchmarks; each test session installs the built wheel.

Run one with `nox -s tests`, list them with `nox -l`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "tests"]
nox.options.default_venv_backend = "venv"
PYPROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
ROOT = Path(__file__).parent


def group(name: str) -> list[str]:
    return list(nox.project.dependency_groups(PYPROJECT, name))


def install_wheel(session: nox.Session, extras: str = "") -> None:
    """Build the wheel and install it, so that what is tested is what is shipped."""
    out = Path(session.create_tmp()) / "wheel"
    shutil.rmtree(out, ignore_errors=True)
    session.install("build")
    session.run("python", "-m", "build", "--wheel", "--outdir", str(out), str(ROOT), silent=True)
    wheel = next(out.glob("*.whl"))
    session.install(f"{wheel}{extras}")


@nox.session
def tests(session: nox.Session) -> None:
    """The test suite on the interpreter at hand, in parallel; further arguments go to pytest."""
    install_wheel(session)
    session.install(*group("test"))
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session(python=PYTHONS, name="tests-all")
def tests_all(session: nox.Session) -> None:
    """The test suite on every supported interpreter that is installed."""
    install_wheel(session)
    session.install(*group("test"))
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: style and common faults, and formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy --strict for the package, held to Python 3.10, and how a user's code type-checks."""
    session.install("-e", ".", *group("types"))
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site offline; warnings are errors."""
    session.install("-e", ".", *group("docs"))
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """A longer run of the property tests: a bounded number of examples, reported at the end."""
    install_wheel(session)
    session.install(*group("test"))
    session.run(
        "pytest",
        "-m",
        "hypothesis",
        "--hypothesis-profile=fuzz",
        "--hypothesis-show-statistics",
        *session.posargs,
    )


@nox.session
def real_vllm(session: nox.Session) -> None:
    """The whole loop on the real engine, on this machine's processor: see tests/real_vllm/engine.py for what it needs.

    The CPU build of vLLM is installed once into the user's cache (2.5 GB) and used again; JETSON_SPECDEC_REAL_VLLM
    names another virtual environment with it instead. On two idle cores it takes about 3 minutes to install and 14 to
    run. Further arguments go to pytest: `-- -m "real_vllm and not long"` is what CI runs, in about 7 minutes.
    """
    engine = os.environ.get("JETSON_SPECDEC_REAL_VLLM")
    if engine is None:
        found = subprocess.run(
            [sys.executable, str(ROOT / "tests" / "real_vllm" / "engine.py")],
            stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        if found.returncode != 0:
            session.error("the engine cannot be had here (above it says why)")
        engine = found.stdout.strip()
    install_wheel(session)
    session.install(*group("test"))
    words = session.posargs if "-m" in session.posargs else ["-m", "real_vllm", *session.posargs]
    session.run("pytest", "tests/real_vllm", "-s", *words, env={"JETSON_SPECDEC_REAL_VLLM": engine})


@nox.session
def bench(session: nox.Session) -> None:
    """Benchmarks of this package itself: start, client cost, fidelity, how often the gate errs (about half an hour)."""
    install_wheel(session)
    session.install(*group("test"))
    for script in sorted((ROOT / "tests" / "benchmarks").glob("bench_*.py")):
        session.run("python", str(script), *session.posargs)
