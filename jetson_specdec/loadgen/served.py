# SPDX-License-Identifier: Apache-2.0
"""What a recipe tells about the server that is measured, which the server itself does not show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field

from jetson_specdec.measurements import Conditions
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.host import Host
    from jetson_specdec.recipe.core import Recipe

__all__ = ["Served", "served_by"]


@frozen(kw_only=True)
class Served:
    """A server as its recipe describes it.

    Attributes:
        conditions: its speculative configuration and capacity. Whether it speculates is left to the server's counters:
            a configuration that did not reach the engine must show.
        container: its image, or None.
        benchmark_mode: `container` or `native`.
        serve_args: every argument after `serve`; may hold secrets.
    """

    conditions: Conditions
    container: str | None = None
    benchmark_mode: str = "native"
    serve_args: tuple[str, ...] = field(default=(), repr=False)


def served_by(recipe: Recipe, *, command: int | None = None, host: Host | None = None) -> Served:
    """Read a recipe's serve command.

    Args:
        recipe: the recipe the server was started with.
        command: which serve command, from 0, where the text holds several.
        host: where a `--config` file is looked for; None: this machine.

    Raises:
        CommandChoiceError: there are several and none was chosen, or the number is out of range.
    """
    from jetson_specdec.host import LocalHost
    from jetson_specdec.planning.gather import choose_command, release_of
    from jetson_specdec.recipe.config_file import find_config
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.speculation import read_speculation

    chosen = choose_command(recipe, command)
    flags = ServeFlags.read(chosen, release_of(chosen, None), find_config(recipe, chosen, host=host or LocalHost()))
    speculation = read_speculation(flags)
    found: dict[str, Any] = {"max_num_seqs": flags.max_num_seqs, "speculative_config": speculation.config}
    known = {name: value for name, value in found.items() if value is not None}
    return Served(
        conditions=Conditions(**known, sources=dict.fromkeys(known, "recipe")),
        container=chosen.image,
        benchmark_mode="native" if chosen.launcher == "native" else "container",
        serve_args=tuple(flags.serve_args()),
    )
