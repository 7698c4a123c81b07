# SPDX-License-Identifier: Apache-2.0
"""Which format is this report in? The content decides, never the file name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jetson_specdec.errors import ReportError, SpecdecError
from jetson_specdec.files import reason_of
from jetson_specdec.findings import Finding
from jetson_specdec.measurements.core import BenchReport
from jetson_specdec.measurements.readers.base import ReportReader
from jetson_specdec.measurements.serial import from_json, parse_json

__all__ = ["read_report", "reader_names"]

MAX_REPORT_BYTES: Final = 256 * 2**20


class _OwnReader:
    """Our own format, strictly."""

    name = "jetson_specdec"

    def recognises(self, text: str, data: Any) -> bool:
        """Say whether it carries our schema version beside runs."""
        return isinstance(data, dict) and "schema_version" in data and "runs" in data and "conditions" in data

    def read(self, text: str, data: Any, where: str) -> BenchReport:
        """Return the report."""
        return from_json(data)


def _built_in() -> tuple[ReportReader, ...]:
    from jetson_specdec.measurements.readers.aiperf import AiperfReader
    from jetson_specdec.measurements.readers.guidellm import GuidellmReader
    from jetson_specdec.measurements.readers.jetson_llm_benchmark import JetsonLlmBenchmarkReader
    from jetson_specdec.measurements.readers.vllm_bench_json import VllmBenchJsonReader
    from jetson_specdec.measurements.readers.vllm_bench_stdout import VllmBenchStdoutReader

    return (
        _OwnReader(),
        JetsonLlmBenchmarkReader(),
        VllmBenchJsonReader(),
        GuidellmReader(),
        AiperfReader(),
        VllmBenchStdoutReader(),
    )


def _plugins() -> tuple[tuple[ReportReader, ...], tuple[Finding, ...]]:
    """Load third-party readers; a broken one becomes a finding and is skipped."""
    from jetson_specdec.extensions import REPORT_READERS, plugins

    return plugins(REPORT_READERS, ("name", "recognises", "read"))


def _takes(reader: ReportReader, text: str, data: Any) -> bool | str:
    """Ask a plug-in whether it recognises a text; the reason (a text) where it breaks instead."""
    try:
        return bool(reader.recognises(text, data))
    except Exception as error:  # a plug-in may raise anything
        return _short(error)


def reader_names() -> tuple[str, ...]:
    """Return the names of all formats that can be read, third-party ones last."""
    return tuple(reader.name for reader in (*_built_in(), *_plugins()[0]))


def read_report(path_or_text: str | Path | Sequence[str | Path], *, format: str | None = None) -> BenchReport:
    """Read a benchmark report of any known format.

    Args:
        path_or_text: a file, or the text of a report (a `str` with a line break or starting with `{` or `[` is text);
            several of them are one arm, each with other concurrencies.
        format: one of `reader_names()`; None recognises it from the content.

    Raises:
        ReportError: the file cannot be read, the format is unknown or not the one asked for, or nothing in it can be
            used. The text is one line and names the file.
    """
    if not isinstance(path_or_text, (str, Path)):
        from jetson_specdec.measurements.merge import merge_reports

        return merge_reports([read_report(part, format=format) for part in path_or_text])
    text, where = _load(path_or_text)
    data, reason = None, None
    try:
        data = parse_json(text)
    except ValueError as error:
        reason = str(error)
    built_in = _built_in()
    chosen = next((r for r in built_in if (format is None and r.recognises(text, data)) or r.name == format), None)
    findings: tuple[Finding, ...] = ()
    if chosen is None:
        chosen, findings = _plugin_for(text, data, format)
    if chosen is None:
        if format is not None:
            raise ReportError("JSE604", format=format, known=reader_names())
        if reason is not None and text.lstrip()[:1] in ("{", "["):
            raise ReportError("JSE603", where=where, reason=reason)
        raise ReportError("JSE602", where=where, known=reader_names())
    try:
        if format is not None and not chosen.recognises(text, data):
            raise ReportError("JSE609", where=where, format=format)
        report = chosen.read(text, data, where)
    except SpecdecError:
        raise
    except Exception as error:
        if chosen in built_in:
            raise
        raise ReportError("JSE610", where=where, name=chosen.name, reason=_short(error)) from error
    return report.with_findings(*findings) if findings else report


def _plugin_for(text: str, data: Any, format: str | None) -> tuple[ReportReader | None, tuple[Finding, ...]]:
    readers, findings = _plugins()
    broken = list(findings)
    for reader in readers:
        taken = _takes(reader, text, data) if format is None else reader.name == format
        if taken is True:
            return reader, tuple(broken)
        if isinstance(taken, str):
            broken.append(Finding.of("JSD603", name=reader.name, reason=taken))
    return None, tuple(broken)


def _short(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _load(path_or_text: str | Path) -> tuple[str, str]:
    """Return the text and what to call it in messages."""
    if isinstance(path_or_text, str) and ("\n" in path_or_text or path_or_text.lstrip()[:1] in ("{", "[")):
        return path_or_text, "report"
    path = Path(path_or_text)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_REPORT_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ReportError("JSE601", where=str(path_or_text)[:200], reason=reason_of(error)) from error
    if len(content) > MAX_REPORT_BYTES:
        raise ReportError("JSE618", where=str(path), most=MAX_REPORT_BYTES)
    if not content.strip():
        raise ReportError("JSE619", where=str(path))
    # Tools redirect under many locales; figures are ASCII in all of them.
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return content.decode(encoding, errors="replace"), str(path)
