# SPDX-License-Identifier: Apache-2.0
"""The published JSON Schemas (draft 2020-12) of every document that leaves the program."""

from __future__ import annotations

from typing import Any

from jetson_specdec.packaged import packaged_json

__all__ = ["NAMES", "load"]

NAMES = {
    "plan": "`plan --json`",
    "device": "`detect --json`",
    "apply": "`apply --json`, and `apply --undo --json`",
    "apply-manifest": "the record of one apply, beside the recipe (`NAME.specdec-TIME.manifest`)",
    "doctor": "`doctor --json`",
    "diagnosis": "`diagnose --json`",
    "bench-report": "`bench --json`",
    "verdict": "`gate --json`",
    "tune": "`tune --json`",
    "watch": "`watch --json`, one document a look",
    "demo": "`demo --json`",
    "recorded-commands": "`commands.json` of `detect --record`",
    "policy": "thresholds, as a [policy] table of TOML",
    "catalog-entries": "your own catalogue entries (TOML or JSON)",
}
"""Name of a schema → the document it describes."""


def load(name: str) -> dict[str, Any]:
    """Return a schema.

    Raises:
        KeyError: there is none of that name.
    """
    if name not in NAMES:
        raise KeyError(name)
    if name == "catalog-entries":
        from jetson_specdec.models.user_files import user_schema

        return user_schema()
    if name == "bench-report":
        from jetson_specdec.measurements import serial

        return serial.schema()
    if name == "verdict":
        from jetson_specdec.gate import Verdict

        return Verdict.schema()
    if name == "demo":
        from jetson_specdec.testing.demo import Demo

        return Demo.schema()
    if name == "policy":
        return _policy()
    schema: dict[str, Any] = packaged_json("schemas", f"{name}.json")
    return schema


def _policy() -> dict[str, Any]:
    """Made from the class, so that it cannot drift from it."""
    from jetson_specdec.policy import DEFAULT_POLICY

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "jetson_specdec policy",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            rule["name"]: {
                "type": "integer" if isinstance(rule["default"], int) else "number",
                "minimum": rule["low"],
                "maximum": rule["high"],
                "default": rule["default"],
                "description": f"{rule['source']} ({rule['confidence']})",
            }
            for rule in DEFAULT_POLICY.rules()
        },
    }
