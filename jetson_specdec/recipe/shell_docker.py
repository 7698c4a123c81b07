# SPDX-License-Identifier: Apache-2.0
"""What runs in a container: where the image stands in `docker run …`, and what the options say about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from jetson_specdec.recipe.core import Mount
from jetson_specdec.recipe.shell_launch import Launch, Outcome, basename, peel
from jetson_specdec.recipe.shell_options import Option, launchers, made_up, split_options
from jetson_specdec.recipe.shell_script import Field

__all__ = ["container", "engine_of_image", "mount_of", "own_entrypoint"]


def container(
    fields: Sequence[Field], at: int, name: str, launch: Launch, text: str, containers: Mapping[str, Launch]
) -> Outcome:
    """Follow `docker run|create|exec`, `docker compose run|exec` and `jetson-containers run` (Docker CLI reference)."""
    table = launchers()["containers"]
    launcher = table["programs"]["values"].get(name, "compose" if name == "docker-compose" else "jetson-containers")
    if name == "run.sh":  # the launcher of jetson-containers before it got a name
        return _run(fields, at + 1, attrs.evolve(launch.elsewhere(), launcher=launcher), text, containers, outer=launch)
    position, verb = at, name
    if name != "docker-compose":
        _, position = split_options(fields, at + 1, table["global_with_value"]["values"], text)
        verb = fields[position].shown(text) if position < len(fields) else ""
        if verb == "container" and position + 1 < len(fields):
            position += 1
            verb = fields[position].shown(text)
    inside = attrs.evolve(launch.elsewhere(), launcher=launcher, env={}, workdir=None)
    if verb in ("run", "create"):
        return _run(fields, position + 1, inside, text, containers, outer=launch)
    if verb == "exec":
        options, position = split_options(fields, position + 1, table["exec_with_value"]["values"], text)
        known = containers.get(fields[position].shown(text)) if position < len(fields) else None
        return _inside(fields[position + 1 :], _with_options(known or inside, options, launch), text, containers)
    if verb in ("compose", "docker-compose"):
        _, position = split_options(fields, position + 1, table["compose_with_value"]["values"], text)
        verb = fields[position].shown(text) if position < len(fields) else ""
        if verb in ("run", "exec"):
            values = table["compose_run_with_value"]["values"]
            options, position = split_options(fields, position + 1, values, text)
            service = _with_options(attrs.evolve(inside, launcher="compose"), options, launch)
            found = _inside(fields[position + 1 :], service, text, containers)
            if found.kind != "none":
                return found
        return Outcome(kind="none", launch=launch, what=f"docker compose {verb}".rstrip())
    return Outcome(kind="none", launch=launch, what=f"{name} {verb}".rstrip())


def _inside(fields: Sequence[Field], launch: Launch, text: str, containers: Mapping[str, Launch]) -> Outcome:
    found = peel(fields, launch, text, containers)
    if found.kind == "stdin" or (found.kind == "none" and not fields):
        return attrs.evolve(found, kind="stdin", launch=attrs.evolve(launch, interactive=True))
    return found


def _with_options(launch: Launch, options: Sequence[Option], outer: Launch) -> Launch:
    env: dict[str, str | None] = {}
    from_files: dict[str, str | None] = {}
    mounts: list[Mount] = []
    ports: list[str] = []
    for option in options:
        if option.name in ("-e", "--env"):
            name, equals, _ = option.shown.partition("=")
            value = option.value
            env[name] = (value.partition("=")[2] if value is not None else None) if equals else outer.env.get(name)
        elif option.name in ("-v", "--volume", "--mount"):
            mount = mount_of(option.shown)
            mounts += [mount] if mount else []
        elif option.name in ("-p", "--publish"):
            ports.append(option.shown)
        elif option.name in ("-w", "--workdir"):
            launch = attrs.evolve(launch, workdir=option.value)
        elif option.name == "--env-file":
            launch = _from_file(launch, option, outer, from_files)
        elif option.name == "--name":
            launch = attrs.evolve(launch, container=option.shown)
    return attrs.evolve(
        launch, env={**launch.env, **from_files, **env}, mounts=(*launch.mounts, *mounts), ports=(*launch.ports, *ports)
    )


def _from_file(launch: Launch, option: Option, outer: Launch, env: dict[str, str | None]) -> Launch:
    """Read an `--env-file`: what `-e` sets counts before it, wherever it stands."""
    from jetson_specdec.recipe.dotenv import read_container_env

    opened = outer.opens(option.field) if outer.opens is not None and option.field is not None else None
    if opened is None or opened[1] is None:
        return launch.note("JSD216", option.shown)
    found = read_container_env(opened[1], outer.env, podman=launch.launcher == "podman")
    if found.refused is not None:
        return launch.note("JSD219", option.shown, at=found.refused)
    env.update(found.values)
    launch = launch.note("JSD218", option.shown, names=tuple(found.values))
    return launch.note("JSD220", option.shown, names=found.quoted) if found.quoted else launch


def mount_of(spec: str) -> Mount | None:
    """Read the value of `-v` or `--mount`; a host path with a variable in it stays as written, a volume has none."""
    if "=" in spec.partition(":")[0]:
        pairs = dict(item.partition("=")[::2] for item in spec.split(","))
        target = pairs.get("target") or pairs.get("dst") or pairs.get("destination")
        source = pairs.get("source") or pairs.get("src")
        if not target:
            return None
        read_only = "readonly" in pairs or pairs.get("ro") in ("", "true")
        return Mount(host=source if pairs.get("type") == "bind" else None, container=target, read_only=read_only)
    colons: list[int] = []
    depth = 0
    for index, char in enumerate(spec):
        depth += (char in "{(") - (char in "})")
        if char == ":" and not depth:
            colons.append(index)
    if not colons:
        return Mount(host=None, container=spec) if spec.startswith("/") else None
    host, target = spec[: colons[0]], spec[colons[0] + 1 : colons[1] if len(colons) > 1 else None]
    modes = spec[colons[1] + 1 :].split(",") if len(colons) > 1 else []
    is_path = host[:1] in ("/", ".", "~", "$", "`", "%")
    return Mount(host=host if is_path else None, container=target, read_only="ro" in modes)


def _run(
    fields: Sequence[Field],
    at: int,
    launch: Launch,
    text: str,
    containers: Mapping[str, Launch],
    outer: Launch | None = None,
) -> Outcome:
    table = launchers()["containers"]
    values = {*table["run_with_value"]["values"], *table["run_with_value_podman"]["values"]}
    options, position = split_options(fields, at, values, text)
    launch = _with_options(launch, options, outer or Launch())
    names = {option.name for option in options}
    if position >= len(fields):
        return Outcome(kind="none", launch=launch, what="docker run without an image")
    image = fields[position]
    shown = image.shown(text)
    launch = attrs.evolve(launch, image=image.value, image_raw=None if image.value is not None else shown)
    rest = tuple(fields[position + 1 :])
    override = next((option for option in reversed(options) if option.name == "--entrypoint"), None)
    typed = bool(names & {"-i", "--interactive", "-t", "--tty"}) and not names & {"-d", "--detach"}
    if override is not None:
        words = (override.shown,) if override.shown else ()
        launch = attrs.evolve(launch, entrypoint=words)
        if words and override.field is not None:
            front = made_up(override.shown, override.field)
            found = peel((front, *rest), launch, text, containers)
            if found.kind == "serve" and found.serve_words[:1] == (front,):
                found = attrs.evolve(found, serve_words=found.serve_words[1:])
            return _typed(found, launch, typed)
    found = peel(rest, launch, text, containers)
    if found.kind == "none" and rest:
        found = own_entrypoint(rest, shown, launch, text, containers) if override is None else found
    elif not rest and override is None and not typed:
        found = own_entrypoint(rest, shown, launch, text, containers)
    elif not rest:
        found = attrs.evolve(found, kind="stdin", launch=launch)
    return _typed(found, launch, typed)


def _typed(found: Outcome, launch: Launch, typed: bool) -> Outcome:
    if found.kind == "stdin":
        return attrs.evolve(found, kind="stdin", launch=attrs.evolve(launch, interactive=typed))
    return found


def engine_of_image(image: str) -> str | None:
    """Return the engine an image is known for by its name, or None."""
    name = image.lower()
    for part, engine in launchers()["engines"]["images"]:
        if part in name:
            return str(engine)
    return "vllm" if "vllm" in name else None


def own_entrypoint(
    rest: Sequence[Field], image: str, launch: Launch, text: str, containers: Mapping[str, Launch]
) -> Outcome:
    """Decide what an image starts by itself with these words."""
    words = [one.shown(text) for one in rest]
    engine = engine_of_image(image)
    flags = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    known = launchers()["vllm_flags"]["values"]
    like_vllm = any(flag in flags for flag in known)
    if engine == "vllm" and words[:1] == ["serve"]:
        return Outcome(
            kind="serve", launch=launch, serve_words=tuple(rest[:1]), args=tuple(rest[1:]), serve_form="vllm_serve"
        )
    for later in range(1, len(rest)):  # a start script of the image's, then the engine
        if basename(words[later]) == "vllm" and words[later + 1 : later + 2] == ["serve"]:
            return peel(rest[later:], launch.note("JSD209", words[0]), text, containers)
    own = engine == "vllm" and (not words or words[0].startswith("-") or "/" in words[0] or like_vllm)
    if own or (engine is None and like_vllm):
        if engine is None and launch.image is not None:
            launch = launch.note("JSD210", launch.image)
        return Outcome(kind="serve", launch=launch, serve_form="image_entrypoint", args=tuple(rest))
    if engine not in (None, "vllm"):
        return Outcome(kind="serve", launch=launch, serve_form="other", engine=str(engine), args=tuple(rest))
    return Outcome(kind="none", launch=launch, what=f"container of {image}")
