# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a fake server: steps of known length that give known numbers of tokens."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from hashlib import blake2b
from typing import Any

from attrs import define, field

from jetson_specdec.testing.truth import Truth
from jetson_specdec.values import frozen

__all__ = ["BLOCK", "Counts", "FakeEngine", "Output", "words_of"]

BLOCK = 16
"""Tokens a block of the prefix cache holds."""

_SENTENCE = (
    "the board keeps a steady pace while each small step adds one more word to what it has said before and then "
    "another so that an answer grows at a rate which is known in advance and can be checked against what a client saw"
)
_VOCABULARY = tuple(_SENTENCE.split())


def words_of(text: str) -> list[str]:
    """Split a prompt into what this server calls tokens: words, and single characters of Chinese."""
    words: list[str] = []
    for word in text.split():
        if word.isascii():
            words.append(word)
            continue
        run = ""
        for character in word:
            if ord(character) >= 0x2E80:
                words.extend([run, character] if run else [character])
                run = ""
            else:
                run += character
        words.extend([run] if run else [])
    return words


STEP_EDGES = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, math.inf)
"""Upper edges of vLLM's histogram of the tokens of a step."""


@define
class Counts:
    """What the engine counted since it started, in the terms of vLLM's metrics.

    A gap lies between two outputs of one request, however many tokens the second has (vLLM's inter-token latency).
    """

    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(factory=list)
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    preemptions: int = 0
    steps: int = 0
    step_tokens: int = 0
    steps_of: Counter[float] = field(factory=Counter)
    first_tokens: int = 0
    first_token_seconds: float = 0.0
    gaps: int = 0
    gap_seconds: float = 0.0
    request_tpots: int = 0
    request_tpot_seconds: float = 0.0
    finished: Counter[str] = field(factory=Counter)


@frozen
class Output:
    """What one step (or several, see `Truth.burst`) gave one request."""

    words: tuple[str, ...]
    finish_reason: str | None


@define(eq=False)
class _Sequence:
    prompt: list[str]
    max_tokens: int
    length: int
    finish_reason: str
    salt: int
    cached: int
    queue: asyncio.Queue[Output]
    arrived: float = 0.0
    made: int = 0
    steps: int = 0
    decode_seconds: float = 0.0
    held: list[str] = field(factory=list)
    drafts: int = 0
    draft_tokens: int = 0
    accepted: list[int] = field(factory=list)
    gone: bool = False


class FakeEngine:
    """Runs steps while there is something to run.

    Args:
        truth: how long steps take and how much they accept.
        k: drafted tokens a step, or 0.
        schedule: batch size → k, where the configuration gives ranges; overrides `k`.
        max_num_seqs: sequences that run at once; others wait.
        prefix_caching: whether repeated beginnings of prompts cost nothing.
        time_scale: real seconds a simulated second takes.
        on_step: called after each step with the simulated time.
    """

    def __init__(
        self,
        truth: Truth,
        *,
        k: int = 0,
        schedule: Callable[[int], int] | None = None,
        max_num_seqs: int = 256,
        prefix_caching: bool = True,
        time_scale: float = 1.0,
        on_step: Callable[[float], None] | None = None,
    ) -> None:
        self.truth = truth
        self.k = k
        self.k_at = schedule or (lambda _batch: self.k)
        self.max_num_seqs = max_num_seqs
        self.prefix_caching = prefix_caching
        self.time_scale = time_scale
        self._on_step = on_step or (lambda _now: None)
        self.counts = Counts(accepted_per_position=[0] * max(k, 1))
        self.now = 0.0
        self.running: list[_Sequence] = []
        self.waiting: deque[_Sequence] = deque()
        self._blocks: set[bytes] = set()
        self._noise = random.Random(truth.seed)
        self._task: asyncio.Task[None] | None = None
        self._deadline = 0.0

    async def generate(
        self, prompt: list[str], max_tokens: int, *, ignore_eos: bool = False
    ) -> AsyncIterator[tuple[Output, _Sequence]]:
        """Yield what each step gives a request until it is finished; leaving the iterator aborts it."""
        sequence = self._admit(prompt, max_tokens, ignore_eos)
        self.waiting.append(sequence)
        if self._task is None or self._task.done():
            self._deadline = asyncio.get_running_loop().time()
            self._task = asyncio.ensure_future(self._run())
        finished = False
        try:
            while not finished:
                output = await sequence.queue.get()
                finished = output.finish_reason is not None
                yield output, sequence
        finally:
            if not finished and not sequence.gone:
                sequence.gone = True
                self.counts.finished["abort"] += 1

    def reset_prefix_cache(self) -> None:
        """Forget every prompt."""
        self._blocks.clear()

    async def close(self) -> None:
        """Stop stepping."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _admit(self, prompt: list[str], max_tokens: int, ignore_eos: bool) -> _Sequence:
        natural = None if ignore_eos else self.truth.answer_tokens
        stops = natural is not None and natural <= max_tokens
        digest = blake2b(" ".join(prompt).encode(), digest_size=4).digest()
        return _Sequence(
            prompt=prompt,
            max_tokens=max_tokens,
            length=natural if stops and natural is not None else max_tokens,
            finish_reason="stop" if stops else "length",
            salt=int.from_bytes(digest, "big"),
            cached=self._look_up(prompt),
            queue=asyncio.Queue(),
            arrived=self.now,
        )

    def _look_up(self, prompt: list[str]) -> int:
        if not self.prefix_caching:
            return 0
        hits, hit, running = 0, True, blake2b(digest_size=8)
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            running.update("\0".join(prompt[start : start + BLOCK]).encode())
            block = running.digest()
            # The last token is always computed, so a prompt that is cached whole still misses its last block.
            hit = hit and block in self._blocks and start + BLOCK < len(prompt)
            hits += BLOCK * hit
            self._blocks.add(block)
        self.counts.prefix_queries += len(prompt)
        self.counts.prefix_hits += hits
        return hits

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self.waiting or self.running:
            fresh = []
            while self.waiting and len(self.running) < self.max_num_seqs:
                fresh.append(self.waiting.popleft())
                self.running.append(fresh[-1])
            k = self.k_at(len(self.running)) if len(self.running) > len(fresh) else 0
            new_tokens = sum(len(sequence.prompt) - sequence.cached for sequence in fresh)
            seconds = self.truth.step_seconds(len(self.running), k, new_tokens=new_tokens, at=self.now)
            if self.truth.noise:
                seconds *= max(self._noise.gauss(1.0, self.truth.noise), 0.1)
            self.now += seconds
            # Steps follow a timetable, so that a late wake-up of a busy machine does not add up.
            self._deadline = max(self._deadline, loop.time() - 0.05) + seconds * self.time_scale
            await asyncio.sleep(max(self._deadline - loop.time(), 0.0))
            newcomers = set(map(id, fresh))
            made = self.counts.generation_tokens
            for sequence in self.running:
                self._advance(sequence, k if id(sequence) not in newcomers else 0, id(sequence) in newcomers, seconds)
            self.counts.steps += 1
            tokens = self.counts.generation_tokens - made + new_tokens
            self.counts.step_tokens += tokens
            self.counts.steps_of[next(edge for edge in STEP_EDGES if tokens <= edge)] += 1
            self.running = [sequence for sequence in self.running if not sequence.gone]
            self._on_step(self.now)

    def _advance(self, sequence: _Sequence, k: int, prefill: bool, seconds: float) -> None:
        if sequence.gone:
            return
        if prefill:
            self.counts.prompt_tokens += len(sequence.prompt)
            self.counts.first_tokens += 1
            self.counts.first_token_seconds += self.now - sequence.arrived
        else:
            self.counts.gaps += 1
            self.counts.gap_seconds += seconds
            sequence.decode_seconds += seconds
        accepted = self.truth.accepted(sequence.steps, k, offset=sequence.salt / 2**32) if k else 0
        if k:
            self._count_draft(sequence, k, accepted)
        words = [
            _VOCABULARY[(sequence.salt + 7 * index) % len(_VOCABULARY)]
            for index in range(sequence.made, min(sequence.made + 1 + accepted, sequence.length))
        ]
        sequence.made += len(words)
        sequence.steps += not prefill
        self.counts.generation_tokens += len(words)
        sequence.held.extend(words)
        finished = sequence.made >= sequence.length
        if finished or prefill or sequence.steps % self.truth.burst == 0:
            sequence.queue.put_nowait(Output(tuple(sequence.held), sequence.finish_reason if finished else None))
            sequence.held.clear()
        if finished:
            sequence.gone = True
            self.counts.finished[sequence.finish_reason] += 1
            self.counts.request_tpots += 1
            self.counts.request_tpot_seconds += sequence.decode_seconds / max(sequence.made - 1, 1)

    def _count_draft(self, sequence: _Sequence, k: int, accepted: int) -> None:
        counts = self.counts
        counts.drafts += 1
        counts.draft_tokens += k
        counts.accepted_tokens += accepted
        for rates in (counts.accepted_per_position, sequence.accepted):
            rates.extend([0] * (k - len(rates)))
            for position in range(accepted):
                rates[position] += 1
        sequence.drafts += 1
        sequence.draft_tokens += k


def schedule_of(config: Mapping[str, Any] | None) -> tuple[int, Callable[[int], int] | None]:
    """Return k and the batch schedule of a speculative configuration (`num_speculative_tokens_per_batch_size`)."""
    if not config:
        return 0, None
    k = int(config.get("num_speculative_tokens") or 0)
    ranges = config.get("num_speculative_tokens_per_batch_size")
    if not ranges:
        return k, None
    rows = [(int(low), int(high), int(tokens)) for low, high, tokens in ranges]
    return k, lambda batch: next((tokens for low, high, tokens in rows if low <= batch <= high), rows[-1][2])
