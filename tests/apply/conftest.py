# SPDX-License-Identifier: Apache-2.0
"""Boards made of files, commands and an environment, and a planner for recipes on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from jetson_specdec import Planner, RecordedHost
from jetson_specdec.apply.online import HubFacts, Reach

THOR_MEMINFO = {
    "MemTotal": 128_790_000,
    "MemFree": 100_000_000,
    "MemAvailable": 120_000_000,
    "SwapTotal": 0,
    "SwapFree": 0,
}


@pytest.fixture
def board(tmp_path: Path) -> Callable[..., RecordedHost]:
    """Make a recorded board: `board(files={path: text}, commands={argv: stdout or (stdout, code)}, env={})`."""
    made = []

    def make(
        files: Mapping[str, str] | None = None,
        commands: Mapping[Sequence[str], Any] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> RecordedHost:
        folder = tmp_path / f"board-{len(made)}"
        made.append(folder)
        (folder / "root").mkdir(parents=True)
        for path, text in (files or {}).items():
            place = folder / "root" / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        rows = []
        for argv, said in (commands or {}).items():
            stdout, stderr, code = said if isinstance(said, tuple) else (said, "", 0)
            rows.append({"argv": list(argv), "stdout": stdout, "stderr": stderr, "exit_code": code})
        (folder / "commands.json").write_text(json.dumps(rows))
        (folder / "env.json").write_text(json.dumps(dict(env or {})))
        return RecordedHost(folder)

    return make


@pytest.fixture
def plan() -> Callable[..., Any]:
    """Plan a text or a file for a Thor, on a recorded host where one is given."""

    def make(recipe: Any, host: Any = None, **options: Any) -> Any:
        board = {"device": "thor-t5000", "l4t": "38.4.0"} if "device" not in options else {}
        text = recipe if isinstance(recipe, Path) else recipe + "\n"
        return Planner(host=host).plan(text, **{**board, **options})

    return make


@pytest.fixture
def meminfo() -> Callable[..., str]:
    """Return the text of `/proc/meminfo`, sizes in KiB."""

    def make(**sizes: int) -> str:
        return "".join(f"{name}: {value:>15} kB\n" for name, value in {**THOR_MEMINFO, **sizes}.items())

    return make


class FakeOnline:
    """Answers from what it was given, and remembers what it was asked."""

    def __init__(
        self,
        hub: Mapping[str, HubFacts] | None = None,
        images: Mapping[str, str] | None = None,
        down: Sequence[str] = (),
    ) -> None:
        self.hub, self.images, self.down = dict(hub or {}), dict(images or {}), tuple(down)
        self.asked: list[tuple[str, ...]] = []

    def hub_facts(self, repo: str, revision: str | None, *, endpoint: str) -> HubFacts | None:
        self.asked.append(("hub", endpoint, repo, revision or "main"))
        return self.hub.get(repo)

    def image_digest(self, image: str) -> str | None:
        self.asked.append(("image", image))
        return self.images.get(image)

    def reach(self, url: str) -> Reach:
        self.asked.append(("reach", url))
        if any(part in url for part in self.down):
            return Reach(reason="timeout")
        return Reach(status=401 if "/v2/" in url else 200)


@pytest.fixture
def fake_online() -> type[FakeOnline]:
    """The class of the fake network."""
    return FakeOnline
