# SPDX-License-Identifier: Apache-2.0
"""What the observations of all detectors make together: one board, its rules, and what does not fit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field

from jetson_specdec.device import tables
from jetson_specdec.device.core import Confidence, Device, Evidence, Observation, Runtime, SpeculationAllowed
from jetson_specdec.device.judge import board_findings, release_findings
from jetson_specdec.findings import Finding
from jetson_specdec.values import frozen

__all__ = ["merge", "runtime_for", "speculation_for"]

_RANK: Mapping[Confidence, int] = {"high": 2, "medium": 1, "low": 0}
_TRUE_OF_ANY_MACHINE = ("jtop", "detector-failed", "plugin-broken", "release-stub", "release-env-mismatch")
"""Topics that detectors notice and that stay worth saying where there is no Jetson."""


@frozen(kw_only=True)
class Ranked:
    """Observations of one board, best first for each name."""

    by_name: Mapping[str, Sequence[Observation]] = field(factory=dict)

    @classmethod
    def of(cls, evidence: Iterable[tuple[int, Evidence]]) -> Ranked:
        """Order by confidence, then by the priority of the detector, then as given."""
        rows: dict[str, list[tuple[int, int, Observation]]] = {}
        for priority, found in evidence:
            for item in found.observations:
                rows.setdefault(item.name, []).append((_RANK[item.confidence], priority, item))
        return cls(
            by_name={
                name: [row[2] for row in sorted(items, key=lambda row: (-row[0], -row[1]))]
                for name, items in rows.items()
            }
        )

    def all(self, name: str) -> Sequence[Observation]:
        """Return every observation of a name, best first."""
        return self.by_name.get(name, ())

    def best(self, name: str) -> Observation | None:
        """Return the best observation of a name, or None."""
        return next(iter(self.all(name)), None)

    def value(self, name: str) -> Any:
        """Return the best value of a name, or None."""
        best = self.best(name)
        return best.value if best is not None else None


@frozen(kw_only=True)
class Identified:
    """Family and module after weighing names against memory."""

    family: Observation | None = None
    module: Observation | None = None
    findings: tuple[Finding, ...] = ()
    trusted: bool = True
    """False where the memory fits no module of the family: then a rule that allows something does not hold."""


def speculation_for(family: str | None, generation: str | None = None) -> SpeculationAllowed:
    """Return the rule of a family; boards before Orin never speculate, whichever they are."""
    entry = tables.family(family)
    if entry is not None:
        return entry.speculation
    return "no" if generation in ("xavier", "older") else "unknown"


def runtime_for(family: str | None, l4t: str | None, generation: str | None = None) -> Runtime:
    """Return which kind of vLLM runs on a family and release.

    Thor runs upstream whatever its release; an Orin runs upstream from L4T 39 on, NVIDIA's Jetson image on L4T 36 and
    nothing on 35 or older. An Orin on a release that does not exist for it (37, 38) is unknown.
    """
    entry = tables.family(family)
    generation = entry.generation if entry is not None else generation
    major = int(l4t.split(".")[0]) if l4t else None
    if generation in ("xavier", "older"):
        return "unsupported"
    if entry is None:
        return "unknown"
    if entry.runtime == "upstream":
        return "upstream_vllm"
    if major is None:
        return "unknown"
    if major <= 35:
        return "unsupported"
    if major >= 39:
        return "upstream_vllm"
    return "nvidia_ai_iot" if major == 36 else "unknown"


def merge(evidence: Sequence[tuple[int, Evidence]]) -> Device:
    """Merge evidence, given with the priority of its detector, into one device.

    For each field the best confidence wins, then the higher priority. Contradictions become findings; where memory
    contradicts a module, the module is unknown.
    """
    ranked = Ranked.of(evidence)
    noticed = [finding for _, found in evidence for finding in found.findings]
    jetson = ranked.best("is_jetson")
    if jetson is not None and jetson.value is False:
        return _not_a_jetson(ranked, jetson, noticed)

    l4t = ranked.best("l4t")
    generation = _generation(ranked)
    identified = _identify(ranked, l4t, generation)
    family = identified.family.value if identified.family else None
    module = identified.module.value if identified.module else None
    entry = tables.family(family)
    generation = entry.generation if entry is not None else generation
    release = l4t.value if l4t is not None else None
    jetpack = tables.jetpack_of(release) if release else None
    discrete = ranked.best("discrete_gpu")

    speculation = speculation_for(family, generation)
    runtime = runtime_for(family, release, generation)
    if discrete is not None and generation in ("orin", "thor"):
        # CUDA then works in the card's own memory: what holds for the integrated GPU holds no more.
        runtime = "unknown"
        speculation = "no" if speculation == "no" else "unknown"
    if not identified.trusted and speculation != "no":
        speculation = "unknown"

    picked: dict[str, Observation] = {}
    for name in (
        "is_jetson",
        "memory_total_bytes",
        "memory_available_bytes",
        "power_mode",
        "power_mode_is_max",
        "gpu_name",
        "in_container",
    ):
        best = ranked.best(name)
        if best is not None:
            picked[name] = best
    weighed = {"family": identified.family, "module": identified.module, "l4t": l4t}
    picked |= {name: item for name, item in weighed.items() if item is not None}
    if "is_jetson" not in picked and (family is not None or generation is not None):
        known = identified.family or ranked.best("soc") or ranked.best("older_family")
        if known is not None:
            picked["is_jetson"] = Observation(
                name="is_jetson", value=True, source=known.source, confidence=known.confidence
            )
    if jetpack is not None and l4t is not None:
        sure = min(jetpack[1], l4t.confidence, key=_RANK.__getitem__)
        picked["jetpack"] = Observation(
            name="jetpack", value=jetpack[0], source=f"release table (L4T {release})", confidence=sure
        )
    found_module = tables.module(module)
    bandwidth = found_module.bandwidth_in(ranked.value("power_mode")) if found_module is not None else None
    if bandwidth is not None and found_module is not None:
        picked["memory_bandwidth_gb_s"] = Observation(
            name="memory_bandwidth_gb_s",
            value=float(bandwidth),
            source=f"device table ({', '.join(found_module.source)})",
            confidence=found_module.confidence,
        )
    if speculation != "unknown":
        rule = f"rule of the family ({entry.name if entry else generation})"
        picked["speculation_allowed"] = Observation(name="speculation_allowed", value=speculation, source=rule)
    if runtime != "unknown":
        rule = f"rule of the family and release ({entry.name if entry else generation}, L4T {release or 'any'})"
        picked["runtime"] = Observation(name="runtime", value=runtime, source=rule)

    device = _device(picked, ())
    context = {
        "generation": generation,
        "older": ranked.value("older_family"),
        "model_text": ranked.value("model_text"),
        "discrete": discrete.value if discrete is not None else None,
        "l4t_observation": l4t,
    }
    findings = (
        *identified.findings,
        *board_findings(device, context),
        *release_findings(device, context),
        *noticed,
    )
    return _device(picked, _unique(findings))


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Drop doubles; a finding's values may hold lists, so there is nothing to hash."""
    kept: list[Finding] = []
    for finding in findings:
        if finding not in kept:
            kept.append(finding)
    return tuple(kept)


def _device(picked: Mapping[str, Observation], findings: tuple[Finding, ...]) -> Device:
    values = {name: item.value for name, item in picked.items()}
    return Device(
        **values,
        sources={name: item.source for name, item in picked.items()},
        confidence={name: item.confidence for name, item in picked.items()},
        findings=findings,
    )


def _not_a_jetson(ranked: Ranked, jetson: Observation, noticed: Iterable[Finding]) -> Device:
    """Say why it is none, and keep only what is true of any machine."""
    gpu = ranked.value("gpu_name")
    model = ranked.best("model_text")
    discrete = ranked.value("discrete_gpu")
    if model is not None and (jetson.source == model.source or jetson.source.endswith("/compatible")):
        reason = Finding.of("JSD101", model=model.value, where=model.source)
    elif jetson.source.startswith("nvidia-smi"):
        reason = Finding.of("JSD102", gpu=gpu, where=jetson.source)
    else:
        reason = Finding.of("JSD103", where=jetson.source)
    findings = [reason]
    if discrete is not None:
        findings.append(Finding.of("JSD104", **discrete))
    findings += [item for item in noticed if item.topic in _TRUE_OF_ANY_MACHINE]
    if ranked.value("in_container"):
        findings.append(Finding.of("JSD160"))
    names = ("is_jetson", "memory_total_bytes", "memory_available_bytes", "gpu_name", "in_container")
    picked = {name: best for name in names if (best := ranked.best(name)) is not None}
    return _device(picked, tuple(findings))


def _generation(ranked: Ranked) -> str | None:
    """Return `thor`, `orin`, `xavier` or `older`, from the chip or from the name of a family before Xavier."""
    if ranked.best("older_family") is not None:
        return "older"
    soc = ranked.value("soc")
    return tables.board_data()["socs"].get(soc) if soc else None


def _identify(ranked: Ranked, l4t: Observation | None, generation: str | None) -> Identified:
    """Weigh the names of family and module against each other and against the memory."""
    findings: list[Finding] = []
    family = ranked.best("family")
    others = [item for item in ranked.all("family") if family is not None and item.value != family.value]
    only = tables.l4t_generations(l4t.value) if l4t is not None and l4t.confidence != "low" else ()
    if family is None and generation is None and l4t is not None and only == ("thor",):
        # R38 was built for Thor only: the one release that tells a family.
        source = f"{l4t.source} (L4T {l4t.value})"
        family = Observation(name="family", value="thor", source=source, confidence="medium")
    if family is None:
        return Identified()
    others = [item for item in others if not _same_board(family.value, item.value)]
    if others:
        findings.append(
            Finding.of(
                "JSD113", field="family", first=family.value, where=family.source, second=others[0].value,
                other=others[0].source,
            )
        )  # fmt: skip
    memory = ranked.best("memory_total_bytes")
    total = memory.value if memory is not None else None
    named = [item for item in ranked.all("module") if _family_of(item.value) == family.value]
    module, conflict, trusted = _module(family, named, memory, total)
    findings += conflict
    return Identified(family=family, module=module, findings=tuple(findings), trusted=trusted)


def _same_board(first: str, second: str) -> bool:
    """An IGX kit carries an AGX Orin module and may say so."""
    return {first, second} == {"igx_orin", "agx_orin"}


def _family_of(module: str) -> str | None:
    entry = tables.module(module)
    return entry.family if entry is not None else None


def _module(
    family: Observation, named: Sequence[Observation], memory: Observation | None, total: int | None
) -> tuple[Observation | None, list[Finding], bool]:
    if family.source == "named" or (named and named[0].source == "named"):
        return (named[0] if named and named[0].source == "named" else None), [], True
    if total is None or memory is None:
        values = {item.value for item in named if item.confidence == named[0].confidence}
        if len(values) > 1:
            conflict = Finding.of(
                "JSD113", field="module", first=named[0].value, where=named[0].source,
                second=named[1].value, other=named[1].source,
            )  # fmt: skip
            return None, [conflict], True
        return (named[0] if named else None), [], True
    fitting = [item for item in named if (entry := tables.module(item.value)) and tables.fits_memory(entry, total)]
    by_memory = tables.modules_by_memory(family.value, total)
    possible = bool(by_memory) or bool(fitting) or not _has_thresholds(family.value)
    if named and not fitting:
        entry = tables.module(named[0].value)
        conflict = Finding.of(
            "JSD112", name=entry.name if entry else named[0].value, where=named[0].source, total=total,
            memory_source=memory.source,
        )  # fmt: skip
        return None, [conflict], possible
    if fitting:
        findings = []
        if fitting[0] is not named[0]:
            findings.append(
                Finding.of(
                    "JSD113", field="module", first=fitting[0].value, where=fitting[0].source,
                    second=named[0].value, other=named[0].source,
                )
            )  # fmt: skip
        return fitting[0], findings, True
    if not possible:
        entry_family = tables.family(family.value)
        conflict = Finding.of(
            "JSD112", name=entry_family.name if entry_family else family.value, where=family.source, total=total,
            memory_source=memory.source,
        )  # fmt: skip
        return None, [conflict], False
    if len(by_memory) == 1:
        source = f"{memory.source} (memory of the {family.value} family)"
        sure: Confidence = "low" if memory.confidence == "low" else "medium"
        return Observation(name="module", value=by_memory[0].key, source=source, confidence=sure), [], True
    return None, [], True


def _has_thresholds(family: str) -> bool:
    return any(
        entry.family == family and entry.memory_gib_min is not None and family != "igx_orin"
        for entry in tables.modules().values()
    )
