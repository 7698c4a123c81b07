# SPDX-License-Identifier: Apache-2.0
"""Profiles from files: a directory, the cache, headers by range requests from a hub on 127.0.0.1."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import ModelError
from jetson_specdec.host import LocalHost, RecordedHost
from jetson_specdec.models.hub import profile_from_hub
from jetson_specdec.models.local import cached_snapshot, profile_from_cache, profile_from_dir
from jetson_specdec.models.safetensors_read import parse_header, weight_sizes

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "torch_dtype": "bfloat16", "max_position_embeddings": 512,
}  # fmt: skip


def header(tensors):
    """A safetensors file without its weights: {name: (dtype, shape, bytes)}."""
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, size) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [1000, 64], 128000),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", [64, 64], 8192),
    "model.layers.0.mlp.experts.0.down_proj.weight": ("BF16", [64, 128], 16384),
    "model.norm.weight": ("F32", [64], 256),
    "visual.blocks.0.weight": ("BF16", [10, 10], 200),
    "mtp.layers.0.weight": ("BF16", [10, 5], 100),
    "lm_head.weight": ("BF16", [1000, 64], 128000),
}


def write(folder, files, config=CONFIG):
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_sizes_come_from_headers_where_there_are_some(tmp_path):
    write(tmp_path / "m", {"model.safetensors": header(TENSORS)})
    profile = profile_from_dir(LocalHost(), str(tmp_path / "m"))
    assert profile.bytes_source == "headers"
    # the norm is served in 16 bits, multi-token prediction layers are not loaded
    assert profile.weight_bytes == 128000 + 8192 + 16384 + 128 + 200 + 128000
    assert profile.weight_bytes_active == 8192 + 16384 + 128 + 128000
    assert profile.vision_bytes == 200
    assert profile.files == ("model.safetensors",)
    assert "mtp-layers" in [finding.topic for finding in profile.findings]


def test_a_tied_projection_in_the_file_is_not_loaded(tmp_path):
    write(tmp_path / "m", {"model.safetensors": header(TENSORS)}, {**CONFIG, "tie_word_embeddings": True})
    profile = profile_from_dir(LocalHost(), str(tmp_path / "m"))
    assert profile.weight_bytes == 128000 + 8192 + 16384 + 128 + 200
    assert profile.weight_bytes_active == 128000 + 8192 + 16384 + 128


def test_scales_of_a_quantised_checkpoint_stay_32_bit(tmp_path):
    tensors = {"model.layers.0.q.weight": ("F8_E4M3", [64, 64], 4096), "model.layers.0.q.scale": ("F32", [64], 256)}
    config = {**CONFIG, "quantization_config": {"quant_method": "fp8"}}
    write(tmp_path / "m", {"model.safetensors": header(tensors)}, config)
    assert profile_from_dir(LocalHost(), str(tmp_path / "m")).weight_bytes == 4096 + 256


def test_shards_by_index_and_a_second_copy_of_the_weights(tmp_path):
    first, second = dict(list(TENSORS.items())[:3]), dict(list(TENSORS.items())[3:])
    index = {"weight_map": dict.fromkeys(first, "a.safetensors") | dict.fromkeys(second, "b.safetensors")}
    folder = write(
        tmp_path / "m",
        {"a.safetensors": header(first), "b.safetensors": header(second), "consolidated.safetensors": header(TENSORS),
         "model.safetensors.index.json": json.dumps(index).encode()},
    )  # fmt: skip
    profile = profile_from_dir(LocalHost(), str(folder))
    assert profile.files == ("a.safetensors", "b.safetensors")
    assert profile.weight_bytes == 128000 + 8192 + 16384 + 128 + 200 + 128000
    (folder / "b.safetensors").unlink()
    half = profile_from_dir(LocalHost(), str(folder))
    assert half.bytes_source == "formula"
    assert [finding.topic for finding in half.findings] == ["files-missing"]


def test_experts_read_per_token(tmp_path):
    config = {**CONFIG, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2,
              "moe_intermediate_size": 64}  # fmt: skip
    write(tmp_path / "m", {"model.safetensors": header(TENSORS)}, config)
    profile = profile_from_dir(LocalHost(), str(tmp_path / "m"))
    assert profile.weight_bytes_active == 8192 + 16384 * 2 // 8 + 128 + 128000


def test_a_heads_embedding_is_its_targets(tmp_path):
    config = {**CONFIG, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 500}
    tensors = {"embed_tokens.weight": ("BF16", [1000, 64], 128000), "fc.weight": ("BF16", [64, 192], 24576)}
    write(tmp_path / "m", {"model.safetensors": header(tensors)}, config)
    profile = profile_from_dir(LocalHost(), str(tmp_path / "m"))
    assert profile.weight_bytes == profile.weight_bytes_active == 24576
    assert "shared-embedding" in [finding.topic for finding in profile.findings]


@pytest.mark.parametrize(
    ("files", "config", "code"),
    [
        ({"model-Q4_K_M.gguf": b"GGUF"}, None, "JSE452"),
        ({}, None, "JSE450"),
        ({"config.json": b"{"}, None, "JSE451"),
        ({"config.json": b"[1]"}, None, "JSE464"),
        ({"model.safetensors": b"version https://git-lfs.github.com/spec/v1\noid sha256:0"}, CONFIG, "JSE458"),
        ({"model.safetensors": (500).to_bytes(8, "little") + b"{}"}, CONFIG, "JSE459"),
        ({"model.safetensors": (5).to_bytes(8, "little") + b"{nope"}, CONFIG, "JSE460"),
        ({"model.safetensors": (2).to_bytes(8, "little") + b"[]"}, CONFIG, "JSE461"),
        ({"model.safetensors": header({"w": ("BF16", ["x"], 2)})}, CONFIG, "JSE462"),
        ({"model.safetensors": header({"w": ("BF16", [1], -2)})}, CONFIG, "JSE463"),
        ({"model.safetensors": b"abc"}, CONFIG, "JSE457"),
    ],
)
def test_what_cannot_be_used_is_refused_clearly(tmp_path, files, config, code):
    folder = write(tmp_path / "m", files, config)
    with pytest.raises(ModelError) as caught:
        profile_from_dir(LocalHost(), str(folder))
    assert caught.value.code == code
    assert "m" in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_gguf_file_itself_is_refused(tmp_path):
    with pytest.raises(ModelError, match="GGUF"):
        profile_from_dir(LocalHost(), str(tmp_path / "model.gguf"))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_an_error(data):
    # whatever the bytes are, nothing but our own error comes out
    with suppress(ModelError):
        for tensor in parse_header(data, where="x"):
            assert tensor.file_bytes >= 0


@given(
    st.dictionaries(st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__"),
                    st.tuples(st.sampled_from(["BF16", "F8_E4M3", "U8"]), st.lists(st.integers(1, 9), max_size=3),
                              st.integers(0, 10**12)), max_size=6)
)  # fmt: skip
def test_headers_round_trip_and_add_up(tensors):
    data = header({name: (dtype, shape, size) for name, (dtype, shape, size) in tensors.items()})
    read = parse_header(data, where="x")
    assert {tensor.name: (tensor.dtype, list(tensor.shape), tensor.file_bytes) for tensor in read} == {
        name: tuple(value) for name, value in tensors.items()
    }
    sizes = weight_sizes(read, dtype_bytes=2, quantized=True, tied=False)
    assert sizes.file_bytes == sum(size for _, _, size in tensors.values())
    assert sizes.loaded + sizes.mtp == sizes.file_bytes


# --- the cache ---------------------------------------------------------------------------------------------------


def recorded_cache(tmp_path, env):
    hub = tmp_path / "rec" / "root" / "data" / "hub" / "models--org--tiny"
    write(hub / "snapshots" / "abc123", {"model.safetensors": header(TENSORS)})
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("abc123")
    (tmp_path / "rec" / "env.json").write_text(json.dumps(env))
    return RecordedHost(tmp_path / "rec")


@pytest.mark.parametrize("env", [{"HF_HUB_CACHE": "/data/hub"}, {"HF_HOME": "/data"}])
def test_a_cached_repository(tmp_path, env):
    host = recorded_cache(tmp_path, env)
    profile = profile_from_cache(host, "org/tiny")
    assert profile.id == "org/tiny"
    assert profile.bytes_source == "headers"
    assert profile_from_cache(host, "org/other") is None
    assert profile_from_cache(host, "org/tiny", revision="v2") is None
    assert cached_snapshot(host, "org/tiny", revision="abc123").endswith("/snapshots/abc123")


def test_without_a_home_there_is_no_cache(tmp_path):
    (tmp_path / "rec").mkdir()
    assert profile_from_cache(RecordedHost(tmp_path / "rec"), "org/tiny") is None


# --- a hub on this machine ---------------------------------------------------------------------------------------


class _Hub(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        self.server.asked.append((self.command, self.path, self.headers.get("Range")))
        name = self.path.rsplit("/resolve/main/", 1)[-1]
        code, content = 404, b""
        if "/org/gated/" in self.path:
            return self.finish_with(403, b"", {"X-Error-Code": "GatedRepo"}, body)
        if "/org/missing/" in self.path:
            return self.finish_with(404, b"", {"X-Error-Code": "RepoNotFound"}, body)
        if "/resolve/main/" in self.path and name in self.server.files:
            code, content = 200, self.server.files[name]
        extra = {} if code == 200 else {"X-Error-Code": "EntryNotFound"}
        wanted = self.headers.get("Range")
        if code == 200 and wanted:
            start, end = wanted.removeprefix("bytes=").split("-")
            content, code = content[int(start) : int(end) + 1], 206
        return self.finish_with(code, content, extra, body)

    def finish_with(self, code, content, extra, body):
        self.send_response(code)
        for key, value in {"X-Repo-Commit": "c" * 40, "ETag": '"e"', **extra}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)


@contextmanager
def hub(files):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    server.files, server.asked = files, []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_repository_is_read_by_range_requests(tmp_path):
    weights = header(TENSORS) + b"\0" * 400_000
    with hub({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": weights}) as (server, endpoint):
        profile = profile_from_hub("org/tiny", endpoint=endpoint, cache_dir=str(tmp_path), token=False)
    assert profile.bytes_source == "headers"
    assert profile.weight_bytes == 128000 + 8192 + 16384 + 128 + 200 + 128000
    asked = [span for method, path, span in server.asked if method == "GET" and path.endswith(".safetensors")]
    assert asked
    assert all(span for span in asked), "the weights must never be asked for as a whole"


def test_a_repository_without_safetensors_falls_back_to_the_formula(tmp_path):
    with hub({"config.json": json.dumps(CONFIG).encode()}) as (_, endpoint):
        profile = profile_from_hub("org/tiny", endpoint=endpoint, cache_dir=str(tmp_path), token=False)
    assert profile.bytes_source == "formula"


@pytest.mark.parametrize(("repo", "code"), [("org/missing", "JSE454"), ("org/gated", "JSE456")])
def test_what_the_hub_refuses(tmp_path, repo, code):
    with hub({}) as (_, endpoint), pytest.raises(ModelError) as caught:
        profile_from_hub(repo, endpoint=endpoint, cache_dir=str(tmp_path), token="hf_secretsecretsecret")
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


def test_a_hub_that_is_not_there(tmp_path):
    with hub({}) as (_, endpoint):
        pass
    with pytest.raises(ModelError) as caught:
        profile_from_hub("org/tiny", endpoint=endpoint, cache_dir=str(tmp_path), token=False)
    assert caught.value.code == "JSE455"
