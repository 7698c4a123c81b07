# SPDX-License-Identifier: Apache-2.0
"""Board, release, power mode, clocks, MIG, and who holds the GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jetson_specdec.apply.checkup import Check
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.apply.checkup import Subject
    from jetson_specdec.host import Host

__all__ = ["Holder", "board", "clocks", "engine_runs", "gpu_holders", "holders", "l4t", "mig", "power"]

DEVFREQ = "/sys/class/devfreq"
COMPUTE_APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader")
TABLE = ("nvidia-smi",)
MIG_MODE = ("nvidia-smi", "--query-gpu=mig.mode.current", "--format=csv,noheader")
NVMAP = "/sys/kernel/debug/nvmap/iovmm/clients"
_ENGINES = ("vllm", "enginecore", "sglang", "ollama", "llama-server", "trtllm", "tritonserver", "mlc_llm")
_TOPICS = {"l4t": "JSD13", "power": "JSD14", "memory": "JSD12"}
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def device_findings(subject: Subject, row: str) -> tuple[Finding, ...]:
    """Return what detection said, each remark in one row only."""
    wanted = _TOPICS.get(row)
    if wanted is not None:
        return tuple(finding for finding in subject.device.findings if finding.code.startswith(wanted))
    taken = tuple(_TOPICS.values())
    return tuple(finding for finding in subject.device.findings if not finding.code.startswith(taken))


def board(subject: Subject) -> Check:
    """Which board this is, and whether it may speculate."""
    device = subject.device
    values: dict[str, Any] = {}
    if device.is_jetson is not None or device.module is not None:
        values = {
            "module": device.module or device.family,
            "family": device.family,
            "is_jetson": device.is_jetson,
            "memory_total_bytes": device.memory_total_bytes,
            "speculation_allowed": device.speculation_allowed,
        }
    return Check(name="board", values=values, findings=device_findings(subject, "board"))


def l4t(subject: Subject) -> Check:
    """Which release the board runs, and what is known to be wrong with it."""
    device = subject.device
    values = {"l4t": device.l4t, "jetpack": device.jetpack} if device.l4t is not None else {}
    return Check(name="l4t", values=values, findings=device_findings(subject, "l4t"))


def power(subject: Subject) -> Check:
    """The power mode by name; ids differ from board to board, so the table of this one is read."""
    from jetson_specdec.device.power import CONF, parse_nvpmodel_conf

    device = subject.device
    if device.power_mode is None:
        return Check(name="power", findings=device_findings(subject, "power"))
    modes = parse_nvpmodel_conf(subject.host.read_text(CONF, limit=256 * 1024) or "")
    values = {
        "mode": device.power_mode,
        "is_max": device.power_mode_is_max,
        "modes": {str(number): name for number, name in sorted(modes.items())},
    }
    return Check(name="power", values=values, findings=device_findings(subject, "power"))


def clocks(subject: Subject) -> Check:
    """Whether the GPU's clock is held (`jetson_clocks`): the lowest and the highest allowed are then the same."""
    host, found = subject.host, {}
    for name in host.list_dir(DEVFREQ):
        if not re.search(r"gpu-gpc|\.gpu$|ga10b|gv11b", name):
            continue
        numbers = [_number(host.read_text(f"{DEVFREQ}/{name}/{part}", limit=64)) for part in ("min_freq", "max_freq")]
        if None not in numbers:
            found[name] = numbers
    if not found:
        return Check(name="clocks")
    held = all(low == high for low, high in found.values())
    values = {
        "held": held,
        "min_mhz": min(low or 0 for low, _ in found.values()) // 10**6,
        "max_mhz": max(high or 0 for _, high in found.values()) // 10**6,
        "gpus": sorted(found),
    }
    return Check(name="clocks", values=values, findings=() if held else (Finding.of("JSD840"),))


def _number(text: str | None) -> int | None:
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def mig(subject: Subject) -> tuple[Check, ...]:
    """Whether Thor's GPU is cut into instances; other boards have no such mode."""
    if subject.device.family != "thor":
        return ()
    state = None
    done = subject.host.run(MIG_MODE, timeout=8.0)
    if done is not None:
        state = next(
            (line.strip() for line in done.stdout.splitlines() if line.strip() in ("Enabled", "Disabled")), None
        )
    if state is None:
        done = subject.host.run(TABLE, timeout=8.0)
        table = re.findall(r"\|\s+(Enabled|Disabled)\*?\s*\|\s*$", done.stdout if done else "", re.MULTILINE)
        state = table[0] if table else None
    if state is None:
        return (Check(name="mig"),)
    findings = (Finding.of("JSD841"),) if state == "Enabled" else ()
    return (Check(name="mig", values={"mode": state.lower()}, findings=findings),)


# ------------------------------------------------------------------------------------------------------- GPU holders


@frozen(kw_only=True)
class Holder:
    """A process that holds GPU memory.

    Attributes:
        pid: its number.
        name: of the program.
        bytes: what it holds, or None.
    """

    pid: int
    name: str
    bytes: int | None = None


def gpu_holders(host: Host, family: str | None) -> tuple[Holder, ...] | None:
    """Return who holds the GPU, or None where nobody tells.

    `nvidia-smi` knows it on Thor; on Orin it is a stub that lists nothing, and the kernel's NvMap table (readable for
    root only) does.
    """
    done = host.run(COMPUTE_APPS, timeout=8.0)
    answered = done is not None and done.ok
    found = parse_compute_apps(done.stdout) if done is not None and answered else ()
    if not found:
        # Some releases answer the query with nothing and list the processes in their table all the same.
        table = host.run(TABLE, timeout=8.0)
        found = parse_processes(table.stdout) if table is not None and table.ok else ()
    if found:
        return found
    text = host.read_text(NVMAP, limit=1 << 20)
    if text is not None:
        return parse_nvmap(text)
    return () if answered and family == "thor" else None


def parse_compute_apps(text: str) -> tuple[Holder, ...]:
    """Read `pid, process_name, used_memory` lines; `[N/A]` is an unknown size."""
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 3 and cells[0].isdigit():
            size = re.fullmatch(r"(\d{1,9}) MiB", cells[2])
            found.append(
                Holder(pid=int(cells[0]), name=_program(cells[1]), bytes=int(size[1]) * 2**20 if size else None)
            )
    return tuple(found)


def parse_processes(text: str) -> tuple[Holder, ...]:
    """Read the table of processes that plain `nvidia-smi` prints last; `N/A` is an unknown size."""
    _, _, table = text.partition("Processes:")
    row = r"^\|\s+\d+\s+(?:\S+\s+\S+\s+)?(\d{1,8})\s+[CGM+]{1,5}\s+(\S.*?)\s+(?:(\d{1,9})MiB|N/A|-)\s*\|\s*$"
    return tuple(
        Holder(pid=int(pid), name=_program(name), bytes=int(size) * 2**20 if size else None)
        for pid, name, size in re.findall(row, table, re.MULTILINE)
    )


def parse_nvmap(text: str) -> tuple[Holder, ...]:
    """Read the NvMap clients table: `CLIENT PROCESS PID SIZE`, sizes with K or M behind."""
    sizes: dict[tuple[int, str], int] = {}
    for line in text.splitlines():
        row = re.fullmatch(r"\s*user\s+(\S.*?)\s+(\d{1,8})\s+(\d{1,15})([KMG]?)\s*", line)
        if row and int(row[3]) > 0:
            key = (int(row[2]), _program(row[1]))
            sizes[key] = sizes.get(key, 0) + int(row[3]) * _UNITS[row[4]]
    return tuple(Holder(pid=pid, name=name, bytes=size) for (pid, name), size in sorted(sizes.items()))


def _program(name: str) -> str:
    """The name of a program without its path; arguments could hold secrets and are left out."""
    return name.split()[0].rpartition("/")[2][:64] if name.split() else "?"


def engine_runs(found: tuple[Holder, ...] | None) -> bool:
    """Whether one of the holders is an inference engine."""
    return any(part in holder.name.lower() for holder in found or () for part in _ENGINES)


def holders(subject: Subject, found: tuple[Holder, ...] | None) -> Check:
    """Who holds the GPU."""
    if found is None:
        ask_root = subject.host.live and subject.device.is_jetson
        return Check(name="gpu", findings=(Finding.of("JSD843"),) if ask_root else ())
    shown = [f"{each.name} ({each.pid})" for each in found]
    values = {
        "holders": [{"pid": each.pid, "name": each.name, "bytes": each.bytes} for each in found],
        "shown": shown,
    }
    engines = [each for each in found if engine_runs((each,))]
    findings = (Finding.of("JSD842", names=[f"{each.name} ({each.pid})" for each in engines]),) if engines else ()
    return Check(name="gpu", values=values, findings=findings)
