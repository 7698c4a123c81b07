# SPDX-License-Identifier: Apache-2.0
"""The ledger of both arms, the memory step, the start check and the headroom."""

from __future__ import annotations

import json
import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.estimate.headroom import headroom
from jetson_specdec.estimate.memory import build_ledger
from jetson_specdec.estimate.overhead import activation_allowance, capture_sizes, graph_allowance
from jetson_specdec.estimate.step import choose_step
from jetson_specdec.models.core import DraftPair, Head
from jetson_specdec.models.profile import profile_from_config
from jetson_specdec.policy import Policy

GIB = 2**30
THOR = 125772 * 2**20  # MemTotal as tegrastats shows it
ORIN = 62_800 * 2**20

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
TARGET = profile_from_config(LLAMA, id="llama-8b")
HEAD = profile_from_config(
    {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, "draft_vocab_size": 32000}, id="head"
)
HYBRID = profile_from_config(
    {"model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
     "num_hidden_layers": 32, "num_attention_heads": 16, "torch_dtype": "bfloat16", "mamba_ssm_dtype": "float32",
     "max_position_embeddings": 262144}
)  # fmt: skip


def ledger(**changes):
    values = {
        "device_total_bytes": THOR, "available_bytes": 110 * GIB, "utilization": 0.8, "release_version": "0.32.0",
        "target": TARGET, "draft": HEAD, "k": 5, "max_model_len": 8192, "max_num_seqs": 16,
    }  # fmt: skip
    return build_ledger(**{**values, **changes})


def step(**changes):
    values = {
        "device_total_bytes": THOR, "available_bytes": 110 * GIB, "utilization": 0.8, "release_version": "0.32.0",
        "target": TARGET, "draft": HEAD, "k": 5, "max_model_len": 8192, "max_num_seqs": 16,
    }  # fmt: skip
    return choose_step(**{**values, **changes})


# --- arithmetic --------------------------------------------------------------------------------------------------


def test_the_lines_add_up_to_the_budget():
    for arm in (ledger().off, ledger().on):
        taken = sum(line.bytes for line in arm.lines if line.inside == "budget")
        assert taken == arm.budget_bytes == math.ceil(THOR * 0.8)
        assert arm.kv_available_bytes == arm.line("kv_cache").bytes


def test_the_drafter_is_inside_the_budget():
    both = ledger()
    assert both.on.budget_bytes == both.off.budget_bytes
    assert both.on.line("draft_weights").bytes == 2 * 424_673_280
    assert both.on.kv_bytes_per_token == 33 * 4096
    assert both.off.kv_bytes_per_token == 32 * 4096
    assert both.tokens_lost == both.tokens_lost_to_draft > 0
    assert both.tokens_lost_to_step == 0
    # one layer of 33, and the head's weights and graphs
    extra = both.on.line("cuda_graphs").bytes - both.off.line("cuda_graphs").bytes + 2 * 424_673_280
    by_hand = both.off.kv_available_bytes / (32 * 4096) - (both.off.kv_available_bytes - extra) / (33 * 4096)
    assert both.tokens_lost == pytest.approx(by_hand, abs=48)  # whole blocks on both sides


def test_lowering_the_value_costs_five_per_cent_of_the_board():
    lower = ledger(utilization_on=0.75)
    assert lower.on.budget_bytes == math.ceil(THOR * 0.75)
    assert lower.tokens_lost == lower.tokens_lost_to_draft + lower.tokens_lost_to_step
    assert lower.tokens_lost_to_step == pytest.approx(THOR * 0.05 / (33 * 4096), abs=32)
    assert lower.on.kv_available_bytes < ledger().on.kv_available_bytes, "a lower value makes no room"


def test_an_8_bit_cache_holds_twice_as_much():
    sixteen, eight = ledger().off, ledger(kv_dtype="fp8").off
    assert eight.kv_bytes_per_token * 2 == sixteen.kv_bytes_per_token
    assert eight.kv_tokens == pytest.approx(2 * sixteen.kv_tokens, abs=32)
    assert ledger(kv_dtype="fp8").on.kv_bytes_per_token == 33 * 2048, "the drafter inherits the cache's dtype"


def test_catalogue_entries_serve_as_drafters():
    head = Head(id="h", target="t", resident_bytes=849_346_560, kv_bytes_per_token=4096)
    pair = DraftPair(target="t", draft="d", resident_bytes=1_192_099_840, kv_bytes_per_token=114688)
    assert ledger(draft=head).on.kv_bytes_per_token == 33 * 4096
    on = ledger(draft=pair, method="draft_model").on
    assert on.line("draft_weights").bytes == 1_192_099_840
    assert on.kv_bytes_per_token == 32 * 4096 + 114688


def test_methods_without_a_drafter_take_no_memory_of_their_own():
    none = ledger(draft=None, method="ngram", k=3)
    assert none.on is not None
    assert none.on.line("draft_weights") is None
    assert none.on.kv_bytes_per_token == none.off.kv_bytes_per_token


def test_without_a_draft_there_is_one_arm():
    alone = ledger(draft=None, k=None)
    assert alone.on is None
    assert alone.kv_tokens == alone.off.kv_tokens
    assert alone.tokens_lost is None


def test_lookahead_slots():
    assert ledger().on.line("lookahead").bytes == 5 * 16 * 33 * 4096
    assert ledger(method="dflash").on.line("lookahead").bytes == 6 * 16 * 33 * 4096
    assert ledger().on.line("lookahead").inside == "kv_cache"


def test_recurrent_state_is_multiplied_and_said():
    both = ledger(target=HYBRID, k=3, max_num_seqs=64)
    assert both.off.line("recurrent_state").bytes == 64 * 24 * (3 * 8192 * 2 + 32 * 128 * 128 * 4)
    assert both.on.line("recurrent_state").bytes == 64 * 4 * 24 * (6 * 8192 * 2 + 32 * 128 * 128 * 4)
    assert "recurrent-state" in {finding.topic for finding in both.findings}
    assert both.on.full_sequences < both.off.full_sequences


# --- allowances, against the two public logs they were fitted to ---------------------------------------------------


def test_activation_allowance_against_logs_of_other_gpus():
    # vLLM PR 10511: Llama-3-8B, 8192 tokens, 256 sequences: "PyTorch activation peak memory 1.26GiB"
    assert activation_allowance(TARGET, batched_tokens=8192, num_seqs=256) / GIB == pytest.approx(1.26, rel=0.02)
    # LMCache issue 3430: Qwen3-8B, 2048 tokens, 256 sequences: 22.97 - 15.27 - 0.52 - 6.37 = 0.81 GiB, context included
    qwen = attrs.evolve(TARGET, intermediate_size=12288, vocab_size=151936)
    assert activation_allowance(qwen, batched_tokens=2048, num_seqs=256) / GIB == pytest.approx(0.81, rel=0.08)


def test_graphs_counted_as_vllm_logged_them():
    # "Profiling CUDA graph memory: PIECEWISE=51 (largest=512), FULL=35 (largest=256)"
    sizes = capture_sizes(256)
    assert (len(sizes), sizes[-1]) == (51, 512)
    full = [size for size in sizes if size <= 256]
    assert (len(full), full[-1]) == (35, 256)
    qwen = attrs.evolve(TARGET, layers=36)
    assert graph_allowance(qwen, None, num_seqs=256) / GIB == pytest.approx(0.52, rel=0.01)
    assert capture_sizes(256, k=5)[-1] == 512
    assert capture_sizes(2)[-1] == 4


def test_graphs_come_on_top_before_0_20():
    assert ledger(release_version="0.19.0").off.line("cuda_graphs").inside == "device"
    assert ledger(release_version="0.20.0").off.line("cuda_graphs").inside == "budget"
    assert ledger(enforce_eager=True).off.line("cuda_graphs").bytes == 0


# --- start check -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "available", "mem_free", "starts"),
    [
        ("0.32.0", 110 * GIB, None, True),
        ("0.32.0", 90 * GIB, None, False),
        ("0.12.0", 110 * GIB, None, True),
        ("0.11.0", 110 * GIB, None, None),  # page cache counts as used: MemAvailable alone does not tell
        ("0.11.0", 110 * GIB, 105 * GIB, True),
        ("0.11.0", 110 * GIB, 20 * GIB, None),
        ("0.11.0", 90 * GIB, 105 * GIB, False),
        (None, 110 * GIB, None, None),
        (None, 90 * GIB, None, False),
        ("0.32.0", None, None, None),
    ],
)
def test_start_check_by_release(release, available, mem_free, starts):
    arm = ledger(release_version=release, available_bytes=available, mem_free_bytes=mem_free).off
    assert arm.starts is starts
    assert arm.budget_bytes == math.ceil(THOR * 0.8)


def test_the_start_check_of_a_recorded_message():
    # "(61.30/122.82 GiB) on startup is less than desired GPU memory utilization (0.55, 67.55 GiB)"
    total, free = int(122.82 * GIB), int(61.30 * GIB)
    found = build_ledger(
        device_total_bytes=total, available_bytes=free, utilization=0.55, release_version="0.25.0", target=TARGET
    )
    assert round(found.off.budget_bytes / GIB, 2) == 67.55
    assert found.state == "start_check_fails"
    message = next(finding for finding in found.findings if finding.topic == "start-check")
    assert message.values["feasible"] == 0.49


def test_page_cache_is_named_for_releases_that_count_it():
    assert "page-cache-counted" in {finding.topic for finding in ledger(release_version="0.11.0").findings}
    assert "page-cache-counted" not in {finding.topic for finding in ledger(release_version="0.12.0").findings}


# --- unknown inputs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"target": None}, {"device_total_bytes": None}, {"utilization": None}, {"kv_dtype": "turbo"},
     {"target": attrs.evolve(TARGET, weight_bytes=None)}, {"draft": attrs.evolve(HEAD, weight_bytes=None)},
     {"target": attrs.evolve(TARGET, kv_layers=None, kv_bytes_bf16=None)}],
)  # fmt: skip
def test_what_is_unknown_stays_unknown(changes):
    arm = ledger(**changes).arm
    assert arm.kv_tokens is None
    assert arm.full_sequences is None
    assert arm.state == "unknown"
    assert arm.missing
    assert all(line.bytes is None for line in arm.lines if line.confidence == "unknown")
    json.dumps(ledger(**changes).to_json())


def test_a_ledger_is_only_as_sure_as_its_weakest_line():
    assert ledger().off.confidence == "low"
    assert ledger().off.line("target_weights").confidence == "medium"


# --- the step ----------------------------------------------------------------------------------------------------


def test_the_usual_step_where_there_is_room():
    choice = step()
    assert (choice.state, choice.step, choice.utilization) == ("full", 0.05, 0.75)
    assert "memory-step" in {finding.topic for finding in choice.findings}
    assert choice.ledger.tokens_lost == choice.ledger.off.kv_tokens - choice.ledger.on.kv_tokens


def fixed(length):
    """What one sequence needs with the head, and the rest of the budget, on Orin."""
    return dict(  # noqa: C408
        device_total_bytes=ORIN,
        available_bytes=55 * GIB,
        release_version="0.32.0",
        target=TARGET,
        draft=HEAD,
        k=3,
        max_num_seqs=8,
        max_model_len=length,
    )


def test_the_largest_smaller_step_that_fits():
    length = 65536
    on = build_ledger(utilization=0.5, **fixed(length)).on
    other = sum(line.bytes for line in on.lines if line.inside == "budget" and line.name != "kv_cache")
    # room for one sequence, one block and 2.5 % of the board: steps of 0.03 to 0.05 are too much
    needed = on.needed_bytes + 16 * 33 * 4096 + other + int(ORIN * 0.025)
    choice = choose_step(utilization=round(needed / ORIN, 4), **fixed(length))
    assert choice.state == "reduced"
    assert choice.step == 0.02
    assert choice.ledger.on.kv_fits is True
    again = build_ledger(
        utilization=choice.utilization + 0.02, utilization_on=round(choice.utilization - 0.01, 4), **fixed(length)
    )
    assert again.on.kv_fits is False, "the next larger step does not fit"
    assert next(f for f in choice.findings if f.code == "JSD491").values["step"] == 0.02


def test_nothing_fits():
    choice = step(utilization=0.14, max_model_len=131072)
    assert (choice.state, choice.step, choice.utilization) == ("none_fits", None, None)
    reason = next(finding for finding in choice.findings if finding.topic == "does-not-fit")
    assert reason.severity == "blocking"
    assert reason.values["needed"] == 131072 // 16 * 16 * 33 * 4096


def test_what_cannot_be_computed_keeps_the_rule():
    choice = step(target=None)
    assert (choice.state, choice.step, choice.utilization) == ("unknown", 0.05, 0.75)
    reason = next(finding for finding in choice.findings if finding.topic == "memory-unknown")
    assert "target_weights" in reason.values["missing"]


def test_a_running_server_does_not_decide_unless_asked_to():
    busy = {"available_bytes": 95 * GIB}
    assert step(**busy).state == "full"
    assert "start-check" not in {f.topic for f in step(**busy).findings}  # 0.75 asks for 92.1 GiB
    low = {"available_bytes": 60 * GIB}
    assert step(**low).state == "full"
    assert "start-check" in {finding.topic for finding in step(**low).findings}
    assert step(**low, start_check_decides=True).state == "none_fits"


def test_a_fixed_cache_does_not_follow_the_utilisation():
    choice = step(kv_cache_memory_bytes=10 * GIB)
    assert choice.ledger.tokens_lost_to_step == 0
    assert choice.ledger.on.kv_available_bytes == 10 * GIB
    assert choice.ledger.tokens_lost_to_draft == pytest.approx(10 * GIB / 4096 * (1 / 32 - 1 / 33), abs=32)
    assert "kv-cache-memory-bytes" in {finding.topic for finding in choice.findings}


def test_the_policy_decides_the_step():
    assert step(policy=Policy(utilization_step=0.0)).step == 0.0
    assert step(policy=Policy(utilization_step=0.1)).utilization == 0.7
    assert step(policy=Policy(utilization_step=0.035)).step == 0.035


@given(
    st.floats(0.1, 0.95), st.sampled_from([1024, 8192, 65536, 131072]), st.sampled_from([ORIN, THOR]),
    st.integers(1, 8),
)  # fmt: skip
def test_a_chosen_step_always_leaves_one_sequence(utilization, length, total, k):
    choice = step(utilization=utilization, max_model_len=length, device_total_bytes=total, k=k)
    if choice.state in ("full", "reduced"):
        assert 0 <= choice.step <= 0.05
        assert choice.ledger.on.kv_fits is True
        assert choice.utilization == pytest.approx(utilization - choice.step, abs=1e-5)
    else:
        assert choice.state == "none_fits"
        assert choice.ledger.on.kv_fits is False


# --- headroom ----------------------------------------------------------------------------------------------------


def test_two_gib_stay_outside():
    ok = headroom(THOR, 0.9)
    assert ok.ok is True
    assert ok.short_bytes == 0
    assert ok.target_mb is None
    short = headroom(30 * GIB, 0.95)
    assert short.ok is False
    assert short.outside_bytes == pytest.approx(1.5 * GIB, abs=2)
    assert short.short_bytes == pytest.approx(0.5 * GIB, abs=2)
    assert short.target_mb == 512
    assert short.feasible_utilization == 0.93  # 1 - 2/30 = 0.9333, rounded down
    assert short.finding.topic == "near-ceiling"
    assert headroom(None, 0.9).ok is None
    assert headroom(THOR, None).ok is None


@given(st.integers(4 * GIB, 200 * GIB), st.floats(0.05, 1))
def test_the_feasible_value_is_feasible(total, utilization):
    found = headroom(total, utilization)
    assert found.ok is (found.outside_bytes >= 2 * GIB)
    assert headroom(total, found.feasible_utilization).ok is True
