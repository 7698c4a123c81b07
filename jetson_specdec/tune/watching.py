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

from attrs import evolve

from jetson_specdec.errors import EndpointError, ReportError
from jetson_specdec.files import write_atomic
from jetson_specdec.findings import Finding
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.tune.drift import (
    SCHEMA_VERSION,
    WatchResult,
    judge_drift,
    kept_lines,
    model_of,
    nothing_drafted,
    observe,
    shows_vllm,
)
from jetson_specdec.tune.reference import Reference

__all__ = ["fetch_metrics", "reference_from", "watch"]

MISSES = 3
"""So many looks in a row have to fail before a server that was there counts as unreachable."""


def fetch_metrics(url: str, *, api_key: str | None = None, verify: bool = True, timeout_s: float = 10.0) -> str:
    """Return the `/metrics` page of a server.

    Raises:
        EndpointError: there is none (JSE961).
    """
    root = root_of(url)
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
        raise EndpointError("JSE961", url=root, reason=f"HTTP {error.code}", status=error.code) from None
    except Exception as error:  # also http.client's own and malformed addresses
        reason = getattr(error, "reason", None) or error
        raise EndpointError("JSE961", url=root, reason=str(reason) or type(error).__name__) from None
    return text


def root_of(url: str) -> str:
    """Return the address of a server without what stands behind it."""
    root = (url if "://" in url else f"http://{url}").rstrip("/")
    return root.removesuffix("/metrics").rstrip("/").removesuffix("/v1").rstrip("/")


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
        without = [evidence.report(off.report) for off, _ in pairs.values()]
    else:
        reports, without = [read_report(place)], []
    found = Reference.of_reports(reports, without=without, source=str(path))
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
    server: str | None = None,
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
        server: address that is looked at; a state of another one is not compared with.
        sleep: waits.

    Raises:
        OutputError: the state file could not be written.
    """
    kept, unusable = _load(state, server)
    misses = 0
    while True:
        try:
            page = _page(fetch, server)
            misses = 0
        except EndpointError as error:
            misses += 1
            if once or misses >= MISSES:
                yield WatchResult(state="unreachable", reference=reference, findings=(_unreachable(error),))
                return
            sleep(interval_s)
            continue
        if kept and (model := model_of(kept)) != model_of(page):
            kept, unusable = None, f"it is of the model {model}"
        first = kept is None
        if kept is None:
            result = _first(reference, page, policy)
            if unusable is not None:
                note = Finding.of("JSD953", path=str(state), reason=unusable)
                result, unusable = evolve(result, findings=(note, *result.findings)), None
        else:
            result = judge_drift(reference, observe(kept, page, policy=policy), policy=policy)
        if first or result.state != "unknown":
            kept = page
            _save(state, server, kept)
        elif any(each.code == "JSD987" for each in result.findings):
            # Too little since the restart: from here on everything since it counts.
            kept = ""
            _save(state, server, kept)
        # Else too little to tell: the older look is kept, so that rare requests add up.
        yielded = not (once and first and state is None and result.state != "drift")
        if yielded:
            yield result
        if result.state == "drift" or (once and yielded):
            return
        sleep(interval_s)


def _page(fetch: Callable[[], str], server: str | None) -> str:
    page = kept_lines(fetch())
    if not shows_vllm(page):
        raise EndpointError("JSE961", url=server, reason="the page holds no counters of vLLM (--disable-log-stats?)")
    return page


def _first(reference: Reference, page: str, policy: Policy) -> WatchResult:
    """Return what the first look says: whether anything is drafted at all, and nothing else."""
    seen = observe(None, page, policy=policy)
    if seen.state == "absent" and nothing_drafted(reference, seen):
        return judge_drift(reference, seen, policy=policy)
    return WatchResult(state="unknown", reference=reference, findings=(Finding.of("JSD985"),))


def _unreachable(error: EndpointError) -> Finding:
    url, status = error.values.get("url"), error.values.get("status")
    if status in (401, 403):
        return Finding.of("JSD954", url=url, status=status)
    return Finding.of("JSD989", url=url, reason=error.values.get("reason"))


def _load(state: str | Path | None, server: str | None) -> tuple[str | None, str | None]:
    """Return the page of the last look, or why what the file holds cannot be used."""
    if state is None or not Path(state).exists():
        return None, None
    try:
        data = json.loads(Path(state).read_text(encoding="utf-8"))
        if data["schema_version"] != SCHEMA_VERSION:
            return None, "it is of another release"
        page, of = data["page"], data.get("server")
        if not isinstance(page, str):
            return None, "it is damaged"
    except OSError as error:
        return None, error.strerror or str(error)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, "it is damaged"
    if server is not None and of is not None and of != server:
        return None, f"it is of {of}"
    return page, None


def _save(state: str | Path | None, server: str | None, page: str) -> None:
    if state is not None:
        data = {"schema_version": SCHEMA_VERSION, "server": server, "page": page}
        write_atomic(state, json.dumps(data) + "\n", mode=0o600)
