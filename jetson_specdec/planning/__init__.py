# SPDX-License-Identifier: Apache-2.0
"""The parts of a decision: what is checked, what is gathered, what a plan holds."""
