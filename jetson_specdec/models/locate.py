# SPDX-License-Identifier: Apache-2.0
"""Where on the host a path of a recipe leads, and what lies there."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import field

from jetson_specdec.host import Host
from jetson_specdec.values import frozen

__all__ = ["Found", "Locator", "MountLike"]

_CONFIG_LIMIT: Final = 4 * 2**20


class MountLike(Protocol):
    """A host path that a container sees; `jetson_specdec.recipe.core.Mount` is one."""

    @property
    def host(self) -> str | None:
        """The path on the host, None for a named volume."""

    @property
    def container(self) -> str:
        """The path in the container."""


@frozen(kw_only=True)
class Found:
    """What a look-up came to.

    Attributes:
        path: the host path that the recipe's path leads to, whether or not something is there; None where that cannot
            be told.
        present: whether something is there.
        config: the `config.json` in it.
        gguf: whether it is, or holds nothing but, GGUF files.
        broken: whether there is a `config.json` that cannot be read as a JSON object.
        looked_in: `path: state` for each place, in order; state is `found`, `absent`, `unreadable`, `no-mount` or
            `unresolved`.
    """

    path: str | None = None
    present: bool = False
    config: Mapping[str, Any] | None = None
    gguf: bool = False
    broken: bool = False
    looked_in: tuple[str, ...] = ()

    @property
    def folder(self) -> str | None:
        """The host path of the directory that holds the config, or None."""
        return self.path if self.config is not None else None


@frozen(kw_only=True)
class Locator:
    """How paths of one recipe lead to the host.

    Attributes:
        host: the machine, or None where there is none to look at.
        mounts: the container's mounts.
        in_container: whether the engine runs in a container.
        workdir: the engine's working directory (a container path where it runs in one).
        recipe_dir: the folder of the recipe's file on the host.
        env: the engine's environment as the recipe sets it.
    """

    host: Host | None = None
    mounts: Sequence[MountLike] = ()
    in_container: bool = False
    workdir: str | None = None
    recipe_dir: str | None = None
    env: Mapping[str, str | None] = field(factory=dict)

    def find(self, path: str) -> Found:
        """Look a path of the recipe up: where its mounts lead, else by its last name beside the recipe."""
        looked: list[str] = []
        first: str | None = None
        for place, state in self._places(path):
            if place is None or "\0" in place:
                looked.append(f"{path}: {state}")
                continue
            first = first or place
            found = self._look(place)
            looked.append(f"{place}: {found}")
            if found == "found":
                config, gguf, broken = self._open(place)
                return Found(
                    path=place, present=True, config=config, gguf=gguf, broken=broken, looked_in=tuple(looked)
                )  # fmt: skip
        return Found(path=first, looked_in=tuple(looked))

    def find_in_cache(self, id: str) -> Found:
        """Look a repository up in the Hugging Face cache that the engine would use."""
        from jetson_specdec.models.local import cached_snapshot

        looked: list[str] = []
        for host, place in self._caches():
            snapshot = cached_snapshot(host, id, cache_dir=place)
            looked.append(f"{place}: {'absent' if snapshot is None else 'found'}")
            if snapshot is not None:
                config, _, broken = self._open(snapshot)
                return Found(path=snapshot, present=True, config=config, broken=broken, looked_in=tuple(looked))
        return Found(looked_in=tuple(looked))

    def is_cached(self, id: str) -> bool | None:
        """Whether that cache holds a snapshot of a repository; None where no such cache can be seen."""
        from jetson_specdec.models.local import cached_snapshot

        seen = [(host, place) for host, place in self._caches() if host.kind(place) == "directory"]
        if not seen:
            return None
        return any(cached_snapshot(host, id, cache_dir=place) is not None for host, place in seen)

    def _caches(self) -> Iterator[tuple[Host, str]]:
        """The cache folders on the host, whether or not they are there."""
        if self.host is None:
            return
        for root in self._cache_roots():
            for place, _ in self._places(root, beside_recipe=False):
                if place is not None:
                    yield self.host, place

    def _places(self, path: str, *, beside_recipe: bool = True) -> Iterator[tuple[str | None, str]]:
        """Host paths to try, or None with the reason why there is none."""
        if self.in_container:
            yield self._through_mounts(path)
        else:
            expanded = self._expand(path)
            if expanded is None:
                yield None, "unresolved"
            elif expanded.startswith("/"):
                yield posixpath.normpath(expanded), ""
            else:
                for base in dict.fromkeys((self.workdir, self.recipe_dir)):
                    if base is not None and base.startswith("/"):
                        yield posixpath.normpath(posixpath.join(base, expanded)), ""
        name = posixpath.basename(path.rstrip("/"))
        if beside_recipe and self.recipe_dir is not None and name not in ("", ".", "..", "~") and "$" not in name:
            yield posixpath.normpath(posixpath.join(self.recipe_dir, name)), ""

    def _through_mounts(self, path: str) -> tuple[str | None, str]:
        inside = posixpath.normpath(posixpath.join(self.workdir or "/", path))
        best: MountLike | None = None
        for mount in self.mounts:
            point = posixpath.normpath(mount.container)
            covers = inside == point or inside.startswith(point.rstrip("/") + "/")
            if covers and (best is None or len(point) > len(posixpath.normpath(best.container))):
                best = mount
        if best is None:
            return None, "no-mount"
        outside = self._expand(best.host) if best.host else None
        if outside is None:
            return None, "unresolved"
        if not outside.startswith("/"):
            if self.recipe_dir is None:
                return None, "unresolved"
            outside = posixpath.join(self.recipe_dir, outside)
        rest = posixpath.relpath(inside, posixpath.normpath(best.container))
        return posixpath.normpath(posixpath.join(outside, rest)), ""

    def _expand(self, path: str) -> str | None:
        """Put the host's home folder in; None where a variable or `~` stays."""
        home = None if self.host is None else self.host.environ.get("HOME")
        for name in ("${HOME}", "$HOME"):
            if path == name or path.startswith(name + "/"):
                path = "~" + path[len(name) :]
        if path == "~" or path.startswith("~/"):
            if not home:
                return None
            path = home + path[1:]
        return None if "$" in path or path.startswith("~") else path

    def _cache_roots(self) -> tuple[str, ...]:
        """Cache folders as the engine names them, the recipe's environment before the host's."""
        from jetson_specdec.models.local import cache_folder

        roots = [self.env.get("HF_HUB_CACHE"), self.env.get("HUGGINGFACE_HUB_CACHE")]
        if home := self.env.get("HF_HOME"):
            roots.append(f"{home}/hub")
        if self.in_container:
            roots.append("/root/.cache/huggingface/hub")
        elif self.host is not None:
            roots.append(cache_folder(self.host))
        return tuple(dict.fromkeys(root for root in roots if root))

    def _look(self, place: str) -> str:
        if self.host is None:
            return "unresolved"
        kind = self.host.kind(place)
        return "found" if kind in ("file", "directory") else kind

    def _open(self, place: str) -> tuple[Mapping[str, Any] | None, bool, bool]:
        """The `config.json` of a folder, whether there are only GGUF files, whether the config cannot be read."""
        assert self.host is not None
        if self.host.kind(place) == "file":
            return None, place.lower().endswith(".gguf"), False
        text = self.host.read_text(f"{place}/config.json", limit=_CONFIG_LIMIT)
        if text is None:
            return None, any(name.lower().endswith(".gguf") for name in self.host.list_dir(place)), False
        try:
            config = json.loads(text)
        except (ValueError, RecursionError):
            return None, False, True
        return (config, False, False) if isinstance(config, dict) else (None, False, True)
