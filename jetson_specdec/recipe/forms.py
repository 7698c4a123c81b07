# SPDX-License-Identifier: Apache-2.0
"""Which form a recipe text is in, judged by its content and never by its name."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from jetson_specdec.recipe.core import Form

__all__ = ["recognise", "template_line"]


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[str]]:
    return {
        "section": re.compile(r"^\[(Unit|Service|Install|Container)\]\s*$", re.MULTILINE),
        "exec": re.compile(r"^Exec(Start|StartPre)\s*=", re.MULTILINE),
        "services": re.compile(r"^(?:services|include)\s*:", re.MULTILINE),
        "compose_start": re.compile(r"^(services|version|name|networks|volumes|x-[\w-]+|include|configs|secrets)\s*:"),
        "manifest_start": re.compile(r"^(- )?(apiVersion|kind|metadata|spec|containers|template|initContainers)\s*:"),
        "service_body": re.compile(r"^\s*(image|command|container_name)\s*:", re.MULTILINE),
        "containers": re.compile(r"^\s*-?\s*(containers|apiVersion|kind|initContainers)\s*:", re.MULTILINE),
        "key": re.compile(r"^[\"']?[A-Za-z][\w.-]*[\"']?\s*:(\s|$)"),
        "python_import": re.compile(r"^\s*(from\s+vllm[\w.]*\s+import\s|import\s+vllm\b)", re.MULTILINE),
        "python_call": re.compile(r"\b(LLM|AsyncLLM|EngineArgs|AsyncEngineArgs)\s*\("),
        "flow": re.compile(r"\{\s*[\"']?(?:(apiVersion|kind|metadata|spec|containers)|services)[\"']?\s*:"),
        # of a Helm template; KServe's own `{{.Name}}` is none
        "helm": re.compile(r"\{\{-?[^{}\n]*\.(?:Values|Release|Chart|Capabilities|Files)\b"),
        "serve": re.compile(r"^\s*[^#\n]*\bvllm\s+serve\b", re.MULTILINE),
    }


def _first_line(text: str) -> str:
    """Return the first line that says something: no comment, no `---`, no YAML directive."""
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#") and line.strip() != "---" and line[:1] != "%":
            return line
    return ""


def _json_form(text: str) -> Form | None:
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    if "launch_flags" in data:
        return "mem_tune"
    if "services" in data:
        return "compose"
    if "apiVersion" in data or "containers" in data:
        return "manifest"
    return "config_file" if _known_keys(list(data)) else None


def _known_keys(keys: list[str]) -> bool:
    """Whether one of the keys is a flag of vLLM."""
    from jetson_specdec.recipe.occurrences import resolve

    return any(resolve(f"--{key}").kind in ("exact", "alias", "retired") for key in keys)


def _config_keys(text: str, key: re.Pattern[str]) -> list[str] | None:
    """Return the top-level keys of a text that looks like a YAML mapping, or None."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    lines = [line for line in lines if line.strip() not in ("---", "...") and line[:1] != "%"]
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    top = [
        line[indent:] for line in lines if line[:indent].strip() == "" and line[indent : indent + 1] not in (" ", "")
    ]
    keys = [line.partition(":")[0].strip(" \"'") for line in top if key.match(line)]
    others = [line for line in top if not key.match(line) and line[:1] not in "-}]"]
    # One line that is no YAML (a slip) does not turn a config file into a shell script; most lines decide.
    return keys if keys and len(others) <= len(keys) // 3 else None


def _flow_keys(text: str) -> list[str]:
    """Return the keys of a text that is one YAML mapping in flow style; a group of shell commands is none."""
    from jetson_specdec.errors import RecipeError
    from jetson_specdec.recipe.yaml_tree import documents, entries

    try:
        roots = documents(text, "")
    except RecipeError:
        return []
    # without a value behind it, a word in braces is no key of a config file
    return [key for root in roots[:1] for key, value in entries(root).items() if not str(value.tag).endswith(":null")]


def recognise(text: str) -> Form:
    """Return the form of a text; `shell` where nothing else is recognised."""
    body = text.lstrip("\ufeff")
    found = _patterns()
    first = _first_line(body)
    if body.lstrip()[:1] == "{" and (form := _json_form(body)) is not None:
        return form
    if flow := found["flow"].match(body.lstrip()):
        return "manifest" if flow[1] else "compose"
    if body.lstrip()[:1] == "{" and _known_keys(_flow_keys(body)):
        return "config_file"
    if found["section"].search(body) and (found["exec"].search(body) or first.startswith("[")):
        return "unit"
    if found["manifest_start"].match(first) and found["containers"].search(body):
        return "manifest"
    if found["compose_start"].match(first) and found["services"].search(body):
        return "compose"
    if found["key"].match(first.strip()):
        keys = _config_keys(body, found["key"])
        if keys and _known_keys(keys):
            return "config_file"
        if keys and found["containers"].search(body):
            return "manifest"
        if keys and found["service_body"].search(body):
            return "compose"
    if found["python_import"].search(body) and found["python_call"].search(body) and not found["serve"].search(body):
        return "python"
    return "shell"


def template_line(text: str, form: Form) -> int | None:
    """Return the line, from 1, that shows a text to be a template (Helm, Jinja) of a YAML form; None if it is none.

    Double braces alone do not: a chat template inside a value is none, nor is KServe's own `{{.Name}}`.
    """
    body = text.lstrip("\ufeff")
    if "{{" not in body:
        return None
    found = _patterns()
    if form not in ("manifest", "compose", "config_file") and not (
        form == "shell" and _first_line(body).startswith("{{") and found["containers"].search(body)
    ):
        return None
    mark = next((mark for mark in found["helm"].finditer(body) if "#" not in _before(body, mark.start())), None)
    if mark is not None:
        return body.count("\n", 0, mark.start()) + 1
    from jetson_specdec.errors import RecipeError
    from jetson_specdec.recipe.yaml_tree import documents, is_map, walk

    try:
        roots = documents(body, "")
    except RecipeError:
        return body.count("\n", 0, body.index("{{")) + 1
    # `{{ x }}` without quotes is, for YAML, a mapping as the key of another.
    holes = (key for root in roots for node in walk(root) if is_map(node) for key, _ in node.value if is_map(key))
    return next((hole.start_mark.line + 1 for hole in holes), None)


def _before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]
