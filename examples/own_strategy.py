# SPDX-License-Identifier: Apache-2.0
"""A strategy of your own: n-gram lookup, which needs no draft weights, where nothing better is published.

Here it is handed to the planner. A package would register it under the entry point group `jetson_specdec.strategies`.
"""

from __future__ import annotations

from jetson_specdec import Finding, Planner, Proposal, Refusal, Situation


class NgramStrategy:
    """Look the next tokens up in the prompt: good for summaries and code edits, of no use for free chat."""

    name = "ngram"
    priority = 100  # after EAGLE-3 (300) and draft models (200), before "none" (0)

    def propose(self, situation: Situation) -> Proposal | Refusal:
        if situation.flags.enable_lora:
            return Refusal(strategy=self.name, reason=Finding.of("JSD563"))
        config = {
            "method": "ngram",
            "num_speculative_tokens": 3,
            "prompt_lookup_max": 4,
            "prompt_lookup_min": 2,
        }
        return Proposal(strategy=self.name, config=config)


if __name__ == "__main__":
    from jetson_specdec import DraftModelStrategy, Eagle3Strategy, NoSpec

    planner = Planner(strategies=[Eagle3Strategy(), DraftModelStrategy(), NgramStrategy(), NoSpec()])
    recipe = "vllm serve mistralai/Mistral-7B-Instruct-v0.3 --max-model-len 8192 --gpu-memory-utilization 0.7"
    plan = planner.plan(recipe, device="thor-t5000", l4t="38.4.0")
    print(plan.outcome, plan.speculative_config)
    print(plan.recipe.after)
