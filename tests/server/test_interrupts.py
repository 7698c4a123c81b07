# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP where a board would be left half changed: held back, and let through once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from jetson_specdec.server.interrupts import close, held, once

NUMBERS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


class StoppedError(Exception):
    pass


@pytest.fixture(autouse=True)
def handlers():
    """Each of the three raises here; afterwards everything is as it was."""

    def stop(number, frame):
        raise StoppedError(number)

    before = {number: signal.signal(number, stop) for number in NUMBERS}
    yield stop
    left = {number: signal.getsignal(number) for number in NUMBERS}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert left == dict.fromkeys(NUMBERS, stop)


def send(number=signal.SIGTERM):
    signal.raise_signal(number)


@pytest.mark.parametrize("number", NUMBERS)
def test_held_until_the_end_of_the_block(number):
    seen = []

    def work():
        with held() as pending:
            send(number)
            seen.append(list(pending))
            with held():
                send(signal.SIGHUP)
            seen.append(list(pending))

    with pytest.raises(StoppedError) as caught:
        work()
    assert caught.value.args == (number,)
    assert seen == [[number], [number, signal.SIGHUP]]


def test_nothing_came():
    with held() as pending:
        assert signal.getsignal(signal.SIGTERM) is not None
    assert pending == []


def test_an_error_inside_is_not_lost():
    def work():
        with held():
            send()
            raise ValueError("inside")

    with pytest.raises(StoppedError) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_only_the_first_gets_through():
    seen = []
    with once():
        try:
            send(signal.SIGINT)
        except StoppedError as error:
            seen.append(error.args[0])
            send(signal.SIGTERM)
            with held():
                send(signal.SIGHUP)
            seen.append("cleaned up")
    assert seen == [signal.SIGINT, "cleaned up"]
    with pytest.raises(StoppedError):
        send()


def test_what_was_held_inside_arrives_inside():
    seen = []
    with once():
        try:
            with held():
                send(signal.SIGINT)
                seen.append("done")
            seen.append("never")
        except StoppedError:
            seen.append("stopped")
        send(signal.SIGTERM)
        seen.append("further")
    assert seen == ["done", "stopped", "further"]


def test_closed_nothing_gets_through():
    with once():
        close()
        send()
        with held():
            send()
    with pytest.raises(StoppedError):
        send()


def test_outside_of_it_closing_means_nothing():
    close()
    with pytest.raises(StoppedError):
        send()


def test_another_thread_leaves_handlers_alone(handlers):
    seen = []

    def work():
        with held() as pending, once():
            seen.append((pending, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [([], handlers)]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGINT, -2)])
def test_what_would_have_ended_it_still_does(number, code):
    text = (
        "import os, signal, sys\nfrom jetson_specdec.server.interrupts import held\n"
        f"with held():\n    os.kill(os.getpid(), {int(number)})\n    print('done', flush=True)\nprint('never')\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, check=False)
    assert (made.stdout, made.returncode) == ("done\n", code)


def test_what_is_ignored_stays_ignored():
    text = (
        "import os, signal\nfrom jetson_specdec.server.interrupts import held\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with held():\n    os.kill(os.getpid(), signal.SIGHUP)\nprint(signal.getsignal(signal.SIGHUP).name)\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    made = subprocess.run([sys.executable, "-c", text], env=environ, capture_output=True, text=True, check=False)
    assert (made.stdout, made.returncode) == ("SIG_IGN\n", 0)


def test_children_start_with_the_default():
    with held():
        text = "import signal; print(signal.getsignal(signal.SIGTERM).name)"
        made = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert made.stdout == "SIG_DFL\n"
