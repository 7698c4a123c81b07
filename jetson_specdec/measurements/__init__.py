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
)
from jetson_specdec.measurements.merge import merge_reports
from jetson_specdec.measurements.readers.base import ReportReader
from jetson_specdec.measurements.reading import read_report, reader_names
from jetson_specdec.measurements.share import decode_share

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
