# SPDX-License-Identifier: Apache-2.0
"""Cleaning up after a killed program: whatever the moment, the old server runs once, and nobody else's is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest
from attrs import evolve

from jetson_specdec.errors import InTheWayError, OutputError, ServerError, StartFailed
from jetson_specdec.server import Launch, Occupant, RunState, restore
from jetson_specdec.server.address import Address
from jetson_specdec.server.claim import claimed
from jetson_specdec.server.commands import Commands
from jetson_specdec.server.displace import come_back, intended, take_down
from jetson_specdec.server.lock import locked
from jetson_specdec.server.occupants import find_occupants, on_port, port_is_free
from jetson_specdec.server.processes import boot_id, start_ticks

IMAGE = "vllm/vllm-openai:v0.20.0"
LISTEN = (
    "import socket, sys, time\n"
    "s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=False)\n"
    "open(sys.argv[2], 'a').write('x')\n"
    "time.sleep(300)\n"
)


class Old:
    """An old server: a program that listens, and writes down each time it starts."""

    def __init__(self, folder, port, until):
        self.folder, self.port, self.until = folder, port, until
        self.starts = folder / "starts"
        self.run_id = uuid.uuid4().hex[:12]
        self.file = f"{self.run_id}.json"
        self.argv = [sys.executable, "-c", LISTEN, str(port), str(self.starts)]
        self.processes = []
        self.start()
        self.occupant = intended(on_port(port, Commands()), run_id=self.run_id, number=0)

    def start(self):
        made = subprocess.Popen(self.argv)
        self.processes.append(made)
        self.until(lambda: self.listeners() or made.poll() is not None)
        return made

    def end(self):
        self.processes[-1].kill()
        self.processes[-1].wait()

    @property
    def count(self):
        return len(self.starts.read_text())

    def running(self):
        wanted = [each.encode() for each in self.argv]
        found = []
        for place in Path("/proc").iterdir():
            try:
                if place.name.isdigit() and (place / "cmdline").read_bytes().split(b"\0")[:-1] == wanted:
                    found.append(int(place.name))
            except OSError:
                continue
        return [pid for pid in found if start_ticks(pid) is not None]

    def listeners(self):
        found = psutil.net_connections(kind="tcp")
        return [one.pid for one in found if one.status == psutil.CONN_LISTEN and one.laddr.port == self.port]

    def state(self, folder, **more):
        """What a program that was killed left behind."""
        gone = subprocess.Popen(["true"])
        gone.wait()
        known = {"run_id": self.run_id, "owner_pid": gone.pid, "owner_started": 1, "boot": boot_id(), "ended": True}
        made = RunState(**{**known, "taken_down": (self.occupant,), **more})
        made.save(folder)
        return made

    def close(self):
        for pid in self.running():
            os.kill(pid, signal.SIGKILL)
        for one in self.processes:
            one.wait()


@pytest.fixture
def old(tmp_path, port, tools):
    made = Old(tmp_path, port, tools["until"])
    yield made
    made.close()


@pytest.fixture
def state_dir(tmp_path):
    return tmp_path / "state"


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def back(state_dir):
    (done,) = restore(state_dir, grace_s=5)
    return done


# --- a process comes back exactly once --------------------------------------------------------------------------------


def test_killed_before_anything_was_done_to_it(old, state_dir):
    old.occupant = evolve(old.occupant, ordered=False)
    old.state(state_dir)
    assert back(state_dir).running == ("python",)
    assert (old.count, len(old.running())) == (1, 1)
    assert files(state_dir) == []


def test_killed_between_the_order_and_the_signal(old, state_dir):
    first = old.processes[0].pid
    old.state(state_dir)
    assert back(state_dir).brought_back == ("python",)
    old.until(lambda: old.count == 2)
    assert first not in old.running()
    assert len(old.running()) == 1
    assert restore(state_dir) == ()
    assert len(old.running()) == 1


def test_killed_between_bringing_it_back_and_writing_that_down(old, state_dir):
    old.end()
    state = old.state(state_dir)
    assert back(state_dir).brought_back == ("python",)
    old.until(lambda: old.count == 2)
    state.save(state_dir)  # as if the file had not been removed in time
    done = back(state_dir)
    assert (done.brought_back, done.running, done.failed) == ((), ("python",), ())
    assert (old.count, len(old.running())) == (2, 1)
    assert files(state_dir) == []


def test_its_owner_was_faster(old, state_dir):
    old.end()
    old.state(state_dir)
    mine = old.start()
    assert back(state_dir).running == ("python",)
    assert old.running() == [mine.pid]


def test_a_stranger_took_the_port(old, state_dir, port):
    old.end()
    old.state(state_dir)
    stranger = subprocess.Popen([sys.executable, "-c", LISTEN, str(port), str(old.starts) + "2"])
    try:
        old.until(old.listeners)
        done = back(state_dir)
        assert done.failed == (("python", f"port {port} is taken by python (pid {stranger.pid})"),)
        assert done.path == str(state_dir / old.file)
        assert old.running() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    assert back(state_dir).brought_back == ("python",)
    assert files(state_dir) == []


def test_after_a_reboot_numbers_mean_nothing(old, state_dir):
    """The process with that number and that start time is somebody else's, and so is the owner's."""
    own = os.getpid()
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        pid = bystander.pid
        old.end()
        old.occupant = evolve(old.occupant, pid=pid, pid_started=start_ticks(pid), family=((pid, start_ticks(pid)),))
        old.state(state_dir, boot="another-boot", owner_pid=own, owner_started=start_ticks(own))
        assert back(state_dir).brought_back == ("python",)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_number_that_was_given_away_is_not_ended(old, state_dir):
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        old.end()
        old.occupant = evolve(old.occupant, pid=bystander.pid, pid_started=start_ticks(bystander.pid) - 1)
        old.state(state_dir)
        assert back(state_dir).brought_back == ("python",)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_program_that_is_not_there_any_more(old, state_dir):
    old.end()
    old.occupant = evolve(old.occupant, argv=("/nowhere/vllm", "serve"))
    old.state(state_dir)
    ((name, reason),) = back(state_dir).failed
    assert name == "python"
    assert "No such file" in reason
    assert files(state_dir) == [old.file]


def test_a_program_that_ends_at_once(old, state_dir):
    old.end()
    old.occupant = evolve(old.occupant, argv=("false",))
    old.state(state_dir)
    assert back(state_dir).failed == (("python", "it ended at once"),)


def test_it_comes_back_as_it_was(old, state_dir, tmp_path):
    old.end()
    (tmp_path / "here").mkdir()
    out = tmp_path / "out.log"
    out.write_text("before\n")
    code = "import os, signal, time; print(os.getcwd(), os.environ['MINE'], flush=True); time.sleep(300)"
    argv = (sys.executable, "-c", code)
    old.occupant = evolve(
        old.occupant, argv=argv, cwd=str(tmp_path / "here"), environ={"MINE": "kept", "PATH": "/usr/bin"},
        output=str(out), port=None,
    )  # fmt: skip
    old.state(state_dir)
    assert back(state_dir).brought_back == ("python",)
    old.until(lambda: out.read_text() == f"before\n{tmp_path / 'here'} kept\n")
    (pid,) = [each.pid for each in psutil.process_iter() if _words(each) == list(argv)]
    process = psutil.Process(pid)
    try:
        assert process.terminal() is None
        assert os.getsid(pid) == pid
        ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line[:6] == "SigIgn")
        mask = int(ignored.split()[1], 16)
        assert not any(mask & (1 << (number - 1)) for number in (signal.SIGTERM, signal.SIGHUP))
    finally:
        process.kill()
        process.wait()


def _words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_whoever_starts_it_is_killed(old, state_dir, tmp_path, monkeypatch, moment):
    """The small process in between dies before, or after the server has become a process."""
    from jetson_specdec.server import displace

    text = Path(displace._STARTER).read_text()
    place = "    read, write = os.pipe()\n" if moment == "before" else "    os.close(write)\n    said"
    assert text.count(place) == 1
    dying = tmp_path / "starter.py"
    dying.write_text(text.replace(place, "    os.kill(os.getpid(), 9)\n" + place))
    old.end()
    old.state(state_dir)
    monkeypatch.setattr(displace, "_STARTER", str(dying))
    done = back(state_dir)
    if moment == "before":
        assert [name for name, _ in done.failed] == ["python"]
        monkeypatch.undo()
        done = back(state_dir)
    assert (done.brought_back, done.failed) == (("python",), ())
    old.until(lambda: old.count == 2)
    assert len(old.running()) == 1
    assert files(state_dir) == []


def test_two_at_once_bring_it_back_once(old, state_dir):
    old.end()
    old.state(state_dir)
    code = f"from jetson_specdec.server import restore; print(restore({str(state_dir)!r}, grace_s=5))"
    environ = {**os.environ, "PYTHONPATH": str(Path(__import__("jetson_specdec").__file__).parents[1])}
    both = [
        subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [one.communicate(timeout=60)[0] for one in both]
    assert sum("brought_back=('python',)" in text for text in said) == 1
    old.until(lambda: old.count == 2)
    assert len(old.running()) == 1
    assert files(state_dir) == []


def test_a_late_keeper_is_waited_for(old, state_dir, tools):
    """It would end what was brought back in place of its own."""
    old.end()
    old.state(state_dir, ended=False)
    keeper = subprocess.Popen(["sleep", "300"], env={"JETSON_SPECDEC_KEEPER": old.run_id, "PATH": os.environ["PATH"]})
    tools["until"](lambda: b"sleep" in Path(f"/proc/{keeper.pid}/cmdline").read_bytes())
    code = f"from jetson_specdec.server import restore; restore({str(state_dir)!r}, grace_s=5)"
    environ = {**os.environ, "PYTHONPATH": str(Path(__import__("jetson_specdec").__file__).parents[1])}
    other = subprocess.Popen([sys.executable, "-c", code], env=environ)
    # It holds the lock by then, and has brought nothing back.
    tools["until"](lambda: _busy(state_dir))
    assert old.running() == []
    keeper.kill()
    keeper.wait()
    assert other.wait(60) == 0
    assert len(old.running()) == 1


def _busy(folder):
    with locked(folder, wait_s=0.0) as mine:
        return not mine


def test_what_is_respawned_is_said_and_not_fought_over(tmp_path, port, tools):
    """A bare loop of a shell is a supervisor that nobody announces."""
    starts = tmp_path / "starts"
    (tmp_path / "code.py").write_text(LISTEN)
    loop = f"while true; do {sys.executable} {tmp_path}/code.py {port} {starts}; done"
    shell = subprocess.Popen(["bash", "-c", loop], start_new_session=True)
    try:
        tools["until"](lambda: starts.exists())
        occupant = intended(on_port(port, Commands()), run_id=uuid.uuid4().hex[:12], number=0)
        with pytest.raises(ServerError) as caught:
            take_down(occupant, Commands(), grace_s=5)
        assert caught.value.code == "JSE921"
        assert come_back(occupant, Commands(), grace_s=5).how == "running"
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.wait()
        for each in psutil.process_iter():
            if str(starts) in _words(each):
                each.kill()
                each.wait()


# --- state files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text[: len(text) // 2], "Unterminated string"),
        (lambda text: "", "Expecting value"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 2'), "schema_version 2"),
        (lambda text: text.replace('"owner_pid"', '"owner"'), "owner"),
        (lambda text: "[]", "no state file"),
        (lambda text: "\x00" * 300, "Expecting value"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_nothing_of_it_touched(old, state_dir, change, reason):
    old.end()
    old.state(state_dir)
    path = state_dir / old.file
    text = change(path.read_text())
    path.write_text(text)
    done = back(state_dir)
    assert (done.run_id, done.path) == (old.run_id, str(path))
    assert reason in done.unreadable
    assert (done.brought_back, done.running, done.failed) == ((), (), ())
    assert old.running() == []
    assert path.read_text() == text


def test_one_damaged_file_does_not_keep_another_from_being_used(old, state_dir):
    old.end()
    old.state(state_dir)
    (state_dir / "aaa.json").write_text("{")
    done = {each.run_id: each for each in restore(state_dir, grace_s=5)}
    assert done["aaa"].unreadable
    assert done[old.run_id].brought_back == ("python",)
    assert files(state_dir) == ["aaa.json"]


def test_what_was_being_written_is_swept_up(old, state_dir):
    old.state(state_dir)
    gone = subprocess.Popen(["true"])
    gone.wait()
    (state_dir / f".abc.{gone.pid}").write_text("{")
    (state_dir / f".def.{os.getpid()}").write_text("{")
    restore(state_dir, grace_s=5)
    assert files(state_dir) == [f".def.{os.getpid()}"]


def test_work_in_progress_is_not_disturbed(old, state_dir):
    old.state(state_dir)
    code = (
        "import sys; from pathlib import Path; from jetson_specdec.server.claim import claimed\n"
        f"with claimed(Path({str(state_dir)!r}), what='test'):\n    print('up', flush=True)\n    sys.stdin.read()\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__import__("jetson_specdec").__file__).parents[1])}
    other = subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with other.stdin, other.stdout:
        assert other.stdout.readline() == b"up\n"
        with pytest.raises(ServerError) as caught:
            restore(state_dir, grace_s=5)
        assert caught.value.code == "JSE935"
        assert caught.value.values["pid"] == other.pid
        with pytest.raises(ServerError, match="is at work here"), claimed(state_dir, what="too"):
            pass
        assert (old.count, old.file in files(state_dir)) == (1, True)
        other.kill()
        other.wait()
    assert back(state_dir).brought_back == ("python",)
    assert files(state_dir) == []
    with claimed(state_dir, what="now"):
        assert len(files(state_dir)) == 1
    assert files(state_dir) == []


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_touched(server, old, port, tmp_path):
    (tmp_path / "file").write_text("")
    one = server(f"vllm serve org/m --port {port}", replace=True, state_dir=tmp_path / "file")
    with pytest.raises(OutputError):
        one.start()
    with pytest.raises(OutputError), claimed(tmp_path / "file", what="test"):
        pass
    assert old.processes[0].poll() is None


def test_a_full_disk_after_the_end_of_the_old_server_brings_it_back(server, old, port, monkeypatch):
    genuine, count = RunState.save, [0]

    def save(self, folder):
        count[0] += 1
        if count[0] > 2:
            raise OutputError("JSE007", path=str(folder), reason="No space left on device")
        return genuine(self, folder)

    monkeypatch.setattr(RunState, "save", save)
    one = server(f"vllm serve org/m --port {port}", replace=True)
    with pytest.raises(OutputError), one:
        pass
    old.until(lambda: old.count == 2)
    assert len(old.running()) == 1


# --- the keeper is killed ---------------------------------------------------------------------------------------------


def _keepers():
    children = psutil.Process().children()
    return [each.pid for each in children if any("keeper.py" in word for word in _words(each))]


def test_what_a_killed_keeper_held_is_ended(server, port, marked, tools):
    one = server(f"(trap '' TERM; sleep 302) &\nvllm serve org/m --port {port}\n", grace_s=1)
    one.start()
    environ = Path(f"/proc/{marked(one.run_id)[0]}/environ").read_bytes().split(b"\0")
    assert b"SPT_NOENV=1" in environ  # a process title is not written over the mark
    (keeper,) = _keepers()
    os.kill(keeper, signal.SIGKILL)
    tools["until"](lambda: not one.running)
    assert marked(one.run_id)  # the kernel ends the first process only
    assert one.stop().port_free
    assert marked(one.run_id) == []


def test_a_keeper_killed_before_the_server_is_ready(server, port, fake, marked, tools):
    import threading

    fake(startup_s=300)
    one = server(f"vllm serve org/m --port {port}", grace_s=1)

    def kill():
        tools["until"](lambda: marked(one.run_id))
        for pid in _keepers():
            os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(StartFailed):
        one.start()
    thread.join()
    assert marked(one.run_id) == []


# --- containers -------------------------------------------------------------------------------------------------------


def names(ask):
    return {one["name"]: one["running"] for one in ask(do="list")["containers"]}


@pytest.fixture
def container(daemon, environ, port, ask, tools):
    """An old container that listens, and what was written down about it."""

    def make(*options, listens=False):
        runner = Commands(environ)
        command = f"-p {port}:8000 {IMAGE} org/old" if listens else f"--entrypoint sleep {IMAGE} 300"
        assert runner.run(f"docker run -d --name llm {' '.join(options)} {command}".split()).ok
        if listens:
            tools["until"](lambda: not port_is_free(port))
        wanted = Launch(kind="container", argv=(), container="llm")
        (found,) = find_occupants(wanted, Address(port=port), runner)
        return intended(found, run_id=uuid.uuid4().hex[:12], number=0), runner

    return make


def test_a_container_comes_back_from_anywhere(container, ask):
    occupant, runner = container("--restart unless-stopped")
    identity = ask(do="list")["containers"][0]["id"]
    stop, aside = ["stop", "-t", "5", "llm"], ["rename", "llm", occupant.rename]
    again = ["rename", occupant.rename, "llm"]
    steps = [[], [stop], [stop, aside], [stop, aside, again], [stop, aside, again, ["start", "llm"]]]
    for done in steps:
        for words in done:
            assert runner.run(["docker", *words]).ok
        for how in (("running" if len(done) in (0, 4) else "started"), "running"):
            assert come_back(occupant, runner).how == how
            (only,) = ask(do="list")["containers"]
            assert (only["id"], only["name"], only["running"]) == (identity, "llm", True)


def test_a_container_whose_name_was_taken_meanwhile(container, ask, port):
    occupant, runner = container()
    take_down(occupant, runner, grace_s=5)
    assert names(ask) == {occupant.rename: False}
    runner.run(["docker", "run", "-d", "--name", "llm", "--entrypoint", "sleep", IMAGE, "300"])
    came = come_back(occupant, runner)
    assert came.how == "failed"
    assert "already in use" in came.reason
    runner.run(["docker", "rm", "-f", "llm"])
    assert come_back(occupant, runner).how == "started"


def test_a_container_that_was_removed_meanwhile(container, ask):
    occupant, runner = container()
    take_down(occupant, runner, grace_s=5)
    runner.run(["docker", "rm", occupant.rename])
    assert come_back(occupant, runner).how == "failed"


@pytest.mark.parametrize("holds", ["name", "port"])
def test_a_container_that_its_stop_removes_is_run_again_by_the_recipe(server, container, environ, port, ask, holds):
    _, runner = container("--rm -e MINE=1", listens=True)
    name = "--name llm " if holds == "name" else ""
    text = f"docker run -it --rm {name}-e MINE=1 -p {port}:8000 {IMAGE} org/old\n"
    one = server(text, replace=True)
    one.start()
    assert names(ask) == {"llm" if holds == "name" else f"jetson-specdec-{one.run_id}": True}
    state = one._room.state
    one.stop(put_back=True)
    assert list(names(ask).values()) == [True]
    assert ("llm" in names(ask)) == (holds == "name")
    (shown,) = ask(do="list")["containers"]
    assert shown["remove"]
    # Killed before that was written down: it is found by its label, and not run once more.
    (occupant,) = state.taken_down
    assert come_back(occupant, runner).how == "running"
    assert [each["id"] for each in ask(do="list")["containers"]] == [shown["id"]]


def test_what_was_to_run_instead_and_does_not_leaves_the_old_one(server, old, port, tmp_path):
    """The owner asked for the new recipe; without one that starts, what ran before does."""
    one = server(f"vllm serve org/m --port {port}", replace=True)
    one._room.make(one.in_the_way(), port=port, replace=True)
    assert old.running() == []
    bad = Occupant(kind="process", name="serve.specdec.sh", holds="port", port=port, argv=("/nowhere/vllm",))
    with pytest.raises(ServerError) as caught:
        one.leave((bad,))
    assert (caught.value.code, caught.value.values["name"]) == ("JSE922", "serve.specdec.sh")
    old.until(lambda: old.count == 2)
    assert len(old.running()) == 1
    assert files(tmp_path / "state") == []


def test_killed_while_something_else_was_to_run_instead(old, state_dir):
    code = "import time; time.sleep(300)  # new"
    old.end()
    new = evolve(old.occupant, name="new", argv=(sys.executable, "-c", code), port=None, mark=old.run_id + ".new")
    old.state(state_dir, taken_down=(new,), otherwise=(old.occupant,))
    assert back(state_dir).brought_back == ("new",)
    assert old.running() == []
    (pid,) = [each.pid for each in psutil.process_iter() if _words(each)[-1:] == [code]]
    os.kill(pid, signal.SIGKILL)
    old.state(state_dir, taken_down=(evolve(new, argv=("/nowhere",)),), otherwise=(old.occupant,))
    done = back(state_dir)
    assert (done.brought_back, [name for name, _ in done.failed], done.path) == (("python",), ["new"], None)
    assert files(state_dir) == []


def test_a_container_that_nobody_could_run_again_is_left_alone(server, container, port, ask):
    container("--rm")
    other = "vllm/vllm-openai:v0.32.0"
    one = server(f"docker run --rm --name llm -p {port}:8000 {other} org/m\n", replace=True)
    with pytest.raises(InTheWayError) as caught:
        one.start()
    assert caught.value.code == "JSE923"
    assert "--rm" in str(caught.value)
    assert names(ask) == {"llm": True}


def test_a_server_of_another_owner_is_left_alone(server, port, tmp_path):
    """Its socket is seen, its process is not."""
    from jetson_specdec.server.room import Room

    stranger = Occupant(kind="unknown", name="another user's process", holds="port", port=port)
    one = server(f"vllm serve org/m --port {port}")
    room: Room = one._room
    with pytest.raises(InTheWayError) as caught:
        room.make([stranger], port=port, replace=True)
    assert (caught.value.code, room.taken) == ("JSE923", ())
    assert not (tmp_path / "state").exists()


def test_only_those_that_may_be_are_replaced(server, old, port):
    asked = []
    one = server(f"vllm serve org/m --port {port}", replace=lambda occupant: asked.append(occupant.name))
    with pytest.raises(InTheWayError) as caught:
        one.start()
    assert (caught.value.code, asked) == ("JSE930", ["python"])
    assert old.processes[0].poll() is None


def test_a_state_file_holds_what_is_needed_and_nobody_else_reads_it(old, state_dir):
    state = old.state(state_dir)
    path = state_dir / old.file
    assert path.stat().st_mode & 0o777 == 0o600
    assert RunState.load(path) == state
    assert json.loads(path.read_text())["taken_down"][0]["pid_started"] == start_ticks(old.processes[0].pid)
    assert state.created <= time.time()
