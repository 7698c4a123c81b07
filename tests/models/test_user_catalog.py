# SPDX-License-Identifier: Apache-2.0
"""Catalogue files that users write."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import CatalogueError
from jetson_specdec.models.catalog import Catalog
from jetson_specdec.models.user_files import check_document, user_schema

GOOD = """
schema_version = 1

[[targets]]
id = "our-lab/Robot-8B"
vocab_size = 151936
variants = { "our-lab/Robot-8B-w4" = "w4a16" }
aliases = ["our-lab/robot"]

[[heads]]
id = "/srv/heads/robot"
target = "our-lab/Robot-8B"
loads_in_vllm = "tested"
min_vllm = "0.20.0"
acceptance = [{ benchmark = "own prompts", num_speculative_tokens = 5, mean_length = 2.8 }]

[[heads]]
id = "thoughtworks/Qwen2.5-7B-Instruct-Eagle3"
target = "Qwen/Qwen2.5-7B-Instruct"
loads_in_vllm = "tested"

[[pairs]]
target = "our-lab/Robot-8B"
draft = "Qwen/Qwen3-0.6B"
weight_ratio = 0.08
"""


def load(tmp_path, text, name="catalog.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return Catalog.load([path])


def fault(tmp_path, text, name="catalog.toml"):
    with pytest.raises(CatalogueError) as caught:
        load(tmp_path, text, name)
    message = str(caught.value)
    assert "\n" not in message
    assert name in message
    return caught.value.code, message


def test_entries_are_added(tmp_path):
    catalog = load(tmp_path, GOOD)
    record = catalog.target("our-lab/Robot-8B-w4")
    assert record is not None
    assert record.id == "our-lab/Robot-8B"
    assert catalog.canonical("our-lab/robot") == "our-lab/Robot-8B"
    (head,) = catalog.heads_for("our-lab/Robot-8B")
    assert (head.id, head.method, head.loads_in_vllm, head.confidence) == (
        "/srv/heads/robot",
        "eagle3",
        "tested",
        "medium",
    )
    assert head.sources[0] == f"user: {tmp_path / 'catalog.toml'}"
    assert head.evidence == head.sources[0]
    assert head.acceptance[0].mean_length == 2.8
    assert catalog.user_files == (str(tmp_path / "catalog.toml"),)


def test_pair_takes_vocabularies_from_the_catalogue(tmp_path):
    (pair,) = load(tmp_path, GOOD).pairs_for("our-lab/Robot-8B")
    assert (pair.target_vocab_size, pair.draft_vocab_size, pair.usable) == (151936, 151936, True)


def test_known_entry_keeps_what_is_not_named(tmp_path):
    before = Catalog.default().head("thoughtworks/Qwen2.5-7B-Instruct-Eagle3")
    after = load(tmp_path, GOOD).head("thoughtworks/Qwen2.5-7B-Instruct-Eagle3")
    assert before is not None
    assert after is not None
    assert (before.loads_in_vllm, after.loads_in_vllm) == ("unknown", "tested")
    assert after.resident_bytes == before.resident_bytes
    assert after.sources[1:] == before.sources


def test_packaged_catalogue_is_untouched(tmp_path):
    load(tmp_path, GOOD)
    assert Catalog.default().target("our-lab/Robot-8B") is None
    assert Catalog.default().head("thoughtworks/Qwen2.5-7B-Instruct-Eagle3").loads_in_vllm == "unknown"


def test_later_file_wins(tmp_path):
    paths = []
    for index, k in enumerate((2, 6)):
        path = tmp_path / f"{index}.json"
        head = {"id": "our-lab/h", "target": "Qwen/Qwen3-8B", "native_k": k}
        path.write_text(json.dumps({"schema_version": 1, "heads": [head]}))
        paths.append(path)
    assert Catalog.load(paths).head("our-lab/h").native_k == 6


def test_pair_with_other_vocabulary_is_listed_not_used(tmp_path):
    text = 'schema_version = 1\n[[pairs]]\ntarget = "Qwen/Qwen2.5-7B-Instruct"\ndraft = "Qwen/Qwen3-0.6B"\n'
    pair = next(p for p in load(tmp_path, text).pairs_for("Qwen/Qwen2.5-7B-Instruct") if p.draft == "Qwen/Qwen3-0.6B")
    assert (pair.usable, pair.why_not) == (False, "vocab-mismatch")


def test_user_may_override_a_judgement_but_not_the_vocabulary(tmp_path):
    pair = 'schema_version = 1\n[[pairs]]\ntarget = "{}"\ndraft = "{}"\nusable = true\n'
    chosen = load(tmp_path, pair.format("openai/gpt-oss-120b", "openai/gpt-oss-20b")).pairs_for("openai/gpt-oss-120b")
    assert (chosen[0].usable, chosen[0].why_not) == (True, None)
    code, message = fault(tmp_path, pair.format("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"))
    assert code == "JSE414"
    assert "152064" in message
    assert "151936" in message
    assert fault(tmp_path, pair.format("our-lab/a", "our-lab/b"))[0] == "JSE414"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('[[heads]]\nid="a/b"\ntarget="c/d"', "JSE413", ["the file", "schema_version"]),
        ("schema_version = 2", "JSE419", ["schema_version", "2"]),
        ('schema_version = 1\n[[heads]]\nid="a/b"', "JSE413", ["heads[0]", "target"]),
        ('schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nmin_vlm="0.20.0"', "JSE411", ["heads[0]", "min_vlm"]),
        ('schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nmin_vllm="0.20"', "JSE417", ["heads[0]", "min_vllm"]),
        ('schema_version = 1\n[[heads]]\nid="a b"\ntarget="c/d"', "JSE417", ["heads[0]", "id"]),
        (
            'schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\ngated="no"',
            "JSE412",
            ["heads[0]", "gated", "boolean"],
        ),
        ('schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nnative_k=true', "JSE412", ["native_k", "integer"]),
        ('schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nnative_k=0', "JSE418", ["native_k"]),
        (
            'schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nloads_in_vllm="yes"',
            "JSE416",
            ["tested", "documented"],
        ),
        (
            'schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\n[[heads.acceptance]]\nbenchmark="x"\nmean=2',
            "JSE411",
            ["heads[0]", "'mean'"],
        ),
        (
            'schema_version = 1\n[[heads]]\nid="a/b"\ntarget="c/d"\nacceptance=[{benchmark="x", mean_length=nan}]',
            "JSE412",
            ["acceptance[0].mean_length", "number"],
        ),
        (
            'schema_version = 1\n[[targets]]\nid="a/b"\n[targets.weight_bytes]\nbf16=1.5',
            "JSE412",
            ["weight_bytes.bf16"],
        ),
        ('schema_version = 1\n[[targets]]\nid="a/b"\n[[targets]]\nid="a/b"', "JSE415", ["targets[1]", "a/b"]),
        ("schema_version = 1\nheads = 3", "JSE412", ["heads"]),
        ("schema_version = ", "JSE006", ["TOML"]),
    ],
)
def test_faults_name_entry_and_field(tmp_path, text, code, words):
    found, message = fault(tmp_path, text)
    assert found == code
    for word in words:
        assert word in message


def test_json_faults(tmp_path):
    assert fault(tmp_path, "{", "c.json")[0] == "JSE006"
    assert fault(tmp_path, "[]", "c.json")[0] == "JSE412"
    assert fault(tmp_path, "[" * 100_000, "c.json")[0] == "JSE006"


def test_other_formats_and_missing_files(tmp_path):
    assert fault(tmp_path, "schema_version: 1", "c.yaml")[0] == "JSE410"
    with pytest.raises(CatalogueError, match=r"nowhere\.toml") as caught:
        Catalog.load([tmp_path / "nowhere.toml"])
    assert caught.value.code == "JSE005"
    binary = tmp_path / "b.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CatalogueError, match=r"b\.json"):
        Catalog.load([binary])


def test_schema_is_a_json_schema():
    jsonschema.Draft202012Validator.check_schema(user_schema())


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["a/b", "tested", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["schema_version", "heads", "targets", "pairs", "id", "target", "draft", "native_k", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON | st.builds(lambda heads: {"schema_version": 1, "heads": heads}, st.lists(JSON, max_size=2)))
def test_reading_agrees_with_the_published_schema(document):
    valid = jsonschema.Draft202012Validator(user_schema()).is_valid(document)
    assert verdict(document) in (("JSE415",) if valid else ALL_FAULTS) or (valid and verdict(document) is None)


ALL_FAULTS = tuple(f"JSE{number}" for number in (411, 412, 413, 415, 416, 417, 418, 419))


def verdict(document):
    try:
        check_document(document, where="c.json")
    except CatalogueError as error:
        return error.code
    return None


def test_numbers_from_different_conditions_are_not_compared(tmp_path):
    head = '[[heads]]\nid = "our-lab/{0}"\ntarget = "our-lab/R"\nresident_bytes = {1}\nacceptance = [{2}]\n'
    record = '{{ benchmark = "{0}", num_speculative_tokens = 3, mean_length = {1} }}'
    text = "schema_version = 1\n" + head.format("large", 900, record.format("easy", 3.5))
    text += head.format("small", 500, record.format("hard", 1.5))
    assert [h.id for h in load(tmp_path, text).heads_for("our-lab/R")] == ["our-lab/small", "our-lab/large"]
    text = text.replace("easy", "hard")
    assert [h.id for h in load(tmp_path, text).heads_for("our-lab/R")] == ["our-lab/large", "our-lab/small"]
