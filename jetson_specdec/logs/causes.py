# SPDX-License-Identifier: Apache-2.0
"""The names a diagnosis uses: causes with their usual stage and remedy, stages, remedies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from jetson_specdec.packaged import packaged_json

__all__ = ["MEMORY", "REMEDIES", "STAGES", "causes"]

STAGES: Final = (
    "container",
    "download",
    "arguments",
    "config",
    "load",
    "kv_cache",
    "warmup",
    "first_request",
    "serving",
)  # fmt: skip

REMEDIES: Final = (
    "lower_utilization",
    "raise_utilization",
    "reduce_max_model_len",
    "reduce_max_num_seqs",
    "reduce_k",
    "smaller_draft",
    "other_draft",
    "drop_speculation",
    "fix_quoting",
    "fix_config",
    "upgrade_runtime",
    "change_image",
    "set_environment",
    "predownload",
    "accept_licence",
    "drop_caches",
    "retry",
    "free_memory",
    "free_disk",
    "free_port",
    "none",
)

MEMORY: Final = ("kv_cache_none", "kv_cache_too_small", "does_not_fit", "oom_warmup", "driver_oom", "watchdog_stopped")
"""Causes that speculation feeds whenever it is on: draft weights and cache are inside the same memory."""


@lru_cache(maxsize=1)
def causes() -> Mapping[str, Mapping[str, str]]:
    """Return cause → its usual `stage`, its usual `remedy`, and the `code` of its finding."""
    found: Mapping[str, Mapping[str, str]] = packaged_json("logs", "data", "causes.json")["causes"]
    return found
