# SPDX-License-Identifier: Apache-2.0
"""The memory step: how far `--gpu-memory-utilization` goes down when speculation is added, and what that costs."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.estimate.memory import MemoryLedger
    from jetson_specdec.strategies.core import Proposal, Situation

__all__ = ["MemoryStep", "choose", "default_of"]


@frozen(kw_only=True)
class MemoryStep:
    """What becomes of the utilisation.

    Attributes:
        value: the value to write, as text with the decimals of the recipe; None leaves it alone.
        fits: False when nothing fits; None when too little is known to say.
        ledger: both arms, or None when nothing is known.
        findings: the step and its cost; the first one is the reason when nothing fits.
    """

    value: str | None = None
    fits: bool | None = None
    ledger: MemoryLedger | None = None
    findings: tuple[Finding, ...] = ()


def choose(situation: Situation, proposal: Proposal | None) -> MemoryStep:
    """Return the memory step for a proposal; without one, only the ledger of the recipe as it is.

    Where the flag is absent the step starts from the release's default, which is then written out; where that default
    is not known, or the recipe's value cannot be resolved, nothing is written and a finding says so.
    """
    from jetson_specdec.estimate.memory import build_ledger
    from jetson_specdec.estimate.step import choose_step

    start, written = _start(situation)
    known = _known(situation)
    if proposal is None:
        return MemoryStep(ledger=build_ledger(utilization=start, draft=None, k=None, **known))
    config = proposal.config or {}
    drafting: dict[str, Any] = {
        "draft": proposal.drafter,
        "k": config.get("num_speculative_tokens"),
        "method": config.get("method"),
    }
    if start is None:
        ledger = build_ledger(utilization=None, **drafting, **known)
        unknown = () if situation.flags.utilization.state == "unresolved" else (Finding.of("JSD517"),)
        return MemoryStep(ledger=ledger, findings=unknown)
    # A start that failed for lack of memory has told a utilisation that does not work: never go above it.
    failed = [a.utilization for a in situation.attempts if a.utilization is not None and a.cause in _TOO_HIGH]
    choice = choose_step(policy=situation.policy, utilization=min([start, *failed]), **drafting, **known)
    if choice.state == "none_fits":
        reason = Finding.of("JSD518", strategy=proposal.strategy, model=config.get("model"), utilization=start)
        return MemoryStep(fits=False, ledger=choice.ledger, findings=(reason, *choice.findings))
    step = situation.policy.utilization_step if choice.step is None else choice.step
    value = _minus(min([written, *(Decimal(str(each)) for each in failed)]), step)
    code = "JSD519" if choice.ledger.tokens_lost is None else "JSD521"
    shown = Finding.of(
        "JSD522" if choice.state == "reduced" else code,
        before=str(written),
        after=value,
        step=step,
        usual=situation.policy.utilization_step,
        tokens_lost=choice.ledger.tokens_lost,
        kv_tokens=choice.ledger.kv_tokens,
    )
    return MemoryStep(
        value=value,
        fits=None if choice.state == "unknown" else True,
        ledger=choice.ledger,
        # The step and its cost are said in one sentence; the ledger has the parts.
        findings=(shown, *(each for each in choice.findings if each.code not in _PARTS)),
    )


_PARTS = ("JSD490", "JSD496")
_TOO_HIGH = ("memory_precheck", "oom_load", "oom_warmup", "driver_oom", "host_oom_killed", "watchdog_stopped")


def _start(situation: Situation) -> tuple[float | None, Decimal]:
    """Return the utilisation in force, as a number and as the decimal to count from."""
    reading = situation.flags.utilization
    if reading.state == "value" and reading.value is not None:
        try:
            return float(reading.value), Decimal(str(reading.text))
        except ArithmeticError:
            return float(reading.value), Decimal(str(reading.value))
    if reading.state != "absent":
        return None, Decimal(0)
    advised = situation.mem_tune.gpu_memory_utilization if situation.mem_tune is not None else None
    value = advised if advised is not None else default_of(situation)[0]
    return value, Decimal(str(value)) if value is not None else Decimal(0)


def default_of(situation: Situation) -> tuple[float | None, bool]:
    """Return the engine's default utilisation, and whether it is assumed from what this board can run at all.

    A board that only runs upstream vLLM 0.20 or newer has the default of those releases (0.92, vLLM config/cache.py),
    even where the recipe does not tell the release.
    """
    from jetson_specdec.engine.release import NEWEST_KNOWN, default_utilization, release_from_version

    known = default_utilization(situation.release)
    if known is not None or situation.device.runtime != "upstream_vllm":
        return known, False
    return default_utilization(release_from_version(NEWEST_KNOWN)), True


def _minus(value: Decimal, step: float) -> str:
    """Subtract, keeping the recipe's decimals (0.75 → 0.70, 0.5 → 0.45) and never reaching 0."""
    left = value - Decimal(str(step))
    return format(max(left, Decimal("0.01")), "f")


def _known(situation: Situation) -> dict[str, Any]:
    flags, device = situation.flags, situation.device
    return {
        "device_total_bytes": device.memory_total_bytes,
        "available_bytes": device.memory_available_bytes,
        "release_version": situation.release.version,
        "target": situation.profile,
        "kv_dtype": flags.kv_cache_dtype or "auto",
        "max_model_len": flags.max_model_len,
        "max_num_seqs": flags.max_num_seqs,
        "kv_cache_memory_bytes": flags.kv_cache_memory_bytes,
        "max_num_batched_tokens": flags.max_num_batched_tokens,
        "enforce_eager": flags.enforce_eager,
    }
