# SPDX-License-Identifier: Apache-2.0
"""How a board is saved for a bug report (`detect --record DIR`), without what identifies its owner."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from jetson_specdec.device.nvidia_smi import LIST, QUERY, TABLE
from jetson_specdec.device.release import DPKG
from jetson_specdec.errors import OutputError
from jetson_specdec.files import reason_of
from jetson_specdec.host import Host

__all__ = ["ENVIRONMENT", "FILES", "record"]

FILES = (
    "/proc/device-tree/model",
    "/proc/device-tree/compatible",
    "/sys/firmware/devicetree/base/model",
    "/sys/firmware/devicetree/base/compatible",
    "/tmp/nv_jetson_model",
    "/etc/nv_tegra_release",
    "/etc/nv_boot_control.conf",
    "/etc/nvpmodel.conf",
    "/var/lib/nvpmodel/status",
    "/etc/os-release",
    "/proc/version",
    "/proc/meminfo",
    "/proc/cpuinfo",
    "/proc/1/cgroup",
    "/.dockerenv",
    "/run/.containerenv",
)
"""What is saved; `serial-number` of the device tree is not among it."""

ENVIRONMENT = (
    "CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "JETPACK_VERSION",
    "L4T_VERSION",
    "LSB_RELEASE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_USE_V1",
    "VLLM_VERSION",
)
"""The only names saved: a list of what is allowed cannot forget a secret."""

_GENERIC_NAMES = re.compile(
    r"(nvidia|jetson|tegra|thor|igx|agx|orin|nano|nx|xavier|ubuntu|linux|localhost|arm|gpu|cpu|\d|[_.-])+"
)
_LIMIT = 256 * 1024
HOLDERS = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
"""Who holds the GPU; programs go by their names, arguments could hold secrets and are left out."""


def record(host: Host, folder: str | Path) -> list[Path]:
    """Save what detection reads on a host, to be read back with `RecordedHost`.

    Files go below `root/`, programs into `commands.json`, the environment into `env.json`. A directory where a file
    should be is kept as one. Serial numbers, UUIDs, hardware addresses, container ids, user and host names are masked.
    The folder appears whole or not at all.

    Args:
        host: the machine to save.
        folder: a new or an empty folder.

    Returns:
        The files written, sorted.

    Raises:
        OutputError: the folder is not empty, or cannot be written.
    """
    target = Path(folder)
    if target.is_symlink() or (target.exists() and (not target.is_dir() or any(target.iterdir()))):
        raise OutputError("JSE115", path=str(folder))
    mask = _masker(_host_names(host))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise OutputError("JSE116", path=str(folder), reason=reason_of(error)) from error
    try:
        _write(host, staging, mask)
        staging.chmod(0o755)
        staging.replace(target)
    except OSError as error:
        shutil.rmtree(staging, ignore_errors=True)
        raise OutputError("JSE116", path=str(folder), reason=reason_of(error)) from error
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return sorted(path for path in target.rglob("*") if path.is_file())


def _write(host: Host, base: Path, mask: Callable[[str], str]) -> None:
    for path in FILES:
        place = base / "root" / path.lstrip("/")
        kind = host.kind(path)
        if kind == "directory":
            place.mkdir(parents=True, exist_ok=True)
            continue
        data = host.read_bytes(path, limit=_LIMIT) if kind == "file" else None
        if data is None:
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_filtered(path, data, mask))
    commands = [
        {"argv": list(argv), "stdout": mask(stdout), "exit_code": code} for argv, stdout, code in _commands(host)
    ]
    environ = {name: mask(host.environ[name]) for name in ENVIRONMENT if name in host.environ}
    _write_json(base / "commands.json", commands)
    _write_json(base / "env.json", environ)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _commands(host: Host) -> Iterable[tuple[tuple[str, ...], str, int]]:
    """Yield what each program printed. `tegrastats` never ends: on a live board it is ended after two lines or so."""
    for argv in (("nvpmodel", "-q"), QUERY, TABLE, LIST):
        done = host.run(argv, timeout=10.0)
        if done is not None:
            yield done.argv if not host.live else argv, done.stdout, done.exit_code
    done = host.run(HOLDERS, timeout=10.0)
    if done is not None:
        yield HOLDERS, "".join(_bare(line) for line in done.stdout.splitlines()), done.exit_code
    bounded = ("timeout", "2", "tegrastats", "--interval", "500")
    done = host.run(bounded if host.live else ("tegrastats",), timeout=10.0)
    if done is not None and done.stdout.strip():
        yield ("tegrastats",), done.stdout.splitlines()[0] + "\n", 0
    done = host.run(DPKG, timeout=10.0)
    if done is not None and done.ok:
        yield DPKG, done.stdout, done.exit_code


def _bare(line: str) -> str:
    """Return a line of holders with the program's name alone, or nothing for a line of another kind."""
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) < 3 or not cells[0].isdigit():
        return ""
    return f"{cells[0]}, {(cells[1].split() or ['?'])[0].rpartition('/')[2]}, {cells[-1]}\n"


def _filtered(path: str, data: bytes, mask: Callable[[str], str]) -> bytes:
    if path == "/proc/cpuinfo":
        # Serial numbers stand here on some boards; the maker of an x86 processor is all that is read from it.
        lines = [line for line in data.split(b"\n") if line.startswith((b"vendor_id", b"CPU implementer"))]
        return lines[0] + b"\n" if lines else b"\n"
    if path in ("/.dockerenv", "/run/.containerenv"):
        return b""
    try:
        return mask(data.decode("utf-8")).encode("utf-8")
    except UnicodeDecodeError:
        # Not text: nothing to find a name in, so only what the detectors tolerate of it is kept.
        return mask(data.decode("utf-8", errors="replace")).encode("utf-8")


def _host_names(host: Host) -> tuple[str, ...]:
    """Return this machine's names that say more than "a Jetson": `thor` is no secret, and the word is needed."""
    names = {(host.read_text(path, limit=256) or "").strip() for path in ("/etc/hostname", "/proc/sys/kernel/hostname")}
    names.add(host.environ.get("HOSTNAME", "").strip())
    short = {name.split(".")[0] for name in names}
    return tuple(
        sorted(
            (name for name in names | short if len(name) > 2 and not _GENERIC_NAMES.fullmatch(name.casefold())),
            key=len,
            reverse=True,
        )
    )


def _masker(names: Iterable[str]) -> Callable[[str], str]:
    rules: Mapping[str, str] = {
        # The prefix of a UUID stays, so that the line still parses.
        r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b": (
            "00000000-0000-0000-0000-000000000000"
        ),
        r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b": "00:00:00:00:00:00",
        r"\b[0-9a-f]{32,64}\b": "0" * 32,
        r"(?i)\b(serial(?:[ _-]?(?:number|no))?[ \t]*[:=][ \t]*)\S+": r"\1MASKED",
        r"\b[\w.+-]+@[\w-][\w.-]*\b": "user@host",
        r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b(?!\.)": "0.0.0.0",
    } | {rf"(?<![\w.-]){re.escape(name)}(?![\w-])": "HOST" for name in names}

    def mask(text: str) -> str:
        for pattern, replacement in rules.items():
            text = re.sub(pattern, replacement, text)
        return text

    return mask
