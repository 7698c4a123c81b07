# SPDX-License-Identifier: Apache-2.0
"""How far the utilisation may be lowered when speculation is added: the policy's step, a smaller one, or not at all."""

from __future__ import annotations

from typing import Any, Literal

from jetson_specdec.estimate.ledger import MemoryLedger
from jetson_specdec.estimate.memory import build_ledger
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["StepChoice", "StepState", "choose_step"]

StepState = Literal["full", "reduced", "none_fits", "unknown"]
_HUNDREDTH = 100


@frozen(kw_only=True)
class StepChoice:
    """What becomes of the memory step.

    Attributes:
        state: `full` (the policy's step fits), `reduced`, `none_fits` (not even without a step), or `unknown` (cannot
            be computed: the policy's step stands).
        step: what to subtract; None only for `none_fits`.
        utilization: the value that results; None for `none_fits`.
        ledger: both arms at that value; for `none_fits` without a step.
        findings: why, with the numbers; those of the ledger are included.
    """

    state: StepState
    step: float | None
    utilization: float | None
    ledger: MemoryLedger
    findings: tuple[Finding, ...] = ()


def choose_step(
    *, utilization: float, policy: Policy = DEFAULT_POLICY, start_check_decides: bool = False, **known: Any
) -> StepChoice:
    """Return the largest step up to the policy's that leaves enough KV cache to start.

    The start check is reported and does not decide, because memory that a running server holds is missing from
    MemAvailable now and free when it is replaced.

    Args:
        utilization: the recipe's value, or its release's default.
        policy: where the step comes from.
        start_check_decides: whether nothing else is running, so that a start check that fails rules a step out.
        **known: the other arguments of `build_ledger`.
    """
    whole = round(policy.utilization_step * _HUNDREDTH, 6)
    steps = [policy.utilization_step]
    steps += [count / _HUNDREDTH for count in range(int(whole), -1, -1) if count < whole]
    tried: list[tuple[float, MemoryLedger]] = []
    for step in steps:
        value = round(utilization - step, 6)
        if value <= 0:
            continue
        ledger = build_ledger(utilization=utilization, utilization_on=value, **known)
        tried.append((step, ledger))
        fits = ledger.arm.kv_fits
        if fits is None:
            return _unknown(step, value, ledger)
        if fits and not (start_check_decides and ledger.starts is False):
            state: StepState = "full" if step == policy.utilization_step else "reduced"
            return _chosen(state, step, value, ledger, policy)
    if not tried:
        ledger = build_ledger(utilization=utilization, **known)
        return _none_fits(utilization, ledger)
    return _none_fits(utilization, tried[-1][1])


def _chosen(state: StepState, step: float, value: float, ledger: MemoryLedger, policy: Policy) -> StepChoice:
    findings: list[Finding] = []
    if state == "reduced":
        findings.append(Finding.of("JSD491", policy_step=policy.utilization_step, step=step, utilization=value))
    lost = ledger.tokens_lost_to_step
    if lost is not None and ledger.on is not None and ledger.on.kv_tokens is not None:
        before = ledger.on.kv_tokens + lost
        findings.append(Finding.of("JSD490", step=step, tokens=lost, before=before, after=ledger.on.kv_tokens))
    return StepChoice(state=state, step=step, utilization=value, ledger=ledger, findings=(*findings, *ledger.findings))


def _unknown(step: float, value: float, ledger: MemoryLedger) -> StepChoice:
    reason = Finding.of("JSD493", missing=list(ledger.arm.missing))
    return StepChoice(state="unknown", step=step, utilization=value, ledger=ledger, findings=(reason, *ledger.findings))


def _none_fits(utilization: float, ledger: MemoryLedger) -> StepChoice:
    arm = ledger.arm
    reason = Finding.of(
        "JSD492",
        utilization=utilization,
        kv_available=None if arm.kv_available_bytes is None else max(arm.kv_available_bytes, 0),
        max_model_len=arm.max_model_len,
        needed=arm.needed_bytes,
    )
    return StepChoice(
        state="none_fits",
        step=None,
        utilization=None,
        ledger=ledger,
        findings=(reason, *ledger.findings),
    )
