# SPDX-License-Identifier: Apache-2.0
"""The real engine, models whose acceptance is known beforehand, and a folder in which to use them as a user would.

Nothing here is collected, or even imported, unless it is asked for: `nox -s real_vllm`, which names the engine's
virtual environment with JETSON_SPECDEC_REAL_VLLM and calls `pytest -m real_vllm`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODEL = "tiny"
K = 3
QUIET = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
BOARD = ("--device", "agx-orin-64gb", "--l4t", "39.0.0", "--vllm-version", "0.32.0")
"""Plan as for a board that starts with k = 3 on upstream vLLM; what runs is this machine."""


def pytest_ignore_collect(collection_path, config):
    """Leave these tests alone unless they are named: the usual suite does not even read them."""
    words = (*config.args, config.option.markexpr or "")
    asked = any("real_vllm" in str(word) for word in words)
    return None if asked or collection_path.suffix != ".py" else True


@pytest.fixture(scope="session")
def engine():
    """The virtual environment with vLLM."""
    named = os.environ.get("JETSON_SPECDEC_REAL_VLLM")
    if not named or not (Path(named) / "bin" / "vllm").exists():
        pytest.exit("JETSON_SPECDEC_REAL_VLLM names no virtual environment with vLLM: run `nox -s real_vllm`", 2)
    return Path(named)


@pytest.fixture(scope="session")
def models(engine, tmp_path_factory):
    """A folder with the checkpoints, their prompts and what is known about them."""
    out = tmp_path_factory.mktemp("models")
    began = time.monotonic()
    words = [str(engine / "bin" / "python"), str(HERE / "models.py"), str(out)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    say(f"models made in {time.monotonic() - began:.0f} s")
    return out


class Walk:
    """What target and draft say, word by word, and so what verification accepts."""

    def __init__(self, known):
        self.alpha = known["alpha"]
        self.next, self.draft_next = known["next"], known["draft_next"]
        self.cycles = known["cycles"]

    def rounds(self, last, tokens, k):
        """Return how many drafts were accepted in each round of a request.

        Args:
            last: the last word of its prompt.
            tokens: how many it generates. The first comes from the prompt, without drafting.
            k: drafted tokens a round.
        """
        at, made, accepted = self.next[last], 1, []
        while made < tokens:
            drafted, right = at, 0
            while right < k:
                drafted = self.draft_next[drafted]
                if drafted != self.next[at]:
                    break
                at = self.next[at]
                right += 1
            at = self.next[at]  # the target's own
            accepted.append(right)
            made += right + 1
        return accepted

    def expected(self, prompts, tokens, k):
        """Return (rounds, accepted, accepted by position) over some prompts (texts)."""
        all_rounds = [right for text in prompts for right in self.rounds(int(text.split()[-1][1:]), tokens, k)]
        by_position = [sum(right > position for right in all_rounds) for position in range(k)]
        return len(all_rounds), sum(all_rounds), by_position


@pytest.fixture(scope="session")
def walk(models):
    return Walk(json.loads((models / "known.json").read_text()))


def say(text):
    sys.stderr.write(f"  [{time.strftime('%H:%M:%S')}] {text}\n")


def until(look, seconds=900.0):
    """Wait until `look` gives something true; fail after a generous time."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.1)
    return seen


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


class Desk:
    """A folder with a recipe, and `jetson-specdec` as a process; ends what is left."""

    def __init__(self, folder, engine, models):
        self.folder, self.engine, self.models = folder, engine, models
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.recipe = folder / "serve.sh"
        self.state = folder / "state"
        self.environ = {**os.environ, "HOME": str(folder), "NO_COLOR": "1"}
        for name in (*QUIET, "JETSON_SPECDEC_REAL_VLLM", "XDG_STATE_HOME"):
            self.environ.pop(name, None)
        self.started = []
        self.write()

    def text(self, *words, target="target", environ=None):
        """Return a recipe as somebody keeps it: an environment, then the command."""
        exports = " ".join(f"{name}={value}" for name, value in (QUIET if environ is None else environ).items())
        command = [
            "vllm", "serve", str(self.models / target), "--served-model-name", MODEL, "--port", str(self.port),
            "--max-model-len", "512", "--max-num-seqs", "8", "--gpu-memory-utilization", "0.5", "--dtype", "float32",
            "--enforce-eager", *map(str, words),
        ]  # fmt: skip
        lines = ["#!/bin/bash", f"export {exports}" if exports else ":", f"source {self.engine}/bin/activate"]
        return "\n".join([*lines, shlex.join(command), ""])

    def write(self, *words, **more):
        self.recipe.write_text(self.text(*words, **more))
        return self.recipe

    def config(self, **more):
        """Return words that add speculation."""
        known = {"method": "draft_model", "model": str(self.models / "draft"), "num_speculative_tokens": K}
        return "--speculative-config", json.dumps({**known, **more})

    def words(self, *words):
        return [sys.executable, "-m", "jetson_specdec", *map(str, words)]

    def run(self, *words, seconds=5400):
        """Run `jetson-specdec`; return the finished process."""
        began = time.monotonic()
        done = subprocess.run(
            self.words(*words), env=self.environ, cwd=self.folder, capture_output=True, text=True, timeout=seconds,
            check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        say(f"{words[0]} ended with {done.returncode} after {time.monotonic() - began:.0f} s")
        return done

    def json(self, *words, code=0):
        done = self.run(*words, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def spawn(self, *words):
        made = subprocess.Popen(
            self.words(*words), env=self.environ, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self.started.append(made)
        return made

    def serve(self):
        """Start the owner's own server, in a session of its own, and wait until it answers."""
        with (self.folder / "own.log").open("ab") as log:
            own = subprocess.Popen(
                ["bash", str(self.recipe)], env=self.environ, cwd=self.folder, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self.started.append(own)
        began = time.monotonic()
        until(self.answers)
        say(f"the owner's server answers after {time.monotonic() - began:.0f} s")
        return own

    def get(self, path, body=None):
        """Return the server's answer, or None where there is none."""
        import http.client

        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = None if body is None else json.dumps(body)
            link.request("GET" if body is None else "POST", path, data, {"Content-Type": "application/json"})
            answer = link.getresponse()
            return answer.read().decode() if answer.status == 200 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            link.close()

    def answers(self):
        return self.get("/health") is not None

    def complete(self, prompt, tokens):
        """Return the words of a completion as token ids."""
        body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        answer = self.get("/v1/completions", body)
        assert answer is not None, "no answer"
        return [int(word[1:]) for word in json.loads(answer)["choices"][0]["text"].split()]

    def engines(self):
        """Return pid → command line of every process of an engine that was started in this folder.

        By its folder, because the engine's own processes overwrite their command line, and hang in the air when the
        server above them is killed.
        """
        found = {}
        for place in Path("/proc").iterdir():
            if not place.name.isdigit():
                continue
            try:
                words = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                here = (place / "cwd").readlink() == self.folder.resolve()
            except OSError:
                continue
            if here and words and ("VLLM::" in words or f"--port {self.port}" in words or "multiprocessing" in words):
                found[int(place.name)] = words
        return found

    def speculating(self):
        return [pid for pid, words in self.engines().items() if "--speculative-config" in words]

    def port_free(self):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return probe.connect_ex(("127.0.0.1", self.port)) != 0

    def stop(self):
        """End every engine on this desk's port, politely; wait until it is gone."""
        for pid in self.engines():
            _signal(pid, signal.SIGTERM)
        until(lambda: not self.engines(), 120)

    def close(self):
        for one in self.started:
            if one.poll() is None and one.stdout is not None:
                one.kill()
                one.communicate(timeout=60)
        for pid in self.engines():
            _signal(pid, signal.SIGKILL)
        for one in self.started:
            one.wait(60)


def _signal(pid, number):
    with contextlib.suppress(OSError):
        os.kill(pid, number)


@pytest.fixture
def desk(tmp_path, engine, models):
    made = Desk(tmp_path, engine, models)
    made.until, made.board = until, BOARD
    yield made
    made.close()


@pytest.fixture
def server(desk):
    """Make `Server`s for recipes of this desk; ended whatever happens to the test."""
    from jetson_specdec.server import Server

    made = []

    def make(recipe, **options):
        settings = {
            "environ": desk.environ, "log_dir": desk.folder / "logs", "state_dir": desk.state, "start_timeout_s": 600,
            "request_timeout_s": 300, "grace_s": 60, "settle_s": 30, **options,
        }  # fmt: skip
        one = Server(recipe, **settings)
        made.append(one)
        return one

    yield make
    for one in made:
        if one.running:
            one.stop()
