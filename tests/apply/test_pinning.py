# SPDX-License-Identifier: Apache-2.0
"""From names that move to commits and digests, from whoever knows them, and never a guess."""

from __future__ import annotations

import json

import pytest

from jetson_specdec.apply import pin_plan, prepare, read_deployment, resolve_pins
from jetson_specdec.apply.engine_image import ImageFacts, ask_version, inspect_image
from jetson_specdec.apply.online import HubFacts
from jetson_specdec.apply.workflow import release_in_image
from jetson_specdec.recipe import load_recipe

HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
TARGET = "Qwen/Qwen3-8B"
ONE, TWO = "1" * 40, "2" * 40
DIGEST = "sha256:" + "d" * 64
LATEST = "docker run --rm --runtime nvidia -v /data/hf:/root/.cache/huggingface vllm/vllm-openai:latest"
SERVE = f"{LATEST} --model {TARGET} --gpu-memory-utilization 0.8"


def cached(repo, commit, root="/data/hf/hub", branch="main"):
    folder = f"{root}/models--{repo.replace('/', '--')}"
    return {f"{folder}/refs/{branch}": commit + "\n", f"{folder}/snapshots/{commit}/config.json": "{}"}


def inspected(image="vllm/vllm-openai:latest", program="docker", **entry):
    config = {"Labels": entry.pop("labels", {}), "Env": entry.pop("environ", [])}
    answer = json.dumps([{"RepoDigests": [], "Config": config, "Architecture": "arm64", **entry}])
    return {(program, "image", "inspect", image): answer}


def pins(host, made, **options):
    return {pin.kind: pin for pin in resolve_pins(read_deployment(made, host), host, **options)}


def test_the_model_cache_knows_the_commit(board, plan):
    host = board(files={**cached(HEAD, ONE), **cached(TARGET, TWO)})
    found = pins(host, plan(SERVE, host), scope="all")
    assert (found["drafter"].resolved, found["drafter"].source) == (ONE, "cache")
    assert (found["target"].resolved, found["target"].source) == (TWO, "cache")
    assert found["image"].resolved is None
    assert found["image"].finding.topic == "unpinned"


def test_only_what_is_added_is_pinned_unless_asked(board, plan):
    host = board(files=cached(HEAD, ONE))
    made = plan(SERVE, host)
    assert set(pins(host, made)) == {"drafter"}
    assert pins(host, made, scope="none") == {}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"/data/hf/hub/models--RedHatAI--Qwen3-8B-speculator.eagle3/refs/main": ONE},  # snapshot removed
        {"/data/hf/hub/models--RedHatAI--Qwen3-8B-speculator.eagle3/snapshots/x/config.json": "{}"},  # no branch
        cached(HEAD, "not-a-commit"),
        cached(HEAD, ONE, branch="other"),
    ],
)
def test_a_cache_that_does_not_say_is_no_answer(board, plan, files):
    host = board(files=files)
    pin = pins(host, plan(SERVE, host))["drafter"]
    assert pin.resolved is None
    assert pin.finding.code == "JSD823"


def test_the_hub_is_asked_only_with_leave_and_after_the_cache(board, plan, fake_online):
    host = board(files=cached(TARGET, TWO))
    online = fake_online(hub={HEAD: HubFacts(commit=ONE)}, images={"vllm/vllm-openai:latest": DIGEST})
    found = pins(host, plan(SERVE, host), scope="all", online=online)
    assert (found["drafter"].resolved, found["drafter"].source) == (ONE, "hub")
    assert found["target"].source == "cache"
    assert (found["image"].resolved, found["image"].source) == (DIGEST, "registry")
    assert online.asked == [
        ("hub", "https://huggingface.co", HEAD, "main"),
        ("image", "vllm/vllm-openai:latest"),
    ]


def test_the_hub_is_the_one_of_the_environment(board, plan, fake_online):
    host, online = board(), fake_online()
    made = plan(f"HF_ENDPOINT=https://hf-mirror.com vllm serve {TARGET}", host)
    found = pins(host, made, online=online)
    assert online.asked == [("hub", "https://hf-mirror.com", HEAD, "main")]
    assert found["drafter"].finding.code == "JSD824"
    assert "hf-mirror.com" in found["drafter"].finding.message


def test_modelscope_has_no_such_commits(board, plan, fake_online):
    host, online = board(files=cached(HEAD, ONE)), fake_online(hub={HEAD: HubFacts(commit=ONE)})
    pin = pins(host, plan(f"VLLM_USE_MODELSCOPE=1 vllm serve {TARGET}", host), online=online)["drafter"]
    assert pin.resolved is None
    assert pin.finding.code == "JSD825"
    assert online.asked == []


def test_the_local_engine_knows_the_digest_of_what_it_pulled(board, plan):
    digests = ["other/name@sha256:" + "0" * 64, f"vllm/vllm-openai@{DIGEST}"]
    host = board(commands=inspected(RepoDigests=digests))
    found = pins(host, plan(SERVE, host), scope="all")["image"]
    assert (found.resolved, found.source) == (DIGEST, "engine")


@pytest.mark.parametrize("digests", [[], ["other/name@" + DIGEST], ["vllm/vllm-openai@md5:1"], None])
def test_an_image_built_here_has_no_digest_to_pin(board, plan, digests, fake_online):
    host = board(commands=inspected(RepoDigests=digests))
    online = fake_online(images={"vllm/vllm-openai:latest": DIGEST})
    pin = pins(host, plan(SERVE, host), scope="all", online=online)["image"]
    assert pin.resolved is None
    assert pin.finding.code == "JSD822"


# ------------------------------------------------------------------------------------------------------------- writing


def test_pins_are_written_where_the_names_stand(board, plan):
    files = {**cached(HEAD, ONE), **cached(TARGET, TWO)}
    host = board(files=files, commands=inspected(RepoDigests=[f"vllm/vllm-openai@{DIGEST}"]))
    text = f"# vllm/vllm-openai:latest is what we run\n{SERVE}  # keep"
    prepared = prepare(plan(text, host, vllm_version="0.30.0"), host, scope="all")
    made = prepared.plan
    assert made.speculative_config["revision"] == ONE
    assert f'"revision":"{ONE}"' in made.recipe.after
    assert f"--revision {TWO}" in made.recipe.after
    assert f"vllm/vllm-openai:latest@{DIGEST} --model" in made.recipe.after
    assert made.recipe.after.startswith("# vllm/vllm-openai:latest is what we run\n")
    assert made.recipe.after.endswith("  # keep\n")
    assert all(fetch.pinned for fetch in prepared.disclosure.fetches)
    again = load_recipe("-", text=made.recipe.after)
    assert [arg.value for arg in again.commands[0].args] == list(made.serve_args)
    assert json.loads(made.added_args[1]) == made.speculative_config


def test_podman_takes_the_digest_without_the_tag(board, plan):
    text = SERVE.replace("docker", "podman")
    host = board(commands=inspected(program="podman", RepoDigests=[f"vllm/vllm-openai@{DIGEST}"]))
    made = prepare(plan(text, host, vllm_version="0.30.0"), host, scope="all").plan
    assert f" vllm/vllm-openai@{DIGEST} " in made.recipe.after


def test_a_pinned_image_is_no_longer_called_moving(board, plan):
    host = board(commands=inspected(RepoDigests=[f"vllm/vllm-openai@{DIGEST}"]))
    made = plan(SERVE, host, vllm_version="0.30.0")
    assert "pin-image" in {step.kind for step in made.next_steps}
    pinned = prepare(made, host, scope="all").plan
    assert "pin-image" not in {step.kind for step in pinned.next_steps}
    assert not [each for each in pinned.findings if each.code == "JSD300"]
    assert [each.code for each in pinned.findings if each.topic == "unpinned"] == ["JSD823", "JSD823"]


def test_the_image_of_a_compose_file_is_pinned_in_place(board, plan):
    host = board(commands=inspected(RepoDigests=[f"vllm/vllm-openai@{DIGEST}"]))
    text = (
        "services:\n  llm:\n    image: 'vllm/vllm-openai:latest'  # ours\n"
        "    command: [--model, Qwen/Qwen3-8B, --gpu-memory-utilization, '0.8']\n"
    )
    made = prepare(plan(text, host, vllm_version="0.30.0"), host, scope="all").plan
    assert f"    image: 'vllm/vllm-openai:latest@{DIGEST}'  # ours\n" in made.recipe.after


def test_an_image_that_stands_twice_is_left_and_said(board, plan):
    host = board(commands=inspected(RepoDigests=[f"vllm/vllm-openai@{DIGEST}"]))
    text = f"docker pull vllm/vllm-openai:latest\n{SERVE}"
    made = prepare(plan(text, host, vllm_version="0.30.0"), host, scope="all").plan
    assert "sha256" not in made.recipe.after
    finding = next(each for each in made.findings if each.code == "JSD826")
    assert DIGEST in finding.message


def test_pins_go_into_the_config_file_where_the_settings_are(board, plan, tmp_path):
    config, script = tmp_path / "vllm.yaml", tmp_path / "serve.sh"
    config.write_text(f"model: {TARGET}\ngpu-memory-utilization: 0.8\nspeculative-config: null\n")
    script.write_text(f"vllm serve --config {config}\n")
    host = board(files=cached(HEAD, ONE, root="/home/a/.cache/huggingface/hub"), env={"HOME": "/home/a"})
    made = plan(script, host)
    before = {change.path: change.before for change in made.changes}
    pinned = prepare(made, host).plan
    assert pinned.speculative_config["revision"] == ONE
    assert {change.path: change.before for change in pinned.changes} == before
    assert any(ONE in change.after for change in pinned.changes)


def test_unresolved_pins_change_nothing_and_are_said(board, plan):
    host = board()
    made = plan(SERVE, host)
    pinned = pin_plan(read_deployment(made, host), resolve_pins(read_deployment(made, host), host, scope="all"))
    assert pinned.recipe.after == made.recipe.after
    assert {finding.code for finding in pinned.findings} >= {"JSD821", "JSD823"}


# --------------------------------------------------------------------------------------------- the release in an image

OCI = "org.opencontainers.image"
ORIN_IMAGE = "ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin"


def command(image=ORIN_IMAGE):
    return load_recipe("-", text=f"docker run --rm --runtime nvidia {image} vllm serve a/b\n").commands[0]


@pytest.mark.parametrize(
    ("entry", "version"),
    [
        ({"labels": {"org.nvidia.vllm.version": "0.11.2"}}, "0.11.2"),
        ({"environ": ["PATH=/bin", "VLLM_VERSION=0.14.0"]}, "0.14.0"),
        (
            {"labels": {"org.opencontainers.image.title": "vLLM", "org.opencontainers.image.version": "v0.12.0"}},
            "0.12.0",
        ),
        # Inherited from the base image: that is Ubuntu's version.
        (
            {"labels": {"org.opencontainers.image.ref.name": "ubuntu", "org.opencontainers.image.version": "22.04"}},
            None,
        ),
        ({"environ": ["VLLM_VERSION=main"]}, None),
        ({}, None),
    ],
)
def test_labels_are_asked_before_anything_is_assumed(board, entry, version):
    host = board(commands=inspected(image=ORIN_IMAGE, **entry))
    found, said = release_in_image(host, command())
    assert found == version
    assert [each.code for each in said] == (["JSD828"] if version else ["JSD830"])


def asking(stdout, image=ORIN_IMAGE, code=0):
    from jetson_specdec.apply.engine_image import INSIDE

    base = ("docker", "run", "--rm", "--pull", "never", "--network", "none", "--entrypoint")
    return {(*base, "python3", image, "-c", INSIDE): (stdout, "", code)}, {(*base, "vllm", image, "--version"): stdout}


def test_the_image_itself_is_asked_only_with_leave(board):
    metadata, _ = asking("vllm 0.11.2\n")
    host = board(commands={**inspected(image=ORIN_IMAGE), **metadata})
    assert release_in_image(host, command())[0] is None
    version, said = release_in_image(host, command(), ask=True)
    assert version == "0.11.2"
    assert said[0].code == "JSD829"


def test_where_the_metadata_does_not_answer_the_engine_is_asked(board):
    failed, engine = asking("WARNING 01-01 no platform\n0.11.1rc2\n", code=1)
    assert ask_version(board(commands={**failed, **engine}), ORIN_IMAGE) == "0.11.1rc2"
    assert ask_version(board(), ORIN_IMAGE) is None
    host = board(commands=inspected(image=ORIN_IMAGE))
    assert [each.code for each in release_in_image(host, command(), ask=True)[1]] == ["JSD831"]


def test_an_image_whose_name_tells_is_not_asked(board):
    assert release_in_image(board(), command("vllm/vllm-openai:v0.30.0"), ask=True) == (None, ())


@pytest.mark.parametrize("stdout", ["", "[]", "{", "[3]", "null"])
def test_a_strange_answer_of_the_engine_is_no_answer(board, stdout):
    assert inspect_image(board(commands={("docker", "image", "inspect", "a:b"): stdout}), "a:b") is None


@pytest.mark.parametrize("stdout", ["[{}]", '[{"Config": null, "RepoDigests": null}]'])
def test_an_answer_that_says_nothing_of_the_image_is_an_image_of_which_nothing_is_known(board, stdout):
    facts = inspect_image(board(commands={("docker", "image", "inspect", "a:b"): stdout}), "a:b")
    assert facts == ImageFacts(present=True)


def test_an_absent_image_and_an_engine_that_does_not_answer_differ(board):
    missing = {("docker", "image", "inspect", "a:b"): ("[]", "Error response from daemon: No such image: a:b", 1)}
    assert inspect_image(board(commands=missing), "a:b").present is False
    denied = {("docker", "image", "inspect", "a:b"): ("", "permission denied while trying to connect", 1)}
    assert inspect_image(board(commands=denied), "a:b") is None
    assert inspect_image(board(), "a:b") is None
