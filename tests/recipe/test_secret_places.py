# SPDX-License-Identifier: Apache-2.0
"""Secrets by where a recipe's form puts them: nothing that a plan shows holds one, whatever it looks like."""

from __future__ import annotations

import json

import pytest
import yaml

from jetson_specdec import Planner
from jetson_specdec.errors import RecipeSyntaxError
from jetson_specdec.recipe import parse_recipe, redact
from jetson_specdec.recipe.secret_places import names_a_secret, secrets_in

SECRET = "Rt5uK8xW1nHp3vQb"
POD = """apiVersion: v1
kind: Pod
metadata:
  name: a
  ANNOTATIONS
spec:
  containers:
  - name: side
    image: proxy
    SIDE
  - name: llm
    image: vllm/vllm-openai:v0.20.0
    args: [--model, o/m]
MORE
"""
COMPOSE = """services:
  llm:
    image: vllm/vllm-openai:v0.20.0
    command: --model o/m
    LLM
  other:
    image: store
    OTHER
MORE
"""
UNIT = "[Service]\nENV\nExecStart=/usr/bin/vllm serve o/m\n"
PYTHON = "from vllm import LLM\nCODE\nllm = LLM('o/m')\n"


def filled(text: str, **parts: str) -> str:
    for name in ("ANNOTATIONS", "SIDE", "MORE", "LLM", "OTHER", "ENV", "CODE"):
        if name in parts or f" {name}\n" in text or f"\n{name}\n" in text:
            text = text.replace(f"{name}\n", parts.get(name, "") + "\n", 1)
    return text


RECIPES = {
    **{
        f"pod-{number}": filled(POD, SIDE=part.replace("@", SECRET))
        for number, part in enumerate(
            [
                "env:\n    - name: HF_TOKEN\n      value: @",
                'env:\n    - value: "@"\n      name: HF_TOKEN',
                "env: [{name: HF_TOKEN, value: @}]",
                "env:\n    - name: HF_TOKEN\n      # of the house\n\n      value: '@'",
                "env:\n    - name: DB_PASSWORD\n      value: >-\n        @",
                "env:\n    - name: DB_PASSWORD\n      value: |\n        @\n        @second",
                'args: ["--token", "@"]',
                "args:\n    - --token\n    # the token\n    - @",
                "readinessProbe: {httpGet: {port: 1, httpHeaders: [{name: X-Api-Key, value: @}]}}",
                'readinessProbe: {httpGet: {port: 1, httpHeaders: [{name: Authorization, value: "Bearer @"}]}}',
            ]
        )
    },
    **{
        f"annotation-{number}": filled(POD, ANNOTATIONS=part.replace("@", SECRET))
        for number, part in enumerate(
            [
                "annotations: {auth.token: @}",
                'annotations: {"vault.example.org/secret": "@"}',
                'annotations: {note: "api key @"}',
                'annotations:\n    last-applied: |\n      {"env":[{"name":"HF_TOKEN","value":"@"}]}',
            ]
        )
    },
    **{
        f"secret-{number}": filled(POD, MORE="---\napiVersion: v1\nkind: Secret\n" + part.replace("@", SECRET))
        for number, part in enumerate(
            ["stringData:\n  hf: @", "data: {hf: @}", "data:\n  a: b\n  .dockerconfigjson: '@'"]
        )
    },
    **{
        f"compose-{number}": filled(COMPOSE, OTHER=part.replace("@", SECRET).replace("AT!", "@"))
        for number, part in enumerate(
            [
                "environment:\n      STORE_PASSWORD: |-\n        @",
                "environment:\n      STORE_TOKEN: >-\n        @",
                "environment:\n      STORE_TOKEN:\n        @",
                'environment:\n      STORE_TOKEN: "\\\n        @"',
                "environment:\n      - PGPASSWORD=@",
                "environment:\n      - SENTRY_DSN=https://@AT!o1.example.org/1",
                "command: store --requirepass @",
                'command: ["store", "--requirepass", "@"]',
                "labels: {auth.token: @}",
                'labels:\n      - "traefik.http.middlewares.a.basicauth.users=admin:$$apr1$$@"',
            ]
        )
    },
    "compose-secrets": filled(COMPOSE, MORE=f"secrets:\n  hf:\n    content: {SECRET}"),
    "compose-configs": filled(COMPOSE, MORE=f'configs:\n  c:\n    content: |\n      api_key = "{SECRET}"'),
    "compose-pem": filled(
        COMPOSE,
        MORE=f"configs:\n  c:\n    content: |\n      -----BEGIN RSA PRIVATE KEY-----\n      {SECRET}\n"
        "      -----END RSA PRIVATE KEY-----",
    ),
    "compose-json-argument": COMPOSE.replace(
        "--model o/m", f'--model o/m --kv-transfer-config \'{{"token":"{SECRET}"}}\''
    ).replace("LLM\n", "\n").replace("OTHER\n", "\n").replace("MORE\n", "\n"),
    "shell-json-argument": f'vllm serve o/m --kv-transfer-config \'{{"x":{{"token":"{SECRET}"}}}}\'\n',
    "shell-note": f"# token {SECRET}\nvllm serve o/m\n",
    **{
        f"unit-{number}": filled(UNIT, ENV=part.replace("@", SECRET))
        for number, part in enumerate(
            ["Environment=HF_TOKEN=\\\n@", "SetCredential=hf:@", "SetCredentialEncrypted=hf: \\\n   @", "# token @"]
        )
    },
    **{
        f"python-{number}": PYTHON.replace("CODE", part.replace("@", SECRET))
        for number, part in enumerate(
            [
                'os.environ["VLLM_API_KEY"] = "@"',
                "os.environ['HF_TOKEN']='@'",
                'os.environ.setdefault("MY_SECRET", "@")',
                'login("@")',
                'login(token="@")',
                'cfg = {"hf_token":"@"}',
            ]
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_that_a_plan_shows_holds_a_secret(name: str) -> None:
    text = RECIPES[name]
    assert SECRET in text
    if not name.startswith(("unit", "python", "shell")):
        assert list(yaml.safe_load_all(text))  # the case itself is sound
    plan = Planner().plan(parse_recipe(text))
    shown = json.dumps(plan.to_json()) + plan.recipe.diff
    assert SECRET not in shown
    assert "***" in shown
    # what `apply` asks before it keeps a copy that others may read
    assert plan.recipe.secrets or redact(text)[1]


def test_decoded_values_of_a_secret_are_masked_too() -> None:
    more = "---\nkind: Secret\napiVersion: v1\ndata: {hf: UnQ1dUs4eFcxbkhwM3ZRYg==}"
    text = filled(POD, MORE=more, SIDE=f"command: [run, {SECRET}]")
    assert SECRET in secrets_in(parse_recipe(text))


def test_ordinary_words_stay_where_they_are_no_secret() -> None:
    text = filled(COMPOSE, OTHER="environment: {STORE_PASSWORD: store}", MORE="volumes: {store: {}}")
    plan = Planner().plan(parse_recipe(text))
    shown = plan.to_json()["recipe"]["before"]
    assert "image: store" in shown
    assert "volumes: {store: {}}" in shown
    assert "STORE_PASSWORD: ***" in shown


@pytest.mark.parametrize(
    "part",
    [
        "env:\n    - name: HF_TOKEN\n      valueFrom: {secretKeyRef: {name: hf-tokens, key: hf_token_of_house}}",
        "env:\n    - name: HF_TOKEN\n      value: $(FROM_ELSEWHERE)",
        "env:\n    - name: TOKENIZERS_PARALLELISM\n      value: something_long",
        "volumeMounts: [{name: secret-volume-of-house, mountPath: /secret-mount}]",
        "args: [--secret, id-of-the-house]",
    ],
)
def test_names_of_secrets_are_none(part: str) -> None:
    assert secrets_in(parse_recipe(filled(POD, SIDE=part))) == ()


@pytest.mark.parametrize(
    "name", ["auth.token", "vault.example/secret", "apiKey", "accessToken", "X-Api-Key", "DB_PASS"]
)
def test_names_that_mean_a_secret(name: str) -> None:
    assert names_a_secret(name)


@pytest.mark.parametrize(
    "name", ["key", "tls.key", "secretName", "topologyKey", "imagePullSecret", "max_token", "eos_token"]
)
def test_names_that_mean_none(name: str) -> None:
    assert not names_a_secret(name)


def test_shared_nodes_are_read_once() -> None:
    bomb = "x-a0: &a0 {TOKEN: abcdef12345}\n" + "".join(
        f"x-a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40)
    )
    text = bomb + filled(COMPOSE)
    assert secrets_in(parse_recipe(text)) == ("abcdef12345",)


def test_what_runs_is_named_without_its_arguments() -> None:
    for text in (f'run(["vllm","serve","q","--api-key","{SECRET}"])\n', f"tool {SECRET}\n", f"TOKEN={SECRET} tool x\n"):
        with pytest.raises(RecipeSyntaxError) as caught:
            parse_recipe(text)
        assert SECRET not in str(caught.value)
