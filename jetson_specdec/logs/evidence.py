# SPDX-License-Identifier: Apache-2.0
"""What is known beside the log: memory, recipe, board, configurations of target and draft; nothing here is required."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field

from jetson_specdec.findings import Finding
from jetson_specdec.logs.attempt import Attempt
from jetson_specdec.logs.kernel import KernelLog, read_kernel_log
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.recipe.core import Recipe

__all__ = ["Evidence", "gather"]

GIB = 2**30


@frozen(kw_only=True)
class Evidence:
    """What is known beside the log.

    Attributes:
        kernel: the kernel log's lines about memory.
        total_gib, available_gib: MemTotal and MemAvailable.
        l4t: such as `36.4.7`.
        arguments: flags of the recipe by the engine's own names (`gpu_memory_utilization`), where it is certain.
        speculative_config: of the recipe; None where it has none or it is not known.
        speculates: whether the recipe speculates; None where there is no recipe or it cannot be told.
        target_vocab, draft_vocab: vocabulary sizes of the two configurations.
        exit_code: how the process ended.
        findings: what could not be used.
    """

    kernel: KernelLog = field(factory=KernelLog)
    total_gib: float | None = None
    available_gib: float | None = None
    l4t: str | None = None
    arguments: Mapping[str, Any] = field(factory=dict)
    speculative_config: Mapping[str, Any] | None = None
    speculates: bool | None = None
    target_vocab: int | None = None
    draft_vocab: int | None = None
    exit_code: int | None = None
    findings: tuple[Finding, ...] = ()

    def argument(self, attempt: Attempt, name: str) -> Any:
        """Return an argument in force: what the log shows, else what the recipe says."""
        return attempt.arguments.get(name) if attempt.arguments is not None else self.arguments.get(name)

    def speculation(self, attempt: Attempt) -> bool | None:
        """Whether the start speculated: what the log shows, else what the recipe says."""
        return attempt.speculates if attempt.speculates is not None else self.speculates

    def speculative(self, attempt: Attempt, key: str) -> Any:
        """Return a key of the speculative configuration, from the log or the recipe."""
        shown = attempt.speculative_config.get(key)
        return shown if shown is not None else (self.speculative_config or {}).get(key)

    def release(self, attempt: Attempt) -> EngineRelease | None:
        """Return the release that the log names, or None."""
        from jetson_specdec.engine.release import release_from_version
        from jetson_specdec.errors import ReleaseError

        try:
            return release_from_version(attempt.version) if attempt.version else None
        except ReleaseError:
            return None


def gather(
    *,
    dmesg: str | None,
    meminfo: str | None,
    recipe: Recipe | str | None,
    exit_code: int | None,
    nv_tegra_release: str | None,
    target_config: Mapping[str, Any] | str | None,
    draft_config: Mapping[str, Any] | str | None,
) -> Evidence:
    """Read what stands beside a log. What cannot be read is left out and said in `findings`."""
    findings: list[Finding] = []
    sizes = _meminfo(meminfo)
    if meminfo and "MemTotal" not in sizes:
        findings.append(Finding.of("JSD741", input="meminfo"))
    flags, config, speculates = _recipe(recipe, findings)
    return Evidence(
        kernel=read_kernel_log(dmesg),
        total_gib=_gib(sizes.get("MemTotal")),
        available_gib=_gib(sizes.get("MemAvailable")),
        l4t=_l4t(nv_tegra_release),
        arguments=flags,
        speculative_config=config,
        speculates=speculates,
        target_vocab=_vocabulary(target_config),
        draft_vocab=_vocabulary(draft_config),
        exit_code=exit_code,
        findings=tuple(findings),
    )


def _meminfo(text: str | None) -> Mapping[str, int]:
    if not text:
        return {}
    from jetson_specdec.device.memory import parse_meminfo

    return parse_meminfo(text[: 1 << 20])


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _l4t(text: str | None) -> str | None:
    if not text:
        return None
    from jetson_specdec.device.l4t import parse_release_file

    found = parse_release_file(text[: 1 << 16])
    return None if found is None or found.stub else found.l4t


def _vocabulary(config: Mapping[str, Any] | str | None) -> int | None:
    if isinstance(config, str):
        try:
            config = json.loads(config)
        except (ValueError, RecursionError):
            return None
    if not isinstance(config, Mapping):
        return None
    for holder in (config, config.get("text_config")):
        size = holder.get("vocab_size") if isinstance(holder, Mapping) else None
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size
    return None


def _recipe(
    recipe: Recipe | str | None, findings: list[Finding]
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, bool | None]:
    if recipe is None:
        return {}, None, None
    from jetson_specdec.errors import RecipeError
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.load import parse_recipe
    from jetson_specdec.recipe.speculation import read_speculation

    try:
        parsed = parse_recipe(recipe) if isinstance(recipe, str) else recipe
    except RecipeError:
        findings.append(Finding.of("JSD741", input="recipe"))
        return {}, None, None
    commands = [command for command in parsed.commands if command.engine == "vllm"]
    if len(commands) != 1:
        # Which of several commands wrote the log is not known.
        findings.append(Finding.of("JSD742", commands=len(commands)))
        return {}, None, None
    flags = ServeFlags.read(commands[0])
    spec = read_speculation(flags)
    named = {
        "model": flags.model,
        "gpu_memory_utilization": flags.gpu_memory_utilization,
        "max_model_len": flags.max_model_len,
        "max_num_seqs": flags.max_num_seqs,
    }
    config = dict(spec.config or {})
    for key, value in (("method", spec.method), ("model", spec.model)):
        if value is not None:
            config.setdefault(key, value)
    speculates = None if spec.state == "by_reference" else spec.active or spec.state == "broken"
    return {name: value for name, value in named.items() if value is not None}, config or None, speculates
