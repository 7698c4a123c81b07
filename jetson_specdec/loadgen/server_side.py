# SPDX-License-Identifier: Apache-2.0
"""What the server says about itself while it is measured: version, `/metrics` before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from attrs import evolve

from jetson_specdec.loadgen.client import Client
from jetson_specdec.logs.metrics import ServerCounters, SpecMetrics
from jetson_specdec.measurements import Acceptance, Conditions
from jetson_specdec.values import frozen

__all__ = ["Scrape", "ServerSide", "pooled"]

_SETTLE_TRIES = 5
_SETTLE_S = 0.1


@frozen
class Scrape:
    """A page of `/metrics`; empty where the server has none."""

    text: str


def pooled(parts: Iterable[Acceptance | None]) -> Acceptance | None:
    """Return the acceptance of several runs together, counts added up; warm-up requests are in none of them."""
    known = [part for part in parts if part is not None]
    counted = [part for part in known if part.drafts and part.drafted_tokens is not None]
    if len(counted) < 2:
        return counted[0] if counted else next(iter(known), None)
    longest = max(len(part.per_position or ()) for part in counted)
    positions = [
        sum(
            (part.per_position or ())[index] * (part.drafts or 0)
            for part in counted
            if index < len(part.per_position or ())
        )
        for index in range(longest)
    ]
    whole = Acceptance.from_counts(
        drafts=sum(part.drafts or 0 for part in counted),
        drafted_tokens=sum(part.drafted_tokens or 0 for part in counted),
        accepted_tokens=sum(part.accepted_tokens or 0 for part in counted),
        accepted_per_position=positions if all(part.per_position for part in counted) else None,
        source=counted[0].source,
    )
    unusual = next((part.state for part in counted if part.state != "active"), None)
    return evolve(whole, state=unusual) if unusual else whole


class ServerSide:
    """Asks the server; everything it lacks is None."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._version: str | None = None

    async def look(self) -> None:
        """Ask for the version."""
        data = await self._client.get_json("/version")
        version = data.get("version") if isinstance(data, dict) else None
        self._version = version if isinstance(version, str) else None

    async def scrape(self, *, finished: int | None = None, since: Scrape | None = None) -> Scrape:
        """Read `/metrics`.

        Args:
            finished: how many requests must have ended since `since`; the engine counts a moment after it answers.
            since: the page to count from.
        """
        text = await self._client.get_text("/metrics") or ""
        if finished is None or since is None or not text:
            return Scrape(text)
        for _ in range(_SETTLE_TRIES):
            counted = ServerCounters.delta(since.text, text).requests
            if counted is None or counted >= finished:
                break
            await asyncio.sleep(_SETTLE_S)
            text = await self._client.get_text("/metrics") or text
        return Scrape(text)

    def acceptance(self, before: Scrape | None, after: Scrape | None) -> Acceptance | None:
        """Return the acceptance between two pages; None where the server has no such page."""
        if before is None or after is None or not after.text:
            return None
        return Acceptance.from_metrics(SpecMetrics.delta(before.text, after.text))

    def counts(self, before: Scrape, after: Scrape) -> dict[str, Any]:
        """Return what `summarise` takes from the server's counters."""
        if not after.text:
            return {}
        counters = ServerCounters.delta(before.text, after.text)
        return {
            "acceptance": self.acceptance(before, after),
            "preemptions": counters.preemptions,
            "prefix_cache_queries": counters.prefix_cache_queries,
            "prefix_cache_hits": counters.prefix_cache_hits,
        }

    def foreign(self, before: Scrape, after: Scrape, *, sent: int) -> bool:
        """Say whether the server answered more requests than were sent, or was busy before."""
        counters = ServerCounters.delta(before.text, after.text)
        busy = _value(before.text, "vllm:num_requests_running")
        return (counters.requests or 0) > sent or bool(busy)

    def conditions(self, known: Conditions | None, page: Scrape | None, foreign: list[bool] | None) -> Conditions:
        """Return what the server shows of its configuration, below what is known already."""
        known = known or Conditions()
        text = page.text if page is not None else ""
        found: dict[str, Any] = {"vllm_version": self._version}
        if "vllm:" in text:
            found["speculation"] = "vllm:spec_decode_" in text
            caching = _label(text, "vllm:cache_config_info", "enable_prefix_caching")
            found["prefix_caching"] = None if caching is None else caching == "True"
            found["foreign_requests"] = any(foreign) if foreign is not None else None
        new = {name: value for name, value in found.items() if value is not None and getattr(known, name) is None}
        where = {name: "/version" if name == "vllm_version" else "/metrics" for name in new}
        return evolve(known, **new, sources={**where, **known.sources})


def _lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]


def _value(text: str, name: str) -> float | None:
    try:
        values = [float(line.rpartition(" ")[2]) for line in _lines(text, name)]
    except ValueError:
        return None
    return sum(values) if values else None


def _label(text: str, name: str, label: str) -> str | None:
    from prometheus_client.parser import text_string_to_metric_families

    for line in _lines(text, name):
        try:
            for family in text_string_to_metric_families(line + "\n"):
                for sample in family.samples:
                    return sample.labels.get(label)
        except (ValueError, KeyError, IndexError):
            continue
    return None
