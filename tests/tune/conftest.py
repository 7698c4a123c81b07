# SPDX-License-Identifier: Apache-2.0
"""A laboratory: tune without processes and in virtual time, and real ones with a stand-in `vllm`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from jetson_specdec.errors import StartFailed
from jetson_specdec.host import LocalHost
from jetson_specdec.loadgen import Benchmark
from jetson_specdec.logs import diagnose
from jetson_specdec.policy import Policy
from jetson_specdec.server import Server, Started, Stopped
from jetson_specdec.server.address import Address
from jetson_specdec.server.failure import Failure, note_failure, refine
from jetson_specdec.server.running import note
from jetson_specdec.server.watchdog import MemorySample
from jetson_specdec.testing import FakeStartFailed, FakeVllm, Truth
from jetson_specdec.testing.fake_args import ArgumentFailure
from jetson_specdec.tune import Tools, TuneSettings, tune

RECIPE = "#!/bin/bash\n# ours\nvllm serve Qwen/Qwen3-8B --port 8391 --max-num-seqs 16\n"
PACKAGE_PARENT = str(Path(__import__("jetson_specdec").__file__).parents[1])


class QuietHost(LocalHost):
    """This machine with no programs to ask, and a memory that never changes."""

    def run(self, argv, *, timeout=10.0):
        return None

    def read_text(self, path, *, limit=1 << 20):
        if path == "/proc/meminfo":
            return "MemTotal: 64000000 kB\nMemAvailable: 50000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        return super().read_text(path, limit=limit)


class Lab:
    """Servers that exist only as a `FakeVllm`; `launches` tells what was started with which arguments."""

    def __init__(self, folder, **truth):
        self.folder = folder
        self.board = None
        self.truth = Truth(**truth)
        self.now = 0.0
        self.launches = []
        self.back = []
        self.occupants = ()
        self.returned = ()
        self.running = None
        self.fail = lambda fake, number: None
        self.before_start = lambda server: None
        self.on_bench = lambda number: None
        self.change = lambda report, number: report
        self.benches = 0
        self.on_stop = []
        self.options = {}
        self.page = 'vllm:cache_config_info{block_size="128",engine="0",num_gpu_blocks="84"} 1.0\n'
        self.recipe = folder / "serve.sh"
        self.recipe.write_text(RECIPE)

    @property
    def tools(self):
        return Tools(
            host=QuietHost(), server=self._server, benchmark=self._bench, clock=lambda: self.now, sleep=self._sleep,
            metrics=lambda server: self.page, back_wait_s=0.0,
            state_dir=self.board.state if self.board else self.folder / "state",
            environ=self.board.environ if self.board else {"PATH": os.environ["PATH"]},
        )  # fmt: skip

    def _sleep(self, seconds):
        self.now += seconds

    def _server(self, plan, index, **options):
        return (_Displacing if self.board else _Server)(self, plan, options)

    def _bench(self, url, *, host, device, **options):
        self.benches += 1
        self.on_bench(self.benches)
        fake = self.running
        fake.change(seed=self.benches)
        began = self.benches
        report = Benchmark(url, **options, sample_conditions=False, connection=fake.connection()).run()
        self.now += sum(run.duration_s for run in report.runs)
        return self.change(report, began)

    def tune(self, **more):
        asked = {
            "settings": TuneSettings(num_prompts=5, output_len=32),
            "device": "thor-t5000",
            "l4t": "38.4.0",
            "vllm_version": "0.32.0",
            "evidence": self.folder / "evidence",
            "tools": self.tools,
            "policy": Policy(bootstrap_resamples=100),
            **self.options,
            **more,
        }
        return tune(self.recipe, **asked)


class _Server:
    def __init__(self, lab, plan, options):
        self.lab, self.plan, self.options = lab, plan, options
        self.address = Address(port=1)
        self.run_id = f"run{len(lab.launches)}"
        self.log_path = Path(options.get("log_dir", "")) / f"{self.run_id}-{len(lab.launches) + 1}.log"
        self.base_url, self.root_url = "http://127.0.0.1:1/v1", "http://127.0.0.1:1"
        self.taken = False

    def in_the_way(self):
        return self.lab.occupants

    def start(self):
        lab = self.lab
        number = len(lab.launches) + 1
        lab.launches.append(self.plan)
        self.taken = bool(lab.occupants) and self.options["replace"]
        lab.now += 60
        lab.before_start(self)
        try:
            fake = FakeVllm(list(self.plan.serve_args), truth=lab.truth, **(lab.fail(self, number) or {}))
            fake.prepare()
        except ArgumentFailure as error:
            raise self._failed(error.printed + "\n", "exited", 2) from None
        except FakeStartFailed as error:
            why = "watchdog" if error.failure.memory_falls else "timeout" if error.failure.end == "hang" else "exited"
            kernel = error.failure.filled({"pid": 7, "core_pid": 8})["kernel"]
            raise self._failed(fake.log.text, why, error.failure.exit_code, kernel) from None
        log = self.log_path
        fake.announce(8391)
        log.write_text(fake.log.text)
        if fake.failure is not None:
            reply = asyncio.run(fake.app.handle("POST", "/v1/completions", {}, b'{"prompt": "a", "max_tokens": 2}'))
            raise self._failed(fake.log.text, "request", 0, detail=f"HTTP {reply.status}")
        assert lab.running is None, "two servers at once"
        lab.running = fake
        return Started(
            base_url=self.base_url, root_url=self.root_url, model=fake.model, run_id=self.run_id, log_path=str(log),
            ready_s=60.0, first_completion_s=0.1, first_completion_tokens=16,
        )  # fmt: skip

    def _failed(self, text, why, exit_code, kernel=(), *, detail=None):
        """Make of a start that failed what `Server` makes of it."""
        log, failure = self.log_path, Failure(why, detail)
        log.write_text(text)
        breach = MemorySample(total_bytes=2**36, available_bytes=2**26) if why == "watchdog" else None
        if breach is not None:
            note(log, "watchdog stopped the server: 0.1 GiB available, floor 1.0 GiB")
        note_failure(log, failure, 1800.0)
        dmesg = "\n".join(f"[ 1.000000] {line}" for line in kernel) or None
        found = refine(
            diagnose(log.read_text(), exit_code=exit_code, dmesg=dmesg, recipe=self.plan.recipe.after),
            failure,
            speculates=self.plan.speculative_config is not None,
            exit_code=exit_code,
            breach=breach,
            policy=self.options["policy"],
            timeout_s=1800.0,
        )
        return StartFailed("JSE932", diagnosis=found, log_path=str(log), cause=found.cause, remedy=found.remedy)

    def stop(self, *, put_back=False):
        if self.lab.on_stop:
            raise self.lab.on_stop.pop()
        self.lab.running = None
        self.lab.now += 5
        return Stopped(port_free=True, memory_back=True, available_bytes=None, seconds=5.0)

    @property
    def taken_down(self):
        return tuple(self.lab.occupants) if self.taken else ()

    def returned(self):
        return self.lab.returned

    def _real(self):
        tools = self.lab.tools
        return Server(self.plan, 0, environ=tools.environ, state_dir=tools.state_dir)

    def left_running(self, path, **more):
        return self._real().left_running(path, **more)

    def leave(self, occupants):
        assert self.lab.running is None
        return self._real().leave(occupants)

    def put_back(self):
        assert self.lab.running is None, "the old server comes back only when ours is gone"
        if not self.taken:
            return ()
        self.taken = False
        names = tuple(each.name for each in self.lab.occupants)
        self.lab.back += names
        return names


class _Displacing(_Server):
    """One that takes real servers of a board down and brings them back, and only pretends to start itself."""

    def __init__(self, lab, plan, options):
        super().__init__(lab, plan, options)
        board = lab.board
        logs = options.get("log_dir", lab.folder / "logs")
        self.real = Server(plan, 0, environ=board.environ, state_dir=board.state, log_dir=logs, grace_s=5)

    def in_the_way(self):
        return self.real.in_the_way()

    def start(self):
        room, address = self.real._room, self.real.address
        room.make(self.in_the_way(), port=address.port, replace=self.options["replace"])
        return super().start()

    def stop(self, *, put_back=False):
        stopped = super().stop()
        self.real._room.ended(clean=True, firm=False)
        return stopped

    @property
    def taken_down(self):
        return self.real.taken_down

    def returned(self):
        return self.real.returned()

    def left_running(self, path, **more):
        return self.real.left_running(path, **more)

    def leave(self, occupants=()):
        assert self.lab.running is None
        return self.real.leave(occupants)

    def put_back(self):
        assert self.lab.running is None
        return self.real.put_back()


@pytest.fixture
def lab(tmp_path):
    def make(*, board=None, **truth):
        if board is None:
            return Lab(tmp_path, **truth)
        folder = tmp_path / "lab"
        folder.mkdir()
        made = Lab(folder, **truth)
        made.board, made.recipe = board, board.recipe
        return made

    return make


# --- real processes ---------------------------------------------------------------------------------------------------


def free_port():
    """Return a port below the range that outgoing connections take theirs from, so that none of them is in the way."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        return port


def until(look, seconds=120.0):
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.02)
    return seen


class Board:
    """A folder with a recipe, a `vllm` on the path, and `jetson-specdec tune` as a process."""

    def __init__(self, folder):
        self.folder = folder
        self.port = free_port()
        self.started = []
        self.begun = []
        self.mortal = None
        self.socket = None
        self.recipe = folder / "serve.sh"
        self.recipe.write_text(RECIPE.replace("8391", str(self.port)).replace("seqs 16", "seqs 4"))
        self.state = folder / "state"
        self.evidence = folder / "evidence"
        bin_dir = folder / "bin"
        bin_dir.mkdir()
        (bin_dir / "vllm").write_text(f'#!/bin/sh\nexec {sys.executable} -m jetson_specdec.testing.fake_vllm "$@"\n')
        (bin_dir / "vllm").chmod(0o755)
        (folder / "policy.toml").write_text(
            "[policy]\nmin_pairs = 1\nmax_pairs = 1\nsearch_launches = 1\nbootstrap_resamples = 200\n"
            "cooldown_seconds = 0\n"
        )
        self.environ = {
            "PATH": f"{bin_dir}:{os.environ['PATH']}",
            "PYTHONPATH": PACKAGE_PARENT,
            "HOME": str(folder),
            "NO_COLOR": "1",
        }
        self.fake()

    def fake(self, **truth):
        known = {"time_scale": 0.1, "step_ms": 80, "draft_ms": 0.5, "verify_ms": 0.05, "acceptance": [0.9, 0.8, 0.7]}
        self.environ["JETSON_SPECDEC_FAKE"] = json.dumps({**known, **truth})

    def words(self, *more):
        return [
            sys.executable, "-m", "jetson_specdec", "tune", str(self.recipe), "--device", "thor-t5000", "--l4t",
            "38.4.0", "--vllm-version", "0.32.0", "--num-prompts", "3", "--output-len", "24", "--concurrency", "1",
            "--policy", str(self.folder / "policy.toml"), "--state-dir", str(self.state), "--json", *map(str, more),
        ]  # fmt: skip

    def start(self, *more):
        made = subprocess.Popen(
            self.words("--yes", "--evidence", self.evidence, *more), env=self.environ, cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(made)
        return made

    def tune(self, *words, deaths=()):
        """Run `jetson-specdec tune` in a process that may die on the way; return its code, answer and remarks."""
        return self.finish(self.begin(*words, deaths=deaths))

    def begin(self, *words, deaths=()):
        out, err = (self.folder / f"{name}.{len(self.begun)}" for name in ("out", "err"))
        for path in (out, err):
            path.touch()  # there also where it is killed before it opens them
        pid = self.mortal(
            argv=[*self.words("--yes", *words)[3:]], env=self.environ, cwd=str(self.folder), out=str(out), err=str(err),
            deaths=deaths,
        )["pid"]  # fmt: skip
        self.begun.append(pid)
        return pid, out, err

    def finish(self, begun):
        pid, out, err = begun
        code = self.mortal(wait=pid)["code"]
        self.begun[self.begun.index(pid)] = None
        return code, out.read_text(), err.read_text()

    def restore(self):
        """Run `tune --restore`; return what it says it did."""
        pid, out, err = self.begin("--restore")
        code, said, remarks = self.finish((pid, out, err))
        assert code == 0, (said, remarks)
        return json.loads(said)["restored"]

    def run(self, *words):
        return subprocess.run(
            [sys.executable, "-m", "jetson_specdec", *map(str, words)], env=self.environ, cwd=self.folder,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def serve(self):
        """Start the owner's own server, in a session of its own."""
        old = subprocess.Popen(
            ["bash", str(self.recipe)], env=self.environ, cwd=self.folder, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(old)
        until(self.answers)
        return old

    def daemon(self):
        """Start the stand-in for the Docker daemon."""
        folder = Path(tempfile.mkdtemp(prefix="fd"))  # a socket's path has to be short
        systemd = [(name, f"fake_systemd {name}") for name in ("systemctl", "journalctl")]
        for name, module in [("docker", "fake_docker"), *systemd]:
            script = self.folder / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} -m jetson_specdec.testing.{module} "$@"\n')
            script.chmod(0o755)
        self.environ["JETSON_SPECDEC_FAKE_DAEMON"] = str(folder)
        self.environ["JETSON_SPECDEC_SYSTEMD_DIR"] = str(folder / "run")
        made = subprocess.Popen(
            [sys.executable, "-m", "jetson_specdec.testing.fake_daemon", str(folder)], env=self.environ
        )
        until(lambda: (folder / "socket").exists())
        self.started.append(made)
        self.socket = folder
        return made

    def managed(self, kind):
        """Let the recipe be a `container`, a `compose` service or a `unit`, and return what starts the old server."""
        self.daemon()
        image, cache = "vllm/vllm-openai:v0.32.0", "/root/.cache/huggingface"
        words = "--model Qwen/Qwen3-8B --max-num-seqs 4"
        if kind in ("container", "vanishing"):
            options = f"--name llm -p {self.port}:8000 -v {cache}:{cache} {image} {words}"
            self.recipe.write_text(f"#!/bin/bash\ndocker run -it --rm {options}\n")
            removed = "--rm" if kind == "vanishing" else "--restart unless-stopped"
            return ["docker", "run", "-d", *removed.split(), *options.split()]
        if kind == "compose":
            (self.folder / "stack").mkdir()
            self.recipe = self.folder / "stack" / "compose.yaml"
            self.recipe.write_text(
                f"services:\n  db:\n    image: postgres:16\n  llm:\n    image: {image}\n    restart: unless-stopped\n"
                f'    ports: ["{self.port}:8000"]\n    volumes: ["{cache}:{cache}"]\n    command: {words}\n'
            )
            extra = self.folder / "stack" / "extra.yaml"
            extra.write_text("services:\n  llm:\n    environment: {OURS: '1'}\n")
            return ["docker", "compose", "-f", str(self.recipe), "-f", str(extra), "up", "-d", "llm"]
        (self.socket / "units").mkdir()
        self.recipe = self.socket / "units" / "llm.service"
        self.recipe.write_text(
            f"[Service]\nExecStart=vllm serve Qwen/Qwen3-8B --port {self.port} --max-num-seqs 4\nRestart=always\n"
        )
        return ["systemctl", "start", "llm.service"]

    def kept(self):
        """What the daemon keeps, by name."""
        return {one["name"]: one for one in self.ask(do="list")["containers"]}

    def ask(self, **request):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{self.socket}/socket")
            with client.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                return json.loads(stream.readline())

    def command(self, *words):
        done = subprocess.run([*words], env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def answers(self):
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def listeners(self):
        import psutil

        return [
            each.pid
            for each in psutil.net_connections(kind="tcp")
            if each.status == psutil.CONN_LISTEN and each.laddr.port == self.port and each.pid
        ]

    def speculating(self):
        return [pid for pid, words in self._servers() if b"speculative-config" in words]

    def servers(self):
        return [pid for pid, _ in self._servers()]

    def _servers(self):
        """Every process that serves on this board's port, by its command line."""
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit() and int(place.name) != os.getpid():
                try:
                    words = (place / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"fake_vllm" in words and str(self.port).encode() in words:
                    found.append((int(place.name), words))
        return found

    def state_of(self):
        try:
            return json.loads((self.evidence / "state.json").read_text())
        except (OSError, ValueError):
            return {"blocks": []}

    def marked(self):
        """Processes of this board that were started for a measurement."""
        found = []
        home = f"HOME={self.folder}".encode()
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                with contextlib.suppress(OSError):
                    items = (place / "environ").read_bytes().split(b"\0")
                    alive = b"\nState:\tZ" not in (place / "status").read_bytes()
                    if home in items and any(item.startswith(b"JETSON_SPECDEC_RUN=") for item in items) and alive:
                        found.append(int(place.name))
        return found

    def close(self):
        for pid in filter(None, self.begun):
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
            self.mortal(wait=pid)
        for one in self.started:
            if one.poll() is None and one.stdout is not None:
                one.kill()
                one.communicate(timeout=30)
        if self.socket is not None:
            self.ask(do="shutdown")
        for pid in self.servers():
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        for one in self.started:
            one.wait(30)
        if self.socket is not None:
            shutil.rmtree(self.socket)


class Mortals:
    """Starts commands in processes that die where they are told to (`dying.py`)."""

    def __init__(self):
        script = Path(__file__).with_name("dying.py")
        environ = {**os.environ, "PYTHONPATH": PACKAGE_PARENT, "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
        )

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


@pytest.fixture(scope="session")
def mortals():
    made = Mortals()
    yield made
    made.close()


@pytest.fixture
def real(tmp_path, request):
    made = Board(tmp_path)
    made.until = until
    if "mortals" in request.fixturenames:
        made.mortal = request.getfixturevalue("mortals")
    yield made
    made.close()
