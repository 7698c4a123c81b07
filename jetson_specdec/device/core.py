# SPDX-License-Identifier: Apache-2.0
"""What a board is, and what one detector may say about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.host import Host
from jetson_specdec.values import frozen

__all__ = ["Confidence", "Detector", "Device", "Evidence", "Observation", "Runtime", "SpeculationAllowed"]

Confidence = Literal["high", "medium", "low"]
SpeculationAllowed = Literal["eagle3_and_draft", "no", "unknown"]
Runtime = Literal["upstream_vllm", "nvidia_ai_iot", "unsupported", "unknown"]


@frozen(kw_only=True)
class Observation:
    """One field as one source told it.

    Attributes:
        name: the name of a `Device` field, or a hint that only merging reads: `soc` (`tegra234`), `older_family` (a
            family before Xavier, by name), `model_text` (what the device tree calls the board) and `discrete_gpu`
            (`{name, gpu_memory_total_mib}`, of a GPU with memory of its own).
        value: what the source says; never None (say nothing instead).
        source: a file path, a command, `jtop`, `jetson-memory-audit`, `named`, or an inference such as
            `memory total of the orin family`.
        confidence: how far this source can be trusted for this field.
    """

    name: str
    value: Any
    source: str
    confidence: Confidence = "high"


@frozen(kw_only=True)
class Evidence:
    """What one detector found: observations, and what it noticed on the way."""

    observations: tuple[Observation, ...] = ()
    findings: tuple[Finding, ...] = ()


@runtime_checkable
class Detector(Protocol):
    """Looks at a host and says what it sees; it neither decides nor raises."""

    @property
    def name(self) -> str:
        """A short name, shown in findings."""

    @property
    def priority(self) -> int:
        """Among sources of equal confidence the higher priority wins."""

    def detect(self, host: Host) -> Evidence:
        """Return what this detector finds; empty evidence where it does not apply."""


@frozen(kw_only=True)
class Device:
    """A board, as far as it could be known. None is "unknown" throughout.

    Attributes:
        is_jetson: whether it is a Jetson (an IGX Orin counts), or None.
        family: `thor`, `agx_orin`, `orin_nx`, `orin_nano`, `igx_orin`, `agx_xavier`, `xavier_nx`.
        module: such as `thor-t5000` or `agx-orin-64gb`; a key of the device table.
        l4t: Linux for Tegra release, such as `36.4.7`.
        jetpack: such as `6.2.1`.
        memory_total_bytes: MemTotal (after carve-outs), shared by CPU and GPU.
        memory_available_bytes: MemAvailable; page cache that can be given back counts as available.
        power_mode: name without the id, such as `MAXN` or `MODE_30W`.
        power_mode_is_max: whether that is a top mode of this board.
        gpu_name: as `nvidia-smi` prints it.
        in_container: whether this was seen from inside a container.
        speculation_allowed: the rule of the family.
        runtime: the kind of vLLM that runs on this board and release.
        memory_bandwidth_gb_s: peak of the module in GB/s (10⁹), from the device table.
        sources: field → where it was read.
        confidence: field → how sure that is.
        findings: what the user should know about this board.
    """

    is_jetson: bool | None = None
    family: str | None = None
    module: str | None = None
    l4t: str | None = None
    jetpack: str | None = None
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    power_mode: str | None = None
    power_mode_is_max: bool | None = None
    gpu_name: str | None = None
    in_container: bool | None = None
    speculation_allowed: SpeculationAllowed = "unknown"
    runtime: Runtime = "unknown"
    memory_bandwidth_gb_s: float | None = None
    sources: Mapping[str, str] = field(factory=dict)
    confidence: Mapping[str, Confidence] = field(factory=dict)
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of `detect --json`."""
        import attrs

        values = attrs.asdict(self, recurse=False)
        values["sources"] = dict(self.sources)
        values["confidence"] = dict(self.confidence)
        values["findings"] = [finding.to_json() for finding in self.findings]
        return {"schema_version": 1, **values}
