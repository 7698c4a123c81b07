# SPDX-License-Identifier: Apache-2.0
"""What one forward pass reads and multiplies, from a model's profile."""

from __future__ import annotations

from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.models.core import TargetRecord
from jetson_specdec.models.profile import ModelProfile
from jetson_specdec.models.quantization import PRECISION_BITS
from jetson_specdec.values import frozen

__all__ = ["PassReads", "draft_reads", "target_reads"]


@frozen(kw_only=True)
class PassReads:
    """Bytes and products of one pass through a model.

    Attributes:
        fixed_bytes: weights every pass reads, whatever the number of tokens.
        expert_bytes: of a mixture of experts: all experts together, else 0; None when their share is not known.
        expert_fraction: of the experts, what one token reads.
        all_bytes: everything a pass could read at most.
        parameters: multiplied for each token.
        kv_bytes_per_token: keys and values of one token; None when unknown.
        head_bytes: part of `fixed_bytes` that is the output projection, or None.
        precision: of most weights.
        sources: where that comes from.
    """

    fixed_bytes: Span
    all_bytes: float
    parameters: Span
    expert_bytes: float | None = 0.0
    expert_fraction: float = 0.0
    kv_bytes_per_token: int | None = None
    head_bytes: int | None = None
    precision: str | None = None
    sources: tuple[str, ...] = ()

    @property
    def moe(self) -> bool:
        """Whether the bytes of a pass grow with its tokens."""
        return self.expert_bytes is None or self.expert_bytes > 0

    def weights(self, tokens: int) -> Span:
        """Return the bytes of weights that a pass over some tokens reads.

        Of a mixture of experts between one token's experts (all tokens choose the same) and those that as many
        independent uniform choices meet, E · (1 − (1 − k ÷ E)ⁿ); without the number of experts, n times one token's.
        """
        if self.expert_bytes is None:
            head = self.head_bytes or 0
            most = min(self.all_bytes, head + (self.fixed_bytes.high - head) * tokens)
            return Span(self.fixed_bytes.low, max(most, self.fixed_bytes.high))
        least = self.expert_bytes * self.expert_fraction
        most = self.expert_bytes * (1 - (1 - self.expert_fraction) ** tokens)
        return Span(self.fixed_bytes.low + least, self.fixed_bytes.high + max(most, least))


def target_reads(profile: ModelProfile, record: TargetRecord | None = None, kv_dtype: str = "auto") -> PassReads | None:
    """Return what a pass through a served model reads; None when its size is not known.

    Args:
        profile: the model.
        record: its catalogue entry; gives the parameters read for one token where the profile does not.
        kv_dtype: value of `--kv-cache-dtype`.
    """
    if profile.weight_bytes is None:
        return None
    kv = profile.kv_bytes_per_token(kv_dtype)
    embedding = profile.embedding_bytes or 0
    moe = profile.moe is not None or bool(record is not None and record.moe)
    fraction = profile.moe.fraction if profile.moe is not None else None
    if fraction is not None and profile.weight_bytes_active is not None and profile.expert_bytes:
        fixed = profile.weight_bytes_active - profile.expert_bytes * fraction
        active = Span.exact(profile.weight_bytes_active)
        return PassReads(
            fixed_bytes=Span.exact(fixed),
            all_bytes=fixed + profile.expert_bytes,
            parameters=_parameters(active, profile, record),
            expert_bytes=float(profile.expert_bytes),
            expert_fraction=fraction,
            kv_bytes_per_token=kv,
            head_bytes=profile.head_bytes,
            precision=profile.precision,
            sources=profile.sources,
        )
    if moe:
        return _moe_by_parameters(profile, record, kv)
    active = _dense(profile, record, embedding)
    return PassReads(
        fixed_bytes=active,
        all_bytes=active.high,
        parameters=_parameters(active, profile, record),
        kv_bytes_per_token=kv,
        head_bytes=profile.head_bytes or embedding or None,
        precision=profile.precision,
        sources=profile.sources,
    )


def _dense(profile: ModelProfile, record: TargetRecord | None, embedding: int) -> Span:
    if profile.weight_bytes_active is not None:
        return Span.exact(profile.weight_bytes_active)
    whole = float(profile.weight_bytes or 0)
    if record is not None and record.params_total and record.params_active:
        # What is not read for a token is the input embedding, which stays in 16 bits.
        return Span.exact(whole - 2 * (record.params_total - record.params_active))
    return Span(whole - embedding, whole)


def _moe_by_parameters(profile: ModelProfile, record: TargetRecord | None, kv: int | None) -> PassReads | None:
    """A mixture of experts of which only the parameters in all and for one token are known."""
    if record is None or not record.params_total or not record.params_active or profile.weight_bytes is None:
        return None
    head = (profile.embedding_bytes or 0) // 2
    rest = record.params_total - 2 * head
    if rest <= 0 or record.params_active <= head:
        return None
    each = (profile.weight_bytes - 4 * head) / rest
    active = (record.params_active - head) * each + 2 * head
    return PassReads(
        fixed_bytes=Span.exact(active),
        all_bytes=profile.weight_bytes - 2.0 * head,
        parameters=Span.exact(record.params_active),
        expert_bytes=None,
        kv_bytes_per_token=kv,
        head_bytes=2 * head or None,
        precision=profile.precision,
        sources=profile.sources,
    )


def _parameters(active: Span, profile: ModelProfile, record: TargetRecord | None) -> Span:
    """Return the parameters multiplied for one token, from bytes where the catalogue does not say."""
    if record is not None and record.params_active:
        return Span.exact(record.params_active)
    each = PRECISION_BITS.get(profile.precision or "", 16) / 8
    head = profile.head_bytes or 0
    return Span.over(max(end - head, 0) / each + head / 2 for end in active.ends())


def draft_reads(profile: ModelProfile, kv_dtype: str = "auto") -> PassReads | None:
    """Return what one pass of a drafter reads; None when its size is not known.

    A head's size leaves out the embedding it shares with its target. Of a draft model the embedding is read only where
    it is the output projection too (as in most small models): a range.
    """
    if profile.weight_bytes is None and profile.weight_bytes_active is None:
        return None
    if profile.draft is not None or profile.embedding_bytes is None or profile.weight_bytes_active is not None:
        active = Span.exact(float(profile.weight_bytes_active or profile.weight_bytes or 0))
    else:
        active = Span(float((profile.weight_bytes or 0) - profile.embedding_bytes), float(profile.weight_bytes or 0))
    return PassReads(
        fixed_bytes=active,
        all_bytes=active.high,
        parameters=_parameters(active, profile, None),
        kv_bytes_per_token=profile.kv_bytes_per_token(kv_dtype),
        precision=profile.precision,
        sources=profile.sources,
    )
