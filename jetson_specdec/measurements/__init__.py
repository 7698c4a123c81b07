# SPDX-License-Identifier: Apache-2.0
"""What was measured: reports, ours and other tools'."""

from __future__ import annotations

from jetson_specdec.measurements.core import (
    SCHEMA_VERSION,
    Acceptance,
    BenchConfig,
    BenchReport,
    Conditions,
    RequestRecord,
    Run,
    decode_share,
)
from jetson_specdec.measurements.readers.base import ReportReader
from jetson_specdec.measurements.reading import merge_reports, read_report, reader_names

__all__ = [
    "SCHEMA_VERSION",
    "Acceptance",
    "BenchConfig",
    "BenchReport",
    "Conditions",
    "ReportReader",
    "RequestRecord",
    "Run",
    "decode_share",
    "merge_reports",
    "read_report",
    "reader_names",
]
