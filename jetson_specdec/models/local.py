# SPDX-License-Identifier: Apache-2.0
"""Profiles from files that are already there: a model directory, the Hugging Face cache. No network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from jetson_specdec.errors import ModelError
from jetson_specdec.findings import Finding
from jetson_specdec.host import Host
from jetson_specdec.models.profile import ModelProfile, profile_from_config

__all__ = ["cache_folder", "cached_snapshot", "is_offline", "profile_from_cache", "profile_from_dir", "read_tokenizer"]

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = ("1", "true", "yes", "on")
"""huggingface_hub/constants.py: ENV_VARS_TRUE_VALUES, case ignored."""

_INDEX = "model.safetensors.index.json"


def profile_from_dir(host: Host, path: str, *, id: str | None = None, dtype: str | None = None) -> ModelProfile:
    """Make a profile of a model directory.

    Args:
        host: where the directory is.
        path: absolute path of a directory with a `config.json`.
        id: repository id to show instead of the path.
        dtype: value of `--dtype` other than `auto`.

    Raises:
        ModelError: there is no `config.json` or it is not JSON, only GGUF files are there, or a weight file is not
            safetensors.
    """
    names = host.list_dir(path)
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if path.lower().endswith(".gguf") or (gguf and "config.json" not in names):
        raise ModelError("JSE452", path=path, files=gguf or [path.rsplit("/", 1)[-1]])
    config = _read_json(host, f"{path.rstrip('/')}/config.json", required=True)
    assert config is not None
    extra = _read_json(host, f"{path.rstrip('/')}/hf_quant_config.json", required=False)
    files, missing = _weight_files(host, path, names)
    from jetson_specdec.models.safetensors_read import read_headers

    read = read_headers(host, path, files) if files and not missing else None
    headers, short = read if read is not None else (None, ())
    profile = profile_from_config(
        config,
        id=id or path,
        headers=headers,
        quantization=extra,
        dtype=dtype,
        files=tuple(files) if headers is not None else (),
        source=f"{path.rstrip('/')}/config.json",
    )
    if missing or short:
        import attrs

        if missing:
            incomplete = Finding.of("JSD475", path=path, missing=missing, count=len(missing))
        else:
            incomplete = Finding.of("JSD488", path=path, files=list(short))
        profile = attrs.evolve(profile, findings=(*profile.findings, incomplete), incomplete=True)
    return profile


def _weight_files(host: Host, path: str, names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the files vLLM would load, and those that an index or the numbers in their names ask for in vain."""
    if _INDEX in names:
        index = _read_json(host, f"{path.rstrip('/')}/{_INDEX}", required=False) or {}
        mapped = index.get("weight_map")
        wanted = sorted({str(name) for name in mapped.values()}) if isinstance(mapped, dict) else []
        return wanted, [name for name in wanted if name not in names]
    files = [name for name in names if name.endswith(".safetensors") and not name.startswith("adapter_")]
    # Mistral repositories hold the same weights a second time under this name.
    single = [name for name in files if not name.startswith("consolidated")]
    return single or files, _absent_shards(single or files)


def _absent_shards(files: list[str]) -> list[str]:
    """Return the parts that `model-00001-of-00003.safetensors` and its like name and that are not there."""
    import re

    wanted: set[str] = set()
    for name in files:
        found = re.fullmatch(r"(.*)-(\d{5})-of-(\d{5})\.safetensors", name)
        if found and 0 < int(found[3]) <= 1000:
            parts = range(1, int(found[3]) + 1)
            wanted.update(f"{found[1]}-{part:05d}-of-{found[3]}.safetensors" for part in parts)
    return sorted(wanted.difference(files))


def _read_json(host: Host, path: str, *, required: bool) -> Mapping[str, Any] | None:
    text = host.read_text(path)
    if text is None:
        if required:
            raise ModelError("JSE450", path=path)
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError("JSE451", path=path, reason=str(error)) from error
    if not isinstance(data, dict):
        raise ModelError("JSE464", path=path)
    return data


def cache_folder(host: Host) -> str | None:
    """Return where the Hugging Face cache of this host is: `HF_HUB_CACHE`, `HF_HOME/hub`, or the default."""
    env = host.environ
    explicit = env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE")
    if explicit:
        return explicit
    if env.get("HF_HOME"):
        return f"{env['HF_HOME'].rstrip('/')}/hub"
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME'].rstrip('/')}/.cache" if env.get("HOME") else None)
    return f"{base.rstrip('/')}/huggingface/hub" if base else None


def is_offline(env: Mapping[str, str | None]) -> bool:
    """Whether an engine's environment forbids downloads from the Hugging Face hub."""
    return any((env.get(name) or "").lower() in _TRUE for name in _OFFLINE)


def cached_snapshot(
    host: Host, repo_id: str, *, cache_dir: str | None = None, revision: str | None = None
) -> str | None:
    """Return the directory of a repository's cached snapshot, or None where it is not cached.

    Args:
        host: where to look.
        repo_id: `organisation/name`.
        cache_dir: the cache; None is the host's own.
        revision: branch, tag or commit; None is `main`, else the only snapshot there is.
    """
    base = cache_dir or cache_folder(host)
    if base is None:
        return None
    folder = f"{base.rstrip('/')}/models--{repo_id.replace('/', '--')}"
    reference = host.read_text(f"{folder}/refs/{revision or 'main'}")
    snapshots = host.list_dir(f"{folder}/snapshots")
    if reference is not None:
        name = reference.strip()
    elif revision is not None:
        name = revision
    else:
        name = snapshots[0] if len(snapshots) == 1 else ""
    return f"{folder}/snapshots/{name}" if name in snapshots else None


def profile_from_cache(
    host: Host, repo_id: str, *, cache_dir: str | None = None, revision: str | None = None, dtype: str | None = None
) -> ModelProfile | None:
    """Make a profile of a repository in the Hugging Face cache; None where it is not there or holds no config.

    Raises:
        ModelError: as `profile_from_dir`, when the snapshot is there but cannot be used.
    """
    folder = cached_snapshot(host, repo_id, cache_dir=cache_dir, revision=revision)
    if folder is None or host.kind(f"{folder}/config.json") != "file":
        return None
    return profile_from_dir(host, folder, id=repo_id, dtype=dtype)


def read_tokenizer(host: Host, path: str) -> bytes | None:
    """Return `tokenizer.json` of a model directory for `check_pair`, or None where there is none."""
    return host.read_bytes(f"{path.rstrip('/')}/tokenizer.json", limit=64 * 2**20)
