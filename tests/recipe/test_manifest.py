# SPDX-License-Identifier: Apache-2.0
"""Kubernetes manifests: containers wherever they stand, references, ConfigMaps in the same text, KServe."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import AppendArgs, RemoveArgs, ReplaceArg, ServeFlags, load_recipe, parse_recipe, recognise
from jetson_specdec.recipe.core import Mount, Recipe
from jetson_specdec.recipe.forms_embedded import edit_embedded

DATA = Path(__file__).parent.parent / "data" / "recipe"
JSON = '{"method":"eagle3","model":"a/b","num_speculative_tokens":5}'


@pytest.fixture(scope="module")
def forms() -> Recipe:
    return load_recipe(DATA / "manifest-forms.yaml")


def container(body: str, image: str = "vllm/vllm-openai:v0.20.0") -> Recipe:
    lines = "".join(f"  {line}\n" for line in body.splitlines())
    return parse_recipe(f"apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: {image}\n{lines}")


def test_containers_of_several_documents(forms: Recipe) -> None:
    assert forms.form == "manifest"
    assert [command.serve_form for command in forms.commands] == [
        *("image_entrypoint", "vllm_serve", "vllm_serve", "image_entrypoint"),
    ]
    assert {command.launcher for command in forms.commands} == {"kubernetes"}
    assert [ServeFlags.read(command).gpu_memory_utilization for command in forms.commands] == [0.8] * 4


def test_references_through_a_config_map(forms: Recipe) -> None:
    first = forms.commands[0]
    assert [arg.value for arg in first.args] == [
        *("--model=Qwen/Qwen3-8B", "--gpu-memory-utilization=0.8", "--port", "8000"),
    ]
    assert first.args[0].resolved_from == ("MODEL",)
    assert dict(first.env) == {"model": "Qwen/Qwen3-8B", "util": "0.8", "MODEL": "Qwen/Qwen3-8B", "TOKEN": None}
    assert first.mounts == (Mount(host="/srv/weights", container="/weights", read_only=True),)


def test_a_resolved_word_is_changed_where_it_is_used(forms: Recipe) -> None:
    after = edit_embedded(forms, 0, [ReplaceArg(index=1, value="--gpu-memory-utilization=0.75")])
    assert after.replace('"--gpu-memory-utilization=0.75"', '"--gpu-memory-utilization=$(util)"') == forms.text


def test_shells_inside_words(forms: Recipe) -> None:
    block, inline = forms.commands[1], forms.commands[2]
    assert block.wrapped_in == inline.wrapped_in == ("bash -c",)
    assert forms.text[block.start : block.end].startswith("exec vllm serve")
    after = edit_embedded(forms, 1, [AppendArgs(values=("--speculative-config", JSON))])
    added = f" \\\n            --speculative-config '{JSON}'"
    assert after == forms.text.replace("--gpu-memory-utilization 0.8\n\n", f"--gpu-memory-utilization 0.8{added}\n\n")
    script = list(yaml.safe_load_all(after))[1]["spec"]["template"]["spec"]["containers"][1]["args"][0]
    assert script.endswith(f"--speculative-config '{JSON}'\n")
    quoted = edit_embedded(forms, 2, [AppendArgs(values=("--speculative-config", JSON))])
    script = list(yaml.safe_load_all(quoted))[1]["spec"]["template"]["spec"]["containers"][2]["args"][0]
    assert (
        script == f"vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8 --api-key $KEY --speculative-config '{JSON}'"
    )


def test_kserve_brings_its_own_container(forms: Recipe) -> None:
    served = forms.commands[3]
    assert served.image is None
    assert "JSD236" in {finding.code for finding in served.findings}
    runtime = parse_recipe(
        "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nspec:\n  containers:\n"
        "  - name: kserve-container\n"
        '    image: vllm/vllm-openai:v0.20.0\n    args: ["--model=/mnt/models", "--port=8080"]\n'
    )
    assert runtime.commands[0].image == "vllm/vllm-openai:v0.20.0"


def test_where_unknown_values_come_from() -> None:
    recipe = container(
        "  env:\n  - name: SPEC\n    valueFrom: {configMapKeyRef: {name: decoding, key: spec}}\n"
        "  - name: KEY\n    valueFrom: {secretKeyRef: {name: s, key: api}}\n"
        '  args: ["--model=$(MODEL)", "--speculative-config=$(SPEC)", "--api-key=$(KEY)"]'
    )
    found = {(finding.code, finding.values.get("origin")) for finding in recipe.commands[0].findings}
    assert found == {
        ("JSD234", "ConfigMap decoding, key spec"),
        ("JSD234", "Secret s, key api"),
        ("JSD235", None),
    }
    assert [arg.unresolved for arg in recipe.commands[0].args] == [("MODEL",), ("SPEC",), ("KEY",)]


def test_doubled_dollar_and_chained_environment() -> None:
    recipe = container(
        '  env:\n  - {name: A, value: x}\n  - {name: B, value: "$(A)/y"}\n'
        '  args: ["--model", "$(B)", "--served-model-name", "$$(B)", "a$b"]'
    )
    assert [arg.value for arg in recipe.commands[0].args] == ["--model", "x/y", "--served-model-name", "$(B)", "a$b"]


def test_numbers_without_quotes_are_rejected() -> None:
    recipe = container("  args: [--model, m, --port, 8000]")
    finding = next(finding for finding in recipe.commands[0].findings if finding.code == "JSD295")
    assert finding.severity.value == "blocking"
    plan = Planner().plan(recipe.text, device="thor-t5000", l4t="38.4.0")
    assert plan.outcome == "refuse"
    assert plan.recipe.after == recipe.text


def test_new_numbers_are_texts() -> None:
    recipe = container("  args:\n  - --model\n  - m\n  - --gpu-memory-utilization\n  - '0.8'")
    after = edit_embedded(recipe, 0, [ReplaceArg(index=3, value="0.75"), AppendArgs(values=("--seed", "1"))])
    assert after.endswith("    - '0.75'\n    - --seed\n    - '1'\n")
    assert yaml.safe_load(after)["spec"]["containers"][0]["args"][-1] == "1"


def test_removing_every_item_of_one_pair() -> None:
    recipe = container('  command: ["vllm"]\n  args: ["serve", "m", "--seed", "1"]')
    after = edit_embedded(recipe, 0, [RemoveArgs(first=1, last=2)])
    assert yaml.safe_load(after)["spec"]["containers"][0]["args"] == ["serve", "m"]


def test_words_shared_by_an_anchor() -> None:
    recipe = parse_recipe(
        "kind: Pod\nspec:\n  containers:\n"
        "  - {name: a, image: vllm/vllm-openai, args: &words [--model, m]}\n"
        "  - {name: b, image: vllm/vllm-openai, args: *words}\n"
    )
    assert [command.blocked.code for command in recipe.commands if command.blocked] == ["JSD299", "JSD299"]


def test_recognised_and_declined() -> None:
    assert recognise("- apiVersion: v1\n  kind: Pod\n") == "manifest"
    assert recognise("{apiVersion: v1, kind: Pod, spec: {containers: []}}") == "manifest"
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_recipe("kind: Pod\nspec:\n  containers:\n  - {name: web, image: nginx}\n")
    assert caught.value.code == "JSE240"
    assert "web (line 4)" in str(caught.value)


def test_plan_and_repetition() -> None:
    text = (DATA / "manifest-forms.yaml").read_text()
    for index in (0, 1, 2):
        plan = Planner().plan(text, device="thor-t5000", l4t="38.4.0", command=index)
        assert plan.outcome == "eagle3"
        again = Planner().plan(plan.recipe.after, device="thor-t5000", l4t="38.4.0", command=index)
        assert again.outcome == "already"
        assert again.recipe.after == plan.recipe.after


KSERVE = "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nspec:\n  predictor:\n    model:\n"


@pytest.mark.parametrize(
    ("text", "model"),
    [
        (KSERVE + "      args: [--model_name=x, --model_id=o/m, --gpu-memory-utilization=0.8]\n", "o/m"),
        (KSERVE + "      args: [--model_id, o/m, --gpu-memory-utilization=0.8]\n", "o/m"),
        (KSERVE + "      storageUri: hf://o/m\n      args: [--gpu-memory-utilization=0.8]\n", "o/m"),
        (
            KSERVE
            + "      storageUri: hf://o/m:main\n      args: [--model=/mnt/models, --gpu-memory-utilization=0.8]\n",
            "o/m",
        ),
        (
            KSERVE + "      storageUri: hf://o/m\n      args: [--model=other/one, --gpu-memory-utilization=0.8]\n",
            "other/one",
        ),
        (KSERVE + "      storageUri: s3://bucket/m\n      args: [--gpu-memory-utilization=0.8]\n", None),
        (
            "apiVersion: serving.kserve.io/v1alpha1\nkind: LLMInferenceService\nspec:\n  model: {uri: 'hf://o/m'}\n"
            "  template:\n    containers:\n    - name: main\n      image: vllm/vllm-openai:v0.20.0\n"
            "      args: [--gpu-memory-utilization=0.8]\n",
            "o/m",
        ),
    ],
)
def test_kserve_names_the_model_beside_the_words(text: str, model: str | None) -> None:
    assert ServeFlags.read(parse_recipe(text).commands[0]).model == model


RUNTIME = (
    "apiVersion: serving.kserve.io/v1alpha1\nkind: ServingRuntime\nspec:\n  containers:\n  - name: kserve-container\n"
    "    image: {}\n    args: [--model_name=x, --model_id, o/m{}]\n"
)
FORMAT = KSERVE + "      modelFormat: {name: huggingface}\n      args: "


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        (FORMAT + "[--model_name=x, --model_id=o/m, --model_dir=/mnt/models, --task=text-generation]\n", []),
        (FORMAT + "[--model-id, o/m, --model_revision, main, --enable_grpc, 'false', --workers=2]\n", []),
        (FORMAT + "[--model_id=o/m, --no_such_thing=1]\n", ["--no_such_thing"]),
        (KSERVE + "      args: [--model_name=x, --model_id=o/m, --gpu-memory-utilization=0.8]\n", []),
        (RUNTIME.format("kserve/huggingfaceserver:v0.15.0-gpu", ""), []),
        (RUNTIME.format("vllm/vllm-openai:v0.20.0", ", --dtype=auto"), ["--model_id", "--model_name"]),
    ],
)
def test_flags_of_kserve_are_known_where_kserve_reads_them(text: str, unknown: list[str]) -> None:
    findings = ServeFlags.read(parse_recipe(text).commands[0]).findings
    flagged = {finding.values["flag"] for finding in findings if finding.topic in ("unknown-flag", "retired-flags")}
    assert sorted(flagged) == unknown
