# SPDX-License-Identifier: Apache-2.0
"""Our report format to JSON and back: strict, lossless, with a published schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attrs import fields

from jetson_specdec.errors import ReportError
from jetson_specdec.findings import Finding, Severity, Step
from jetson_specdec.measurements.core import SCHEMA_VERSION, BenchReport, RequestRecord, Run

if TYPE_CHECKING:
    from cattrs import Converter

_ALLOWED: Final = {
    "rate": "0…1",
    "per_position": "0…1",
    "accepted_tokens": "≤ drafted_tokens",
    "mean_length": "1…k + 1",
}

T = TypeVar("T")

__all__ = ["from_json", "parse_json", "schema", "strict_converter", "structure_strictly", "to_json"]


def parse_json(text: str) -> Any:
    """Parse JSON as tools write it: the literals NaN and Infinity are missing numbers (None), a BOM is ignored.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of our report format."""
    from jetson_specdec.measurements.schema import schema_of

    return schema_of(
        BenchReport, title="jetson-specdec benchmark report", replaced={"schema_version": {"const": SCHEMA_VERSION}}
    )


def to_json(report: BenchReport) -> dict[str, Any]:
    """Return the JSON form; every number in it is finite."""
    data: dict[str, Any] = strict_converter().unstructure(report)
    return data


def from_json(data: Any) -> BenchReport:
    """Read our own format.

    Args:
        data: the object, or its text.

    Raises:
        ReportError: not our format, another schema version, an unknown key, or a value of the wrong type.
    """
    if isinstance(data, (str, bytes)):
        try:
            data = parse_json(data if isinstance(data, str) else data.decode("utf-8"))
        except ValueError as error:
            raise ReportError("JSE603", where="report", reason=str(error)) from error
    if not isinstance(data, Mapping) or "schema_version" not in data:
        raise ReportError("JSE620")
    if data["schema_version"] != SCHEMA_VERSION or isinstance(data["schema_version"], bool):
        raise ReportError("JSE608", version=data["schema_version"], known=SCHEMA_VERSION)
    try:
        report = structure_strictly(data, BenchReport)
    except ValueError as error:
        raise ReportError("JSE607", reason=str(error)) from error
    except RecursionError as error:
        raise ReportError("JSE621") from error
    wrong = _out_of_range(report)
    if wrong is not None:
        raise ReportError("JSE624", place=wrong[0], value=wrong[1], range=wrong[2])
    concurrencies = [run.concurrency for run in report.runs]
    if len(set(concurrencies)) != len(concurrencies):
        raise ReportError("JSE622")
    return report


def _out_of_range(report: BenchReport) -> tuple[str, Any, str] | None:
    """Return where a figure stands that no measurement gives, the figure, and what is allowed; or None."""
    acceptances = [("acceptance", report.acceptance)]
    listed: list[tuple[str, Sequence[Run | RequestRecord]]] = [("runs", report.runs), ("requests", report.requests)]
    for kind, parts in listed:
        for number, part in enumerate(parts):
            place = f"{kind}[{number}]"
            if part.concurrency < 1:
                return f"{place}.concurrency", part.concurrency, "≥ 1"
            for name, value in _figures(part):
                # A request may have been sent before the clock of its run was read.
                if value < 0 and name != "start_s":
                    return f"{place}.{name}", value, "≥ 0"
            acceptances.append((f"{place}.acceptance", part.acceptance))
    for name, value in _figures(report.config):
        if value < 0 and name != "seed":
            return f"config.{name}", value, "≥ 0"
    for place, acceptance in acceptances:
        wrong = None if acceptance is None else acceptance.impossible
        if wrong is not None:
            value = getattr(acceptance, wrong)
            return f"{place}.{wrong}", value, _ALLOWED.get(wrong, "≥ 0")
    return None


def _figures(part: Any) -> Iterator[tuple[str, float]]:
    for attribute in fields(type(part)):
        value = getattr(part, attribute.name)
        for figure in value if isinstance(value, tuple) else (value,):
            if isinstance(figure, (int, float)) and not isinstance(figure, bool):
                yield attribute.name, figure


def structure_strictly(data: Any, kind: type[T]) -> T:
    """Make a value of its JSON form.

    Raises:
        ValueError: an unknown key, a missing one, or a value of the wrong type; the first three are named.
    """
    from cattrs import BaseValidationError, transform_error

    try:
        return strict_converter().structure(data, kind)
    except BaseValidationError as error:
        raise ValueError("; ".join(transform_error(error)[:3])) from error


@lru_cache(maxsize=1)
def strict_converter() -> Converter:
    """Make a converter that coerces nothing: "5" is not a number and 1 is not true."""
    from cattrs import Converter

    converter = Converter(forbid_extra_keys=True, unstruct_collection_overrides={tuple: list})

    def exactly(kind: type, what: str) -> Any:
        def check(value: Any, _: Any) -> Any:
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise ValueError(f"{value!r:.40} is not {what}")
            return value

        return check

    def finite(value: Any, _: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ValueError(f"{value!r:.40} is not a number")
        try:
            result = float(value)
        except OverflowError as error:
            raise ValueError("too large a number") from error
        if not math.isfinite(result):
            raise ValueError("not a finite number")
        return result

    def read_finding(value: Any, _: Any) -> Finding:
        try:
            return Finding(
                code=value["code"],
                topic=value["topic"],
                severity=Severity(value["severity"]),
                values=dict(value["values"]),
                source=value["source"],
            )
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ValueError("not a finding") from error

    def read_step(value: Any, _: Any) -> Step:
        try:
            return Step(kind=value["kind"], values=dict(value["values"]), command=value["command"])
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError("not a step") from error

    def read_object(value: Any, _: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{value!r:.40} is not an object")
        return dict(value)

    converter.register_structure_hook(int, exactly(int, "a whole number"))
    converter.register_structure_hook(str, exactly(str, "a text"))
    converter.register_structure_hook(bool, exactly(bool, "true or false"))
    converter.register_structure_hook(float, finite)
    converter.register_structure_hook(Finding, read_finding)
    converter.register_structure_hook(Step, read_step)
    converter.register_structure_hook_func(lambda kind: kind == Mapping[str, Any], read_object)
    converter.register_unstructure_hook(Finding, lambda finding: finding.to_json())
    converter.register_unstructure_hook(Step, lambda step: step.to_json())
    converter.register_unstructure_hook(float, lambda value: value if math.isfinite(value) else None)
    return converter
