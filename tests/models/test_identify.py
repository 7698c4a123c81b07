# SPDX-License-Identifier: Apache-2.0
"""Which model a recipe serves: from ids, cache folders, names of folders, and what lies in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.host import RecordedHost
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.identify import identify_target, precision_in
from jetson_specdec.models.naming import close_ids, folder_names, id_in_cache_path, is_gguf, is_repository_id

QWEN3_8B = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}


@frozen
class Mounted:
    host: str | None
    container: str


@pytest.fixture
def board(tmp_path):
    """Return a function that records files (path → text or JSON value) and gives the host."""

    def record(files, env=None):
        for path, content in files.items():
            target = tmp_path / "root" / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        (tmp_path / "root").mkdir(exist_ok=True)
        (tmp_path / "env.json").write_text(json.dumps(env or {}))
        return RecordedHost(tmp_path)

    return record


def told(identity):
    return identity.id, identity.base, identity.how


# --- by name alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "base", "precision", "how", "confidence"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "bf16", "exact", "high"),
        ("openai/gpt-oss-20b", "openai/gpt-oss-20b", "mxfp4", "exact", "high"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B", "w4a16", "variant", "high"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8", "meta-llama/Llama-3.1-8B-Instruct", "fp8", "variant", "high"),
        ("Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B", "fp8", "variant", "medium"),
        ("Qwen/Qwen3.5-35B-A3B-GPTQ-Int4", "Qwen/Qwen3.5-35B-A3B", "w4a16", "variant", "medium"),
        ("nvidia/Llama-3_3-Nemotron-Super-49B-v1-FP8", None, None, "exact", "high"),
        ("Qwen/Qwen3-8B-Base", None, None, "exact", "high"),
    ],
)
def test_repository_ids(served, base, precision, how, confidence):
    identity = identify_target(served)
    assert (identity.served, identity.id) == (served, served)
    assert (identity.base, identity.precision, identity.how, identity.confidence) == (base, precision, how, confidence)


def test_alias_and_older_name_keep_the_spelling_of_the_recipe():
    alias = identify_target("meta-llama/Meta-Llama-3.1-8B-Instruct")
    assert told(alias) == (
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "meta-llama/Llama-3.1-8B-Instruct",
        "exact",
    )
    assert alias.remarks == ("alias",)
    older = identify_target("nvidia/Llama-3.1-8B-Instruct-FP4")
    assert (older.base, older.precision, older.remarks) == ("meta-llama/Llama-3.1-8B-Instruct", "nvfp4", ("renamed",))


@pytest.mark.parametrize(
    ("served", "base"),
    [
        ("someone/Qwen3-8B-AWQ", "Qwen/Qwen3-8B"),
        ("someone/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "meta-llama/Llama-3.1-8B-Instruct"),
        ("unsloth/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("LLM-Research/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_a_copy_under_the_very_name_is_taken_for_one_with_low_confidence(served, base):
    identity = identify_target(served)
    assert (identity.id, identity.base, identity.remarks) == (served, base, ("third-party-copy",))
    assert identity.confidence == "low"


@pytest.mark.parametrize(
    "served", ["someone/Qwen3-8B-uncensored", "someone/my-Qwen3-8B", "someone/Qwen3-8B-Chinese-AWQ"]
)
def test_a_fine_tune_s_name_is_not_a_copy(served):
    assert identify_target(served).base is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("google/gemma-4-26B-A4B-it", True),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", True),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", True),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", True),
        ("allenai/OLMoE-1B-7B-0924", True),
        ("ibm-granite/granite-3.1-1b-a400m-instruct", True),
        ("Qwen/Qwen3-8B", None),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", None),
        ("acme/smoelle-7b", None),
    ],
)
def test_names_that_say_mixture_of_experts(name, says):
    from jetson_specdec.models.naming import says_mixture_of_experts

    assert says_mixture_of_experts(name) is says


def test_serving_a_speculators_head_serves_its_target():
    identity = identify_target("RedHatAI/Qwen3-8B-speculator.eagle3")
    assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "speculators")
    assert identity.head == "RedHatAI/Qwen3-8B-speculator.eagle3"


def test_misspelt_id():
    identity = identify_target("meta-llama/Llama3.1-8B-Instruct")
    assert identity.base is None
    assert identity.near_misses[0] == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("served", "id"),
    [
        ("./store/Qwen/Qwen2___5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
        ("./DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"),
        ("/models/Qwen3-8B/", "Qwen/Qwen3-8B"),
        ("/models/Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("/data/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("/ms/hub/models/Qwen/Qwen3-0___6B", "Qwen/Qwen3-0.6B"),
        ("/x/Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B-AWQ"),
    ],
)
def test_folders_called_after_a_model(served, id):
    identity = identify_target(served)
    assert (identity.id, identity.how, identity.confidence) == (id, "path_name", "medium")
    assert identity.base == Catalog.default().target(id).id


def test_a_bare_copy_s_name_tells_the_model_but_not_whose_copy():
    identity = identify_target("/models/Qwen3-8B-FP8")
    assert told(identity) == (None, "Qwen/Qwen3-8B", "path_name")
    assert identity.precision == "fp8"


@pytest.mark.parametrize("served", ["/model", "/weights/qwen", "./", "/", "~", "$MODEL", "/models/Qwen3-8B-mine", ".."])
def test_what_names_nothing_is_not_known(served):
    assert told(identify_target(served)) == (None, None, "unknown")


@pytest.mark.parametrize("served", [None, "", "a\0b"])
def test_no_text_at_all(served):
    assert told(identify_target(served)) == (None, None, "unknown")


def test_cache_folder_names_the_repository():
    identity = identify_target("/hf/hub/models--RedHatAI--Qwen3-8B-quantized.w4a16/snapshots/4be1")
    assert told(identity) == ("RedHatAI/Qwen3-8B-quantized.w4a16", "Qwen/Qwen3-8B", "cache_path")
    assert (identity.precision, identity.confidence) == ("w4a16", "high")


def test_gguf_is_recognised_and_not_matched():
    remote = identify_target("someone/Qwen3-8B-GGUF:Q4_K_M")
    assert (remote.id, remote.base, remote.remarks) == ("someone/Qwen3-8B-GGUF", None, ("gguf",))
    local = identify_target("/weights/small-24b.gguf")
    assert (local.id, local.base, local.remarks) == (None, None, ("gguf",))


def test_object_store():
    assert identify_target("s3://bucket/Qwen3-8B").remarks == ("object-store",)


def test_the_user_s_word_wins():
    identity = identify_target("/model", named="Qwen/Qwen3-8B-AWQ")
    assert told(identity) == ("Qwen/Qwen3-8B-AWQ", "Qwen/Qwen3-8B", "named")
    assert (identity.served, identity.precision) == ("/model", "w4a16")


def test_users_targets_are_recognised(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('schema_version = 1\n[[targets]]\nid = "our-lab/Robot-8B"\n')
    identity = identify_target("/srv/models/Robot-8B", catalog=Catalog.load([file]))
    assert told(identity) == ("our-lab/Robot-8B", "our-lab/Robot-8B", "path_name")


def test_a_name_that_two_organisations_use_decides_nothing(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text('schema_version = 1\n[[targets]]\nid = "our-lab/Qwen3-8B"\n')
    catalog = Catalog.load([file])
    identity = identify_target("/models/Qwen3-8B", catalog=catalog)
    assert told(identity) == (None, None, "unknown")
    assert (identity.remarks, set(identity.near_misses)) == (("ambiguous",), {"Qwen/Qwen3-8B", "our-lab/Qwen3-8B"})
    assert catalog.copy_of("RedHatAI/Qwen3-8B-NVFP4A16") is None
    assert Catalog.default().copy_of("RedHatAI/Qwen3-8B-NVFP4A16").base == "Qwen/Qwen3-8B"


# --- looking at the board ------------------------------------------------------------------------------------------


def test_mount_leads_to_a_folder_that_is_called_after_the_model(board):
    host = board({"/srv/llm/Qwen3-8B/config.json": QWEN3_8B})
    identity = identify_target("/model", host=host, mounts=[Mounted("/srv/llm/Qwen3-8B", "/model")])
    assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "path_name")
    assert identity.config == QWEN3_8B
    assert identity.looked_in == ("/srv/llm/Qwen3-8B: found",)


def test_deepest_mount_wins(board):
    host = board({"/fast/Qwen3-8B/config.json": QWEN3_8B})
    mounts = [Mounted("/slow", "/models"), Mounted("/fast", "/models/big")]
    identity = identify_target("/models/big/Qwen3-8B", host=host, mounts=mounts)
    assert identity.looked_in == ("/fast/Qwen3-8B: found",)


def test_mount_into_a_cache_snapshot():
    mounts = [Mounted("/data/hub/models--Qwen--Qwen3-8B/snapshots/9c1", "/model")]
    assert told(identify_target("/model", mounts=mounts)) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "cache_path")


def test_what_a_mount_cannot_tell(board):
    host = board({})
    named_volume = identify_target("/model", host=host, mounts=[Mounted(None, "/model")])
    assert (told(named_volume), named_volume.looked_in) == ((None, None, "unknown"), ("/model: unresolved",))
    variable = identify_target("/model", host=host, mounts=[Mounted("/srv/$WHICH", "/model")])
    assert (told(variable), variable.looked_in) == ((None, None, "unknown"), ("/model: unresolved",))
    inside = identify_target("/srv/model", host=host, in_container=True)
    assert (told(inside), inside.looked_in) == ((None, None, "unknown"), ("/srv/model: no-mount",))


def test_a_container_path_is_not_looked_up_on_the_host(board):
    host = board({"/model/config.json": {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B"}})
    assert told(identify_target("/model", host=host, in_container=True)) == (None, None, "unknown")
    assert identify_target("/model", host=host).base == "Qwen/Qwen3-8B"


def test_by_name_beside_the_recipe(board):
    config = {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B"}
    host = board({"/home/nv/bot/model/config.json": config})
    identity = identify_target("/model", host=host, in_container=True, recipe_path="/home/nv/bot/run.sh")
    assert identity.base == "Qwen/Qwen3-8B"
    assert identity.looked_in == ("/model: no-mount", "/home/nv/bot/model: found")


def test_relative_paths_start_at_the_working_directory_then_the_recipe(board):
    host = board({"/home/nv/bot/weights/config.json": {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B"}})
    identity = identify_target("./weights", host=host, workdir="/srv", recipe_path="/home/nv/bot/run.sh")
    assert identity.looked_in == ("/srv/weights: absent", "/home/nv/bot/weights: found")
    assert identity.base == "Qwen/Qwen3-8B"


def test_relative_and_home_mounts(board):
    files = {"/home/nv/bot/m/config.json": QWEN3_8B, "/home/nv/models/Qwen3-8B/config.json": QWEN3_8B}
    host = board(files, env={"HOME": "/home/nv"})
    beside = identify_target("/w", host=host, mounts=[Mounted("./m", "/w")], recipe_path="/home/nv/bot/compose.yaml")
    assert beside.looked_in[0] == "/home/nv/bot/m: found"
    for text in ("~/models", "$HOME/models", "${HOME}/models"):
        identity = identify_target("/w/Qwen3-8B", host=host, mounts=[Mounted(text, "/w")])
        assert identity.looked_in == ("/home/nv/models/Qwen3-8B: found",)


def test_config_that_contradicts_the_folder_s_name(board):
    host = board({"/models/Qwen3-8B/config.json": {**QWEN3_8B, "hidden_size": 2560}})
    identity = identify_target("/models/Qwen3-8B", host=host)
    assert (identity.id, identity.base, identity.remarks) == (None, None, ("config-disagrees",))
    assert identity.near_misses == ("Qwen/Qwen3-8B",)
    assert identity.config["hidden_size"] == 2560


def test_shape_alone_proves_no_identity(board):
    host = board({"/models/mine/config.json": QWEN3_8B})
    identity = identify_target("/models/mine", host=host)
    assert told(identity) == (None, None, "unknown")
    assert identity.config == QWEN3_8B


def test_name_in_the_config_is_believed_a_little(board):
    host = board({"/models/mine/config.json": {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B"}})
    identity = identify_target("/models/mine", host=host)
    assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "local_config")
    assert identity.confidence == "low"


def test_local_quantised_copy_has_a_base_and_no_id(board):
    config = {**QWEN3_8B, "_name_or_path": "Qwen/Qwen3-8B", "quantization_config": {"quant_method": "fp8"}}
    identity = identify_target("/models/mine", host=board({"/models/mine/config.json": config}))
    assert told(identity) == (None, "Qwen/Qwen3-8B", "local_config")
    assert identity.precision == "fp8"


def test_local_speculators_head(board):
    config = {"speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "Qwen/Qwen3-8B"}}}
    identity = identify_target("/heads/q", host=board({"/heads/q/config.json": config}))
    assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "speculators")
    assert (identity.head, identity.config) == ("/heads/q", config)


def test_folder_of_gguf_files(board):
    identity = identify_target("/models/Qwen3-8B", host=board({"/models/Qwen3-8B/q4.gguf": "x"}))
    assert (identity.id, identity.remarks) == (None, ("gguf",))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 20_000, '{"a": NaN}', '{"quantization_config": 7}'])
def test_broken_config_is_no_config(board, text):
    identity = identify_target("/models/Qwen3-8B", host=board({"/models/Qwen3-8B/config.json": text}))
    assert identity.id == "Qwen/Qwen3-8B"


def test_config_comes_from_the_cache_that_the_engine_uses(board):
    snapshot = "models--Qwen--Qwen3-8B/snapshots/77aa/config.json"
    refs = "models--Qwen--Qwen3-8B/refs/main"
    for root, arguments in {
        "/data/hub": {"mounts": [Mounted("/data", "/root/.cache/huggingface")]},
        "/big": {"mounts": [Mounted("/big", "/cache")], "env": {"HF_HUB_CACHE": "/cache"}},
        "/srv/hf/hub": {"env": {"HF_HOME": "/srv/hf"}},
        "/home/nv/.cache/huggingface/hub": {},
    }.items():
        host = board({f"{root}/{snapshot}": {**QWEN3_8B, "root": root}, f"{root}/{refs}": "77aa"}, {"HOME": "/home/nv"})
        identity = identify_target("Qwen/Qwen3-8B", host=host, **arguments)
        assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "exact")
        assert identity.config["root"] == root
        assert identity.looked_in == (f"{root}: found",)


def test_id_stays_when_its_cached_config_has_other_numbers(board):
    cache = "/home/nv/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/7"
    host = board({f"{cache}/config.json": {**QWEN3_8B, "num_hidden_layers": 4}}, {"HOME": "/home/nv"})
    identity = identify_target("Qwen/Qwen3-8B", host=host)
    assert (identity.id, identity.base, identity.remarks) == ("Qwen/Qwen3-8B", None, ("config-disagrees",))


@pytest.mark.parametrize(
    ("config", "precision"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"text_config": {"torch_dtype": "bfloat16"}}, "bf16"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}, "w4a16"),
        ({"quantization_config": {"quant_method": "something-new"}, "torch_dtype": "bfloat16"}, None),
        ({}, None),
    ],
)
def test_precision_in_a_config(config, precision):
    assert precision_in(config) == precision


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("Qwen/Qwen3-8B", True),
        ("a/b.c_d-e", True),
        ("/a/b", False),
        ("a/b/c", False),
        ("./b", False),
        ("a", False),
        ("a/b c", False),
        ("a/..", False),
        ("", False),
    ],
)
def test_repository_id_form(text, valid):
    assert is_repository_id(text) is valid


@pytest.mark.parametrize(
    ("text", "gguf"),
    [
        ("/m/x.gguf", True),
        ("/m/X.GGUF", True),
        ("o/n-GGUF", True),
        ("o/n-GGUF:Q4_K_M", True),
        ("o/n:IQ3_XS", True),
        ("o/ggufify", False),
        ("Qwen/Qwen3-8B", False),
    ],
)
def test_gguf_names(text, gguf):
    assert is_gguf(text) is gguf


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,8}/[A-Za-z0-9][A-Za-z0-9_.-]{0,12}", fullmatch=True))
def test_cache_folders_round_trip(id):
    if "--" in id or id.partition("/")[0].endswith("-") or id.partition("/")[2].startswith("-"):
        return  # the Hub has no such names
    folder = "models--" + id.replace("/", "--")
    assert id_in_cache_path(f"/any/hub/{folder}/snapshots/abc") == id


@given(st.sampled_from(sorted(Catalog.default().rows.targets)))
def test_modelscope_folders_lead_back_to_the_id(id):
    org, name = id.split("/")
    assert folder_names(f"/ms/{org}/{name.replace('.', '___')}") == (id, name)


@given(st.sampled_from(sorted(Catalog.default().rows.targets)))
def test_every_known_model_is_identified_as_itself(id):
    identity = identify_target(id)
    assert told(identity) == (id, id, "exact")
    assert identify_target(f"/models/{id}").base == id


@given(st.text(max_size=20), st.lists(st.text(max_size=12), max_size=4))
def test_close_ids_returns_known_ones_only(text, known):
    assert set(close_ids(text, known)) <= set(known)


PATHS = st.one_of(
    st.text(st.characters(), max_size=40),  # lone surrogates too: undecodable bytes of a recipe
    st.lists(
        st.sampled_from(
            ["Qwen", "Qwen3-8B", "models--Qwen--Qwen3-8B", "..", "~", "$HOME", "${X}", "", "___", "-AWQ", "a:b"]
        ),
        max_size=5,
    ).map("/".join),
)
CONFIGS = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5000) | st.text(max_size=8) | st.just("Qwen/Qwen3-8B"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "quantization_config",
                    "speculators_config",
                    "verifier",
                    "name_or_path",
                    "_name_or_path",
                    "text_config",
                    "hidden_size",
                    "vocab_size",
                    "num_hidden_layers",
                    "torch_dtype",
                    "config_groups",
                    "quant_method",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)


class Anything:
    """A host on which every path is a folder with the same config."""

    live = False

    def __init__(self, config):
        self._text = json.dumps(config)
        self.environ = {"HOME": "/home/nv"}

    def kind(self, path):
        return "directory"

    def read_bytes(self, path, *, limit=0):
        return self._text.encode()

    def read_text(self, path, *, limit=0):
        return self._text

    def list_dir(self, path):
        return ("config.json",)

    def run(self, argv, *, timeout=0):
        return None

    def now(self):
        return 0.0


@given(
    PATHS | st.none(),
    CONFIGS,
    st.lists(st.builds(Mounted, PATHS | st.none(), PATHS), max_size=2),
    PATHS | st.none(),
    PATHS | st.none(),
    PATHS | st.none(),
    st.booleans() | st.none(),
)
def test_never_raises(served, config, mounts, workdir, recipe_path, named, in_container):
    identity = identify_target(
        served,
        host=Anything(config),
        mounts=mounts,
        workdir=workdir,
        recipe_path=recipe_path,
        named=named,
        in_container=in_container,
        env={"HF_HOME": workdir, "HF_HUB_CACHE": None},
    )
    if identity.how == "unknown":
        assert identity.base is None
    if identity.base is not None:
        assert Catalog.default().canonical(identity.base) == identity.base


def test_a_real_directory_works_as_well(tmp_path):
    from jetson_specdec.host import LocalHost

    folder = Path(tmp_path) / "Qwen" / "Qwen3-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(QWEN3_8B))
    identity = identify_target(str(folder), host=LocalHost())
    assert told(identity) == ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "path_name")
    assert identity.precision == "bf16"


@pytest.mark.parametrize("content", ["", "nope", "[]", "[" * 100_000, '{"hidden_size":'])
def test_a_config_that_cannot_be_read_is_remarked(board, content):
    host = board({"/models/Qwen3-8B/config.json": content})
    identity = identify_target("/models/Qwen3-8B", host=host)
    assert "config-unreadable" in identity.remarks
    assert identity.folder is None
    whole = identify_target("/models/Qwen3-8B", host=board({"/models/Qwen3-8B/config.json": QWEN3_8B}))
    assert "config-unreadable" not in whole.remarks
