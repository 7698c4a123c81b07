# SPDX-License-Identifier: Apache-2.0
"""What a fake server is: every figure a benchmark of it ought to find, written down beforehand."""

from __future__ import annotations

import math
from typing import Literal

from attrs import field

from jetson_specdec.values import frozen

__all__ = ["Fault", "FaultKind", "Memory", "Truth"]

FaultKind = Literal["status", "drop", "error_event", "hang", "truncate", "engine_dead"]


@frozen(kw_only=True)
class Truth:
    """The timing and acceptance a `FakeVllm` has by construction.

    One engine step of a batch of b sequences with k drafted tokens each takes
    `step_ms + (b−1)·batch_ms + k·draft_ms + b·k·verify_ms`, and gives every sequence 1 + accepted tokens; a step that
    admits new prompts takes `prefill_ms_per_token` more for each of their tokens that the prefix cache does not hold.

    Attributes:
        step_ms: a decode step of one sequence without speculation, ms.
        batch_ms: what each further sequence of the batch adds, ms.
        draft_ms: what drafting one position adds to a step, ms.
        verify_ms: what verifying one drafted token of one sequence adds, ms (the price of speculation at a batch).
        prefill_ms_per_token: prompt processing, ms a token.
        acceptance: share of drafts whose position i is accepted (vLLM's per-position rate, so never rising); further
            positions continue with the last ratio.
        noise: standard deviation of a step's duration, as a fraction of it.
        drift_per_minute: by what fraction steps become slower each minute.
        throttle_after_s: engine time after which the board throttles, or None.
        throttle_factor: how much longer a step then takes.
        burst: how many engine steps share one chunk of the stream.
        answer_tokens: where answers end by themselves (`finish_reason` stop); None: always at `max_tokens`.
        reasoning_tokens: how many tokens of a chat answer are reasoning.
        reasoning_field: the delta's key for them (`reasoning`; older servers: `reasoning_content`).
        early_role_chunk: send the role-only chunk of a chat before the prompt is processed, as some servers do.
        usage: whether the server counts tokens for the client.
        seed: of noise and acceptance.
    """

    step_ms: float = 20.0
    batch_ms: float = 0.5
    draft_ms: float = 1.5
    verify_ms: float = 0.1
    prefill_ms_per_token: float = 0.05
    acceptance: tuple[float, ...] = field(default=(0.75, 0.55, 0.40), converter=tuple)
    noise: float = 0.0
    drift_per_minute: float = 0.0
    throttle_after_s: float | None = None
    throttle_factor: float = 1.5
    burst: int = 1
    answer_tokens: int | None = None
    reasoning_tokens: int = 0
    reasoning_field: str = "reasoning"
    early_role_chunk: bool = False
    usage: bool = True
    seed: int = 0

    def per_position(self, k: int) -> tuple[float, ...]:
        """Return the share of drafts that accept position 0…k−1."""
        rates = list(self.acceptance[:k])
        ratio = 0.0
        if len(self.acceptance) >= 2 and self.acceptance[-2] > 0:
            ratio = self.acceptance[-1] / self.acceptance[-2]
        elif self.acceptance:
            ratio = self.acceptance[0]
        while len(rates) < k:
            rates.append(rates[-1] * ratio if rates else 0.0)
        return tuple(rates)

    def acceptance_rate(self, k: int) -> float | None:
        """Return accepted ÷ drafted tokens at k, or None where nothing is drafted."""
        return sum(self.per_position(k)) / k if k else None

    def mean_acceptance_length(self, k: int) -> float:
        """Return tokens a step gives one sequence (1 + accepted ÷ drafts)."""
        return 1.0 + sum(self.per_position(k))

    def step_seconds(self, batch: int, k: int, *, new_tokens: int = 0, at: float = 0.0) -> float:
        """Return how long a step takes, in seconds, noise left out.

        Args:
            batch: sequences in it.
            k: drafted tokens a sequence.
            new_tokens: uncached prompt tokens it also processes.
            at: engine time in seconds, for drift and throttling.
        """
        ms = self.step_ms + max(batch - 1, 0) * self.batch_ms + k * self.draft_ms + batch * k * self.verify_ms
        ms += new_tokens * self.prefill_ms_per_token
        ms *= 1.0 + self.drift_per_minute * at / 60.0
        if self.throttle_after_s is not None and at >= self.throttle_after_s:
            ms *= self.throttle_factor
        return ms / 1000.0

    def tpot_ms(self, *, k: int = 0, batch: int = 1) -> float:
        """Return the time per output token that a long answer shows, ms."""
        return 1000.0 * self.step_seconds(batch, k) / self.mean_acceptance_length(k)

    def accepted(self, step: int, k: int, *, offset: float = 0.0) -> int:
        """Return how many drafts step number `step` accepts.

        The draws are a golden-ratio sequence rather than random numbers: shares come out within about 1/steps of
        `per_position`, and are the same in every run.
        """
        draw = math.fmod(offset + (step + 1) * 0.6180339887498949, 1.0)
        return sum(draw < rate for rate in self.per_position(k))


@frozen
class Fault:
    """Something that goes wrong with one request.

    Attributes:
        kind: `status` (an HTTP error instead of an answer), `drop` (the connection breaks), `truncate` (the stream
            ends without a finish reason), `error_event` (the stream carries an error, as when the engine dies),
            `hang` (no further byte), `engine_dead` (this and every later request fails with 500, then 503).
        after_chunks: how many chunks are sent before it happens.
        status: of the HTTP error.
        message: what the error says.
    """

    kind: FaultKind
    after_chunks: int = field(default=0, kw_only=True)
    status: int = field(default=500, kw_only=True)
    message: str = field(
        default="EngineCore encountered an issue. See stack trace (above) for the root cause.", kw_only=True
    )


@frozen(kw_only=True)
class Memory:
    """A memory that a start can run out of, in the way vLLM accounts for it; sizes in GiB.

    Attributes:
        total_gib: what the GPU reports as its memory.
        free_gib: free when the engine starts.
        model_gib: weights of the target.
        draft_gib: weights of the draft, inside the budget as in vLLM.
        activations_gib: peak of the profiling run.
        kv_bytes_per_token: KV cache a token takes, draft included.
        load_peak_gib: additional memory while loading, outside the budget; more than is free is an out-of-memory error.
    """

    total_gib: float = 61.4
    free_gib: float = 57.0
    model_gib: float = 8.5
    draft_gib: float = 0.8
    activations_gib: float = 1.2
    kv_bytes_per_token: int = 135_168
    load_peak_gib: float = 0.0
