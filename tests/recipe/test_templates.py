# SPDX-License-Identifier: Apache-2.0
"""Templates that are not rendered are told apart from finished YAML, and environment files are found beside a unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import ServeFlags, load_recipe, parse_recipe

POD = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: vllm/vllm-openai:v0.20.0\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (POD + "    args: [--model, {{ .Values.model | quote }}]\n", 7),
        (POD + '    args: ["--model", "{{ .Values.model }}"]\n', 7),
        (POD + "    args:\n    {{- if .Values.x }}\n    - --model=o/m\n    {{- end }}\n", 8),
        (POD + "    args:\n    {{- toYaml $args | nindent 4 }}\n", 8),
        ("{{- if .Values.enabled }}\n" + POD + "    args: [--model, o/m]\n{{- end }}\n", 1),
        ("services:\n  a:\n    image: vllm/vllm-openai:{{ tag }}\n    command: {{ command }}\n", 4),
    ],
)
def test_a_template_is_named_as_one(text: str, line: int) -> None:
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_recipe(text, path="deploy.yaml")
    assert caught.value.code == "JSE243"
    assert caught.value.values["line"] == line
    assert "helm template" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        POD + '    args: ["--model", "/mnt/models", "--served-model-name", "{{.Name}}"]\n',
        POD + "    # {{ .Values.model }}\n    args: [--model, o/m]\n",
        "services:\n  a:\n    image: vllm/vllm-openai:v0.20.0\n    command: --model o/m\n"
        "configs:\n  chat:\n    content: |\n      {{ bos_token }}{% for m in messages %}\n      {{ m }}\n",
        "docker inspect --format '{{ .State.Running }}' a\nvllm serve o/m\n",
    ],
)
def test_double_braces_alone_make_no_template(text: str) -> None:
    assert len(parse_recipe(text).commands) == 1


@pytest.mark.parametrize("name", ["/etc/vllm/args.env", "-/etc/vllm/args.env", "args.env"])
def test_an_environment_file_kept_beside_its_unit(tmp_path: Path, name: str) -> None:
    unit = tmp_path / "vllm.service"
    unit.write_text(f"[Service]\nEnvironmentFile={name}\nExecStart=/usr/bin/vllm serve ${{MODEL}} --port 1\n")
    assert ServeFlags.read(load_recipe(unit).commands[0]).model is None
    (tmp_path / "args.env").write_text("MODEL=o/m\n")
    assert ServeFlags.read(load_recipe(unit).commands[0]).model == "o/m"


@pytest.mark.parametrize(
    "text", ["{model: o/m, gpu-memory-utilization: 0.8}\n", "{\n  model: o/m,  # ours\n  port: 1,\n}\n"]
)
def test_a_config_file_in_flow_style(text: str) -> None:
    recipe = parse_recipe(text)
    assert recipe.form == "config_file"
    assert ServeFlags.read(recipe.commands[0]).model == "o/m"


@pytest.mark.parametrize("text", ["{ vllm serve o/m --port 1; }\n", "{ echo model; vllm serve o/m; }\n"])
def test_a_group_of_shell_commands_is_no_mapping(text: str) -> None:
    assert parse_recipe(text).form == "shell"
