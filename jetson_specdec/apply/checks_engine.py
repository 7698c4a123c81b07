# SPDX-License-Identifier: Apache-2.0
"""The container engine and its NVIDIA runtime, the image, the engine's release, the port, the container's name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.checkup import Check
from jetson_specdec.apply.engine_image import program_of
from jetson_specdec.findings import Finding, Severity

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Subject
    from jetson_specdec.host import Host

__all__ = ["container_name", "docker", "image", "listening", "port", "runtime"]

LISTEN = "0A"
DEFAULT_PORT = 8000
_ASKS_NVIDIA = ("--runtime nvidia", "--runtime=nvidia", "--gpus", "runtime: nvidia")


def docker(subject: Subject) -> Check:
    """Whether the engine answers and has NVIDIA's runtime."""
    deployment = subject.deployment
    program = program_of(deployment.command.launcher) if deployment is not None else "docker"
    severity = Severity.BLOCKING if subject.needs_docker else Severity.INFO
    done = subject.host.run((program, "info", "--format", "{{json .}}"), timeout=20.0)
    if done is None:
        # A recording that holds no answer says nothing; a machine without the program does.
        findings = (Finding.of("JSD850", severity=severity, program=program),) if subject.host.live else ()
        return Check(name="docker", findings=findings)
    said = (done.stderr + done.stdout).lower()
    if "permission denied" in said:
        finding = Finding.of("JSD851", severity=Severity.WARNING if subject.needs_docker else severity, program=program)
        return Check(name="docker", findings=(finding,))
    info = _info(done.stdout)
    if not done.ok or info is None or info.get("ServerErrors"):
        return Check(name="docker", findings=(Finding.of("JSD852", severity=severity, program=program),))
    runtimes = sorted(info.get("Runtimes") or {})
    values: dict[str, Any] = {
        "program": program,
        "version": info.get("ServerVersion"),
        "runtimes": runtimes,
        "default": info.get("DefaultRuntime"),
        "root": info.get("DockerRootDir"),
    }
    if "nvidia" in runtimes or not runtimes:
        return Check(name="docker", values=values)
    asks = deployment is not None and any(words in deployment.plan.recipe.after for words in _ASKS_NVIDIA)
    level = Severity.BLOCKING if subject.needs_docker and asks else Severity.WARNING
    level = Severity.INFO if subject.needs_docker is False else level
    return Check(name="docker", values=values, findings=(Finding.of("JSD853", severity=level),))


def _info(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def image(subject: Subject) -> tuple[Check, ...]:
    """Whether the recipe's image is here, and built for this processor."""
    if subject.deployment is None or subject.deployment.command.image is None:
        return ()
    name = subject.deployment.command.image
    facts = subject.around.image if subject.around is not None else None
    if facts is None:
        return (Check(name="image"),)
    values = {
        "image": name,
        "present": "yes" if facts.present else "no",
        "digest": facts.digest,
        "version": facts.version,
        "architecture": facts.architecture,
        "size_bytes": facts.size_bytes,
    }
    findings = []
    if not facts.present:
        findings.append(Finding.of("JSD854", image=name))
    if facts.architecture not in (None, "arm64", "aarch64") and subject.device.is_jetson:
        findings.append(Finding.of("JSD857", image=name, architecture=facts.architecture))
    return (Check(name="image", values=values, findings=tuple(findings)),)


def runtime(subject: Subject) -> tuple[Check, ...]:
    """Whether the vLLM of the recipe can run on this board and release."""
    release = subject.release
    if release is None or (subject.deployment is None and release.version is None):
        return ()
    from jetson_specdec.engine.runtime import check_runtime

    findings = check_runtime(family=subject.device.family, l4t=subject.device.l4t, release=release)
    version = release.version or (release.candidates[-1] if release.candidates else None)
    values = {} if version is None else {"version": version, "distribution": release.distribution}
    return (Check(name="runtime", values=values, findings=findings),)


# -------------------------------------------------------------------------------------------------------------- port


def listening(host: Host) -> set[int] | None:
    """Return the TCP ports that something listens on, or None where the kernel's tables cannot be read."""
    texts = [host.read_text(path, limit=4 << 20) for path in ("/proc/net/tcp", "/proc/net/tcp6")]
    if texts == [None, None]:
        return None
    found = set()
    for text in texts:
        for line in (text or "").splitlines()[1:]:
            cells = line.split()
            if len(cells) > 3 and cells[3] == LISTEN:
                found.add(int(cells[1].rpartition(":")[2], 16))
    return found


def _ports(subject: Subject) -> list[int]:
    """The ports on this machine that the recipe opens."""
    if subject.deployment is None:
        return [DEFAULT_PORT]
    from jetson_specdec.apply.disclosure import Surroundings, disclose

    around = subject.around or Surroundings()
    listeners = disclose(subject.deployment, around).listeners
    texts = [each.port for each in listeners if each.reach != "container"]
    return [int(text) for text in texts if text is not None and text.isascii() and text.isdigit()]


def port(subject: Subject) -> Check:
    """Whether the recipe's port is free."""
    wanted = _ports(subject)
    found = listening(subject.host)
    if found is None or not wanted:
        return Check(name="port")
    taken = [number for number in wanted if number in found]
    severity = None if subject.deployment is not None else Severity.INFO
    findings = tuple(Finding.of("JSD855", severity=severity, port=number) for number in taken)
    values = {"ports": [str(number) for number in wanted], "free": "no" if taken else "yes"}
    return Check(name="port", values=values, findings=findings)


def container_name(subject: Subject) -> tuple[Check, ...]:
    """Whether a container of the recipe's name exists already."""
    deployment = subject.deployment
    if deployment is None or deployment.container.name is None:
        return ()
    name, program = deployment.container.name, program_of(deployment.command.launcher)
    done = subject.host.run((program, "ps", "--all", "--format", "{{json .}}"), timeout=20.0)
    if done is None or not done.ok:
        return (Check(name="name"),)
    found = None
    for line in done.stdout.splitlines():
        entry = _info(line)
        if entry is not None and name in str(entry.get("Names", "")).split(","):
            found = str(entry.get("State") or entry.get("Status") or "")
    values = {"container": name, "taken": "no" if found is None else "yes"}
    if found is None or deployment.command.launcher == "compose":
        # Compose replaces its own container.
        return (Check(name="name", values=values),)
    finding = Finding.of("JSD856", container=name, state=found, program=program)
    return (Check(name="name", values=values, findings=(finding,)),)
