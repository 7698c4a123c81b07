# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.errors import OptionError
from jetson_specdec.loadgen import Prompt, PromptSet, load_prompts, own_prompts, random_prompts


def test_own_set():
    prompts = own_prompts()
    assert len(prompts) >= 120
    counts = prompts.categories
    assert set(counts) == {"chat", "code", "maths", "summarising", "extraction", "chinese"}
    assert min(counts.values()) >= 15
    assert len({prompt.id for prompt in prompts.prompts}) == len(prompts)
    assert len({prompt.text for prompt in prompts.prompts}) == len(prompts)
    lengths = [len(prompt.text) for prompt in prompts.prompts]
    assert min(lengths) < 80
    assert max(lengths) > 3000
    for category in counts:
        some = prompts.only([category]).prompts
        assert max(len(p.text) for p in some) > 2 * min(len(p.text) for p in some)
    for prompt in prompts.only(["chinese"]).prompts:
        assert prompt.language == "zh"
        assert sum("\u4e00" <= c <= "\u9fff" for c in prompt.text) > 10
    summarising = [len(prompt.text.split()) for prompt in prompts.only(["summarising"]).prompts]
    assert sum(300 <= count <= 900 for count in summarising) >= 5


def test_own_prompts_share_no_long_beginning():
    """A prefix cache works by blocks of 16 tokens and more; 40 shared characters are about ten."""
    texts = sorted(prompt.text for prompt in own_prompts().prompts)
    for one, other in pairwise(texts):
        shared = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
        assert shared < 40, one[:60]


def test_arranging_depends_on_the_seed_only_and_keeps_shares():
    prompts = own_prompts()
    first, again, other = prompts.arranged(1), prompts.arranged(1), prompts.arranged(2)
    assert first == again != other
    assert sorted(p.id for p in first.prompts) == sorted(p.id for p in prompts.prompts)
    for seed in range(5):
        arranged = prompts.arranged(seed)
        for start in range(0, len(prompts) - 50, 10):
            stretch = PromptSet(name="x", prompts=arranged.prompts[start : start + 50])
            for category, count in prompts.categories.items():
                expected = 50 * count / len(prompts)
                assert abs(stretch.categories.get(category, 0) - expected) <= 1.5


def test_digest_sees_every_difference():
    one = PromptSet(name="a", prompts=(Prompt(id="1", text="x"), Prompt(id="2", text="y")))
    digests = {
        one.sha256(),
        PromptSet(name="a", prompts=one.prompts[::-1]).sha256(),
        PromptSet(name="a", prompts=(Prompt(id="1", text="x"), Prompt(id="2", text="z"))).sha256(),
        PromptSet(name="a", prompts=(Prompt(id="1", text="x", turns=({"role": "system", "content": "s"},)),)).sha256(),
        one.salted("s").sha256(),
    }
    assert len(digests) == 5
    assert one.sha256() == PromptSet(name="other", prompts=one.prompts).sha256()


FORMS = {
    "sharegpt.json": json.dumps(
        [
            {"id": "a1", "conversations": [{"from": "human", "value": "first"}, {"from": "gpt", "value": "yes"}]},
            {"id": "a2", "conversations": [{"from": "gpt", "value": "begins wrongly"}]},
            {"id": "a3", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "second"}]},
            {"id": "a4", "conversations": []},
        ]
    ),
    "plain.jsonl": '{"prompt": "first", "category": "x"}\n\n{"text": "second", "id": 7}\n{"other": 1}\n',
    "question.jsonl": '{"question_id": 81, "category": "writing", "turns": ["first", "then"]}\n'
    '{"question_id": 82, "category": "math", "turns": ["second"]}\n',
    "qualitative.jsonl": '{"id": "q1", "category": "coding", "messages": [{"role": "user", "content": "first"}]}\n'
    '{"id": "q2", "category": "qa", "messages": [{"role": "system", "content": "s"}, '
    '{"role": "user", "content": "second"}]}\n',
    "list.json": '["first", "second", "second"]',
}


@pytest.mark.parametrize("name", FORMS)
def test_forms(tmp_path, name):
    file = tmp_path / name
    file.write_text(FORMS[name], encoding="utf-8")
    prompts = load_prompts(file)
    assert prompts.name == name
    texts = [prompt.text for prompt in prompts.prompts]
    assert texts[:2] == ["first", "second"]
    assert len({prompt.id for prompt in prompts.prompts}) == len(prompts)


def test_ids_categories_and_system_turns(tmp_path):
    for name, text in FORMS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    spec = load_prompts(tmp_path / "question.jsonl")
    assert [(p.id, p.category) for p in spec.prompts] == [("81", "writing"), ("82", "math")]
    assert load_prompts(tmp_path / "question.jsonl", category="math").prompts[0].text == "second"
    with pytest.raises(OptionError, match="it has: math, writing"):
        load_prompts(tmp_path / "question.jsonl", category="art")
    folder = load_prompts(tmp_path)
    assert folder.name == "qualitative.jsonl"
    assert folder.prompts[1].messages == (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "second"},
    )
    assert [p.id for p in load_prompts(tmp_path / "sharegpt.json").prompts] == ["a1", "a3"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "JSE674"),
        ("[]", "JSE674"),
        ('{"x": 1}\n', "JSE674"),
        ('{"prompt": "a"}\nnot json\n', "JSE673"),
        ("[1, 2", "JSE673"),
        ("[" * 100_000, "JSE673"),
        ('{"prompt": "   "}\n', "JSE674"),
    ],
)
def test_files_that_are_none(tmp_path, text, code):
    file = tmp_path / "prompts.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError) as caught:
        load_prompts(file)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)


def test_line_of_the_fault_is_named(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "a"}\n\n{oops\n', encoding="utf-8")
    with pytest.raises(OptionError, match="line 3"):
        load_prompts(file)


def test_missing_or_binary_file(tmp_path):
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00\x81")
    for path in (tmp_path / "none.jsonl", tmp_path / "b.jsonl", tmp_path):
        with pytest.raises(OptionError) as caught:
            load_prompts(path)
        assert caught.value.code == "JSE672"


def test_random_is_a_ramp_from_the_incumbent_s_offsets():
    """vLLM 0.32: offsets are the third draw of numpy's generator; prompt i is (offset + i + 0…n−1) mod vocabulary."""
    import numpy as np

    generator = np.random.default_rng(3)
    for low, high in ((16, 17), (1, 2)):
        generator.integers(low, high, size=5)
    offsets = generator.integers(0, 1000, size=5)
    prompts = random_prompts(5, input_len=16, vocabulary=1000, seed=3)
    assert prompts.name == "random"
    for index, prompt in enumerate(prompts.prompts):
        assert prompt.token_ids == tuple(int(offsets[index] + index + step) % 1000 for step in range(16))
    assert random_prompts(5, seed=3) != random_prompts(5, seed=4)
    with pytest.raises(OptionError):
        random_prompts(5, input_len=0)
    with pytest.raises(OptionError):
        prompts.salted("x")


def outcome(file):
    """The texts in a file, or the code of the error."""
    try:
        return [prompt.text for prompt in load_prompts(file).prompts], None
    except OptionError as error:
        return [], error.code


@given(st.binary(max_size=200))
def test_any_file_is_prompts_or_one_clear_error(tmp_path_factory, data):
    file = tmp_path_factory.mktemp("p") / "f.jsonl"
    file.write_bytes(data)
    texts, code = outcome(file)
    assert bool(texts) != (code in ("JSE672", "JSE673", "JSE674"))


_JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["prompt", "messages", "conversations", "turns", "role", "from", "content", "value", "id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(_JSON, max_size=4))
def test_any_json_is_prompts_or_one_clear_error(tmp_path_factory, entries):
    file = tmp_path_factory.mktemp("p") / "f.json"
    file.write_text(json.dumps(entries), encoding="utf-8")
    texts, code = outcome(file)
    assert bool(texts) != (code == "JSE674")
    assert all(text.strip() for text in texts)
