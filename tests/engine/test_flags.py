# SPDX-License-Identifier: Apache-2.0
import argparse
import json
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jetson_specdec.engine.flags import FlagMatch, flag_table
from jetson_specdec.engine.release import NEWEST_KNOWN, release_from_image, release_from_version

FIXTURES = Path(__file__).parents[1] / "data" / "engine"
RELEASES = ("0.11.0", "0.19.0", "0.32.0", "0.33.0")


def resolve(word, version=None):
    return flag_table().resolve(word, release_from_version(version) if version else None)


class ParserError(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise ParserError(message)


def reference(version):
    """Rebuild vLLM's own parser of a release from what was dumped of it: option strings, nargs, kind of action."""
    parser, names = Parser(add_help=False), {}
    for options, nargs in json.loads((FIXTURES / f"parser-{version}.json").read_text(encoding="utf-8"))["options"]:
        dest = "_".join(options)
        kind = (
            {"action": "store_const", "const": True}
            if nargs == 0
            else {"nargs": nargs, "const": True if nargs == "?" else None}
        )
        parser.add_argument(*options, dest=dest, default=None, **kind)
        names[dest] = set(options)
    return parser, names


@pytest.fixture(scope="module", params=RELEASES)
def real(request):
    return (request.param, *reference(request.param))


def what_argparse_says(parser, names, word):
    """Return the option strings of the flag that argparse takes a word for, or `ambiguous`, or None."""
    try:
        known, extras = parser.parse_known_args([word])
    except ParserError as failed:
        message = str(failed)
        if message.startswith("ambiguous option"):
            return "ambiguous"
        said = message.removeprefix("argument ").partition(":")[0].split("/")
        return next(options for options in names.values() if said[0] in options)
    if extras:
        return None
    return next(names[dest] for dest, value in vars(known).items() if value is not None)


def words_to_try(names):
    options = sorted({option for options in names.values() for option in options})
    for option in options:
        yield option
        yield option + "=7"
        yield from {option[:4], option[:9], option[:-2]}
        yield option + "zz"
        yield option[:-1] + "=x" if option.startswith("--") else option + "7"


def test_every_word_means_what_the_release_s_own_parser_says(real):
    version, parser, names = real
    release = release_from_version(version)
    wrong, tried = [], 0
    for word in words_to_try(names):
        if word.startswith("-O"):  # vLLM rewrites these before argparse sees them
            continue
        tried += 1
        said = what_argparse_says(parser, names, word)
        match = flag_table().resolve(word, release)
        if said == "ambiguous":
            right = match.kind == "ambiguous"
        elif said is None:
            right = not match.accepted and match.kind != "ambiguous"
        else:
            right = match.accepted is True and match.option in said
        if not right:
            wrong.append((word, said, match))
    assert tried > 1000
    assert wrong == []


def test_arity_and_negation_are_the_parser_s(real):
    version = real[0]
    release = release_from_version(version)
    expected = {None: "one", "+": "many", "*": "many", "?": "optional", 0: "none"}
    dumped = json.loads((FIXTURES / f"parser-{version}.json").read_text(encoding="utf-8"))["options"]
    assert len(dumped) > 180
    for options, nargs in dumped:
        for option in options:
            match = flag_table().resolve(option, release)
            assert match.arity == expected[nargs], option
            assert match.negated == (option.startswith("--no-") or option == opposite(options[0])), option


def opposite(option):
    """Since 0.33 `--disable-x` switches `--enable-x` off, and the other way round."""
    for word, other in (("--enable-", "--disable-"), ("--disable-", "--enable-")):
        if option.startswith(word):
            return other + option.removeprefix(word)
    return None


class TestSpellings:
    @pytest.mark.parametrize(
        ("word", "kind", "value"),
        [
            ("--gpu-memory-utilization", "exact", None),
            ("--gpu_memory_utilization", "exact", None),
            ("--gpu-memory_utilization=0.85", "exact", "0.85"),
            ("--gpu-mem", "prefix", None),
            ("--gpu", "prefix", None),
            ("--gpu_mem=0.5", "prefix", "0.5"),
            ("--device-memory-utilization", "alias", None),
        ],
    )
    def test_utilization(self, word, kind, value):
        match = resolve(word)
        assert (match.name, match.kind, match.value) == ("--gpu-memory-utilization", kind, value)
        assert match.takes_value == (value is None)
        assert match.known

    @pytest.mark.parametrize(
        ("word", "kind", "key", "value"),
        [
            ("--speculative-config", "exact", None, None),
            ("--speculative_config={}", "exact", None, "{}"),
            ("--speculative-con", "prefix", None, None),
            ("-sc", "alias", None, None),
            ("-sc.method", "alias", "method", None),
            ("--speculative-config.num_speculative_tokens=3", "exact", "num_speculative_tokens", "3"),
            ("--speculative_config.draft_load_config.load_format", "exact", "draft_load_config.load_format", None),
            ('--speculative-config={"model": "a/b.c"}', "exact", None, '{"model": "a/b.c"}'),
        ],
    )
    def test_speculative_config(self, word, kind, key, value):
        match = resolve(word)
        assert (match.name, match.kind, match.key, match.value) == ("--speculative-config", kind, key, value)
        assert match.json

    def test_underscores_behind_the_dot_stay(self):
        assert resolve("--speculative_config.num_speculative_tokens").key == "num_speculative_tokens"

    def test_spec_is_ambiguous_where_the_short_forms_exist(self):
        match = resolve("--spec", "0.22.0")
        assert match.kind == "ambiguous"
        assert {"--speculative-config", "--spec-method", "--spec-model", "--spec-tokens"} <= set(match.candidates)
        assert not match.known
        assert resolve("--spec", "0.10.2").name == "--speculative-config"

    def test_an_old_name_is_a_beginning_of_the_new_one(self):
        assert resolve("--kv-cache-memory").name == "--kv-cache-memory-bytes"

    def test_negations(self):
        match = resolve("--no-enable-prefix-caching", "0.20.0")
        assert (match.name, match.negated, match.takes_value) == ("--enable-prefix-caching", True, False)
        assert resolve("--enable-prefix-caching").negated is False

    def test_an_option_string_can_pass_to_another_flag(self):
        assert resolve("--disable-log-requests", "0.10.0").name == "--disable-log-requests"
        gone = resolve("--disable-log-requests", "0.20.0")
        assert (gone.kind, gone.gone_since, gone.replacement) == ("retired", "0.17.0", "--no-enable-log-requests")
        back = resolve("--disable-log-requests", "0.33.0")
        assert (back.name, back.negated, back.accepted) == ("--enable-log-requests", True, True)

    def test_glued_values(self):
        assert (resolve("-tp=2").name, resolve("-tp=2").value) == ("--tensor-parallel-size", "2")
        assert (resolve("-qfp8").name, resolve("-qfp8").value) == ("--quantization", "fp8")
        assert (resolve("-O3").name, resolve("-O3").value) == ("--optimization-level", "3")
        assert (resolve("-O3", "0.10.2").name, resolve("-O3", "0.10.2").value) == ("--compilation-config", "3")

    def test_many_words(self):
        assert resolve("--served-model-name").arity == "many"

    @pytest.mark.parametrize("word", ["", "-", "model/id", "-5", "-0.5", "{}", "a=b"])
    def test_positionals(self, word):
        assert resolve(word) == FlagMatch(word=word, kind="positional")

    def test_separator(self):
        assert resolve("--").kind == "separator"


class TestReleases:
    @pytest.mark.parametrize(
        ("word", "since"),
        [("-sc", "0.19.0"), ("--spec-method", "0.22.0"), ("--spec-tokens", "0.22.0"), ("--port", "0.8.5")],
    )
    def test_since(self, word, since):
        assert resolve(word).since == since

    def test_too_young_a_flag_is_known_but_not_accepted(self):
        match = resolve("--spec-method", "0.20.2")
        assert (match.kind, match.name, match.accepted) == ("exact", "--spec-method", False)
        assert resolve("--spec-method", "0.22.0").accepted is True

    def test_accepted_is_open_for_an_unknown_release(self):
        assert resolve("-sc").accepted is None
        assert resolve("--port").accepted is True
        orin = release_from_image("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-thor")
        assert flag_table().resolve("-sc", orin).accepted is None

    @pytest.mark.parametrize(
        ("word", "name", "gone"),
        [
            ("--swap-space", "--swap-space", "0.18.0"),
            ("--max-seq-len", "--max-seq-len-to-capture", "0.11.0"),
            ("--max_seq_len_to_capture=8192", "--max-seq-len-to-capture", "0.11.0"),
            ("--num-scheduler-steps", "--num-scheduler-steps", "0.10.1"),
            ("--speculative-model", "--speculative-model", "0.8.5"),
            ("--num-speculative-tokens=5", "--num-speculative-tokens", "0.8.5"),
        ],
    )
    def test_retired(self, word, name, gone):
        match = resolve(word)
        assert (match.kind, match.name, match.gone_since, match.accepted) in [
            ("retired", name, gone, None),
            ("retired", name, gone, False),
        ]
        assert match.known
        assert match.takes_value == ("=" not in word)

    def test_retired_only_where_it_is_gone(self):
        assert resolve("--swap-space", "0.17.1").kind == "exact"
        assert resolve("--swap-space", "0.18.0").kind == "retired"

    def test_the_old_speculative_flags_name_their_key(self):
        assert resolve("--speculative-model").replacement == "--speculative-config.model"

    def test_replacements_exist_in_the_newest_release(self):
        for name in flag_table().names:
            flag = flag_table().flag(name)
            if flag.replacement:
                assert resolve(flag.replacement.split()[0], NEWEST_KNOWN).accepted is True, name


class TestMistakes:
    @pytest.mark.parametrize(
        ("word", "suggestion"),
        [
            ("—gpu-memory-utilization", "--gpu-memory-utilization"),
            ("–gpu-memory-utilization", "--gpu-memory-utilization"),
            ("−−gpu-memory-utilization=0.35", "--gpu-memory-utilization=0.35"),
            ("-–max-model-len", "--max-model-len"),
            ("--gpu–memory–utilization", "--gpu-memory-utilization"),
            ("–tp", "-tp"),
            ("—made-up", "--made-up"),
        ],
    )
    def test_typography(self, word, suggestion):
        match = resolve(word)
        assert (match.kind, match.suggestion, match.name) == ("typography", suggestion, None)

    @pytest.mark.parametrize("word", ["—", "a — b", "—–"])
    def test_a_dash_alone_is_text(self, word):
        assert resolve(word).kind == "positional"

    @pytest.mark.parametrize(
        ("word", "suggestion"),
        [
            ("--gpu-memory-utilisation", "--gpu-memory-utilization"),
            ("--gpu-memory-utilisation=0.25", "--gpu-memory-utilization=0.25"),
            ("--gpu_memory_utilisation=0.25", "--gpu-memory-utilization=0.25"),
            ("--max-modle-len", "--max-model-len"),
            ("-gpu-memory-utilization", "--gpu-memory-utilization"),
            ("--no-such-thing-at-all", None),
        ],
    )
    def test_near_misses(self, word, suggestion):
        match = resolve(word)
        assert (match.kind, match.suggestion) == ("unknown", suggestion)
        assert not match.known
        assert match.arity is None

    def test_two_words_in_one(self):
        assert resolve("--no-such-flag 5").kind == "positional"


KINDS = {"exact", "alias", "prefix", "ambiguous", "unknown", "retired", "typography", "positional", "separator"}
ALPHABET = st.sampled_from([*"-–—_=.O5 ", *"spectokngupm"])


@settings(max_examples=400)
@given(
    st.one_of(st.text(max_size=30), st.text(ALPHABET, max_size=20)),
    st.sampled_from([None, "0.6.3", "0.8.5", "0.19.0", "0.33.0", "9.9"]),
)
@example("-O", None)
@example("-\x00", "0.8.5")
@example("--.=", None)
@example("-.", None)
def test_never_fails_and_stays_consistent(word, version):
    match = resolve(word, version)
    assert match.word == word
    assert match.kind in KINDS
    assert match.known == (match.name is not None)
    assert (match.kind == "ambiguous") == (len(match.candidates) > 0)
    if match.known:
        flag = flag_table().flag(match.name)
        assert flag.name == match.name
        assert match.option in flag.options


@given(st.sampled_from(sorted(flag_table().names)), st.text(max_size=10))
def test_the_value_behind_the_equals_sign_is_kept(name, value):
    match = resolve(f"{name}={value}")
    assert (match.name is not None, match.value) == (True, value)


def test_the_table_is_well_formed():
    listed = json.loads(resources.files("jetson_specdec.engine").joinpath("data/releases.json").read_text("utf-8"))[
        "releases"
    ]
    for name in flag_table().names:
        flag = flag_table().flag(name)
        assert flag.name == name
        assert flag.name.startswith("--")
        for option in flag.options:
            first, last = flag.span(option)
            assert first in listed or first == "0.0"
            assert last is None or last in listed or last == "0.8.2"
