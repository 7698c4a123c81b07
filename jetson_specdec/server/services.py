# SPDX-License-Identifier: Apache-2.0
"""Starting a compose service or a systemd unit: by its own manager, with its restart policy switched off meanwhile.

Nothing of the owner's files is changed. A planned compose text is started from a file of its own with the owner's
project directory, so that volumes and networks are the same; a planned unit is a drop-in below `/run`, which a reboot
removes.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jetson_specdec.errors import LaunchError
from jetson_specdec.findings import Finding
from jetson_specdec.server.container_options import LABEL
from jetson_specdec.server.launch import Launch
from jetson_specdec.server.shell_launch import ours

if TYPE_CHECKING:
    from jetson_specdec.recipe.core import Recipe, ServeCommand

__all__ = ["compose_launch", "service_at", "unit_launch", "unit_name"]


# --- docker compose ---------------------------------------------------------------------------------------------------


def compose_launch(
    recipe: Recipe,
    command: ServeCommand,
    *,
    run_id: str,
    work_dir: str,
    original: str | None,
    grace_s: float,
    environ: Mapping[str, str],
) -> Launch:
    """Return how to start the service that holds the command, and only that one.

    Raises:
        LaunchError: the text has no path (JSE912), or the service cannot be found in it (JSE913).
    """
    if recipe.path is None:
        raise LaunchError("JSE912", form="compose file")
    path = Path(recipe.path).absolute()
    service, host_network = service_at(recipe.text, command.start, command.service)
    files: dict[str, str] = {}
    source = str(path)
    if original is not None and original != recipe.text:
        source = str(Path(work_dir) / "compose.yaml")
        files[source] = recipe.text
    override = str(Path(work_dir) / "compose.override.yaml")
    own = f"jetson-specdec-{run_id}"
    # JSON is YAML; a restart policy would hide a start that fails.
    changed = {"restart": "no", "labels": {LABEL: own}}
    files[override] = json.dumps({"services": {service: changed}}) + "\n"
    grace = str(int(grace_s))
    compose = ("docker", "compose", "--project-directory", str(path.parent), "-f", source, "-f", override)
    return Launch(
        kind="compose",
        argv=(*compose, "up", "--no-deps", "--no-color", "--no-log-prefix", "--exit-code-from", service, service),
        # By our own label: the owner's own container of this service is never meant, whoever has started it again.
        stop=(ours(("docker",), own, "stop", "-t", grace),),
        kill=(ours(("docker",), own, "kill"),),
        after=(ours(("docker",), own, "rm", "-f"),),
        files=files,
        cwd=str(path.parent),
        service=service,
        project_file=str(path),
        host_network=host_network,
        findings=(Finding.of("JSD905", service=service),),
    )


def service_at(text: str, offset: int, name: str | None = None) -> tuple[str, bool]:
    """Return the service whose lines hold a place in the text, and whether it uses the network of the machine.

    A `name` that is known counts: what a service is made of may stand in another one, or in a file that is included.

    Raises:
        LaunchError: the file is no YAML (JSE913), holds no services (JSE916), or none on that line (JSE917).
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        data: Any = YAML(typ="rt").load(text)
    except YAMLError as error:
        raise LaunchError("JSE913", reason=str(error).splitlines()[0]) from None
    services: Any = data.get("services") if isinstance(data, dict) else None
    if name is not None and isinstance(data, dict) and (name in (services or {}) or "include" in data):
        body = (services or {}).get(name)
        return name, isinstance(body, dict) and body.get("network_mode") == "host"
    if not hasattr(services, "lc") or not services:
        raise LaunchError("JSE916")
    line = text.count("\n", 0, offset)
    name = None
    for service in services:
        if services.lc.key(service)[0] <= line:
            name = service
    if name is None:
        raise LaunchError("JSE917", line=line + 1)
    body = services[name]
    return str(name), isinstance(body, dict) and body.get("network_mode") == "host"


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit_name(path: str) -> str:
    """Return the unit's name from where its text lies (`/etc/systemd/system/vllm.service`, or a drop-in of it)."""
    place = Path(path)
    if place.suffix == ".conf" and place.parent.name.endswith(".service.d"):
        return place.parent.name.removesuffix(".d")
    if place.suffix == ".container":  # Podman's generator makes a service of it (podman-systemd.unit(5))
        return f"{place.stem}.service"
    return place.name


def unit_launch(
    recipe: Recipe, command: ServeCommand, *, run_id: str, original: str | None, environ: Mapping[str, str]
) -> Launch:
    """Return how to start a unit through systemd.

    Raises:
        LaunchError: the text has no path ending in `.service` (JSE912), no `ExecStart` at the command (JSE914), or is a
            planned `.container` file, of which a drop-in cannot change the command (JSE915).
    """
    name = unit_name(recipe.path or "")
    if not name.endswith(".service"):
        raise LaunchError("JSE912", form="unit")
    path = recipe.path or ""
    user = "/systemd/user/" in path or "/.config/containers/systemd/" in path
    lines = ["[Service]", "Restart=no"]
    if original is not None and original != recipe.text:
        if path.endswith(".container"):
            raise LaunchError("JSE915", path=path)
        lines += ["ExecStart=", f"ExecStart={_exec_start(recipe.text, command)}"]
    runtime = environ.get("XDG_RUNTIME_DIR", "/run/user/0") + "/systemd/user" if user else "/run/systemd/system"
    runtime = environ.get("JETSON_SPECDEC_SYSTEMD_DIR", runtime)
    drop_in = f"{runtime}/{name}.d/90-jetson-specdec.conf"
    control = ("systemctl", "--user") if user else ("systemctl",)
    # By the id of this start: its first lines are printed before anybody can follow them, and older starts stay out.
    shown = " ".join([*control, "show", "-p", "InvocationID", "--value", name])
    journal = ("sh", "-c", f'exec journalctl -f -o cat -n all "_SYSTEMD_INVOCATION_ID=$({shown})"')
    return Launch(
        kind="unit",
        argv=journal,
        before=((*control, "daemon-reload"), (*control, "start", name)),
        # Without our drop-in it is not ours that runs: its owner may have started it again.
        stop=(_while_ours(drop_in, *control, "stop", name),),
        kill=(
            _while_ours(drop_in, *control, "kill", "-s", "SIGKILL", name),
            _while_ours(drop_in, *control, "stop", name),
        ),
        after=(("rm", "-f", drop_in), (*control, "daemon-reload"), (*control, "reset-failed", name)),
        files={drop_in: "\n".join(lines) + "\n"},
        unit=name,
        user_unit=user,
        host_network=not command.ports,
        findings=(Finding.of("JSD906", unit=name, path=drop_in),),
    )


def _while_ours(drop_in: str, *argv: str) -> tuple[str, ...]:
    return ("sh", "-c", f"[ ! -e {shlex.quote(drop_in)} ] || {shlex.join(argv)}")


def _exec_start(text: str, command: ServeCommand) -> str:
    """Return the value of the `ExecStart=` that holds the command; a trailing backslash continues it."""
    for match in re.finditer(r"^[ \t]*ExecStart[ \t]*=((?:[^\n]*\\\r?\n)*[^\n]*)", text, re.MULTILINE):
        if match.start() <= command.start <= match.end() and match[1].strip():
            return match[1].strip()
    raise LaunchError("JSE914", line=command.line)
