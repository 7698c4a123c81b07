# SPDX-License-Identifier: Apache-2.0
"""What a pass costs beside its bytes: ranges with their sources (`data/speed.json`), and the board's bandwidth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from attrs import field

from jetson_specdec.device.core import Device
from jetson_specdec.estimate.speed_span import Span
from jetson_specdec.packaged import packaged_json
from jetson_specdec.values import frozen

__all__ = ["Board", "SpeedConstants", "constants_for", "fixed_share", "speed_data"]


@frozen(kw_only=True)
class Board:
    """What the estimate needs of a board.

    Attributes:
        bandwidth_gb_s: peak memory bandwidth in its power mode, GB/s (10⁹), or None.
        family: such as `thor`; key of the fitted constants.
        power_mode: for showing.
    """

    bandwidth_gb_s: float | None
    family: str | None = None
    power_mode: str | None = None

    @classmethod
    def of(cls, device: Device) -> Board:
        """Take it from a device; its bandwidth already is that of the power mode it runs in."""
        return cls(
            bandwidth_gb_s=device.memory_bandwidth_gb_s, family=device.family, power_mode=device.power_mode
        )  # fmt: skip


@frozen(kw_only=True)
class SpeedConstants:
    """Ranges of what cannot be read from files.

    Attributes:
        bandwidth_efficiency: reached fraction of the peak bandwidth.
        step_overhead_s: of one target pass.
        draft_pass_overhead_s: of one drafter pass.
        round_overhead_s: once a round.
        compute_tflops: precision of the weights → rate of the matrix products.
        sources: keys of the data's `sources`, or free text.
        confidence: of the whole.
    """

    bandwidth_efficiency: Span
    step_overhead_s: Span
    draft_pass_overhead_s: Span
    round_overhead_s: Span
    compute_tflops: Mapping[str, Span] = field(factory=dict)
    sources: tuple[str, ...] = ()
    confidence: str = "low"

    def compute(self, precision: str | None) -> Span | None:
        """Return the rate for weights of a precision in TFLOPS; that of 16 bits where it is not listed."""
        return self.compute_tflops.get(precision or "bf16", self.compute_tflops.get("bf16"))


@lru_cache(maxsize=1)
def speed_data() -> Mapping[str, Any]:
    """Return the fitted ranges as stored, with their sources."""
    data: dict[str, Any] = packaged_json("estimate", "data", "speed.json")
    return data


def _milli(ends: list[float]) -> Span:
    return Span(ends[0] / 1e3, ends[1] / 1e3)


@lru_cache(maxsize=8)
def constants_for(family: str | None) -> SpeedConstants | None:
    """Return the ranges for a family of boards under vLLM; None for boards without fitted ranges."""
    data = speed_data()["vllm"]
    entry = data["families"].get(data["same_as"].get(family, family))
    if entry is None:
        return None
    draft, once = data["draft_pass_overhead_ms"], data["round_overhead_ms"]
    return SpeedConstants(
        bandwidth_efficiency=Span(*entry["bandwidth_efficiency"]),
        step_overhead_s=_milli(entry["step_overhead_ms"]),
        draft_pass_overhead_s=_milli(draft["range"]),
        round_overhead_s=_milli(once["range"]),
        compute_tflops={name: Span(*ends) for name, ends in entry["compute_tflops"].items()},
        sources=tuple(dict.fromkeys((*entry["sources"], *draft["sources"], *once["sources"]))),
        confidence=entry["confidence"],
    )


def fixed_share(*, moe: bool, batch: int) -> Span:
    """Return what a round costs once, counted in drafter passes: decides what one measured k says about the others."""
    shares = speed_data()["fixed_share"]
    return Span(*shares["other" if moe or batch > 1 else "dense_batch_1"]["range"])
