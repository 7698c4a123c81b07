# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.recipe import redact
from jetson_specdec.recipe.masking import is_secret_name

SECRET = "q7Zr-Secret_9x"


@pytest.mark.parametrize(
    "text",
    [
        "docker run -e HF_TOKEN={} image",
        'docker run -e "HF_TOKEN={}" image',
        "export OPENAI_API_KEY='{}'",
        "vllm serve a/b --api-key {} --port 1",
        "vllm serve a/b --api-key={}",
        "vllm serve a/b --api_key {}",
        "vllm serve a/b --api-key \\\n   {} \\\n  --port 1",
        "vllm serve a/b --hf-token {}",
        'bash -c "HF_TOKEN=\\"{}\\" vllm serve a/b"',
        '{{"api_key": "{}"}}',
        '["--api-key", "{}"]',
        "- --api-key\n- {}\n",
        "HF_TOKEN: {}\n",
        "DB_PASSWORD={}",
        "curl -H 'Authorization: Bearer {}' http://127.0.0.1",
        'curl -H "X-Api-Key: {}" http://127.0.0.1',
        "pip install --index-url https://user:{}@pypi.example/simple",
    ],
)
def test_secrets_are_masked_where_they_stand(text):
    shown, changed = redact(text.format(SECRET))
    assert changed
    assert SECRET not in shown
    assert "***" in shown
    assert redact(shown) == (shown, False)


@pytest.mark.parametrize(
    "text",
    [
        '-e HF_TOKEN="$HF_TOKEN" \\',
        "-e HF_TOKEN",
        "--api-key ${KEY}",
        "TOKEN=$(cat /run/secret)",
        "MAX_TOKENS=512 --num-speculative-tokens 3",
        "--ssl-keyfile /etc/ssl/key.pem",
        '"tokenizer": "a/b"',
        "PASSWORD=",
        "--api-key \\\n  --port 8000",
    ],
)
def test_references_and_harmless_names_stay(text):
    assert redact(text) == (text, False)


def test_known_token_shapes_are_masked_anywhere():
    for token in ("hf_" + "a1B2" * 8, "sk-" + "a1B2" * 8, "nvapi-" + "a1B2" * 8, "ghp_" + "a1B2" * 9):
        assert token not in redact(f"echo {token} | tee x")[0]


def test_secrets_known_by_value_are_masked_everywhere():
    shown, changed = redact("curl http://h/?k=abcd1234 # abcd1234", ["abcd1234", "x"])
    assert changed
    assert "abcd1234" not in shown
    assert "# ***" in shown


@given(
    st.text(string.ascii_letters + string.digits + "_.+/=-", min_size=1, max_size=40).filter(
        lambda text: not text.startswith("--")
    ),
    st.sampled_from(
        ["HF_TOKEN={}", "--api-key {}", "--api-key={}", 'MY_SECRET="{}"', "a_password='{}'", "API_KEY: {}"]
    ),
    st.sampled_from(["", "export ", "docker run -e ", "  "]),
    st.sampled_from(["", " --port 1", "\nnext"]),
)
def test_a_secret_never_survives(secret, shape, before, after):
    frame = before + shape + after
    shown, changed = redact(frame.format(secret))
    assert changed
    assert shown == frame.format("***")


def test_names():
    assert is_secret_name("HF_TOKEN")
    assert is_secret_name("vllm-api-key")
    assert not is_secret_name("MAX_TOKENS")
    assert not is_secret_name("KEYFILE")
