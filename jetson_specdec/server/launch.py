# SPDX-License-Identifier: Apache-2.0
"""How a recipe is started and stopped: worked out beforehand as a value, so that it can be shown, tested and saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from attrs import field

from jetson_specdec.errors import LaunchError
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags

__all__ = ["BACK", "CONTAINER_PROGRAMS", "KEEPER", "KEEP_ENVIRON", "MARKER", "Launch", "launch_of"]

MARKER = "JETSON_SPECDEC_RUN"
"""Environment variable that every process of a start carries, so that it can be found again."""
KEEP_ENVIRON = "SPT_NOENV"
"""Environment variable of setproctitle (1.1.3 and newer) that leaves `/proc/PID/environ` alone.

vLLM gives its engine and worker processes titles, which would overwrite the mark: when the API server is killed
together with the keeper they live on, hold all the memory, and could not be told from somebody else's."""
KEEPER = "JETSON_SPECDEC_KEEPER"
"""Environment variable of the keeper of a start."""
BACK = "JETSON_SPECDEC_BACK"
"""Environment variable of a server that was brought back, so that it is not brought back twice."""

CONTAINER_PROGRAMS = ("docker", "podman", "nerdctl", "jetson-containers")
LaunchKind = Literal["process", "container", "compose", "unit"]
Argv = tuple[str, ...]


@frozen(kw_only=True)
class Launch:
    """A start, as data.

    Attributes:
        kind: `process` (native), `container`, `compose` or `unit`.
        argv: what is run and kept: the server itself, or the command that shows its output.
        fallback_argv: what to run instead where the text of `argv` is no complete shell text by itself.
        before: commands to run first (`systemctl start …`); a failing one fails the start.
        stop, kill: commands that end it politely and firmly, before signals are sent.
        after: commands that tidy up once it has ended.
        files: files to write before the start, and to remove afterwards.
        cwd: directory to start in, or None for the current one.
        environ: variables to set.
        container: name of the container; `program` its runtime's command.
        service, project_file: of a compose service.
        unit: name of the systemd unit; `user_unit` whether it is one of the user's manager.
        host_network: whether published ports mean nothing.
        findings: what is done differently from the text, and why.
    """

    kind: LaunchKind
    argv: Argv = field(repr=False)
    fallback_argv: Argv = field(default=(), repr=False)
    before: tuple[Argv, ...] = ()
    stop: tuple[Argv, ...] = ()
    kill: tuple[Argv, ...] = ()
    after: tuple[Argv, ...] = ()
    files: Mapping[str, str] = field(factory=dict, repr=False)
    cwd: str | None = None
    environ: Mapping[str, str] = field(factory=dict, repr=False)
    program: str = "docker"
    container: str | None = None
    service: str | None = None
    project_file: str | None = None
    unit: str | None = None
    user_unit: bool = False
    host_network: bool = False
    findings: tuple[Finding, ...] = ()


def launch_of(
    recipe: Recipe,
    command: ServeCommand,
    flags: ServeFlags,
    *,
    run_id: str,
    environ: Mapping[str, str],
    work_dir: str,
    original: str | None = None,
    replaced_files: Mapping[str, str] | None = None,
    grace_s: float = 20.0,
    allow_sudo: bool = False,
) -> Launch:
    """Return how to start one command of a recipe.

    Args:
        recipe: what to start.
        command: which of its commands.
        flags: that command's flags.
        run_id: a short name of this start, used for what needs a name.
        environ: environment the recipe is started in.
        work_dir: absolute directory for files that a start needs.
        original: the recipe's text as its owner has it, where `recipe` is a planned change of it.
        replaced_files: `--config` files whose planned text lies in another file: path → that file.
        grace_s: seconds a container gets to end politely.
        allow_sudo: whether `sudo` in the text may run.

    Raises:
        LaunchError: this cannot be started from here (JSE900–JSE915).
    """
    if command.engine != "vllm":
        raise LaunchError("JSE900", engine=command.engine, line=command.line)
    if recipe.form == "config_file":
        return _config_file(recipe, work_dir, original, environ)
    if recipe.form == "compose":
        from jetson_specdec.server.services import compose_launch

        return compose_launch(
            recipe, command, run_id=run_id, work_dir=work_dir, original=original, grace_s=grace_s, environ=environ
        )
    if recipe.form == "unit":
        from jetson_specdec.server.services import unit_launch

        return unit_launch(recipe, command, run_id=run_id, original=original, environ=environ)
    if recipe.form != "shell":
        raise LaunchError("JSE901", form=recipe.form)
    from jetson_specdec.server.shell_launch import shell_launch

    return shell_launch(
        recipe,
        command,
        flags,
        run_id=run_id,
        environ=environ,
        replaced_files=replaced_files or {},
        grace_s=grace_s,
        allow_sudo=allow_sudo,
    )


def _config_file(recipe: Recipe, work_dir: str, original: str | None, environ: Mapping[str, str]) -> Launch:
    """A `--config` YAML by itself is started as `vllm serve --config FILE`."""
    from pathlib import Path

    folder = str(Path(recipe.path).absolute().parent) if recipe.path is not None else None
    path = str(Path(recipe.path).absolute()) if recipe.path is not None else None
    files: dict[str, str] = {}
    if path is None or (original is not None and original != recipe.text):
        path = str(Path(work_dir) / "config.yaml")
        files = {path: recipe.text}
    return Launch(kind="process", argv=("vllm", "serve", "--config", path), files=files, cwd=folder)
