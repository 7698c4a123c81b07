# SPDX-License-Identifier: Apache-2.0
"""Which GPUs `nvidia-smi` lists, and whether they have memory of their own.

On a Jetson it is a stub or nearly so: `Orin (nvgpu)` is one name for three families with opposite verdicts, memory is
`Not Supported` or `[N/A]` on every board. What it does prove: a DGX Spark is not a Thor, a discrete GPU is present.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from jetson_specdec.device import identity
from jetson_specdec.device.core import Confidence, Evidence, Observation
from jetson_specdec.device.device_tree import TREES
from jetson_specdec.host import CommandResult, Host
from jetson_specdec.values import frozen

__all__ = ["Gpu", "NvidiaSmiDetector", "parse_csv", "parse_list", "parse_table"]

TABLE = ("nvidia-smi",)
LIST = ("nvidia-smi", "-L")
QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total,driver_version", "--format=csv")
_DISCRETE = (
    r"\b(RTX|GTX|GeForce|Quadro|Tesla|TITAN|NVS|L4|L20|L40S?|T4|V100)\b"
    r"|\b(A\d{1,3}[A-Z]?|H\d{2,3}|B\d{2,3}|GH\d{3}|GB[23]\d{2})\b"
)


@frozen(kw_only=True)
class Gpu:
    """One GPU.

    Attributes:
        name: as printed.
        memory_total_mib: memory of its own in MiB; None where not printed or not supported.
    """

    name: str
    memory_total_mib: int | None = None

    @property
    def integrated(self) -> bool:
        """Whether it is the GPU of a Jetson, or of another chip that shares memory with the CPU."""
        return self.jetson or "GB10" in self.name

    @property
    def jetson(self) -> bool:
        """Whether it is the GPU of a Jetson."""
        return "(nvgpu)" in self.name or self.thor

    @property
    def thor(self) -> bool:
        """Whether it is Thor's."""
        return re.search(r"\bThor\b", self.name) is not None

    @property
    def discrete(self) -> bool:
        """Whether it certainly has memory of its own."""
        return not self.integrated and (
            self.memory_total_mib is not None or re.search(_DISCRETE, self.name) is not None
        )


def parse_table(text: str) -> tuple[Gpu, ...]:
    """Read the plain table (each GPU has two lines or more; the list of processes is left alone)."""
    found: list[Gpu] = []
    name: str | None = None
    for line in text.splitlines():
        if "Processes:" in line:
            break
        row = re.match(r"\|\s+\d{1,3}\s+(\S.{0,80}?)\s+(?:On|Off|N/A)\s*\|", line)
        if row:
            name = row[1]
            continue
        if name is not None and line.startswith("|"):
            memory = re.search(r"\d{1,9}MiB\s*/\s*(\d{1,9})MiB", line)
            found.append(Gpu(name=name, memory_total_mib=int(memory[1]) or None if memory else None))
            name = None
    if name is not None:
        found.append(Gpu(name=name))
    return tuple(found)


def parse_list(text: str) -> tuple[Gpu, ...]:
    """Read `nvidia-smi -L`; MIG slices are not GPUs."""
    return tuple(Gpu(name=name) for name in re.findall(r"^GPU \d{1,3}: (.{1,80}?)(?: \(UUID:.*)?$", text, re.MULTILINE))


def parse_csv(text: str, columns: Sequence[str] = ()) -> tuple[Gpu, ...]:
    """Read the answer to `nvidia-smi --query-gpu=… --format=csv`.

    Args:
        text: what was printed, with or without its header.
        columns: the names that were asked for, where known. A header in the text wins. Without either only a name
            is read, from the first cell that can be one.
    """
    rows = [
        [cell.strip() for cell in row] for row in csv.reader(text.splitlines()) if any(cell.strip() for cell in row)
    ]
    names = [column.strip().casefold() for column in columns]
    if rows and any(re.fullmatch(r"name|index|gpu_name|uuid|[a-z_]+(\.[a-z_.]+)( \[\w+\])?", cell) for cell in rows[0]):
        names = [re.sub(r" \[.*", "", cell) for cell in rows.pop(0)]
    found = []
    for row in rows:
        cells = dict(zip(names, row, strict=True)) if len(names) == len(row) else {}
        name = cells.get("name") or cells.get("gpu_name") or next((cell for cell in row if _can_be_name(cell)), None)
        if name is None:
            continue
        memory = re.match(r"(\d{1,9})(?: MiB)?$", cells.get("memory.total", ""))
        found.append(Gpu(name=name[:80], memory_total_mib=int(memory[1]) or None if memory else None))
    return tuple(found)


def _can_be_name(cell: str) -> bool:
    return re.match(r"(?!GPU-|P\d+$)[A-Za-z][\w ().+/-]+$", cell) is not None and not cell.startswith(
        ("N/A", "Enabled", "Disabled", "Default", "Not ", "NVIDIA-SMI", "Failed", "Unable", "No ")
    )


def _columns(done: CommandResult) -> tuple[str, ...]:
    asked = next((word for word in done.argv if word.startswith("--query-gpu=")), "")
    names = tuple(asked.partition("=")[2].split(","))
    return names if all(re.fullmatch(r"[a-z_.]+", name) for name in names) else ()


class NvidiaSmiDetector:
    """Asks `nvidia-smi`, and on a live board only where the device tree leaves something to ask.

    A Jetson that its device tree names needs no answer (and the program takes a second there); an IGX kit does, because
    a discrete GPU may be fitted.
    """

    name = "nvidia-smi"
    priority = 30

    def detect(self, host: Host) -> Evidence:
        """Return the GPU's name, what it proves about the board, and discrete GPUs."""
        gpus = self._gpus(host)
        found: list[Observation] = []
        for gpu, source in gpus:
            told = {"name": "gpu_name", "value": gpu.name, "source": source}
            first = not any(item.name == "gpu_name" for item in found)
            if first or gpu.jetson:
                found.append(Observation(confidence="high" if gpu.integrated else "medium", **told))
            if gpu.jetson:
                found += self._jetson(gpu, source)
            elif "GB10" in gpu.name:
                found.append(Observation(name="is_jetson", value=False, source=source))
            elif gpu.discrete:
                value = {"name": gpu.name, "gpu_memory_total_mib": gpu.memory_total_mib}
                found.append(Observation(name="discrete_gpu", value=value, source=source))
        if any(item.name == "discrete_gpu" for item in found) and not any(gpu.jetson for gpu, _ in gpus):
            # Below every sign of a Jetson: an IGX kit with a card lists the card alone.
            found.append(Observation(name="is_jetson", value=False, source=gpus[0][1], confidence="low"))
        return Evidence(observations=tuple(found))

    @staticmethod
    def _jetson(gpu: Gpu, source: str) -> list[Observation]:
        confidence: Confidence = "medium"
        values: dict[str, object] = {"is_jetson": True}
        if gpu.thor:
            named = identity.from_model_text(f"NVIDIA {gpu.name}")
            values |= {"family": "thor", "soc": "tegra264"} | ({"module": named.module} if named.module else {})
        elif "Orin" in gpu.name:
            values["soc"] = "tegra234"
        return [
            Observation(name=name, value=value, source=source, confidence=confidence) for name, value in values.items()
        ]

    @staticmethod
    def _gpus(host: Host) -> list[tuple[Gpu, str]]:
        if host.live and NvidiaSmiDetector._not_needed(host):
            return []
        found: list[tuple[Gpu, str]] = []
        done = host.run(QUERY, timeout=8.0)
        if done is not None:
            found += [(gpu, "nvidia-smi --query-gpu") for gpu in parse_csv(done.stdout, _columns(done))]
        if not host.live:
            for argv, parse in ((TABLE, parse_table), (LIST, parse_list)):
                done = host.run(argv)
                if done is not None:
                    found += [(gpu, " ".join(argv)) for gpu in parse(done.stdout)]
        # The answer that knows the memory speaks for the same GPU in the others.
        return sorted(found, key=lambda item: item[0].memory_total_mib is None)

    @staticmethod
    def _not_needed(host: Host) -> bool:
        for tree in TREES:
            data = host.read_bytes(f"{tree}/compatible", limit=64 * 1024)
            if data:
                proved = identity.from_compatible(data.decode("utf-8", errors="replace").split("\0"))
                return proved.is_jetson is True and proved.family not in (None, "igx_orin")
        return False
