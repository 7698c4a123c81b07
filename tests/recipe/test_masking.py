# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.recipe import redact
from jetson_specdec.recipe.masking import is_secret_name
from jetson_specdec.recipe.secret_forms import secret_patterns

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


OTHER_PROGRAMS = [
    "docker login -u bob -p {} reg.example",
    "docker login --username bob --password {} reg.example",
    "docker login \\\n  -u bob \\\n  -p '{}' \\\n  reg.example",
    "podman login -u bob -p'{}' reg.example",
    "docker login --password-stdin reg.example <<< {}",
    "echo {} | docker login -u bob --password-stdin",
    "echo {} | sudo -S reboot",
    "echo '{}' | sudo -kS -p '' nvpmodel -m 0",
    "printf '%s\\n' \"{}\" | sudo -S reboot",
    'sudo -S reboot <<< "{}"',
    "huggingface-cli login --token {}",
    "hf auth login --add-to-git-credential --token={}",
    "modelscope login --token {}",
    "curl -u bob:{} http://127.0.0.1/",
    'curl -s http://127.0.0.1/ --user "bob:{}"',
    "wget --user=bob --password={} http://127.0.0.1/",
    "sshpass -p {} ssh bob@host",
    "wandb login {}",
    "vllm serve a/b --ssl-keyfile-password {}",
    "- --ssl-keyfile-password\n- {}\n",
    "MY_PASS={}",
    "export SUDO_PWD='{}'",
    "environment:\n  DB_PASS: {}\n",
    "AWS_ACCESS_KEY_ID={}",
    "AWS_SECRET_ACCESS_KEY={}",
    "# password: {}",
    "# the sudo password is {}",
    "# Password = {}",
    "# pw: {}",
    "# HF token: {}",
    "# 密码：{}",
    "# 口令是 {}",
    "# Passwort: {}",
]


@pytest.mark.parametrize("text", OTHER_PROGRAMS)
def test_secrets_of_other_programs_and_in_notes(text):
    shown, changed = redact(text.format(SECRET))
    assert changed
    assert shown == text.format("***")
    assert redact(shown) == (shown, False)


@pytest.mark.parametrize(
    "text",
    [
        "docker run -v $HOME/hf_models:/models image",
        "pip install hf_transfer hf-xet",
        "vllm serve hf-internal-testing/tiny --hf-overrides '{\"rope\": 1}' --hf-config-path /x/y",
        "docker run --name hf-vllm-thor --user 1000:1000 -p 8000:8000 image",
        "--download-dir /data/hf_downloads_of_models",
        "--served-model-name sk-assistant-8b",
        "--served-model-name sk-our-own-assistant-for-the-house-8b",
        "docker build --secret id=hf_token,src=$HOME/.cache/token .",
        "HF_HUB_ENABLE_HF_TRANSFER=1 PWD=/home/x",
        '{"eos_token": "<|im_end|>", "pad_token": null, "post_grad_custom_post_pass": null}',
        "--stop-token-ids 3 --max-token 512 --enable-prefix-caching",
        "time per output token: 12.5 ms",
        "# first pass: 3 ms",
        "# API key: none needed",
        "curl -s http://127.0.0.1:8000/v1/models | jq -r .data",
        "docker login -u bob --password-stdin reg.example",
        "cat ~/pw | docker login --password-stdin",
        "echo 3 | sudo tee /proc/sys/vm/drop_caches",
        'echo "$PW" | sudo -S reboot',
        "hf auth login --token $HF_TOKEN",
        "PUBLIC_KEY=/etc/key.pub",
    ],
)
def test_ordinary_words_are_no_secrets(text):
    assert redact(text) == (text, False)


def test_a_key_that_is_an_ordinary_word_is_masked_as_a_word_only():
    text = "K=house\nvllm serve a/b --download-dir /data/house/x --api-key $K\n"
    shown, changed = redact(text, ["house"])
    assert changed
    assert shown == text.replace("K=house", "K=***")


def test_known_token_shapes_are_masked_anywhere():
    for token in (
        "hf_" + "a1B2" * 8,
        "sk-" + "a1B2" * 8,
        "nvapi-" + "a1B2" * 8,
        "ghp_" + "a1B2" * 9,
        "AKIA" + "A1B2" * 4,
    ):
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
    assert is_secret_name("AWS_ACCESS_KEY_ID")
    assert not is_secret_name("PWD")
    assert not is_secret_name("eos_token")
    assert not is_secret_name("MAX_TOKENS")
    assert not is_secret_name("KEYFILE")


KEY = "aB3" * 14
HEX = "0123abcd" * 6
# One for each form of secrets.
SAMPLES = [
    f"hf_{KEY}",
    f"ghp_{KEY} glpat-{KEY}",
    "xoxb-" + "1a" * 12,
    f"sk-{KEY}",
    f"sk-lf-{HEX} ms-{HEX[:8]}-{HEX[:4]}-{HEX}",
    f"nvapi-{KEY} npm_{KEY}",
    "AKIA" + "ABCD" * 4,
    f"eyJ{KEY}.{KEY}.x",
    "authorization: basic x1y2z3",
    "bearer x1y2z3",
    "postgres://user:x1y2z3@db",
    "--api-key x1y2z3",
    "api_key=x1y2z3",
    "hf_token: x1y2z3",
    'my_password\\": x1y2z3',
    '{"token":"x1y2z3"',
    "environ['hf_token'] = 'x1y2z3'",
    "setdefault('hf_token', 'x1y2z3')",
    'login("x1y2z3")',
    "SetCredential=a: x1y2z3",
    "-----BEGIN RSA PRIVATE KEY-----\nx1y2z3\n-----END",
    "https://0123456789abcdef@errors.example",
    "basicauth.users=me:x1y2z3",
    "me:$apr1$x1y2z3",
    "# token x1Y2z3x1Y2z3x1Y2",
    "# secret: x1y2z3",
    "hub token : x1y2z3",
    "# password is x1y2z3",
    "# sudo pass: x1y2z3",
    "密码：x1y2z3",
    "docker login -u me -p x1y2z3",
    "sshpass -p x1y2z3",
    "wandb login x1y2z3",
    "curl -u me:x1y2z3",
    "echo x1y2z3 | docker login -u me --password-stdin",
    "sudo -S id <<< x1y2z3",
]


def test_there_is_a_sample_of_every_form():
    everything = "\n".join(SAMPLES)
    patterns = list(secret_patterns(everything))
    assert len(patterns) == len(SAMPLES)
    for pattern, sample in zip(patterns, SAMPLES, strict=True):
        assert pattern.search(sample), (pattern.pattern, sample)


@given(
    st.lists(st.sampled_from([*SAMPLES, "token", "key", " ", "\n", "=", ":", "@", '"', "--max-tokens"]), max_size=4),
    st.sampled_from([str, str.upper, str.swapcase, lambda text: text.replace("i", "ı").replace("k", "\u212a")]),
    st.integers(0, 60),
)
def test_no_pattern_that_matches_is_left_out(pieces, changed, start):
    text = changed("".join(pieces))[start:]
    patterns = list(secret_patterns("\n".join(SAMPLES)))
    assert {each.pattern for each in patterns if each.search(text)} <= {each.pattern for each in secret_patterns(text)}


def test_texts_without_secrets_need_few_patterns():
    text = (
        'docker run -v "$HOME/.cache:/root/.cache" vllm/vllm-openai:v0.32.0 --model a/b --max-num-batched-tokens 8192\n'
    )
    assert len(list(secret_patterns(text))) < 3
