# SPDX-License-Identifier: Apache-2.0
"""Write two small random Llama checkpoints that agree on everything: `OUT/target`, and `OUT/draft` with one layer.

Run it with the Python of a vLLM installation: it needs torch, transformers and tokenizers. The layers add nothing to
the residual stream, so both models give the same next token and a draft is always accepted.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SIZE, HIDDEN = 512, 128


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<s>", "</s>", "<unk>", *(f"word{number}" for number in range(SIZE - 3))]
    plain = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def checkpoint(layers: int) -> LlamaForCausalLM:
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=SIZE,
        hidden_size=HIDDEN,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    table = torch.randn(SIZE, HIDDEN)
    table /= table.pow(2).mean(-1, keepdim=True).sqrt()
    following = torch.roll(table, 1, 0)  # after word n comes word n + 1
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(table)
        model.lm_head.weight.copy_(following * (20.0 / HIDDEN))
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    return model.to(torch.float32)


def main(out: Path) -> None:
    for name, layers in (("target", 4), ("draft", 1)):
        checkpoint(layers).save_pretrained(out / name)
        tokenizer().save_pretrained(out / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
