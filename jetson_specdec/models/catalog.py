# SPDX-License-Identifier: Apache-2.0
"""What is known of models, heads and draft pairs, and what a user adds to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from attrs import field

from jetson_specdec.models.core import AcceptanceRecord, DraftPair, Head, TargetRecord
from jetson_specdec.models.rows import Rows, packaged_rows
from jetson_specdec.values import frozen

__all__ = ["Catalog", "QuantizedCopy"]

_LOADS: Final = {"tested": 0, "documented": 1, "unknown": 2}


@frozen(kw_only=True)
class QuantizedCopy:
    """A repository that holds a base model in another precision.

    Attributes:
        base: repository id of the base model.
        precision: as its listing or its name says.
        confidence: `high` for a listed copy, `medium` for one recognised by its name.
        listed: whether the catalogue lists this repository.
        renamed_to: its present id where the given one is older, or None.
    """

    base: str
    precision: str
    confidence: str
    listed: bool = True
    renamed_to: str | None = None


@frozen(kw_only=True, eq=False, repr=False)
class Catalog:
    """Targets, heads and draft pairs; made by `default()` or `load()`, never changed.

    Values are built when they are first asked for, so that loading stays cheap.
    """

    rows: Rows
    user_files: tuple[str, ...] = ()
    _made: dict[tuple[str, str], Any] = field(factory=dict, init=False)

    def __repr__(self) -> str:
        return f"Catalog({len(self.rows.targets)} targets, {len(self.rows.heads)} heads, {len(self.rows.pairs)} pairs)"

    @classmethod
    def default(cls) -> Catalog:
        """Return the catalogue that ships with this package (the same object every time)."""
        return _default()

    @classmethod
    def load(cls, user_files: Iterable[str | Path] = ()) -> Catalog:
        """Return the packaged catalogue with users' files laid over it, later files over earlier ones.

        A file is TOML (`.toml`) or JSON (`.json`) with the lists `targets`, `heads` and `pairs`; what an entry may hold
        is in `user_files.user_schema()`. An entry with the id of a known one replaces what it names and keeps the rest.

        ```toml
        schema_version = 1

        [[heads]]
        id = "our-lab/Qwen3-8B-eagle3"
        target = "Qwen/Qwen3-8B"
        loads_in_vllm = "tested"
        min_vllm = "0.20.0"
        ```

        Raises:
            CatalogueError: a file cannot be read or holds something else; the text names the file, entry and field.
        """
        paths = [Path(path) for path in user_files]
        if not paths:
            return cls.default()
        from jetson_specdec.models.user_files import read_user_file

        rows = packaged_rows()
        for path in paths:
            rows = rows.with_user(read_user_file(path), name=str(path))
        return cls(rows=rows, user_files=tuple(str(path) for path in paths))

    # --- targets -----------------------------------------------------------------------------------------------------

    @property
    def all_targets(self) -> tuple[TargetRecord, ...]:
        """Every base model, those with config numbers first."""
        return tuple(self._target(id) for id in self.rows.targets)

    @property
    def all_heads(self) -> tuple[Head, ...]:
        """Every head, of every method."""
        return tuple(self._head(id) for id in self.rows.heads)

    @property
    def all_pairs(self) -> tuple[DraftPair, ...]:
        """Every draft pair that is given for one target (not those given for a family of targets)."""
        return tuple(self._pair(row, row["target"]) for row in self.rows.pairs if "target" in row)

    @property
    def sources(self) -> Mapping[str, str]:
        """Short names of sources → what they are."""
        return self.rows.sources

    def canonical(self, id: str) -> str | None:
        """Return a base model's id for it or for an alias of it; None for anything else, quantised copies included."""
        return id if id in self.rows.targets else self.rows.aliases.get(id)

    def variant_of(self, id: str) -> tuple[str, str] | None:
        """Return base id and precision of a listed quantised copy, or None."""
        return self.rows.copies.get(self.rows.renamed.get(id, id))

    def copy_of(self, id: str) -> QuantizedCopy | None:
        """Say which base model a repository is a quantised copy of: by the list, else by its name.

        By name means: the known suffixes taken off, what is left is exactly a base model's name (an old `Meta-` aside),
        and the organisation is the base model's own or one that is known for plain copies.
        """
        renamed = self.rows.renamed.get(id)
        if (listed := self.variant_of(id)) is not None:
            base, precision = listed
            return QuantizedCopy(base=base, precision=precision, confidence="high", renamed_to=renamed)
        org, _, name = id.partition("/")
        stem, precision_named = self.rows.strip_copy_suffix(name)
        if precision_named is None:
            return None
        if org in self.rows.quantizers:
            bases = self.bases_named(stem)
        else:
            own = (self.canonical(f"{org}/{candidate}") for candidate in _meta_spellings(stem))
            bases = tuple(dict.fromkeys(base for base in own if base))
        if len(bases) != 1:
            return None
        return QuantizedCopy(base=bases[0], precision=precision_named, confidence="medium", listed=False)

    def bases_named(self, name: str) -> tuple[str, ...]:
        """Return the base models whose name (the part after the organisation) is exactly this, an old `Meta-` aside."""
        found = (self.rows.names.get(candidate, ()) for candidate in _meta_spellings(name))
        return tuple(dict.fromkeys(base for bases in found for base in bases))

    def target(self, id: str) -> TargetRecord | None:
        """Return what is known of a base model, asked for by its id, an alias, or a listed quantised copy's id."""
        base = self._base(id)
        return None if base is None else self._target(base)

    # --- heads -------------------------------------------------------------------------------------------------------

    def head(self, id: str) -> Head | None:
        """Return a head by its repository id."""
        return self._head(id) if id in self.rows.heads else None

    def heads_for(self, base_id: str, method: str = "eagle3", *, served: str | None = None) -> tuple[Head, ...]:
        """Return the heads for a model, best first.

        In this order: trained for exactly what is served; `tested` before `documented` before `unknown`; a verified
        id; a known licence; the longer mean acceptance where published under the same conditions; the smaller. Whether
        a head loads in a given release is for the caller to check, and heads of `unknown` loading are listed too.

        Args:
            base_id: a base model's id, an alias, or a listed quantised copy.
            method: vLLM's method name.
            served: the id of the copy that is served, where that is not the base model.
        """
        base = self._base(base_id) or base_id
        served = served or base_id
        heads = [self._head(id) for id in self._heads_of(base) if self.rows.heads[id]["method"] == method]

        def rank(head: Head) -> tuple[int, int, bool, bool]:
            exact = 0 if head.target == served else 1 if head.target == base else 2
            return (exact, _LOADS[head.loads_in_vllm], not head.id_verified, head.licence is None)

        ordered: list[Head] = []
        for _, group in groupby(sorted(heads, key=rank), key=rank):
            equals = list(group)
            key = _shared_benchmark(equals)
            ordered.extend(sorted(equals, key=lambda head: _tie_break(head, key)))
        return tuple(ordered)

    def pairs_for(self, base_id: str) -> tuple[DraftPair, ...]:
        """Return the draft pairs of a model: usable ones first, the smallest weight ratio first.

        Pairs that are not usable are listed as well, so that a plan can say why.
        """
        base = self._base(base_id) or base_id
        pairs = [self._pair(row, base) for row in self.rows.pairs if _pair_covers(row, base)]
        infinite = float("inf")
        return tuple(
            sorted(pairs, key=lambda p: (not p.usable, infinite if p.weight_ratio is None else p.weight_ratio, p.draft))
        )

    # --- names -------------------------------------------------------------------------------------------------------

    def knows(self, id: str) -> bool:
        """Whether any entry mentions this repository: a target, a copy, a head (placed or not) or a draft."""
        return id in self._ids("any")

    def near_misses(self, id: str, *, kind: str = "any", limit: int = 3) -> tuple[str, ...]:
        """Return known ids that a misspelt one probably meant, closest first; empty for an id that is known.

        Args:
            id: the id as written.
            kind: `target` (quantised copies included), `head`, `draft` or `any`.
            limit: at most so many.
        """
        from jetson_specdec.models.naming import close_ids

        known = self._ids(kind)
        return () if id in known else close_ids(id, known, limit=limit)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _base(self, id: str) -> str | None:
        base = self.canonical(id)
        if base is None and (listed := self.variant_of(id)) is not None:
            base = listed[0]
        return base

    def _heads_of(self, base: str) -> Sequence[str]:
        return self.rows.heads_by_base.get(base, ())

    def _ids(self, kind: str) -> Mapping[str, None]:
        def collect() -> dict[str, None]:
            rows = self.rows
            groups: dict[str, list[Iterable[str]]] = {
                "target": [rows.targets, rows.aliases, rows.copies, rows.renamed],
                "head": [rows.heads, rows.unplaced],
                "draft": [[row["draft"] for row in rows.pairs]],
            }
            wanted = [part for name, parts in groups.items() if kind in (name, "any") for part in parts]
            return {id: None for part in wanted for id in part}

        ids: Mapping[str, None] = self._once("ids", kind, collect)
        return ids

    def _once(self, what: str, id: str, make: Callable[[], Any]) -> Any:
        key = (what, id)
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def _said(self, keys: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.rows.sources.get(key, key) for key in keys)

    def _target(self, id: str) -> TargetRecord:
        def make() -> TargetRecord:
            row = {key: value for key, value in self.rows.targets[id].items() if key not in ("aliases", "renamed")}
            row["sources"] = self._said(row.get("sources", ()))
            return TargetRecord(**row)

        made: TargetRecord = self._once("target", id, make)
        return made

    def _head(self, id: str) -> Head:
        def make() -> Head:
            row = dict(self.rows.heads[id])
            row["sources"] = self._said(row.get("sources", ()))
            row["notes"] = tuple(row.get("notes", ()))
            row["acceptance"] = tuple(self._acceptance(record) for record in row.get("acceptance", ()))
            return Head(**row)

        made: Head = self._once("head", id, make)
        return made

    def _acceptance(self, record: Mapping[str, Any]) -> AcceptanceRecord:
        values = dict(record)
        if "per_position" in values:
            values["per_position"] = tuple(values["per_position"])
        if "source" in values:
            values["source"] = self.rows.sources.get(values["source"], values["source"])
        return AcceptanceRecord(**values)

    def _pair(self, row: Mapping[str, Any], target: str) -> DraftPair:
        def make() -> DraftPair:
            values = {key: value for key, value in row.items() if key != "target_prefixes"}
            values["target"] = target
            values["sources"] = self._said(values.get("sources", ()))
            values["notes"] = tuple(values.get("notes", ()))
            return DraftPair(**values)

        made: DraftPair = self._once("pair", f"{target} {row['draft']}", make)
        return made


@cache
def _default() -> Catalog:
    return Catalog(rows=packaged_rows())


def _meta_spellings(name: str) -> tuple[str, ...]:
    """A name as it is, and with the `Meta-` that Llama repositories were renamed from taken off or put on."""
    return (name, name[len("Meta-") :]) if name.startswith("Meta-") else (name, f"Meta-{name}")


def _pair_covers(row: Mapping[str, Any], base: str) -> bool:
    if "target_prefixes" in row:
        return base.startswith(tuple(row["target_prefixes"]))
    return bool(row["target"] == base)


def _shared_benchmark(heads: Sequence[Head]) -> tuple[str, int | None] | None:
    """The benchmark and k that most of these heads have a mean acceptance length for; None when none is shared."""
    counts = Counter(
        key
        for head in heads
        for key in {(r.benchmark, r.num_speculative_tokens) for r in head.acceptance if r.mean_length is not None}
    )
    shared = [(-count, key[1] or 0, key[0], key) for key, count in counts.items() if count > 1]
    return min(shared)[3] if shared else None


def _tie_break(head: Head, key: tuple[str, int | None] | None) -> tuple[float, float, str]:
    length = next(
        (r.mean_length for r in head.acceptance if r.mean_length and (r.benchmark, r.num_speculative_tokens) == key),
        0.0,
    )
    size = float("inf") if head.resident_bytes is None else head.resident_bytes
    return (-length, size, head.id)
