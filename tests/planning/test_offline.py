# SPDX-License-Identifier: Apache-2.0
"""Offline recipes: whether the drafter is in the model cache that the engine would use, as far as the host shows it."""

from __future__ import annotations

import json

import pytest

from jetson_specdec import Planner, RecordedHost

HEAD = "RedHatAI/Qwen3-8B-speculator.eagle3"
HOME = "home/me/.cache/huggingface"
MOUNT = "/root/.cache/huggingface"


def board(tmp_path, cache, *, snapshot=True):
    """A recorded board whose model cache in `cache` holds the head: whole, or only the folder of a broken download."""
    folder = tmp_path / "root" / cache / "hub" / f"models--{HEAD.replace('/', '--')}"
    folder.mkdir(parents=True)
    if snapshot:
        (folder / "snapshots" / "0f3a").mkdir(parents=True)
    (tmp_path / "env.json").write_text(json.dumps({"HOME": "/home/me"}))
    return RecordedHost(tmp_path)


def docker(*options):
    return (
        f"docker run --runtime nvidia {' '.join(options)} -e HF_HUB_OFFLINE=1 vllm/vllm-openai:v0.30.0 "
        "--model Qwen/Qwen3-8B --gpu-memory-utilization 0.7\n"
    )


def cached(host, text):
    made = Planner(host=host).plan(text, device="thor-t5000", l4t="38.4.0")
    assert made.outcome == "eagle3"
    (download,) = made.downloads
    assert download.repo == HEAD
    assert ("offline-head" in {finding.topic for finding in made.findings}) is (download.cached is not True)
    return download.cached


@pytest.mark.parametrize("source", ["/home/me/.cache/huggingface", "~/.cache/huggingface", "$HOME/.cache/huggingface"])
def test_a_mounted_cache_is_found_however_the_home_folder_is_written(tmp_path, source):
    assert cached(board(tmp_path, HOME), docker("-v", f"{source}:{MOUNT}")) is True


@pytest.mark.parametrize(
    "variable", ["HF_HOME=/models", "HF_HUB_CACHE=/models/hub", "HUGGINGFACE_HUB_CACHE=/models/hub"]
)
def test_a_cache_that_the_recipe_names_is_found(tmp_path, variable):
    assert cached(board(tmp_path, "data"), docker("-v /data:/models", "-e", variable)) is True


def test_a_native_engine_uses_the_hosts_cache(tmp_path):
    text = "HF_HUB_OFFLINE=1 vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.7\n"
    assert cached(board(tmp_path, HOME), text) is True


def test_a_broken_download_is_not_a_cached_head(tmp_path):
    assert cached(board(tmp_path, HOME, snapshot=False), docker("-v", f"~/.cache/huggingface:{MOUNT}")) is False


def test_a_cache_that_cannot_be_seen_is_unknown(tmp_path):
    assert cached(board(tmp_path, HOME), docker("-v models:/root/.cache/huggingface")) is None
