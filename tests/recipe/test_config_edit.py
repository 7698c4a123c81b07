# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jetson_specdec.errors import RecipeSyntaxError, UneditableError
from jetson_specdec.recipe import edit_config, parse_config

CONFIG = """\
# how the arm's planner is served
model: "Qwen/Qwen3-8B"   # keep

gpu-memory-utilization: 0.85  # the desktop needs the rest
max_model_len: 8k
served-model-name: [planner, 'planner-8b']
# last words
"""
SPEC = {"method": "eagle3", "model": "RedHatAI/Qwen3-8B-speculator.eagle3", "num_speculative_tokens": 3}


def edited(text, **changes):
    return edit_config(parse_config(text, path="/srv/v.yaml"), **changes)


def test_a_value_is_replaced_and_every_other_byte_stays():
    assert edited(CONFIG, set_values={"gpu-memory-utilization": "0.8"}) == CONFIG.replace("0.85", "0.8")


@pytest.mark.parametrize("value", ["'0.85'", '"0.85"', "0.85"])
@pytest.mark.parametrize("key", ["gpu-memory-utilization", "gpu_memory_utilization"])
def test_spelling_of_the_key_and_quotes_of_the_value_are_kept(key, value):
    text = f"model: a/b\n{key}:   {value}   # note\nport: 8000\n"
    assert edited(text, set_values={"gpu-memory-utilization": "0.8"}) == text.replace("0.85", "0.8")


def test_a_mapping_is_appended_behind_the_last_value():
    after = edited(CONFIG, add={"speculative-config": SPEC})
    added = (
        "\nspeculative-config:\n  method: eagle3\n  model: RedHatAI/Qwen3-8B-speculator.eagle3\n"
        "  num_speculative_tokens: 3"
    )
    assert after == CONFIG.replace("'planner-8b']", "'planner-8b']" + added)
    assert yaml.safe_load(after)["speculative-config"] == SPEC


def test_new_keys_follow_the_spelling_of_the_file():
    text = "model: a/b\nmax_model_len: 1\nmax_num_seqs: 2\n"
    after = edited(text, set_values={"gpu-memory-utilization": "0.8"}, add={"speculative-config": SPEC})
    assert after.startswith(text + "gpu_memory_utilization: 0.8\nspeculative_config:\n")


def test_json_style_where_the_file_writes_json():
    text = 'model: a/b\ncompilation-config: \'{"cudagraph_mode": "PIECEWISE"}\'\n'
    after = edited(text, add={"speculative-config": SPEC})
    assert json.loads(yaml.safe_load(after)["speculative-config"]) == SPEC
    assert after.startswith(text)


@pytest.mark.parametrize("text", ["model: a/b\r\nport: 1\r\n", "model: a/b\r\nport: 1"])
def test_windows_line_ends_and_a_missing_last_newline_stay(text):
    after = edited(text, set_values={"gpu-memory-utilization": "0.8"})
    assert after == text.removesuffix("\r\n") + "\r\ngpu-memory-utilization: 0.8" + ("\r\n" if text[-1] == "\n" else "")


def test_the_same_edit_twice_changes_nothing_more():
    once = edited(CONFIG, set_values={"gpu-memory-utilization": "0.8"}, add={"speculative-config": SPEC})
    assert edited(once, set_values={"gpu-memory-utilization": "0.8"}, add={"speculative-config": SPEC}) == once


def test_an_entry_is_rewritten_where_it_stands():
    text = "model: a/b\nspeculative-config:\n  method: ngram\n  num_speculative_tokens: 2\nport: 8000 # p\n"
    after = edited(text, add={"speculative-config": SPEC})
    assert after.startswith("model: a/b\nspeculative-config:\n  method: eagle3\n")
    assert after.endswith("  num_speculative_tokens: 3\nport: 8000 # p\n")


def test_removing_takes_whole_lines():
    text = "model: a/b\n# why\nspeculative_config:\n  method: ngram\n  num_speculative_tokens: 2\n\nport: 8000\n"
    assert edited(text, remove=["speculative-config"]) == "model: a/b\n# why\n\nport: 8000\n"


def test_a_shared_anchor_is_not_edited():
    text = "gpu-memory-utilization: &u 0.85\ncpu-offload-gb: *u\nmodel: a/b\n"
    with pytest.raises(UneditableError) as caught:
        edited(text, set_values={"gpu-memory-utilization": "0.8"})
    assert "line 1" in str(caught.value)
    assert "&u" in str(caught.value)


def test_an_alias_is_replaced_where_it_is_used():
    text = "cpu-offload-gb: &u 0.85\ngpu-memory-utilization: *u\nmodel: a/b\n"
    after = edited(text, set_values={"gpu-memory-utilization": "0.8"})
    assert after == text.replace("*u", "0.8")


def test_an_unused_anchor_stays():
    text = "gpu-memory-utilization: &u 0.85\nmodel: a/b\n"
    assert edited(text, set_values={"gpu-memory-utilization": "0.8"}) == text.replace("0.85", "0.8")


def test_one_line_flow_files_are_edited():
    text = '{"model": "a/b", "gpu-memory-utilization": 0.85}\n'
    after = edited(text, set_values={"gpu-memory-utilization": "0.8"}, add={"speculative-config": SPEC})
    assert json.loads(after) == {"model": "a/b", "gpu-memory-utilization": 0.8, "speculative-config": SPEC}


def test_an_empty_value_can_be_set():
    text = "model: a/b\ngpu-memory-utilization:\nport: 1\n"
    assert edited(text, set_values={"gpu-memory-utilization": "0.8"}) == text.replace("tion:", "tion: 0.8")


def test_undecodable_bytes_in_a_comment_survive():
    text = b"# caf\xe9\nmodel: a/b\ngpu-memory-utilization: 0.9\n".decode("utf-8", "surrogateescape")
    after = edited(text, set_values={"gpu-memory-utilization": "0.85"})
    assert after.encode("utf-8", "surrogateescape") == b"# caf\xe9\nmodel: a/b\ngpu-memory-utilization: 0.85\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model: a\nport: 1\nmodel: b\n", 3),
        ("model: a\n\tport: 1\n", 2),
        ("model: [a\nport: 1\n", 2),
        ("model: a: b\n", 1),
    ],
)
def test_broken_files_name_their_line(text, line):
    with pytest.raises(RecipeSyntaxError) as caught:
        parse_config(text, path="v.yaml")
    assert f"v.yaml, line {line}:" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_is_no_config():
    with pytest.raises(RecipeSyntaxError):
        parse_config("- model: a\n")


KEYS = ["model", "port", "max-model-len", "max_num_seqs", "dtype", "served-model-name", "kv-cache-dtype", "seed"]
SCALARS = st.sampled_from(["1", "8k", "auto", "'x y'", '"q # q"', "true", "false", "a/b", "[a, b]", "", "1.5", "~"])
TRAILS = st.sampled_from(["", "  # note", "   "])
GAPS = st.sampled_from(["", "\n", "# between: 1\n", "  # indented\n"])
LINES = st.lists(
    st.tuples(st.sampled_from(KEYS), SCALARS, TRAILS, GAPS), min_size=1, max_size=6, unique_by=lambda line: line[0]
)


@settings(max_examples=150, deadline=None)
@given(LINES, st.booleans(), st.booleans(), st.sampled_from(["0.8", "0.85"]), st.booleans(), st.randoms())
def test_any_file_keeps_its_other_bytes(lines, windows, final_newline, value, present, random):
    rows = [f"{key}: {scalar}{trail}\n{gap}" for key, scalar, trail, gap in lines]
    marked = None
    if present:
        place = random.randrange(len(rows) + 1)
        rows.insert(place, "gpu-memory-utilization: 0.9 # u\n")
        marked = "".join(rows).replace("0.9 # u", f"{value} # u")
    text = "".join(rows)
    if not final_newline:
        text = text.rstrip("\n")
        marked = marked.rstrip("\n") if marked else None
    if windows:
        text = text.replace("\n", "\r\n")
        marked = marked.replace("\n", "\r\n") if marked else None
    after = edited(text, set_values={"gpu-memory-utilization": value})
    if marked is not None:
        assert after == marked
    else:
        # What was there is still there, in order, around one added line.
        start = next(at for at in range(len(after)) if at >= len(text) or after[at] != text[at])
        grown = len(after) - len(text)
        assert any(after[:at] + after[at + grown :] == text for at in range(max(0, start - grown), start + 1))
    expected = yaml.safe_load(text)
    key = next((key for key in yaml.safe_load(after) if key.replace("_", "-") == "gpu-memory-utilization"), None)
    assert key is not None
    assert yaml.safe_load(after) == {**expected, key: float(value)}


BLOCKS = st.sampled_from(
    [
        "compilation-config:\n  mode: 3 # m\n  # inner\n  sizes:\n  - 1\n  - 2\n",
        "allowed-origins:\n- '*'\n# after\n",
        "chat-template: |\n  a: b\n\n  # not a comment\n",
        "chat-template: >-\n  a\n  b\n\n",
        "override-generation-config: {temperature: 0.1,\n  top_k: 3}\n",
        "hf-overrides: '{\"a\": 1}'\n",
        "tokenizer: &t a/b\n",
        "dtype: half\n",
        "seed:\n",
        "port: 1 # p\n\n",
    ]
)


@settings(max_examples=150)
@given(st.lists(BLOCKS, min_size=1, max_size=6, unique_by=lambda text: text.partition(":")[0]), st.booleans())
def test_added_and_removed_again_gives_the_file_back(blocks, windows):
    text = "".join(blocks)
    text = text.replace("\n", "\r\n") if windows else text
    added = edited(text, add={"speculative-config": SPEC})
    read = yaml.safe_load(added)
    key = next(key for key in read if key.startswith("speculative"))
    value = json.loads(read[key]) if isinstance(read[key], str) else read[key]
    assert value == SPEC
    assert {name: item for name, item in read.items() if name != key} == yaml.safe_load(text)
    assert edited(added, remove=["speculative-config"]) == text
