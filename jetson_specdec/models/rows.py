# SPDX-License-Identifier: Apache-2.0
"""The catalogue as read: rows of plain data, and the indexes over them.

The packaged rows live in `data/targets.json`, `data/heads.json` and `data/pairs.json`; each names its sources. They are
read once and never changed: a user's file makes new rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from attrs import field

from jetson_specdec.errors import CatalogueError
from jetson_specdec.packaged import packaged_json
from jetson_specdec.values import frozen

__all__ = ["Rows", "packaged_rows"]

Row = Mapping[str, Any]


@frozen(kw_only=True, eq=False)
class Rows:
    """The rows of one catalogue.

    Attributes:
        targets: base id → row.
        heads: head id → row.
        pairs: draft pairs; a row has `target`, or `target_prefixes` where it holds for a family.
        unplaced: heads whose target the source does not name as one repository: id → row. They are never offered.
        sources: short name → what it is.
        quantizers: organisations whose copies are taken to be plain ones.
        copy_suffixes: suffix → precision.
        aliases: other id of a base model → base id.
        copies: quantised copy's id → (base id, precision).
        renamed: older id of a copy → present id.
        names: name after the organisation → base ids.
        heads_by_base: base id → ids of heads for it or for a listed copy of it.
    """

    targets: Mapping[str, Row]
    heads: Mapping[str, Row]
    pairs: tuple[Row, ...]
    unplaced: Mapping[str, Row]
    sources: Mapping[str, str]
    quantizers: frozenset[str]
    copy_suffixes: Mapping[str, str]
    aliases: Mapping[str, str] = field(init=False)
    copies: Mapping[str, tuple[str, str]] = field(init=False)
    renamed: Mapping[str, str] = field(init=False)
    names: Mapping[str, tuple[str, ...]] = field(init=False)
    heads_by_base: Mapping[str, tuple[str, ...]] = field(init=False)

    @aliases.default
    def _index_aliases(self) -> Mapping[str, str]:
        return {alias: id for id, row in self.targets.items() for alias in row.get("aliases", ())}

    @copies.default
    def _index_copies(self) -> Mapping[str, tuple[str, str]]:
        return {
            copy: (id, precision)
            for id, row in self.targets.items()
            for copy, precision in row.get("variants", {}).items()
        }

    @renamed.default
    def _index_renamed(self) -> Mapping[str, str]:
        return {old: new for row in self.targets.values() for old, new in row.get("renamed", {}).items()}

    @names.default
    def _index_names(self) -> Mapping[str, tuple[str, ...]]:
        names: dict[str, list[str]] = {}
        for id, base in [*((id, id) for id in self.targets), *self.aliases.items()]:
            found = names.setdefault(id.rpartition("/")[2], [])
            if base not in found:
                found.append(base)
        return {name: tuple(bases) for name, bases in names.items()}

    @heads_by_base.default
    def _index_heads(self) -> Mapping[str, tuple[str, ...]]:
        by_base: dict[str, list[str]] = {}
        for id, row in self.heads.items():
            target = row["target"]
            base = self.aliases.get(target, target)
            if base not in self.targets and base in self.copies:
                base = self.copies[base][0]
            by_base.setdefault(base, []).append(id)
        return {base: tuple(ids) for base, ids in by_base.items()}

    def strip_copy_suffix(self, name: str) -> tuple[str, str | None]:
        """Take a quantised copy's suffix off a name; return the rest and the precision, or the name and None."""
        lowered = name.lower()
        for suffix, precision in self.copy_suffixes.items():
            if lowered.endswith(suffix.lower()) and len(name) > len(suffix):
                return name[: -len(suffix)], precision
        return name, None

    def with_user(self, document: Mapping[str, Any], *, name: str) -> Rows:
        """Return rows with a checked user document laid over these; `name` says where it comes from."""
        said = f"user: {name}"
        targets = {id: dict(row) for id, row in self.targets.items()}
        for entry in document.get("targets", ()):
            known = targets.get(entry["id"], {"confidence": "medium"})
            merged = {**known, **entry, "sources": [said, *known.get("sources", ())]}
            merged["variants"] = {**known.get("variants", {}), **entry.get("variants", {})}
            merged["aliases"] = [*known.get("aliases", ()), *entry.get("aliases", ())]
            targets[entry["id"]] = merged
        heads = dict(self.heads)
        for entry in document.get("heads", ()):
            known_head = heads.get(
                entry["id"],
                {"method": "eagle3", "confidence": "medium", "id_verified": True, "loads_in_vllm": "unknown"},
            )
            merged = {**known_head, **entry, "sources": [said, *known_head.get("sources", ())]}
            heads[entry["id"]] = _with_evidence(merged, entry, said)
        pairs = list(self.pairs)
        for entry in document.get("pairs", ()):
            key = (entry["target"], entry["draft"])
            at = next((i for i, row in enumerate(pairs) if (row.get("target"), row["draft"]) == key), len(pairs))
            known_pair = pairs[at] if at < len(pairs) else {"confidence": "medium"}
            merged = {**known_pair, **entry, "sources": [said, *known_pair.get("sources", ())]}
            pairs[at : at + 1] = [_settle_pair(_with_evidence(merged, entry, said), entry, targets, name)]
        return Rows(
            targets=targets,
            heads=heads,
            pairs=tuple(pairs),
            unplaced={id: row for id, row in self.unplaced.items() if id not in heads},
            sources=self.sources,
            quantizers=self.quantizers,
            copy_suffixes=self.copy_suffixes,
        )


def _with_evidence(merged: dict[str, Any], entry: Row, said: str) -> dict[str, Any]:
    """Whoever says how a drafter loads is also what that rests on."""
    if "loads_in_vllm" in entry and "evidence" not in entry:
        merged["evidence"] = said
    return merged


def _settle_pair(pair: dict[str, Any], entry: Row, targets: Mapping[str, Row], path: str) -> dict[str, Any]:
    """Fill in vocabulary sizes from the catalogue and decide `usable`, which equal sizes are needed for.

    Raises:
        CatalogueError: the entry says that it is usable although the sizes differ or are not known.
    """
    for size, id in (("target_vocab_size", pair["target"]), ("draft_vocab_size", pair["draft"])):
        if size not in pair and "vocab_size" in targets.get(id, {}):
            pair[size] = targets[id]["vocab_size"]
    sizes = (pair.get("target_vocab_size"), pair.get("draft_vocab_size"))
    equal = None not in sizes and sizes[0] == sizes[1]
    if entry.get("usable") and not equal:
        raise CatalogueError(
            "JSE414", path=path, entry=f"{pair['target']} + {pair['draft']}", target=sizes[0], draft=sizes[1]
        )
    if "usable" in entry or pair.get("why_not") in (None, "vocab-mismatch"):
        pair["usable"] = entry.get("usable", equal)
        pair.pop("why_not", None)
        if not equal and None not in sizes:
            pair["why_not"] = "vocab-mismatch"
    return pair


def _by_id(rows: Iterable[Row]) -> dict[str, Row]:
    return {row["id"]: row for row in rows}


@cache
def packaged_rows() -> Rows:
    """Return the rows that ship with this package."""
    targets, heads, pairs = (packaged_json("models", "data", f"{name}.json") for name in ("targets", "heads", "pairs"))
    return Rows(
        targets=_by_id(targets["targets"]),
        heads=_by_id(heads["heads"]),
        pairs=tuple(pairs["pairs"]),
        unplaced=_by_id(heads["unplaced"]),
        sources={**targets["sources"], **pairs["sources"], **heads["sources"]},
        quantizers=frozenset(targets["quantizers"]),
        copy_suffixes=targets["copy_suffixes"],
    )
