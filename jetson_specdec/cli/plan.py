# SPDX-License-Identifier: Apache-2.0
"""`jetson-specdec plan`: from the command you serve with today to the one for tomorrow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jetson_specdec.cli.common import board, catalog_of, print_json, read_stdin, tell
from jetson_specdec.errors import CommandChoiceError, OptionError

if TYPE_CHECKING:
    from cyclopts import Parameter

    from jetson_specdec.planner import Plan
    from jetson_specdec.recipe.core import Recipe

EXIT_CODES = {"none": 20, "refuse": 21, "already": 22}


def plan(
    recipe: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    device: str | None = None,
    l4t: str | None = None,
    command: int | None = None,
    target: str | None = None,
    head: str | None = None,
    draft: str | None = None,
    concurrency: int = 1,
    vllm_version: str | None = None,
    baseline: Path | None = None,
    mem_tune: Path | None = None,
    audit: Path | None = None,
    policy: Path | None = None,
    catalog: list[Path] | None = None,
    recorded: Path | None = None,
    write: Path | None = None,
    force: bool = False,
    exit_code: bool = False,
    json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Decide whether and how to add speculative decoding to a recipe.

    Parameters
    ----------
    recipe:
        File with the serve command (shell, compose, systemd unit, manifest, vLLM --config YAML), or - for stdin.
    device:
        Plan for this module instead of this machine, such as thor-t5000 or agx-orin-64gb.
    l4t:
        L4T release of that module, such as 38.4.0.
    command:
        Which serve command of the text, counted from 0, where it holds several.
    target:
        Model that is served (ORG/MODEL), where the recipe does not tell.
    head:
        EAGLE-3 head to use instead of the one that would be chosen.
    draft:
        Draft model to use.
    concurrency:
        How many requests at once you care about.
    vllm_version:
        vLLM release, where the recipe does not tell.
    baseline:
        Benchmark of the recipe as it is (jetson-llm-benchmark, vllm bench serve, guidellm, aiperf).
    mem_tune:
        JSON of jetson-inference-mem-tune.
    audit:
        JSON of jetson-memory-audit or jetson-diagnostic, as the board.
    policy:
        TOML file with other thresholds.
    catalog:
        Your own catalogue entries (TOML or JSON); may be given several times.
    recorded:
        Folder made by `detect --record`, read instead of this machine.
    write:
        Write the planned recipe to this file (secrets stay in it).
    force:
        Let --write replace an existing file.
    exit_code:
        End with 20 for none, 21 for refuse, 22 for already.
    json:
        Print the plan as JSON.
    """
    from jetson_specdec.extensions import load_policy
    from jetson_specdec.planner import Planner

    host, found = board(device=device, l4t=l4t, audit=audit, recorded=recorded)
    planner = Planner(policy=load_policy(policy), catalog=catalog_of(catalog), host=host)
    parsed = _read(recipe)
    try:
        made = planner.plan(
            parsed,
            device=found,
            command=command,
            target=target,
            head=head,
            draft=draft,
            concurrency=concurrency,
            vllm_version=vllm_version,
            baseline=baseline,
            mem_tune=mem_tune,
        )
    except CommandChoiceError as error:
        if json:
            print_json(_choices(parsed, str(error)))
        raise
    if write is not None:
        _write(made, write, force=force)
    if json:
        print_json(made.to_json())
    else:
        from jetson_specdec.render.plan import print_plan

        print_plan(made)
    refused_write = write is not None and made.outcome == "refuse"
    return EXIT_CODES.get(made.outcome, 0) if exit_code or refused_write else 0


def _read(recipe: str) -> Recipe:
    from jetson_specdec.recipe.load import load_recipe

    return load_recipe("-", text=read_stdin()) if recipe == "-" else load_recipe(Path(recipe))


def _choices(recipe: Recipe, message: str) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "outcome": None,
        "error": message,
        "commands": [
            {
                "index": each.index,
                "line": each.line,
                "engine": each.engine,
                "serve_form": each.serve_form,
                "image": each.image or each.image_raw,
                "target": None,
            }
            for each in recipe.commands
        ],
    }


def _write(made: Plan, out: Path, *, force: bool) -> None:
    """Write what the plan would serve with; several changed files go into a directory."""
    from jetson_specdec.files import write_atomic

    if made.outcome == "refuse":
        tell("label-refused-write", path=str(out))
        return
    changes = made.changes or (made.recipe,)
    if len(changes) == 1:
        write_atomic(out, changes[0].after, overwrite=force)
        tell("label-wrote", path=str(out))
        return
    if out.exists() and not out.is_dir():
        raise OptionError("JSE522", path=str(out))
    names = [Path(change.path or "recipe.sh").name for change in changes]
    if not force and any((out / name).exists() for name in names):
        raise OptionError("JSE523", path=str(out))
    out.mkdir(parents=True, exist_ok=True)
    for name, change in zip(names, changes, strict=True):
        write_atomic(out / name, change.after, overwrite=force)
        tell("label-wrote", path=str(out / name))
