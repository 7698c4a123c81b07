# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec catalog`: what is published for a target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jetson_specdec.cli.common import board, catalog_of, print_json
from jetson_specdec.errors import CatalogueError, OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter


def catalog(
    target: str | None = None,
    /,
    *,
    catalog: list[Path] | None = None,
    device: str | None = None,
    l4t: str | None = None,
    recorded: Path | None = None,
    fit: bool = False,
    gpu_memory_utilization: float | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    vllm_version: str | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """List published heads and drafts for a target, best first; without a target, the known targets.

    With a board (--device, --recorded, or --fit for this machine) also how each of them would fit there.

    Parameters
    ----------
    target:
        Repository id (ORG/MODEL) of a model, or of a quantised copy of one.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    device:
        Show the fit on this module, such as thor-t5000.
    l4t:
        L4T release of that module.
    recorded:
        Show the fit on a board saved by `detect --record`.
    fit:
        Show the fit on this machine.
    gpu_memory_utilization:
        Utilisation before speculation; the engine's default if not given.
    max_model_len:
        Longest sequence; the model's own if not given.
    max_num_seqs:
        Sequences at once; the engine's default if not given.
    vllm_version:
        vLLM release; the newest known if not given.
    json:
        Print as JSON.
    """
    known = catalog_of(catalog)
    found = _targets(known) if target is None else _one(known, target)
    if target is not None and (device or recorded or fit):
        if gpu_memory_utilization is not None and not 0 < gpu_memory_utilization <= 1:
            raise OptionError("JSE524", value=gpu_memory_utilization)
        _, where = board(device=device, l4t=l4t, audit=None, recorded=recorded)
        found |= _fit(
            known,
            found,
            where,
            utilization=gpu_memory_utilization,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            vllm_version=vllm_version,
        )
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


def _fit(
    known: Any,
    found: dict[str, Any],
    where: Any,
    *,
    utilization: float | None,
    max_model_len: int | None,
    max_num_seqs: int | None,
    vllm_version: str | None,
) -> dict[str, Any]:
    from jetson_specdec.engine.release import NEWEST_KNOWN, default_utilizations, release_from_version
    from jetson_specdec.estimate.fit import draft_fits
    from jetson_specdec.models.profile import profile_from_catalogue
    from jetson_specdec.policy import DEFAULT_POLICY

    base = found["base"]
    record = known.target(base)
    release = release_from_version(vllm_version or NEWEST_KNOWN, source="named")
    if utilization is None:
        utilization = default_utilizations(release)[0]
    k = DEFAULT_POLICY.start_k_thor if where.family == "thor" else DEFAULT_POLICY.start_k_agx_orin
    precision = found["precision"] or (record.native_precision if record is not None else None) or "bf16"
    pairs = [pair for pair in known.pairs_for(base) if pair.why_not != "vocab-mismatch"]
    rows = draft_fits(
        None if record is None else profile_from_catalogue(record, precision),
        [*known.heads_for(base), *pairs],
        where,
        k=k,
        utilization=utilization,
        release_version=release.version,
        record=record,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
    )
    return {"device": where.to_json(), "k": k, "fit": [row.to_json() for row in rows]}
