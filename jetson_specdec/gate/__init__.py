# SPDX-License-Identifier: Apache-2.0
"""Did it help?"""

from __future__ import annotations

from jetson_specdec.gate.gate import Gate
from jetson_specdec.gate.verdict import EXIT_CODES, CategoryVerdict, Criterion, Lossless, Verdict

__all__ = ["EXIT_CODES", "CategoryVerdict", "Criterion", "Gate", "Lossless", "Verdict"]
