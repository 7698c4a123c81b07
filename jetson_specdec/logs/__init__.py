# SPDX-License-Identifier: Apache-2.0
"""What the engine said."""

from __future__ import annotations

from jetson_specdec.logs.diagnosis import Diagnosis
from jetson_specdec.logs.launch import diagnose
from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics

__all__ = ["Diagnosis", "ServerCounters", "SpecMetrics", "diagnose"]
