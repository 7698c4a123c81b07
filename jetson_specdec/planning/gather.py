# SPDX-License-Identifier: Apache-2.0
"""From what a user hands over to a `Situation`: the reading half of planning. All of it goes through a `Host`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from attrs import evolve

from jetson_specdec.errors import CommandChoiceError, OptionError
from jetson_specdec.findings import Finding
from jetson_specdec.models.naming import is_path, is_repository_id
from jetson_specdec.policy import DEFAULT_POLICY, Policy
from jetson_specdec.strategies.core import Situation
from jetson_specdec.values import frozen

if TYPE_CHECKING:
    from jetson_specdec.device.core import Device
    from jetson_specdec.engine.core import EngineRelease
    from jetson_specdec.host import Host
    from jetson_specdec.measurements import BenchReport
    from jetson_specdec.models.catalog import Catalog
    from jetson_specdec.models.core import DraftPair, Head, TargetIdentity, TargetRecord
    from jetson_specdec.models.locate import Locator
    from jetson_specdec.models.profile import ModelProfile
    from jetson_specdec.recipe.core import Recipe, ServeCommand
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.handover import MemTune

__all__ = ["Wishes", "choose_command", "gather"]

CONTAINER_LAUNCHERS = ("docker", "podman", "nerdctl", "jetson-containers", "compose", "kubernetes")


@frozen(kw_only=True)
class Wishes:
    """What the user asked for beside the recipe; None is "not said".

    Attributes:
        target: model id that is served, where the recipe does not tell.
        head: EAGLE-3 head to use.
        draft: draft model to use.
        concurrency: requests at once the owner cares about.
        vllm_version: release, where the recipe does not tell.
        baseline: a benchmark of the recipe as it is.
        mem_tune: what `jetson-inference-mem-tune` advised.
    """

    target: str | None = None
    head: str | None = None
    draft: str | None = None
    concurrency: int = 1
    vllm_version: str | None = None
    baseline: BenchReport | None = None
    mem_tune: MemTune | None = None

    def __attrs_post_init__(self) -> None:
        """Check what can be checked without a recipe.

        Raises:
            OptionError: head and draft exclude each other; concurrency must be at least 1.
        """
        if self.head is not None and self.draft is not None:
            raise OptionError("JSE503")
        if isinstance(self.concurrency, bool) or not isinstance(self.concurrency, int) or self.concurrency < 1:
            raise OptionError("JSE504", value=self.concurrency)
        for option, value in (("--target", self.target), ("--head", self.head), ("--draft", self.draft)):
            if value is not None and not _plausible_id(value, bare=option == "--target"):
                raise OptionError("JSE505", option=option, value=value)


def _plausible_id(text: str, *, bare: bool) -> bool:
    """A repository id or a path (or, with `bare`, a name of its own): no white space, no option, nothing empty."""
    if not text or text.startswith("-") or any(char.isspace() or ord(char) < 32 for char in text):
        return False
    return bare or is_path(text) or "/" in text


def choose_command(recipe: Recipe, index: int | None) -> ServeCommand:
    """Return the serve command to plan for.

    Raises:
        CommandChoiceError: there are several and none was chosen, or the number is out of range.
    """
    commands = recipe.commands
    if index is None:
        if len(commands) > 1:
            raise CommandChoiceError(
                "JSE502",
                path=recipe.path or "the recipe",
                count=len(commands),
                lines=[command.line for command in commands],
            )
        return commands[0]
    if not 0 <= index < len(commands):
        raise CommandChoiceError("JSE501", index=index, count=len(commands))
    return commands[index]


def gather(
    recipe: Recipe,
    command: ServeCommand,
    *,
    device: Device,
    host: Host,
    catalog: Catalog,
    wishes: Wishes,
    policy: Policy = DEFAULT_POLICY,
) -> Situation:
    """Read everything a decision needs and put it into one value."""
    from jetson_specdec.models.local import is_offline
    from jetson_specdec.recipe.config_file import find_config
    from jetson_specdec.recipe.flags import ServeFlags
    from jetson_specdec.recipe.speculation import read_speculation

    release = release_of(command, wishes.vllm_version)
    config = find_config(recipe, command, host=host)
    flags = ServeFlags.read(command, release, config)
    identity = _identify(recipe, command, flags.model, host=host, catalog=catalog, named=wishes.target)
    speculation = read_speculation(flags, verifier_of=_verifier_of(catalog), target_config=identity.config)
    record = catalog.target(identity.base) if identity.base is not None else None
    heads, pairs = _candidates(catalog, identity)
    offline = is_offline(command.env)
    simulated = wishes.baseline is not None and wishes.baseline.simulated
    profile, damaged = _profile(identity, record, flags, host)
    situation = Situation(
        device=device,
        release=release,
        recipe=recipe,
        command=command,
        flags=flags,
        speculation=speculation,
        identity=identity,
        record=record,
        profile=profile,
        damaged=damaged,
        heads=heads,
        pairs=pairs,
        head_wanted=wishes.head,
        head_record=catalog.head(wishes.head) if wishes.head else None,
        draft_wanted=wishes.draft,
        draft_record=next((pair for pair in pairs if pair.draft == wishes.draft), None),
        head_near_misses=catalog.near_misses(wishes.head, kind="head") if wishes.head else (),
        concurrency=wishes.concurrency,
        baseline=None if simulated else wishes.baseline,
        baseline_simulated=simulated,
        baseline_base=_base_of(wishes.baseline, catalog),
        mem_tune=wishes.mem_tune,
        offline=offline,
        policy=policy,
    )
    _check_wishes(wishes, situation, catalog)
    situation = _with_speculator(situation, catalog)
    situation = _with_local_drafter(situation, wishes.head or wishes.draft, host)
    if not offline:
        return situation
    repos = {head.id for head in heads} | {pair.draft for pair in pairs}
    repos |= {name for name in (wishes.head, wishes.draft, speculation.model) if name}
    return evolve(situation, cached=_cached(repos, _locator(recipe, command, host)))


def release_of(command: ServeCommand, named: str | None) -> EngineRelease:
    """Return the engine's release: as named by the user, else from the image, else bounded by the flags in use."""
    from jetson_specdec.engine.release import from_flags, release_from_image, release_from_version

    from_image = release_from_image(command.image)
    if named is not None:
        release = release_from_version(named, source="named", image=command.image)
        return evolve(release, distribution=from_image.distribution, floating=from_image.floating)
    words = [arg.value for arg in command.args if arg.value is not None and arg.value.startswith("-")]
    return from_flags(words, from_image)


def _base_of(report: BenchReport | None, catalog: Catalog) -> str | None:
    record = catalog.target(report.model) if report is not None and report.model else None
    return record.id if record is not None else None


def _identify(
    recipe: Recipe, command: ServeCommand, served: str | None, *, host: Host, catalog: Catalog, named: str | None
) -> TargetIdentity:
    from jetson_specdec.models.identify import identify_target

    return identify_target(
        served,
        host=host,
        mounts=command.mounts,
        in_container=command.launcher in CONTAINER_LAUNCHERS,
        workdir=command.workdir,
        recipe_path=recipe.path,
        env=command.env,
        catalog=catalog,
        named=named,
    )


def _verifier_of(catalog: Catalog) -> Callable[[str], str | None]:
    def find(head_id: str) -> str | None:
        head = catalog.head(head_id)
        return head.target if head is not None else None

    return find


def _candidates(catalog: Catalog, identity: TargetIdentity) -> tuple[tuple[Head, ...], tuple[DraftPair, ...]]:
    if identity.base is None:
        return (), ()
    return catalog.heads_for(identity.base, served=identity.id), catalog.pairs_for(identity.base)


def _profile(
    identity: TargetIdentity, record: TargetRecord | None, flags: ServeFlags, host: Host
) -> tuple[ModelProfile | None, tuple[Finding, ...]]:
    """Return the target's shape and sizes (from its files, else its config, else the catalogue), and damaged files."""
    from jetson_specdec.errors import ModelError
    from jetson_specdec.models.profile import profile_from_catalogue, profile_from_config

    quantization = flags.quantization
    damaged: tuple[Finding, ...] = ()
    if identity.how != "speculators" and identity.config is not None:
        if identity.folder is not None and quantization is None:
            from jetson_specdec.models.local import profile_from_dir

            try:
                read = profile_from_dir(host, identity.folder, id=identity.id, dtype=flags.dtype)
            except ModelError as error:
                damaged = (Finding.of("JSD581", reason=str(error)),)  # the config still tells the shape
            else:
                return read, _missing(read)
        profile = profile_from_config(identity.config, id=identity.id, quantization=quantization, dtype=flags.dtype)
        return profile, damaged
    if record is None:
        return None, ()
    precision = identity.precision
    if precision is None:
        # The original repository of a model that ships quantised (gpt-oss) has no bf16 weights.
        precision = record.native_precision or "bf16"
    if quantization == "fp8" and precision == "bf16":
        precision = "fp8"  # vLLM quantises the linear layers while loading
    return profile_from_catalogue(record, precision), ()


def _missing(profile: ModelProfile) -> tuple[Finding, ...]:
    """Return what a model's folder lacks."""
    return tuple(finding for finding in profile.findings if finding.topic == "files-missing")


def _with_speculator(situation: Situation, catalog: Catalog) -> Situation:
    """Say whether the drafter that the recipe already uses is one the catalogue knows."""
    speculation = situation.speculation
    model = speculation.model
    if not speculation.active:
        model = situation.draft_wanted
    if model is None or not is_repository_id(model):
        return situation
    record = catalog.target(model)
    situation = evolve(
        situation,
        drafter_vocab=record.vocab_size if record is not None else None,
        drafter_bytes=record.weight_bytes.get("bf16") if record is not None else None,
    )
    if not speculation.active:
        return situation
    known = catalog.knows(model)
    near = () if known else catalog.near_misses(model, kind="head")
    return evolve(
        situation,
        speculator_known=known,
        speculator_near_misses=near,
        speculator_head=catalog.head(model),
    )


def _check_wishes(wishes: Wishes, situation: Situation, catalog: Catalog) -> None:
    """Check what the user named against the catalogue and the recipe.

    Raises:
        OptionError: it contradicts the recipe, or is another kind of thing than the option asks for.
        CatalogueError: a named target that nothing is known of, with nothing named to draft for it.
    """
    from jetson_specdec.errors import CatalogueError

    identity = situation.identity
    base = identity.base
    if wishes.target is not None:
        if base is None and wishes.head is None and wishes.draft is None and identity.folder is None:
            raise CatalogueError("JSE510", target=wishes.target, near=list(catalog.near_misses(wishes.target)))
        told = catalog.target(situation.flags.model) if situation.flags.model is not None else None
        if told is not None and base is not None and told.id != base:
            raise OptionError("JSE514", target=wishes.target, served=situation.flags.model)
    if wishes.draft is not None and base is not None and wishes.draft in (base, identity.id):
        raise OptionError("JSE515", draft=wishes.draft)
    if wishes.draft is not None and catalog.head(wishes.draft) is not None:
        raise OptionError("JSE516", draft=wishes.draft)
    if wishes.head is not None and catalog.head(wishes.head) is None and catalog.target(wishes.head) is not None:
        raise OptionError("JSE517", head=wishes.head)


def _with_local_drafter(situation: Situation, wanted: str | None, host: Host) -> Situation:
    """Read the named head or draft where it is a folder that can be seen."""
    if wanted is None or not is_path(wanted):
        return situation
    from jetson_specdec.errors import ModelError
    from jetson_specdec.models.local import profile_from_dir, read_tokenizer

    folder = _locator(situation.recipe, situation.command, host).find(wanted).folder
    if folder is None:
        return situation
    try:
        profile = profile_from_dir(host, folder)
    except ModelError as error:
        return evolve(situation, damaged=(*situation.damaged, Finding.of("JSD581", reason=str(error))))
    situation = evolve(situation, damaged=(*situation.damaged, *_missing(profile)))
    target = situation.identity.folder
    tokenizers = (read_tokenizer(host, target) if target else None, read_tokenizer(host, folder))
    return evolve(situation, drafter_profile=profile, tokenizers=tokenizers)


def _locator(recipe: Recipe, command: ServeCommand, host: Host) -> Locator:
    from jetson_specdec.models.locate import Locator

    return Locator(
        host=host,
        mounts=command.mounts,
        in_container=command.launcher in CONTAINER_LAUNCHERS,
        workdir=command.workdir,
        recipe_dir=str(PurePosixPath(recipe.path).parent) if recipe.path is not None else None,
        env=command.env,
    )


def _cached(repos: Iterable[str], locator: Locator) -> dict[str, bool]:
    """Look which repositories are in the model cache the recipe uses; nothing where that cache cannot be seen."""
    looked = {repo: locator.is_cached(repo) for repo in repos if is_repository_id(repo)}
    return {repo: cached for repo, cached in looked.items() if cached is not None}
