# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec doctor`: the pre-flight of a board, and of a recipe on it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import board, catalog_of, print_json

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.device import Device
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.host import Host
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.planner import Plan


def doctor(
    recipe: Path | None = None,
    /,
    *,
    network: Annotated[bool, Parameter(name="--network", negative="")] = False,
    ask_image: bool = False,
    device: str | None = None,
    l4t: str | None = None,
    command: int | None = None,
    target: str | None = None,
    vllm_version: str | None = None,
    catalog: list[Path] | None = None,
    recorded: Path | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Check board, container engine, memory, port, caches and disk before serving; changes nothing.

    Ends with 40 for warnings and 41 where something blocks.

    Parameters
    ----------
    recipe:
        File with the serve command that is to run; without it the board alone is checked.
    network:
        See whether Hugging Face, the mirror in HF_ENDPOINT, ModelScope, Docker Hub, ghcr.io and nvcr.io answer.
    ask_image:
        Start a container of the image, without network, to ask for its vLLM where its labels do not tell.
    device:
        Take this module for the board; the rest is read from this machine.
    l4t:
        L4T release of that module.
    command:
        Which serve command of the text, counted from 0, where it holds several.
    target:
        Model that is served (ORG/MODEL), where the recipe does not tell.
    vllm_version:
        vLLM release, where the recipe does not tell.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    recorded:
        Folder made by `detect --record`, read instead of this machine.
    json:
        Print as JSON.
    """
    from jetson_specdec.apply.checkup import doctor as examine

    host, found = board(device=device, l4t=l4t, audit=None, recorded=recorded)
    plan, release, entries = None, _named(vllm_version), catalog_of(catalog)
    if recipe is not None:
        plan = _plan(recipe, host, found, command, target, vllm_version, entries, ask=ask_image)
    online = None
    if network:
        from jetson_specdec.apply.online import HttpOnline

        online = HttpOnline()
    checkup = examine(host, found, plan=plan, release=release, online=online, catalog=entries)
    if json:
        print_json(checkup.to_json())
    else:
        from jetson_specdec.render.doctor import print_checkup

        print_checkup(checkup)
    return checkup.exit_code


def _named(version: str | None) -> EngineRelease | None:
    if version is None:
        return None
    from jetson_specdec.engine.release import release_from_version

    return release_from_version(version, source="named")


def _plan(
    recipe: Path,
    host: Host,
    found: Device,
    command: int | None,
    target: str | None,
    version: str | None,
    catalog: Catalog,
    *,
    ask: bool,
) -> Plan:
    from jetson_specdec.apply.workflow import release_in_image
    from jetson_specdec.planner import Planner
    from jetson_specdec.planning.gather import choose_command
    from jetson_specdec.recipe.load import load_recipe

    parsed = load_recipe(recipe)
    if version is None:
        version, _ = release_in_image(host, choose_command(parsed, command), ask=ask)
    planner = Planner(catalog=catalog, host=host)
    return planner.plan(parsed, device=found, command=command, target=target, vllm_version=version)
