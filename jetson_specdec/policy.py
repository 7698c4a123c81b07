# SPDX-License-Identifier: Apache-2.0
"""Which thresholds are in force.

The defaults are the contract of this project. Each field's metadata names where its value comes from and how sure we
are of it (`confidence`): `contract` is a rule this project fixes, `measured` a published measurement, `judgement` a
choice of ours that nobody has measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from attrs import Attribute, field

from jetson_specdec.errors import PolicyError
from jetson_specdec.values import frozen

__all__ = ["DEFAULT_POLICY", "Policy"]

_NVIDIA: Final = "NVIDIA-AI-IOT/jetson-device-skills @3d58800 (speculative decoding skill)"
_DESIGN: Final = "jetson_specdec contract"


def _between(low: float, high: float) -> Callable[[Any, Attribute[Any], Any], None]:
    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise PolicyError("JSE001", name=attribute.name, value=value, low=low, high=high)

    return check


def _rule(
    default: float, low: float, high: float, source: str, confidence: str = "contract", code: str | None = None
) -> Any:
    """A numeric threshold; `code` is the finding that shows it in a plan."""
    return field(
        default=default,
        validator=_between(low, high),
        metadata={"source": source, "confidence": confidence, "code": code, "low": low, "high": high},
    )


@frozen(kw_only=True)
class Policy:
    """The thresholds of every decision; frozen, compare and print it freely.

    Fractions are fractions (0.30 is 30 %), sizes are bytes unless named otherwise, times are seconds.
    """

    # --- what to propose -------------------------------------------------------------------------------------------
    start_k_thor: int = _rule(5, 1, 128, _NVIDIA, code="JSD520")
    start_k_agx_orin: int = _rule(3, 1, 128, _NVIDIA, code="JSD520")
    raise_k_above_acceptance: float = _rule(0.6, 0, 1, _DESIGN)
    draft_tensor_parallel_size: int = _rule(1, 1, 1024, _NVIDIA)
    utilization_step: float = _rule(0.05, 0, 0.5, _NVIDIA, code="JSD521")
    ceiling_utilization: float = _rule(0.90, 0.1, 1, _NVIDIA, code="JSD510")
    """An explicit value above this is refused."""
    min_free_bytes: int = _rule(2 * 2**30, 0, 2**40, _NVIDIA, code="JSD511")
    """MemTotal · (1 − utilisation) below this is refused."""
    max_concurrency: int = _rule(2, 1, 1024, _DESIGN)
    """Up to this many requests at once speculation is expected to pay."""
    none_from_concurrency: int = _rule(8, 2, 1024, _DESIGN, code="JSD530")
    decode_share_none: float = _rule(
        0.46, 0, 1, "jetson_specdec contract: below it +30 % throughput needs decode twice as fast", code="JSD533"
    )
    decode_share_warning: float = _rule(
        0.69, 0, 1, "jetson_specdec contract: below it +30 % throughput needs decode 1.5 times as fast", code="JSD534"
    )

    # --- the gate --------------------------------------------------------------------------------------------------
    enable_throughput_gain: float = _rule(0.30, 0, 10, _NVIDIA)
    enable_tpot_drop: float = _rule(0.20, 0, 1, _NVIDIA)
    disable_throughput_gain: float = _rule(0.10, 0, 10, _NVIDIA)
    equivalence_margin: float = _rule(
        0.05,
        0,
        0.5,
        "middle of the run-to-run spread of 3–7 % measured on a two-core vLLM 0.32; at 4 % noise max_pairs then prove "
        "an unchanged server unchanged in 95 % of cases, by simulation (tests/benchmarks/bench_gate.py)",
        "judgement",
    )
    """How much lower throughput at concurrency 8 may be and still count as unchanged."""
    confidence_level: float = _rule(0.95, 0.5, 0.9999, "common one-sided level", "judgement")
    bootstrap_resamples: int = _rule(4000, 100, 1_000_000, "Efron & Tibshirani 1993, ch. 13", "judgement")
    min_pairs: int = _rule(3, 1, 100, "fewest pairs with a usable spread", "judgement")
    max_pairs: int = _rule(
        16,
        1,
        1000,
        "bounds the time a server is down; enough at 4 % noise, by simulation (tests/benchmarks/bench_gate.py)",
        "judgement",
    )

    ttft_guard_rise: float = _rule(0.20, 0, 10, "a rise of the time to the first token worth telling", "judgement")
    min_drafts: int = _rule(100, 1, 1_000_000, "standard error of an acceptance rate about 5 points", "judgement")
    """Below this many verification steps an acceptance says little."""
    low_acceptance: float = _rule(0.30, 0, 1, "acceptance rate below which drafting rarely pays", "judgement")
    high_variance: float = _rule(0.10, 0, 10, "standard deviation of repeated ratios worth telling", "judgement")
    lossless_agreement: float = _rule(0.80, 0, 1, "share of identical leading tokens worth telling", "judgement")

    # --- when two arms cannot be compared --------------------------------------------------------------------------
    token_mismatch: float = _rule(0.05, 0, 1, "relative difference of tokens a request between the arms", "judgement")
    prefix_hit_difference: float = _rule(0.05, 0, 1, "difference of hit rates between the arms", "judgement")
    swap_growth_bytes: int = _rule(64 * 2**20, 0, 2**40, "swap written while measuring", "judgement")
    cold_start_ratio: float = _rule(3.0, 1, 1000, "first request ÷ median, without warm-up", "judgement")

    # --- running and watching --------------------------------------------------------------------------------------
    watchdog_floor_bytes: int = _rule(1 * 2**30, 0, 2**40, "half of the contract's 2 GiB", "judgement")
    cooldown_temperature_c: float = _rule(60.0, 20, 120, "well below the 95–105 °C throttle points", "judgement")
    cooldown_memory_band: float = _rule(0.02, 0, 1, "fraction of MemTotal", "judgement")
    cooldown_seconds: int = _rule(600, 0, 86_400, "longest wait for temperature and memory", "judgement")
    ladder_tries: int = _rule(5, 0, 100, "bounds the number of launches", "judgement")
    search_launches: int = _rule(3, 1, 20, _DESIGN)
    """Launches with speculation to find k; those that prove it come on top."""
    search_tolerance: float = _rule(0.03, 0, 0.5, _DESIGN)
    """A k that is slower than the best permitted one by no more than this counts as the best."""
    search_certainty: float = _rule(
        0.97, 0.5, 0.9999, "surer costs launches and gains little, by simulation (tests/benchmarks/bench_search.py)",
        "judgement",
    )  # fmt: skip
    """The search ends early when its k is within the tolerance in this share of what is still possible."""
    max_spoilt_pairs: int = _rule(2, 0, 100, "pairs whose conditions differed and that are measured again", "judgement")
    drift_requests: int = _rule(5, 1, 1_000_000, "acceptance differs from text to text", "judgement")
    """Below this many answered requests a look says little."""
    drift_acceptance_drop: float = _rule(0.15, 0, 1, "absolute fall of the acceptance rate", "judgement")
    drift_throughput_drop: float = _rule(0.15, 0, 1, "relative fall of decode speed", "judgement")

    def __attrs_post_init__(self) -> None:
        """Check the thresholds against each other.

        Raises:
            PolicyError: a pair of thresholds contradicts itself.
        """
        pairs = (
            ("disable_throughput_gain", "enable_throughput_gain"),
            ("decode_share_none", "decode_share_warning"),
            ("max_concurrency", "none_from_concurrency"),
            ("min_pairs", "max_pairs"),
        )
        for lower, upper in pairs:
            if getattr(self, lower) > getattr(self, upper):
                raise PolicyError(
                    "JSE002", lower=lower, upper=upper, low=getattr(self, lower), high=getattr(self, upper)
                )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], *, where: str = "policy") -> Policy:
        """Make a policy from names and values, such as a parsed TOML table; names left out keep their default.

        Raises:
            PolicyError: an unknown name, or a value out of range.
        """
        known = {attribute.name: attribute for attribute in attrs.fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise PolicyError("JSE003", name=name, where=where, known=sorted(known))
            if known[name].type in ("int", int) and not isinstance(value, int):
                raise PolicyError("JSE004", name=name, value=value, where=where)
        return cls(**dict(values))

    def rules(self) -> list[dict[str, Any]]:
        """Return every threshold: name, value, default, low, high, source, confidence, finding code."""
        return [
            {
                "name": attribute.name,
                "value": getattr(self, attribute.name),
                "default": attribute.default,
                **{key: attribute.metadata[key] for key in ("low", "high", "source", "confidence", "code")},
            }
            for attribute in attrs.fields(type(self))
        ]


DEFAULT_POLICY: Final = Policy()
