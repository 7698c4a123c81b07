# SPDX-License-Identifier: Apache-2.0
"""A `PATH` with stand-ins for `vllm`, `docker`, `systemctl`, `journalctl`, and a machine with a memory of our own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from jetson_specdec.host import LocalHost
from jetson_specdec.server import Server

PACKAGE_PARENT = str(Path(__import__("jetson_specdec").__file__).parents[1])


class MemoryHost(LocalHost):
    """This machine, with a memory that the test decides about; the kernel log is empty."""

    def __init__(self, available_gib=50.0, total_gib=61.4):
        super().__init__()
        self.total_gib = total_gib
        self.available_gib = available_gib

    def read_text(self, path, *, limit=1 << 20):
        if path == "/proc/meminfo":
            kib = 2**20
            return (
                f"MemTotal:       {int(self.total_gib * kib)} kB\nMemAvailable:   {int(self.available_gib * kib)} kB\n"
                "SwapTotal:       1024 kB\nSwapFree:        512 kB\n"
            )
        if path == "/proc/pressure/memory":
            return "some avg10=1.50 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.25 avg60=0.00 avg300=0.00 total=1\n"
        return super().read_text(path, limit=limit)

    def run(self, argv, *, timeout=10.0):
        return None


def _script(path: Path, *words: str) -> None:
    path.write_text("#!/bin/sh\nexec " + " ".join(words) + ' "$@"\n')
    path.chmod(0o755)


def until(look, seconds=20.0):
    """Wait until `look` gives something true; fail after a bounded time."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return seen


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """A folder with the stand-ins."""
    folder = tmp_path_factory.mktemp("bin")
    python = sys.executable
    _script(folder / "vllm", python, "-m", "jetson_specdec.testing.fake_vllm")
    _script(folder / "docker", python, "-m", "jetson_specdec.testing.fake_docker")
    for name in ("systemctl", "journalctl"):
        _script(folder / name, python, "-m", "jetson_specdec.testing.fake_systemd", name)
    return folder


@pytest.fixture
def environ(programs, tmp_path):
    """The environment recipes run in; `daemon` adds the stand-in's address to it."""
    known = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR")}
    return {
        **known,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": PACKAGE_PARENT,
        "JETSON_SPECDEC_FAKE_DAEMON": str(tmp_path / "no-daemon"),
    }


@pytest.fixture
def fake(environ):
    """Describe the fake server: `fake(startup_s=1)`."""

    def describe(**truth):
        environ["JETSON_SPECDEC_FAKE"] = json.dumps({"time_scale": 0.01, **truth})

    describe()
    return describe


@pytest.fixture
def daemon(environ):
    """A running stand-in for the daemons of docker and systemd; its folder."""
    folder = Path(tempfile.mkdtemp(prefix="fd"))  # a socket's path has to be short
    environ["JETSON_SPECDEC_FAKE_DAEMON"] = str(folder)
    environ["JETSON_SPECDEC_SYSTEMD_DIR"] = str(folder / "run")
    process = subprocess.Popen(
        [sys.executable, "-m", "jetson_specdec.testing.fake_daemon", str(folder)],
        env={**environ, "JETSON_SPECDEC_FAKE": json.dumps({"time_scale": 0.01})},
    )
    until(lambda: (folder / "socket").exists())
    yield folder
    process.terminate() if _ask(environ, do="shutdown") is None else None
    process.wait(20)
    shutil.rmtree(folder)


def _ask(environ, **request):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(environ["JETSON_SPECDEC_FAKE_DAEMON"] + "/socket")
        with client.makefile("rw") as stream:
            stream.write(json.dumps(request) + "\n")
            stream.flush()
            return json.loads(stream.readline())


@pytest.fixture
def ask(environ):
    """Ask the stand-in daemon."""
    return lambda **request: _ask(environ, **request)


@pytest.fixture
def host():
    return MemoryHost()


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def tools():
    """Waiting and ports, for tests that need more than one."""
    return {"until": until, "free_port": free_port, "MemoryHost": MemoryHost}


@pytest.fixture
def server(environ, fake, tmp_path, host):
    """Make servers that are ended whatever happens to the test."""
    made = []

    def make(recipe, **options):
        settings = {
            "environ": environ,
            "log_dir": tmp_path / "logs",
            "state_dir": tmp_path / "state",
            "host": host,
            "start_timeout_s": 30,
            "request_timeout_s": 20,
            "grace_s": 5,
            "settle_s": 3,
            "back_timeout_s": 20,
            **options,
        }
        one = Server(recipe, **settings)
        made.append(one)
        return one

    yield make
    for one in made:
        if one.running:
            one.stop()


@pytest.fixture
def marked():
    """Processes that carry the mark of a start."""
    from jetson_specdec.server.state import marked_processes

    return marked_processes
