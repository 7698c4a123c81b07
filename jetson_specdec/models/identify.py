# SPDX-License-Identifier: Apache-2.0
"""Which model a recipe serves.

A recipe names a repository or a path. What a path holds is told by the cache folder it lies in, by its `config.json`,
or by what the folder is called; where none of them tells, the answer is that it is not known.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from jetson_specdec.host import Host
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.core import TargetIdentity
from jetson_specdec.models.locate import Found, Locator, MountLike
from jetson_specdec.models.naming import folder_names, id_in_cache_path, is_gguf, is_repository_id, is_uri

__all__ = ["identify_target", "precision_in"]


def identify_target(
    served: str | None,
    *,
    host: Host | None = None,
    mounts: Sequence[MountLike] = (),
    in_container: bool | None = None,
    workdir: str | None = None,
    recipe_path: str | None = None,
    env: Mapping[str, str | None] | None = None,
    catalog: Catalog | None = None,
    named: str | None = None,
) -> TargetIdentity:
    """Say which model is served; never raises for what it cannot find out.

    Args:
        served: the model as the recipe has it, None where the recipe's text does not tell.
        host: the machine to look at for local folders, or None.
        mounts: the container's mounts.
        in_container: whether the engine runs in a container; by default, whether there are mounts.
        workdir: the engine's working directory.
        recipe_path: where the recipe was read from; relative host paths start at its folder.
        env: the engine's environment as the recipe sets it (`HF_HOME` and the like).
        catalog: what is known of models; the packaged one by default.
        named: the id that the user says it is; wins over everything found.
    """
    catalog = catalog or Catalog.default()
    locator = Locator(
        host=host,
        mounts=tuple(mounts),
        in_container=bool(mounts) if in_container is None else in_container,
        workdir=workdir,
        recipe_dir=_folder_of(recipe_path),
        env=env or {},
    )
    if named:
        found = _look(served, locator) if served else Found()
        identity = _from_id(named, catalog) if is_repository_id(named) else _from_names([named], catalog)
        how = identity.how if identity.how == "speculators" else "named"
        return evolve(
            identity,
            served=served or named,
            how=how,
            config=found.config,
            looked_in=found.looked_in,
            folder=found.folder,
        )
    if not served or "\0" in served:
        return TargetIdentity(served=served)
    if is_uri(served):
        return TargetIdentity(served=served, remarks=("object-store",))
    if is_gguf(served):
        known = is_repository_id(served.partition(":")[0]) and not served.lower().endswith(".gguf")
        id = served.partition(":")[0] if known else None
        return TargetIdentity(
            served=served, id=id, how="exact" if id else "unknown", confidence="high" if id else None, remarks=("gguf",)
        )
    found = _look(served, locator)
    if is_repository_id(served):
        return _checked(evolve(_from_id(served, catalog), served=served), found, catalog)
    return _from_path(served, found, catalog)


def precision_in(config: Mapping[str, Any]) -> str | None:
    """Return the precision that a `config.json` states (`fp8`, `w4a16`, `nvfp4`, `bf16`, …), or None."""
    from jetson_specdec.models.quantization import dtype_bytes, read_quantization

    quantization = read_quantization(config)
    if quantization is not None:
        return quantization.precision
    text = config.get("text_config")
    parts = [part for part in (config, text) if isinstance(part, Mapping)]
    stated = next(
        (part[key] for part in parts for key in ("torch_dtype", "dtype") if isinstance(part.get(key), str)), None
    )
    return dtype_bytes(stated)[0]


# --- by name ---------------------------------------------------------------------------------------------------------


def _from_id(id: str, catalog: Catalog) -> TargetIdentity:
    """What a repository id says."""
    head = catalog.head(id)
    if head is not None and head.format == "speculators":
        return evolve(_from_id(head.target, catalog), served=id, head=id, how="speculators")
    identity = TargetIdentity(served=id, id=id, how="exact", confidence="high")
    base = catalog.canonical(id)
    if base is not None:
        return evolve(
            identity, base=base, precision=_own_precision(base, catalog), remarks=() if base == id else ("alias",)
        )
    copy = catalog.copy_of(id)
    if copy is not None:
        remarks = ("renamed",) if copy.renamed_to else ()
        return evolve(
            identity,
            base=copy.base,
            precision=copy.precision,
            how="variant",
            confidence=copy.confidence,
            remarks=remarks,
        )
    stem, precision = catalog.rows.strip_copy_suffix(id.partition("/")[2])
    likely = catalog.bases_named(stem)
    if likely and head is None:
        # Somebody else's copy under the original's very name: most are plain copies, a fine-tune usually says so.
        sole = likely[0] if len(likely) == 1 else None
        return evolve(
            identity,
            base=sole,
            precision=precision,
            how="variant" if sole else identity.how,
            confidence="low" if sole else identity.confidence,
            near_misses=likely,
            remarks=("third-party-copy",),
        )
    return evolve(identity, near_misses=catalog.near_misses(id, kind="target"))


def _own_precision(base: str, catalog: Catalog) -> str | None:
    record = catalog.target(base)
    if record is None:
        return None
    return record.native_precision or ("bf16" if record.layers is not None else None)


def _from_names(paths: Sequence[str], catalog: Catalog) -> TargetIdentity:
    """What the end of the first telling path says; `served` is the first path."""
    unknown = TargetIdentity(served=paths[0])
    best = unknown
    for path in paths:
        if (cached := id_in_cache_path(path)) is not None:
            return evolve(_from_id(cached, catalog), served=paths[0], how="cache_path")
        identity = _from_folder(path, catalog)
        if identity.base is not None:
            return evolve(identity, served=paths[0])
        if best is unknown and identity.remarks:
            best = evolve(identity, served=paths[0])
    return best


def _from_folder(path: str, catalog: Catalog) -> TargetIdentity:
    pair, bare = folder_names(path)
    unknown = TargetIdentity(served=path)
    if pair is not None:
        identity = _from_id(pair, catalog)
        # `/models/Qwen3-8B` is no organisation's copy: its last name alone is looked at below.
        if identity.base is not None and "third-party-copy" not in identity.remarks:
            how = identity.how if identity.how == "speculators" else "path_name"
            return evolve(identity, how=how, confidence="medium")
    if bare is None:
        return unknown
    stem, precision = catalog.rows.strip_copy_suffix(bare)
    bases = catalog.bases_named(stem)
    if len(bases) > 1:
        return evolve(unknown, near_misses=bases, remarks=("ambiguous",))
    if not bases:
        return unknown
    # A folder called like a copy says which model, not whose copy: several organisations use the same names.
    named = TargetIdentity(served=path, base=bases[0], how="path_name", confidence="medium")
    if precision is not None:
        return evolve(named, precision=precision)
    return evolve(named, id=bases[0], precision=_own_precision(bases[0], catalog))


# --- by what lies there ----------------------------------------------------------------------------------------------


def _look(served: str, locator: Locator) -> Found:
    if is_repository_id(served):
        # The engine takes a folder of this name before it asks the hub; only a stated directory makes that likely.
        local = locator.find(served) if locator.workdir and not locator.in_container else Found()
        return local if local.present else locator.find_in_cache(served)
    return locator.find(served)


def _from_path(served: str, found: Found, catalog: Catalog) -> TargetIdentity:
    paths = [served] if found.path is None else [served, found.path]
    config = found.config or {}
    speculators = _speculators(config)
    if speculators is not None:
        identity = _from_id(speculators, catalog) if is_repository_id(speculators) else TargetIdentity(served=served)
        identity = evolve(identity, served=served, head=served, how="speculators", confidence="medium")
        return evolve(identity, config=found.config, looked_in=found.looked_in, folder=found.folder)
    identity = _from_names(paths, catalog)
    if identity.base is None and identity.id is None:
        identity = _from_own_words(identity, config, catalog)
    if found.gguf:
        identity = evolve(identity, id=None, remarks=(*identity.remarks, "gguf"))
    return _checked(identity, found, catalog)


def _from_own_words(identity: TargetIdentity, config: Mapping[str, Any], catalog: Catalog) -> TargetIdentity:
    """What `_name_or_path` says; it proves little, since a fine-tune keeps the name of what it was made from."""
    name = config.get("_name_or_path")
    if not isinstance(name, str) or not is_repository_id(name):
        return identity
    said = _from_id(name, catalog)
    if said.base is None or said.head is not None:
        return identity
    quantized = "quantization_config" in config and said.how != "variant"
    return evolve(said, served=identity.served, id=None if quantized else said.id, how="local_config", confidence="low")


def _speculators(config: Mapping[str, Any]) -> str | None:
    """The model that a speculators head in this folder was made for."""
    part = config.get("speculators_config")
    verifier = part.get("verifier") if isinstance(part, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    return name if isinstance(name, str) and name else None


def _checked(identity: TargetIdentity, found: Found, catalog: Catalog) -> TargetIdentity:
    """Add what was found, and take a name back where the config's numbers contradict it."""
    identity = evolve(identity, config=found.config, looked_in=found.looked_in, folder=found.folder)
    if found.broken:
        return evolve(identity, remarks=(*identity.remarks, "config-unreadable"))
    if found.config is None or identity.head is not None:
        return identity
    precision = precision_in(found.config)
    if identity.base is not None and _disagrees(identity.base, found.config, catalog):
        return evolve(
            identity,
            id=identity.id if identity.how in ("exact", "variant") else None,
            base=None,
            precision=precision,
            confidence=None,
            near_misses=(identity.base,),
            remarks=(*identity.remarks, "config-disagrees"),
        )
    return evolve(identity, precision=precision or identity.precision)


def _disagrees(base: str, config: Mapping[str, Any], catalog: Catalog) -> bool:
    record = catalog.target(base)
    if record is None:
        return False
    text = config.get("text_config")
    numbers = text if isinstance(text, Mapping) else config
    pairs = (
        (record.layers, numbers.get("num_hidden_layers")),
        (record.hidden_size, numbers.get("hidden_size")),
        (record.vocab_size, numbers.get("vocab_size", config.get("vocab_size"))),
    )
    return any(known is not None and isinstance(read, int) and known != read for known, read in pairs)


def _folder_of(recipe_path: str | None) -> str | None:
    """The recipe's folder as an absolute path; a relative one starts at this process's directory."""
    if not recipe_path or recipe_path == "-" or "\0" in recipe_path:
        return None
    import os

    folder = posixpath.dirname(recipe_path)
    return folder if folder.startswith("/") else os.path.abspath(folder or ".")  # noqa: PTH100 (a pure text operation)
