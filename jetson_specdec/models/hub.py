# SPDX-License-Identifier: Apache-2.0
"""Profiles of repositories that are not here yet: `config.json` and safetensors headers, by range requests.

Weights are never downloaded. Small JSON files (config, index) land in the ordinary Hugging Face cache.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jetson_specdec.errors import ModelError
from jetson_specdec.models.profile import ModelProfile, profile_from_config
from jetson_specdec.models.safetensors_read import TensorInfo, check_tensors

__all__ = ["profile_from_hub"]

_GATED = {"GatedRepoError"}
_MISSING = {"RepositoryNotFoundError", "RevisionNotFoundError", "EntryNotFoundError", "RemoteEntryNotFoundError"}
_OFFLINE = {"OfflineModeIsEnabled", "LocalEntryNotFoundError"}


def profile_from_hub(
    repo_id: str,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | None = None,
    dtype: str | None = None,
) -> ModelProfile:
    """Make a profile of a repository over the network.

    Args:
        repo_id: `organisation/name`.
        revision: branch, tag or commit; None is `main`.
        endpoint: another hub than the library's default (`HF_ENDPOINT`).
        token: as in `huggingface_hub`; never shown.
        cache_dir: where the small JSON files go; None is the library's cache.
        dtype: value of `--dtype` other than `auto`.

    Raises:
        ModelError: the hub cannot be reached or network use is switched off, the repository, revision or file is not
            there, it asks for a licence, it holds GGUF files only, or its files are broken.
    """
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint, token=token)
    config = _json(api, repo_id, "config.json", revision, cache_dir)
    if config is None:
        files = _guard(repo_id, revision, lambda: api.list_repo_files(repo_id, revision=revision))
        gguf = [name for name in files if name.lower().endswith(".gguf")]
        if gguf:
            raise ModelError("JSE452", path=repo_id, files=gguf)
        raise ModelError("JSE450", path=f"{repo_id}/config.json")
    extra = _json(api, repo_id, "hf_quant_config.json", revision, cache_dir)
    headers = _headers(api, repo_id, revision)
    return profile_from_config(
        config,
        id=repo_id,
        headers=headers,
        quantization=extra,
        dtype=dtype,
        files=(),
        source=f"{repo_id}@{revision or 'main'}/config.json",
    )


def _json(api: Any, repo_id: str, name: str, revision: str | None, cache_dir: str | None) -> Mapping[str, Any] | None:
    path = _guard(
        repo_id,
        revision,
        lambda: api.hf_hub_download(repo_id, name, revision=revision, cache_dir=cache_dir),
        missing_file_ok=True,
    )
    if path is None:
        return None
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ModelError("JSE451", path=f"{repo_id}/{name}", reason=str(error)) from error
    if not isinstance(data, dict):
        raise ModelError("JSE464", path=f"{repo_id}/{name}")
    return data


def _headers(api: Any, repo_id: str, revision: str | None) -> tuple[TensorInfo, ...] | None:
    """Return all tensors of a repository; None when it holds no safetensors."""
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        found = _guard(repo_id, revision, lambda: api.get_safetensors_metadata(repo_id, revision=revision))
    except NotASafetensorsRepoError:
        return None
    except SafetensorsParsingError as error:
        raise ModelError("JSE453", path=repo_id) from error
    tensors = tuple(
        TensorInfo(name, str(info.dtype), tuple(info.shape), int(info.data_offsets[1]) - int(info.data_offsets[0]))
        for file in found.files_metadata.values()
        for name, info in file.tensors.items()
    )
    check_tensors(tensors, where=repo_id)
    return tensors


def _guard(repo_id: str, revision: str | None, call: Any, *, missing_file_ok: bool = False) -> Any:
    """Run one hub call and turn its failures into ours; errors about the files themselves pass through."""
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        return call()
    except (NotASafetensorsRepoError, SafetensorsParsingError, ModelError):
        raise
    except Exception as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        if names & _GATED:
            raise ModelError("JSE456", repo=repo_id) from error
        if names & _OFFLINE:
            # The library says "not in the cache" both offline and when the connection failed.
            raise ModelError("JSE455", repo=repo_id, reason=type(error).__name__) from error
        if "EntryNotFoundError" in names and missing_file_ok:
            return None
        if names & _MISSING:
            raise ModelError("JSE454", repo=repo_id, revision=revision or "main") from error
        if isinstance(error, (OSError, ValueError)) or names & {"HTTPError", "RequestException", "TransportError"}:
            # The text may hold request headers: only the kind is shown.
            raise ModelError("JSE455", repo=repo_id, reason=type(error).__name__) from error
        raise
