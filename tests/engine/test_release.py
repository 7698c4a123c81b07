# SPDX-License-Identifier: Apache-2.0
import json
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.image import parse_image
from jetson_specdec.engine.release import (
    NEWEST_KNOWN,
    at_least,
    default_utilization,
    default_utilizations,
    from_flags,
    possible_versions,
    release_from_image,
    release_from_version,
)
from jetson_specdec.errors import ReleaseError

DIGEST = "sha256:" + "0f" * 32


def data(name):
    return json.loads(
        resources.files("jetson_specdec.engine").joinpath(f"data/{name}.json").read_text(encoding="utf-8")
    )


class TestVersionTexts:
    @pytest.mark.parametrize(
        ("text", "version"),
        [
            ("0.32.0", "0.32.0"),
            ("v0.20.2", "0.20.2"),
            ("0.20.1+cu130", "0.20.1"),
            ("vllm 0.11.2", "0.11.2"),
            ("vllm==0.15.1", "0.15.1"),
            ("0.15.0rc1", "0.15.0rc1"),
            ("0.6.6.post1", "0.6.6.post1"),
            ("0.20", "0.20"),
            ("INFO 03-02 10:00:00 [__init__.py:216] Automatically detected platform cuda.\n0.20.2\n", "0.20.2"),
        ],
    )
    def test_what_people_and_programs_write(self, text, version):
        release = release_from_version(text)
        assert release.version == version
        assert release.candidates == (version,)
        assert release.source == "version_command"
        assert not release.floating

    @pytest.mark.parametrize(
        "text", ["", "latest", "vllm", "0", "32", "dev", "0.20.2 0.21.0", "/srv/0.20.2", "1.2.3.4.5", "٠.٢٠"]
    )
    def test_what_is_no_version(self, text):
        with pytest.raises(ReleaseError) as caught:
            release_from_version(text)
        assert caught.value.code == "JSE301"
        assert "vLLM version" in str(caught.value)

    def test_a_development_version_is_between_two_releases(self):
        release = release_from_version("0.15.0rc2.dev34+g0123abc.cu130")
        assert possible_versions(release) == ("0.14.0", "0.15.0")
        assert at_least(release, "0.14") is True
        assert at_least(release, "0.15") is None
        assert at_least(release, "0.16") is False

    def test_a_source_build_without_tags_says_nothing(self):
        release = release_from_version("0.1.dev11203+g5a1b2c3")
        assert release.version is None
        assert release.candidates == ()
        assert at_least(release, "0.1") is None

    def test_newer_than_the_table_counts_as_the_newest(self):
        release = release_from_version("0.99.1")
        assert release.beyond_table
        assert possible_versions(release) == (NEWEST_KNOWN,)
        assert not release_from_version(NEWEST_KNOWN).beyond_table

    @given(st.text(max_size=60))
    def test_never_another_error(self, text):
        try:
            release = release_from_version(text)
        except ReleaseError:
            return
        assert release.version is not None or release.note is not None

    @given(
        st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(0, 9)),
        st.sampled_from(["", "v", "vllm ", "vllm=="]),
    )
    def test_every_plain_version_reads_back(self, numbers, prefix):
        text = ".".join(map(str, numbers))
        assert release_from_version(prefix + text).version == text


class TestImages:
    @pytest.mark.parametrize(
        ("image", "version", "distribution"),
        [
            ("vllm/vllm-openai:v0.20.2", "0.20.2", "upstream"),
            ("vllm/vllm-openai:v0.20.2-aarch64", "0.20.2", "upstream"),
            ("vllm/vllm-openai:v0.22.0-cu129", "0.22.0", "upstream"),
            ("vllm/vllm-openai-aarch64:v0.12.0", "0.12.0", "upstream"),
            ("docker.io/vllm/vllm-openai:v0.19.0-cu130", "0.19.0", "upstream"),
            ("m.daocloud.io/docker.io/vllm/vllm-openai:v0.11.0", "0.11.0", "upstream"),
            ("registry.local:5000/vllm/vllm-openai:v0.20.2", "0.20.2", "upstream"),
            (f"vllm/vllm-openai:v0.20.2@{DIGEST}", "0.20.2", "upstream"),
            ("nvcr.io/nvidia/vllm:26.05-py3", "0.20.1", "nvcr"),
            ("nvcr.io/nvidia/vllm:25.10-py3", "0.10.2", "nvcr"),
            ("dustynv/vllm:0.6.3-r36.4.0", "0.6.3", "dustynv"),
            ("dustynv/vllm:0.6.6.post1-r36.4.0", "0.6.6.post1", "dustynv"),
            ("ghcr.io/nvidia-ai-iot/vllm:0.14.0-r36.4-tegra-aarch64-cu126-22.04", "0.14.0", "nvidia_ai_iot"),
        ],
    )
    def test_tags_that_name_a_release(self, image, version, distribution):
        release = release_from_image(image)
        assert (release.version, release.distribution, release.image) == (version, distribution, image)
        assert release.candidates == (version,)
        assert not release.floating

    @pytest.mark.parametrize(
        "image",
        [
            "vllm/vllm-openai",
            "vllm/vllm-openai:latest",
            "localhost:5000/vllm/vllm-openai",
            "vllm/vllm-openai:cu130-nightly",
        ],
    )
    def test_a_floating_upstream_tag_is_the_newest_known(self, image):
        release = release_from_image(image)
        assert release.version is None
        assert release.candidates == (NEWEST_KNOWN,)
        assert release.floating
        assert default_utilization(release) == 0.92

    def test_a_digest_pins(self):
        assert not release_from_image(f"vllm/vllm-openai:latest@{DIGEST}").floating

    def test_a_bare_digest_tells_no_release(self):
        release = release_from_image(f"vllm/vllm-openai@{DIGEST}")
        assert (release.version, release.candidates, release.floating) == (None, (), False)

    def test_a_known_digest_is_its_tag(self):
        (digest, entry), *_ = data("images")["digests"].items()
        release = release_from_image(f"ghcr.io/nvidia-ai-iot/vllm@{digest}")
        assert entry["tag"].startswith(f"{release.version}-")

    def test_a_nightly_of_a_commit_does_not_move_but_is_unknown(self):
        release = release_from_image("vllm/vllm-openai:nightly-" + "0a1b2c3d" * 5)
        assert (release.version, release.candidates, release.floating) == (None, (), False)

    def test_the_orin_line_ends_at_its_newest_known_image(self):
        release = release_from_image("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin")
        assert release.version is None
        assert release.candidates[-1] == "0.14.0"
        assert release.floating
        assert default_utilization(release) == 0.9
        assert at_least(release, "0.15") is False

    def test_the_thor_line_is_open(self):
        release = release_from_image("ghcr.io/nvidia-ai-iot/vllm:latest-jetson-thor")
        assert release.floating
        assert (release.candidates[0], release.candidates[-1]) == ("0.11.2", NEWEST_KNOWN)
        assert default_utilization(release) is None
        assert default_utilizations(release) == (0.9, 0.92)

    def test_a_month_between_two_known_ones(self):
        release = release_from_image("nvcr.io/nvidia/vllm:26.07-py3")
        assert release.version is None
        assert at_least(release, "0.20") is True
        assert at_least(release, "0.32") is False
        assert at_least(release, "0.25") is None

    def test_months_around_the_known_ones(self):
        assert at_least(release_from_image("nvcr.io/nvidia/vllm:27.02-py3"), "0.31") is True
        assert release_from_image("nvcr.io/nvidia/vllm:24.01-py3").candidates == ()
        assert release_from_image("nvcr.io/nvidia/vllm:26.05.post1-py3").candidates == ("0.20.1",)

    @pytest.mark.parametrize("image", ["registry.example/team/vllm:0.6.3-r36.4.0", "me/jetson-vllm-custom:v0.6.3"])
    def test_a_strange_image_with_a_version_is_a_hint(self, image):
        release = release_from_image(image)
        assert (release.version, release.candidates, release.distribution) == (None, ("0.6.3",), "other")
        assert default_utilization(release) == 0.9

    @pytest.mark.parametrize(
        "image", ["ubuntu:22.04", "me/vllm-app:1.4.0", "lmsysorg/sglang:v0.5.5", "nvcr.io/nvidia/pytorch:25.10-py3"]
    )
    def test_other_images_are_unknown(self, image):
        release = release_from_image(image)
        assert (release.version, release.candidates, release.distribution) == (None, (), "other")

    @pytest.mark.parametrize("image", [None, "", "  "])
    def test_no_image(self, image):
        assert release_from_image(image) == EngineRelease()

    @given(st.text(max_size=80))
    def test_never_fails(self, image):
        release = release_from_image(image)
        assert not (release.version and release.candidates != (release.version,) and len(release.candidates) < 2)

    @given(
        st.from_regex(r"[a-z]{1,8}(:[0-9]{2,5})?/[a-z]{1,8}", fullmatch=True), st.sampled_from(["v0.20.2", "latest"])
    )
    def test_a_mirror_changes_nothing(self, mirror, tag):
        straight = release_from_image(f"vllm/vllm-openai:{tag}")
        mirrored = release_from_image(f"{mirror}/vllm/vllm-openai:{tag}")
        assert (mirrored.version, mirrored.candidates, mirrored.floating) == (
            straight.version,
            straight.candidates,
            straight.floating,
        )

    def test_the_parts_of_a_reference(self):
        ref = parse_image(f"Reg.Example:5000/NVIDIA-AI-IOT/vllm:r36.4-tegra-aarch64-cu126-22.04@{DIGEST}")
        assert ref.name == "reg.example:5000/nvidia-ai-iot/vllm"
        assert ref.tag == "r36.4-tegra-aarch64-cu126-22.04"
        assert (ref.digest, ref.board, ref.l4t_major, ref.cuda) == (DIGEST, "orin", 36, "12.6")

    def test_every_tabled_tag_is_read(self):
        names = {"nvidia_ai_iot": "ghcr.io/nvidia-ai-iot/vllm", "nvcr": "nvcr.io/nvidia/vllm"}
        for distribution, tags in data("images")["tags"].items():
            for tag, entry in tags.items():
                release = release_from_image(f"{names[distribution]}:{tag}")
                assert release.version == entry.get("version")
                assert release.note


class TestFlags:
    def test_a_young_flag_proves_a_lower_bound(self):
        release = from_flags(["--spec-method", "--max-model-len", "-tp"])
        assert release.source == "flags"
        assert release.version is None
        assert at_least(release, "0.22") is True
        assert at_least(release, "0.23") is None
        assert default_utilization(release) == 0.92

    def test_the_short_option(self):
        assert at_least(from_flags(["-sc"]), "0.19") is True
        assert default_utilization(from_flags(["-sc"])) is None

    def test_the_youngest_flag_counts(self):
        assert at_least(from_flags(["-sc", "--spec-tokens=3"]), "0.22") is True

    @pytest.mark.parametrize("words", [[], ["--swap-space", "--max-seq-len"], ["--no-such-flag"], ["--port"]])
    def test_nothing_proved(self, words):
        assert from_flags(words) == EngineRelease()

    def test_what_is_known_stays(self):
        known = release_from_version("0.20.2")
        assert from_flags(["--spec-method"], known) is known


class TestAnswers:
    @pytest.mark.parametrize(
        ("version", "default"),
        [("0.6.3", 0.9), ("0.8.5", 0.9), ("0.19.1", 0.9), ("0.20.0", 0.92), ("0.33.0", 0.92), ("0.99", 0.92)],
    )
    def test_default_utilization(self, version, default):
        assert default_utilization(release_from_version(version)) == default

    def test_an_unknown_release_has_no_default(self):
        assert default_utilization(EngineRelease()) is None
        assert default_utilizations(EngineRelease()) == (0.9, 0.92)
        assert at_least(EngineRelease(), "0.1") is None
        assert possible_versions(EngineRelease()) == ()

    def test_short_and_long_versions_are_equal(self):
        assert at_least(release_from_version("0.20.0"), "0.20") is True
        assert at_least(release_from_version("0.20"), "0.20.0") is True
        assert at_least(release_from_version("0.20.0rc1"), "0.20") is True

    def test_a_patch_release_has_its_predecessors_row(self):
        assert possible_versions(release_from_version("0.10.3")) == ("0.10.2",)

    def test_the_constant_is_the_table(self):
        assert data("releases")["releases"][-1] == NEWEST_KNOWN
