# SPDX-License-Identifier: Apache-2.0
"""How many tokens fit into a given amount of KV cache, counted in blocks as vLLM does.

Source: vLLM 0.32 `v1/core/kv_cache_utils.py` (grouping, pages, concurrency, the check for one full sequence) and
`v1/kv_cache_interface.py` (bytes per page). Every number vLLM logged for the recorded servers comes out exactly; for
mixtures of layer kinds the grouping follows the same rules, which changed in details between releases.
"""

from __future__ import annotations

from jetson_specdec.models.profile import ModelProfile
from jetson_specdec.values import frozen

__all__ = ["Bucket", "Capacity", "KVPlan", "buckets_of", "plan_kv"]

_BLOCK_ALIGNMENT = 16
_PAD_TO_LARGEST = 1.5
"""Layer kinds whose numbers differ by less are padded to the larger one."""


@frozen(kw_only=True)
class Bucket:
    """Layers that share one block table.

    Attributes:
        count: layers.
        bytes_per_token: per layer; 0 for recurrent layers.
        window: tokens a layer looks back, None for all.
        state_bytes: recurrent state of one layer and copy; 0 for attention.
        copies: recurrent copies per sequence (1 + k).
    """

    count: int
    bytes_per_token: int = 0
    window: int | None = None
    state_bytes: int = 0
    copies: int = 1


@frozen(kw_only=True)
class Capacity:
    """What a KV cache of some size holds.

    Attributes:
        tokens: as vLLM logs "KV cache size".
        sequences: full sequences at once, as vLLM logs "Maximum concurrency".
        needed_bytes: what one full sequence takes.
        fits_one: whether one full sequence (and the block vLLM keeps back) fits.
        longest: longest sequence that fits, at most the one asked for; 0 when none does.
    """

    tokens: int
    sequences: float
    needed_bytes: int
    fits_one: bool
    longest: int


@frozen(kw_only=True)
class KVPlan:
    """How layers are grouped into blocks.

    Attributes:
        block_bytes: what one block of the shared pool takes.
        rows: per group of layers: how many groups, tokens a block covers, window, copies for recurrent groups.
        in_flight_tokens: scheduled but unsettled tokens that layers with a window hold on to.
    """

    block_bytes: int
    rows: tuple[tuple[int, int, int | None, int], ...]
    in_flight_tokens: int

    def blocks_for(self, length: int) -> int:
        """Return blocks that one sequence of this length takes."""
        total = 0
        for groups, tokens, window, copies in self.rows:
            if copies:
                total += groups * copies
            elif window is not None:
                kept = min(window - 1 + self.in_flight_tokens, length)
                total += groups * (-(-kept // tokens) + 1)
            else:
                total += groups * -(-length // tokens)
        return total

    def capacity(self, available_bytes: int, max_model_len: int) -> Capacity:
        """Return what `available_bytes` hold for sequences of up to `max_model_len` tokens.

        Raises:
            OptionError: `max_model_len` is below 1.
        """
        if max_model_len < 1:
            from jetson_specdec.errors import OptionError

            raise OptionError("JSE432", name="max_model_len", value=max_model_len, expected="a whole number from 1")
        blocks = max(available_bytes, 0) // self.block_bytes
        each = self.blocks_for(max_model_len)
        sequences = blocks / each
        # One block is held back for padding entries ("null block").
        usable = blocks - 1
        return Capacity(
            tokens=int(sequences * max_model_len),
            sequences=sequences,
            needed_bytes=each * self.block_bytes,
            fits_one=each <= usable,
            longest=self._longest(usable, max_model_len),
        )

    def _longest(self, usable: int, max_model_len: int) -> int:
        low, high = 0, max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_for(middle) <= usable:
                low = middle
            else:
                high = middle - 1
        return low


def buckets_of(profile: ModelProfile, element_bytes: int, k: int = 0) -> tuple[Bucket, ...] | None:
    """Return a model's layers as buckets; None when its shape is not known.

    Args:
        profile: target or drafter.
        element_bytes: of the KV dtype.
        k: drafted tokens; recurrent layers keep 1 + k states.
    """
    buckets: list[Bucket] = []
    if profile.kv_layers is not None:
        buckets += [
            Bucket(count=group.count, bytes_per_token=group.elements_per_token * element_bytes, window=group.window)
            for group in profile.kv_layers
        ]
    elif profile.kv_bytes_bf16 is not None:
        total = profile.kv_bytes_bf16 * element_bytes // 2
        layers = profile.layers if profile.layers and total % profile.layers == 0 else 1
        buckets.append(Bucket(count=layers, bytes_per_token=total // layers))
    else:
        return None
    if profile.state_layers is None:
        return None
    for group in profile.state_layers:
        one = _state_of_one_layer(profile, group.kind, k)
        if one is None:
            return None
        buckets.append(Bucket(count=group.count, state_bytes=one, copies=1 + k))
    return tuple(buckets)


def _state_of_one_layer(profile: ModelProfile, kind: str, k: int) -> int | None:
    import attrs

    group = next(item for item in profile.state_layers or () if item.kind == kind)
    alone = attrs.evolve(profile, state_layers=(attrs.evolve(group, count=1),))
    total = alone.state_bytes_per_sequence(k)
    return None if total is None else total // (1 + k)


def plan_kv(buckets: tuple[Bucket, ...], *, block_size: int, in_flight_tokens: int) -> KVPlan | None:
    """Group buckets into a block pool; None when there is nothing to keep or a block holds no token.

    Args:
        buckets: of the target, and of the drafter where there is one.
        block_size: tokens per block (`--block-size`; 16 on CUDA).
        in_flight_tokens: batches in flight times `--max-num-batched-tokens`.
    """
    merged = _merge(buckets)
    if not merged or block_size < 1:
        return None
    windows = {bucket.window for bucket in merged}
    if len(windows) == 1 and not any(bucket.state_bytes for bucket in merged):
        page = block_size * sum(bucket.count * bucket.bytes_per_token for bucket in merged)
        return KVPlan(
            block_bytes=page, rows=((1, block_size, windows.pop(), 0),), in_flight_tokens=in_flight_tokens
        )  # fmt: skip
    return _mixed(merged, block_size, in_flight_tokens)


def _merge(buckets: tuple[Bucket, ...]) -> list[Bucket]:
    """Put layers of the same kind and shape together, such as a drafter's with its target's."""
    import attrs

    merged: list[Bucket] = []
    for bucket in buckets:
        if bucket.count <= 0 or not (bucket.bytes_per_token or bucket.state_bytes):
            continue
        for index, other in enumerate(merged):
            if attrs.evolve(other, count=0) == attrs.evolve(bucket, count=0):
                merged[index] = attrs.evolve(other, count=other.count + bucket.count)
                break
        else:
            merged.append(bucket)
    return merged


def _mixed(buckets: list[Bucket], block_size: int, in_flight_tokens: int) -> KVPlan:
    """Layers of several kinds: pages of one size, groups of equally many layers (padded)."""
    largest = max(bucket.bytes_per_token for bucket in buckets)
    state = max(bucket.state_bytes for bucket in buckets)
    tokens = block_size
    if state and largest:
        # The attention block grows until its page is as large as a recurrent state.
        unit = max(_BLOCK_ALIGNMENT, block_size)
        tokens = max(block_size, unit * -(-state // (unit * largest)))
    page = max(tokens * largest, state)
    counts = [bucket.count for bucket in buckets]
    size = max(counts) if max(counts) < min(counts) * _PAD_TO_LARGEST else min(counts)
    rows: list[tuple[int, int, int | None, int]] = []
    for bucket in buckets:
        groups = -(-bucket.count // size)
        if bucket.state_bytes:
            rows.append((groups, 0, None, bucket.copies))
            continue
        own = tokens * bucket.bytes_per_token
        covers = tokens * (page // own) if page % own == 0 else tokens
        rows.append((groups, covers, bucket.window, 0))
    return KVPlan(block_bytes=size * page, rows=tuple(rows), in_flight_tokens=in_flight_tokens)
