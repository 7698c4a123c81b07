# SPDX-License-Identifier: Apache-2.0
"""One line of a log without what other programs put around it: colours, docker, Kubernetes, journald, process names.

Formats: vLLM 0.6 to 0.32 `logger.py`; uvicorn; `docker logs --timestamps`, docker's json-file, `docker compose logs`,
Docker Desktop; the container runtime interface and `kubectl logs --prefix`; journald's text and JSON output in any
language; torch's C++ warnings and its `[rank0]:`. Whatever else a collector puts before a line of vLLM is cut off at
the mark that vLLM itself begins with.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import pairwise

from jetson_specdec.values import frozen

__all__ = ["QUIET", "Line", "read_line", "split_line"]

QUIET = frozenset({"DEBUG", "INFO", "WARNING"})
"""Levels at which vLLM tells and warns; whatever ends a start is printed at another level or without one."""

MAX_CHARS = 20_000
"""What stands further right in a line is not read."""
_LAYERS = 5
_REWRITTEN = 8
_PREFIX_CHARS = 200
"""A prefix is not longer than this."""


@frozen
class Line:
    """What a line says and who said it.

    Attributes:
        text: the message.
        level: `DEBUG`, `INFO`, `WARNING`, `ERROR`, `CRITICAL`, or None where the line has none (tracebacks, shells).
        process: the name vLLM gives its process, such as `EngineCore`, or None.
        time: a text that sorts by time among lines of the same kind, or None.
    """

    text: str
    level: str | None = None
    process: str | None = None
    time: str | None = None

    @property
    def quiet(self) -> bool:
        """Whether the line only tells or warns."""
        return self.level in QUIET


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    ansi = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B])")
    iso = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|\s?[+-]\d\d:?\d\d)?"
    clock = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
    # Names of months and days as journald writes them: three letters, or what another language has for them.
    short = rf"(?:[^\W\d_]{{2,5}}\.?|\d{{1,2}}月)\s{{1,2}}\d{{1,2}}\.?\s{clock}"
    full = rf"[^\W\d_]{{2,4}}\.?\s\d{{4}}-\d\d-\d\d\s{clock}\s\w{{2,5}}"
    outer = re.compile(
        rf"""\s*(?:
            \[pod/[\w.-]+/[\w.-]+\]\s                                           # kubectl logs --prefix
          | (?P<journal>{short}|{full}|{iso}|\d{{10}}\.\d{{6}})\s[\w.-]+\s[\w.@/:\\-]+(?:\[\d+\])?:\s   # journald
          | (?P<cri>{iso})\s(?:stdout|stderr)\s[FP]\s                           # container runtime interface
          | \[?(?P<stamp>{iso})\]?\s(?:\|\s(?:[A-Z]{{4,8}}\s\|\s\w+\s\|\s)?)?   # docker logs --timestamps and others
          | [A-Za-z0-9][\w.-]{{0,63}}\s*\|\s                                    # docker compose logs
          | \|\s                                                                # what is left of such a column
          | \[rank\d+\]:\s?                                                     # torch, by process
          | \w{{6,32}}\[(?:debug|info|warning|error)\]                            # a serverless host's worker
        )""",
        re.VERBOSE,
    )
    levels = "(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
    number = r"(?: [\w=.,: -]*)?\bpid=\d+[^)]{0,80}\)"
    at = r"(?:\[[^\]\s]{1,200}\]|[^\s\]]{1,200}:\d+\])"
    process = re.compile(rf"\s*\((?P<process>[A-Za-z]\w*)(?:{number} ?|\) (?={levels} ))")
    level = re.compile(
        rf"(?:(?P<level>{levels}) (?:(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? {at} ?|\[[\w./-]{{1,200}}:\d+\] ?)"
        rf"|(?P<uvicorn>{levels}): {{1,9}}"
        rf"|(?:- )?(?:[\w.]{{1,60}} - )?(?P<plain>{levels}) - "
        rf"|\[[\w-]{{1,30}}\]\[(?P<bracket>{levels})\] "
        r"|(?P<torch>\[W\d{3,4} \d\d:\d\d:\d\d\.\d+ [^\]]{1,200}\] ))"
    )
    own = re.compile(
        rf"\((?:EngineCore|APIServer|ApiServer|Worker|VllmWorker|DPCoordinator)\w*{number} "
        rf"|{levels} \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w./-]{{1,200}}:\d+\]|[\w./-]{{1,200}}:\d+\]) "
    )
    return ansi, outer, process, level, own


def _from_json(text: str) -> str | None:
    """Return the message of a line of docker's json-file driver."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    message = next((value[key] for key in ("log", "message", "MESSAGE", "line") if key in value), None)
    return message.rstrip("\r\n") if isinstance(message, str) else None


def split_line(raw: str) -> list[str]:
    """Return the lines that one line of a file holds.

    A progress bar rewrites its line; a collector can put a whole traceback into one JSON text; a log that was pasted
    somewhere can have lost its line ends.
    """
    if raw.startswith("{") and ("\\n" in raw or "\\r" in raw) and (inner := _from_json(raw)) is not None:
        parts = inner.replace("\n", "\r").split("\r")
    else:
        parts = raw.split("\r") if "\r" in raw else [raw]
    if len(parts) > _REWRITTEN:
        # Of a progress bar the first and the last state tell, and what an error wrote over it.
        last = len(parts) - 1
        parts = [part for at, part in enumerate(parts) if at in (0, last - 1, last) or "it/s" not in part]
    return [piece for part in parts for piece in _pieces(part)]


def _pieces(text: str) -> list[str]:
    if max(text.count(" pid="), text.count("INFO ") + text.count("ERROR ") + text.count("WARNING ")) < 2:
        return [text]
    starts, taken = [0], 0
    for match in _patterns()[-1].finditer(text):
        # A level that follows a process belongs to its line.
        if match.start() > taken and match.start() > 0:
            starts.append(match.start())
        taken = match.end()
    return [text[start:end] for start, end in pairwise([*starts, len(text)])]


def read_line(raw: str) -> Line:
    """Take a line apart. Nothing in it is an error."""
    ansi, outer, process_at, level_at, own = _patterns()
    text = raw[:MAX_CHARS]
    if "\x1b" in text:
        text = ansi.sub("", text)
    time = process = None
    for _ in range(_LAYERS):
        if text.startswith("{") and (inner := _from_json(text)) is not None:
            text = ansi.sub("", inner) if "\x1b" in inner else inner
        found = outer.match(text)
        if found is None:
            break
        time = time or found["journal"] or found["cri"] or found["stamp"]
        text = text[found.end() :]
    foreign = own.search(text, 1, _PREFIX_CHARS)
    if foreign is not None and not text.startswith("(") and level_at.match(text) is None:
        # A prefix that is not known: vLLM's own mark begins the line.
        text = text[foreign.start() :]
    for _ in range(_LAYERS):
        named = process_at.match(text)
        if named is None:
            break
        # The innermost name is the process that wrote the line.
        process = named["process"]
        text = text[named.end() :]
    levelled = level_at.match(text)
    if levelled is None:
        return Line(text=text.rstrip(), process=process, time=time)
    level = levelled["level"] or levelled["uvicorn"] or levelled["plain"] or levelled["bracket"] or "WARNING"
    return Line(text=text[levelled.end() :].rstrip(), level=level, process=process, time=levelled["time"] or time)
