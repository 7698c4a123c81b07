# SPDX-License-Identifier: Apache-2.0
"""Prompts: the set of this project, users' files, and random tokens.

The own set (`data/prompts.jsonl`) was written for this project. Acceptance depends on the kind of text, so it has
several kinds, and draws keep their shares.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve, field

from jetson_specdec.errors import OptionError
from jetson_specdec.packaged import packaged_text
from jetson_specdec.values import frozen

__all__ = ["Prompt", "PromptSet", "load_prompts", "own_prompts", "random_prompts"]

Message = Mapping[str, str]


@frozen(kw_only=True)
class Prompt:
    """One thing to ask.

    Attributes:
        id: the same prompt has the same id wherever it is used.
        text: what is asked, as plain text.
        category: kind of text, such as `code`; None where the source does not say.
        language: such as `en`.
        approx_tokens: about how long it is; for people, never for a computation.
        turns: earlier messages of a conversation (`role`, `content`), before `text`.
        token_ids: token ids instead of text (random prompts; completions only).
    """

    id: str
    text: str = field(default="", repr=False)
    category: str | None = None
    language: str | None = None
    approx_tokens: int | None = None
    turns: tuple[Message, ...] = field(default=(), repr=False)
    token_ids: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation to send to a chat endpoint."""
        return (*self.turns, {"role": "user", "content": self.text})


@frozen(kw_only=True)
class PromptSet:
    """Prompts under a name.

    Attributes:
        name: shown in reports; `random` means unrepresentative.
        prompts: in the order of their source.
    """

    name: str
    prompts: tuple[Prompt, ...] = field(repr=False)

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def categories(self) -> dict[str | None, int]:
        """How many prompts each category has."""
        counts: dict[str | None, int] = {}
        for prompt in self.prompts:
            counts[prompt.category] = counts.get(prompt.category, 0) + 1
        return counts

    def only(self, categories: Iterable[str]) -> PromptSet:
        """Return the prompts of some categories."""
        wanted = set(categories)
        return evolve(self, prompts=tuple(prompt for prompt in self.prompts if prompt.category in wanted))

    def arranged(self, seed: int) -> PromptSet:
        """Return the prompts shuffled so that every stretch has about the same share of each category.

        The order depends on the seed alone, so both arms of a comparison get the same prompts.
        """
        chance = random.Random(f"jetson-specdec {seed}")
        groups: dict[str | None, list[Prompt]] = {}
        for prompt in self.prompts:
            groups.setdefault(prompt.category, []).append(prompt)
        placed: list[tuple[float, str, Prompt]] = []
        for category, members in groups.items():
            chance.shuffle(members)
            shift = chance.random()
            placed.extend(
                ((index + shift) / len(members), str(category), member) for index, member in enumerate(members)
            )
        placed.sort(key=lambda item: item[:2])
        return evolve(self, prompts=tuple(prompt for _, _, prompt in placed))

    def salted(self, salt: str | None) -> PromptSet:
        """Return the prompts with a first line that makes them new to a server's prefix cache."""
        if salt is None:
            return self
        line = f"[{sha256(salt.encode()).hexdigest()[:8]}]\n"
        if any(prompt.token_ids is not None for prompt in self.prompts):
            raise OptionError("JSE676")
        return evolve(
            self,
            prompts=tuple(
                evolve(prompt, text=line + prompt.text)
                if not prompt.turns
                else evolve(
                    prompt,
                    turns=({**prompt.turns[0], "content": line + prompt.turns[0]["content"]}, *prompt.turns[1:]),
                )
                for prompt in self.prompts
            ),
        )

    def sha256(self) -> str:
        """Return a digest of the prompts and their order."""
        digest = sha256()
        for prompt in self.prompts:
            for part in (prompt.id, str(prompt.token_ids), *(f"{m['role']}\0{m['content']}" for m in prompt.messages)):
                digest.update(part.encode("utf-8", "surrogatepass"))
                digest.update(b"\x1e")
        return digest.hexdigest()


@lru_cache(maxsize=1)
def own_prompts() -> PromptSet:
    """Return the set of this project: chat, code, maths, summarising, extraction and Chinese, short and long."""
    from jetson_specdec.loadgen.prompt_files import parse_prompts

    text = packaged_text("loadgen", "data", "prompts.jsonl")
    return PromptSet(name="jetson-specdec", prompts=parse_prompts(text, where="prompts.jsonl"))


def load_prompts(path: str | Path, *, category: str | None = None) -> PromptSet:
    """Read prompts from a file, or from the folder of SPEED-Bench (its `qualitative.jsonl`).

    Known forms: JSON Lines with `prompt` or `text`, with `messages`, or with `turns` (Spec-Bench, MT-Bench); ShareGPT
    JSON (`conversations`); plain JSON lists of any of these, or of texts.

    Args:
        path: the file or folder.
        category: keep only this one.

    Raises:
        OptionError: it cannot be read, or has no prompts in a known form.
    """
    from jetson_specdec.loadgen.prompt_files import read_prompt_file

    found = read_prompt_file(Path(path))
    if category is None:
        return found
    some = found.only([category])
    if not some.prompts:
        raise OptionError("JSE671", path=str(path), category=category, known=sorted(map(str, found.categories)))
    return some


def random_prompts(count: int, *, input_len: int = 1024, vocabulary: int = 32_000, seed: int = 0) -> PromptSet:
    """Make prompts of random tokens in the way of `vllm bench serve --dataset-name random`.

    A prompt is a ramp of token ids, `(offset + i + 0…input_len−1) mod vocabulary`, with a random offset. No text looks
    like that: what a draft model makes of it says nothing about real work, and reports of it say so. vLLM leaves
    special tokens out and adjusts the length by decoding and encoding again; here the ids are sent as they are.

    Args:
        count: how many.
        input_len: tokens each.
        vocabulary: ids below this; at most the model's vocabulary.
        seed: of the offsets.

    Raises:
        OptionError: a number is not positive.
    """
    if min(count, input_len, vocabulary) < 1:
        raise OptionError("JSE675", count=count, input_len=input_len, vocabulary=vocabulary)
    import numpy as np

    generator = np.random.default_rng(seed)
    # vLLM draws input lengths and output lengths first; without a range both are constant but advance the generator.
    generator.integers(input_len, input_len + 1, size=count)
    generator.integers(1, 2, size=count)
    offsets: Sequence[int] = generator.integers(0, vocabulary, size=count).tolist()
    return PromptSet(
        name="random",
        prompts=tuple(
            Prompt(
                id=f"random-{seed}-{index}",
                category="random",
                approx_tokens=input_len,
                token_ids=tuple((offset + index + step) % vocabulary for step in range(input_len)),
            )
            for index, offset in enumerate(offsets)
        ),
    )


def as_prompt_set(source: PromptSet | Iterable[Prompt | str] | Path | str | None, **random_options: Any) -> PromptSet:
    """Return a prompt set from whatever was given: a set, prompts, texts, a path, `random`, or None for the own set.

    Raises:
        OptionError: a file cannot be used.
    """
    if source is None:
        return own_prompts()
    if isinstance(source, PromptSet):
        return source
    if source == "random":
        return random_prompts(**random_options)
    if isinstance(source, (str, Path)):
        return load_prompts(source)
    prompts = tuple(
        item if isinstance(item, Prompt) else Prompt(id=f"given-{index}", text=item)
        for index, item in enumerate(source)
    )
    return PromptSet(name="given", prompts=prompts)
