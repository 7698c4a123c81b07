# SPDX-License-Identifier: Apache-2.0
"""Profiles of the property tests, and where test data lives."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy board or CI machine is no reason to fail: deadlines are off, and every run tries the same examples.
settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fuzz", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with recorded boards, recipes and reports."""
    return Path(__file__).parent / "data"
