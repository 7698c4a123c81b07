# SPDX-License-Identifier: Apache-2.0
"""What a person is told before saying yes."""

from __future__ import annotations

import pytest

from jetson_specdec.apply import Surroundings, disclose, hub_of, look_around, read_deployment, telemetry_of
from jetson_specdec.apply.engine_image import ImageFacts
from jetson_specdec.apply.environment import engine_env, registry_of
from jetson_specdec.apply.online import HubFacts

HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
RUN = "docker run --rm --runtime nvidia"
TAIL = "vllm/vllm-openai:v0.30.0 --model Qwen/Qwen3-8B --gpu-memory-utilization 0.8"


@pytest.fixture
def told(board, plan):
    """Disclose a recipe text: `told(text, environ={}, **surroundings)`."""

    def make(text, environ=None, **around):
        host = board(env=environ)
        deployment = read_deployment(plan(text, host), host)
        return disclose(deployment, Surroundings(environ=environ or {}, **around))

    return make


def codes(disclosure):
    return {finding.code for finding in disclosure.findings}


def fetch(disclosure, kind):
    return next(each for each in disclosure.fetches if each.kind == kind)


# ----------------------------------------------------------------------------------------------------------- downloads


def test_drafter_target_and_image_are_named_with_where_they_come_from(told):
    found = told(f"{RUN} {TAIL}")
    assert [(each.kind, each.name, each.host) for each in found.fetches] == [
        ("drafter", HEAD, "huggingface.co"),
        ("target", "Qwen/Qwen3-8B", "huggingface.co"),
        ("image", "vllm/vllm-openai:v0.30.0", "docker.io"),
    ]
    drafter = fetch(found, "drafter")
    assert drafter.bytes == 2_043_715_584
    assert drafter.licence == "apache-2.0"
    assert drafter.gated is False
    assert drafter.cached is None
    assert not drafter.pinned


def test_a_model_in_a_folder_is_not_downloaded(told):
    found = told("vllm serve /models/Qwen3-8B --gpu-memory-utilization 0.8")
    assert not [each for each in found.fetches if each.kind == "target"]


def test_pinned_revision_and_digest_count_as_pinned(told):
    commit, digest = "0123456789abcdef" * 2 + "01234567", "sha256:" + "a" * 64
    found = told(f"{RUN} vllm/vllm-openai:v0.30.0@{digest} --model Qwen/Qwen3-8B --revision {commit}")
    assert fetch(found, "target").pinned
    assert fetch(found, "target").revision == commit
    assert fetch(found, "image").pinned
    assert fetch(found, "image").revision == digest
    branch = told("vllm serve Qwen/Qwen3-8B --revision main")
    assert fetch(branch, "target").revision == "main"
    assert not fetch(branch, "target").pinned


def test_what_the_hub_says_fills_what_the_catalogue_lacks(told):
    facts = HubFacts(commit="c" * 40, bytes=123, licence="mit", gated=True)
    found = told("vllm serve Qwen/Qwen3-8B", hub={"Qwen/Qwen3-8B": facts, HEAD: facts})
    assert (fetch(found, "target").bytes, fetch(found, "target").licence) == (123, "mit")
    assert fetch(found, "drafter").licence == "apache-2.0"  # the catalogue's own entry stays
    assert "JSD804" in codes(found)


def test_gated_models_that_are_here_already_need_no_warning(told):
    gated = {"target_gated": True}
    assert "JSD804" in codes(told("vllm serve Qwen/Qwen3-8B", **gated))
    assert "JSD804" not in codes(told("vllm serve Qwen/Qwen3-8B", cached={"Qwen/Qwen3-8B": True}, **gated))


@pytest.mark.parametrize(
    ("image", "registry", "path"),
    [
        ("vllm/vllm-openai:latest", "docker.io", "vllm/vllm-openai"),
        ("ubuntu", "docker.io", "library/ubuntu"),
        ("docker.io/vllm/vllm-openai", "docker.io", "vllm/vllm-openai"),
        ("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin", "ghcr.io", "nvidia-ai-iot/vllm"),
        ("nvcr.io/nvidia/vllm:26.05-py3@sha256:00", "nvcr.io", "nvidia/vllm"),
        ("localhost:5000/a/b:c", "localhost:5000", "a/b"),
        ("m.daocloud.io/docker.io/vllm/vllm-openai:v1", "m.daocloud.io", "docker.io/vllm/vllm-openai"),
    ],
)
def test_registries(image, registry, path):
    assert registry_of(image) == (registry, path)


# ------------------------------------------------------------------------------------------------------- environment


@pytest.mark.parametrize(
    ("env", "service", "host", "official"),
    [
        ({}, "huggingface", "huggingface.co", True),
        ({"HF_ENDPOINT": "https://hf-mirror.com/"}, "huggingface", "hf-mirror.com", False),
        ({"HF_ENDPOINT": "http://user:secret@10.0.0.5:8080/hf"}, "huggingface", "10.0.0.5:8080", False),
        ({"HF_ENDPOINT": "https://evil-huggingface.co"}, "huggingface", "evil-huggingface.co", False),
        ({"HF_ENDPOINT": "http://mirror:eighty/"}, "huggingface", "", False),
        ({"HF_ENDPOINT": "http://[::1"}, "huggingface", "", False),
        ({"HF_ENDPOINT": "hf-mirror.com"}, "huggingface", "hf-mirror.com", False),
        ({"VLLM_USE_MODELSCOPE": "True"}, "modelscope", "www.modelscope.cn", True),
        ({"VLLM_USE_MODELSCOPE": "0", "HF_ENDPOINT": ""}, "huggingface", "huggingface.co", True),
    ],
)
def test_where_models_come_from(env, service, host, official):
    hub = hub_of(env)
    assert (hub.service, hub.host, hub.official) == (service, host, official)
    assert "secret" not in repr(hub)


def test_a_native_command_inherits_the_shell_and_a_container_does_not(told):
    mirror = {"HF_ENDPOINT": "https://hf-mirror.com"}
    assert told("vllm serve Qwen/Qwen3-8B", mirror).hub.host == "hf-mirror.com"
    inside = told(f"{RUN} {TAIL}", mirror)
    assert inside.hub.host == "huggingface.co"
    assert "JSD803" in codes(inside)
    for passed in ("-e HF_ENDPOINT", "-e HF_ENDPOINT=https://hf-mirror.com"):
        handed = told(f"{RUN} {passed} {TAIL}", mirror)
        assert handed.hub.host == "hf-mirror.com"
        assert "JSD803" not in codes(handed)


def test_a_token_never_goes_to_a_third_party_unsaid(told):
    env = {"HF_ENDPOINT": "https://hf-mirror.com", "HF_TOKEN": "hf_secretsecret"}
    found = told("vllm serve Qwen/Qwen3-8B", env)
    assert "JSD802" in codes(found)
    assert "secretsecret" not in repr(found)
    assert "secretsecret" not in str(found.to_json())
    assert "JSD802" not in codes(told("vllm serve Qwen/Qwen3-8B", {**env, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}))
    assert "JSD802" not in codes(told("vllm serve Qwen/Qwen3-8B", {"HF_TOKEN": "hf_secretsecret"}))


def test_a_token_in_the_recipe_is_visible_to_others(told):
    assert "JSD809" in codes(told(f"{RUN} -e HF_TOKEN=hf_secretsecret {TAIL}"))
    assert "JSD809" not in codes(told(f"{RUN} -e HF_TOKEN {TAIL}", {"HF_TOKEN": "hf_secretsecret"}))


def test_mirrors_and_modelscope_have_their_traps_named(told):
    assert "JSD810" in codes(told("HF_ENDPOINT=https://hf-mirror.com vllm serve Qwen/Qwen3-8B"))
    quiet = "HF_HUB_DISABLE_XET=1 HF_ENDPOINT=https://hf-mirror.com vllm serve Qwen/Qwen3-8B"
    assert "JSD810" not in codes(told(quiet))
    assert "JSD805" in codes(told("VLLM_USE_MODELSCOPE=1 vllm serve Qwen/Qwen3-8B"))


def test_a_vocabulary_from_elsewhere_is_said(told):
    assert "JSD815" in codes(told("vllm serve openai/gpt-oss-20b"))
    assert "JSD815" not in codes(told("TIKTOKEN_ENCODINGS_BASE=/data/vocabulary vllm serve openai/gpt-oss-20b"))
    assert "JSD815" not in codes(told("vllm serve Qwen/Qwen3-8B"))


# --------------------------------------------------------------------------------------------------------- code, ports


def test_remote_code_is_said(told):
    assert not told(f"{RUN} {TAIL}").remote_code
    found = told(f"{RUN} {TAIL} --trust-remote-code")
    assert found.remote_code
    finding = next(each for each in found.findings if each.code == "JSD800")
    assert finding.values["repos"] == [HEAD, "Qwen/Qwen3-8B"]


@pytest.mark.parametrize(
    ("text", "address", "port", "reach", "key"),
    [
        ("vllm serve Qwen/Qwen3-8B", "*", "8000", "network", False),
        ("vllm serve Qwen/Qwen3-8B --host 127.0.0.1 --port 9000", "127.0.0.1", "9000", "loopback", False),
        ("vllm serve Qwen/Qwen3-8B --host 0.0.0.0 --api-key abcdefgh", "*", "8000", "network", True),
        ("VLLM_API_KEY=abcdefgh vllm serve Qwen/Qwen3-8B", "*", "8000", "network", True),
        ("vllm serve Qwen/Qwen3-8B --host 192.168.1.7", "192.168.1.7", "8000", "network", False),
        (f"{RUN} -p 8500:8000 {TAIL}", "*", "8500", "network", False),
        (f"{RUN} -p 127.0.0.1:8500:8000/tcp {TAIL}", "127.0.0.1", "8500", "loopback", False),
        (f"{RUN} -p [::1]:8500:8000 {TAIL}", "::1", "8500", "loopback", False),
        (f"{RUN} -p 0.0.0.0:8500:8000 {TAIL}", "*", "8500", "network", False),
        (f"{RUN} -p 8000 {TAIL}", "*", None, "network", False),
        (f"{RUN} --network host {TAIL} --port 8123", "*", "8123", "network", False),
        (f"{RUN} --net=host {TAIL}", "*", "8000", "network", False),
        (f"{RUN} {TAIL}", "*", "8000", "container", False),
    ],
)
def test_ports(told, text, address, port, reach, key):
    (listener,) = told(text).listeners
    assert (listener.address, listener.port, listener.reach, listener.key) == (address, port, reach, key)
    open_to_all = reach == "network" and key is False
    assert ("JSD801" in codes(told(text))) is open_to_all


def test_the_default_network_of_jetson_containers_is_the_hosts(told):
    (listener,) = told("jetson-containers run vllm/vllm-openai:v0.30.0 vllm serve Qwen/Qwen3-8B").listeners
    assert listener.reach == "network"


COMPOSE = """services:
  web:
    image: open-webui
    container_name: web
    network_mode: host
  llm:
    image: vllm/vllm-openai:v0.30.0
    {before}
    command: >
      --model Qwen/Qwen3-8B
      --gpu-memory-utilization 0.8
    {after}
  cache:
    container_name: cache
"""


@pytest.mark.parametrize(
    ("before", "after", "name", "reach", "port"),
    [
        ("", "", None, "container", "8000"),
        ("container_name: llm", "network_mode: host", "llm", "network", "8000"),
        ("network_mode: host", "container_name: llm", "llm", "network", "8000"),
        ("", "ports: ['127.0.0.1:8500:8000']", None, "loopback", "8500"),
    ],
)
def test_a_compose_service_is_not_its_neighbour(board, plan, before, after, name, reach, port):
    host = board()
    deployment = read_deployment(plan(COMPOSE.format(before=before, after=after), host), host)
    assert deployment.container.name == name
    (listener,) = disclose(deployment, Surroundings()).listeners
    assert (listener.reach, listener.port) == (reach, port)


def test_a_unit_has_an_environment_and_a_cache_of_its_own(board, plan):
    unit = "[Service]\n{}ExecStart=/usr/bin/vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n"
    host = board(
        env={"HOME": "/home/a", "HF_ENDPOINT": "https://hf-mirror.com", "DO_NOT_TRACK": "1"},
        files={"/home/a/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/x/config.json": "{}"},
    )
    bare = read_deployment(plan(unit.format(""), host), host)
    found = disclose(bare, look_around(bare, host))
    assert found.hub.host == "huggingface.co"
    assert "JSD803" in codes(found)
    assert [each.state for each in found.telemetry] == ["on", "on"]
    assert look_around(bare, host).cached == {}
    named = read_deployment(plan(unit.format("Environment=HF_HOME=/home/a/.cache/huggingface\n"), host), host)
    assert look_around(named, host).cached["Qwen/Qwen3-8B"] is True


# ----------------------------------------------------------------------------------------------------------- telemetry


@pytest.mark.parametrize(
    ("env", "vllm", "hub"),
    [
        ({}, "on", "on"),
        ({"VLLM_NO_USAGE_STATS": "1"}, "off", "on"),
        ({"VLLM_NO_USAGE_STATS": "true"}, "on", "on"),  # exactly 1 counts
        ({"VLLM_NO_USAGE_STATS": "0"}, "on", "on"),
        ({"DO_NOT_TRACK": "1"}, "off", "off"),
        ({"HF_HUB_DISABLE_TELEMETRY": "YES"}, "on", "off"),
        ({"HF_HUB_OFFLINE": "1"}, "on", "off"),
        ({"VLLM_NO_USAGE_STATS": None}, "unknown", "on"),
    ],
)
def test_telemetry_and_its_switches(env, vllm, hub):
    states = [each.state for each in telemetry_of(env)]
    assert states == [vllm, hub]


def test_the_opt_out_file_counts_where_it_can_be_seen(board, plan):
    host = board(files={"/home/a/.config/vllm/do_not_track": ""}, env={"HOME": "/home/a"})
    native = read_deployment(plan("vllm serve Qwen/Qwen3-8B", host), host)
    assert disclose(native, look_around(native, host)).telemetry[0].state == "off"
    inside = read_deployment(plan(f"{RUN} {TAIL}", host), host)
    assert disclose(inside, look_around(inside, host)).telemetry[0].state == "on"


def test_telemetry_goes_where_the_environment_sends_it():
    stats, hub = telemetry_of({"HF_ENDPOINT": "https://hf-mirror.com", "VLLM_USAGE_STATS_SERVER": "https://x.test/y"})
    assert (stats.destination, hub.destination) == ("x.test", "hf-mirror.com")


# ------------------------------------------------------------------------------------------------------------- looking


def test_the_cache_is_looked_up_where_the_engine_sees_it(board, plan):
    commit = "a" * 40
    cache = "/data/hf/hub/models--Qwen--Qwen3-8B"
    files = {f"{cache}/snapshots/{commit}/config.json": "{}", f"{cache}/refs/main": commit}
    host = board(files=files, env={"HOME": "/home/a"})
    mounted = read_deployment(plan(f"{RUN} -v /data/hf:/root/.cache/huggingface {TAIL}", host), host)
    assert look_around(mounted, host).cached == {"Qwen/Qwen3-8B": True, HEAD: False}
    elsewhere = read_deployment(plan(f"{RUN} -v /data/hf:/hf -e HF_HOME=/hf {TAIL}", host), host)
    assert look_around(elsewhere, host).cached["Qwen/Qwen3-8B"] is True
    unmounted = read_deployment(plan(f"{RUN} {TAIL}", host), host)
    assert look_around(unmounted, host).cached == {}


def test_a_reference_without_a_value_takes_the_shells(board, plan):
    host = board(env={"HF_TOKEN": "hf_secretsecret"})
    deployment = read_deployment(plan(f"{RUN} -e HF_TOKEN {TAIL}", host), host)
    assert engine_env(deployment.command, host.environ)["HF_TOKEN"] == "hf_secretsecret"
    assert disclose(deployment, look_around(deployment, host)).hub.token


def test_an_image_that_is_here_is_not_pulled(told):
    found = told(f"{RUN} {TAIL}", image=ImageFacts(present=True))
    assert fetch(found, "image").cached is True
