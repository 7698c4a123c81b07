# SPDX-License-Identifier: Apache-2.0
"""The folder that proves a verdict: every file written whole or not at all, and judged again whenever wanted.

```
state.json        what was asked, every block, where it stands; a tune that was killed goes on from here
reports/          one benchmark report a block, raw records included
plans/            the plan, and every try of the ladder with its diagnosis
logs/             one log a start, secrets masked
metrics/          /metrics of the server after each block
environment.json  board, versions
verdict.json      the verdict; SHA256SUMS covers all files but state.json
```
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from jetson_specdec.errors import OutputError, ReportError
from jetson_specdec.files import write_atomic
from jetson_specdec.policy import Policy
from jetson_specdec.tune.core import SCHEMA_VERSION, BlockRecord
from jetson_specdec.tune.schedule import Progress, usable_pairs

if TYPE_CHECKING:
    from jetson_specdec.gate import Verdict
    from jetson_specdec.measurements import BenchReport

__all__ = ["Evidence", "judged_of", "progress_of", "rejudge"]

STATE, SUMS = "state.json", "SHA256SUMS"
FOLDERS = ("reports", "plans", "logs", "metrics")


class Evidence:
    """One evidence folder.

    Args:
        folder: an existing one; `create` makes a new one.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._sums = self._read_sums()

    @classmethod
    def create(cls, folder: str | Path) -> Evidence:
        """Make a new folder.

        Raises:
            OutputError: it holds something already (JSE953), or cannot be made (JSE007).
        """
        path = Path(folder)
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if any(path.iterdir()) and not cls(path).blank:
                raise OutputError("JSE953", path=str(path))
            for name in FOLDERS:
                (path / name).mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise OutputError("JSE007", path=str(path), reason=error.strerror or str(error)) from error
        return cls(path)

    @property
    def blank(self) -> bool:
        """Whether a tune was killed here while it made the folder: nothing but our folders or a first draft."""
        try:
            names = {each.name for each in self.folder.iterdir()}
            inside = [each for name in FOLDERS for each in self.folder.glob(f"{name}/*")]
        except OSError:
            return False
        return not inside and bool(names) and all(name in FOLDERS or name.startswith(f".{STATE}.") for name in names)

    def sweep(self) -> None:
        """Remove what was being written when a tune was killed."""
        for each in (*self.folder.glob(".*.????????"), *self.folder.glob("*/.*.????????")):
            with contextlib.suppress(OSError):
                each.unlink()

    def write(self, name: str, value: Any) -> str:
        """Write a file (text, or a JSON document), note its checksum, and return its name.

        Raises:
            OutputError: it could not be written; what stood there is untouched.
        """
        text = value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        if self._sums.pop(name, None) is not None:
            self._list()  # killed in between, it would look damaged
        write_atomic(self.folder / name, text, mode=0o600)
        self.note(name)
        return name

    def note(self, name: str) -> None:
        """Note the checksum of a file that is there, such as a log.

        Raises:
            OutputError: the list could not be written.
        """
        try:
            self._sums[name] = _digest(self.folder / name)
        except OSError:
            return
        self._list()

    def _list(self) -> None:
        lines = [f"{digest}  {each}\n" for each, digest in sorted(self._sums.items())]
        write_atomic(self.folder / SUMS, "".join(lines), mode=0o600)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write where the tune stands.

        Raises:
            OutputError: it could not be written; the state before stands.
        """
        text = json.dumps({"schema_version": SCHEMA_VERSION, **state}, indent=1, ensure_ascii=False) + "\n"
        write_atomic(self.folder / STATE, text, mode=0o600)

    def state(self) -> dict[str, Any]:
        """Return where the tune stands.

        Raises:
            ReportError: there is no such state, or one of another version (JSE950).
        """
        try:
            data: Any = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ReportError("JSE950", path=str(self.folder), reason=reason) from None
        if not isinstance(data, dict) or data.pop("schema_version", None) != SCHEMA_VERSION:
            raise ReportError("JSE950", path=str(self.folder), reason="another version's state")
        return data

    def report(self, name: str) -> BenchReport:
        """Return the report of a block.

        Raises:
            ReportError: it is missing, no report, or not what was written (JSE952).
        """
        from jetson_specdec.measurements import BenchReport

        path = self.folder / name
        try:
            text = path.read_text(encoding="utf-8")
            digest = _digest(path)
        except OSError as error:
            raise ReportError("JSE950", path=str(path), reason=error.strerror or str(error)) from None
        if self._sums.get(name) != digest:
            raise ReportError("JSE952", path=str(path))
        return BenchReport.from_json(text)

    def damaged(self) -> tuple[str, ...]:
        """Return the files that are missing or not what was written."""
        found = []
        for name, digest in sorted(self._sums.items()):
            try:
                same = _digest(self.folder / name) == digest
            except OSError:
                same = False
            if not same:
                found.append(name)
        return tuple(found)

    def _read_sums(self) -> dict[str, str]:
        try:
            lines = (self.folder / SUMS).read_text(encoding="utf-8").splitlines()
        except OSError:
            return {}
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines) if name}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def judged_of(state: Mapping[str, Any]) -> Progress:
    """Return the progress with the variant that the result rests on; before there is one, the last that has pairs."""
    progress = progress_of(state)
    progress = evolve(progress, variant=state.get("judged_variant", progress.variant))
    return progress if usable_pairs(progress) else evolve(progress, variant=0)


def progress_of(state: Mapping[str, Any], **more: Any) -> Progress:
    """Return the progress that a state describes."""
    return Progress(
        blocks=tuple(BlockRecord.from_json(each) for each in state["blocks"]),
        start_k=state["start_k"],
        elapsed_s=state["elapsed_s"],
        variant=state["variant"],
        schedule_tried=state["schedule_tried"],
        spoilt={int(variant): tuple(pairs) for variant, pairs in state["spoilt"].items()},
        baseline_counts=state["baseline_counts"],
        max_k=state["max_k"],
        **more,
    )


def rejudge(folder: str | Path, *, policy: Policy | None = None) -> Verdict:
    """Judge the saved measurements of a tune again, without a board, as pairs that were looked at one by one.

    Args:
        folder: the evidence.
        policy: other thresholds; None: those of the tune.

    Raises:
        ReportError: the folder holds no tune, no complete pair, or a report that was changed.
    """
    from jetson_specdec.tune.looks import judge_looking

    evidence = Evidence(folder)
    state = evidence.state()
    pairs = usable_pairs(judged_of(state))
    rules = policy if policy is not None else Policy.from_mapping(state["policy"], where=str(folder))
    if not pairs:
        raise ReportError("JSE950", path=os.fspath(folder), reason="no complete pair was measured")
    befores = [evidence.report(off.report) for off, _ in pairs.values()]
    afters = [evidence.report(on.report) for _, on in pairs.values()]
    return judge_looking(lambda gate: gate.judge(befores, afters), rules)
