# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec catalog`: what is published for a target."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from jetson_specdec.cli.common import catalog_of, print_json
from jetson_specdec.errors import CatalogueError


def catalog(
    target: str | None = None,
    /,
    *,
    catalog: list[Path] | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """List published heads and drafts for a target, best first; without a target, the known targets.

    Parameters
    ----------
    target:
        Repository id (ORG/MODEL) of a model, or of a quantised copy of one.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    json:
        Print as JSON.
    """
    known = catalog_of(catalog)
    found = _targets(known) if target is None else _one(known, target)
    if json:
        print_json(found)
        return 0
    from jetson_specdec.render.catalog import print_target, print_targets

    if target is None:
        print_targets(found)
    else:
        print_target(found)
    return 0


def _targets(known: Any) -> dict[str, Any]:
    rows = []
    for record in known.all_targets:
        heads = known.heads_for(record.id)
        rows.append(
            {
                "target": record.id,
                "heads": len(heads),
                "heads_proven": sum(head.loads_in_vllm != "unknown" for head in heads),
                "drafts": sum(pair.usable for pair in known.pairs_for(record.id)),
            }
        )
    return {"schema_version": 1, "targets": rows}


def _one(known: Any, target: str) -> dict[str, Any]:
    import attrs

    from jetson_specdec.models.identify import identify_target

    identity = identify_target(target, catalog=known)
    if identity.base is None:
        near = identity.near_misses or known.near_misses(target)
        raise CatalogueError("JSE510", target=target, near=list(near))
    return {
        "schema_version": 1,
        "target": target,
        "base": identity.base,
        "precision": identity.precision,
        "how": identity.how,
        "heads": [attrs.asdict(head) for head in known.heads_for(identity.base, served=identity.id)],
        "other_methods": [
            attrs.asdict(head)
            for head in known.all_heads
            if head.method != "eagle3" and head.target in (identity.base, identity.id)
        ],
        "drafts": [attrs.asdict(pair) for pair in known.pairs_for(identity.base)],
    }
