# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec diagnose`: why did this start fail."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from jetson_specdec.cli.common import print_json, tell
from jetson_specdec.errors import OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.recipe.core import Recipe


def diagnose(
    log: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *more: Annotated[str, Parameter(allow_leading_hyphen=True)],
    dmesg: Path | None = None,
    meminfo: Path | None = None,
    recipe: Path | None = None,
    nv_tegra_release: Path | None = None,
    target_config: Path | None = None,
    draft_config: Path | None = None,
    exit_code: int | None = None,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Say why a launch failed, and what to do first.

    Parameters
    ----------
    log:
        Log of the launch (docker logs, journalctl, a file), from this machine or another; - for stdin.
    more:
        Further logs, in any order: other processes of the same start, or other starts.
    dmesg:
        The kernel log of that time.
    meminfo:
        /proc/meminfo of that time.
    recipe:
        The recipe that was started.
    nv_tegra_release:
        The board's /etc/nv_tegra_release.
    target_config:
        config.json of the target.
    draft_config:
        config.json of the draft or head.
    exit_code:
        How the process or container ended, such as 137.
    json:
        Print the diagnosis as JSON.
    """
    from jetson_specdec.logs.launch import diagnose as judge

    names = [log, *more]
    for name in names:
        # A lone dash is standard input, so the parser lets words with dashes through.
        if name.startswith("-") and name != "-":
            raise OptionError("JSE704", option=name)
    beside = {
        "dmesg": dmesg,
        "meminfo": meminfo,
        "nv_tegra_release": nv_tegra_release,
        "target_config": target_config,
        "draft_config": draft_config,
    }
    if [*names, *(str(path) for path in (*beside.values(), recipe))].count("-") > 1:
        raise OptionError("JSE703")
    found = judge(
        [_read(name) for name in names],
        **{name: None if path is None else _read(str(path)) for name, path in beside.items()},
        recipe=None if recipe is None else _recipe(recipe),
        exit_code=exit_code,
        names=names,
    )
    if json:
        print_json(found.to_json())
    else:
        from jetson_specdec.render.diagnosis import print_diagnosis

        print_diagnosis(found)
    return 0


def _read(name: str) -> str:
    from jetson_specdec.logs.reading import HEAD_BYTES, TAIL_BYTES, read_log, read_stream

    if name == "-":
        import sys

        text, shortened = read_stream(sys.stdin.buffer.read)
    else:
        text, shortened = read_log(Path(name))
    if shortened:
        tell("log-shortened", path=name, head=HEAD_BYTES, tail=TAIL_BYTES)
    return text


def _recipe(path: Path) -> Recipe:
    from jetson_specdec.cli.common import read_stdin
    from jetson_specdec.recipe.load import load_recipe

    return load_recipe("-", text=read_stdin()) if str(path) == "-" else load_recipe(path)
