# SPDX-License-Identifier: Apache-2.0
"""Reading a log once: blocks without any known text are skipped, the others line by line, into the starts it shows.

The work grows with the length of the log and not with what stands in it; 50 MB of a busy server take a few seconds.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from jetson_specdec.logs import markers
from jetson_specdec.logs.attempt import Attempt, Hit, Proof
from jetson_specdec.logs.lines import MAX_CHARS, Line, read_line, split_line
from jetson_specdec.logs.masked import masked
from jetson_specdec.logs.signatures import Signature, signatures

__all__ = ["scan"]

BLOCK_CHARS = 1 << 18
CONTEXT_LINES = 60
CONTEXT_CHARS = 400
MAX_JOINS = 50
MAX_HITS = 8
"""A line repeated more often than this in one start adds nothing."""
MAX_FRUITLESS = 20_000
"""A text that looked like this entry so often in one start and never was belongs to something else."""
MAX_ATTEMPTS = 100
SHOWN_CHARS = 1000

# Once requests are answered these lines say nothing new; they are most of a busy server's log.
_DULL = frozenset(
    {"HTTP/1.1", "Avg generation throughput:", "SpecDecoding metrics:", "version ", "137", "huggingface.co/"}
)
_KEY_CHARS = 200
_SPECULATES = "SpecDecoding metrics:"
_RETRIED = ("Error retrieving file list", "thrown while requesting", ", retrying ", "Retrying in ", "stats.vllm.ai")
_CACHE = frozenset(("kv-none", "kv-small", "kv-small-v0", "kv-small-mamba"))
_EXCEPTIONS = frozenset(("Error:", "Exception:"))
_LAST_WORDS = ("Engine core initialization failed", "serve: error:", "vllm: error:", "api_server.py: error:")
_WAS_UP = (
    "EngineCore encountered a fatal error",
    "EngineDeadError: EngineCore encountered",
    "AsyncLLM output_handler failed",
    "Engine background task failed",
)
_HEALTHY = ("resource_tracker:", "If you see ")


@lru_cache(maxsize=1)
def _by_anchor() -> dict[str, tuple[Signature, ...]]:
    found: dict[str, list[Signature]] = {anchor: [] for anchor in markers.anchors()}
    for signature in signatures():
        for anchor in signature.anchors:
            found.setdefault(anchor, []).append(signature)
    return {anchor: tuple(entries) for anchor, entries in found.items()}


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(markers.anchors())


@lru_cache(maxsize=1)
def _escaped() -> dict[str, str]:
    """Return the anchors that are not ASCII, as a collector's JSON can spell them."""
    return {json.dumps(anchor)[1:-1]: anchor for anchor in _by_anchor() if not anchor.isascii()}


@lru_cache(maxsize=1)
def _exception() -> Signature:
    return next(entry for entry in signatures() if entry.id == "exception")


def scan(text: str, name: str = "log") -> tuple[list[Attempt], int]:
    """Return the starts a log shows, oldest first, at least one; and how many it shows in all.

    Of very many the first and the last ones are returned.

    Args:
        text: the log.
        name: what to call it in proofs.
    """
    return _Scan(text, name).run()


class _Scan:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.first: Attempt | None = None
        self.last: deque[Attempt] = deque(maxlen=MAX_ATTEMPTS)
        self.current = Attempt(input=name)
        self.total = 0
        self.before: deque[str] = deque(maxlen=CONTEXT_LINES)
        self.counts: Counter[str] = Counter()
        self.fruitless: Counter[str] = Counter()
        self.order = self.joins = 0

    def run(self) -> tuple[list[Attempt], int]:
        by_anchor = _by_anchor()
        if "\\u" in self.text:
            for escaped, anchor in _escaped().items():
                self.text = self.text.replace(escaped, anchor)
        anywhere = [anchor for anchor in by_anchor if anchor in self.text]
        number = 1
        for start, block, count in _blocks(self.text):
            present = [anchor for anchor in anywhere if anchor in block]
            lines = block.split("\n")
            if block.endswith("\n"):
                lines.pop()
            if present:
                self._block(lines, start, number, present)
            else:
                self.before.extend(line[:CONTEXT_CHARS] for line in lines[-CONTEXT_LINES:])
            number += count
        self._keep()
        kept = [*([] if self.first is None else [self.first]), *self.last]
        for attempt in kept:
            markers.finish(attempt)
        return kept or [self.current], max(self.total, 1)

    def _keep(self) -> None:
        """Put the current start with the others."""
        if self.current.empty:
            return
        self.total += 1
        if self.first is None:
            self.first = self.current
        else:
            self.last.append(self.current)

    def _next(self, time: str | None, speculates: bool | None = None) -> None:
        self._keep()
        self.current = Attempt(input=self.name, time=time, speculates=speculates)
        self.counts.clear()
        self.fruitless.clear()
        self.before.clear()

    def _block(self, lines: Sequence[str], start: int, number: int, present: Sequence[str]) -> None:
        offset = start
        for index, raw in enumerate(lines):
            end = offset + len(raw) + 1
            if len(raw) > MAX_CHARS:
                raw = raw[:MAX_CHARS]
            found = [anchor for anchor in present if anchor in raw]
            if found and self._worth_reading(found):
                for part in split_line(raw):
                    self._line(part, number + index, found, end)
            self.before.append(raw[:CONTEXT_CHARS])
            offset = end

    def _worth_reading(self, found: Sequence[str]) -> bool:
        """Whether a line with these anchors can say something new about the current start."""
        if self.current.served and _DULL.issuperset(found):
            return _SPECULATES in found and self.current.speculates is not True
        by_anchor, marks = _by_anchor(), _marks()
        if self.current.started and not _EXCEPTIONS.isdisjoint(found):
            return True
        return any(
            anchor in marks
            or any(
                self.counts[entry.id] < MAX_HITS and self.fruitless[entry.id] < MAX_FRUITLESS
                for entry in by_anchor[anchor]
            )
            for anchor in found
        )

    def _line(self, raw: str, number: int, found: Sequence[str], end: int) -> None:
        line = read_line(raw)
        if not line.text:
            return
        self.order += 1
        if markers.begins_attempt(line, self.current):
            self._next(line.time)

        def proof() -> Proof:
            return Proof(input=self.name, line=number, text=_shown(line.text))

        if not _marks().isdisjoint(found):
            started = self.current.started
            markers.read_marker(line, self.current, self.order, proof)
            if self.current.started and not started:
                # What a healthy start showed on the way must not use up the room for what ends it later.
                self.counts.clear()
                self.fruitless.clear()
        if self.current.time is None:
            self.current.time = line.time
        if "^C" in raw[:_KEY_CHARS]:
            # What a key press cut off is printed behind it.
            self.current.stopped = True
            return
        if self.current.started and self.current.stopped:
            # Someone stopped it: what it says on the way down is no failure.
            return
        self._hits(line, found, end, proof)

    def _hits(self, line: Line, found: Sequence[str], end: int, proof: Callable[[], Proof]) -> None:
        by_anchor = _by_anchor()
        candidates = dict.fromkeys(entry for anchor in found if anchor in line.text for entry in by_anchor[anchor])
        context: list[str] | None = None
        matched = False
        for entry in candidates:
            if entry is _exception() or (line.quiet and not entry.quiet):
                continue
            if self.current.stopped and entry.cause == "host_oom_killed":
                # A service that does not stop in time is killed: that is not the kernel's doing.
                continue
            values = entry.match(line.text)
            if entry.until is not None and entry.until not in line.text and self.joins < MAX_JOINS:
                self.joins += 1
                values = self._going_on(entry, line, end, values)
            if values is None:
                self.fruitless[entry.id] += 1
                continue
            if context is None:
                context = self._context(line)
            if not entry.fits("\n".join(context)):
                continue
            matched = True
            if entry.tier == 1 and _is_new(entry, values, self.current):
                # A log of several starts without their beginnings.
                self._next(line.time, self.current.speculates)
            self._add(entry, line, values, context, proof)
        if not matched and not line.quiet and _exception() in candidates:
            values = _exception().match(line.text)
            if values is not None:
                self._add(_exception(), line, values, self._context(line), proof)

    def _add(
        self,
        entry: Signature,
        line: Line,
        values: dict[str, object],
        context: Sequence[str],
        proof: Callable[[], Proof],
    ) -> None:
        attempt, tier = self.current, entry.tier
        full = self.counts[entry.id] >= MAX_HITS
        # While it serves, requests fail for reasons of their own: the last exceptions are the ones that can end it.
        if any(mark in line.text for mark in _HEALTHY) or _in_passing(line, context):
            return
        if full and not (attempt.started and entry is _exception()):
            return
        if full:
            attempt.hits.remove(next(hit for hit in attempt.hits if hit.signature is entry and hit.started))
        self.counts[entry.id] += 1
        if any(mark in line.text for mark in _RETRIED):
            tier = max(tier, 3)
        if not attempt.started and any(mark in line.text for mark in _WAS_UP):
            # The beginning of the log is missing: this is only said by an engine that was up.
            attempt.started = attempt.implied = True
            attempt.reach("serving")
        attempt.closed = attempt.closed or any(mark in line.text for mark in _LAST_WORDS)
        attempt.hits.append(
            Hit(
                signature=entry,
                order=self.order,
                tier=tier,
                values=values,
                proof=proof(),
                lines_before=tuple(context),
                process=line.process,
                progress=attempt.progress,
                drafter=attempt.drafter and not attempt.loaded,
                started=attempt.started,
            )
        )

    def _going_on(
        self, entry: Signature, line: Line, end: int, values: dict[str, object] | None
    ) -> dict[str, object] | None:
        """Read a message that goes on over the following lines; `values` is what its first line alone says."""
        said = [line.text]
        for raw in self.text[end : end + MAX_CHARS].split("\n")[: 4 * entry.lines]:
            other = read_line(raw.rstrip("\r"))
            if other.process != line.process and None not in (other.process, line.process):
                continue
            if other.quiet and not line.quiet:
                continue
            said.append(other.text)
            if str(entry.until) in other.text or len(said) > entry.lines:
                break
        whole = str(entry.until) in said[-1]
        for text in ("\n".join(said), " ".join(part.strip() for part in said)):
            more = entry.match(text)
            if more is not None and (values is None or (whole and len(more) >= len(values))):
                values = more
        return values

    def _context(self, line: Line) -> list[str]:
        """Return the lines before, without those of other processes."""
        before = [read_line(raw).text if raw.startswith("{") else raw for raw in self.before]
        if line.process is None:
            return before
        own = f"({line.process}"
        return [raw for raw in before if own in raw or read_line(raw).process in (None, line.process)]


def _blocks(text: str) -> Iterator[tuple[int, str, int]]:
    """Cut a text at line ends: where a block starts, the block, and its number of lines.

    A line longer than a block is a block of its own, cut off where nothing is read any more.
    """
    start, length = 0, len(text)
    while start < length:
        end = min(start + BLOCK_CHARS, length)
        if end < length:
            cut = text.rfind("\n", start, end)
            if cut < 0:
                cut = text.find("\n", end)
                yield start, text[start : start + MAX_CHARS], 1
                start = length if cut < 0 else cut + 1
                continue
            end = cut + 1
        block = text[start:end]
        yield start, block, block.count("\n") + (not block.endswith("\n"))
        start = end


def _in_passing(line: Line, context: Sequence[str]) -> bool:
    """Whether a line belongs to the traceback of the thread that reports statistics: nothing waits for it."""
    if line.level is not None:
        return False
    for raw in reversed(context):
        if "Exception in thread" in raw:
            return "_report_usage" in raw
        if read_line(raw).level is not None:
            return False
    return False


def _is_new(entry: Signature, values: dict[str, object], attempt: Attempt) -> bool:
    """Whether a report must be of a further start.

    It follows the last words of this one, or cannot come from the same start: who fails the memory check at the
    beginning never gets to the cache. Reports are repeated by every process that hears of them: that is nothing new.
    """
    ids = {hit.signature.id for hit in attempt.hits}
    if (entry.id == "precheck" and not ids.isdisjoint(_CACHE)) or (entry.id in _CACHE and "precheck" in ids):
        return True
    if not attempt.closed or not any(hit.tier <= 2 for hit in attempt.hits):
        return False
    return not any(hit.values == values for hit in attempt.hits if hit.signature.id == entry.id)


@lru_cache(maxsize=1024)
def _shown(text: str) -> str:
    shown = masked(text[: 4 * SHOWN_CHARS])
    return shown if len(shown) <= SHOWN_CHARS else shown[:SHOWN_CHARS] + " …"
