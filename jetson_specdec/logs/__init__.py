# SPDX-License-Identifier: Apache-2.0
"""What the engine said."""

from __future__ import annotations

from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics

__all__ = ["ServerCounters", "SpecMetrics"]
