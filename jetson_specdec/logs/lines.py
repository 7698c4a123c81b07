# SPDX-License-Identifier: Apache-2.0
"""One line of a log without what other programs put around it: colours, docker, Kubernetes, journald, process names.

Formats: vLLM 0.6 to 0.32 `logger.py`; uvicorn; `docker logs --timestamps`, docker's json-file, `docker compose logs`;
the container runtime interface and `kubectl logs --prefix`; journald's short and ISO output; torch's C++ warnings.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache

from attrs import frozen

__all__ = ["QUIET", "Line", "read_line"]

QUIET = frozenset({"DEBUG", "INFO", "WARNING"})
"""Levels at which vLLM tells and warns; whatever ends a start is printed at another level or without one."""

MAX_CHARS = 20_000
"""What stands further right in a line is not read."""
_LAYERS = 5


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
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    ansi = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B])")
    iso = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    outer = re.compile(
        rf"""\s*(?:
            \[pod/[\w.-]+/[\w.-]+\]\s                                           # kubectl logs --prefix
          | (?P<journal>[A-Z][a-z]{{2}}\s[ \d]\d\s\d\d:\d\d:\d\d|{iso})\s[\w.-]+\s[\w.@/:-]+(?:\[\d+\])?:\s   # journald
          | (?P<cri>{iso})\s(?:stdout|stderr)\s[FP]\s                           # container runtime interface
          | \[?(?P<stamp>{iso})\]?\s                                            # docker logs --timestamps and others
          | [A-Za-z0-9][\w.-]{{0,63}}\s*\|\s                                    # docker compose logs
        )""",
        re.VERBOSE,
    )
    process = re.compile(r"\s*\((?P<process>[A-Za-z]\w*)(?: [\w=.,: -]*)?\bpid=\d+[^)]{0,80}\) ?")
    level = re.compile(
        r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)? "
        r"(?:\[[^\]\s]{1,200}\]|[^\s\]]{1,200}:\d+\]) ?"
        r"|(?P<uvicorn>DEBUG|INFO|WARNING|ERROR|CRITICAL): {1,9}"
        r"|(?P<torch>\[W\d{4} \d\d:\d\d:\d\d\.\d+ [^\]]{1,200}\] ))"
    )
    return ansi, outer, process, level


def _from_json(text: str) -> str | None:
    """Return the message of a line of docker's json-file driver."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = value.get("log", value.get("message")) if isinstance(value, dict) else None
    return message.rstrip("\r\n") if isinstance(message, str) else None


def read_line(raw: str) -> Line:
    """Take a line apart. Nothing in it is an error."""
    ansi, outer, process_at, level_at = _patterns()
    text = raw[:MAX_CHARS]
    if "\x1b" in text:
        text = ansi.sub("", text)
    time = process = None
    for _ in range(_LAYERS):
        if text.startswith('{"') and (inner := _from_json(text)) is not None:
            text = ansi.sub("", inner) if "\x1b" in inner else inner
        found = outer.match(text)
        if found is None:
            break
        time = time or found["journal"] or found["cri"] or found["stamp"]
        text = text[found.end() :]
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
    level = levelled["level"] or levelled["uvicorn"] or "WARNING"
    return Line(text=text[levelled.end() :].rstrip(), level=level, process=process, time=levelled["time"] or time)
