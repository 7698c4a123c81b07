# SPDX-License-Identifier: Apache-2.0
"""The command line: one module a command, each a thin layer over the library."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["COMMANDS", "main", "parser"]

COMMANDS = {
    "plan": "Decide whether and how to add speculative decoding to a recipe.",
    "apply": "Change a recipe in place: shown and asked for first, with a backup; --undo takes it back.",
    "detect": "Say which board this is, or record it for a bug report.",
    "doctor": "Check board, container engine, memory, port, caches and disk before serving.",
    "bench": "Measure a server: speed, latencies, acceptance, and the board's conditions.",
    "gate": "Judge a benchmark with speculation against one without.",
    "tune": "Prove it on this board: start both ways in turns, find k, judge, put the old server back.",
    "watch": "Say whether a server with speculation still is what the verdict rested on.",
    "diagnose": "Say why a launch failed, from its log.",
    "catalog": "List published heads and drafts for a target.",
    "explain": "Explain a finding, a topic or a threshold.",
    "schema": "Print the JSON Schema of a document.",
    "demo": "Plan, measure and judge a sample with a simulated server.",
}
"""Command → what it is for; `cli/NAME.py` holds a function of that name."""

_GC_THRESHOLD = 50_000
"""New objects between two looks for garbage; Python's own 700 suit a program that has been loaded already."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; also the console script.

    Errors that this package raises on purpose become one line on stderr and their own exit code (2 for bad input);
    anything else is an internal error (1) with its traceback.
    """
    if argv is not None:
        return _answer(list(argv))
    # As a program: what an answer loads and makes stays until its end, and looking for garbage in it finds none.
    gc.set_threshold(_GC_THRESHOLD, *gc.get_threshold()[1:])
    try:
        return _answer(sys.argv[1:])
    finally:
        gc.freeze()


def _answer(words: list[str]) -> int:
    from jetson_specdec.errors import SpecdecError
    from jetson_specdec.render.terminal import forgiving

    _open_streams()
    forgiving(sys.stdout)
    try:
        result = _run(words)
        sys.stdout.flush()
    except SpecdecError as error:
        return _complain(_one_line(str(error)), error.exit_code)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:
        # The reader of a pipe went away (`| head`): not our failure, and nothing may be written at exit either.
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return result if isinstance(result, int) else 0


def _run(words: list[str]) -> Any:
    """Run the command that words call; cyclopts reads them unless they are plain."""
    from jetson_specdec.cli.plain import read_plain

    if words in (["--version"], ["-V"]):
        print(_version())  # noqa: T201
        return 0
    if words and words[0] in COMMANDS:
        command = getattr(import_module(f"jetson_specdec.cli.{words[0]}"), words[0])
        arguments = read_plain(command, words[1:])
        if arguments is not None:
            return command(*arguments[0], **arguments[1])
    return _parse(words)


def _parse(words: list[str]) -> Any:
    from cyclopts import CycloptsError

    try:
        return parser()(words, exit_on_error=False, print_error=False, help_on_error=False)
    except CycloptsError as error:
        return _complain(_one_line(str(error)), 2)


def parser() -> App:
    """Return the whole command line as cyclopts reads it; commands are loaded when they are called."""
    from cyclopts import App, Parameter

    app = App(
        name="jetson-specdec",
        help="Speculative decoding for vLLM on NVIDIA Jetson: decide, apply, prove.",
        version=_version,
        version_flags=["--version", "-V"],
        help_flags=["--help", "-h"],
        result_action="return_value",
        default_parameter=Parameter(negative=()),
        suppress_keyboard_interrupt=False,
    )
    for name, about in COMMANDS.items():
        app.command(f"jetson_specdec.cli.parsed:{name}", name=name, help=about)
    return app


def _open_streams() -> None:
    """Open what was closed before we began (`>&-`): its number would go to the next file, a state file among them."""
    import os

    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number:
                os.dup2(handle, number)
                os.close(handle)
        setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as we run


def _version() -> str:
    import jetson_specdec

    return str(jetson_specdec.__version__)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _complain(text: str, code: int) -> int:
    print(f"jetson-specdec: {text}", file=sys.stderr)  # noqa: T201
    return code
