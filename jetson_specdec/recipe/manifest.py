# SPDX-License-Identifier: Apache-2.0
"""Kubernetes manifests: which containers start an engine, and with which words.

Containers are looked for wherever a `containers:` list stands (Pod, Deployment, StatefulSet, Job, CronJob, KServe's
ServingRuntime, …), and under `predictor: model:` of a KServe InferenceService. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import attrs

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.findings import Finding
from jetson_specdec.recipe.chars import HOLE
from jetson_specdec.recipe.compose_service import whole
from jetson_specdec.recipe.core import Mount, Recipe
from jetson_specdec.recipe.embedded import Located, Place, Word, line_of, locate, recipe_of
from jetson_specdec.recipe.embedded_notes import commented_alternatives, unshared
from jetson_specdec.recipe.manifest_env import ContainerEnv, config_maps, container_env, expand
from jetson_specdec.recipe.shell_launch import Launch
from jetson_specdec.recipe.shell_options import launchers
from jetson_specdec.recipe.yaml_scalar import is_text, scalar_start, scalar_style
from jetson_specdec.recipe.yaml_tree import documents, entries, is_map, is_scalar, item, items, value_of, walk

__all__ = ["manifest_recipe", "parse_manifest"]


def parse_manifest(text: str, *, path: str | None = None) -> Recipe:
    """Find the serve commands of a manifest (several documents are read together).

    Raises:
        RecipeSyntaxError: no YAML (JSE226), a key twice (JSE227), no container starts an engine (JSE240).
    """
    return manifest_recipe(text, path=path)[0]


def manifest_recipe(text: str, *, path: str | None) -> tuple[Recipe, list[Located]]:
    """Return the recipe, and where the words of its commands are written."""
    where = path or "the recipe"
    located, others = _read_all(text, where=where)
    if not located:
        raise RecipeSyntaxError("JSE240", where=where, form="a Kubernetes manifest", found=others[:8])
    return recipe_of(text, "manifest", path, located), located


class _Container(NamedTuple):
    node: Any
    pod: Any
    supplied: bool = False
    """Whether image and command come from a runtime that is named, not written."""
    uri: str | None = None
    """Where KServe takes the model from."""


def _read_all(text: str, *, where: str) -> tuple[list[Located], list[str]]:
    """Return the serve commands with their places, and the containers that start no engine."""
    roots = documents(text, where)
    maps = config_maps(roots)
    located: list[Located] = []
    owners: list[int] = []
    others: list[str] = []
    for root in roots:
        blocks = sorted(
            (node.start_mark.index, node.end_mark.index)
            for node in walk(root)
            if is_scalar(node) and scalar_style(node) in ("literal", "folded")
        )
        containers = sorted(_containers(root), key=lambda one: int(one.node.start_mark.index))
        for number, container in enumerate(containers):
            start = container.node.start_mark.index
            following = containers[number + 1].node.start_mark.index if number + 1 < len(containers) else None
            end = min(container.node.end_mark.index, following or container.node.end_mark.index)
            found = _read(text, container, maps)
            comments = commented_alternatives(text, start, end, blocks) if found else ()
            owners += [start] * len(found)
            for one in found:
                findings = (*one.command.findings, *comments)
                named = _model_named(container, one)
                runner = _runner(container, one)
                command = attrs.evolve(one.command, findings=findings, model_named=named, runner=runner)
                located.append(attrs.evolve(one, command=command))
            if not found:
                name = value_of(item(container.node, "name")) or "container"
                others.append(f"{name} (line {line_of(text, start)})")
    return unshared(located, owners), others


def _containers(root: Any) -> Iterator[_Container]:
    seen: set[int] = set()
    alone = (
        value_of(item(root, "spec", "model", "uri")) if value_of(item(root, "kind")) == "LLMInferenceService" else None
    )
    for node in walk(root):
        if not is_map(node):
            continue
        keys = entries(node)
        for one in items(keys.get("containers")):
            if is_map(one) and id(one) not in seen:
                seen.add(id(one))
                yield _Container(one, node, uri=alone)
        model = item(node, "predictor", "model")
        if is_map(model) and id(model) not in seen:
            seen.add(id(model))
            uri = value_of(item(model, "storageUri"))
            yield _Container(model, keys["predictor"], supplied=item(model, "image") is None, uri=uri)


def _runner(container: _Container, one: Located) -> str | None:
    """Return whose flags the words are beside vLLM's: those of KServe's own runtime, which it supplies or names."""
    table = launchers()["runners"]
    image = one.command.image or ""
    named = next((name for name, each in table.items() if each["image"] in image), None)
    return named or ("kserve-huggingface" if container.supplied else None)


def _model_named(container: _Container, one: Located) -> str | None:
    """Return the repository that KServe serves: `--model_id` of its Hugging Face runtime, or a `hf://` address."""
    if container.supplied:
        words = [arg.value or "" for arg in one.command.args]
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            if name in ("--model_id", "--model-id"):
                return value if equals else next(iter(words[at + 1 : at + 2]), None)
    if container.uri is None or not container.uri.startswith("hf://"):
        return None
    return container.uri.removeprefix("hf://").partition(":")[0].strip("/") or None


def _read(text: str, container: _Container, maps: Mapping[str, Mapping[str, str]]) -> list[Located]:
    keys = entries(container.node)
    env = container_env(keys, maps)
    findings: list[Finding] = []
    entry = _words(text, keys.get("command"), env, findings)
    words = _words(text, keys.get("args"), env, findings)
    nodes: list[Any] = [node for node in (keys.get("command"), keys.get("args")) if items(node)]
    nodes = nodes or [keys.get("image") or container.node]
    start = min(node.start_mark.index for node in nodes)
    end = max(_end(text, node) for node in nodes)
    if container.supplied:
        findings.append(Finding.of("JSD236", line=line_of(text, start)))
    findings += _references(text, [*(entry or ()), *(words or ())], env)
    image = value_of(keys.get("image"))
    launch = Launch(
        launcher="kubernetes",
        image=image,
        entrypoint=None if entry is None else tuple(word.value or "" for word in entry),
        env=env.values,
        mounts=_mounts(keys, entries(container.pod)),
        ports=_ports(keys),
        workdir=value_of(keys.get("workingDir")),
    )
    hugging_face = container.supplied and value_of(item(keys.get("modelFormat"), "name")) == "huggingface"
    place = Place(
        launch=launch,
        start=start,
        end=end,
        container=True,
        stands_for="kserve/huggingfaceserver" if hugging_face else "",
        findings=tuple(findings),
    )
    return locate(text, entry, words or (), place)


def _words(text: str, node: Any, env: ContainerEnv, findings: list[Finding]) -> list[Word] | None:
    if not items(node):
        return None
    words: list[Word] = []
    for one in items(node):
        if not is_scalar(one):
            continue
        if not is_text(one):
            line = line_of(text, one.start_mark.index)
            findings.append(Finding.of("JSD295", line=line, written=str(one.value)))
        words.append(
            Word(
                chars=tuple(expand(whole(text, one), env.values)),
                start=scalar_start(text, one),
                end=one.end_mark.index,
                style=scalar_style(one),
                outer=("dollar",),
                node=one,
                parent=node,
            )
        )
    return words


def _references(text: str, words: list[Word], env: ContainerEnv) -> list[Finding]:
    """Say where values come from that are not in the manifest, and which names nothing sets."""
    found: dict[str, int] = {}
    for word in words:
        for char in word.chars:
            if char.text == HOLE and char.note is not None:
                for name in char.note.unresolved:
                    found.setdefault(name, line_of(text, char.start))
    findings = [
        Finding.of("JSD234", line=line, name=name, origin=env.origins[name])
        for name, line in found.items()
        if name in env.origins
    ]
    lost = [name for name in found if name not in env.values]
    if lost and env.complete:
        findings.append(Finding.of("JSD235", line=found[lost[0]], names=lost))
    return findings


def _mounts(container: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[Mount, ...]:
    hosts = {
        name: value_of(item(volume, "hostPath", "path"))
        for volume in items(pod.get("volumes"))
        if (name := value_of(item(volume, "name")))
    }
    found: list[Mount] = []
    for mount in items(container.get("volumeMounts")):
        inside, name = value_of(item(mount, "mountPath")), value_of(item(mount, "name"))
        if not inside:
            continue
        host = hosts.get(name or "")
        part = value_of(item(mount, "subPath"))
        if host and part:
            host = f"{host.rstrip('/')}/{part}"
        read_only = (value_of(item(mount, "readOnly")) or "").lower() == "true"
        found.append(Mount(host=host, container=inside, read_only=read_only))
    return tuple(found)


def _ports(container: Mapping[str, Any]) -> tuple[str, ...]:
    found: list[str] = []
    for port in items(container.get("ports")):
        inside, host = value_of(item(port, "containerPort")), value_of(item(port, "hostPort"))
        if inside and host:
            found.append(f"{host}:{inside}")
    return tuple(found)


def _end(text: str, node: Any) -> int:
    start = node.start_mark.index
    leaves = [one.end_mark.index for one in walk(node) if is_scalar(one)]
    end = node.end_mark.index if is_scalar(node) or node.flow_style else max(leaves, default=start)
    return int(start + len(text[start:end].rstrip()))
