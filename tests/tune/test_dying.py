# SPDX-License-Identifier: Apache-2.0
"""Every step of `tune` killed once: whatever is left, `--restore` puts the board right and `--resume` goes on."""

from __future__ import annotations

import json
import signal

import pytest

from jetson_specdec.tune import Evidence

KILL, TERM, HUP, INT = (int(each) for each in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
VERDICTS = (0, 10, 11, 12)

SERVER, TUNE = "jetson_specdec.server", "jetson_specdec.tune"
# Step → where it is: a function, before or after it, which of its calls, and what its arguments have to show.
STEPS = {
    "asking": ("jetson_specdec.cli.tune:_agree", "before", 1),
    "making the folder": ("pathlib:Path.mkdir", "after", 1, "/plans"),
    "writing the first state": ("pathlib:Path.replace", "before", 1, "/.state.json."),
    "the first state is written": (f"{TUNE}.evidence:Evidence.save", "after", 1),
    "the start is written down": (f"{SERVER}.state:RunState.save", "after", 1),
    "writing down who is taken down": ("pathlib:Path.replace", "before", 3, "/state/."),
    "the order is written down": (f"{SERVER}.state:RunState.save", "after", 2),
    "the old server is told": (f"{SERVER}.displace:alive", "before", 2),
    "the old server is down": (f"{SERVER}.displace:take_down", "after", 1),
    "a keeper without an order": (f"{SERVER}.running:Kept._send", "before", 1),
    "a keeper nobody has noted": (f"{SERVER}.room:Room.note_keeper", "before", 1),
    "loading": (f"{SERVER}.vigil:Vigil.check", "before", 2),
    "ready": (f"{SERVER}.server:Server._first_completion", "before", 1),
    "the first answer": (f"{SERVER}.server:Server._first_completion", "after", 1),
    "measuring": ("jetson_specdec.loadgen.client:Client.send", "before", 4),
    "measured": (f"{TUNE}.session:bench", "after", 1),
    "writing a report": ("pathlib:Path.replace", "before", 1, "-o"),
    "a report that is not listed": (f"{TUNE}.evidence:Evidence.note", "before", 1, "reports/"),
    "a report the state does not know": (f"{TUNE}.evidence:Evidence.note", "after", 1, "reports/"),
    "stopping": (f"{SERVER}.server:Server.stop", "before", 1),
    "waiting for port and memory": (f"{SERVER}.server:wait_until_back", "before", 1),
    "between two blocks": (f"{TUNE}.session:cool_down", "before", 2),
    "putting back": (f"{SERVER}.room:Room.put_back", "before", 1),
    "about to start the old server": (f"{SERVER}.displace:_spawned", "before", 1),
    "the old server is started": (f"{SERVER}.displace:_spawned", "after", 1),
    "forgetting": (f"{SERVER}.room:Room._forget", "before", 1),
    "forgotten": (f"{SERVER}.room:Room._forget", "after", 1),
    "looking whether it answers": (f"{TUNE}.ending:_answers", "before", 1),
    "the verdict is written": (f"{TUNE}.evidence:Evidence.write", "after", 1, "verdict.json"),
    "writing the recipe": ("os:link", "before", 1, "serve.specdec"),
    "the recipe is written": (f"{TUNE}.ending:_write", "after", 1),
    "the last save": (f"{TUNE}.evidence:Evidence.save", "before", 1, "'status': 'done'"),
}


def at(step, by=KILL):
    place, when, number, *shown = STEPS[step]
    return [place, when, number, by, *shown]


class Life:
    """One tune that is killed again and again."""

    def __init__(self, board, *, old=True):
        self.board = board
        self.bytes = board.recipe.read_bytes()
        self.files = {path.name for path in board.folder.iterdir()}
        if old:
            board.serve()
        self.old = board.servers()
        self.resumable = False

    def die(self, *deaths):
        """Run until it dies, and put the board right."""
        board = self.board
        how = ("--resume", board.evidence) if self.resumable else ("--evidence", board.evidence)
        code, out, err = board.tune(*how, deaths=deaths)
        assert code == -KILL, (deaths, code, out, err)
        assert out == ""
        self.resumable = board.evidence.exists()
        self.unharmed(deaths)
        board.restore()
        self.as_before(deaths)
        only = board.servers()
        assert board.restore() == [], deaths
        assert board.servers() == only, deaths

    def unharmed(self, where):
        """Nothing that exists is half of something, killed or not."""
        board = self.board
        assert board.recipe.read_bytes() == self.bytes, where
        for path in board.evidence.rglob("[!.]*.json"):
            json.loads(path.read_text())
        if board.evidence.exists():
            assert Evidence(board.evidence).damaged() == (), where
        known = {"state", "evidence", "serve.specdec.sh"}
        more = {path.name for path in board.folder.iterdir()} - self.files - known
        assert {name for name in more if not name.startswith(("out.", "err."))} == set(), where

    def as_before(self, where):
        """What ran before runs once, nothing else does, and nothing waits to be done."""
        board = self.board
        self.unharmed(where)
        assert len(board.servers()) == len(self.old), where
        assert board.speculating() == [], where
        assert board.marked() == [], where
        assert not board.state.exists() or list(board.state.iterdir()) == [], where

    def verdict(self):
        return json.loads((self.board.evidence / "verdict.json").read_text())["outcome"]

    def end(self):
        """Let it go on to its end."""
        board = self.board
        code, out, err = board.tune("--resume", board.evidence)
        assert code in VERDICTS, (code, out, err)
        result = json.loads(out)
        assert result["pairs"] == 1
        self.as_before("end")
        if self.old:
            board.until(board.answers)
        assert list(board.evidence.rglob(".*")) == []
        state = board.state_of()
        assert state["status"] == "done"
        assert [(block["role"], block["arm"]) for block in state["blocks"]] == [
            ("baseline", "off"), ("search", "on"), ("pair", "on"),
        ]  # fmt: skip
        return result


@pytest.fixture
def life(real, mortals):
    return lambda **more: Life(real, **more)


def test_killed_before_and_while_starting(life):
    one = life()
    for step in list(STEPS)[:6]:
        one.die(at(step))
        assert one.board.servers() == one.old, step  # never touched
    for step in list(STEPS)[6:14]:
        one.die(at(step))
    one.end()


def test_killed_while_measuring_and_stopping(life):
    one = life()
    for step in list(STEPS)[14:22]:
        one.die(at(step))
        if step == "a report the state does not know":
            one.die(at("a report that is not listed"))  # the second time there is one by that name
    one.end()


def test_killed_while_putting_back_and_at_the_end(life):
    one = life()
    one.die(at("between two blocks"))
    for step in list(STEPS)[22:28]:
        one.die(at("ready", TERM), at(step))
    for step in list(STEPS)[28:]:
        if step != "writing the recipe" or one.verdict() == "enable":
            one.die(at(step))
    result = one.end()
    if result["outcome"] == "enable":
        assert result["written"] == str(one.board.folder / "serve.specdec.sh")


def test_killed_where_nothing_ran_before(life):
    one = life(old=False)
    for step in ("the start is written down", "a keeper nobody has noted", "measuring", "stopping"):
        one.die(at(step))


STOPS = [
    ("asking", HUP), ("the first state is written", INT), ("the order is written down", TERM),
    ("the old server is told", HUP), ("a keeper without an order", INT), ("loading", TERM), ("measuring", INT),
    ("stopping", TERM), ("waiting for port and memory", HUP), ("between two blocks", INT),
]  # fmt: skip


def test_stopped_politely_anywhere(life):
    one = life()
    board = one.board
    for step, by in STOPS:
        how = ("--resume", board.evidence) if board.evidence.exists() else ("--evidence", board.evidence)
        code, out, err = board.tune(*how, deaths=[at(step, by)])
        assert code == 130, (step, code, out, err)
        one.as_before(step)
        if step != "asking":
            assert json.loads(out)["outcome"] == "interrupted", step
            assert board.state_of()["status"] == "interrupted", step
        assert board.restore() == [], step
    one.end()


def test_stopped_while_it_is_putting_back(life):
    """The second and the third signal must not cut short what the first one set off."""
    one = life()
    board = one.board
    code, out, err = board.tune(
        "--evidence", board.evidence,
        deaths=[at("ready", HUP), at("putting back", TERM), at("about to start the old server", INT),
                at("forgetting", TERM), at("looking whether it answers", HUP)],
    )  # fmt: skip
    assert code == 130, (out, err)
    assert json.loads(out)["outcome"] == "interrupted"
    one.as_before("putting back")
