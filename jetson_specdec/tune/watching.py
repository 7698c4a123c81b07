# SPDX-License-Identifier: Apache-2.0
"""`watch`: looks at a server's counters now and then. The judging is in `drift`."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from jetson_specdec.errors import EndpointError, ReportError
from jetson_specdec.files import write_atomic
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.drift import SCHEMA_VERSION, Reference, WatchResult, judge_drift, kept_lines, observe

__all__ = ["fetch_metrics", "reference_from", "watch"]

MISSES = 3
"""So many looks in a row have to fail before a server that was there counts as unreachable."""


def fetch_metrics(url: str, *, api_key: str | None = None, verify: bool = True, timeout_s: float = 10.0) -> str:
    """Return the `/metrics` page of a server.

    Raises:
        EndpointError: there is none (JSE961).
    """
    root = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    context = None
    if root.startswith("https") and not verify:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    handlers = [urllib.request.HTTPSHandler(context=context)] if context is not None else []
    try:
        request = urllib.request.Request(f"{root}/metrics", headers=headers)
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as answer:
            text: str = answer.read().decode("utf-8", errors="replace")
    except urllib.error.HTTPError as error:
        error.close()
        raise EndpointError("JSE961", url=root, reason=f"HTTP {error.code}") from None
    except Exception as error:  # also http.client's own and malformed addresses
        reason = getattr(error, "reason", None) or error
        raise EndpointError("JSE961", url=root, reason=str(reason) or type(error).__name__) from None
    return text


def reference_from(path: str | Path) -> Reference:
    """Return what a verdict rested on: an evidence folder of `tune`, or a benchmark report with speculation.

    Raises:
        ReportError: it holds no measurement with speculation (JSE959).
    """
    from jetson_specdec.measurements import read_report

    place = Path(path)
    if place.is_dir():
        from jetson_specdec.tune.evidence import Evidence, judged_of
        from jetson_specdec.tune.schedule import usable_pairs

        evidence = Evidence(place)
        pairs = usable_pairs(judged_of(evidence.state()))
        reports = [evidence.report(on.report) for _, on in pairs.values()]
    else:
        reports = [read_report(place)]
    found = Reference.of_reports(reports, source=str(path))
    if found.acceptance is None:
        raise ReportError("JSE959", path=str(path))
    return found


def watch(
    fetch: Callable[[], str],
    reference: Reference,
    *,
    policy: Policy = DEFAULT_POLICY,
    interval_s: float = 300.0,
    once: bool = False,
    state: str | Path | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[WatchResult]:
    """Look, compare with the look before, and yield what there is to say; ends with a drift or an unreachable server.

    Args:
        fetch: returns the `/metrics` page, or raises `EndpointError`.
        reference: what the verdict rested on.
        policy: limits.
        interval_s: seconds between looks.
        once: end after one comparison.
        state: file that keeps the last look, so that one look a call suffices (with `once`).
        sleep: waits.

    Raises:
        OutputError: the state file could not be written.
    """
    kept = _load(state)
    misses = 0
    while True:
        try:
            page = kept_lines(fetch())
            misses = 0
        except EndpointError as error:
            misses += 1
            if once or misses >= MISSES:
                url, reason = error.values.get("url"), error.values.get("reason")
                yield WatchResult(
                    state="unreachable",
                    reference=reference,
                    findings=(Finding.of("JSD989", url=url, reason=reason),),
                )
                return
            sleep(interval_s)
            continue
        if kept is None:
            result = WatchResult(state="unknown", reference=reference, findings=(Finding.of("JSD985"),))
        else:
            result = judge_drift(reference, observe(kept, page, policy=policy), policy=policy)
        first = kept is None
        # Too little to tell: keep the older look, so that rare requests add up.
        if first or result.state != "unknown" or any(each.code == "JSD987" for each in result.findings):
            kept = page
            _save(state, page)
        yielded = not (once and first and state is None)
        if yielded:
            yield result
        if result.state == "drift" or (once and yielded):
            return
        sleep(interval_s)


def _load(state: str | Path | None) -> str | None:
    if state is None:
        return None
    try:
        data = json.loads(Path(state).read_text(encoding="utf-8"))
        return str(data["page"]) if data["schema_version"] == SCHEMA_VERSION else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _save(state: str | Path | None, page: str) -> None:
    if state is not None:
        write_atomic(state, json.dumps({"schema_version": SCHEMA_VERSION, "page": page}) + "\n", mode=0o600)
