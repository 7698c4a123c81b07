# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the `docker` command, on `fake_daemon`.

It knows `run`, `ps`, `inspect`, `stop`, `kill`, `rm`, `rename`, `update`, `start`, `logs`, and of `compose`:
`up`, `stop`, `kill`, `rm`, `ps`.

The description of the fake server (`JETSON_SPECDEC_FAKE`) reaches the container, with the release of the image's tag;
failures that are docker's own (`image_missing`, `container_name_taken`, `port_in_use`, …) happen here.

Messages and exit codes are those of the Docker CLI 28 where a caller depends on them (125 for what the daemon refuses;
`the input device is not a TTY`).
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from jetson_specdec.testing.fake_daemon import ask, follow

__all__ = ["main"]

_OWN_ENTRYPOINT = ("vllm/vllm-openai",)
FAKE: Final = "JETSON_SPECDEC_FAKE"
"""As in `fake_vllm`, which takes longer to import than a client of docker may."""


def main(argv: Sequence[str] | None = None) -> int:
    """Stand in for `docker`; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    verb, rest = (words[0], words[1:]) if words else ("", [])
    command = {
        "run": _run,
        "ps": _ps,
        "inspect": _inspect,
        "stop": _stop,
        "kill": _each("kill"),
        "start": _each("start"),
        "rm": _rm,
        "rename": _rename,
        "update": _update,
        "logs": _logs,
        "compose": _compose,
    }.get(verb)
    if command is None:
        return _fail(f"docker: unknown command: docker {verb}", 1)
    try:
        return int(command(rest))
    except OSError:
        where = "unix:///var/run/docker.sock"
        text = f"Cannot connect to the Docker daemon at {where}. Is the docker daemon running?"
        if verb == "run":
            return _fail(f"docker: {text}\n\nRun 'docker run --help' for more information", 125)
        return _fail(text)


def _fail(text: str, code: int = 1) -> int:
    sys.stderr.write(text + "\n")
    return code


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parse(words: list[str], with_value: set[str]) -> tuple[list[tuple[str, str | None]], list[str]]:
    options: list[tuple[str, str | None]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        word = words[at]
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            if equals:
                options.append((name, value))
            elif word in with_value:
                at += 1
                options.append((name, words[at]))
            else:
                options.append((name, None))
        else:
            for index, letter in enumerate(word[1:], 1):
                if f"-{letter}" in with_value:
                    if word[index + 1 :]:
                        options.append((f"-{letter}", word[index + 1 :].lstrip("=")))
                    else:
                        at += 1
                        options.append((f"-{letter}", words[at]))
                    break
                options.append((f"-{letter}", None))
        at += 1
    return options, words[at:]


def _run(words: list[str]) -> int:
    from jetson_specdec.recipe.shell_options import launchers

    options, rest = _parse(words, set(launchers()["containers"]["run_with_value"]["values"]))
    names = {name for name, _ in options}
    value = dict(options)
    typed = names & {"-t", "--tty"} and names & {"-i", "--interactive"} and not names & {"-d", "--detach"}
    if typed and not sys.stdin.isatty():
        return _fail("the input device is not a TTY")
    if "--rm" in names and value.get("--restart", "no") != "no":
        return _fail("docker: conflicting options: cannot specify both --restart and --rm", 125)
    if not rest:
        return _fail("docker: 'docker run' requires at least 1 argument", 125)
    image, command = rest[0], rest[1:]
    told, version = _told(image)
    ports = [text for name, text in options if name in ("-p", "--publish") and text]
    refusal = _refusal(told, image, value.get("--name") or "eager_fermi", ports, command)
    if refusal is not None:
        return _refuse(*refusal)
    entry = value.get("--entrypoint")
    front = ["vllm", "serve"] if entry is None and image.startswith(_OWN_ENTRYPOINT) else ([entry] if entry else [])
    env = _description(told, version)
    for name, text in options:
        if name in ("-e", "--env") and text is not None:
            key, equals, content = text.partition("=")
            if equals or key in os.environ:
                env[key] = content if equals else os.environ[key]
    labels = dict(text.partition("=")[::2] for name, text in options if name in ("-l", "--label") and text)
    shown = ask(
        do="run",
        name=value.get("--name"),
        argv=_published([*front, *command], ports),
        env=env,
        image=image,
        labels=labels,
        ports=ports,
        restart=value.get("--restart") or "no",
        remove="--rm" in names,
    )
    if "error" in shown:
        return _refuse(shown["error"])
    if names & {"-d", "--detach"}:
        _say(shown["id"])
        return 0
    return _attached(shown)


def _refuse(reason: str, code: int = 125) -> int:
    from jetson_specdec.testing.fake_failure import refused_by_docker

    return _fail(refused_by_docker(reason), code)


def _told(image: str) -> tuple[dict[str, Any], str | None]:
    """Return how the fake server is described here, and the release an image's tag names."""
    text = os.environ.get(FAKE) or "{}"
    told = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    tag = re.search(r":v?(\d+\.\d+\.\d+)$", image) if image.startswith(_OWN_ENTRYPOINT) else None
    return told, tag[1] if tag is not None else None


def _description(told: Mapping[str, Any], version: str | None) -> dict[str, str]:
    """Return the environment by which the description reaches the container."""
    known = {**({"version": version} if version is not None else {}), **told}
    return {FAKE: json.dumps(known)} if told else {}


def _refusal(
    told: Mapping[str, Any], image: str, container: str, ports: Sequence[str], words: Sequence[str]
) -> tuple[str, int] | None:
    """Return with which words and exit code docker itself refuses, or None."""
    if image.startswith("missing/"):
        return f"pull access denied for {image}, repository does not exist or may require 'docker login'", 125
    if "start_failure" not in told:
        return None
    from jetson_specdec.testing.fake_failure import start_failure, strikes

    failure = start_failure(told["start_failure"], docker=True) if strikes(told.get("fails_when"), words) else None
    if failure is None or failure.frame != "docker" or failure.exit_code is None:
        return None
    outer = ports[0].partition("/")[0].split(":")[-2] if ports and ":" in ports[0] else "8000"
    words = failure.filled({"image": image, "container": container, "port": outer})["lines"]
    return words[0], failure.exit_code


def _attached(shown: dict[str, Any]) -> int:
    """Follow a container in the foreground; signals are passed on to it."""

    def forward(number: int, _frame: object) -> None:
        ask(do="kill", name=shown["id"], number=number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    code = follow(shown)
    return 137 if code is None else code


def _published(argv: list[str], ports: list[str]) -> list[str]:
    """Without a network of its own, a server listens on the outer port itself."""
    if not ports:
        return argv
    outer = ports[0].partition("/")[0].split(":")[-2]
    if "--port" in argv:
        at = argv.index("--port")
        return [*argv[: at + 1], outer, *argv[at + 2 :]]
    return [*argv, "--port", outer]


def _ps(words: list[str]) -> int:
    options, _ = _parse(words, {"--filter", "-f", "--format"})
    names = {name for name, _ in options}
    filters = [str(text).partition("=") for name, text in options if name in ("--filter", "-f")]
    everything = bool(names & {"-a", "--all"})
    for one in ask(do="list")["containers"]:
        if not (everything or one["running"]):
            continue
        if all(_matches(one, key, text) for key, _, text in filters):
            _say(one["id"][:12] if names & {"-q", "--quiet"} else one["name"])
    return 0


def _matches(one: dict[str, Any], key: str, text: str) -> bool:
    if key == "label":
        name, equals, value = text.partition("=")
        return name in one["labels"] and (not equals or one["labels"][name] == value)
    if key == "publish":
        return any(text in port.split(":")[:-1] for port in one["ports"])
    if key == "name":
        return re.search(text, "/" + one["name"]) is not None
    return False


def _inspect(words: list[str]) -> int:
    _, rest = _parse(words, {"--type", "--format", "-f"})
    found = []
    for name in rest:
        one = ask(do="show", name=name)
        if "error" in one:
            _say("[]")
            return _fail(f"Error response from daemon: {one['error']}")
        state = {"Running": one["running"], "Restarting": False, "Pid": one["pid"], "ExitCode": one["exit_code"] or 0}
        policy = {"RestartPolicy": {"Name": one["restart"]}, "AutoRemove": one["remove"]}
        config = {"Image": one["image"], "Labels": one["labels"]}
        shown = {"Id": one["id"], "Name": "/" + one["name"], "State": state, "Config": config}
        found.append({**shown, "HostConfig": policy, "RestartCount": one["restarts"]})
    _say(json.dumps(found))
    return 0


def _each(verb: str) -> Any:
    def run(words: list[str]) -> int:
        _, rest = _parse(words, {"-s", "--signal"})
        return _all(rest, lambda name: ask(do=verb, name=name))

    return run


def _all(names: list[str], act: Any) -> int:
    code = 0
    for name in names:
        reply = act(name)
        if "error" in reply:
            code = _fail(f"Error response from daemon: {reply['error']}")
        else:
            _say(name)
    return code


def _stop(words: list[str]) -> int:
    options, rest = _parse(words, {"-t", "--time", "--timeout"})
    seconds = float(next((text for name, text in options if text), 10))
    return _all(rest, lambda name: ask(do="stop", name=name, seconds=seconds))


def _rm(words: list[str]) -> int:
    options, rest = _parse(words, set())
    force = any(name in ("-f", "--force") for name, _ in options)
    return _all(rest, lambda name: ask(do="rm", name=name, force=force))


def _rename(words: list[str]) -> int:
    reply = ask(do="rename", name=words[0], to=words[1])
    return _fail(f"Error response from daemon: {reply['error']}") if "error" in reply else 0


def _update(words: list[str]) -> int:
    options, rest = _parse(words, {"--restart"})
    policy = dict(options).get("--restart") or "no"
    return _all(rest, lambda name: ask(do="update", name=name, restart=policy))


def _logs(words: list[str]) -> int:
    options, rest = _parse(words, {"-n", "--tail", "--since"})
    shown = ask(do="show", name=rest[0])
    if "error" in shown:
        return _fail(f"Error response from daemon: {shown['error']}")
    if any(name in ("-f", "--follow") for name, _ in options):
        follow(shown)
        return 0
    sys.stdout.write(Path(shown["log"]).read_text(encoding="utf-8"))
    return 0


# --- compose ----------------------------------------------------------------------------------------------------------


def _compose(words: list[str]) -> int:
    from ruamel.yaml import YAML

    options, rest = _parse(words, {"-f", "--file", "--project-directory", "-p", "--project-name"})
    files = [str(text) for name, text in options if name in ("-f", "--file")]
    folder = dict(options).get("--project-directory") or str(Path(files[0]).parent)
    project = dict(options).get("-p") or re.sub(r"[^a-z0-9_-]", "", Path(folder).name.lower())
    services: dict[str, dict[str, Any]] = {}
    for file in files:
        for name, body in YAML(typ="safe").load(Path(file).read_text(encoding="utf-8"))["services"].items():
            services.setdefault(name, {}).update(body or {})
    verb = rest[0]
    with_value = {"--exit-code-from", "-t", "--timeout", "--status", "--format", "--filter"}
    flags, names = _parse(rest[1:], with_value)
    for service in names:
        if service not in services:
            return _fail(f"no such service: {service}")
    service = names[0]
    body = services[service]
    container = body.get("container_name") or f"{project}-{service}-1"
    if verb == "up":
        front = "com.docker.compose"
        labels = {
            f"{front}.project": project,
            f"{front}.service": service,
            f"{front}.project.working_dir": str(Path(folder).absolute()),
            f"{front}.project.config_files": ",".join(str(Path(file).absolute()) for file in files),
        }
        return _up(body, container, labels, detached="-d" in dict(flags))
    if verb == "ps":
        one = ask(do="show", name=container)
        if one.get("running"):
            _say(one["id"])
        return 0
    if verb == "stop":
        ask(do="stop", name=container, seconds=float(dict(flags).get("-t") or 10))
    elif verb in ("kill", "rm"):
        ask(do=verb, name=container, **({"force": True} if verb == "rm" else {}))
    return 0


def _labels(body: dict[str, Any]) -> dict[str, str]:
    given = body.get("labels") or {}
    return dict(str(item).partition("=")[::2] for item in given) if isinstance(given, list) else dict(given)


def _up(body: dict[str, Any], container: str, labels: dict[str, str], *, detached: bool) -> int:
    import shlex

    # Compose leaves a container alone that runs and is what the files say; else it makes a new one in its place.
    labels = {**labels, "com.docker.compose.config-hash": str(zlib.crc32(json.dumps(body, sort_keys=True).encode()))}
    there = ask(do="show", name=container)
    same = there.get("labels", {}).get("com.docker.compose.config-hash") == labels["com.docker.compose.config-hash"]
    if same:
        shown = there if there["running"] else ask(do="start", name=there["id"])
        return 0 if detached else _attached(shown)
    ask(do="rm", name=container, force=True)
    image = str(body.get("image", ""))
    command = body.get("command") or []
    words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    entry = body.get("entrypoint")
    front = shlex.split(entry) if isinstance(entry, str) else list(entry or [])
    if entry is None and image.startswith(_OWN_ENTRYPOINT):
        front = ["vllm", "serve"]
    given = body.get("environment") or {}
    env = dict(item.partition("=")[::2] for item in given) if isinstance(given, list) else dict(given)
    ports = [str(port) for port in body.get("ports") or []]
    told, version = _told(image)
    refusal = _refusal(told, image, container, ports, words)
    if refusal is not None:
        return _fail(f"Error response from daemon: {refusal[0]}")
    env = {**_description(told, version), **env}
    shown = ask(
        do="run",
        name=container,
        argv=_published([*front, *words], ports),
        env={key: str(value) for key, value in env.items()},
        image=image,
        labels={**labels, **_labels(body)},
        ports=ports,
        restart=str(body.get("restart", "no")),
    )
    if "error" in shown:
        return _fail(f"Error response from daemon: {shown['error']}")
    if detached:
        return 0
    return _attached(shown)


if __name__ == "__main__":
    sys.exit(main())
