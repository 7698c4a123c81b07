# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec explain`: what a code, a topic or a threshold means, and where it comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jetson_specdec.cli.common import print_json
from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter


def explain(
    what: str | None = None,
    /,
    *,
    policy: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Explain a finding code (JSD510), a topic (near-ceiling) or a threshold; without one, list them all.

    Parameters
    ----------
    what:
        A code, a topic, or the name of a threshold of the policy.
    policy:
        TOML file with other thresholds.
    json:
        Print as JSON.
    """
    from jetson_specdec.extensions import load_policy

    findings, thresholds = _findings(), load_policy(policy).rules()
    if what is not None:
        wanted = what.strip()
        findings = [each for each in findings if wanted.lower() in (each["code"].lower(), each["topic"])]
        thresholds = [each for each in thresholds if each["name"] == wanted or each["code"] in _codes(findings)]
        if not findings and not thresholds:
            raise OptionError("JSE511", what=wanted, near=_near(wanted))
    if json:
        print_json({"schema_version": 1, "findings": findings, "thresholds": thresholds})
        return 0
    from jetson_specdec.render.explain import print_explanations

    print_explanations(findings, thresholds, long=what is not None)
    return 0


def _findings() -> list[dict[str, Any]]:
    from jetson_specdec import messages

    return [
        {"code": code, **info, "message": messages.template(code), "explain": messages.explain(code)}
        for code, info in messages.all_codes().items()
    ]


def _codes(findings: list[dict[str, Any]]) -> set[str]:
    return {each["code"] for each in findings}


def _near(wanted: str) -> list[str]:
    from difflib import get_close_matches

    from jetson_specdec import messages
    from jetson_specdec.policy import DEFAULT_POLICY

    known = {info["topic"] for info in messages.all_codes().values()} | set(messages.all_codes())
    known |= {rule["name"] for rule in DEFAULT_POLICY.rules()}
    return get_close_matches(wanted, sorted(known), n=3)
