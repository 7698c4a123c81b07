# SPDX-License-Identifier: Apache-2.0
"""Write small checkpoints whose acceptance is known beforehand: `OUT/target`, `OUT/draft` and some that do not fit.

    python models.py OUT         in about 5 seconds, with the Python of the engine (torch, transformers, tokenizers)

Real Llama checkpoints: every layer costs its full compute and adds nothing, since its two output projections are zero.
What is left of a model is embedding × output matrix, which we choose: the next token depends on the last one alone. The
target walks two long cycles of words, an easy and a hard one. The draft walks alike but for a share of the words, so
each drafted token is right with probability alpha, and a round of k drafts yields Σ alpha^i (i = 0 … k) tokens.

`OUT/known.json` holds both walks (`next`, `draft_next`), so that a test can follow them word by word; `OUT/easy.jsonl`
and `OUT/hard.jsonl` are prompts that end in a word of that cycle.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ("<s>", "</s>", "<unk>")
WORDS = 2048 - len(SPECIAL)
ALPHA = {"easy": 0.85, "hard": 0.45}
PROMPTS, WORDS_A_PROMPT = 64, 24
CONTEXT = 2048
CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, `w3` being token 3; everything else is unknown."""
    words = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), size))]
    plain = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    made.chat_template = CHAT
    return made


def walks() -> dict:
    """Return who follows whom: for the target, and for the draft."""
    chance = random.Random(20)
    words = list(range(len(SPECIAL), len(SPECIAL) + WORDS))
    chance.shuffle(words)
    cycles = {"easy": words[: WORDS // 2], "hard": words[WORDS // 2 :]}
    after = [cycles["easy"][0]] * len(SPECIAL) + [0] * WORDS
    draft = list(after)
    for name, cycle in cycles.items():
        # An exact share, in a random order: what is known beforehand is then alpha itself.
        agrees = [at < round(ALPHA[name] * len(cycle)) for at in range(len(cycle))]
        chance.shuffle(agrees)
        for word, follower, right in zip(cycle, cycle[1:] + cycle[:1], agrees, strict=True):
            after[word] = follower
            draft[word] = follower if right else cycles[name][(cycle.index(follower) + 7) % len(cycle)]
    prompts = {
        name: [" ".join(f"w{word}" for word in (*chance.sample(words, WORDS_A_PROMPT - 1), chance.choice(cycle)))
               for _ in range(PROMPTS)]
        for name, cycle in cycles.items()
    }  # fmt: skip
    return {"alpha": ALPHA, "next": after, "draft_next": draft, "cycles": cycles, "prompts": prompts}


def checkpoint(after: list[int], *, hidden: int, layers: int, dtype: torch.dtype, seed: int) -> LlamaForCausalLM:
    """Return a model of this size for which word `after[n]` follows word n."""
    torch.manual_seed(seed)
    heads = hidden // 64
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(after), hidden_size=hidden, intermediate_size=hidden * 11 // 4, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=max(1, heads // 2), max_position_embeddings=CONTEXT,
            bos_token_id=0, eos_token_id=1, tie_word_embeddings=False,
        )
    )  # fmt: skip
    table = torch.randn(len(after), hidden)
    table /= table.pow(2).mean(-1, keepdim=True).sqrt()
    output = torch.zeros(len(after), hidden)
    output.index_add_(0, torch.tensor(after), table * (20.0 / hidden))  # the right word scores 20, others about 0 ± 1
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(table)
        model.lm_head.weight.copy_(output)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return model.to(dtype)


def main(out: Path) -> None:
    known = walks()
    size = len(known["next"])
    target, draft = known["next"], known["draft_next"]
    for seed, (name, after, hidden, layers, dtype) in enumerate(
        [
            ("target", target, 512, 48, torch.bfloat16),
            ("draft", draft, 256, 1, torch.float32),
            # For what has to fail, or only to start: as small as it goes.
            ("small", target, 128, 4, torch.float32),
            ("other-vocabulary", [*draft, *[3] * 64], 128, 1, torch.float32),
        ]
    ):
        checkpoint(after, hidden=hidden, layers=layers, dtype=dtype, seed=seed).save_pretrained(out / name)
        tokenizer(len(after)).save_pretrained(out / name)
    for name, prompts in known.pop("prompts").items():
        lines = (json.dumps({"id": f"{name}-{at}", "prompt": text}) for at, text in enumerate(prompts))
        (out / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    (out / "known.json").write_text(json.dumps({"size": size, **known}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
