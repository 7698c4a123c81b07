# SPDX-License-Identifier: Apache-2.0
"""Model folders that are at hand but damaged: the plan goes on, and names the file."""

from __future__ import annotations

import json
import struct

import pytest

from jetson_specdec import Planner

THOR = {"device": "thor-t5000", "l4t": "38.4.0"}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"


def weights(broken: bool = False) -> bytes:
    header = json.dumps({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
    whole = struct.pack("<Q", len(header)) + header + b"\0\0\0\0"
    return whole[: len(whole) // 2] if broken else whole


def folder(path, **files: bytes):
    path.mkdir()
    (path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    for name, data in files.items():
        (path / f"{name.replace('_', '-')}.safetensors").write_bytes(data)
    return path


def about_files(made):
    return [finding for finding in made.findings if finding.topic == "files-missing"]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"model": POINTER}, "model.safetensors"),
        ({"model": weights(broken=True)}, "model.safetensors"),
        ({"model": b""}, "model.safetensors"),
        ({"model_00001_of_00002": weights(), "model_00002_of_00002": POINTER}, "model-00002-of-00002.safetensors"),
    ],
)
def test_a_damaged_weight_file_of_the_target_is_named(tmp_path, files, named):
    target = folder(tmp_path / "target", **files)
    text = f"vllm serve {target} --gpu-memory-utilization 0.8\n"
    made = Planner().plan(text, target="Qwen/Qwen3-8B", **THOR)
    assert made.outcome == "eagle3"
    assert [(finding.code, finding.severity.value) for finding in about_files(made)] == [("JSD581", "warning")]
    assert f"{target}/{named}" in about_files(made)[0].message


def test_a_missing_part_is_said(tmp_path):
    target = folder(tmp_path / "target", model_00001_of_00002=weights())
    made = Planner().plan(f"vllm serve {target}\n", target="Qwen/Qwen3-8B", **THOR)
    assert [finding.code for finding in about_files(made)] == ["JSD475"]


def test_a_whole_folder_is_not_mentioned(tmp_path):
    target = folder(tmp_path / "target", model=weights())
    made = Planner().plan(f"vllm serve {target}\n", target="Qwen/Qwen3-8B", **THOR)
    assert about_files(made) == []


def test_a_damaged_head_that_was_named(tmp_path):
    head = folder(tmp_path / "head", model=POINTER)
    made = Planner().plan("vllm serve Qwen/Qwen3-8B --gpu-memory-utilization 0.8\n", head=str(head), **THOR)
    assert [finding.code for finding in about_files(made)] == ["JSD581"]
    assert str(head / "model.safetensors") in about_files(made)[0].message
