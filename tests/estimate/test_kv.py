# SPDX-License-Identifier: Apache-2.0
"""Blocks and tokens, against what vLLM logged and against what its own functions give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.estimate.kv import Bucket, plan_kv

GIB = 2**30

# (name, buckets, KV bytes, tokens logged, concurrency logged). vLLM 0.32 on a CPU: blocks of 128 tokens, 32-bit cache;
# the target has 48 layers of 4 KV heads x 64, the draft one of 2 x 64, the head one of 4 x 64.
TARGET = Bucket(count=48, bytes_per_token=2 * 4 * 64 * 4)
LOGGED = [
    ("base", [TARGET], GIB, 10_880, "10.62"),
    ("draft model", [TARGET, Bucket(count=1, bytes_per_token=2 * 2 * 64 * 4)], GIB, 10_752, "10.50"),
    ("head", [TARGET, Bucket(count=1, bytes_per_token=2 * 4 * 64 * 4)], GIB, 10_624, "10.38"),
]


@pytest.mark.parametrize(("name", "buckets", "available", "tokens", "concurrency"), LOGGED, ids=[r[0] for r in LOGGED])
def test_tokens_and_concurrency_as_vllm_logged_them(name, buckets, available, tokens, concurrency):
    capacity = plan_kv(tuple(buckets), block_size=128, in_flight_tokens=8192).capacity(available, 1024)
    assert capacity.tokens == tokens
    assert f"{capacity.sequences:.2f}" == concurrency
    assert capacity.fits_one


def test_the_start_that_was_refused_for_one_sequence():
    # logged: "max seq len (2048), (0.19 GiB KV cache is needed … the estimated maximum model length is 384"
    capacity = plan_kv((TARGET,), block_size=128, in_flight_tokens=8192).capacity(50 * 2**20, 2048)
    assert not capacity.fits_one
    assert capacity.longest == 384
    assert capacity.needed_bytes == 201_326_592
    assert round(capacity.needed_bytes / GIB, 2) == 0.19


def test_qwen3_8b_as_logged_on_a_24_gb_gpu():
    # public log (LMCache issue 3430): 6.37 GiB → 46,368 tokens, 2.83x for 16,384; the GiB figure is rounded
    plan = plan_kv((Bucket(count=36, bytes_per_token=4096),), block_size=16, in_flight_tokens=4096)
    tokens = {plan.capacity(int(gib * GIB), 16384).tokens for gib in (6.365, 6.37, 6.375)}
    assert min(tokens) <= 46_368 <= max(tokens)
    assert f"{46_368 / 16_384:.2f}" == "2.83"


def recurrent(k):
    """One gated-delta layer of Qwen3.5-9B: convolution in 16 bits, state in 32."""
    return Bucket(count=24, state_bytes=(3 + k) * 8192 * 2 + 32 * 128 * 128 * 4, copies=1 + k)


OSS = [Bucket(count=12, bytes_per_token=2048, window=128), Bucket(count=12, bytes_per_token=2048)]
FULL8 = Bucket(count=8, bytes_per_token=4096)

# Block bytes, blocks of 10 GiB (20 for the first) and tokens from vLLM 0.32.0's own get_kv_cache_groups and
# get_max_concurrency_for_kv_cache_config, called with the same layers.
GROUPED = [
    ("one kind", [Bucket(count=32, bytes_per_token=4096), Bucket(count=1, bytes_per_token=4096)],
     32768, 8192, 16, 20, 2162688, 9929, 158864),
    ("target and draft model", [Bucket(count=36, bytes_per_token=4096), Bucket(count=28, bytes_per_token=4096)],
     16384, 2048, 16, 10, 4194304, 2560, 40960),
    ("sliding and full", OSS, 32768, 8192, 16, 10, 393216, 27306, 290413),
    ("the same with a head", [*OSS, Bucket(count=1, bytes_per_token=2048)],
     32768, 8192, 16, 10, 425984, 25206, 268078),
    ("five to one", [Bucket(count=29, bytes_per_token=4096, window=1024), Bucket(count=5, bytes_per_token=4096)],
     32768, 2048, 16, 10, 327680, 32768, 270191),
    ("hybrid", [FULL8, recurrent(0)], 32768, 8192, 16, 10, 17301504, 620, 307820),
    ("hybrid, k = 3", [FULL8, recurrent(3)], 32768, 8192, 16, 10, 17825792, 602, 270223),
    ("hybrid, k = 3, one more layer", [FULL8, recurrent(3), Bucket(count=1, bytes_per_token=4096)],
     32768, 8192, 16, 10, 20054016, 535, 240149),
    ("latent attention", [Bucket(count=27, bytes_per_token=1152)], 32768, 8192, 64, 10, 1990656, 5393, 345152),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "buckets", "length", "batched", "block", "gib", "block_bytes", "blocks", "tokens"),
    GROUPED,
    ids=[row[0] for row in GROUPED],
)
def test_grouping_as_vllm_does_it(name, buckets, length, batched, block, gib, block_bytes, blocks, tokens):
    plan = plan_kv(tuple(buckets), block_size=block, in_flight_tokens=2 * batched)
    assert plan.block_bytes == block_bytes
    assert gib * GIB // plan.block_bytes == blocks
    assert plan.capacity(gib * GIB, length).tokens == tokens


def test_nothing_to_keep_is_no_plan():
    assert plan_kv((), block_size=16, in_flight_tokens=0) is None
    assert plan_kv((Bucket(count=0, bytes_per_token=1),), block_size=16, in_flight_tokens=0) is None


_ANY = st.lists(
    st.builds(
        Bucket, count=st.integers(1, 90), bytes_per_token=st.sampled_from([512, 1152, 2048, 4096, 5120]),
        window=st.sampled_from([None, None, 128, 4096]),
    ) | st.builds(Bucket, count=st.integers(1, 60), state_bytes=st.integers(1000, 4_000_000), copies=st.integers(1, 8)),
    min_size=1, max_size=4,
)  # fmt: skip


@given(_ANY, st.integers(1, 200_000), st.integers(0, 60 * GIB), st.integers(0, 10 * GIB))
def test_more_memory_never_holds_less_and_the_longest_really_fits(buckets, length, available, more):
    plan = plan_kv(tuple(buckets), block_size=16, in_flight_tokens=4096)
    first, second = plan.capacity(available, length), plan.capacity(available + more, length)
    assert second.tokens >= first.tokens
    assert second.longest >= first.longest
    assert first.fits_one is (first.longest == length)
    if first.longest > 0:
        assert plan.blocks_for(first.longest) * plan.block_bytes <= available
    assert first.needed_bytes == plan.blocks_for(length) * plan.block_bytes


@given(
    st.lists(
        st.builds(Bucket, count=st.integers(1, 90), bytes_per_token=st.integers(64, 8192)), min_size=1, max_size=3
    ),
    st.integers(1, 100_000),
    st.integers(64, 8192),
)
def test_a_drafter_never_makes_room_where_all_layers_keep_all_tokens(buckets, length, own):
    # with several kinds of layers it can: one more layer may regroup them with less padding
    alone = plan_kv(tuple(buckets), block_size=16, in_flight_tokens=4096)
    both = plan_kv((*buckets, Bucket(count=1, bytes_per_token=own)), block_size=16, in_flight_tokens=4096)
    grown = both.blocks_for(length) * both.block_bytes - alone.blocks_for(length) * alone.block_bytes
    assert grown == -(-length // 16) * 16 * own
