# SPDX-License-Identifier: Apache-2.0
"""Reading a log once: blocks without any known text are skipped, the others line by line, into the starts it shows.

The work grows with the length of the log and not with what stands in it; 50 MB of a busy server take a few seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

from jetson_specdec.logs import markers
from jetson_specdec.logs.attempt import Attempt, Hit, Proof
from jetson_specdec.logs.lines import MAX_CHARS, Line, read_line
from jetson_specdec.logs.signatures import Signature, signatures

__all__ = ["scan"]

BLOCK_CHARS = 1 << 18
CONTEXT_LINES = 60
CONTEXT_CHARS = 400
JOINED_LINES = 40
MAX_HITS = 25
"""A line repeated more often than this in one start adds nothing."""
SHOWN_CHARS = 1000

# Once requests are answered these lines say nothing new; they are most of a busy server's log.
_DULL = frozenset({"HTTP/1.1", "Avg generation throughput:", "SpecDecoding metrics:", "version ", "137", "huggingface.co/"})
_RETRIED = ("Error retrieving file list", "thrown while requesting", ", retrying ", "Retrying in ", "stats.vllm.ai")
_HEALTHY = ("resource_tracker:", "If you see ")


@lru_cache(maxsize=1)
def _by_anchor() -> dict[str, tuple[Signature, ...]]:
    found: dict[str, list[Signature]] = {anchor: [] for anchor in markers.anchors()}
    for signature in signatures():
        for anchor in signature.anchors:
            found.setdefault(anchor, []).append(signature)
    for anchor in ("Error", "Exception"):
        found.setdefault(anchor, [])
    return {anchor: tuple(entries) for anchor, entries in found.items()}


@lru_cache(maxsize=1)
def _exception() -> Signature:
    return next(entry for entry in signatures() if entry.id == "exception")


def scan(text: str, name: str = "log") -> list[Attempt]:
    """Return the starts a log shows, oldest first; one for an empty log.

    Args:
        text: the log.
        name: what to call it in proofs.
    """
    return _Scan(text, name).run()


class _Scan:
    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.attempts = [Attempt(input=name)]
        self.before: deque[str] = deque(maxlen=CONTEXT_LINES)
        self.counts: Counter[tuple[int, str]] = Counter()
        self.order = 0

    def run(self) -> list[Attempt]:
        by_anchor = _by_anchor()
        number = 1
        for start, block in _blocks(self.text):
            present = [anchor for anchor in by_anchor if anchor in block]
            lines = block.split("\n")
            if block.endswith("\n"):
                lines.pop()
            if not present:
                self.before.extend(line[:CONTEXT_CHARS] for line in lines[-CONTEXT_LINES:])
            else:
                self._block(lines, start, number, present)
            number += len(lines)
        return [attempt for attempt in self.attempts if not attempt.empty] or self.attempts[:1]

    def _block(self, lines: Sequence[str], start: int, number: int, present: Sequence[str]) -> None:
        offset = start
        for index, raw in enumerate(lines):
            end = offset + len(raw) + 1
            if len(raw) > MAX_CHARS:
                raw = raw[:MAX_CHARS]
            found = [anchor for anchor in present if anchor in raw]
            if found and not (self.attempts[-1].served and _DULL.issuperset(found)):
                for part in raw.split("\r") if "\r" in raw else (raw,):
                    self._line(part, number + index, found, end)
            self.before.append(raw[:CONTEXT_CHARS])
            offset = end

    def _line(self, raw: str, number: int, found: Sequence[str], end: int) -> None:
        line = read_line(raw)
        if not line.text:
            return
        self.order += 1
        if markers.begins_attempt(line, self.attempts[-1]):
            self.attempts.append(Attempt(input=self.name, time=line.time))
        attempt = self.attempts[-1]

        def proof() -> Proof:
            return Proof(input=self.name, line=number, text=_shown(line.text))

        markers.read_marker(line, attempt, self.order, proof)
        if attempt.started and attempt.stopped:
            # Someone stopped it: what it says on the way down is no failure.
            return
        self._hits(line, attempt, found, end, proof())

    def _hits(self, line: Line, attempt: Attempt, found: Sequence[str], end: int, proof: Proof) -> None:
        by_anchor = _by_anchor()
        candidates = dict.fromkeys(entry for anchor in found if anchor in line.text for entry in by_anchor[anchor])
        before: str | None = None
        matched = False
        for entry in candidates:
            if line.quiet and not entry.quiet:
                continue
            if self.counts[len(self.attempts), entry.id] >= MAX_HITS:
                matched = True
                continue
            text = line.text
            if entry.until is not None and entry.until not in text:
                text = self._joined(text, end, entry.until)
            values = entry.match(text)
            if values is None:
                continue
            if before is None:
                before = "\n".join(self.before)
            if not entry.fits(before):
                continue
            matched = True
            self._add(entry, attempt, line, values, before, proof)
        if not matched and not line.quiet and ("Error" in line.text or "Exception" in line.text):
            entry = _exception()
            values = entry.match(line.text)
            if values is not None and self.counts[len(self.attempts), entry.id] < MAX_HITS:
                self._add(entry, attempt, line, values, "\n".join(self.before), proof)

    def _add(
        self, entry: Signature, attempt: Attempt, line: Line, values: dict[str, object], before: str, proof: Proof
    ) -> None:
        self.counts[len(self.attempts), entry.id] += 1
        tier = entry.tier
        if any(mark in line.text for mark in _HEALTHY):
            return
        if any(mark in line.text for mark in _RETRIED):
            tier = max(tier, 3)
        attempt.hits.append(
            Hit(
                signature=entry,
                order=self.order,
                tier=tier,
                values=values,
                proof=proof,
                before=before,
                progress=attempt.progress,
                drafter=attempt.drafter and not attempt.loaded,
                started=attempt.started,
            )
        )

    def _joined(self, text: str, end: int, until: str) -> str:
        following = self.text[end : end + MAX_CHARS].split("\n")[:JOINED_LINES]
        joined = [text]
        for raw in following:
            joined.append(read_line(raw.rstrip("\r")).text)
            if until in joined[-1]:
                break
        return "\n".join(joined)


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Cut a text at line ends; a line longer than a block is a block of its own."""
    start, length = 0, len(text)
    while start < length:
        end = min(start + BLOCK_CHARS, length)
        if end < length:
            cut = text.rfind("\n", start, end)
            if cut < 0:
                cut = text.find("\n", end)
            end = length if cut < 0 else cut + 1
        yield start, text[start:end]
        start = end


def _shown(text: str) -> str:
    from jetson_specdec.recipe.masking import redact

    shown = redact(text[: 4 * SHOWN_CHARS])[0]
    return shown if len(shown) <= SHOWN_CHARS else shown[:SHOWN_CHARS] + " …"
