# SPDX-License-Identifier: Apache-2.0
"""Runs `jetson-specdec` in processes that die where they are told to.

It is started once and forks for each command, so that a real process of its own costs no imports. Each line of
standard input is a request: `{"argv", "env", "cwd", "out", "err", "deaths"}` is answered by `{"pid"}`, and
`{"wait": pid}` by `{"code"}` (negative: the signal that ended it).

A death is `[place, when, number, signal]`, or with a fifth item a text that the arguments have to show: `place` is
`module:qualified.name`, `when` is `before` or `after` it, `number` counts the calls that match.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path


def deadly(place, when, number, by, shown=""):
    """Let a function end this process, or send it a signal, at one of its calls."""
    module_name, _, path = place.partition(":")
    *outer, name = path.split(".")
    holder = importlib.import_module(module_name)
    for each in outer:
        holder = getattr(holder, each)
    genuine = getattr(holder, name)
    plain = holder.__dict__.get(name) if isinstance(holder, type) else genuine
    count = [0]

    def strike():
        count[0] += 1
        if count[0] == number:
            os.kill(os.getpid(), by)

    def matches(args, kwargs):
        return not shown or shown in repr(args) + repr(kwargs)

    @functools.wraps(genuine)
    def wrapped(*args, **kwargs):
        if when == "before" and matches(args, kwargs):
            strike()
        result = genuine(*args, **kwargs)
        if when == "after" and matches(args, kwargs):
            strike()
        return result

    setattr(holder, name, staticmethod(wrapped) if isinstance(plain, (classmethod, staticmethod)) else wrapped)


def child(request):
    os.setsid()
    for number, path in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for death in request["deaths"]:
        deadly(*death)
    from jetson_specdec.cli import main

    code = 1
    try:
        code = main(request["argv"])
        sys.stdout.flush()
    finally:
        sys.stderr.flush()
        os._exit(code)


def load():
    """Import what a tune needs, so that it is there after the fork."""
    ours = (
        "apply.workflow", "cli.tune", "gate", "loadgen", "logs", "planner", "recipe.shell", "render.tune",
        "server.displace", "server.restoring", "server.running", "server.server", "tune.ending", "tune.putback",
        "tune.run",
    )  # fmt: skip
    others = ("numpy", "scipy.stats", "openai", "ruamel.yaml", "psutil", "tenacity")
    for name in (*others, *(f"jetson_specdec.{each}" for each in ours)):
        importlib.import_module(name)


def warm_up():
    """Do once what fills caches: read a command line and a recipe, plan, measure a server that is not there."""
    import contextlib
    import io

    from jetson_specdec.cli import main
    from jetson_specdec.loadgen import Benchmark
    from jetson_specdec.testing import FakeVllm, Truth

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["tune", "--restore", "--state-dir", "/nowhere", "--json"])
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "serve.sh"
        recipe.write_text("vllm serve Qwen/Qwen3-8B --port 8397 --max-num-seqs 4\n")
        main(["plan", str(recipe), "--device", "thor-t5000", "--l4t", "38.4.0", "--vllm-version", "0.32.0", "--json"])
    fake = FakeVllm(["Qwen/Qwen3-8B"], truth=Truth())
    Benchmark(
        "http://nowhere/v1", model=fake.model, num_prompts=2, output_len=8, sample_conditions=False,
        connection=fake.connection(),
    ).run()  # fmt: skip


def main():
    load()
    warm_up()
    until = time.monotonic() + 10
    while len(list(Path("/proc/self/task").iterdir())) > 1:  # its number goes a moment after a thread has ended
        assert time.monotonic() < until, "a thread would be missing in a child"
        time.sleep(0.01)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        else:
            pid = os.fork()
            if pid == 0:
                child(request)
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
