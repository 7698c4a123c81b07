# SPDX-License-Identifier: Apache-2.0
"""What others add: plug-ins by entry point, and the user's own policy file. The one place where they are loaded.

A broken plug-in is named and skipped; it never keeps the built-in parts from working.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jetson_specdec.errors import PolicyError
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy

__all__ = ["DETECTORS", "REPORT_READERS", "STRATEGIES", "load_plugins", "load_policy", "plugins"]

STRATEGIES = "jetson_specdec.strategies"
DETECTORS = "jetson_specdec.detectors"
REPORT_READERS = "jetson_specdec.report_readers"


@lru_cache(maxsize=8)
def load_plugins(group: str) -> tuple[tuple[tuple[str, Any], ...], tuple[Finding, ...]]:
    """Load what is registered for an entry point group.

    A class or factory is called without arguments; anything else is taken as the object itself.

    Returns:
        Pairs of name and object, and a finding for each one that was skipped.
    """
    # Where it is loaded already, asking it costs less than looking first.
    if "importlib.metadata" not in sys.modules and not _may_be_registered(group):
        return (), ()
    from importlib.metadata import entry_points

    loaded: list[tuple[str, Any]] = []
    skipped: list[Finding] = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            item = entry.load()
            loaded.append((entry.name, item() if isinstance(item, type) or _is_factory(item) else item))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            skipped.append(Finding.of("JSD590", name=entry.name, group=group, reason=reason))
    return tuple(loaded), tuple(skipped)


def _may_be_registered(group: str) -> bool:
    """Whether anything that is installed may name the group: told without `importlib.metadata`, a tenth of a cold plan.

    What this cannot look into (archives, eggs, finders that bring distributions of their own) may.
    """
    from importlib.machinery import PathFinder

    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    wanted = group.encode()
    for place in dict.fromkeys(sys.path):
        try:
            names = os.listdir(place or ".")  # noqa: PTH208 - as the import system reads it
        except FileNotFoundError:
            continue
        except OSError:
            return True
        if place.lower().endswith(".egg"):
            return True
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info")):
                try:
                    with open(os.path.join(place, name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
                        if wanted in file.read():
                            return True
                except OSError:
                    continue
    return False


def _is_factory(item: Any) -> bool:
    import inspect

    return inspect.isfunction(item)


def plugins(group: str, needs: Sequence[str]) -> tuple[tuple[Any, ...], tuple[Finding, ...]]:
    """Return what is registered for a group and has the attributes that its protocol names.

    Args:
        group: `STRATEGIES`, `DETECTORS` or `REPORT_READERS`.
        needs: the protocol's attributes.

    Returns:
        The objects by the names of their entry points, and a finding for each one that was skipped.
    """
    loaded, skipped = load_plugins(group)
    good: list[Any] = []
    bad = list(skipped)
    for name, item in loaded:
        missing = [attribute for attribute in needs if not hasattr(item, attribute)]
        if missing:
            bad.append(Finding.of("JSD591", name=name, group=group, missing=missing))
        else:
            good.append(item)
    return tuple(good), tuple(bad)


def load_policy(path: str | Path | None) -> Policy:
    """Read thresholds from a TOML file: a `[policy]` table, or top-level names.

    Raises:
        PolicyError: the file cannot be read, is not TOML, or holds an unknown name or a value out of range.
    """
    if path is None:
        return DEFAULT_POLICY
    from jetson_specdec.files import parse_toml, read_text

    text = read_text(path, PolicyError)
    try:
        data = parse_toml(text)
    except ValueError as error:
        raise PolicyError("JSE006", path=str(path), format="TOML", reason=str(error)) from error
    table = data.get("policy", data)
    if not isinstance(table, dict):
        raise PolicyError("JSE010", path=str(path))
    return Policy.from_mapping(table, where=str(path))
