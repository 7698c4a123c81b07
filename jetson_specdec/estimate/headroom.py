# SPDX-License-Identifier: Apache-2.0
"""How much of the board's shared memory stays for everything that is not vLLM."""

from __future__ import annotations

import math

from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.values import frozen

__all__ = ["Headroom", "headroom"]


@frozen(kw_only=True)
class Headroom:
    """MemTotal · (1 − utilisation) against what the policy asks to be free.

    Attributes:
        outside_bytes: what stays outside the budget; None when unknown.
        required_bytes: `Policy.min_free_bytes`.
        short_bytes: what is missing; 0 when enough stays, None when unknown.
        ok: whether enough stays.
        feasible_utilization: highest utilisation, in hundredths, that leaves enough.
        target_mb: value for `jetson-inference-mem-tune --target-mb`: MiB to be freed, rounded up; None when ok.
        finding: `near-ceiling` with these numbers when too little stays.
    """

    outside_bytes: int | None
    required_bytes: int
    short_bytes: int | None
    ok: bool | None
    feasible_utilization: float | None = None
    target_mb: int | None = None
    finding: Finding | None = None


def headroom(device_total_bytes: int | None, utilization: float | None, policy: Policy = DEFAULT_POLICY) -> Headroom:
    """Return what a utilisation leaves to the rest of the board.

    Args:
        device_total_bytes: MemTotal.
        utilization: `--gpu-memory-utilization` in force.
        policy: where the required amount comes from.
    """
    required = policy.min_free_bytes
    if device_total_bytes is None or utilization is None:
        return Headroom(outside_bytes=None, required_bytes=required, short_bytes=None, ok=None)
    outside = device_total_bytes - math.ceil(device_total_bytes * utilization)
    feasible = math.floor((1 - required / device_total_bytes) * 100) / 100 if device_total_bytes > required else 0.0
    short = max(required - outside, 0)
    if not short:
        return Headroom(
            outside_bytes=outside, required_bytes=required, short_bytes=0, ok=True, feasible_utilization=feasible
        )  # fmt: skip
    return Headroom(
        outside_bytes=outside,
        required_bytes=required,
        short_bytes=short,
        ok=False,
        feasible_utilization=feasible,
        target_mb=-(-short // 2**20),
        finding=Finding.of(
            "JSD498", utilization=utilization, outside=outside, total=device_total_bytes, required=required,
            short=short, feasible=feasible,
        ),
    )  # fmt: skip
