# SPDX-License-Identifier: Apache-2.0
import pytest

from jetson_specdec.engine.core import EngineRelease
from jetson_specdec.engine.entrypoint import entrypoint_of
from jetson_specdec.engine.release import release_from_image, release_from_version
from jetson_specdec.engine.runtime import check_runtime, recommended_image

THOR = {"family": "thor", "l4t": "38.4.0"}
ORIN6 = {"family": "agx_orin", "l4t": "36.4.4"}
ORIN7 = {"family": "agx_orin", "l4t": "39.2.0"}
ORIN_IMAGE = "ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin"
THOR_IMAGE = "ghcr.io/nvidia-ai-iot/vllm:latest-jetson-thor"


def found(board, release, severity="blocking"):
    release = release_from_image(release) if isinstance(release, str) else release
    return [finding.topic for finding in check_runtime(**board, release=release) if finding.severity == severity]


@pytest.mark.parametrize(
    ("board", "image"),
    [
        (THOR, "vllm/vllm-openai:v0.20.2"),
        (THOR, "vllm/vllm-openai:latest"),
        (THOR, THOR_IMAGE),
        (THOR, "nvcr.io/nvidia/vllm:25.09-py3"),
        (THOR, "nvcr.io/nvidia/vllm:26.05-py3"),
        (THOR, "me/own:1"),
        (ORIN7, "vllm/vllm-openai:v0.30.0"),
        (ORIN7, "vllm/vllm-openai"),
        (ORIN7, ORIN_IMAGE),
        (ORIN6, ORIN_IMAGE),
        (ORIN6, "ghcr.io/nvidia-ai-iot/vllm:0.14.0-r36.4-tegra-aarch64-cu126-22.04"),
        (ORIN6, "vllm/vllm-openai:v0.18.0"),
        (ORIN6, "me/own:1"),
        ({"family": "orin_nano", "l4t": "36.4.7"}, ORIN_IMAGE),
        ({"family": "agx_orin", "l4t": None}, "vllm/vllm-openai:v0.11.0"),
        ({"family": None, "l4t": None}, "vllm/vllm-openai:v0.11.0"),
    ],
)
def test_not_proved_wrong(board, image):
    assert found(board, image) == []


@pytest.mark.parametrize(
    ("board", "image", "topic"),
    [
        (THOR, "vllm/vllm-openai:v0.19.0-cu130", "image-too-old"),
        (THOR, ORIN_IMAGE, "runtime-mismatch"),
        (THOR, "dustynv/vllm:0.8.6-r36.4-cu128-24.04", "runtime-mismatch"),
        (THOR, "dustynv/vllm:0.8.6-sbsa-cu128", "image-too-old"),
        (ORIN7, "vllm/vllm-openai:v0.12.0", "image-too-old"),
        (ORIN7, THOR_IMAGE, "runtime-mismatch"),
        (ORIN6, "vllm/vllm-openai:latest", "runtime-mismatch"),
        (ORIN6, "vllm/vllm-openai:v0.18.0-cu130", "runtime-mismatch"),
        (ORIN6, "nvcr.io/nvidia/vllm:25.10-py3", "runtime-mismatch"),
        (ORIN6, THOR_IMAGE, "runtime-mismatch"),
        (ORIN6, "dustynv/vllm:0.6.3-r36.4.0", "image-too-old"),
        ({"family": "agx_orin", "l4t": "35.4.1"}, ORIN_IMAGE, "jetpack-too-old"),
        ({"family": "agx_xavier", "l4t": "35.6.0"}, "vllm/vllm-openai:latest", "jetpack-too-old"),
    ],
)
def test_proved_wrong(board, image, topic):
    assert found(board, image) == [topic]


@pytest.mark.parametrize("board", [THOR, ORIN7])
def test_a_native_engine_counts_by_its_version(board):
    assert found(board, release_from_version("0.19.1")) == ["image-too-old"]
    assert found(board, release_from_version("0.20.1+cu130")) == []
    assert found(board, EngineRelease()) == []
    assert found(board, EngineRelease(), "warning") == ["engine-release-unknown"]


def test_an_upstream_opt_out_of_cuda_13_warns_on_thor():
    assert found(THOR, "vllm/vllm-openai:v0.22.0-cu129", "warning") == ["runtime-mismatch"]


def test_unpinned():
    assert "unpinned" in found(THOR, "vllm/vllm-openai:latest", "warning")
    assert "unpinned" in found(ORIN6, ORIN_IMAGE, "warning")
    assert "unpinned" not in found(THOR, "vllm/vllm-openai:v0.20.2", "warning")
    assert "unpinned" not in found(THOR, "vllm/vllm-openai:latest@sha256:" + "ab" * 32, "warning")


def test_newer_than_the_table_is_said():
    assert "newer-than-table" in found(THOR, "vllm/vllm-openai:v0.88.0", "info")


def test_a_refusal_names_the_right_image():
    (blocking,) = [
        f
        for f in check_runtime(**ORIN6, release=release_from_image("vllm/vllm-openai:latest"))
        if f.severity == "blocking"
    ]
    assert recommended_image(**ORIN6) in blocking.message
    assert blocking.source


def test_recommended_images_are_themselves_right():
    for board in (THOR, ORIN6, ORIN7):
        release = release_from_image(recommended_image(**board))
        assert found(board, release) == []
        assert not release.floating
    assert recommended_image("agx_orin", "35.4.1") is None
    assert recommended_image("agx_orin", None) is None
    assert recommended_image("agx_xavier", "35.4.1") is None


class TestEntrypoint:
    @pytest.mark.parametrize(
        ("image", "kind", "possible"),
        [
            ("vllm/vllm-openai:v0.11.0", "api_server", ("api_server",)),
            ("vllm/vllm-openai:v0.20.2", "vllm_serve", ("vllm_serve",)),
            ("vllm/vllm-openai:latest", "vllm_serve", ("vllm_serve",)),
            ("vllm/vllm-openai:v0.14.0", "unknown", ("api_server", "vllm_serve")),
            ("vllm/vllm-openai@sha256:" + "ab" * 32, "unknown", ("api_server", "vllm_serve")),
            (ORIN_IMAGE, "none", ("none",)),
            ("nvcr.io/nvidia/vllm:26.05-py3", "none", ("none",)),
            ("dustynv/vllm:0.8.6-sbsa-cu128", "none", ("none",)),
            ("me/own-vllm:v0.20.2", "unknown", ()),
        ],
    )
    def test_by_image(self, image, kind, possible):
        entry = entrypoint_of(release_from_image(image))
        assert (entry.kind, entry.possible) == (kind, possible)
        assert bool(entry.words) == (kind in ("vllm_serve", "api_server"))
        assert (entry.source is not None) == (kind != "unknown")

    def test_words(self):
        assert entrypoint_of(release_from_image("vllm/vllm-openai:v0.30.0")).words == ("vllm", "serve")

    def test_native(self):
        assert entrypoint_of(release_from_version("0.20.2")).kind == "none"

    def test_a_version_asked_of_an_image_counts(self):
        release = release_from_version("0.20.2", image="vllm/vllm-openai@sha256:" + "ab" * 32)
        assert entrypoint_of(release).kind == "vllm_serve"
